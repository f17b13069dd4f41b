"""What pictures of the documentation are made of: boxes, arrows, texts, in one style, as SVG.

They follow the reader's colour scheme (CSS ``prefers-color-scheme``) and need no font but the reader's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent

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
