"""A lookup at the server that fails between two flushes: the read reconnects, and yields the log once, in order."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.gtid import GtidSet
from headgate.replication import resumable
from tests.replication.pretended import READERS, Network, PretendedServer, rows_read


@pytest.fixture(autouse=True)
def no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection here is a dump's or a lookup's."""
    monkeypatch.setattr(resumable, "check_history", lambda *_: None)


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
