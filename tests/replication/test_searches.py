"""The XA search and the definitions' proof through the ends of their dumps, and at the wrong server."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headgate.binlog import codes
from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec
from headgate.errors import (
    BinlogPurgedError,
    ConnectionLostError,
    IncompleteReadError,
    ServerBehindError,
    ServerSettingError,
)
from headgate.replication import LogBlock, LogRead, read_range
from headgate.replication._changes import DefinitionChanges, EventPosition
from headgate.replication._defaults import Defaults
from headgate.replication._definitions import Definitions
from headgate_testing._binlog import EOF_PACKET
from tests.replication.pretended import (
    OPTIONS,
    OTHER,
    SETTINGS,
    UUID,
    Ends,
    Network,
    PretendedServer,
    error_packet,
    gtids,
)

XID = "X'61',X'',1"
PREPARE = struct.pack("<BIII", 0, 1, 1, 0) + b"a"
"""Two phases; format 1, one byte of gtrid, none of bqual."""
NO_FILE = error_packet(1236, "Could not find first log file name in binary log index file")


def prepared(uuid: str = UUID, offset: int = 0) -> PretendedServer:
    """Prepared in the first file, committed in the third; the same xid was used, and rolled back, before.

    :param offset: added to what was prepared.
    """
    server = PretendedServer(uuid)
    for ids, verb in (([90], "ROLLBACK"), ([1 + offset, 2 + offset], None)):
        server.begin(f"XA START {XID}")
        server.insert(*ids)
        server.insert(ids[0] + 10)
        server.write(lambda one: one.query(f"XA END {XID}"))
        server.write(lambda one: one.event(codes.XA_PREPARE, PREPARE))
        if verb is not None:
            server.statement(f"XA {verb} {XID}")
    server.commit([50])
    server.rotate()
    server.commit([51])
    server.rotate()
    server.commit([52])
    server.statement(f"XA COMMIT {XID}")
    server.commit([53])
    return server


def read(network: Network, first: int = 6) -> list[tuple[str, int, int]]:
    """GTID, ordinal and id of the rows from a transaction on."""
    last = network.server.number
    log_read = LogRead(SETTINGS, wanted=gtids(first, last), executed=network.server.executed, server_uuid=UUID)
    results = []
    for item in read_range(log_read, OPTIONS, network.transport()):
        for image in item.images if isinstance(item, LogBlock) else ():
            rows = image.batch.to_pylist()
            results += [(row["_gtid"].rpartition(":")[2], row["_seq"]["ordinal"], row["id"]) for row in rows]
    assert network.open == 0
    return results


EXPECTED = [("6", 0, 52), ("7", 0, 1), ("7", 1, 2), ("7", 2, 11), ("8", 0, 53)]


def test_rows_prepared_before_come_at_their_commit() -> None:
    """The nearest PREPARE is found backwards, file by file; then its transaction is read."""
    network = Network(prepared())
    assert read(network) == EXPECTED
    assert len(network.dumps) == 5, "the range, three files, the transaction"
    assert {server_id for _, server_id in network.dumps} == {0}


@pytest.mark.parametrize("dump", range(1, 5))
@pytest.mark.parametrize("tail", [b"", EOF_PACKET], ids=["cut", "EOF"])
def test_a_search_is_cut(dump: int, tail: bytes) -> None:
    """The range is asked for again, and what was handed on of it does not come again."""
    server = prepared()
    network = Network(server)
    read(network)
    sent = len(network.sent[dump])
    everything = Ends()
    for ended in range(0, sent, 2):
        network = Network(server, [everything] * dump + [Ends(after_packets=ended, tail=tail)])
        assert read(network) == EXPECTED, f"dump {dump} ended after {ended} packets"


def test_a_prepare_in_a_file_that_is_gone() -> None:
    """Whether the server lists the file or not."""
    server = prepared()
    network = Network(server, [Ends()] * 3 + [Ends(after_packets=0, tail=NO_FILE)])
    with pytest.raises(BinlogPurgedError, match="no longer holds what XA COMMIT"):
        read(network)
    del server.files[0]
    with pytest.raises(BinlogPurgedError, match="purged"):
        read(Network(server))


def test_what_was_prepared_without_a_gtid_is_refused() -> None:
    """gtid_mode was OFF at the PREPARE. The transaction before it, which has a GTID, is not taken for it."""
    server = PretendedServer()
    server.commit([1])
    server.anonymous = True
    server.begin(f"XA START {XID}")
    server.insert(2)
    server.write(lambda one: one.event(codes.XA_PREPARE, PREPARE))
    server.anonymous = False
    server.rotate()
    server.statement(f"XA COMMIT {XID}")
    with pytest.raises(ServerSettingError, match="prepared without a GTID") as caught:
        read(Network(server), first=server.number)
    assert caught.value.fields["file"] == "binlog.000002"


@pytest.mark.parametrize("connection", range(1, 6))
def test_a_search_at_another_server(connection: int) -> None:
    """Whichever of its connections leads there, nothing of that server's log is taken."""
    server, other = prepared(), prepared(OTHER, 1000)
    network = Network(server, route=[*[server] * connection, other])
    assert read(network) == EXPECTED


