"""A server whose GTIDs name other transactions than before: readers end, and say so."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.catalog import TablePatterns
from headgate.errors import ChecksumError, HistoryRewrittenError, IncompleteReadError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.offsets import Hint, Last
from headgate.positions import NOTHING, Position, parse_position
from headgate.replication import (
    DecodeOptions,
    Idle,
    LogDecoder,
    LogRead,
    RangeEnd,
    check_history,
    follow,
    last_header,
    read_range,
    transaction_headers,
)
from headgate_testing._binlog import EOF_PACKET
from tests.replication.pretended import (
    OPTIONS,
    READERS,
    SETTINGS,
    UUID,
    Ends,
    Network,
    PretendedServer,
    error_packet,
    gtids,
    rows,
)
from tests.replication.written import WrittenLog


def server_with(count: int, *, began_us: int = 1_700_000_000_000_000, replicates: bool = False) -> PretendedServer:
    server = PretendedServer()
    server.began_us, server.replicates = began_us, replicates
    for number in range(1, count + 1):
        server.commit([number])
    return server


@pytest.mark.parametrize("reader", READERS)
def test_a_read_that_is_resumed_on_another_history_ends(reader: str) -> None:
    """The server is put back while a dump is cut, and has written as much again."""
    before, after = server_with(5), server_with(5, began_us=1_800_000_000_000_000)
    network = Network(after, [Ends(after_packets=15)], [before], step=60)
    with pytest.raises(HistoryRewrittenError, match="another commit time") as caught:
        list(READERS[reader](network, GtidSet()))
    assert caught.value.gtid == f"{UUID}:2"
    assert not network.pauses[1:], "at once"


@pytest.mark.parametrize("reader", READERS)
def test_a_server_that_lost_what_it_had_is_not_waited_for(reader: str) -> None:
    before, after = server_with(5), server_with(1)
    network = Network(before, [Ends(after_packets=15)], [before, *[after] * 9], step=60)
    with pytest.raises(HistoryRewrittenError, match=f"it had executed {UUID}:2"):
        list(READERS[reader](network, GtidSet()))
    after.replicates = True
    network = Network(before, [Ends(after_packets=15)], [before, *[after] * 9], step=60, attempts=3)
    with pytest.raises(ServerBehindError):
        list(READERS[reader](network, GtidSet()))
    network = Network(before, [Ends(after_packets=15)], [before, after, after], step=60)
    assert [row[-1] for row in READERS[reader](network, GtidSet())] == [1, 2, 3, 4, 5]


class LateServer(PretendedServer):
    """It sends transactions that it does not yet show as executed the first time."""

    looks = 0

    @property
    def executed(self) -> GtidSet:
        self.looks += 1
        return gtids(1, 2) if self.looks == 2 else super().executed


@pytest.mark.parametrize("reader", READERS)
def test_what_a_dump_sent_may_be_shown_as_executed_later(reader: str) -> None:
    """The server sends a transaction once it is synced. That is no rewritten history."""
    server = LateServer()
    for number in range(1, 6):
        server.commit([number])
    server.looks = 0
    network = Network(server, [Ends(after_packets=15)], step=60)
    assert [row[-1] for row in READERS[reader](network, GtidSet())] == [1, 2, 3, 4, 5]
    assert server.looks > 2


def test_a_read_that_continues_an_earlier_one_compares_its_last_transaction() -> None:
    """A program that restarted has only what it saved: the server was reset in between, and has written more."""
    before, after = server_with(3), server_with(5, began_us=1_800_000_000_000_000)
    items = follow(SETTINGS, GtidSet(), OPTIONS, Network(before).transport())
    idle = next(item for item in items if isinstance(item, Idle) and item.gtid == gtids(1, 3))
    assert (idle.last, idle.server_uuid) == (Last(f"{UUID}:3", before.began_us + 3), UUID)
    with pytest.raises(HistoryRewrittenError, match="another commit time"):
        next(follow(SETTINGS, idle.gtid, OPTIONS, Network(after).transport(), last=idle.last))
    with pytest.raises(HistoryRewrittenError, match=f"it had executed {UUID}:2-3"):
        next(follow(SETTINGS, idle.gtid, OPTIONS, Network(server_with(1)).transport(), had_by=idle.server_uuid))
    again = follow(SETTINGS, idle.gtid, OPTIONS, Network(before).transport(), last=idle.last, had_by=UUID)
    assert next(again) == Idle(idle.gtid, None, idle.last, UUID, is_end=False)


def test_a_transaction_that_is_read_again_is_recognised_or_purged() -> None:
    server = server_with(3)
    last = Last(f"{UUID}:3", server.began_us + 3)
    check_history(LogRead(SETTINGS, had_by=UUID), last, Network(server).transport())
    server.purged = gtids(1, 3)
    check_history(LogRead(SETTINGS, had_by=UUID), Last(f"{UUID}:3", 1), Network(server).transport())


@pytest.mark.parametrize("original_us", [0, 77])
@pytest.mark.parametrize("reader", READERS)
def test_a_transaction_with_an_original_time_is_recognised(reader: str, original_us: int) -> None:
    """A replica of a server before 8.0 logs the original time as unknown. The reader and the check agree on it."""
    server = server_with(1)
    server.original_us = original_us
    for number in range(2, 6):
        server.commit([number])
    network = Network(server, [Ends(after_packets=15)], step=60)
    assert [row[-1] for row in READERS[reader](network, GtidSet())] == [1, 2, 3, 4, 5]
    (header,) = transaction_headers(LogRead(SETTINGS, wanted=gtids(2, 2)), Network(server).transport())
    assert header.commit_us == (original_us or server.began_us + 2)


OTHER = "7e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(("original_us", "uuid", "rewritten"), [(0, OTHER, False), (0, UUID, True), (77, OTHER, True)])
def test_a_transaction_without_an_original_time_has_another_one_on_each_server(
    original_us: int, uuid: str, rewritten: bool
) -> None:
    """So nothing can be compared after a failover."""
    server = PretendedServer(uuid)
    server.original_us, server.began_us = original_us, 1_800_000_000_000_000
    server.commit([1])
    read, last = LogRead(SETTINGS, had_by=UUID), Last(f"{UUID}:1", 1_700_000_000_000_001)
    if not rewritten:
        check_history(read, last, Network(server).transport())
        return
    with pytest.raises(HistoryRewrittenError, match="another commit time"):
        check_history(read, last, Network(server).transport())


def test_numbers_of_one_source_may_come_in_any_order_but_once() -> None:
    def written(*numbers: int) -> Position:
        log, decoder = WrittenLog(), LogDecoder(gtids(1, 9), DecodeOptions(TablePatterns([])))
        for number in numbers:
            log.number = number - 1
            log.begin()
            log.end()
        list(log.decoded(decoder, pieces=len(numbers)))
        return decoder.received()

    assert written(7, 8, 2, 3, 9, 1) == gtids(7, 9) | gtids(1, 3)
    for numbers in ((3, 4, 3), (3, 4, 4), (5, 1, 2, 5), (1, 2, 3, 1, 2, 3)):
        with pytest.raises(HistoryRewrittenError, match="a second time"):
            written(*numbers)


def test_the_last_transaction_is_known_with_its_time() -> None:
    log, decoder = WrittenLog(), LogDecoder(gtids(1, 9), DecodeOptions(TablePatterns([])))
    for _ in range(3):
        log.begin()
        log.end()
    log.begin()
    list(log.decoded(decoder, pieces=5))
    assert decoder.last == Last(f"{UUID}:3", 1_700_000_000_000_000)
    assert np.int64(decoder.received_count) == 3


# --- hints that lead elsewhere --------------------------------------------------------------------------------------


BAD_HINTS = {
    "bytes that are no event": Ends(after_packets=2, tail=b"\x20\0\0\1\0" + bytes(31)),
    "an error of the server": Ends(after_packets=2, tail=error_packet(1236, "bogus data in log event")),
    "a clean end": Ends(after_packets=2, tail=EOF_PACKET),
    "an end of the connection": Ends(after_packets=2),
}


@pytest.mark.parametrize("why", BAD_HINTS)
def test_a_hint_without_fruit_is_dropped(why: str) -> None:
    """Positions in a file whose name was used again: nothing fits, whatever error that gives."""
    server = server_with(3)
    hint = Hint(UUID, server.files[0].name, 200)
    network = Network(server, [BAD_HINTS[why]])
    read = LogRead(SETTINGS, wanted=gtids(1, 3), executed=gtids(1, 3), server_uuid=UUID, hint=hint)
    assert [row[-1] for row in rows(read_range(read, OPTIONS, network.transport()))] == [1, 2, 3]
    assert len(network.dumps) == 2
    network = Network(server, [BAD_HINTS[why]])
    assert [one.key for one in transaction_headers(read, network.transport())] == [gtids(n, n) for n in (1, 2, 3)]
    assert len(network.dumps) == 2


def test_an_error_that_no_hint_causes_is_raised() -> None:
    server = server_with(3)
    server.files[0].events[1].data = server.files[0].events[1].data[:-1] + b"\0"
    hint = Hint(UUID, server.files[0].name, 4)
    read = LogRead(SETTINGS, wanted=gtids(1, 3), executed=gtids(1, 3), server_uuid=UUID, hint=hint)
    network = Network(server)
    with pytest.raises(ChecksumError):
        list(read_range(read, OPTIONS, network.transport()))
    assert len(network.dumps) == 2


def test_headers_of_a_few_transactions() -> None:
    """They come in log order; what is not there is an error, because a dump that ends proves nothing."""
    server = server_with(3)
    server.rotate()
    server.commit([4])
    network = Network(server)
    wanted = gtids(2, 2) | gtids(4, 4)
    first, second = transaction_headers(LogRead(SETTINGS, wanted=wanted), network.transport())
    assert (first.last, second.last) == (Last(f"{UUID}:2", server.began_us + 2), Last(f"{UUID}:4", server.began_us + 4))
    assert (first.file, second.file, second.server_uuid) == ("binlog.000001", "binlog.000002", UUID)
    hint = Hint(UUID, second.file, second.pos)
    (again,) = transaction_headers(LogRead(SETTINGS, wanted=gtids(4, 4), hint=hint), network.transport())
    assert again == second
    with pytest.raises(IncompleteReadError, match="did not arrive"):
        transaction_headers(LogRead(SETTINGS, wanted=gtids(5, 5)), network.transport())


def test_the_last_header_is_that_of_the_log() -> None:
    """A group assigns numbers in blocks, so the highest one may not be the last."""
    server = PretendedServer()
    for number in (1, 4, 2, 3, 5):
        server.number = number - 1
        server.commit([number])
    network = Network(server)
    executed = gtids(1, 4)
    (header,) = transaction_headers(LogRead(SETTINGS, wanted=gtids(4, 4)), network.transport())
    before = gtids(1, 1) | gtids(4, 4)
    read = LogRead(SETTINGS, executed_before=before, executed=executed, until=server.status)
    assert last_header(read, header, network.transport()).last == Last(f"{UUID}:3", server.began_us + 3)
    rest = LogRead(SETTINGS, executed_before=gtids(1, 5), executed=executed, until=server.status)
    assert last_header(rest, header, network.transport()) == header, "nothing is behind it"
    with pytest.raises(IncompleteReadError, match="ended before"):
        last_header(rest, header, Network(server, [Ends(after_packets=2, tail=EOF_PACKET)]).transport())


def test_a_range_of_positions_may_hold_no_transaction() -> None:
    """Without GTIDs a new file alone moves the log's end. Only a dump that reached that end shows it."""
    server = PretendedServer(anonymous=True)
    server.commit([1])
    begin = server.position
    server.rotate()
    read = LogRead(SETTINGS, wanted=server.position - begin)
    assert transaction_headers(read, Network(server).transport()) == []
    with pytest.raises(IncompleteReadError, match="ended before all"):
        transaction_headers(read, Network(server, [Ends(after_packets=1, tail=EOF_PACKET)]).transport())
    empty = server.position
    server.commit([2])
    (header,) = transaction_headers(LogRead(SETTINGS, wanted=server.position - begin), Network(server).transport())
    assert (header.file, header.key & begin) == ("binlog.000002", NOTHING)
    assert transaction_headers(read, Network(server).transport()) == [], "it begins behind the range"
    assert transaction_headers(LogRead(SETTINGS, wanted=server.position - empty), Network(server).transport())
    (again,) = transaction_headers(
        LogRead(SETTINGS, wanted=parse_position(str(header.key))), Network(server).transport()
    )
    assert again == header


