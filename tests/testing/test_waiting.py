"""``wait_until``: what it returns, what it raises, and when it looks for the last time."""

from __future__ import annotations

import pytest

from headgate_testing import wait_until


def test_it_returns_what_it_has_looked_for() -> None:
    answers = [None, "", "here", "later"]
    assert wait_until(lambda: answers.pop(0), every=0.0) == "here"
    assert answers == ["later"]


def test_it_looks_once_though_there_is_no_time() -> None:
    assert wait_until(lambda: 7, seconds=0.0) == 7


def test_the_problem_is_described_when_it_has_not_come() -> None:
    looks: list[int] = []
    with pytest.raises(TimeoutError, match=r"^it was looked for \d+ times \(after 0\.01 s\)$"):
        wait_until(lambda: looks.append(1), lambda: f"it was looked for {len(looks)} times", seconds=0.01, every=0.001)
    assert len(looks) >= 2
    with pytest.raises(TimeoutError, match="nobody answers"):
        wait_until(lambda: False, "nobody answers", seconds=0.0)


def test_what_is_raised_ends_it() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0)
