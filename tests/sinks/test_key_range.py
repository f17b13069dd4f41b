"""What a run knows of a table's keys, and which chunks may be appended: those that cannot hold a key twice."""

from __future__ import annotations

import pytest

from headgate.carrier import Part
from headgate.sinks._key_range import KeySpan, are_disjoint


def chunk(low: str, high: str) -> Part:
    return Part("shop.orders", "chunk", "{}", images=1, low=low, high=high, bounds=[(low, high)])


def test_a_run_knows_nothing_of_a_table_that_it_finds() -> None:
    assert not KeySpan().excludes(0, [chunk("1", "2")])
    assert not KeySpan().all_since(0, 0)


def test_a_new_table_holds_nothing() -> None:
    span = KeySpan()
    span.begin(0, 7)
    assert span.excludes(0, [chunk("1", "2")])
    assert not span.excludes(1, [chunk("1", "2")])
    assert span.all_since(0, 7)
    assert not span.all_since(0, 8)


def test_it_grows_by_what_comes_and_compares_by_value() -> None:
    span = KeySpan()
    span.begin(0, 1)
    span.grow(0, 1, [chunk("9", "10")])
    span.grow(1, 3, [chunk("11", "20"), chunk("-5", "3")])
    assert (span.low, span.high, span.version) == ("-5", "20", 3)
    assert span.excludes(3, [chunk("21", "100"), chunk("-9", "-6")])
    assert not span.excludes(3, [chunk("100", "200"), chunk("4", "5")])
    assert span.all_since(3, 1)


def test_nothing_is_known_after_a_writer_that_is_not_ours() -> None:
    span = KeySpan()
    span.begin(0, 1)
    span.grow(1, 2, [chunk("1", "2")])  # version 0 became 1 without us
    assert not span.excludes(2, [chunk("5", "6")])
    span.begin(0, 1)
    span.grow(0, -1, [chunk("1", "2")])
    assert not span.excludes(-1, [chunk("5", "6")])


def test_nothing_is_known_of_keys_without_bounds() -> None:
    span = KeySpan()
    for part in (Part("t", "rows", "{}", images=1, unbounded=1), Part("t", "rows", "{}", images=1, partial=True)):
        span.begin(0, 1)
        span.grow(0, 1, [part])
        assert not span.excludes(1, [chunk("5", "6")])


def ranged(*bounds: tuple[str, str], unbounded: int = 0) -> Part:
    return Part("shop.orders", "chunk", "{}", bounds=list(bounds), unbounded=unbounded)


@pytest.mark.parametrize(
    "chunks",
    [
        [ranged(("1", "9"))],
        [ranged(("100", "120"), ("10", "99"), ("-5", "9"))],  # numbers, not text
        [ranged(("5", "8")), ranged(("1", "4"))],
        [ranged(("2024-01-01", "2024-01-31"), ("2024-02-01", "2024-02-01"))],
    ],
)
def test_record_batches_whose_ranges_do_not_meet(chunks: list[Part]) -> None:
    assert are_disjoint(chunks)


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [ranged()],  # no rows
        [ranged(unbounded=1)],  # a key whose order is not known here
        [ranged(("1", "4"), unbounded=1)],
        [ranged(("1", "4"), ("4", "9"))],
        [ranged(("1", "9"), ("3", "4"), ("10", "11"))],
        [ranged(("1", "4")), ranged(("2", "2"))],
    ],
)
def test_record_batches_that_may_hold_a_key_twice(chunks: list[Part]) -> None:
    assert not are_disjoint(chunks)
