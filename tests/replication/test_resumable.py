"""Every end of a dump, every cut of a connection, every wrong server: what is handed on is the log, once, in order."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import (
    AccessError,
    BinlogPurgedError,
    ChecksumError,
    ConnectError,
    ConnectionLostError,
    DefiniteServerError,
    HeadgateError,
    HistoryRewrittenError,
    IncompleteReadError,
    ServerBehindError,
    ServerSettingError,
    TransientServerError,
)
from headgate.gtid import GtidSet
from headgate.mysql import ArchivedLog, ByteStream, LogRequest
from headgate.offsets import Hint
from headgate.positions import NOTHING, LogPlace, Position
from headgate.replication import Idle, LogRead, RangeEnd, WindowReader, follow, previous_gtids, read_range, resumable
from headgate.replication.resumable import TRANSITIONS, DumpEvent, DumpState, ResumableDump, Scan, scan
from headgate_testing._binlog import EOF_PACKET
from tests.replication.pretended import (
    HEARTBEAT_V2,
    NON_BLOCK,
    OPTIONS,
    OTHER,
    READERS,
    SETTINGS,
    TABLES,
    UUID,
    Ends,
    Network,
    PretendedServer,
    error_packet,
    filtered,
    gtids,
    read_window,
    rows,
    rows_read,
)
from tests.replication.pretended import rows as rows_of


@pytest.fixture(autouse=True)
def no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests count dumps. Those that compare histories between them are in ``test_history.py``."""
    monkeypatch.setattr(resumable, "check_history", lambda *_: None)


def small(*, anonymous: bool = False, uuid: str = UUID) -> PretendedServer:
    """Five transactions over three files; one file is rotated, one ended with its server."""
    server = PretendedServer(uuid, anonymous=anonymous)
    server.commit([1])
    server.commit([2, 3], [4], [5, 6])
    server.rotate()
    server.commit([7], [8])
    server.restart()
    server.commit([9])
    server.commit([10], [11, 12])
    return server


def tiny(*, anonymous: bool = False) -> PretendedServer:
    """Two transactions in two files, for tests of every place."""
    server = PretendedServer(anonymous=anonymous)
    server.commit([1])
    server.rotate()
    server.commit([2, 3], [4])
    return server


def beginning(server: PretendedServer) -> Position:
    return LogPlace.before(server.uuid, 1, 4) if server.anonymous else NOTHING


def whole(server: PretendedServer, reader: str = "range") -> list[Any]:
    rows = list(READERS[reader](Network(server), beginning(server)))
    assert [row[-1] for row in rows] == [one for ids in server.rows.values() for one in ids]
    return rows


def borders(packets: list[bytes]) -> list[int]:
    """Of each packet: before it, inside its header, inside the event's header, before its last byte; and behind all."""
    at, cuts = 0, set[int]()
    for packet in packets:
        cuts |= {at, at + 2, at + 9, at + len(packet) - 1}
        at += len(packet)
    return [*sorted(cuts), at]


# --- cuts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("anonymous", [False, True], ids=["gtids", "positions"])
def test_a_connection_is_cut_at_any_border(reader: str, anonymous: bool) -> None:
    server = tiny(anonymous=anonymous)
    expected = whole(server, reader)
    network = Network(server)
    list(rows_read(network, beginning(server)))
    for cut in borders(network.sent[0]):
        network = Network(server, [Ends(after_bytes=cut)], step=100)
        assert list(READERS[reader](network, beginning(server))) == expected, f"cut behind {cut} bytes"
        assert len(network.dumps) <= 2
        assert network.open == 0


SCRIPTS = st.lists(
    st.one_of(
        st.builds(Ends, after_bytes=st.integers(0, 2600)),
        st.builds(
            Ends,
            after_packets=st.integers(0, 45),
            tail=st.sampled_from([EOF_PACKET, error_packet(1053, "Server shutdown in progress"), b""]),
        ),
    ),
    max_size=8,
)


