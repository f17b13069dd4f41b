"""The pictures of the documentation: up to date, well formed, and on a page."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from headgate.status import Status
from tools import draw_pictures, draw_scale
from tools.pictures import ROOT
from tools.record_page import FILE, disagreements

PAGES = {"scale.svg": ROOT / "docs/explanation/performance.md"}
"""Pages that show a picture instead of the README of its folder, or of all."""


@pytest.mark.parametrize("file", draw_pictures.pictures().keys(), ids=lambda file: file.name)
def test_a_picture_is_what_would_be_drawn_now(file: Path) -> None:
    written = file.read_text(encoding="utf-8")
    assert written == draw_pictures.pictures()[file], "run python -m tools.draw_pictures"
    ET.fromstring(written)
    page = PAGES.get(file.name, (ROOT if file.parent == draw_pictures.FOLDER else file.parent) / "README.md")
    assert f"]({os.path.relpath(file, page.parent)})" in page.read_text("utf-8")


def test_each_axis_with_two_points_has_a_panel() -> None:
    """In whatever order they were measured."""
    sizes = Counter(one["axis"] for one in json.loads(draw_scale.RESULTS.read_text())["series"]["points"])
    drawn = draw_scale.FILE.read_text("utf-8")
    assert {name for name, title in draw_scale.TITLES.items() if f">{title}<" in drawn} == {
        name for name, count in sizes.items() if count > 1
    }


def recorded() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return value


def test_the_figures_of_the_page_in_the_picture_agree() -> None:
    status = Status.model_validate(recorded())
    assert disagreements(status) == [], "run python -m tools.record_page"
    assert status.state == "running"
    assert any(table.state == "live" for table in status.tables.values())
    assert any(table.rows_read and table.chunks_done for table in status.tables.values())
    assert status.batch is not None
    assert len(status.batch.phases) == 4


@pytest.mark.parametrize(
    ("place", "value", "difference"),
    [
        (("tables", "shop.order_items", "chunks_estimate"), 1026, "of the chunks"),
        (("snapshot", "rows"), 5, "rows of snapshots: 5 and "),
        (("snapshot", "tables"), 9, "tables read: 9 and "),
        (("tables", "shop.customers", "changes"), 0, "changes: "),
        (("tables", "shop.customers", "rows"), 0, "rows: "),
        (("batches",), 99, "batches: 99 and "),
        (("activity", "rows_estimate"), 1, "rows of the batch: 1 and "),
        (("recent", 0, "phases", "reading"), 99.0, ", its phases "),
        (("activity", "tables", "shop.order_items", "first"), 1, "chunk 1 of "),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_figures_that_cannot_be_true_together_are_found(place: tuple[Any, ...], value: float, difference: str) -> None:
    status = recorded()
    inner: Any = status
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert difference in "; ".join(disagreements(Status.model_validate(status)))
