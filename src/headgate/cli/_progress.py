"""How far a snapshot is, for a person at a terminal: a bar a table, on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["SnapshotProgress"]

_MOST_BARS = 20
"""Tables with a bar of their own; the others share one."""


class SnapshotProgress:
    """Bars while the block runs, gone after it.

    :param estimates: table → rows as the server estimates them.
    """

    def __init__(self, estimates: Mapping[str, int]) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Rows(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        named = sorted(estimates, key=lambda name: -estimates[name])[:_MOST_BARS]
        self._bars = {name: self._progress.add_task(name, total=max(1, estimates[name])) for name in named}
        others = sum(rows for name, rows in estimates.items() if name not in self._bars)
        if len(estimates) > len(named):
            shared = self._progress.add_task(f"{len(estimates) - len(named)} others", total=max(1, others))
            self._bars.update({name: shared for name in estimates if name not in self._bars})

    def add(self, table: str, rows: int) -> None:
        """``rows`` more of ``table`` are printed."""
        bar = self._bars[table]
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


class _Rows(ProgressColumn):
    """``12,345 rows  6,789/s``"""

    def render(self, task: Task) -> Text:
        speed = f"  {task.speed:,.0f}/s" if task.speed else ""
        return Text(f"{task.completed:,.0f} rows{speed}", style="progress.data.speed")
