"""``/containerStats`` and ``/relayStats``: what came in, what went out and who asked, as Databus counts it.

A PUT or POST with ``reset`` begins to count anew, one with ``enabled`` stops or goes on; its answer has the counters as
they were (Databus, ``AbstractStatsRequestProcessor.java``). Nothing else depends on them.
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

_Given = Mapping[str, Any]

_CHANGES: Final = (
    presence("reset", "Begin to count anew."),
    replace(flag("enabled", "true: count; anything else: do not, until it is true again."), default=None),
)
_WAY: Final = choice("way", "What came in, or what went out.", ("inbound", "outbound"), in_path=True)
_SOURCE: Final = integer("source", "Its id.", in_path=True)
_CLIENT: Final = segment("client", "Its name.")


def _schema(kind: type[Counters]) -> Mapping[str, Any]:
    return object_of(**{name: {"type": "string" if name == "dimension" else "number"} for name in kind.ZERO})


def _counters(
    path: str,
    about: str,
    parameters: Sequence[Parameter],
    kind: type[Counters],
    find: Callable[[_Given], Sequence[Counters]],
) -> Command:
    """:param find: one, or those of several physical sources; raises InvalidParameterError."""

    async def answer(request: Request, given: _Given) -> Response:
        stats = find(given)
        told = stats[0] if len(stats) == 1 else EventStats.together(f"{given['way']}.total", stats)
        response = reply(request, told.to_json())
        for one in stats:
            if given.get("enabled") is not None:
                one.enabled = given["enabled"]
            if given.get("reset"):
                one.reset()
        return response

    return Command(path, answer, about, [*parameters, PRETTY], _schema(kind), changes=_CHANGES)


def _names(
    path: str, about: str, find: Callable[[_Given], Sequence[Any]], *parameters: Parameter, kind: str = "string"
) -> Command:
    async def answer(request: Request, given: _Given) -> Response:
        return reply(request, find(given))

    return Command(path, answer, about, [*parameters, PRETTY], {"type": "array", "items": {"type": kind}})


def commands(relay: Relay) -> list[Command]:
    """The counters, in all, by source and by physical source."""
    found, usage, traffic = _Found(relay), relay.usage, relay.traffic
    events, psource, http = (
        "/containerStats/{way}/events/",
        "Counters of a physical source",
        "/relayStats/outbound/http/",
    )
    outbound = "/containerStats/outbound/"

    def clients(given: _Given) -> Sequence[str]:
        del given
        return sorted(usage.clients)

    async def container(request: Request, given: _Given) -> Response:
        del given
        workers = to_thread.current_default_thread_limiter()
        usage.container.look(int(workers.borrowed_tokens), workers.statistics().tasks_waiting)
        return reply(request, usage.container.to_json())

    async def nothing(request: Request, given: _Given) -> Response:
        del given
        raise InvalidParameterError(request.scope["path"].split("/")[1], "path", request.path_params["rest"])

    return [
        _counters(f"{events}total", "Counters of all events", [_WAY], EventStats, found.total),
        _names(f"{events}sources", "The ids of sources that had events", found.sources, _WAY, kind="integer"),
        _counters(f"{events}source/{{source}}", "Counters of a source", [_WAY, _SOURCE], EventStats, found.source),
        _names(f"{events}psources", "The physical sources, name:id", found.physicals, _WAY),
        _counters(
            f"{events}psource/{{psource}}", psource, [_WAY, segment("psource", "Its name, or name:id.")], EventStats,
            found.physical,
        ),
        _counters(
            f"{events}psource/{{psource}}/{{partition}}", psource,
            [_WAY, segment("psource", "Its name."), integer("partition", "Its id.", in_path=True)], EventStats,
            found.physical,
        ),
        _names(f"{outbound}events/clients", "The clients that asked: tenants, or addresses", clients),
        _counters(
            f"{outbound}events/client/{{client}}", "Counters of what a client was given", [_CLIENT], EventStats,
            lambda given: [_of("containerStats", "client", given, usage.clients).events],
        ),
        _counters(
            "/containerStats/{way}/total",
            "Counters of all connections that consumers make (outbound), or the relay itself by HTTP (inbound: none)",
            [_WAY], TrafficStats, lambda given: [traffic.inbound if given["way"] == "inbound" else traffic.total],
        ),
        _names(f"{outbound}clients", "The addresses that connected", lambda _: sorted(traffic.clients)),
        _counters(
            f"{outbound}client/{{client}}", "Counters of an address's connections", [segment("client", "The address.")],
            TrafficStats, lambda given: [_of("containerStats", "outbound/client/", given, traffic.clients)],
        ),
        Command(
            "/containerStats/container", container, "Requests, the threads that answer them, and errors", [PRETTY],
            _schema(ContainerStats),
        ),
        Command("/containerStats/{rest:path}", nothing, "A path that names no counters", shown=False),
        _counters(f"{http}total", "Counters of all requests", [], HttpStats, lambda _: [usage.total]),
        _names(f"{http}sources", "The ids of sources that were asked for", found.sources_asked, kind="integer"),
        _counters(
            f"{http}source/{{source}}", "Counters of the streams of a source", [_SOURCE], HttpStats, found.asked
        ),
        _names(f"{http}clients", "The clients that asked", clients),
        _counters(
            f"{http}client/{{client}}", "Counters of a client's requests", [_CLIENT], HttpStats,
            lambda given: [_of("containerStats", "client", given, usage.clients).http],
        ),
        Command("/relayStats/{rest:path}", nothing, "A path that names no counters", shown=False),
    ]  # fmt: skip


def _of(command: str, parameter: str, given: _Given, known: Mapping[str, Any]) -> Any:
    """A client's counters.

    :raises InvalidParameterError: it never came, or long ago.
    """
    if given["client"] not in known:
        raise InvalidParameterError(command, parameter, given["client"])
    return known[given["client"]]


class _Found:
    """Counters of sources."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._partitions = relay, list(relay.partitions.values())

    def total(self, given: _Given) -> Sequence[Counters]:
        """Of all physical sources."""
        return [one.feeder.stats if given["way"] == "inbound" else one.outbound for one in self._partitions]

    def physical(self, given: _Given) -> Sequence[Counters]:
        """Of one, or of all that share a name."""
        name = given["psource"] if given.get("partition") is None else f"{given['psource']}:{given['partition']}"
        pairs = zip(self._partitions, self.total(given), strict=True)
        found = [stats for one, stats in pairs if name in (one.source.name, one.name)]
        if not found:
            raise InvalidParameterError("containerStats", "psource", name)
        return found

    def physicals(self, given: _Given) -> Sequence[str]:
        """Names of physical sources."""
        del given
        return [one.name for one in self._partitions]

    def sources_asked(self, given: _Given) -> Sequence[int]:
        """Those that were asked for."""
        del given
        return sorted(self._relay.usage.by_source)

    def sources(self, given: _Given) -> Sequence[int]:
        """Those that had events."""
        return self._relay.given.sources() if given["way"] == "outbound" else sorted(self._came())

    def source(self, given: _Given) -> Sequence[Counters]:
        """Of a logical source."""
        number = self._known("containerStats", given)
        if given["way"] == "inbound":
            return [self._came().get(number) or EventStats(str(number))]
        physical = self._relay.names.physical_of(number)
        assert physical is not None
        return [self._relay.given.of(number, f"{self._relay.partitions[physical].outbound['dimension']}.{number}")]

    def asked(self, given: _Given) -> Sequence[Counters]:
        """Requests for a logical source."""
        number = self._known("relayStats", given)
        return [self._relay.usage.by_source.get(number) or HttpStats(str(number))]

    def _known(self, command: str, given: _Given) -> int:
        number: int = given["source"]
        if self._relay.names.by_id(number) is None:
            raise InvalidParameterError(command, "source", number)
        return number

    def _came(self) -> dict[int, EventStats]:
        """By source, what came in."""
        return {number: stats for one in self._partitions for number, stats in one.feeder.source_stats.items()}
