"""The collector looks at what a task left behind, not at what the process has loaded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import count

import pytest

from headgate.spark import _worker


@pytest.fixture(autouse=True)
def thaw(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_worker, "_ended", count(1))
    gc.unfreeze()
    yield
    gc.unfreeze()


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def frozen_after(tasks: int) -> list[int]:
    counts = []
    for _ in range(tasks):
        with _worker.task():
            pass
        counts.append(gc.get_freeze_count())
        gc.unfreeze()
    return counts


def test_what_is_loaded_is_frozen_after_the_first_second_fourth_task() -> None:
    assert [count > 0 for count in frozen_after(9)] == [True, True, False, True, False, False, False, True, False]


def test_garbage_is_not_frozen() -> None:
    with _worker.task():
        knot = weakref.ref(Knot())
    assert knot() is None


def test_a_failed_task_counts() -> None:
    with pytest.raises(ValueError, match="broken"), _worker.task():
        raise ValueError("broken")
    assert gc.get_freeze_count() > 0
