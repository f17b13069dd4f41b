"""Positions of a log as sets: the order of positions is the order of sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.binlog_positions import (
    BinlogPosition,
    FilePosition,
    NamedStart,
    begin_of,
    end_of,
    number_at,
    parse_start,
    positions_before,
)
from headgate.errors import ConfigError
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


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("Current", NamedStart.CURRENT),
        ("earliest", NamedStart.EARLIEST),
        ("2026-11-21T10:00:00Z", datetime(2026, 11, 21, 10, tzinfo=UTC)),
        ("2999-01-01 00:00:00.5+01:00", datetime(2999, 1, 1, 0, 0, 0, 500_000, tzinfo=timezone(timedelta(hours=1)))),
        ("binlog.000003:157", FilePosition(3, 157)),
        (".000042:4", FilePosition(42, 4)),
        (f"{UUID}:1-5", GtidSet.parse(f"{UUID}:1-5")),
        ("", GtidSet()),
    ],
)
def test_start_positions(text: str, start: object) -> None:
    assert parse_start(text) == start


@given(positions)
def test_a_position_of_the_ledger_is_a_start(position: tuple[int, int]) -> None:
    had = positions_before(UUID, *position)
    assert parse_start(str(had)) == had


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", "expected current, earliest, a time or a GTID set"),
        ("2026-11-21 10", "a time looks like|add its zone"),
        ("2026-13-41T10:00:00Z", "a time looks like"),
        ("2026-11-21T10:00:00", "add its zone, as in 2026-11-21T10:00:00Z"),
        ("binlog.000003", "expected current"),
    ],
)
def test_what_is_no_start(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_start(text)
