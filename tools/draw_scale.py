"""Draws docs/pictures/scale.svg: CPU seconds of runs against the size of their work (from ``benchmarks/results``).

Each axis of ``benchmarks.scale`` is a panel with logarithms on both scales. The thin line is what cost would be if it
grew exactly as the work does from the panel's first point on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tools.pictures import ROOT, picture, text

RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
FILE = ROOT / "docs" / "pictures" / "scale.svg"
TITLES = {
    "backlog": "a backlog, MB of log",
    "transaction": "one transaction, MB",
    "history": "the same into history, MB",
    "partial": "one of partial images, MB",
    "small": "small rows that change",
    "rows": "small rows of a table read",
    "tables": "tables that are read",
    "changing": "tables that change",
    "columns": "columns, 4 million cells",
    "width": "bytes of a row, 128 MB",
    "wide": "the same, 512 MB that are read",
}
COLUMNS, WIDTH, HEIGHT = 4, 232, 176
LEFT, RIGHT, TOP, BOTTOM = 34, 218, 40, 138
"""Of the plot in its panel."""
PLAN = "fill: none; stroke: var(--faint); stroke-dasharray: 3 3"


def pictures() -> dict[Path, str]:
    """What to write, and where."""
    points = json.loads(RESULTS.read_text())["series"]["points"]
    return {FILE: draw(points)}


def draw(points: Iterable[Mapping[str, Any]]) -> str:
    """Return the picture of points."""
    in_order = sorted(points, key=lambda one: (one["axis"], one["size"]))
    by_axis = {name: list(group) for name, group in groupby(in_order, lambda one: one["axis"])}
    axes = [name for name in TITLES if len(by_axis.get(name, ())) > 1]
    parts = [text(10, 22, "CPU seconds of a run against the size of its work; thin: as the work grows", "title")]
    for number, name in enumerate(axes):
        x, y = 10 + WIDTH * (number % COLUMNS), 34 + HEIGHT * (number // COLUMNS)
        parts.append(f'<g transform="translate({x} {y})">')
        parts += panel(TITLES[name], by_axis[name])
        parts.append("</g>")
    height = 34 + HEIGHT * -(-len(axes) // COLUMNS) + 6
    return picture(10 + WIDTH * COLUMNS, height, "How cost grows with its work", parts)


def panel(title: str, points: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Draw one axis."""
    sizes, costs = ([float(one[name]) for one in points] for name in ("size", "cpu_s"))
    expected = [costs[0] * float(one["units"]) / float(points[0]["units"]) for one in points]
    low, high = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(*costs, *expected)))
    yield text(0, 14, title, "title")
    for power in range(low, high + 1):
        y = place(10.0**power, 10.0**low, 10.0**high, BOTTOM, TOP)
        yield f'<path class="axis" d="M{LEFT} {y:g}H{RIGHT}"/>'
        yield text(LEFT - 5, y + 4, f"{10.0**power:g}", "small", "end")
    for anchor, size in (("start", sizes[0]), ("end", sizes[-1])):
        yield text(LEFT if anchor == "start" else RIGHT, BOTTOM + 16, f"{size:,.0f}", "small", anchor)
    xs = [place(size, sizes[0], sizes[-1], LEFT, RIGHT) for size in sizes]
    for kind, values in ((f'style="{PLAN}"', expected), ('class="most"', costs)):
        ys = [place(value, 10.0**low, 10.0**high, BOTTOM, TOP) for value in values]
        yield f'<path {kind} d="M{"L".join(f"{x:g} {y:g}" for x, y in zip(xs, ys, strict=True))}"/>'
        if values is costs:
            yield from (f'<circle class="half" cx="{x:g}" cy="{y:g}" r="3"/>' for x, y in zip(xs, ys, strict=True))


def place(value: float, least: float, most: float, begin: int, end: int) -> float:
    """Return where a value is between two ends, by logarithms."""
    return round(begin + (end - begin) * math.log(value / least) / math.log(most / least), 1)
