"""The pictures of the documentation: up to date, well formed, and what the README shows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools import draw_pictures


@pytest.mark.parametrize("file", draw_pictures.pictures().keys(), ids=lambda file: file.name)
def test_a_picture_is_what_would_be_drawn_now(file: Path) -> None:
    written = file.read_text(encoding="utf-8")
    assert written == draw_pictures.pictures()[file], "run python tools/draw_pictures.py"
    ET.fromstring(written)
    assert file.relative_to(draw_pictures.ROOT).as_posix() in (draw_pictures.ROOT / "README.md").read_text("utf-8")
