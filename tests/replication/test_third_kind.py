"""A kind of position that ``src`` does not know (``tests/domains.py``), from a server's log to rows: what it provides
there is all that the readers need. Only how a server of that kind is recognised (``read_executed``) is replaced.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from headgate.errors import HistoryRewrittenError, ServerSettingError
from headgate.mysql import kinds_of_watermark
from headgate.offsets import Last
from headgate.positions import KINDS, ExecutedLog, Position, gtids_of
from headgate.replication import LogRead, check_history, last_header, transaction_headers
from headgate_testing._binlog import EOF_PACKET
from tests.domains import Domains, domain, domains
from tests.replication.pretended import READERS, SETTINGS, Ends, Network, PretendedServer


class DomainServer(PretendedServer):
    """A server that names its transactions by domain."""

    source: ClassVar[str] = domain(0).hex()

    @property
    def position(self) -> Position:
        return domains(self.number)

    @staticmethod
    def requested(data: bytes) -> Position:
        return Domains.parse(data.decode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> DomainServer:
    server = DomainServer()
    server.commit([1])
    server.commit([2, 3], [4])
    server.rotate()
    server.commit([5])
    for module in ("positions", "mysql._required"):
        monkeypatch.setattr(f"headgate.{module}.KINDS", (Domains, *KINDS))
    executed = lambda _: ExecutedLog(server.uuid, server.position, "")  # noqa: E731
    monkeypatch.setattr("headgate.replication._dump.read_executed", executed)
    return server


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("had", [0, 2])
def test_every_change_comes_once_wherever_the_dump_ends(server: DomainServer, reader: str, had: int) -> None:
    expected = [one for number, ids in server.rows.items() if number > had for one in ids]
    network = Network(server)
    assert [row[-1] for row in READERS[reader](network, domains(had))] == expected
    for count in range(len(network.sent[0])):
        network = Network(server, [Ends(after_packets=count, tail=EOF_PACKET)])
        assert [row[-1] for row in READERS[reader](network, domains(had))] == expected, f"behind {count} packets"
        assert network.open == 0


def test_transactions_are_requested_one_by_one_and_compared(server: DomainServer) -> None:
    transport, executed = Network(server).transport(), server.position
    read = LogRead(SETTINGS, wanted=domains(3, 2), executed=executed)
    second, third = transaction_headers(read, transport)
    assert [str(header.key) for header in (second, third)] == ["0#2-2", "0#3-3"]
    behind = LogRead(SETTINGS, executed_before=domains(1), executed=executed, until=server.status)
    assert last_header(behind, second, transport) == third
    check_history(read, second.last, transport)
    with pytest.raises(HistoryRewrittenError):
        check_history(read, Last("0#2-2", 1), transport)


@pytest.mark.parametrize("watermark", ["gtid", "lock", "signal-table"])
def test_a_watermark_takes_every_kind_of_which_it_shows_all(server: DomainServer, watermark: str) -> None:
    assert Domains in kinds_of_watermark(watermark)
    with pytest.raises(ServerSettingError, match="a relay needs GTIDs"):
        gtids_of(server.position, "a relay")
