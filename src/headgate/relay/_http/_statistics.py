"""``/containerStats`` and ``/relayStats``: counters of received events, sent events and requests, as in Databus.

A PUT or POST with ``reset`` resets counters, one with ``enabled`` stops or resumes them; its answer has the counters
before that (Databus, ``AbstractStatsRequestProcessor.java``). Nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay._counters import Counters, EventStats, HttpStats
from headgate.relay._http._commands import PRETTY, Command, reply
from headgate.relay._http._parameters import InvalidParameterError, Parameter, choice, flag, integer, presence, segment
from headgate.relay._relay import Relay

__all__ = ["commands"]

_CHANGES: Final = (presence("reset"), flag("enabled", default=None))
_WAY: Final = choice("way", ("inbound", "outbound"), in_path=True)
_SOURCE: Final = integer("source", in_path=True)
_CLIENT: Final = segment("client")


def _counters(path: str, find: Callable[..., Sequence[Counters]], *path_parameters: Parameter) -> Command:
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

    return Command(path, answer, [*path_parameters, PRETTY], changes=_CHANGES)


def _names(path: str, find: Callable[..., Sequence[Any]], *path_parameters: Parameter) -> Command:
    async def answer(request: Request, parameters: Mapping[str, Any]) -> Response:
        return reply(request, find(**{one.name: parameters[one.name] for one in path_parameters}))

    return Command(path, answer, [*path_parameters, PRETTY])


def commands(relay: Relay) -> list[Command]:
    """Return the commands for counters."""
    counters, usage, traffic = _SourceCounters(relay), relay.usage, relay.traffic
    events, http, outbound = "/containerStats/{way}/events/", "/relayStats/outbound/http/", "/containerStats/outbound/"
    psource, partition = segment("psource"), integer("partition", in_path=True)

    def clients() -> Sequence[str]:
        return sorted(usage.clients)

    async def container(request: Request, _parameters: Mapping[str, Any]) -> Response:
        workers = to_thread.current_default_thread_limiter()
        usage.container.update(int(workers.borrowed_tokens), workers.statistics().tasks_waiting)
        return reply(request, usage.container.to_json())

    async def unknown_path(request: Request, _parameters: Mapping[str, Any]) -> Response:
        raise InvalidParameterError(request.scope["path"].split("/")[1], "path", request.path_params["rest"])

    return [
        _counters(f"{events}total", counters.total, _WAY),
        _names(f"{events}sources", counters.sources, _WAY),
        _counters(f"{events}source/{{source}}", counters.source, _WAY, _SOURCE),
        _names(f"{events}psources", counters.physicals, _WAY),
        _counters(f"{events}psource/{{psource}}", counters.physical, _WAY, psource),
        _counters(f"{events}psource/{{psource}}/{{partition}}", counters.physical, _WAY, psource, partition),
        _names(f"{outbound}events/clients", clients),
        _counters(
            f"{outbound}events/client/{{client}}",
            lambda client: [_of("containerStats", "client", client, usage.clients).events],
            _CLIENT,
        ),
        _counters(
            "/containerStats/{way}/total", lambda way: [traffic.inbound if way == "inbound" else traffic.total], _WAY
        ),
        _names(f"{outbound}clients", lambda: sorted(traffic.clients)),
        _counters(
            f"{outbound}client/{{client}}",
            lambda client: [_of("containerStats", "outbound/client/", client, traffic.clients)],
            _CLIENT,
        ),
        Command("/containerStats/container", container, [PRETTY]),
        Command("/containerStats/{rest:path}", unknown_path),
        _counters(f"{http}total", lambda: [usage.total]),
        _names(f"{http}sources", counters.sources_requested),
        _counters(f"{http}source/{{source}}", counters.source_requests, _SOURCE),
        _names(f"{http}clients", clients),
        _counters(
            f"{http}client/{{client}}",
            lambda client: [_of("containerStats", "client", client, usage.clients).http],
            _CLIENT,
        ),
        Command("/relayStats/{rest:path}", unknown_path),
    ]


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
