"""A pipeline's status in words: what the terminal, the log and the page say alike."""

from __future__ import annotations

from headgate.lake._status import (
    Activity,
    FreshnessStatus,
    IndexStatus,
    LagStatus,
    SnapshotStatus,
    Status,
    TableReading,
    TableStatus,
)

__all__ = [
    "activity_lines",
    "activity_text",
    "counted",
    "duration",
    "freshness_text",
    "index_text",
    "lag_text",
    "merge_text",
    "percent",
    "progress_text",
    "rates_text",
    "snapshot_text",
    "table_remarks",
    "table_text",
]

_HELD = ("stale", "stopped")
_NAMED = 2
"""Tables of a batch that are named; the others are counted."""
_PHASES = {
    "starting": "starting Spark",
    "checking": "looking at the tables in the lake",
    "planning": "planning the next batch",
    "waiting": "waiting for changes",
    "retrying": "waiting before the next try",
    "stopping": "stopping",
}


def duration(seconds: float) -> str:
    """A time span in words, for people: ``9.4 s``, ``2 min 5 s``, ``3 h 7 min``, ``2 d 14 h``."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{seconds:.1f} s" if round(seconds, 1) < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def counted(number: int, thing: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def percent(done: int, estimate: int | None) -> int | None:
    """How much of it is done, if that can be told; 99 at most, because an estimate may be too low."""
    return min(99, 100 * done // estimate) if estimate else None


def lag_text(lag: LagStatus) -> str:
    """``lag 1.2 s, at least 12 transactions behind``"""
    if lag.seconds is None:
        return "lag not known yet"
    text = f"lag {duration(lag.seconds)}"
    return f"{text}, at least {counted(lag.transactions, 'transaction')} behind" if lag.transactions else text


def freshness_text(freshness: FreshnessStatus) -> str:
    """``freshness p50 0.8 s, p99 2.1 s``; nothing without changes lately."""
    if freshness.p50 is None or freshness.p99 is None:
        return ""
    return f"freshness p50 {duration(freshness.p50)}, p99 {duration(freshness.p99)}"


def index_text(index: IndexStatus | None) -> str:
    """``building key indexes of 1 table, 240 MB on disk``; nothing while none is being built."""
    if index is None or not index.tables_building:
        return ""
    megabytes = index.bytes_on_disk / 1e6
    return f"building key indexes of {counted(index.tables_building, 'table')}, {megabytes:,.0f} MB on disk"


def rates_text(status: Status) -> str:
    """``41.2 changes/s, 25,000 rows/s read``; rows only if there were some and the activity does not say it."""
    changes = f"{status.changes_per_second:,.1f} changes/s"
    if not status.rows_per_second or (status.activity is not None and status.activity.rows_per_second):
        return changes
    return f"{changes}, {status.rows_per_second:,.0f} rows/s read"


def progress_text(rows: int, estimate: int | None) -> str:
    """``1,250 of about 4,000 rows (31 %)``; without an estimate that was already exceeded."""
    if not estimate or rows > estimate:
        return counted(rows, "row")
    return f"{rows:,} of about {counted(estimate, 'row')} ({percent(rows, estimate)} %)"


def snapshot_text(snapshot: SnapshotStatus) -> str:
    """How far the snapshot of all tables is that are being read."""
    left = "" if snapshot.seconds_left is None else f", about {_whole(snapshot.seconds_left)} left"
    return (
        f"snapshot of {counted(snapshot.tables, 'table')}: {progress_text(snapshot.rows, snapshot.rows_estimate)}{left}"
    )


def table_text(table: TableStatus, reading: TableReading | None = None) -> str:
    """What is to be said of a table beside its name and state.

    :param reading: what the batch that is being read has of it.
    """
    if table.state in _HELD:
        return table_remarks(table)
    text = _snapshot_progress(table, reading) if table.state == "snapshotting" else _followed(table)
    return "; ".join(filter(None, [text, table_remarks(table)]))


def merge_text(reason: str) -> str:
    """That a table is written by MERGE, which takes seconds a batch, and why."""
    return f"written by MERGE: {reason}"


def table_remarks(table: TableStatus) -> str:
    """Why it is written by MERGE, and why it is in its state, if there is such a reason."""
    merged = merge_text(table.merged) if table.merged and table.state not in _HELD else ""
    return "; ".join(filter(None, [merged, table.reason]))


def _snapshot_progress(table: TableStatus, reading: TableReading | None) -> str:
    if not table.chunks_estimate and reading is None:
        return "waits to be read"
    rows = table.rows_read + (reading.rows if reading else 0)
    estimate = table.rows_estimate or (reading.table_rows_estimate if reading else None)
    chunks = f"{table.chunks_done or 0:,} of {counted(table.chunks_estimate, 'chunk')}" if table.chunks_estimate else ""
    return f"{progress_text(rows, estimate)}, {chunks}" if chunks else progress_text(rows, estimate)


def _followed(table: TableStatus) -> str:
    rate = f", {table.changes_per_second:,.1f} changes/s" if table.changes_per_second else ""
    return f"{counted(table.changes, 'change')}{rate}, {counted(table.rows, 'row')} read"


def activity_text(activity: Activity, now_us: int) -> str:
    """What the run does now, how far it is and how long it has done so, in one line."""
    return ": ".join(activity_lines(activity, now_us))


def activity_lines(activity: Activity, now_us: int) -> list[str]:
    """The same in two lines, if it is long: what, and the figures."""
    if activity.phase == "waiting":
        return [_PHASES["waiting"] + ("; reading tables is paused" if activity.paused else "")]
    seconds = (now_us - activity.since_us) / 1e6
    times = [f"{_whole(seconds)} so far"] if seconds >= 1 else []
    if activity.seconds_left is not None:
        times.append(f"about {_whole(activity.seconds_left)} left")
    if activity.phase == "reading" and activity.tables:
        return [f"reading {_tables(activity)}", ", ".join([*_rows_read(activity), *times])]
    if activity.phase == "reading":
        return [", ".join([f"reading {_changes(activity)}", *_tasks(activity), *times])]
    what = _applying(activity) if activity.phase == "applying" else _PHASES[activity.phase]
    return [", ".join([what, *times])]


def _whole(seconds: float) -> str:
    """A time span, without parts of seconds."""
    return f"{max(1, round(seconds))} s" if seconds < 10 else duration(seconds)


def _rows_read(activity: Activity) -> list[str]:
    if activity.rows is None:
        rows = f"about {counted(activity.rows_estimate or 0, 'row')}"
    else:
        rows = progress_text(activity.rows, activity.rows_estimate)
    rate = [f"{activity.rows_per_second:,.0f} rows/s"] if activity.rows_per_second else []
    changes = [_changes(activity)] if activity.transactions or activity.changes else []
    return [rows, *rate, *changes, *_tasks(activity)]


def _changes(activity: Activity) -> str:
    changes = "changes" if activity.changes is None else counted(activity.changes, "change")
    return f"{changes} of {counted(activity.transactions, 'transaction')}" if activity.transactions else changes


def _tasks(activity: Activity) -> list[str]:
    """How many tasks are done, where nothing else is known."""
    if activity.rows is not None or not activity.tasks:
        return []
    return [f"{activity.tasks_done or 0:,} of {counted(activity.tasks, 'task')} done"]


def _tables(activity: Activity) -> str:
    """The tables with the most rows, with their chunks."""
    names = sorted(activity.tables, key=lambda name: (-activity.tables[name].rows_estimate, name))
    named = [f"{name} ({_chunks(activity.tables[name])})" for name in names[:_NAMED]]
    others = len(names) - len(named)
    return ", ".join(named) + (f" and {counted(others, 'other table')}" if others else "")


def _chunks(table: TableReading) -> str:
    if table.first == table.last:
        return f"chunk {table.first:,} of {table.chunks_estimate:,}"
    return f"chunks {table.first:,}–{table.last:,} of {table.chunks_estimate:,}"  # noqa: RUF001 - a range's dash


def _applying(activity: Activity) -> str:
    counts = (activity.rows, "row"), (activity.changes, "change")
    text = f"applying {' and '.join(counted(number, thing) for number, thing in counts if number) or 'the batch'}"
    if not activity.tables_to_write:
        return text
    return f"{text}: {activity.tables_written or 0:,} of {counted(activity.tables_to_write, 'table')} written"
