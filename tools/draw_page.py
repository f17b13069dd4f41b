"""Draws docs/pictures/page.svg: the page of a pipeline while it reads tables, from the status of a real run.

The HTML is that of the page's own templates, with its own style, inside an SVG; so the picture changes with them. The
status (``docs/pictures/page.json``) was written by a run of ``headgate run`` in the midst of a snapshot
(``tools/record_page.py``).
"""

from __future__ import annotations

import json
from pathlib import Path

from headgate.status import Status
from headgate.ui._app import templates
from headgate.ui._pipelines import PipelineView
from tools.pictures import ROOT

FOLDER = ROOT / "docs" / "pictures"
STYLE = ROOT / "src" / "headgate" / "ui" / "static" / "style.css"
SVG = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT = 1120, 1000


def pictures() -> dict[Path, str]:
    """What to write, and where."""
    return {FOLDER / "page.svg": page(json.loads((FOLDER / "page.json").read_text("utf-8")))}


def page(value: dict[str, object]) -> str:
    """The page as it was when the status had been written, cut off below."""
    status = Status.model_validate(value)
    view = PipelineView(status.pipeline, status.updated_us, status.model_copy(update={"host": "elsewhere"}))
    content = templates().get_template("content.html").render(views=[view], limit=None)
    style = STYLE.read_text("utf-8").partition("@media (max-width")[0]  # a picture has one width
    return "\n".join([
        f'<svg xmlns="{SVG}" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f"<style>{style.rstrip()}\nbody {{ padding: 1rem; }}</style>",
        f'<foreignObject width="{WIDTH}" height="{HEIGHT}"><body xmlns="http://www.w3.org/1999/xhtml">',
        "\n".join(line for line in content.replace("<svg ", f'<svg xmlns="{SVG}" ').splitlines() if line.strip()),
        "</body></foreignObject>", "</svg>", "",
    ])  # fmt: skip
