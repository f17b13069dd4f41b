"""Output of `headgate run`: a live view on a terminal, plain log lines elsewhere.

All data comes from the run's status and the batches' reports; neither Spark nor the server is queried. The view is
drawn from the status alone: each table with its state and progress, the run's activity, and its lag. The log has a line
for each table that a batch changed, one for the batch, and some while an activity takes long.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli._common import TABLE_STYLES
from headgate.lake import (
    Status,
    TableStatus,
    activity_lines,
    activity_text,
    counted,
    duration,
    freshness_text,
    index_text,
    kafka_text,
    lag_text,
    rates_text,
    snapshot_text,
    table_text,
)
from headgate.sinks import BatchReport

__all__ = ["LiveView", "LogView"]

log = logging.getLogger("headgate")

_FIRST_SECONDS = 3.0
_REPEAT_SECONDS = (10.0, 300.0)
"""A long activity is logged after ``_FIRST_SECONDS``, then each time a quarter longer, within these limits."""


class _View:
    def __init__(self) -> None:
        self._status: Status | None = None

    def spark_started(self) -> None:
        """Note that Spark has started."""

    def stop_requested(self) -> None:
        """Note that the run is to stop. Called by signal handlers."""

    def update(self, status: Status) -> None:
        """Take the run's status, every second; also after a batch, before :meth:`take`."""
        self._status = status

    def take(self, report: BatchReport) -> None:
        """Take a finished batch."""


class LogView(_View):
    """One log line for each table that a batch changed, and for each change of state."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, str] = {}
        self._doing: tuple[str, int] | None = None  # the activity, and since when
        self._due = _FIRST_SECONDS

    def spark_started(self) -> None:
        log.info("Spark has started")

    def update(self, status: Status) -> None:
        """Log a long activity."""
        super().update(status)
        activity = status.activity
        if activity is None or activity.phase in ("waiting", "retrying"):
            return
        if self._doing != (activity.phase, activity.since_us):
            self._doing, self._due = (activity.phase, activity.since_us), _FIRST_SECONDS
        seconds = (status.updated_us - activity.since_us) / 1e6
        if seconds >= self._due:
            least, most = _REPEAT_SECONDS
            self._due = seconds + min(max(least, seconds / 4), most)
            log.info("%s", activity_text(activity, status.updated_us))

    def take(self, report: BatchReport) -> None:
        """Log a batch."""
        known = self._status.tables if self._status is not None else {}
        for name, table in sorted(report.tables.items()):
            if name in report.rows or name in report.changes or table.state != self._states.get(name):
                log.info("%s %s: %s", name, table.state, _table_in_batch(report, name, known.get(name)))
            self._states[name] = table.state
        lag = f", {lag_text(self._status.lag)}" if self._status is not None else ""
        log.info("batch %d: %s%s, up to %s", report.batch_id, _batch_text(report), lag, _last(report.gtid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = self._status
        if status is not None and error is None:
            changes, rows = (sum(getattr(t, name) for t in status.tables.values()) for name in ("changes", "rows"))
            done = f"{counted(changes, 'change')}, {counted(rows, 'row')} read"
            log.info("ended after %s: %s", _batches(status.batches), done)


def _batches(number: int) -> str:
    return f"{number:,} batch{'' if number == 1 else 'es'}"


def _batch_text(report: BatchReport) -> str:
    if report.replayed:
        return "it was in the ledger already"
    parts = [duration(report.seconds)]
    for counts, thing in ((report.rows, "row"), (report.changes, "change")):
        number = sum(counts.values())
        if number:
            parts += [counted(number, thing) + (" read" if thing == "row" else ""), _rate(number, report, thing)]
    return ", ".join(filter(None, parts))


def _rate(number: int, report: BatchReport, thing: str) -> str:
    """Return the rate over the batch's duration."""
    return f"{number / report.seconds:,.1f} {thing}s/s" if report.seconds > 0 else ""


