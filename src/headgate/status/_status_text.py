"""A pipeline's status in words, the same in the terminal, the log and the page."""

from __future__ import annotations

from headgate.lake import Place
from headgate.status._status import (
    Activity,
    FilesStatus,
    FreshnessStatus,
    IndexStatus,
    KafkaStatus,
    LagStatus,
    RequestsStatus,
    SignalStatus,
    SnapshotStatus,
    Status,
    TableReadProgress,
    TableStatus,
)

__all__ = [
    "activity_lines",
    "activity_text",
    "counted",
    "duration",
    "figures_text",
    "files_text",
    "freshness_text",
    "gtid_text",
    "index_text",
    "kafka_text",
    "lag_text",
    "percent",
    "place_text",
    "progress_lines",
    "progress_text",
    "rates_text",
    "requests_text",
    "signal_text",
    "snapshot_text",
    "storage_lines",
    "table_remarks",
    "table_text",
]

_LONGEST_GTID = 100
_NAMED = 2
"""Number of a batch's tables that are named; the others are counted."""
_PHASES = {
    "starting": "starting Spark",
    "compiling": "compiling, once on this machine (headgate prefetch does it before)",
    "checking": "looking at the tables in the lake",
    "planning": "planning the next batch",
    "committing": "entering the batch in the ledger",
    "resting": "waiting for more changes, to write them at once (target.freshness_ms)",
    "waiting": "waiting for changes",
    "retrying": "waiting before the next try",
    "stopping": "stopping",
}


