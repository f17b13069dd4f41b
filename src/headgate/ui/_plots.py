"""Small plots of the last ten minutes, as paths of an SVG: a unit is a second from left to right, a percent upwards.

The page shows the figures in words next to them, so no figure is only in a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Final

from headgate.status import HistoryStatus, duration
from headgate.ui._pipelines import PipelineView

__all__ = ["HEIGHT", "WIDTH", "Plot", "plots"]

WIDTH: Final = 600
HEIGHT: Final = 100
_GAP: Final = 15
"""Units: points further apart are not joined."""

Point = tuple[float, float]
_LEAST: Final = 1e-6
"""Minimum of a plot's upper edge: floats near 0 have no digits left to be rounded to."""


@dataclass(frozen=True)
class Plot:
    """One line, possibly with gaps."""

    name: str
    now: str | None
    """The current figure; None: the pipeline does not run."""
    most: str
    """The greatest figure."""
    top: str
    """The figure at the upper edge."""
    lines: tuple[str, ...]
    """A path for each part without a gap."""
    areas: tuple[str, ...]
    """The areas below the lines."""


def plots(view: PipelineView) -> list[Plot]:
    """Return the plots of lag and rate; none if the pipeline did not run in the last ten minutes."""
    if view.status is None:
        return []
    history, status = view.status.history, view.status
    drawn = [
        _plot("lag", status.lag.seconds, duration, _points(history, history.lag_seconds, view.now_us)),
        _plot(
            "changes per second",
            status.changes_per_second,
            _count,
            _points(history, history.changes_per_second, view.now_us),
        ),
    ]
    return [plot if view.up else Plot(**{**vars(plot), "now": None}) for plot in drawn if plot is not None]


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def _points(history: HistoryStatus, values: Sequence[float | None], now_us: int) -> list[list[Point]]:
    """Return the known points of the last ten minutes, divided at gaps: ``(x, value)``."""
    parts: list[list[Point]] = []
    last: float | None = None
    for at_us, value in zip(history.at_us, values, strict=False):
        x = WIDTH - (now_us - at_us) / 1e6
        if value is None or not 0 <= x <= WIDTH:
            last = None
            continue
        if last is None or x - last > _GAP:
            parts.append([])
        parts[-1].append((x, value))
        last = x
    return parts


def _plot(name: str, now: float | None, format_value: Callable[[float], str], parts: list[list[Point]]) -> Plot | None:
    if not parts:
        return None
    most = max(value for part in parts for _, value in part)
    top = _above(most)
    drawn = [[(x, HEIGHT - HEIGHT * value / top) for x, value in part] for part in parts]
    return Plot(
        name,
        None if now is None else format_value(now),
        format_value(most),
        format_value(top),
        tuple(" ".join(_path(part)) for part in drawn),
        tuple(f"{' '.join(_path(part))} V{HEIGHT} H{part[0][0]:.1f} Z" for part in drawn),
    )


def _path(part: Sequence[Point]) -> Iterator[str]:
    for number, (x, y) in enumerate(part):
        yield f"{'L' if number else 'M'}{x:.1f} {y:.1f}"
    if len(part) == 1:
        yield "h0"  # a dot


def _above(value: float) -> float:
    """Return the least of …, 0.5, 1, 2, 5, 10, … that is not below; 1 for 0, and at least about a millionth."""
    if value <= 0:
        return 1.0
    value = max(value, _LEAST)
    base = 10.0 ** floor(log10(value))
    return next(base * step for step in (1, 2, 5, 10) if base * step >= value * (1 - 1e-9))
