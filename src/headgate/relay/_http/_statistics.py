"""``/containerStats`` and ``/relayStats``: what came in, what went out and who asked, as Databus counts it.

A PUT or POST with ``reset`` begins to count anew, one with ``enabled`` stops or goes on; its answer has the counters as
they were (Databus, ``AbstractStatsRequestProcessor.java``). Nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay._container import ContainerStats
from headgate.relay._http._commands import PRETTY, Command, object_of, reply
from headgate.relay._http._parameters import InvalidParameterError, choice, flag, integer, presence, segment
from headgate.relay._relay import Partition, Relay
from headgate.relay._stats import EventStats
from headgate.relay._traffic import TrafficStats
from headgate.relay._usage import HttpStats, OfClient

__all__ = ["commands"]


def _schema(example: Mapping[str, Any]) -> dict[str, Any]:
    return object_of(**{name: {"type": "string" if name == "dimension" else "number"} for name in example})


_COUNTERS: Final = _schema(EventStats("").to_json())
_CALLS: Final = _schema(HttpStats("").to_json())
_CONNECTIONS: Final = _schema(TrafficStats("").to_json())
_CONTAINER: Final = _schema(ContainerStats().to_json(0, 0))
_NAMES: Final = {"type": "array", "items": {"type": "string"}}
_CHANGES: Final = (
    presence("reset", "Begin to count anew."),
    replace(flag("enabled", "true: count; anything else: do not, until it is true again."), default=None),
)
_HTTP: Final = "/relayStats/outbound/http/"
_EVENTS: Final = "/containerStats/{way}/events/"


def commands(relay: Relay) -> list[Command]:
    """The counters, in all, by source and by physical source."""
    found = _Statistics(relay)
    way = choice("way", "What came in, or what went out.", ("inbound", "outbound"), in_path=True)
    return [
        Command(
            f"{_EVENTS}total", found.total, "Counters of all events", [way, PRETTY], _COUNTERS, changes=_CHANGES
        ),
        Command(
            f"{_EVENTS}sources", found.sources, "The ids of sources that had events", [way, PRETTY],
            {"type": "array", "items": {"type": "integer"}},
        ),
        Command(
            f"{_EVENTS}source/{{source}}", found.source, "Counters of a source",
            [way, integer("source", "Its id.", in_path=True), PRETTY], _COUNTERS, changes=_CHANGES,
        ),
        Command(
            f"{_EVENTS}psources", found.physical_sources, "The physical sources, name:id", [way, PRETTY],
            {"type": "array", "items": {"type": "string"}},
        ),
        Command(
            f"{_EVENTS}psource/{{psource}}", found.physical_source, "Counters of a physical source",
            [way, segment("psource", "Its name, or name:id."), PRETTY], _COUNTERS, changes=_CHANGES,
        ),
        Command(
            f"{_EVENTS}psource/{{psource}}/{{partition}}", found.physical_source, "Counters of a physical source",
            [way, segment("psource", "Its name."), integer("partition", "Its id.", in_path=True), PRETTY], _COUNTERS,
            changes=_CHANGES,
        ),
        Command(
            "/containerStats/outbound/events/clients", found.clients, "The clients that asked: tenants, or addresses",
            [PRETTY], _NAMES,
        ),
        Command(
            "/containerStats/outbound/events/client/{client}", found.events_of, "Counters of what a client was given",
            [segment("client", "Its name."), PRETTY], _COUNTERS, changes=_CHANGES,
        ),
        Command(
            "/containerStats/{way}/total", found.traffic,
            "Counters of all connections that consumers make (outbound), or the relay itself by HTTP (inbound: none)",
            [way, PRETTY], _CONNECTIONS, changes=_CHANGES,
        ),
        Command("/containerStats/outbound/clients", found.connected, "The addresses that connected", [PRETTY], _NAMES),
        Command(
            "/containerStats/outbound/client/{client}", found.traffic_of, "Counters of an address's connections",
            [segment("client", "The address."), PRETTY], _CONNECTIONS, changes=_CHANGES,
        ),
        Command(
            "/containerStats/container", found.container, "Requests, the threads that answer them, and errors",
            [PRETTY], _CONTAINER,
        ),
        Command("/containerStats/{rest:path}", found.nothing, "A path that names no counters", shown=False),
        Command(f"{_HTTP}total", found.http, "Counters of all requests", [PRETTY], _CALLS, changes=_CHANGES),
        Command(
            f"{_HTTP}sources", found.asked_sources, "The ids of sources that were asked for", [PRETTY],
            {"type": "array", "items": {"type": "integer"}},
        ),
        Command(
            f"{_HTTP}source/{{source}}", found.http_source, "Counters of the streams of a source",
            [integer("source", "Its id.", in_path=True), PRETTY], _CALLS, changes=_CHANGES,
        ),
        Command(f"{_HTTP}clients", found.clients, "The clients that asked", [PRETTY], _NAMES),
        Command(
            f"{_HTTP}client/{{client}}", found.http_of, "Counters of a client's requests",
            [segment("client", "Its name."), PRETTY], _CALLS, changes=_CHANGES,
        ),
        Command("/relayStats/{rest:path}", found.nothing, "A path that names no counters", shown=False),
    ]  # fmt: skip


class _Statistics:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def _partitions(self) -> list[Partition]:
        return list(self._relay.partitions.values())

    async def total(self, request: Request, given: Mapping[str, Any]) -> Response:
        parts = _of_way(given["way"], self._partitions())
        return _told(request, given, _total(given["way"], self._partitions()), parts)

    async def sources(self, request: Request, given: Mapping[str, Any]) -> Response:
        return reply(request, self._relay.given.sources() if given["way"] == "outbound" else sorted(self._came()))

    async def source(self, request: Request, given: Mapping[str, Any]) -> Response:
        known = self._relay.names.by_id(given["source"])
        if known is None:
            raise InvalidParameterError("containerStats", "source", given["source"])
        if given["way"] == "outbound":
            physical = self._relay.names.physical_of(known.id)
            assert physical is not None
            stats = self._relay.given.of(known.id, f"{self._relay.partitions[physical].outbound.dimension}.{known.id}")
        else:
            stats = self._came().get(known.id, EventStats(str(known.id)))
        return _told(request, given, stats.to_json(), [stats])

    def _came(self) -> dict[int, EventStats]:
        """By source, what came in."""
        return {number: stats for one in self._partitions() for number, stats in one.feeder.source_stats.items()}

    async def physical_sources(self, request: Request, given: Mapping[str, Any]) -> Response:
        del given
        return reply(request, [f"{one.source.name}:{one.source.id}" for one in self._partitions()])

    async def physical_source(self, request: Request, given: Mapping[str, Any]) -> Response:
        name = given["psource"] if given.get("partition") is None else f"{given['psource']}:{given['partition']}"
        found = [one for one in self._partitions() if name in (one.source.name, f"{one.source.name}:{one.source.id}")]
        if not found:
            raise InvalidParameterError("containerStats", "psource", name)
        return _told(request, given, _total(given["way"], found), _of_way(given["way"], found))

    async def clients(self, request: Request, given: Mapping[str, Any]) -> Response:
        del given
        return reply(request, self._relay.usage.clients())

    async def events_of(self, request: Request, given: Mapping[str, Any]) -> Response:
        stats = self._client(given).events
        return _told(request, given, stats.to_json(), [stats])

    async def http(self, request: Request, given: Mapping[str, Any]) -> Response:
        stats = self._relay.usage.total
        return _told(request, given, stats.to_json(), [stats])

    async def http_of(self, request: Request, given: Mapping[str, Any]) -> Response:
        stats = self._client(given).http
        return _told(request, given, stats.to_json(), [stats])

    async def asked_sources(self, request: Request, given: Mapping[str, Any]) -> Response:
        del given
        return reply(request, sorted(self._relay.usage.by_source))

    async def http_source(self, request: Request, given: Mapping[str, Any]) -> Response:
        if self._relay.names.by_id(given["source"]) is None:
            raise InvalidParameterError("relayStats", "source", given["source"])
        stats = self._relay.usage.by_source.get(given["source"], HttpStats(str(given["source"])))
        return _told(request, given, stats.to_json(), [stats])

    def _client(self, given: Mapping[str, Any]) -> OfClient:
        found = self._relay.usage.of(given["client"])
        if found is None:
            raise InvalidParameterError("containerStats", "client", given["client"])
        return found

    async def traffic(self, request: Request, given: Mapping[str, Any]) -> Response:
        traffic = self._relay.traffic
        stats = traffic.inbound if given["way"] == "inbound" else traffic.total
        return _told(request, given, stats.to_json(), [stats])

    async def connected(self, request: Request, given: Mapping[str, Any]) -> Response:
        del given
        return reply(request, self._relay.traffic.clients())

    async def traffic_of(self, request: Request, given: Mapping[str, Any]) -> Response:
        stats = self._relay.traffic.of(given["client"])
        if stats is None:
            raise InvalidParameterError("containerStats", "outbound/client/", given["client"])
        return _told(request, given, stats.to_json(), [stats])

    async def container(self, request: Request, given: Mapping[str, Any]) -> Response:
        del given
        workers = to_thread.current_default_thread_limiter()
        waiting = workers.statistics().tasks_waiting
        return reply(request, self._relay.usage.container.to_json(int(workers.borrowed_tokens), waiting))

    async def nothing(self, request: Request, given: Mapping[str, Any]) -> Response:
        del given
        raise InvalidParameterError(request.scope["path"].split("/")[1], "path", request.path_params["rest"])


def _told(
    request: Request,
    given: Mapping[str, Any],
    value: Mapping[str, Any],
    stats: Iterable[EventStats | HttpStats | TrafficStats],
) -> Response:
    """The counters as they are; then what was asked to be done with them."""
    for one in stats:
        if given.get("enabled") is not None:
            one.enabled = given["enabled"]
        if given.get("reset"):
            one.reset()
    return reply(request, value)


def _of_way(way: str, partitions: list[Partition]) -> list[EventStats]:
    return [one.feeder.stats if way == "inbound" else one.outbound for one in partitions]


def _total(way: str, partitions: list[Partition]) -> dict[str, Any]:
    """Of all partitions together; SCNs mean something for one only."""
    parts = _of_way(way, partitions)
    if len(parts) == 1:
        return parts[0].to_json(partitions[0].buffer.info())
    total = EventStats(f"{way}.total")
    for one in parts:
        for name in ("events", "bytes", "payload", "control", "control_bytes", "chosen", "chosen_bytes"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.peers = max(total.peers, one.peers)
        total.last_stamp = max(total.last_stamp, one.last_stamp)
    return total.to_json()
