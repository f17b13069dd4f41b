"""The paths of the small plots."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.carrier import ControlFolder
from headgate.ui import PipelineView, Watched
from headgate.ui._plots import HEIGHT, WIDTH, Plot, _above, plots
from tests.ui.status import put

NOW_US = 1_700_000_000_000_000


def seen(tmp_path: Path, lag: dict[int, float | None], **more: Any) -> list[Plot]:
    """The plots of a lag, by how many seconds ago it was."""
    inbox = ControlFolder(str(tmp_path))
    history = {
        "at_us": [NOW_US - ago * 1_000_000 for ago in lag],
        "lag_seconds": [*lag.values()],
        "changes_per_second": [0.0] * len(lag),
    }
    put(inbox, history=history, **more)
    return plots(PipelineView("shop", NOW_US, Watched("shop", inbox).state().status))


def test_a_line_from_left_to_right(tmp_path: Path) -> None:
    lag, rate = seen(tmp_path, {10: 1.0, 5: 2.0, 0: 0.0})
    assert (lag.name, lag.most, lag.top) == ("lag", "2.0 s", "2.0 s")
    assert lag.lines == ("M590.0 50.0 L595.0 0.0 L600.0 100.0",)
    assert lag.areas == ("M590.0 50.0 L595.0 0.0 L600.0 100.0 V100 H590.0 Z",)
    assert (rate.name, rate.most, rate.top) == ("changes per second", "0", "1")
    assert rate.lines == ("M590.0 100.0 L595.0 100.0 L600.0 100.0",)


def test_gaps_are_seen(tmp_path: Path) -> None:
    lag, rate = seen(tmp_path, {700: 9.0, 100: 1.0, 95: 1.0, 60: 1.0, 20: None, 15: 1.0, 10: 1.0})
    assert [line[: line.index(" ")] for line in lag.lines] == ["M500.0", "M540.0", "M585.0"]
    assert lag.lines[1] == "M540.0 0.0 h0", "a dot"
    assert lag.most == "1.0 s", "what is older does not count"
    assert len(rate.lines) == 3, "of the rate everything is known"


def test_without_points_there_is_no_plot(tmp_path: Path) -> None:
    assert seen(tmp_path, {}) == []
    assert seen(tmp_path, {601: 1.0}) == []
    assert plots(PipelineView("shop", NOW_US, None)) == []
    assert [plot.name for plot in seen(tmp_path, {10: None})] == ["changes per second"]


def test_a_pipeline_that_does_not_run_has_no_figure_of_now(tmp_path: Path) -> None:
    assert {plot.now for plot in seen(tmp_path, {10: 1.0}, state="stopped")} == {None}


@given(st.dictionaries(st.integers(0, 600), st.floats(0, 1e9) | st.none(), min_size=1))
@example({0: 5e-324})
def test_all_is_inside(tmp_path_factory: pytest.TempPathFactory, lag: dict[int, float | None]) -> None:
    ordered = {ago: lag[ago] for ago in sorted(lag, reverse=True)}
    for plot in seen(tmp_path_factory.mktemp("inbox"), ordered):
        for x, y in re.findall(r"[ML](\S+) (\S+)", " ".join(plot.lines)):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT


@given(st.floats(1e-3, 1e12))
def test_the_upper_edge_is_a_round_number_not_far_above(value: float) -> None:
    top = _above(value)
    assert value * (1 - 1e-6) <= top <= value * 2.5 * (1 + 1e-6)
    assert f"{top:.0e}"[0] in "125"
    assert top == pytest.approx(float(f"{top:.0e}"))
