"""The phases of a batch, as steps and as a bar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.status import BATCH_PHASES, Activity, BatchStatus
from headgate.ui._phases import BAR, Step, phase_bar, phase_steps, phases_text


def batch(**phases: float) -> BatchStatus:
    return BatchStatus(batch_id=1, epoch=1, gtid="", committed_us=0, seconds=1.0, phases=phases)


def test_the_steps_of_a_batch_under_way() -> None:
    reading = Activity(phase="reading", since_us=0, tasks=3, tasks_done=2)
    assert phase_steps(reading) == [
        Step("planning", "done"), Step("reading", "now", "2 of 3 tasks", 2, 3), Step("applying", "next"),
        Step("committing", "next"),
    ]  # fmt: skip
    applying = Activity(phase="applying", since_us=0, tables_to_write=1, phases={"planning": 0.25, "reading": 61.0})
    assert phase_steps(applying)[:3] == [
        Step("planning", "done", "0.2 s"), Step("reading", "done", "1 min 1 s"),
        Step("applying", "now", "0 of 1 table", 0, 1),
    ]  # fmt: skip
    assert phase_steps(Activity(phase="committing", since_us=0))[3] == Step("committing", "now")


@pytest.mark.parametrize("phase", ["starting", "resting", "waiting", "retrying", "stopping"])
def test_without_a_batch_there_are_no_steps(phase: str) -> None:
    assert phase_steps(Activity.model_validate({"phase": phase, "since_us": 0})) == []


def test_bars_of_several_batches_have_one_scale() -> None:
    long, short = batch(planning=1.0, reading=2.0, applying=1.0), batch(reading=1.0, committing=0.0)
    assert [(one.phase, one.x, one.width) for one in phase_bar(long, [short, long])] == [
        ("planning", 0.0, 25.0), ("reading", 25.0, 50.0), ("applying", 75.0, 25.0),
    ]  # fmt: skip
    assert [(one.phase, one.x, one.width) for one in phase_bar(short, [short, long])] == [("reading", 0.0, 25.0)]
    assert phase_bar(batch(), [batch()]) == []
    assert phases_text(short) == "reading 1.0 s, committing 0.0 s"
    assert phases_text(batch()) == ""


@given(st.lists(st.dictionaries(st.sampled_from(BATCH_PHASES), st.floats(0, 1e6)), min_size=1, max_size=5))
def test_a_bar_is_never_longer_than_its_place(batches: list[dict[str, float]]) -> None:
    all_batches = [batch(**phases) for phases in batches]
    for one in all_batches:
        x = 0.0
        for segment in phase_bar(one, all_batches):
            assert segment.x == pytest.approx(x, abs=0.02)
            x = segment.x + segment.width
        assert x <= BAR + 0.02
