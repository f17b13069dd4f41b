"""The phases of a batch on the page, as steps and as bars."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headgate.carrier import ControlFolder
from headgate.ui import Watched, create_app
from tests.ui.status import put, reading
from tests.ui.test_app import ask

STEP = re.compile(
    r'<li data-phase="(\w+)" data-state="(\w+)"(?: aria-current="step")?>\s*(?:<progress[^>]*></progress>)?'
    r'\s*<span>\w+</span> <span class="note">([^<]*)</span>'
)
BAR = re.compile(r'<svg class="bar".*?</svg>', re.DOTALL)
RECT = re.compile(r'<rect data-phase="(\w+)" x="([\d.]+)" width="([\d.]+)"')


@pytest.fixture
def inbox(tmp_path: Path) -> ControlFolder:
    return ControlFolder(str(tmp_path / "inbox"))


def page(inbox: ControlFolder, **more: Any) -> str:
    put(inbox, **more)
    return ask(create_app([Watched("shop", inbox)]), "/content").text


def batch(number: int, **phases: float) -> dict[str, Any]:
    return {"batch_id": number, "epoch": number, "gtid": "", "committed_us": 1, "seconds": 1.0, "phases": phases}


def bars(html: str) -> list[list[tuple[str, float, float]]]:
    """Of each bar in the page, the phases with their places and lengths, in percent."""
    return [[(phase, float(x), float(width)) for phase, x, width in RECT.findall(bar)] for bar in BAR.findall(html)]


def test_the_steps_of_a_batch_under_way(inbox: ControlFolder) -> None:
    html = page(inbox, activity=reading(tasks_done=2))
    assert STEP.findall(html) == [
        ("planning", "done", "done"), ("reading", "now", "2 of 4 tasks"), ("applying", "next", "not yet"),
        ("committing", "next", "not yet"),
    ]  # fmt: skip
    assert 'max="4" value="2" aria-label="reading"' in html
    doing = {"phase": "applying", "since_us": 1, "tables_to_write": 1, "phases": {"planning": 0.25, "reading": 61.0}}
    assert STEP.findall(page(inbox, activity=doing))[:3] == [
        ("planning", "done", "0.2 s"), ("reading", "done", "1 min 1 s"), ("applying", "now", "0 of 1 table"),
    ]  # fmt: skip
    html = page(inbox, activity={"phase": "committing", "since_us": 1})
    assert STEP.findall(html)[3] == ("committing", "now", "now")
    assert html.count('aria-current="step"') == 1


@pytest.mark.parametrize("phase", ["starting", "compiling", "checking", "resting", "waiting", "retrying", "stopping"])
def test_without_a_batch_there_are_no_steps(phase: str, inbox: ControlFolder) -> None:
    assert STEP.findall(page(inbox, activity={"phase": phase, "since_us": 1})) == []


def test_bars_of_the_ledger_have_one_scale(inbox: ControlFolder) -> None:
    long, short = batch(2, planning=1.0, reading=2.0, applying=1.0), batch(1, reading=1.0, committing=0.0)
    html = page(inbox, batch=short, recent=[long, short, batch(0)])
    assert bars(html) == [
        [("reading", 0.0, 100.0)],
        [("planning", 0.0, 25.0), ("reading", 25.0, 50.0), ("applying", 75.0, 25.0)],
        [("reading", 0.0, 25.0)],
    ], "the newest batch alone fills its bar; a batch of an earlier headgate has none"
    assert 'aria-label="planning 1.0 s, reading 2.0 s, applying 1.0 s"' in html
    assert 'aria-label="reading 1.0 s, committing 0.0 s"' in html


def test_a_bar_is_never_longer_than_its_place(inbox: ControlFolder) -> None:
    thirds = {"planning": 1 / 3, "reading": 1e6 / 3, "applying": 1e-6, "committing": 2 / 3}
    for bar in bars(page(inbox, recent=[batch(2, **thirds), batch(1, planning=1e-9), batch(0, reading=0.0)])):
        end = max((x + width for _, x, width in bar), default=0.0)
        assert sum(width for _, _, width in bar) == pytest.approx(end, abs=0.02)
        assert end <= 100.02
