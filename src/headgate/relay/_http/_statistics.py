"""``/containerStats`` and ``/relayStats``: counters of received events, sent events and requests, as in Databus.

A PUT or POST with ``reset`` resets counters, one with ``enabled`` stops or resumes them; its answer has the counters
before that (Databus, ``AbstractStatsRequestProcessor.java``). Nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay._counters import ContainerStats, Counters, EventStats, HttpStats, TrafficStats
from headgate.relay._http._commands import PRETTY, Command, object_of, reply
from headgate.relay._http._parameters import InvalidParameterError, Parameter, choice, flag, integer, presence, segment
from headgate.relay._relay import Relay

__all__ = ["commands"]

_CHANGES: Final = (
    presence("reset", "Reset the counters."),
    replace(flag("enabled", "true: count; any other value: stop counting, until it is true again."), default=None),
)
_WAY: Final = choice("way", "What came in, or what went out.", ("inbound", "outbound"), in_path=True)
_SOURCE: Final = integer("source", "Its id.", in_path=True)
_CLIENT: Final = segment("client", "Its name.")


def _schema(kind: type[Counters]) -> Mapping[str, Any]:
    return object_of(**{name: {"type": "string" if name == "dimension" else "number"} for name in kind.ZERO})


def _counters(
    path: str,
    about: str,
    path_parameters: Sequence[Parameter],
    kind: type[Counters],
    find: Callable[..., Sequence[Counters]],
) -> Command:
    """:param find: returns the counters, one or of several physical sources; raises InvalidParameterError."""

    async def answer(request: Request, parameters: Mapping[str, Any]) -> Response:
        stats = find(**{one.name: parameters[one.name] for one in path_parameters})
        reported = stats[0] if len(stats) == 1 else EventStats.together(f"{parameters['way']}.total", stats)
        response = reply(request, reported.to_json())
        for one in stats:
            if parameters.get("enabled") is not None:
                one.enabled = parameters["enabled"]
            if parameters.get("reset"):
                one.reset()
        return response

    return Command(path, answer, about, [*path_parameters, PRETTY], _schema(kind), changes=_CHANGES)


def _names(
    path: str, about: str, find: Callable[..., Sequence[Any]], *path_parameters: Parameter, kind: str = "string"
) -> Command:
    async def answer(request: Request, parameters: Mapping[str, Any]) -> Response:
        return reply(request, find(**{one.name: parameters[one.name] for one in path_parameters}))

    return Command(path, answer, about, [*path_parameters, PRETTY], {"type": "array", "items": {"type": kind}})


def commands(relay: Relay) -> list[Command]:
    """Return the commands for counters."""
    counters, usage, traffic = _SourceCounters(relay), relay.usage, relay.traffic
    events, psource, http = (
        "/containerStats/{way}/events/",
        "Counters of a physical source",
        "/relayStats/outbound/http/",
    )
    outbound = "/containerStats/outbound/"

    def clients() -> Sequence[str]:
        return sorted(usage.clients)

    async def container(request: Request, _parameters: Mapping[str, Any]) -> Response:
        workers = to_thread.current_default_thread_limiter()
        usage.container.update(int(workers.borrowed_tokens), workers.statistics().tasks_waiting)
        return reply(request, usage.container.to_json())

    async def unknown_path(request: Request, _parameters: Mapping[str, Any]) -> Response:
        raise InvalidParameterError(request.scope["path"].split("/")[1], "path", request.path_params["rest"])

    return [
        _counters(f"{events}total", "Counters of all events", [_WAY], EventStats, counters.total),
        _names(f"{events}sources", "The ids of sources that had events", counters.sources, _WAY, kind="integer"),
        _counters(f"{events}source/{{source}}", "Counters of a source", [_WAY, _SOURCE], EventStats, counters.source),
        _names(f"{events}psources", "The physical sources, name:id", counters.physicals, _WAY),
        _counters(
            f"{events}psource/{{psource}}", psource, [_WAY, segment("psource", "Its name, or name:id.")], EventStats,
            counters.physical,
        ),
        _counters(
            f"{events}psource/{{psource}}/{{partition}}", psource,
            [_WAY, segment("psource", "Its name."), integer("partition", "Its id.", in_path=True)], EventStats,
            counters.physical,
        ),
        _names(f"{outbound}events/clients", "The clients that sent requests: tenants, or addresses", clients),
        _counters(
            f"{outbound}events/client/{{client}}", "Counters of the events sent to a client", [_CLIENT], EventStats,
            lambda client: [_of("containerStats", "client", client, usage.clients).events],
        ),
        _counters(
            "/containerStats/{way}/total",
            "Counters of all connections from consumers (outbound), or of the relay's HTTP requests (inbound: none)",
            [_WAY], TrafficStats,
            lambda way: [traffic.inbound if way == "inbound" else traffic.total],
        ),
        _names(f"{outbound}clients", "The addresses that connected", lambda: sorted(traffic.clients)),
        _counters(
            f"{outbound}client/{{client}}", "Counters of an address's connections", [segment("client", "The address.")],
            TrafficStats, lambda client: [_of("containerStats", "outbound/client/", client, traffic.clients)],
        ),
        Command(
            "/containerStats/container", container, "Requests, the threads that answer them, and errors", [PRETTY],
            _schema(ContainerStats),
        ),
        Command("/containerStats/{rest:path}", unknown_path, "A path that names no counters", shown=False),
        _counters(f"{http}total", "Counters of all requests", [], HttpStats, lambda: [usage.total]),
        _names(f"{http}sources", "The ids of sources that were requested", counters.sources_requested, kind="integer"),
        _counters(
            f"{http}source/{{source}}", "Counters of the streams of a source", [_SOURCE], HttpStats,
            counters.source_requests,
        ),
        _names(f"{http}clients", "The clients that sent requests", clients),
        _counters(
            f"{http}client/{{client}}", "Counters of a client's requests", [_CLIENT], HttpStats,
            lambda client: [_of("containerStats", "client", client, usage.clients).http],
        ),
        Command("/relayStats/{rest:path}", unknown_path, "A path that names no counters", shown=False),
    ]  # fmt: skip


def _of(command: str, parameter: str, client: str, known: Mapping[str, Any]) -> Any:
    """Return a client's counters.

    :raises InvalidParameterError: the client is unknown, or was forgotten since.
    """
    if client not in known:
        raise InvalidParameterError(command, parameter, client)
    return known[client]


class _SourceCounters:
    """Finds the counters of sources."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._partitions = relay, list(relay.partitions.values())

    def total(self, way: str) -> Sequence[Counters]:
        return [one.feeder.stats if way == "inbound" else one.outbound for one in self._partitions]

    def physical(self, way: str, psource: str, partition: int | None = None) -> Sequence[Counters]:
        """Return those of one physical source, or of all that share a name."""
        name = psource if partition is None else f"{psource}:{partition}"
        pairs = zip(self._partitions, self.total(way), strict=True)
        matches = [stats for one, stats in pairs if name in (one.source.name, one.name)]
        if not matches:
            raise InvalidParameterError("containerStats", "psource", name)
        return matches

    def physicals(self, way: str) -> Sequence[str]:
        del way
        return [one.name for one in self._partitions]

    def sources_requested(self) -> Sequence[int]:
        return sorted(self._relay.usage.by_source)

    def sources(self, way: str) -> Sequence[int]:
        return self._relay.delivered.sources() if way == "outbound" else sorted(self._received())

    def source(self, way: str, source: int) -> Sequence[Counters]:
        """Return the event counters of a logical source."""
        self._check("containerStats", source)
        if way == "inbound":
            return [self._received().get(source) or EventStats(str(source))]
        partition = self._relay.partitions[self._relay.names.physical_of(source)]
        return [self._relay.delivered.of(source, f"{partition.outbound['dimension']}.{source}")]

    def source_requests(self, source: int) -> Sequence[Counters]:
        """Return the request counters of a logical source."""
        self._check("relayStats", source)
        return [self._relay.usage.by_source.get(source) or HttpStats(str(source))]

    def _check(self, command: str, source: int) -> None:
        """:raises InvalidParameterError: the source is unknown."""
        if self._relay.names.by_id(source) is None:
            raise InvalidParameterError(command, "source", source)

    def _received(self) -> dict[int, EventStats]:
        """Return the counters of received events by source."""
        return {number: stats for one in self._partitions for number, stats in one.feeder.source_stats.items()}
