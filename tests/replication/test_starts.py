"""Start positions: names, sets, bytes and times become the position before the first transaction to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import BinlogPurgedError, ConfigError, ServerBehindError, ServerSettingError
from headgate.mysql import Connection
from headgate.positions import NOTHING, LogPlace, Position, file_number
from headgate.replication import start_of
from tests.replication.pretended import OTHER, SETTINGS, UUID, Network, PretendedServer, gtids

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGAN_US = 1_700_000_000_000_000


def logged(times: list[int], rotated: set[int], *, anonymous: bool) -> PretendedServer:
    """Return a server with a transaction of each time.

    :param rotated: transactions before which a file begins.
    """
    server = PretendedServer(anonymous=anonymous)
    for number, at_us in enumerate(times, 1):
        if number in rotated:
            server.rotate()
        server.began_us = at_us - number
        server.commit([number])
    return server


def start(server: PretendedServer, text: str) -> Position:
    """Return the start position that a text names at this server."""
    network = Network(server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "open", network.connect)
        with Connection.open(SETTINGS) as connection:
            read_before, executed = start_of(connection, text)
    assert network.open == 0
    assert executed == server.position
    return read_before


def moment(at_us: int) -> str:
    return (EPOCH + timedelta(microseconds=at_us)).isoformat()


def before(server: PretendedServer, number: int) -> Position:
    """Return the position before a transaction, by what was written; after the last one what was executed."""
    if number > server.number:
        return server.position
    if not server.anonymous:
        return gtids(1, number - 1)
    return next(
        LogPlace.before(UUID, file_number(file.name), event.pos)
        for file in server.files
        for event in file.events
        if event.number == number
    )


@given(
    gaps=st.lists(st.sampled_from([0, 1, 1000]), min_size=1, max_size=7),
    rotated=st.sets(st.integers(1, 7)),
    anonymous=st.booleans(),
    at=st.integers(0, 7),
    offset=st.sampled_from([0, 1]),
)
def test_a_time_is_the_position_before_the_first_transaction_from_then_on(
    gaps: list[int], rotated: set[int], anonymous: bool, at: int, offset: int
) -> None:
    times = [*accumulate(gaps, initial=BEGAN_US)]
    server = logged(times, rotated, anonymous=anonymous)
    at_us = times[at % len(times)] + offset
    first = next((number for number, time in enumerate(times, 1) if time >= at_us), len(times) + 1)
    if first > 1:
        assert start(server, moment(at_us)) == before(server, first)
    elif not anonymous:
        assert start(server, moment(at_us)) == NOTHING
    else:  # without GTIDs nothing tells whether there was an earlier file
        with pytest.raises(BinlogPurgedError, match="may be purged: begin at earliest"):
            start(server, moment(at_us))


def test_a_time_before_what_was_purged_is_refused_and_says_when_the_log_begins() -> None:
    server = logged([BEGAN_US, BEGAN_US + 1, BEGAN_US + 2_000, BEGAN_US + 3_000], {3}, anonymous=False)
    server.purged = gtids(1, 2)
    del server.files[0]
    assert start(server, moment(BEGAN_US + 2_001)) == gtids(1, 3)
    for at_us in (BEGAN_US - 5, BEGAN_US + 2_000):
        with pytest.raises(BinlogPurgedError, match=r"the log begins at 2023-11-14T22:13:20\.002\+00:00") as caught:
            start(server, moment(at_us))
        assert caught.value.purged == str(gtids(1, 2))


@pytest.mark.parametrize("anonymous", [False, True])
def test_a_log_without_a_transaction_begins_before_each_time(anonymous: bool) -> None:
    server = PretendedServer(anonymous=anonymous)
    if anonymous:
        with pytest.raises(BinlogPurgedError, match="the log begins at its end"):
            start(server, moment(BEGAN_US))
    else:
        assert start(server, moment(BEGAN_US)) == NOTHING


def test_names_and_sets() -> None:
    server = logged([BEGAN_US] * 4, {3}, anonymous=False)
    assert start(server, "earliest") == NOTHING
    assert start(server, "Current") == gtids(1, 4)
    assert start(server, f"{UUID}:1-2") == gtids(1, 2)
    server.purged = gtids(1, 2)
    assert start(server, "earliest") == gtids(1, 2)
    with pytest.raises(BinlogPurgedError, match=r"no longer holds .*:2: begin at earliest") as caught:
        start(server, f"{UUID}:1")
    assert (caught.value.needed, caught.value.purged) == (f"{UUID}:2", f"{UUID}:1-2")
    with pytest.raises(ServerBehindError, match=f"has not executed {OTHER}:7: is this the right server?"):
        start(server, f"{UUID}:1-4,{OTHER}:7")


def test_bytes_of_files() -> None:
    server = logged([BEGAN_US] * 3, {3}, anonymous=True)
    second = before(server, 2)
    assert isinstance(second, LogPlace)
    assert start(server, f"binlog.000001:{second.end.pos}") == second
    assert start(server, str(second)) == second
    assert start(server, "earliest") == LogPlace.before(UUID, 1, 4)
    with pytest.raises(ServerBehindError, match="has not executed"):
        start(server, "binlog.000003:4")
    del server.files[0]
    with pytest.raises(BinlogPurgedError, match="begin at earliest"):
        start(server, str(second))


def test_positions_of_the_other_kind_are_refused() -> None:
    with pytest.raises(ServerSettingError, match="without its gtid_mode of before"):
        start(logged([BEGAN_US], set(), anonymous=True), f"{UUID}:1")
    with pytest.raises(ServerSettingError, match="without its gtid_mode of before"):
        start(logged([BEGAN_US], set(), anonymous=False), f"{UUID}@1:4")
    with pytest.raises(ConfigError, match="has GTIDs"):
        start(logged([BEGAN_US], set(), anonymous=False), "binlog.000001:4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2120-01-01T00:00:00Z", "in the future; current means now"),
        ("2020-01-01T00:00:00", "add its zone"),
        ("2020-01-32T00:00:00Z", "a time looks like"),
        ("yesterday", "expected current, earliest, a time or a GTID set"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start(PretendedServer(), text)