def test_the_header_behind_a_large_transaction_comes_from_another_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.replication._probe._LARGE_BYTES", 10_000)
    server = server_with(1)
    for _ in range(3):
        server.commit(*[list(range(2000))] * 20)
    server.commit([3])
    network = Network(server, step=5_000)
    headers = transaction_headers(LogRead(SETTINGS, wanted=gtids(2, 5)), network.transport())
    assert [one.key for one in headers] == [gtids(n, n) for n in (2, 3, 4, 5)]
    sizes = [sum(map(len, sent)) for sent in network.sent]
    assert len(sizes) == 4
    assert sizes == sorted(set(sizes), reverse=True), "each begins behind what the one before it has shown"


# --- logs without GTIDs ---------------------------------------------------------------------------------------------


def test_a_range_without_gtids_shows_its_first_transaction() -> None:
    """As a header's: a task needs no other dump for the comparison with the planned one."""
    server = PretendedServer(anonymous=True)
    server.commit([1])
    begin = server.position
    server.commit([2])
    server.commit([3])
    read = LogRead(SETTINGS, wanted=server.position - begin)
    (header,) = transaction_headers(read, Network(server).transport())
    assert header.last.ts_us == server.began_us + 2
    assert _end_of(read, Network(server)) == (header.last, None)
    cut = Network(server, [Ends(after_packets=1)])
    assert _end_of(read, cut) == (header.last, None), "the first dump brought nothing"
    for packets in (5, 7):
        cut = Network(server, [Ends(after_packets=packets)], step=60)
        assert _end_of(read, cut) == (None, None), "two dumps brought it"
        assert len(cut.dumps) == 2
    server.rotate()
    server.commit([4])
    read = LogRead(SETTINGS, wanted=server.position - begin)
    assert _end_of(read, Network(server)) == (None, None), "the log may be reset between two files"


def test_a_range_with_gtids_shows_its_last_transaction() -> None:
    server = server_with(3)
    read = LogRead(SETTINGS, wanted=gtids(1, 3))
    assert _end_of(read, Network(server)) == (None, Last(f"{UUID}:3", server.began_us + 3))


def _end_of(read: LogRead, network: Network) -> tuple[Last | None, Last | None]:
    *_, end = read_range(read, OPTIONS, network.transport())
    assert isinstance(end, RangeEnd)
    return end.first, end.last
