"""The planner's view of a server over one connection, and of one whose log comes from a relay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import HistoryRewrittenError, IncompleteReadError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings
from headgate.offsets import Hint, Last, SourceOffset
from headgate.positions import Position
from headgate.relay.archive import LogFile, LogHead, Series
from headgate.replication import TransactionHeader
from headgate.spark import ServerState, SourceServer
from headgate.spark._relayed import RelayedServer
from headgate.spark._server_history import HistoryCheck
from tests.spark.model import OTHER, UUID, gtids


class _OneTransaction(SourceServer):
    """Servers that executed one transaction, each another one of the same GTID."""

    def state(self, *, whole: bool = False) -> ServerState:
        return ServerState(self.identity(), gtids(1), gtids(0))

    def identity(self) -> str:
        return self._connection().settings.host

    def log_files(self) -> list[tuple[str, int]]:
        return [("binlog.000001", 200)]

    def headers(self, part: Position, hint: Hint | None) -> list[TransactionHeader]:
        uuid = self.identity()
        return [TransactionHeader(gtids(1), int(uuid == UUID), True, uuid, "binlog.000001", 4, 1)] if part else []


def test_a_dropped_connection_counts_before_another_one_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next query opens it, and may meet another server."""
    reached = iter((UUID, OTHER))

    def opened(_settings: ConnectionSettings) -> Any:
        return SimpleNamespace(settings=SimpleNamespace(host=next(reached)), close=lambda: None)

    monkeypatch.setattr(Connection, "open", opened)
    server = _OneTransaction(ConnectionSettings("nobody"), [GtidSet])
    history = HistoryCheck(server)
    start = SourceOffset(gtid="", epoch=1, last=None, hint=None)
    last, hint = history.advance(start, gtids(1), server.state(), 2)
    end = SourceOffset(gtid=str(gtids(1)), epoch=2, last=last, hint=hint)
    assert last == Last(str(gtids(1)), 1)
    assert history.identity(end) == UUID
    server.drop()
    with pytest.raises(HistoryRewrittenError):
        history.identity(end)


def test_a_part_that_the_relay_deletes_before_its_files_are_listed() -> None:
    """The description and the list are two requests. A new planning sees what is left."""
    series = (Series(OTHER, gtids(5), gtids(10)), Series(UUID, gtids(10), gtids(20)))
    head = LogHead(UUID, gtids(20), gtids(5), "binlog.000009", 4, series)
    files = [LogFile(UUID, "binlog.000002", 9, gtids(10))]
    relay: Any = SimpleNamespace(head=lambda: head, files=lambda: files, falls_back=False)
    server = RelayedServer(ConnectionSettings("nobody"), relay)
    end = server.reach(gtids(7), gtids(20))
    assert end == gtids(10)
    for work in (server.log_file, server.log_files, lambda: HistoryCheck(server)._last_part(end, UUID, None)):
        with pytest.raises(IncompleteReadError, match="deleted this part"):
            work()
