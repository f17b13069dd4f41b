"""Which chunks may be appended: those that cannot hold a key twice."""

from __future__ import annotations

import pytest

from headgate.carrier import Part
from headgate.sinks._current import _apart


def chunk(*bounds: tuple[str, str], unbounded: int = 0) -> Part:
    return Part("shop.orders", "chunk", "{}", bounds=list(bounds), unbounded=unbounded)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(("1", "9"))],
        [chunk(("100", "120"), ("10", "99"), ("-5", "9"))],  # numbers, not text
        [chunk(("5", "8")), chunk(("1", "4"))],
        [chunk(("2024-01-01", "2024-01-31"), ("2024-02-01", "2024-02-01"))],
    ],
)
def test_record_batches_whose_ranges_do_not_meet(chunks: list[Part]) -> None:
    assert _apart(chunks)


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [chunk()],  # no rows
        [chunk(unbounded=1)],  # a key whose order is not known here
        [chunk(("1", "4"), unbounded=1)],
        [chunk(("1", "4"), ("4", "9"))],
        [chunk(("1", "9"), ("3", "4"), ("10", "11"))],
        [chunk(("1", "4")), chunk(("2", "2"))],
    ],
)
def test_record_batches_that_may_hold_a_key_twice(chunks: list[Part]) -> None:
    assert not _apart(chunks)
