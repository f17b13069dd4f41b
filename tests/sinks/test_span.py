from __future__ import annotations

from headgate.carrier import Part
from headgate.sinks._span import KeySpan


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
