"""Draws docs/pictures/ as SVG: what goes where, and how fresh tables are (from ``benchmarks/results``).

``python -m tools.draw_pictures`` writes them, how cost grows, the page's, and those of docs/architecture/. A test
compares them with what this would write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools import draw_architecture, draw_page, draw_scale
from tools.pictures import ROOT, Box, arrow, picture, text

FOLDER = ROOT / "docs" / "pictures"
RESULTS = ROOT / "benchmarks" / "results"

# --- what goes where


def overview() -> str:
    boxes = [
        Box(10, 106, 170, 118, "MySQL", ("the binary log", "tables, by SELECT", "no locks, no writes")),
        Box(280, 20, 300, 290, "headgate, in Spark", (), ours=True),
        Box(300, 90, 260, 62, "tasks", ("log and chunks → Arrow, in parallel",)),
        Box(300, 190, 260, 62, "one writer", ("upserts by key index, no MERGE",)),
        Box(680, 20, 250, 80, "db/table", ("current: equal to the source", "or history: all versions, SCD 2")),
        Box(680, 108, 250, 62, "_changelog/db/table", ("each change once",)),
        Box(680, 178, 250, 62, "Kafka topics", ("each change, in Debezium's format",)),
        Box(680, 248, 250, 62, "_headgate/ledger", ("versions of one point in time",)),
        Box(280, 340, 300, 62, "headgate relay", ("the log over HTTP, Databus's protocol",), ours=True),
        Box(680, 340, 250, 62, "any consumer", ("in its own time, with checkpoints",)),
    ]
    flows = [
        *arrow("M180 165H278", "rows", (229, 156)),
        *arrow("M430 152V188"),
        *arrow("M580 165H620V60H678", "Delta", (649, 52)),
        *arrow("M620 139H678", "Delta", (649, 131)),
        *arrow("M620 165V209H678"),
        *arrow("M620 209V279H678", "Delta", (649, 271)),
        *arrow("M95 224V371H278", "the log", (187, 362)),
        *arrow("M580 371H678", "events", (629, 362)),
    ]
    lines = [line for box in boxes for line in box.draw()]
    title = "From MySQL through headgate to Delta tables and Kafka, and through its relay"
    return picture(940, 420, title, [*lines, *flows])


# --- how fresh

NAMES = {
    "large": "2,000,000 rows, 1,000 transactions/s",
    "medium": "500,000 rows, 100 transactions/s",
    "many": "20 of 40 tables, 200 transactions/s",
    "changelog": "the changelog, 1,000 transactions/s",
}
LEFT, RIGHT, ROW = 290, 880, 46


def freshness(results: Iterable[Mapping[str, Any]]) -> str:
    """Bars: from the commit until another program reads the row; beside them, MERGEs of what one batch has changed."""
    by_shape = {row["shape"]: row for row in results}
    rows = [by_shape[name] for name in NAMES if name in by_shape]
    most = max(float(value) for row in rows for value in (row["p99_s"], row.get("merge_s") or 0))
    seconds = int(most) + 1
    parts = [text(10, 24, "From the commit until another program reads it from the table, seconds", "title")]
    bottom = 50 + ROW * len(rows)
    for second in range(seconds + 1):
        x = scale(second, seconds)
        parts += [f'<path class="axis" d="M{x:g} 40V{bottom}"/>', text(x, bottom + 18, str(second), "small", "middle")]
    for number, row in enumerate(rows):
        parts += bar(50 + ROW * number, row, seconds)
    parts += legend(bottom + 42)
    return picture(940, bottom + 60, "How fresh tables are, beside Spark's MERGE alone", parts)


def scale(seconds: float, most: int) -> float:
    return round(LEFT + (RIGHT - LEFT) * seconds / most, 1)


def bar(y: int, row: Mapping[str, Any], most: int) -> list[str]:
    half, nearly = scale(float(row["p50_s"]), most), scale(float(row["p99_s"]), most)
    parts = [
        text(10, y + 19, NAMES[row["shape"]]),
        f'<rect class="half" x="{LEFT}" y="{y + 4}" width="{half - LEFT:g}" height="14"/>',
        f'<path class="most" d="M{half:g} {y + 11}H{nearly:g}M{nearly:g} {y + 5}V{y + 17}"/>',
        text(nearly + 8, y + 16, f"{row['p50_s']:g}, {row['p99_s']:g}", "small"),
    ]
    if merge := row.get("merge_s"):
        end = scale(float(merge), most)
        parts.append(f'<rect class="merge" x="{LEFT}" y="{y + 22}" width="{end - LEFT:g}" height="8"/>')
        parts.append(text(end + 8, y + 31, f"{merge:g}", "small"))
    return parts


def legend(y: int) -> list[str]:
    return [
        f'<rect class="half" x="10" y="{y - 10}" width="24" height="10"/>', text(40, y, "half of all (p50)", "small"),
        f'<path class="most" d="M160 {y - 5}H184M184 {y - 10}V{y}"/>', text(192, y, "99 % (p99)", "small"),
        f'<rect class="merge" x="280" y="{y - 9}" width="24" height="8"/>',
        text(310, y, "Spark's MERGE of what one batch changed, ready in memory; nothing else", "small"),
    ]  # fmt: skip


def pictures() -> dict[Path, str]:
    """What to write, and where."""
    results = json.loads((RESULTS / "freshness.json").read_text())["results"]
    ours = {FOLDER / "overview.svg": overview(), FOLDER / "freshness.svg": freshness(results)}
    return ours | draw_scale.pictures() | draw_architecture.pictures() | draw_page.pictures()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, content in pictures().items():
        file.write_text(content, encoding="utf-8")