def _table_in_batch(report: BatchReport, name: str, known: TableStatus | None) -> str:
    """Return a batch's effect on a table."""
    state = report.tables[name]
    if state.state in ("stale", "stopped"):
        return state.reason or ""
    rows, changes = (0, 0) if report.replayed else (report.rows.get(name, 0), report.changes.get(name, 0))
    parts = []
    if state.state == "snapshotting" and known is not None:
        parts.append(table_text(known))
    elif rows or not changes:
        parts.append(f"{counted(rows, 'row')} read")
    if changes:
        parts += [counted(changes, "change"), _rate(changes, report, "change")]
    return ", ".join(filter(None, parts))


class LiveView(_View):
    """A view that is redrawn each second, and with each batch. Its methods may be called from any thread."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._lock = threading.RLock()
        self._ending = self._ended = False
        self._width = 0
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=1, transient=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        with suppress(OSError):  # its terminal is gone
            self._live.stop()

    def stop_requested(self) -> None:
        self._ending = True  # the drawing thread reads it

    def update(self, status: Status) -> None:
        with self._lock:
            super().update(status)

    def take(self, report: BatchReport) -> None:
        """Redraw."""
        del report  # the status has it already
        with suppress(OSError):  # its terminal is gone, and the run goes on
            self._live.refresh()

    def _draw(self) -> Group:
        with self._lock:
            status = self._status
            if status is None:
                return Group(*([] if self._ended else [_line("connecting to MySQL …")]))
            texts = [_line(text) for text in self._captions(status)]
            if status.error and not self._ended:
                texts.insert(0, Text(f"{status.error}; trying again", style="red"))
            caption_lines = sum(len(self._console.render_lines(text)) for text in texts)
            return Group(*self._tables(status, self._console.height - caption_lines - 1), *texts)

    def _tables(self, status: Status, room: int) -> list[Table | Text]:
        """Return a table of at most ``room`` lines, first with the tables that need care."""
        tables = status.tables_now()
        if not tables:
            return []
        names = sorted(tables, key=lambda name: (tables[name].sort_rank, name))[: max(1, room)]
        while True:
            picture = self._picture(status, tables, sorted(names))
            more = len(self._console.render_lines(picture)) - room
            if more <= 0 or len(names) == 1:
                break
            names = names[: max(1, len(names) - more)]
        others = len(tables) - len(names)
        return [picture, *([_line(f"and {counted(others, 'other table')}")] if others else [])]

    def _picture(self, status: Status, tables: dict[str, TableStatus], names: list[str]) -> Table:
        texts = {name: table_text(tables[name], status.read_progress(name)) for name in names}
        width = max((len(texts[name]) for name in names if tables[name].state not in ("stale", "stopped")), default=0)
        self._width = max(self._width, width)  # a column that grows and shrinks is hard to read
        picture = Table(expand=False)
        for title in ("table", "state"):
            picture.add_column(title, no_wrap=True)
        picture.add_column("progress", min_width=min(self._width, self._console.width // 2))
        for name in names:
            state = tables[name].state
            what = Text(texts[name]) if state in ("stale", "stopped") else _line(texts[name], "")
            picture.add_row(Text(name), Text(state, style=TABLE_STYLES.get(state, "white")), what)
        return picture

    def _captions(self, status: Status) -> list[str]:
        upto = [f"up to {_last(status.batch.gtid)}"] if status.batch is not None else []
        if self._ended or status.activity is None:
            return upto
        doing = activity_lines(status.activity, status.updated_us)
        if self._ending and status.activity.phase in ("reading", "applying"):
            doing.insert(0, "stopping when this is done, Ctrl-C again ends at once:")
        elif self._ending:
            doing = ["stopping; Ctrl-C again ends at once"]
        snapshot = [snapshot_text(status.snapshot)] if status.snapshot is not None else []
        notes = [text for text in (index_text(status.index), kafka_text(status.kafka)) if text]
        known = status.lag.seconds is not None  # unknown before the first batch, whose rates are in its activity
        texts = lag_text(status.lag), freshness_text(status.freshness), rates_text(status)
        figures = [", ".join(filter(None, texts))] if known else []
        return [*doing, *snapshot, *notes, *figures, *upto]


def _line(text: str, style: str = "dim") -> Text:
    """Return a text of one line."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _last(gtid: str) -> str:
    """Return the end of a GTID set, as much as a line can hold."""
    return gtid if len(gtid) <= 100 else f"… {gtid[-97:]}"