def duration(seconds: float) -> str:
    """Return a time span in words, for people: ``9.4 s``, ``2 min 5 s``, ``3 h 7 min``, ``2 d 14 h``."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{seconds:.1f} s" if round(seconds, 1) < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def counted(number: int, thing: str) -> str:
    """Return ``1 row``, ``2,000 rows``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def percent(done: int, estimate: int | None) -> int | None:
    """Return the percentage done, if there is an estimate; 99 at most, because it may be too low."""
    return min(99, 100 * done // estimate) if estimate else None


def gtid_text(gtid: str) -> str:
    """Return the end of a GTID set, as much as a line can hold."""
    return gtid if len(gtid) <= _LONGEST_GTID else f"…{gtid[1 - _LONGEST_GTID :]}"


def lag_text(lag: LagStatus) -> str:
    """Return the lag: ``lag 1.2 s, at least 12 transactions behind``."""
    if lag.seconds is None:
        return "lag not known yet"
    text = f"lag {duration(lag.seconds)}"
    return f"{text}, at least {counted(lag.transactions, 'transaction')} behind" if lag.transactions else text


def freshness_text(freshness: FreshnessStatus) -> str:
    """Return the freshness: ``freshness p50 0.8 s, p99 2.1 s``; empty without recent changes."""
    if freshness.p50 is None or freshness.p99 is None:
        return ""
    return f"freshness p50 {duration(freshness.p50)}, p99 {duration(freshness.p99)}"


def index_text(index: IndexStatus | None) -> str:
    """Return ``building key indexes of 1 table, 240 MB on disk``; empty while none is being built."""
    if index is None or not index.tables_building:
        return ""
    megabytes = index.bytes_on_disk / 1e6
    return f"building key indexes of {counted(index.tables_building, 'table')}, {megabytes:,.0f} MB on disk"


def kafka_text(kafka: KafkaStatus | None) -> str:
    """Return ``Kafka has 1,250 messages of this run, 3.1 MB``; empty without Kafka."""
    if kafka is None:
        return ""
    return f"Kafka has {counted(kafka.messages, 'message')} of this run, {_megabytes(kafka.bytes)}"


def files_text(files: FilesStatus | None) -> str:
    """Return ``29 files, 0.3 MB``; empty while unknown."""
    return "" if files is None else f"{counted(files.number, 'file')}, {_megabytes(files.bytes)}"


def requests_text(requests: RequestsStatus | None) -> str:
    """Return ``480,000 PUT and LIST, 854,000 GET a day``, at the rate of this run; empty without an object store."""
    if requests is None or not requests.seconds:
        return ""
    put, get = requests.a_day(requests.put + requests.list), requests.a_day(requests.get)
    return f"{put:,} PUT and LIST, {get:,} GET a day"


def storage_lines(status: Status) -> list[str]:
    """Return the lake's files and its requests, if they are known."""
    files, requests = status.files, requests_text(status.requests)
    lines = [] if files is None else [f"files: {_files_by_kind(files)}"]
    if requests and status.requests is not None:
        lines.append(f"requests: {requests}, as in the last {duration(status.requests.seconds)}")
    return lines


def _files_by_kind(files: FilesStatus) -> str:
    return (
        f"{files.data:,} of data, {files.vectors:,} of deletion vectors, {files.log:,} of logs;"
        f" {_megabytes(files.bytes)}"
    )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"


def rates_text(status: Status) -> str:
    """Return ``41.2 changes/s, 25,000 rows/s read``; rows only from about one a second on."""
    rows = f", {status.rows_per_second:,.0f} rows/s read" if status.rows_per_second > 0.5 else ""
    return f"{status.changes_per_second:,.1f} changes/s{rows}"


def figures_text(status: Status) -> str:
    """Return lag, freshness and rates in one line."""
    return ", ".join(filter(None, [lag_text(status.lag), freshness_text(status.freshness), rates_text(status)]))


def progress_lines(status: Status) -> list[str]:
    """Return the progress of a run apart from its activity: of the snapshot, of key indexes, of messages to Kafka; also
    whether reading is paused, unless the activity says so.
    """
    activity = status.activity
    paused = "reading tables is paused" if status.paused and not (activity and activity.paused) else ""
    snapshot = snapshot_text(status.snapshot) if status.activity is not None and status.snapshot is not None else ""
    return [*filter(None, [paused, snapshot, index_text(status.index), kafka_text(status.kafka)])]


def progress_text(rows: int, estimate: int | None) -> str:
    """Return ``1,250 of about 4,000 rows (31 %)``; only the count if the estimate is missing or exceeded."""
    if not estimate or rows > estimate:
        return counted(rows, "row")
    return f"{rows:,} of about {counted(estimate, 'row')} ({percent(rows, estimate)} %)"


def snapshot_text(snapshot: SnapshotStatus) -> str:
    """Return the progress of the snapshot of all tables that are being read."""
    left = "" if snapshot.seconds_left is None else f", about {_whole(snapshot.seconds_left)} left"
    return (
        f"snapshot of {counted(snapshot.tables, 'table')}: {progress_text(snapshot.rows, snapshot.rows_estimate)}{left}"
    )


def signal_text(signal: SignalStatus) -> str:
    """Return what a signal is, and why it is in its state: ``execute-snapshot of shop.orders: …``."""
    more = f" and {len(signal.tables) - _NAMED} more" if len(signal.tables) > _NAMED else ""
    tables = f" of {', '.join(signal.tables[:_NAMED])}{more}" if signal.tables else ""
    return f"{signal.type}{tables}{f': {signal.reason}' if signal.reason else ''}"


def table_text(table: TableStatus, progress: TableReadProgress | None = None) -> str:
    """Return the status of a table, without its name and state.

    :param progress: the current batch's read of it.
    """
    if table.is_suspended:
        return table_remarks(table)
    text = _snapshot_progress(table, progress) if table.state == "snapshotting" else _changes_text(table)
    return "; ".join(filter(None, [text, table_remarks(table)]))


def place_text(place: Place, reason: str | None = None) -> str:
    """Return the table's name in the lake.

    :param reason: why the merged table that it is part of lacks its newest changes.
    """
    shard = "" if place.shard is None else f", where {place.column} is '{place.shard}'"
    return f"in the lake: {place.table}{shard}{f', which {reason}' if reason else ''}"


def table_remarks(table: TableStatus) -> str:
    """Return the table's other name, which hook makes its columns, how they differ from MySQL's, what readers have, and
    why it is in its state, where they apply.
    """
    hook = f"columns by the hook {table.hook}" if table.hook else ""
    ignored = f"columns unlike MySQL's ({', '.join(table.ignored)})" if table.ignored else ""
    beside = "readers have the old table until the new one is complete" if table.beside else ""
    return "; ".join(filter(None, [table.place, hook, ignored, beside, table.reason]))


def _snapshot_progress(table: TableStatus, progress: TableReadProgress | None) -> str:
    if not table.chunks_estimate and progress is None:
        return "waits to be read"
    rows = table.rows_read
    estimate = table.rows_estimate or (progress.table_rows_estimate if progress else None)
    chunks = f"{table.chunks_done or 0:,} of {counted(table.chunks_estimate, 'chunk')}" if table.chunks_estimate else ""
    return f"{progress_text(rows, estimate)}, {chunks}" if chunks else progress_text(rows, estimate)


def _changes_text(table: TableStatus) -> str:
    rate = f", {table.changes_per_second:,.1f} changes/s" if table.changes_per_second else ""
    rows = f", {counted(table.rows, 'row')} read" if table.rows else ""
    return f"{counted(table.changes, 'change')}{rate}{rows}"


def activity_text(activity: Activity, now_us: int) -> str:
    """Return what the run does now, its progress and how long it has taken so far, in one line."""
    return ": ".join(activity_lines(activity, now_us))


def activity_lines(activity: Activity, now_us: int) -> list[str]:
    """Return the same, in two lines while tables are read: activity, figures."""
    if activity.phase == "waiting":
        return [_PHASES["waiting"] + ("; reading tables is paused" if activity.paused else "")]
    seconds = (now_us - activity.since_us) / 1e6
    times = [f"{_whole(seconds)} so far"] if seconds >= 1 else []
    if activity.seconds_left is not None:
        times.append(f"about {_whole(activity.seconds_left)} left")
    if activity.phase == "reading" and activity.tables:
        rows = f"about {counted(activity.rows_estimate or 0, 'row')}"
        changes = [_changes(activity)] if activity.transactions else []
        return [f"reading {_tables(activity)}", ", ".join([rows, *changes, *_tasks(activity), *times])]
    if activity.phase == "reading":
        return [", ".join([f"reading {_changes(activity)}", *_tasks(activity), *times])]
    what = _applying(activity) if activity.phase == "applying" else _PHASES[activity.phase]
    if activity.waits_for is not None:
        what = f"{what}: waiting for {activity.waits_for}"
    return [", ".join([what, *times])]


def _whole(seconds: float) -> str:
    """Return a time span without fractions of seconds."""
    return f"{max(1, round(seconds))} s" if seconds < 10 else duration(seconds)


def _changes(activity: Activity) -> str:
    return f"changes of {counted(activity.transactions, 'transaction')}" if activity.transactions else "changes"


def _tasks(activity: Activity) -> list[str]:
    """Return how many tasks are done, if that is known."""
    return [f"{activity.tasks_done or 0:,} of {counted(activity.tasks, 'task')} done"] if activity.tasks else []


def _tables(activity: Activity) -> str:
    """Return the tables with the most rows, with their chunks."""
    names = sorted(activity.tables, key=lambda name: (-activity.tables[name].rows_estimate, name))
    named = [f"{name} ({_chunks(activity.tables[name])})" for name in names[:_NAMED]]
    others = len(names) - len(named)
    return ", ".join(named) + (f" and {counted(others, 'other table')}" if others else "")


def _chunks(table: TableReadProgress) -> str:
    if table.first == table.last:
        return f"chunk {table.first:,} of {table.chunks_estimate:,}"
    return f"chunks {table.first:,}–{table.last:,} of {table.chunks_estimate:,}"  # noqa: RUF001 - a range's dash


def _applying(activity: Activity) -> str:
    counts = (activity.rows, "row"), (activity.changes, "change")
    text = f"applying {' and '.join(counted(number, thing) for number, thing in counts if number) or 'the batch'}"
    if not activity.tables_to_write:
        return text
    return f"{text}: {activity.tables_written or 0:,} of {counted(activity.tables_to_write, 'table')} written"
