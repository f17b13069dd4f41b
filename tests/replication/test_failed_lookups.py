"""A lookup at the server that fails between two flushes: the read reconnects, and yields the log once, in order."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.binlog import TableMap, codes
from headgate.catalog import Column, TableDef
from headgate.errors import ConnectError
from headgate.gtid import Gtid, GtidSet
from headgate.replication import LogDecoder, LogRead, resumable
from headgate.replication._tables import Lookups
from headgate.replication.resumable import ResumableDump
from tests.replication.pretended import OPTIONS, READERS, SETTINGS, UUID, Network, PretendedServer, rows, rows_read


@pytest.fixture(autouse=True)
def no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection here is a dump's or a lookup's."""
    monkeypatch.setattr(resumable, "check_history", lambda *_: None)


def insert_nameless(server: PretendedServer, value: int) -> None:
    """Into ``d.u``, whose table map has no column names."""
    server.write(lambda one: one.table_map(2, "d", "u", [codes.T_LONG], b""))
    server.write(lambda one: one.rows(codes.WRITE_ROWS, 2, 1, b"\0" + value.to_bytes(4, "little")))
    server.rows.setdefault(server.number, []).append(value)


class OnceUnreachable:
    """Decoders whose first lookup of a definition fails."""

    def __init__(self) -> None:
        self.calls = 0

    def _definition(self, table_map: TableMap, _file: str, _pos: int) -> TableDef:
        self.calls += 1
        if self.calls == 1:
            raise ConnectError("Too many connections")
        return TableDef(table_map.db, table_map.table, (Column("id", "int", nullable=True),), ())

    def begin(self, _uuid: str, read: LogRead, skip: tuple[Gtid, int] | None) -> LogDecoder:
        lookups = Lookups(definition_of=self._definition)
        return LogDecoder(read.bounds, OPTIONS, lookups, inside=read.wanted is not None, skip=skip)

    def close(self) -> None:
        pass


def test_a_definition_that_cannot_be_looked_up_at_once() -> None:
    """Wherever the segments end: in the transaction before, or in the one that needs the lookup."""
    server = PretendedServer()
    server.commit([1], [2], [3], [4])
    server.begin()
    for value in (11, 12, 13, 14):
        insert_nameless(server, value)
    server.write(lambda one: one.xid(2))
    for step in range(60, 1200, 10):
        network, decoding = Network(server, step=step), OnceUnreachable()
        read = LogRead(SETTINGS, wanted=server.executed, executed=server.executed, server_uuid=UUID)
        dump = ResumableDump(read, decoding, network.transport())
        values = [row[-1] for row in rows(dump.items())]
        assert (step, values) == (step, [1, 2, 3, 4, 11, 12, 13, 14])
        assert (decoding.calls, len(network.dumps)) == (2, 2)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("anonymous", [False, True], ids=["gtids", "positions"])
def test_the_case_of_names_that_cannot_be_looked_up_at_once(reader: str, anonymous: bool) -> None:
    server = PretendedServer(anonymous=anonymous)
    had: Any = server.position if anonymous else GtidSet()
    server.commit([1], [2], [3], [4])
    server.statement("CREATE TABLE elsewhere.Upper (id INT)")
    server.commit([5], [6])
    expected = list(rows_read(Network(server), had))
    assert [row[-1] for row in expected] == [1, 2, 3, 4, 5, 6]
    for step in range(60, 1400, 20):
        network = Network(server, route=[server, None], step=step)
        assert list(READERS[reader](network, had)) == expected, f"{step} bytes at a time"
        assert (len(network.dumps), network.open) == (2, 0)