def test_a_search_that_always_ends_at_another_server() -> None:
    server, other = prepared(), prepared(OTHER, 1000)
    with pytest.raises(ServerBehindError, match="planned on"):
        read(Network(server, route=[server, other] * 8))


# --- the definitions' proof ---------------------------------------------------------------------------------------


def altered() -> tuple[PretendedServer, EventPosition, EventPosition]:
    server = PretendedServer()
    first = EventPosition.of("binlog.000001", server.files[0].events[-1].end)
    for number in range(3):
        server.commit([number])
        server.statement(f"ALTER TABLE d.t ADD COLUMN c{number} INT")
        server.rotate()
    server.commit([9])
    return server, first, EventPosition.of(*server.status)


def changes(network: Network, first: EventPosition, until: EventPosition, **retry: Any) -> list[str]:
    known = DefinitionChanges(SETTINGS, UUID, network.transport(**retry))
    known.cover(first, until)
    assert known.covers(first, until)
    assert known.same_log()
    assert network.open == 0
    return [one.statement[-6:-4] for one in known.of("d", "t", first, until)]


def test_a_proof_reads_to_its_end_or_fails() -> None:
    """A dump that ends too early is tried again from the beginning, and nothing counts twice."""
    server, first, until = altered()
    network = Network(server)
    assert changes(network, first, until) == ["c0", "c1", "c2"]
    for ended in range(len(network.sent[0])):
        network = Network(server, [Ends(after_packets=ended, tail=EOF_PACKET)])
        assert changes(network, first, until) == ["c0", "c1", "c2"]
        assert len(network.pauses) == 1
    network = Network(server, [Ends(after_packets=8, tail=EOF_PACKET)] * 6)
    with pytest.raises(IncompleteReadError, match="ended before a position that the server has") as caught:
        changes(network, first, until)
    assert (caught.value.file, caught.value.pos) == (until.file, until.pos)
    assert len(network.dumps) == 6


def test_a_proof_leaves_other_errors_to_its_reader() -> None:
    server, first, until = altered()
    network = Network(server, [Ends(after_packets=8)])
    with pytest.raises(ConnectionLostError):
        changes(network, first, until)
    network = Network(server, route=[PretendedServer(OTHER)])
    with pytest.raises(ServerBehindError, match="planned on"):
        changes(network, first, until)
    assert (network.pauses, network.open) == ([], 0)


def test_defaults_are_those_of_the_server_whose_log_is_read() -> None:
    """A load balancer may lead to another one, whose columns the log does not prove."""
    network = Network(PretendedServer(), route=[PretendedServer(OTHER)])
    definitions = Definitions(SETTINGS, UUID, network.transport())
    table = TableDef("d", "t", (Column("id", "int"),), (0,))
    with pytest.raises(ServerBehindError, match="planned on"):
        Defaults(definitions).at(TableCodec(table), "binlog.000001", 4)
    assert network.open == 0


def test_a_log_that_began_anew_is_another_one() -> None:
    server, first, until = altered()
    network = Network(server)
    known = DefinitionChanges(SETTINGS, UUID, network.transport())
    known.cover(first, until)
    network.script = [Ends(after_packets=0, tail=NO_FILE)]
    assert not known.same_log(), "the file is gone"
    network.server = PretendedServer(began=1_800_000_000)
    assert not known.same_log(), "it began at another time"
