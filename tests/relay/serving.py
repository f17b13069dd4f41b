"""A relay over HTTP without a MySQL server: rows are put in by hand."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from headgate._serving import Serving
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.relay import LogicalSource, PhysicalSource, Relay, RelayConfig, create_app
from headgate.relay._assemble import Assembler
from headgate.replication import LogBlock

PERSON = LogicalSource(40, "com.linkedin.events.example.or_test.Person", "or_test.person")
PET = LogicalSource(41, "com.example.Pet", "or_test.pet", 2)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A relay that is served; blocks of rows are put in by :meth:`put`."""

    def __init__(self, relay: Relay, port: int) -> None:
        self.relay, self.port = relay, port
        self._assemblers = {
            number: Assembler(
                relay.names.of(number), relay.registry, one.feeder._scn, partition=number,
                version=relay.config.event_version, scn_column=relay.config.scn_column,
            )
            for number, one in relay.partitions.items()
        }  # fmt: skip

    def put(self, *blocks: LogBlock, partition: int = 1) -> bytes:
        """What the blocks' whole transactions are in the buffer; their end is the log's."""
        assembler, feeder = self._assemblers[partition], self.relay.partitions[partition].feeder
        data = b""
        for finished in [*map(assembler.add, blocks), assembler.flush()]:
            if finished is not None:
                assert feeder._publish(finished)
                data += finished.windows.data.tobytes()
        return data

    def get(self, path: str, **parameters: Any) -> Answer:
        """Values that are no text are sent as JSON."""
        given = {name: one if isinstance(one, str) else json.dumps(one) for name, one in parameters.items()}
        query = "&".join(f"{name}={quote(value)}" for name, value in given.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", f"/{path}?{query}" if query else f"/{path}")
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): one for name, one in answer.getheaders()}, answer.read())


def physical(number: int, name: str, *sources: LogicalSource) -> PhysicalSource:
    settings = ConnectionSettings(host="127.0.0.1", port=1)
    listed = [{"id": one.id, "name": one.name, "uri": one.table} for one in sources]
    return PhysicalSource(number, name, settings, sources, {"name": name, "id": number, "sources": listed})


@contextlib.contextmanager
def served(*sources: PhysicalSource, **config: Any) -> Iterator[Served]:
    relay = Relay(RelayConfig(sources or (physical(1, "person", PERSON, PET),), **config), lambda _: GtidSet())
    with Serving(create_app(relay), "127.0.0.1", 0) as serving:
        yield Served(relay, serving.port)
    for one in relay.partitions.values():
        one.feeder.stop()
