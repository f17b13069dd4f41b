"""A lookup at the server that fails between two flushes: the read reconnects, and yields the log once, in order."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.binlog import TableMap, codes
from headgate.catalog import Column, TableDef
from headgate.errors import ConnectError
from headgate.gtid import GtidSet
from headgate.replication import resumable
from tests.replication.pretended import READERS, Network, PretendedServer, rows_read


@pytest.fixture(autouse=True)
def no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection here is a dump's or a lookup's."""
    monkeypatch.setattr(resumable, "check_history", lambda *_: None)


def insert_nameless(server: PretendedServer, value: int) -> None:
    """Into ``d.u``, whose table map has no column names."""
    server.write(lambda one: one.table_map(2, "d", "u", [codes.T_LONG], b""))
    server.write(lambda one: one.rows(codes.WRITE_ROWS, 2, 1, b"\0" + value.to_bytes(4, "little")))
    server.rows.setdefault(server.number, []).append(value)


@pytest.mark.parametrize("reader", READERS)
def test_a_definition_that_cannot_be_looked_up_at_once(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the segments end: in the transaction before, or in the one that needs the lookup."""
    server = PretendedServer()
    server.commit([1], [2], [3], [4])
    server.begin()
    for value in (11, 12, 13, 14):
        insert_nameless(server, value)
    server.write(lambda one: one.xid(2))
    calls = [0]

    def once_unreachable(_self: Any, table_map: TableMap, _file: str, _pos: int) -> TableDef:
        calls[0] += 1
        if calls[0] == 1:
            raise ConnectError("Too many connections")
        return TableDef(table_map.db, table_map.table, (Column("id", "int"),))

    monkeypatch.setattr("headgate.replication._definitions.Definitions.at", once_unreachable)
    for step in range(60, 1200, 10):
        network, calls[0] = Network(server, step=step), 0
        values = [row[-1] for row in READERS[reader](network, GtidSet())]
        assert (step, values) == (step, [1, 2, 3, 4, 11, 12, 13, 14])
        assert (calls[0], len(network.dumps), network.open) == (2, 2, 0)


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
