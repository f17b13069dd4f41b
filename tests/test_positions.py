"""Positions of every kind as sets: the order of positions is the order of sets."""

from __future__ import annotations

import functools
import itertools
import operator
import pickle
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate
from headgate.errors import BinlogPurgedError, ConfigError, ServerSettingError
from headgate.gtid import Gtid, GtidSet
from headgate.positions import (
    KINDS,
    NOTHING,
    DumpStart,
    FilePosition,
    LogPlace,
    NamedStart,
    Position,
    check_kind,
    gtids_of,
    parse_position,
    parse_start,
    read_executed,
)
from tests.domains import Domains, domains

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
positions = st.tuples(st.integers(1, 1 << 22), st.integers(4, (1 << 40) - 1))

bytes_of = st.tuples(st.integers(1, 5), st.integers(4, 9))


def places(first: tuple[int, int], last: tuple[int, int], server: str = UUID) -> LogPlace:
    """The bytes between two positions."""
    return LogPlace.before(server, *last) - LogPlace.before(server, *first)


def gtids(first: int, last: int, server: str = UUID) -> GtidSet:
    return GtidSet.parse(f"{server}:{first}-{last}")


numbers = st.tuples(st.integers(1, 30), st.integers(1, 30)).map(sorted)
parts: dict[str, st.SearchStrategy[Any]] = {
    "gtids": st.builds(lambda pair, server: gtids(pair[0], pair[1], server), numbers, st.sampled_from([UUID, OTHER])),
    "places": st.builds(places, bytes_of, bytes_of, st.sampled_from([UUID, OTHER])),
    "domains": numbers.map(lambda pair: domains(pair[1], pair[0])),
}
kinds = pytest.mark.parametrize("kind", sorted(parts))


@pytest.fixture(autouse=True)
def third_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.positions.KINDS", (Domains, *KINDS))


@kinds
@given(st.data())
def test_the_algebra_is_that_of_sets(kind: str, data: st.DataObject) -> None:
    """Every kind, also the one that ``src`` does not know; ``-`` and ``&`` are checked by the laws that define them."""
    draw = st.lists(parts[kind], max_size=3).map(lambda some: functools.reduce(operator.or_, some, NOTHING))
    a, b, c = (data.draw(draw) for _ in range(3))
    assert (a - b) | (a & b) == a
    assert not (a - b) & b
    assert (a | b) - b == a - b
    assert a & b == b & a
    assert (a & b) <= a <= (a | b)
    assert a - (b | c) == (a - b) - c
    assert a & (b | c) == (a & b) | (a & c)
    assert (a <= b) == (not a - b) == (a | b == b)
    assert (a < b) == (a <= b and a != b)
    assert sum(part.count() for part in a.parts()) == a.count()
    assert parse_position(str(a)) == a == pickle.loads(pickle.dumps(a))
    assert hash(a) == hash(parse_position(str(a)))
    assert a | NOTHING == a == NOTHING | a
    assert a - NOTHING == a
    assert NOTHING - a == NOTHING <= a
    assert a.newest(2) <= a
    for uuid, tag, first, last in a.intervals():
        key = Gtid(uuid, tag, last)
        assert key in a
        assert a.only(key) <= a
        assert key._replace(number=first - 1) not in a, "intervals that touch are joined"


@given(positions, positions)
def test_a_later_place_contains_an_earlier_one(one: tuple[int, int], two: tuple[int, int]) -> None:
    first, second = LogPlace.before(UUID, *one), LogPlace.before(UUID, *two)
    assert (first <= second) == (one <= two)
    between = second - first
    assert bool(between) == (one < two)
    assert first.end == one
    if between:
        assert (between.begin, between.end) == (one, two)
        assert first.key_of(None, *one) in between, "a transaction that begins there"
        assert first.key_of(None, *two) not in between
        assert first | between == second
        assert parse_position(str(between)) == between
        assert between.is_complete(0, two)
        assert not between.is_complete(99, one)


