"""What `headgate run` shows: a live table on a terminal, plain log lines elsewhere.

Everything comes from the batches' reports and the run's status; nothing asks Spark or the server. A table in its
snapshot shows rows read, rows estimated, rows/s and the time left; one that follows shows its lag (now minus the newest
commit time applied; 0 when the newest batch brought nothing for it, or nothing came after it), changes/s and the last
GTID. Between batches the status says whether there is nothing to do or something is wrong.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.lake import Status, duration
from headgate.sinks import BatchReport

__all__ = ["LiveView", "LogView", "TableProgress"]

log = logging.getLogger("headgate")

_RATE_SECONDS = 30.0
"""Rates are averages over so long."""


@dataclass
class TableProgress:
    """One table's figures, from batch to batch."""

    name: str
    state: str = "waiting"
    rows: int = 0
    rows_estimate: int | None = None
    chunks_done: int | None = None
    chunks_estimate: int | None = None
    changes: int = 0
    lag_seconds: float | None = None
    reason: str | None = None
    recent: deque[tuple[float, int]] = field(default_factory=deque)  # (when, images of that batch)

    def take(self, report: BatchReport, now: float, wall: float) -> None:
        """Add a batch. ``now``: a monotonic clock, seconds; ``wall``: seconds since 1970 UTC."""
        state = report.tables.get(self.name)
        if state is not None:
            if state.state == "snapshotting" and self.state not in ("snapshotting", "waiting"):
                self.rows = 0
            self.state, self.reason = state.state, state.reason
            if state.rows_estimate is not None:
                self.rows_estimate = state.rows_estimate
            self.chunks_done, self.chunks_estimate = state.chunks_done, state.chunks_estimate
        if not report.replayed:
            self.rows += report.rows.get(self.name, 0)
            self.changes += report.images.get(self.name, 0)
        newest = report.newest_us.get(self.name)
        self.lag_seconds = max(0.0, wall - newest / 1e6) if newest is not None else 0.0
        new = 0 if report.replayed else report.rows.get(self.name, 0) + report.images.get(self.name, 0)
        self.recent.append((now, new))
        while len(self.recent) > 2 and now - self.recent[0][0] > _RATE_SECONDS:
            self.recent.popleft()

    def rate(self) -> float:
        """Rows or changes per second, lately."""
        if len(self.recent) < 2:
            return 0.0
        first, last = self.recent[0][0], self.recent[-1][0]
        images = sum(count for _, count in list(self.recent)[1:])  # the first batch ended where the time begins
        return images / (last - first) if last > first else 0.0

    def rests(self, now: float) -> None:
        """Nothing came for a while."""
        self.lag_seconds = 0.0
        if self.recent and self.rate():
            self.recent.append((now, 0))

    def eta_seconds(self) -> float | None:
        """How long the snapshot will still take, if that can be told."""
        rate = self.rate()
        if self.state != "snapshotting" or not self.rows_estimate or rate <= 0:
            return None
        return max(0.0, self.rows_estimate - self.rows) / rate

    def describe(self) -> str:
        """The figures in words."""
        if self.state == "snapshotting":
            estimate = f" of about {self.rows_estimate:,}" if self.rows_estimate else ""
            eta = self.eta_seconds()
            left = f", {duration(eta)} left" if eta is not None else ""
            return f"{self.rows:,}{estimate} rows, {self.rate():,.0f} rows/s{left}"
        if self.state in ("settling", "live", "inexact", "filtered"):
            return f"lag {duration(self.lag_seconds or 0.0)}, {self.changes:,} changes, {self.rate():,.1f} changes/s"
        return self.reason or ""


class _View:
    def __init__(self) -> None:
        self.tables: dict[str, TableProgress] = {}
        self.gtid = ""

    def begins(self) -> None:
        """Spark is there."""

    def ends(self) -> None:
        """Somebody wants the run to end. Called by handlers of signals."""

    def tell(self, status: Status) -> None:
        """How the run is doing, every few seconds."""

    def take(self, report: BatchReport) -> None:
        now, wall = time.monotonic(), time.time()
        self.gtid = report.gtid
        for name in sorted({*report.tables, *report.rows, *report.images}):
            self.tables.setdefault(name, TableProgress(name)).take(report, now, wall)


class LogView(_View):
    """One log line for each table that a batch changed, and for each change of state."""

    def take(self, report: BatchReport) -> None:
        """Show a batch."""
        states = {name: table.state for name, table in self.tables.items()}
        super().take(report)
        for name, table in self.tables.items():
            busy = name in report.rows or name in report.images
            if busy or table.state != states.get(name):
                log.info("%s %s: %s", name, table.state, table.describe())
        log.info("batch %d: %.1f s, up to %s", report.batch_id, report.seconds, _last(report.gtid))

    def begins(self) -> None:
        log.info("Spark has started")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class LiveView(_View):
    """A table that is drawn again each second, and with each batch. Its methods may be called from any thread."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._begun = self._ending = self._over = False
        self._status: Status | None = None
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=1, transient=False)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._live.stop()

    def begins(self) -> None:
        self._begun = True

    def ends(self) -> None:
        self._ending = True  # and no more: the thread that draws sees it

    def tell(self, status: Status) -> None:
        with self._lock:
            self._status = status
            if status.state == "idle":
                for table in self.tables.values():
                    table.rests(time.monotonic())

    def take(self, report: BatchReport) -> None:
        """Show a batch."""
        with self._lock:
            super().take(report)
        self._live.refresh()

    def _draw(self) -> Group:
        with self._lock:
            parts: list[Table | Text] = []
            states = dict(self._status.tables) if self._status is not None else {}
            if self.tables or states:
                parts.append(self._table(sorted({*self.tables, *states})))
            if self._status is not None and self._status.error and not self._over:
                parts.append(Text(f"{self._status.error}; trying again", style="red"))
            caption = self._caption()
            if caption:
                parts.append(Text(caption, style="dim"))
            return Group(*parts)

    def _table(self, names: list[str]) -> Table:
        """Tables that no batch has brought yet are as the run before has left them."""
        before = self._status.tables if self._status is not None else {}
        table = Table(expand=False)
        for title in ("table", "state"):
            table.add_column(title, no_wrap=True)
        table.add_column("progress")
        colours = {
            "snapshotting": "cyan", "settling": "cyan", "live": "green", "inexact": "yellow", "filtered": "green",
            "stale": "yellow", "stopped": "red",
        }  # fmt: skip
        for name in names:
            progress = self.tables.get(name)
            if progress is None:
                state, what = before[name].state, before[name].reason or ""
            else:
                state, what = progress.state, progress.describe()
            table.add_row(Text(name), Text(state, style=colours.get(state, "white")), Text(what))
        return table

    def _caption(self) -> str:
        upto = f"up to {_last(self.gtid)}" if self.gtid else ""
        if self._over:
            return upto
        if self._ending:
            return "stopping: what is under way may finish; Ctrl-C again ends at once"
        if self._status is not None and self._status.state == "idle":
            return f"{upto}, waiting for changes" if upto else "waiting for changes"
        return upto or ("the first batch is being read …" if self._begun else "starting Spark …")


def _last(gtid: str) -> str:
    """The end of a GTID set, as much as a line can hold."""
    return gtid if len(gtid) <= 100 else f"… {gtid[-97:]}"
