"""A relay over HTTP without a MySQL server: rows are put in by hand."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.types import ASGIApp

from headgate.catalog import TableDef
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.policies import Policies
from headgate.relay.server import Assembler, LogicalSource, PhysicalSource, Relay, RelayConfig, create_app
from headgate.relay.server._warm import warm
from headgate.replication import Idle, LogBlock
from headgate.web.serving import Serving
from tests.relay.server import rows

PERSON = LogicalSource(40, "com.linkedin.events.example.or_test.Person", "or_test.person")
PET = LogicalSource(41, "com.example.Pet", "or_test.pet", 2)
PATIENCE_SECONDS = 240
"""Ends what hangs: what nobody asked for before is compiled first, for a minute and more where others work, too."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A relay that is served; blocks of rows are put in by :meth:`put`."""

    def __init__(self, relay: Relay, app: ASGIApp, port: int) -> None:
        self.relay, self.app, self.port = relay, app, port
        for one in relay.partitions.values():
            one.feeder.begin()
            if one.spool is not None and not one.spool.has_begun:
                one.spool.begin(one.feeder.position.now().gtid)
        self._assemblers = {
            number: Assembler(
                functools.partial(relay.names.find, number), relay.registry, one.feeder._scn, partition=number,
                version=relay.config.event_version, scn_column=relay.config.scn_column,
                before_images=relay.config.before_images,
            )
            for number, one in relay.partitions.items()
        }  # fmt: skip

    def put(self, *blocks: LogBlock, partition: int = 1) -> bytes:
        """What the blocks' whole transactions are in the buffer; their end is the log's."""
        assembler, feeder = self._assemblers[partition], self.relay.partitions[partition].feeder
        data = b""
        for finished in [*map(assembler.add, blocks), assembler.flush()]:
            if finished is not None:
                feeder._publish(finished)
                data += finished.windows.data.tobytes()
        now = feeder.position.now()
        feeder.position.reach(Idle(now.gtid, None, now.last, now.server_uuid), now.scn)
        return data

    def get(
        self, path: str, /, token: str | None = None, method: str = "GET", headers: Any = None,
        **parameters: Any,
    ) -> Answer:  # fmt: skip
        """Values that are no text are sent as JSON."""
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in parameters.items()}
        query = "&".join(f"{name}={quote(value)}" for name, value in texts.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            sent = {**(headers or {}), **({} if token is None else {"authorization": f"Bearer {token}"})}
            connection.request(method, f"/{path}?{query}" if query else f"/{path}", headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): one for name, one in answer.getheaders()}, answer.read())


def physical(number: int, name: str, *sources: LogicalSource) -> PhysicalSource:
    settings = ConnectionSettings(host="127.0.0.1", port=1)
    listed = [{"id": one.id, "name": one.name, "uri": one.table} for one in sources]
    return PhysicalSource(number, name, settings, sources, {"name": name, "id": number, "sources": listed})


def anywhere(db: str, table: str) -> LogicalSource:
    """Return one source for all tables."""
    return LogicalSource(1, "a.b.T", f"{db}.{table}")


@functools.cache
def load(version: int) -> None:
    """What a relay loads before it serves (``Feeder.prepare``), so that a client's first request does not wait until it
    is compiled, longer than the client waits for an answer.
    """
    load_loops([rows.PERSON], version)


def load_loops(tables: Sequence[TableDef], version: int) -> None:
    warm(tables, Policies(), anywhere, "exact", version=version)


def relay_config(*sources: PhysicalSource, **config: Any) -> RelayConfig:
    """Return a relay's settings, with buffers of any size, also one below the least that users may set."""
    sizes: dict[str, Any] = {name: config.pop(name) for name in ("memory_bytes", "disk_bytes") if name in config}
    return RelayConfig(physical=sources, **config).model_copy(update=sizes)


@contextlib.contextmanager
def served(*sources: PhysicalSource, request_seconds: float = 30.0, **config: Any) -> Iterator[Served]:
    """Serve a relay.

    :param request_seconds: how long a request may take to arrive.
    """
    relay = Relay(relay_config(*(sources or (physical(1, "person", PERSON, PET),)), **config), lambda _: GtidSet())
    load(relay.config.event_version)
    app = create_app(relay)
    with Serving(app, "127.0.0.1", 0, connections=relay.counters, request_seconds=request_seconds) as serving:
        yield Served(relay, app, serving.port)
    relay.close()