def test_kinds_have_nothing_in_common() -> None:
    here, there = LogPlace.before(UUID, 7, 100), LogPlace.before(OTHER, 9, 4)
    some: list[Position] = [here, there, gtids(1, 9), domains(9)]
    for a, b in itertools.permutations(some, 2):
        assert not a <= b
        assert not a & b
        assert a - b == a
    for a, b in itertools.permutations(some[1:], 2):
        with pytest.raises(ConfigError, match="two kinds"):
            a | b
        with pytest.raises(ServerSettingError, match="have to be read again"):
            check_kind(a, b)
    check_kind(here, there)
    check_kind(here, NOTHING)
    assert here.is_in_log_of(UUID)
    assert not here.is_in_log_of(OTHER)


SRC = Path(headgate.__file__).parent
NAMING_A_KIND = {
    "__init__.py",  # the API
    "gtid.py", "positions.py",  # the kinds
    "replication/_readers.py",  # the set that begins a file
    "cli/_relay.py", "mysql/_binlog_archive.py", "mysql/_facts.py", "replication/_copy.py", "replication/_log_read.py",
    "spark/_relayed.py",  # the relay and its archive, which take GTID sets only
}  # fmt: skip


def test_no_other_module_names_a_kind() -> None:
    """So a further kind touches no caller: ``docs/architecture/positions.md`` lists what it touches."""
    named = {
        path.relative_to(SRC).as_posix()
        for path in SRC.rglob("*.py")
        if re.search(r"\b(GtidSet|LogPlace)\b", path.read_text())
    }
    assert {name for name in named if not name.startswith("relay/")} == NAMING_A_KIND


def test_text_shows_file_and_byte() -> None:
    assert str(LogPlace.before(UUID, 3, 157)) == f"{UUID}@3:157"
    assert str(places((3, 157), (4, 200))) == f"{UUID}@3:157-4:200"
    for text in (f"{UUID}@3", f"{UUID}@3:x", "@3:157"):
        with pytest.raises(ConfigError, match="not a position"):
            parse_position(text)


class Server:
    """What a log's server answers."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return [(self.mode, UUID, f"{UUID}:1-3", f"{UUID}:1-9")]

    def log_status(self) -> tuple[str, int]:
        return "binlog.000005", 200

    def log_files(self) -> list[tuple[str, int]]:
        return [("binlog.000004", 999), ("binlog.000005", 200)]


def test_the_mode_of_a_server_makes_the_kind() -> None:
    on, off = read_executed(Server("ON")), read_executed(Server("OFF"))
    assert (on.executed, on.purged(Server("ON"))) == (gtids(1, 9), gtids(1, 3))
    assert off.executed == LogPlace.before(UUID, 5, 200)
    assert off.purged(Server("OFF")) == off.executed.at(4, 4) == off.executed.before_file(4, lambda: NOTHING)
    with pytest.raises(ServerSettingError, match="ON_PERMISSIVE"):
        read_executed(Server("ON_PERMISSIVE"))


def test_what_a_dump_asks_for() -> None:
    server, executed = Server("OFF"), LogPlace.before(UUID, 5, 200)
    assert gtids(4, 5).request(server, gtids(1, 9), inside=True) == DumpStart((gtids(1, 3) | gtids(6, 9)).encode())
    assert gtids(4, 5).request(server, gtids(1, 9), inside=False) == DumpStart(gtids(4, 5).encode())
    wanted = executed - executed.at(4, 77)
    assert wanted.request(server, executed, inside=True) == DumpStart(None, "binlog.000004", 77)
    assert wanted.request(server, executed, inside=False) == DumpStart(None, "binlog.000005", 200)
    with pytest.raises(BinlogPurgedError):
        (executed - executed.at(3, 77)).request(server, executed, inside=True)


def test_a_transaction_that_the_position_does_not_count() -> None:
    key = Gtid.parse(f"{UUID}:5")
    assert gtids(1, 9).key_of(key, 3, 157) is key
    with pytest.raises(ServerSettingError, match="without a GTID"):
        gtids(1, 9).key_of(None, 3, 157)
    with pytest.raises(ServerSettingError, match="with a GTID"):
        LogPlace.before(UUID, 3, 4).key_of(key, 3, 157)
    with pytest.raises(ServerSettingError, match="an archive needs GTIDs"):
        gtids_of(LogPlace.before(UUID, 3, 4), "an archive")


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
    had = LogPlace.before(UUID, *position)
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
