"""Positions of a log as sets: the order of positions is the order of sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.binlog_positions import BinlogPosition, begin_of, end_of, number_at, positions_before
from headgate.gtid import GtidSet

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
positions = st.tuples(st.integers(1, 1 << 22), st.integers(4, (1 << 40) - 1))


@given(positions, positions)
def test_a_later_position_contains_an_earlier_one(one: tuple[int, int], two: tuple[int, int]) -> None:
    first, second = positions_before(UUID, *one), positions_before(UUID, *two)
    assert (first <= second) == (one <= two)
    between = second - first
    assert bool(between) == (one < two)
    if between:
        assert begin_of(between) == (UUID, *one)
        assert end_of(between) == (UUID, *two)
        assert between.count() == number_at(*two) - number_at(*one)
        assert first | between == second
    assert GtidSet.parse(str(first)) == first
    assert end_of(first) == BinlogPosition(UUID, *one)


def test_another_servers_positions_and_gtids_are_others() -> None:
    here, there = positions_before(UUID, 7, 100), positions_before(OTHER, 9, 4)
    assert not here <= there
    assert not here & there
    gtids = GtidSet.parse(f"{UUID}:1-9:tag:1-4")
    assert begin_of(gtids) is end_of(gtids) is end_of(GtidSet()) is None
    assert end_of(gtids | here) == (UUID, 7, 100)
