"""Output of `headgate run` on a terminal: each table with its state and progress, the run's activity, and its lag.

All data comes from the run's status; neither Spark nor the server is queried.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli._common import TABLE_STYLES
from headgate.status import (
    Status,
    TableStatus,
    activity_lines,
    counted,
    figures_text,
    gtid_text,
    progress_lines,
    table_text,
)

__all__ = ["LiveView"]


_LOW: Final = 20
"""Lines of a terminal below which each text has one line, so that all of them can be seen."""


class LiveView:
    """A view that is redrawn each second. Its methods may be called from any thread."""

    def __init__(self, console: Console) -> None:
        self._status: Status | None = None
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

    def spark_started(self) -> None:
        """Note that Spark has started."""

    def stop_requested(self) -> None:
        """Note that the run is to stop. Called by signal handlers."""
        self._ending = True  # the drawing thread reads it

    def update(self, status: Status) -> None:
        """Take the run's status, every second and after each batch, in order."""
        with self._lock:
            self._status = status

    def _draw(self) -> Group:
        with self._lock:
            status = self._status
            if status is None:
                return Group(*([] if self._ended else [_line("connecting to MySQL …")]))
            texts = [self._text(text) for text in self._captions(status)]
            if status.batch is not None:
                texts.append(_line(f"up to {gtid_text(status.batch.gtid)}"))
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
            lines = len(self._console.render_lines(picture))
            if lines <= room or len(names) == 1:
                break
            names = names[: max(1, min(len(names) - 1, len(names) * room // lines))]
        others = len(tables) - len(names)
        return [picture, *([_line(f"and {counted(others, 'other table')}")] if others else [])]

    def _picture(self, status: Status, tables: dict[str, TableStatus], names: list[str]) -> Table:
        texts = {name: table_text(tables[name], status.read_progress(name)) for name in names}
        width = max((len(texts[name]) for name in names if not tables[name].is_suspended), default=0)
        self._width = max(self._width, width)  # a column that grows and shrinks is hard to read
        picture = Table(expand=False)
        picture.add_column("table", overflow="fold")
        picture.add_column("state", no_wrap=True)
        picture.add_column("progress", overflow="fold", min_width=min(self._width, self._console.width // 2))
        for name in names:
            state = tables[name].state
            what = Text(texts[name]) if tables[name].is_suspended else self._text(texts[name], "")
            picture.add_row(Text(name), Text(state, style=TABLE_STYLES.get(state, "white")), what)
        return picture

    def _text(self, text: str, style: str = "dim") -> Text:
        """Return a text that continues in the next line; on a low terminal it has one line."""
        return _line(text, style) if self._console.height < _LOW else Text(text, style, overflow="fold")

    def _captions(self, status: Status) -> list[str]:
        if self._ended or status.activity is None:
            return []
        doing = activity_lines(status.activity, status.updated_us)
        if self._ending and status.activity.phase in ("reading", "applying", "committing"):
            doing.insert(0, "stopping when this is done, Ctrl-C again ends at once:")
        elif self._ending:
            doing = [f"{doing[0] if status.activity.waits_for else 'stopping'}; Ctrl-C again ends at once"]
        known = status.lag.seconds is not None  # unknown before the first batch, whose rates are in its activity
        return [*doing, *progress_lines(status), *([figures_text(status)] if known else [])]


def _line(text: str, style: str = "dim") -> Text:
    """Return a text of one line."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")
