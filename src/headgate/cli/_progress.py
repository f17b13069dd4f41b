"""Progress of a command: a snapshot with a bar for each table, on stderr; a comparison with one bar, or log lines."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from headgate.cli._common import console, write_text
from headgate.cli.log_lines import log_to_stderr
from headgate.status import counted, duration

__all__ = ["ProgressDisplay", "VerifyView", "verify_view"]

log = logging.getLogger("headgate")

_MOST_BARS = 20
"""Tables with a bar each; the others share one."""
_LINE_SECONDS = 10.0
"""Interval between two lines."""
_SURE_SHARE = 0.1
"""Share of the rows that are read before speed and time left are said: the first rows tell nothing of the others."""


class ProgressDisplay:
    """Bars while the block runs, removed after it.

    :param estimates: table → rows, as the server estimates them.
    """

    def __init__(self, estimates: Mapping[str, int]) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _RowsColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
        )
        named = sorted(estimates, key=lambda name: -estimates[name])[:_MOST_BARS]
        self._bars = {name: self._progress.add_task(name, total=max(1, estimates[name])) for name in named}
        others = sum(rows for name, rows in estimates.items() if name not in self._bars)
        if len(estimates) > len(named):
            shared = self._progress.add_task(f"{len(estimates) - len(named)} others", total=max(1, others))
            self._bars.update({name: shared for name in estimates if name not in self._bars})

    def add(self, table: str, rows: int) -> None:
        """Add ``rows`` printed rows of ``table``."""
        bar = self._bars.get(table)
        if bar is None:  # it was created after the estimates
            return
        self._progress.advance(bar, rows)
        task = next(task for task in self._progress.tasks if task.id == bar)
        if task.total is not None and task.completed > task.total:  # the estimate was too low
            self._progress.update(bar, total=task.completed)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class _RowsColumn(ProgressColumn):
    """``12,345 rows  6,789/s``"""

    def render(self, task: Task) -> Text:
        speed = f"  {task.speed:,.0f}/s" if task.speed else ""
        return Text(f"{task.completed:,.0f} rows{speed}", style="progress.data.speed")


def verify_view() -> VerifyView:
    """Return a bar below the results on a terminal, elsewhere plain lines in the log."""
    if sys.stdout.isatty():
        return _VerifyBar(console())
    log_to_stderr()
    return VerifyView()


class VerifyView:
    """Progress of a comparison of tables: a log line at intervals. :meth:`add` may be called from any thread.

    Both sides have about as many rows, so half of the rows read is the number compared.

    :param clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._estimates: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._done = 0
        self._first: tuple[float, int] | None = None
        """When rows were first read, and how many: before, kernels are loaded or compiled."""
        self._logged_at = clock()

    def begin(self, estimates: Mapping[str, int]) -> None:
        """Set the tables, and about how many rows they have."""
        self._estimates = dict(estimates)
        self._logged_at = self._clock()
        self._show_progress()

    def add(self, table: str, rows: int) -> None:
        """Add rows of a table that were read, on either side."""
        with self._lock:
            self._read[table] = self._read.get(table, 0) + rows
            self._first = self._first or (self._clock(), self.rows)
            self._show_progress()

    def done(self, table: str) -> None:
        """Count a compared table."""
        with self._lock:
            self._done += 1
            self._estimates[table] = self._read.get(table, 0) // 2
            self._show_progress()

    def print(self, lines: Iterable[str]) -> None:
        """Print lines of the result."""
        write_text(lines)

    def _show_progress(self) -> None:
        now = self._clock()
        if now - self._logged_at >= _LINE_SECONDS:
            self._logged_at = now
            log.info("%s, %s", self.tables, self.rows_text)

    @property
    def tables(self) -> str:
        """``3 of 40 tables``"""
        return f"{self._done} of {counted(len(self._estimates), 'table')}"

    @property
    def rows_text(self) -> str:
        """``1,500 of about 4,000 rows, 150 rows/s, 17 s left``"""
        text = f"{self.rows:,} of about {counted(self.rows_estimate, 'row')}"
        since, first = self._first or (0.0, 0)
        seconds, rows = self._clock() - since, self.rows - first
        if rows <= 0 or seconds <= 0 or self.rows < _SURE_SHARE * self.rows_estimate:
            return text
        left = (self.rows_estimate - self.rows) * seconds / rows
        return f"{text}, {rows / seconds:,.0f} rows/s, {duration(left)} left"

    @property
    def rows(self) -> int:
        """Rows compared so far."""
        return sum(self._read.values()) // 2

    @property
    def rows_estimate(self) -> int:
        """About how many rows there are: exact for finished tables, for others at least those that were read."""
        return sum(max(rows, self._read.get(table, 0) // 2) for table, rows in self._estimates.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class _VerifyBar(VerifyView):
    """The same as a bar, which stays below all output and is removed at the end."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[rows]}", style="progress.data.speed", markup=False),
            console=console,
            transient=True,
        )
        self._bar = self._progress.add_task("", total=None, rows="")

    def print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _show_progress(self) -> None:
        total = max(1, self.rows_estimate)
        self._progress.update(self._bar, description=self.tables, completed=self.rows, total=total, rows=self.rows_text)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
