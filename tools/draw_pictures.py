"""Draws docs/pictures/ as SVG: what goes where, and how fresh tables are (from ``benchmarks/results``).

``python tools/draw_pictures.py`` writes them; a test compares them with what this would write. The pictures follow the
reader's colour scheme (CSS ``prefers-color-scheme``) and need no font but the reader's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
RESULTS = ROOT / "benchmarks" / "results"

STYLE = """\
:root { --ink: #1f2328; --faint: #59636e; --line: #8c959f; --box: #f6f8fa; --ours: #ddf4ff; --edge: #0969da;
  --fast: #1a7f37; --slow: #bf8700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9198a1; --line: #656c76; --box: #151b23;
  --ours: #0c2d4d; --edge: #4493f8; --fast: #3fb950; --slow: #d29922; } }
text { font: 14px system-ui, sans-serif; fill: var(--ink); }
.title { font-weight: 600; }
.small { font-size: 12px; fill: var(--faint); }
.box { fill: var(--box); stroke: var(--line); }
.ours { fill: var(--ours); stroke: var(--edge); }
.flow { stroke: var(--faint); stroke-width: 1.5; fill: none; marker-end: url(#tip); }
#tip path { fill: var(--faint); }
.half { fill: var(--fast); }
.most { fill: none; stroke: var(--fast); stroke-width: 2; }
.merge { fill: var(--slow); }
.axis { stroke: var(--line); stroke-width: 1; }"""


@dataclass(frozen=True)
class Box:
    """A rectangle with a title and lines of text; all numbers are pixels."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    ours: bool = False

    def draw(self) -> Iterable[str]:
        kind = "ours" if self.ours else "box"
        yield f'<rect class="{kind}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="8"/>'
        yield text(self.x + 14, self.y + 24, self.title, "title")
        for number, line in enumerate(self.lines):
            yield text(self.x + 14, self.y + 44 + 18 * number, line, "small")


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text{kind} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(content)}</text>'


def arrow(path: str, label: str = "", at: tuple[int, int] = (0, 0), anchor: str = "middle") -> list[str]:
    return [f'<path class="flow" d="{path}"/>', *([text(*at, label, "small", anchor)] if label else [])]


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """An SVG document."""
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>', f"<style>{STYLE}</style>",
        f'<defs>{tip}<path d="M0 0L8 4L0 8z"/></marker></defs>', *parts, "</svg>", "",
    ])  # fmt: skip


# --- what goes where


def overview() -> str:
    boxes = [
        Box(10, 60, 170, 118, "MySQL", ("the binary log", "tables, by SELECT", "no locks, no writes")),
        Box(280, 20, 300, 198, "headgate, in Spark", (), ours=True),
        Box(300, 60, 260, 62, "tasks", ("log and chunks → Arrow, in parallel",)),
        Box(300, 136, 260, 62, "one writer", ("upserts by key index, no MERGE",)),
        Box(680, 20, 250, 62, "db/table", ("equal to the source",)),
        Box(680, 88, 250, 62, "_changelog/db/table", ("each change once",)),
        Box(680, 156, 250, 62, "_headgate/ledger", ("versions of one point in time",)),
        Box(280, 250, 300, 62, "headgate relay", ("the log over HTTP, Databus's protocol",), ours=True),
        Box(680, 250, 250, 62, "any consumer", ("in its own time, with checkpoints",)),
    ]
    flows = [
        *arrow("M180 119H278", "rows", (229, 110)),
        *arrow("M430 122V134"),
        *arrow("M580 119H620V51H678", "Delta", (628, 111), "start"),
        *arrow("M620 119H678"),
        *arrow("M620 119V187H678"),
        *arrow("M95 178V281H278", "the log", (187, 272)),
        *arrow("M580 281H678", "events", (629, 272)),
    ]
    lines = [line for box in boxes for line in box.draw()]
    return picture(940, 330, "From MySQL through headgate to Delta tables, and through its relay", [*lines, *flows])


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
    found = {row["shape"]: row for row in results}
    rows = [found[name] for name in NAMES if name in found]
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
    return {FOLDER / "overview.svg": overview(), FOLDER / "freshness.svg": freshness(results)}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, content in pictures().items():
        file.write_text(content, encoding="utf-8")
