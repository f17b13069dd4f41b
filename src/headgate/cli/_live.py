"""What `headgate run` shows: a live table on a terminal, plain log lines elsewhere.

Everything comes from the batches' reports; nothing asks Spark or the server. A table in its snapshot shows rows read,
rows estimated, rows/s and the time left; one that follows shows its lag (now minus the newest commit time applied; 0
when the newest batch brought nothing for it), changes/s and the last GTID.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.lake import duration
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
        if self.state in ("live", "filtered"):
            return f"lag {duration(self.lag_seconds or 0.0)}, {self.changes:,} changes, {self.rate():,.1f} changes/s"
        return self.reason or ""


class _View:
    def __init__(self) -> None:
        self.tables: dict[str, TableProgress] = {}
        self.gtid = ""

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

    def __enter__(self) -> LogView:
        return self

    def __exit__(self, *_: object) -> None:
        return


class LiveView(_View):
    """A table that is drawn again with each batch."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._live = Live(self._draw(), console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def take(self, report: BatchReport) -> None:
        """Show a batch."""
        super().take(report)
        self._live.update(self._draw(), refresh=True)

    def _draw(self) -> Table | Text:
        caption = f"up to {_last(self.gtid)}" if self.gtid else "starting Spark …"
        if not self.tables:
            return Text(caption, style="dim")
        table = Table(caption=Text(caption, style="dim"), caption_justify="left", expand=False)
        for title in ("table", "state"):
            table.add_column(title, no_wrap=True)
        table.add_column("progress")
        colours = {"live": "green", "filtered": "green", "snapshotting": "cyan", "stale": "yellow", "stopped": "red"}
        for name, progress in sorted(self.tables.items()):
            colour = colours.get(progress.state, "white")
            table.add_row(Text(name), Text(progress.state, style=colour), Text(progress.describe()))
        return table


def _last(gtid: str) -> str:
    """The end of a GTID set, as much as a line can hold."""
    return gtid if len(gtid) <= 100 else f"… {gtid[-97:]}"
