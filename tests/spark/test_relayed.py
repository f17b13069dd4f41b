"""The planner's view of a server whose log comes from a relay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import IncompleteReadError
from headgate.mysql import ConnectionSettings
from headgate.relay.archive import LogFile, LogHead, Series
from headgate.spark._relayed import RelayedServer
from headgate.spark._server_history import HistoryCheck
from tests.spark.model import OTHER, UUID, gtids


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
