"""Cuts of a backlog after the first transactions that hold so many changes."""

from __future__ import annotations

import pytest

from headgate.errors import IncompleteReadError
from headgate.positions import LogPlace, Position
from headgate.replication import cut_in_order
from headgate_testing._binlog import EOF_PACKET
from tests.replication.pretended import SETTINGS, Ends, Network, PretendedServer, gtids


@pytest.fixture(scope="module", params=[False, True], ids=["gtids", "positions"])
def server(request: pytest.FixtureRequest) -> PretendedServer:
    """One row, then two transactions that take many pieces of the log (16 KiB) each, then one row."""
    server = PretendedServer(anonymous=request.param)
    server.commit([1])
    for first in (0, 20_000):
        server.commit(*([*range(n, n + 1000)] for n in range(first, first + 20_000, 1000)))
    server.commit([2])
    return server


def after(server: PretendedServer, count: int) -> Position:
    """Return the position behind so many transactions."""
    if not server.anonymous:
        return gtids(1, count)
    (file,) = server.files
    end = max((event.end for event in file.events if 0 < event.number <= count), default=4)
    return LogPlace.before(server.uuid, 1, end)


@pytest.mark.parametrize("limit_rows", [1, 10, 500])
def test_a_first_transaction_larger_than_the_limit_is_the_cut(server: PretendedServer, limit_rows: int) -> None:
    network = Network(server)
    transport = network.transport()
    cut = cut_in_order(SETTINGS, after(server, 1), server.position, limit_rows=limit_rows, transport=transport)
    assert cut == after(server, 2)
    assert (len(network.dumps), network.open) == (1, 0)


def test_a_large_transaction_is_not_in_a_cut_that_is_full_before(server: PretendedServer) -> None:
    transport = Network(server).transport()
    cut = cut_in_order(SETTINGS, after(server, 0), server.position, limit_rows=1, transport=transport)
    assert cut == after(server, 1)


def test_a_dump_that_ends_within_the_first_transaction_is_an_error(server: PretendedServer) -> None:
    network = Network(server, [Ends(after_packets=20, tail=EOF_PACKET)])
    with pytest.raises(IncompleteReadError, match="ended before"):
        cut_in_order(SETTINGS, after(server, 1), server.position, limit_rows=10, transport=network.transport())
