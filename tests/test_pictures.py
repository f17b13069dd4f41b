"""The pictures of the documentation: up to date, well formed, and what a README shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools import draw_pictures
from tools.pictures import ROOT


@pytest.mark.parametrize("file", draw_pictures.pictures().keys(), ids=lambda file: file.name)
def test_a_picture_is_what_would_be_drawn_now(file: Path) -> None:
    written = file.read_text(encoding="utf-8")
    assert written == draw_pictures.pictures()[file], "run python -m tools.draw_pictures"
    ET.fromstring(written)
    page = ROOT if file.parent == draw_pictures.FOLDER else file.parent
    assert f"]({file.relative_to(page)})" in (page / "README.md").read_text("utf-8")