@settings(max_examples=40)
@given(
    transactions=st.lists(
        st.lists(st.integers(1, 4), min_size=1, max_size=4) | st.sampled_from(["rotate", "restart"]), max_size=9
    ),
    script=SCRIPTS,
    step=st.integers(20, 2000),
    reader=st.sampled_from(sorted(READERS)),
    anonymous=st.booleans(),
    data=st.data(),
)
def test_whatever_the_cuts_the_log_comes_once_and_in_order(
    transactions: list[Any], script: list[Ends], step: int, reader: str, anonymous: bool, data: st.DataObject
) -> None:
    server, ids = PretendedServer(anonymous=anonymous), itertools.count()
    places = [server.position]
    for one in transactions:
        if isinstance(one, str):
            getattr(server, one)()
        else:
            server.commit(*([next(ids) for _ in range(size)] for size in one))
        places.append(server.position)
    had = data.draw(st.sampled_from(places))
    network = Network(server, script, step=step, attempts=len(script) + 1)
    rows = list(READERS[reader](network, had))
    assert rows == list(rows_read(Network(server), had))
    missing = range(1 + (0 if anonymous else had.count()), server.number + 1)
    if not anonymous:
        assert [row[-1] for row in rows] == [one for number in missing for one in server.rows[number]]
    assert network.open == 0


@settings(max_examples=25)
@given(wanted=st.sets(st.integers(1, 5), min_size=1), script=SCRIPTS, step=st.integers(20, 2000))
def test_a_range_with_holes(wanted: set[int], script: list[Ends], step: int) -> None:
    """Only what is left is asked for again, and only what was asked for comes."""
    server = small()
    numbers = GtidSet.parse(f"{UUID}:" + ":".join(str(one) for one in sorted(wanted)))
    read = LogRead(SETTINGS, wanted=numbers, executed=server.executed, server_uuid=UUID)
    network = Network(server, script, step=step, attempts=len(script) + 1)
    *blocks, end = read_range(read, OPTIONS, network.transport())
    ids = [row["id"] for item in blocks for image in item.images for row in image.batch.to_pylist()]  # type: ignore[union-attr]
    assert ids == [one for number in sorted(wanted) for one in server.rows[number]]
    assert isinstance(end, RangeEnd)
    assert (end.server_uuid, end.gtid) == (UUID, server.executed)
    ends = {event.number: (file.name, event.end) for file in server.files for event in file.events}
    assert (end.file, end.pos) == ends[max(wanted)]


def test_changes_handed_on_before_a_cut_do_not_come_again() -> None:
    """The cut lies between two row events of one transaction, and the first of them was handed on."""
    server = PretendedServer()
    server.commit([1, 2], [3])
    network = Network(server, [Ends(after_packets=7)])  # up to the first WRITE_ROWS
    seen = [(row[-1], len(network.dumps)) for row in rows_read(network, GtidSet())]
    assert seen == [(1, 1), (2, 1), (3, 2)]


# --- ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS)
def test_a_clean_end_proves_nothing(reader: str) -> None:
    """``KILL QUERY`` on the dump's thread ends it with an EOF packet, anywhere."""
    server = tiny()
    expected, network = whole(server, reader), Network(server)
    list(rows_read(network, GtidSet()))
    count = len(network.sent[0])
    for ended in range(count + 1):
        network = Network(server, [Ends(after_packets=ended, tail=EOF_PACKET)])
        assert list(READERS[reader](network, GtidSet())) == expected
        assert len(network.dumps) == (1 if ended == count and reader != "follow" else len(network.dumps))
        assert len(network.pauses) == len(network.dumps) - 1


@pytest.mark.parametrize("reader", ["range", "window"])
def test_a_log_that_stays_short_is_an_error(reader: str) -> None:
    """After as many tries as there may be without progress; each pause is longer than the one before."""
    server = small()
    network = Network(server, [Ends(after_packets=4, tail=EOF_PACKET)] * 20)
    with pytest.raises(IncompleteReadError, match="the dump ended before") as caught:
        list(READERS[reader](network, GtidSet()))
    assert len(network.dumps) == 8
    assert len(network.pauses) == 7
    assert all(0.05 * 2**n <= pause <= 0.1 * 2**n for n, pause in enumerate(network.pauses))
    if reader == "range":
        assert caught.value.missing == str(server.executed)
    else:
        assert (caught.value.file, caught.value.pos) == server.status


