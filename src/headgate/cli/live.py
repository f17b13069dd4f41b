"""Output of `headgate run`: a live view on a terminal, plain log lines elsewhere.

All data comes from the run's status; neither Spark nor the server is queried. The view shows each table with its state
and progress, the run's activity, and its lag. The log has a line for each table that a batch changed, one for the
batch, and some while an activity takes long. A table's figures in a batch are the differences of its totals.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli._common import TABLE_STYLES
from headgate.status import (
    BatchStatus,
    Status,
    TableStatus,
    activity_lines,
    activity_text,
    counted,
    duration,
    figures_text,
    gtid_text,
    lag_text,
    progress_lines,
    table_text,
)

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
        """Take the run's status, every second and after each batch, in order."""
        self._status = status


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
        """Log a batch that has ended, and a long activity."""
        before = self._status
        super().update(status)
        if before is not None and status.batch is not None and status.batch != before.batch:
            self._log_batch(status, status.batch, before.tables)
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

    def _log_batch(self, status: Status, batch: BatchStatus, before: Mapping[str, TableStatus]) -> None:
        for name, table in sorted(status.tables.items()):
            known = before.get(name, TableStatus(state=""))
            changes, rows = table.changes - known.changes, table.rows - known.rows
            if rows or changes or table.state != self._states.get(name):
                log.info("%s %s: %s", name, table.state, _table_in_batch(table, rows, changes, batch.seconds))
            self._states[name] = table.state
        what = "it was in the ledger already" if batch.replayed else _batch_text(batch)
        log.info("batch %d: %s, %s, up to %s", batch.batch_id, what, lag_text(status.lag), gtid_text(batch.gtid))

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


def _batch_text(batch: BatchStatus) -> str:
    parts = [duration(batch.seconds)]
    for number, thing, read in ((batch.rows, "row", " read"), (batch.changes, "change", "")):
        if number:
            parts += [counted(number, thing) + read, _rate(number, batch.seconds, thing)]
    return ", ".join(filter(None, parts))


def _rate(number: int, seconds: float, thing: str) -> str:
    """Return the rate over a batch's duration."""
    return f"{number / seconds:,.1f} {thing}s/s" if seconds > 0 else ""


def _table_in_batch(table: TableStatus, rows: int, changes: int, seconds: float) -> str:
    """Return a batch's effect on a table."""
    if table.state in ("stale", "stopped"):
        return table.reason or ""
    parts = []
    if table.state == "snapshotting":
        parts.append(table_text(table))
    elif rows or not changes:
        parts.append(f"{counted(rows, 'row')} read")
    if changes:
        parts += [counted(changes, "change"), _rate(changes, seconds, "change")]
    return ", ".join(filter(None, parts))


class LiveView(_View):
    """A view that is redrawn each second. Its methods may be called from any thread."""

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
        upto = [f"up to {gtid_text(status.batch.gtid)}"] if status.batch is not None else []
        if self._ended or status.activity is None:
            return upto
        doing = activity_lines(status.activity, status.updated_us)
        if self._ending and status.activity.phase in ("reading", "applying"):
            doing.insert(0, "stopping when this is done, Ctrl-C again ends at once:")
        elif self._ending:
            doing = ["stopping; Ctrl-C again ends at once"]
        known = status.lag.seconds is not None  # unknown before the first batch, whose rates are in its activity
        return [*doing, *progress_lines(status), *([figures_text(status)] if known else []), *upto]


def _line(text: str, style: str = "dim") -> Text:
    """Return a text of one line."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")