@pytest.mark.parametrize("reader", ["range", "window"])
def test_heartbeats_are_no_transactions(reader: str) -> None:
    server = small()
    beat = server.idle_packet()
    network = Network(server, [Ends(after_packets=2, tail=beat * 3 + EOF_PACKET)])
    if reader == "range":
        assert list(rows_read(network, GtidSet())) == whole(server)
    else:  # the server has read its log that far, and says that nothing of it is outside ``had``
        assert list(read_window(network, server.executed)) == []
    assert len(network.dumps) == (2 if reader == "range" else 1)


def test_whole_transactions_are_progress() -> None:
    """A server that ends each dump behind one transaction is read to the end, with the shortest pauses."""
    server = PretendedServer()
    for one in range(30):
        server.commit([one])
    # Three packets begin a file, a heartbeat stands for what is not sent again, five are a transaction.
    script = [Ends(after_packets=8, tail=EOF_PACKET), *[Ends(after_packets=9, tail=EOF_PACKET)] * 28]
    network = Network(server, script)
    assert list(rows_read(network, GtidSet())) == whole(server)
    assert len(network.dumps) == 30
    assert max(network.pauses) <= 0.1


PASSING = {
    "the thread was killed": error_packet(1317, "Query execution was interrupted"),
    "the server shuts down": error_packet(1053, "Server shutdown in progress"),
    "another dump took its place": error_packet(1236, "A replica with the same server_uuid/server_id as this replica"),
    "the same server_id": error_packet(1236, "a dump with the same server_id"),
    "Network": error_packet(1236, "Network failure"),
    "the log cannot be read now": error_packet(1236, "could not open log file"),
}
LASTING: dict[str, tuple[bytes, type[HeadgateError]]] = {
    "purged": (error_packet(1236, "the source has purged binary logs"), BinlogPurgedError),
    "no GTIDs": (error_packet(1236, "cannot replicate with AUTO_POSITION = 1"), ServerSettingError),
    "no right": (error_packet(1227, "Access denied; you need REPLICATION SLAVE"), AccessError),
    "unknown": (error_packet(4999, "something new"), DefiniteServerError),
    "garbage": (b"\x20\0\0\1" + b"\0" + bytes(31), HeadgateError),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("why", PASSING)
def test_an_error_that_may_pass_is_tried_again(reader: str, why: str) -> None:
    server = small()
    expected, network = whole(server, reader), Network(server, [Ends(after_packets=9, tail=PASSING[why])], step=60)
    assert list(READERS[reader](network, GtidSet())) == expected
    assert len(network.dumps) == 2


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("why", LASTING)
def test_an_error_that_lasts_is_raised_at_once(reader: str, why: str) -> None:
    tail, kind = LASTING[why]
    network = Network(small(), [Ends(after_packets=9, tail=tail)])
    with pytest.raises(kind):
        list(READERS[reader](network, GtidSet()))
    assert (len(network.dumps), network.pauses, network.open) == (1, [], 0)


def test_a_passing_error_that_stays_is_raised_as_it_is() -> None:
    network = Network(small(), [Ends(after_packets=3, tail=PASSING["the thread was killed"])] * 9)
    with pytest.raises(TransientServerError, match="1317") as caught:
        list(rows_read(network, GtidSet()))
    assert caught.value.missing == f"{UUID}:1-5"
    network = Network(small(), [Ends(after_packets=3)] * 9, attempts=3)
    with pytest.raises(ConnectionLostError):
        list(rows_read(network, GtidSet()))
    assert len(network.dumps) == 3


def test_a_damaged_event_is_never_skipped() -> None:
    server = small()
    event = server.files[0].events[4]
    event.data = event.data[:-1] + bytes([event.data[-1] ^ 1])
    network = Network(server)
    with pytest.raises(ChecksumError):
        list(rows_read(network, GtidSet()))
    assert len(network.dumps) == 1


# --- servers ------------------------------------------------------------------------------------------------------


def test_another_server_than_the_planned_one() -> None:
    right, wrong = small(), small(uuid=OTHER)
    for reader in (rows_read, read_window):
        network = Network(right, route=[wrong, None, wrong])
        assert list(reader(network, GtidSet())) == whole(right)
        assert len(network.dumps) == 1, "nothing was asked of the wrong one"
        network = Network(wrong)
        with pytest.raises(ServerBehindError, match=f"connected to server {OTHER}, but the read was planned on {UUID}"):
            list(reader(network, GtidSet()))
        assert (network.dumps, len(network.pauses), network.open) == ([], 7, 0)
    assert list(rows_read(Network(wrong), GtidSet(), None)) == whole(right)


@pytest.mark.parametrize("step", [60, 500])
def test_a_position_names_the_transaction_that_is_open_there(step: int) -> None:
    """Also behind a reconnect, when the new dump has not reached that one yet."""
    source = filtered(UUID, 2)
    network, partly = Network(source), 0
    list(READERS["follow"](network, GtidSet()))
    for cut in borders(network.sent[0]):
        items = follow(SETTINGS, GtidSet(), OPTIONS, Network(source, [Ends(after_bytes=cut)], step=step).transport())
        seen = set[str]()
        for item in items:
            seen |= {str(row[0]) for row in rows_of(iter([item]))}
            if isinstance(item, Idle):
                assert isinstance(item.gtid, GtidSet)
                begun = {one for one in seen if GtidSet.parse(one) - item.gtid}
                assert begun <= {item.unfinished}, cut
                partly += bool(begun)
                if source.executed <= item.gtid:
                    break
        items.close()  # type: ignore[attr-defined]
    assert partly


def test_another_server_after_a_cut() -> None:
    """A reader of one server waits for it; one that follows goes on with any that has what was read."""
    right, wrong = small(), small(uuid=OTHER)
    network = Network(right, [Ends(after_packets=20)], [right, wrong, right], step=60)
    assert list(rows_read(network, GtidSet())) == whole(right)
    assert len(network.dumps) == 2
    network = Network(wrong, [Ends(after_packets=20)], [right], step=60)
    assert list(READERS["follow"](network, GtidSet())) == whole(right)


@pytest.mark.parametrize("step", [60, 500])
def test_a_failover_within_a_transaction(step: int) -> None:
    """The replica's log has fewer changes of it, so what was yielded cannot be counted there. The reader waits for the
    server that it read from, then gives up. From whole transactions on, the replica serves.
    """
    source, replica = filtered(UUID, 4), filtered(OTHER, 0)
    network = Network(source)
    list(READERS["follow"](network, GtidSet()))
    for cut in borders(network.sent[0]):
        for route in ([source], [source, replica, replica, source]):
            network = Network(replica, [Ends(after_bytes=cut)], [*route], step=step)
            seen, had, restarts = list[int](), GtidSet(), list[HeadgateError]()
            while not replica.executed <= had:
                items = follow(SETTINGS, had, OPTIONS, network.transport())
                try:
                    for item in items:
                        seen += [row[-1] for row in rows_of(iter([item]))]
                        if isinstance(item, Idle):
                            had = gtids(1, item.gtid.count())
                            if replica.executed <= had:
                                break
                except ServerBehindError as error:
                    restarts.append(error)
                    seen = [one for number in range(1, had.count() + 1) for one in source.rows[number]]
                items.close()  # type: ignore[attr-defined]
            assert (cut, seen) == (cut, [*range(1, 9)])
            assert len(restarts) <= (len(route) == 1)
            assert all(error.server_uuid == OTHER for error in restarts)
            assert len(network.pauses) <= 8
            assert network.open == 0


def test_a_failover_after_a_transaction_that_came_in_two_dumps() -> None:
    """Once it has come whole, another server is as good as its own."""
    source, replica = filtered(UUID, 4), filtered(OTHER, 0)
    network = Network(source)
    list(READERS["follow"](network, GtidSet()))
    sent = network.sent[0]
    script = [Ends(after_packets=21), Ends(after_packets=len(sent) - 6)]
    network = Network(replica, script, [source, source], step=60)
    ids = [row[-1] for row in READERS["follow"](network, GtidSet())]
    assert (ids, len(network.dumps), len(network.pauses)) == ([*range(1, 9)], 3, 2)


@pytest.mark.parametrize("reader", READERS)
def test_a_server_that_lacks_transactions(reader: str) -> None:
    """A replica that is behind: it is waited for, and asked for nothing before."""
    right, behind = small(), PretendedServer()
    behind.commit([1])
    behind.replicates = True
    had = gtids(1, 2)
    network = Network(right, route=[behind, behind])
    assert list(READERS[reader](network, had)) == [row for row in whole(right) if row[-1] > 6]
    assert len(network.dumps) == 1
    network = Network(right, route=[behind] * 8)
    with pytest.raises(ServerBehindError, match="lacks transactions") as caught:
        list(READERS[reader](network, had))
    assert caught.value.missing == (f"{UUID}:2-5" if reader == "range" else f"{UUID}:2")


@pytest.mark.parametrize("reader", READERS)
def test_a_server_that_has_purged_what_is_needed(reader: str) -> None:
    server = small()
    server.purged = gtids(1, 2)
    network = Network(server)
    with pytest.raises(BinlogPurgedError) as caught:
        list(READERS[reader](network, gtids(1, 1)))
    assert (caught.value.needed, caught.value.purged) == (f"{UUID}:2", f"{UUID}:1-2")
    assert (network.dumps, network.pauses, network.open) == ([], [], 0)
    assert [row[-1] for row in READERS[reader](network, gtids(1, 2))] == [7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("reader", READERS)
def test_a_log_without_gtids_stays_with_its_server(reader: str) -> None:
    server, other = small(anonymous=True), small(anonymous=True, uuid=OTHER)
    had = beginning(server)
    with pytest.raises(ServerBehindError, match=r"connect to one that has them|planned on"):
        list(READERS[reader](Network(server, route=[other] * 8), had))
    with pytest.raises(ServerSettingError, match="gtid_mode"):
        list(READERS[reader](Network(server, route=[small()] * 8), had))
    begun_anew = PretendedServer(anonymous=True)
    with pytest.raises(HistoryRewrittenError, match=r"it had executed .*@1:158-[23]:[0-9]+ and now lacks that"):
        list(READERS[reader](Network(server, route=[begun_anew] * 8), LogPlace.before(UUID, 2, 200)))
    short = small(anonymous=True)
    del short.files[0]
    with pytest.raises(BinlogPurgedError, match="read again"):
        list(READERS[reader](Network(short), had))


def test_nobody_answers() -> None:
    server = small()
    assert list(rows_read(Network(server, route=[None] * 7), GtidSet())) == whole(server)
    with pytest.raises(ConnectError):
        list(rows_read(Network(server, route=[None] * 8), GtidSet()))


def test_who_asks() -> None:
    """Bounded dumps conflict with nobody; one for ever keeps its id, so that the server ends what is left of it."""
    server = small()
    network = Network(server, [Ends(after_packets=9)] * 2)
    list(READERS["follow"](network, GtidSet()))
    (identity,) = {server_id for _, server_id in network.dumps}
    assert 1 << 31 <= identity < (1 << 32) - 1
    assert {flags & NON_BLOCK for flags, _ in network.dumps} == {0}
    assert any("heartbeat_period = 1000000000" in sql for sql in network.queries)
    network = Network(server, [Ends(after_packets=9)] * 2)
    list(rows_read(network, GtidSet()))
    assert {(flags & NON_BLOCK, server_id) for flags, server_id in network.dumps} == {(NON_BLOCK, 0)}
    assert not any("heartbeat" in sql for sql in network.queries)
    assert sum("checksum = 'CRC32'" in sql for sql in network.queries) == len(network.dumps)


def test_a_hint_serves_at_its_own_server_alone() -> None:
    server = small()
    file = server.files[2]
    had = gtids(1, 3)
    for uuid, packets in ((UUID, 15), (OTHER, 27)):
        hint = Hint(uuid, file.name, 4, server.began)
        read = LogRead(SETTINGS, wanted=server.position - had, executed=server.position, server_uuid=UUID, hint=hint)
        network = Network(server)
        assert len(list(rows(read_range(read, OPTIONS, network.transport())))) == 4
        assert len(network.sent[0]) <= packets


@pytest.mark.parametrize(("name", "pos"), [("binlog.000000", 4), ("", 1 << 40)])
def test_a_hint_at_what_is_no_longer_in_the_log_is_not_used(name: str, pos: int) -> None:
    """The file is purged, or shorter, and no transaction in it was needed."""
    server = small()
    had = gtids(1, 3)
    hint = Hint(UUID, name or server.files[2].name, pos, server.began)
    read = LogRead(SETTINGS, wanted=server.position - had, executed=server.position, server_uuid=UUID, hint=hint)
    network = Network(server)
    assert list(rows(read_range(read, OPTIONS, network.transport()))) == list(rows_read(Network(server), had))
    assert len(network.dumps) == 1


def test_a_hint_into_a_file_whose_name_was_used_again_is_not_used() -> None:
    """Even if its position is one between transactions: others are before it. The time of creation shows it."""
    server = PretendedServer(began=2_000)
    server.number, server.purged = 3, gtids(1, 3)
    ends = {}
    for number in range(4, 9):
        server.commit([number])
        ends[number] = server.status

    def read(had: GtidSet, number: int, created_s: int) -> tuple[list[int], int]:
        network, hint = Network(server), Hint(UUID, *ends[number], created_s)
        window = WindowReader(SETTINGS, had, server_uuid=UUID, tables=TABLES, hint=hint, transport=network.transport())
        numbers = [row[-1] for row in rows_of(window.read_to(*server.status))]
        assert network.open == 0
        return numbers, len(network.dumps)

    assert read(gtids(1, 3), 5, 1_000) == ([4, 5, 6, 7, 8], 2)
    assert read(gtids(1, 3), 5, 0) == ([4, 5, 6, 7, 8], 1), "unknown"
    assert read(gtids(1, 5), 5, 2_000) == ([6, 7, 8], 1), "the same file"


# --- what is told about it ----------------------------------------------------------------------------------------


def test_following_says_what_was_read() -> None:
    server = small()
    network = Network(server, [Ends(after_packets=20)], step=60)
    items = follow(SETTINGS, GtidSet(), OPTIONS, network.transport())
    idle = next(item for item in items if isinstance(item, Idle) and item.gtid == server.executed)
    assert idle.hint == Hint(UUID, *server.status, server.began)
    items.close()  # type: ignore[attr-defined]
    assert network.open == 0


def test_following_again_from_before_what_was_read() -> None:
    """The server must have all that was read, from where the log is read again on and after each cut."""
    server = small()
    network = Network(server, [Ends(after_packets=14)], attempts=2)
    beyond = gtids(1, server.number + 1)
    with pytest.raises(ServerBehindError, match="lacks") as caught:
        list(follow(SETTINGS, gtids(1, 2), OPTIONS, network.transport(), executed=beyond))
    assert (caught.value.fields["missing"], network.dumps) == (f"{UUID}:{server.number + 1}", [])
    network = Network(server, [Ends(after_packets=14)])
    items = follow(SETTINGS, gtids(1, 2), OPTIONS, network.transport(), executed=gtids(1, 3))
    next(item for item in items if isinstance(item, Idle) and gtids(1, 4) <= item.gtid)
    network.server = PretendedServer(OTHER)
    for one in range(3):
        network.server.commit([one])
    with pytest.raises(ServerBehindError, match="lacks"):
        list(items)


def test_following_never_ends_while_somebody_answers() -> None:
    """Its tries begin again whenever something was handed on."""
    server = small()
    network = Network(server, [Ends(after_packets=3)] * 30)
    assert list(READERS["follow"](network, GtidSet())) == whole(server)
    assert len(network.dumps) == 31
    network = Network(server, route=[None] * 8)
    with pytest.raises(ConnectError):
        list(READERS["follow"](network, GtidSet()))


def test_dumps_that_bring_nothing_new_are_no_progress() -> None:
    """They end in the middle of an open transaction, each at the same event."""
    network = Network(filtered(UUID, 4), [Ends(after_packets=22), *[Ends(after_packets=8)] * 30])
    with pytest.raises(ConnectionLostError):
        list(READERS["follow"](network, GtidSet()))
    assert len(network.dumps) == 8


def test_a_wait_can_be_ended() -> None:
    class StoppedError(Exception):
        pass

    def stop(_seconds: float) -> None:
        raise StoppedError

    network = Network(small(), route=[None])
    items = follow(SETTINGS, GtidSet(), OPTIONS, network.transport(sleep=stop))
    with pytest.raises(StoppedError):
        list(items)


def test_a_window_goes_on_where_it_stopped() -> None:
    server = PretendedServer()
    server.commit([1])
    network = Network(server)
    window = WindowReader(SETTINGS, GtidSet(), server_uuid=UUID, tables=TABLES, transport=network.transport())

    def step() -> list[int]:
        blocks = window.read_to(*server.status)
        return [row["id"] for item in blocks for image in item.images for row in image.batch.to_pylist()]  # type: ignore[union-attr]

    assert (step(), len(network.dumps)) == ([1], 1)
    assert (step(), len(network.dumps)) == ([], 1), "it has read that far"
    server.rotate()
    server.commit([2])
    network.script = [Ends(after_packets=9, tail=EOF_PACKET)]
    assert (step(), window.gtid) == ([2], server.executed)
    begun = len(network.dumps)
    server.commit([3])
    assert (step(), len(network.dumps)) == ([3], begun + 1)
    assert len(network.sent[-1]) < 10, "it began where the last one stopped"
    network.route = [None] * 8
    server.commit([4])
    with pytest.raises(ConnectError):
        step()
    assert step() == [4]


def test_a_window_ends_with_a_whole_transaction() -> None:
    """The position asked for lies within one, and the dump ended behind it and before the transaction's end."""
    server = PretendedServer()
    server.commit([1], [2], [3])
    within = server.files[0].events[4]
    network = Network(server, [Ends(after_packets=7, tail=EOF_PACKET)])
    window = WindowReader(SETTINGS, GtidSet(), server_uuid=UUID, tables=TABLES, transport=network.transport())
    rows = list(rows_of(window.read_to(server.files[0].name, within.end)))
    assert [row[-1] for row in rows] == [1, 2, 3]
    assert (len(network.dumps), window.gtid) == (2, server.executed)


class Archive:
    """Has a copy of a server's log from one transaction on; its answers end where a script says."""

    def __init__(self, network: Network, begin: int, *, falls_back: bool) -> None:
        self.network, self.begin, self.falls_back = network, begin, falls_back
        self.requests: list[LogRequest] = []

    @contextmanager
    def open(self, request: LogRequest) -> Iterator[ArchivedLog]:
        self.requests.append(request)
        executed_before = (
            self.network.server.executed - request.wanted if request.wanted is not None else request.executed_before
        )
        if gtids(1, self.begin) - (executed_before or GtidSet()):
            raise BinlogPurgedError("the relay does not keep it any more")
        had = (executed_before or GtidSet()).encode()
        request_bytes = struct.pack("<HIIQI", NON_BLOCK | HEARTBEAT_V2, 0, 0, 4, len(had)) + had
        yield ArchivedLog(ByteStream(self.network.answer(self.network.server, 0x1E, request_bytes)), UUID)


@pytest.mark.parametrize("reader", ["range", "window"])
@pytest.mark.parametrize("falls_back", [False, True])
def test_a_copy_of_the_log_is_read_like_the_log(reader: str, falls_back: bool) -> None:
    server = small()
    archived = Network(server, [Ends(after_packets=9), Ends(after_packets=4, tail=EOF_PACKET)], step=60)
    archive = Archive(archived, 1, falls_back=falls_back)
    settings, network = replace(SETTINGS, log=archive), Network(server)
    had = gtids(1, 1)

    def read(had: GtidSet) -> list[int]:
        if reader == "window":
            window = WindowReader(settings, had, server_uuid=UUID, tables=TABLES, transport=network.transport())
            return [row[-1] for row in rows_of(window.read_to(*server.status))]
        wanted = LogRead(settings, wanted=server.executed - had, executed=server.executed, server_uuid=UUID)
        return [row[-1] for row in rows_of(read_range(wanted, OPTIONS, network.transport()))]

    assert read(had) == list(range(2, 13))
    assert (len(archive.requests), network.dumps) == (3, []), "the server was not asked"
    assert all(one.until == (server.status if reader == "window" else None) for one in archive.requests)
    if falls_back:
        assert read(GtidSet()) == list(range(1, 13))
        assert len(network.dumps) == 1
    else:
        with pytest.raises(BinlogPurgedError, match="any more"):
            read(GtidSet())
        assert network.dumps == []


def test_the_first_set_of_a_file() -> None:
    server = small()
    for name, before in (("binlog.000001", 0), ("binlog.000002", 2), ("binlog.000003", 3)):
        assert previous_gtids(SETTINGS, name, Network(server).transport()) == gtids(1, before)


# --- states -------------------------------------------------------------------------------------------------------


class Observed(ResumableDump[Any]):
    """Notes its states."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen = [self.state]

    def _apply(self, event: DumpEvent) -> None:
        super()._apply(event)
        self.seen.append(self.state)


class Numbers(Scan):
    """How many events there are."""

    def begin(self, *_: Any) -> Numbers:
        self.count = 0
        return self

    def inspect(self, segment: Any) -> None:
        self.count += len(segment.start)


def observed(network: Network, until: tuple[str, int]) -> Observed:
    read = LogRead(SETTINGS, start=("binlog.000001", 4), until=until, server_uuid=UUID)
    return Observed(read, Numbers(), network.transport())


def test_states_of_a_read() -> None:
    server, s = small(), DumpState
    dump = observed(Network(server, [Ends(after_packets=5)], [None]), server.status)
    assert list(dump.items()) == []
    once = [s.CONNECTING, s.READING, s.BROKEN]
    assert dump.seen == [s.IDLE, s.CONNECTING, s.BROKEN, *once, *once, s.COMPLETE, s.COMPLETE]
    dump = observed(Network(server, route=[None], attempts=1), server.status)
    with pytest.raises(ConnectError):
        list(dump.items())
    assert dump.seen == [s.IDLE, s.CONNECTING, s.BROKEN, s.FAILED, s.FAILED]
    dump = observed(Network(server), ("", 0))
    assert list(dump.items()) == []
    assert dump.seen == [s.IDLE, s.COMPLETE, s.COMPLETE]


def test_who_leaves_closes() -> None:
    network = Network(small())
    rows: Iterator[Any] = rows_read(network, GtidSet())
    next(rows)
    assert network.open == 1
    rows.close()  # type: ignore[attr-defined]
    assert network.open == 0


def test_what_cannot_happen_is_an_error() -> None:
    dump = observed(Network(small()), ("", 0))
    with pytest.raises(RuntimeError, match="event BEGINS came to a dump in state idle"):
        dump._apply(DumpEvent.BEGINS)


def test_the_table_of_transitions() -> None:
    """Each state can be reached, an end is one, and a run may leave only along the table."""
    assert set(TRANSITIONS) == set(DumpEvent)
    reached = {after for table in TRANSITIONS.values() for after in table.values()} | {DumpState.IDLE}
    assert reached == set(DumpState)
    ends = {DumpState.COMPLETE, DumpState.FAILED, DumpState.CLOSED}
    for event, table in TRANSITIONS.items():
        if event is DumpEvent.CLOSED_BY_CALLER:
            assert set(table) == set(DumpState)
        else:
            assert not ends & set(table)


def test_a_scan_sees_all_events_once() -> None:
    server = small()
    count = sum(len(file.events) for file in server.files) - 1  # a ROTATE is a position
    network = Network(server)
    list(rows_read(network, GtidSet()))
    for ended in range(len(network.sent[0])):
        numbers = Numbers()
        read = LogRead(SETTINGS, start=("binlog.000001", 4), until=server.status, server_uuid=UUID)
        scan(read, numbers, Network(server, [Ends(after_packets=ended, tail=EOF_PACKET)]).transport())
        assert numbers.count == count


def test_any_server_is_the_planned_one_where_none_was_planned() -> None:
    server = PretendedServer(OTHER)
    server.commit([1])
    assert len(list(rows_read(Network(server), GtidSet(), None))) == 1
    with pytest.raises(ServerBehindError, match="planned on"):
        list(rows_read(Network(server), GtidSet(), UUID))
