"""``/containerStats`` and ``/relayStats``: counters of received events, sent events and requests, as in Databus.

A PUT or POST with ``reset`` resets counters, one with ``enabled`` stops or resumes them; its answer has the counters
before that (Databus, ``AbstractStatsRequestProcessor.java``). Nothing else depends on them.

Figures have Databus's order. Databus writes the container's with Jackson, which promises no order; here they have that
of the interface (``ContainerStatsMBean.java``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay.server._buffer import BufferInfo
from headgate.relay.server._counters import (
    CALLS,
    INBOUND_CONNECTIONS,
    OUTBOUND_CONNECTIONS,
    REQUESTS,
    SERVER,
    Counters,
    Subject,
    SubjectKind,
)
from headgate.relay.server._http._commands import Command, reply
from headgate.relay.server._http._parameters import Flag, InvalidParameterError, Number, Parameters, read_parameters
from headgate.relay.server._relay import Partition, Relay

__all__ = ["commands"]

_NS_PER_MS: Final = 1_000_000
_SUMS: Final = ("numDataEvents", "sizeDataEvents", "sizeDataEventsPayload", "numSysEvents", "sizeSysEvents")
_NEWEST: Final = ("resetNs", "accessNs", "newestNs")
_UNKNOWN: Final = {"minSeenWinScn": -1, "maxSeenWinScn": -1, "latencyEvent": 0}
_PEERS: Final = {SubjectKind.SENT_CLIENT: 1, SubjectKind.REQUESTS_CLIENT: 1}
_SENT: Final = (SubjectKind.SENT, SubjectKind.SENT_SOURCE, SubjectKind.SENT_CLIENT)
_NO_BUFFER: Final = BufferInfo(-1, -1, -1, 0, 0, 0, 0)


class _Changes(Parameters):
    """Of a PUT or POST."""

    reset: str | None = None
    """Any text resets."""
    enabled: Flag | None = None


class _Way(Parameters):
    way: Literal["inbound", "outbound"]


class _SourceEvents(_Way):
    source: Number


class _Named(_Way):
    psource: str


class _Physical(_Named):
    partition: Number


class _Source(Parameters):
    source: Number


class _OneClient(Parameters):
    client: str


class _Reported(NamedTuple):
    """Subjects of one kind that are reported together, and the name of the whole."""

    subjects: Sequence[Subject]
    dimension: str
    buffer: BufferInfo = _NO_BUFFER
    """The one with the events, if they are of one physical source."""


_Shown: TypeAlias = Callable[[Counters, _Reported], dict[str, Any]]


def _ms_since(ns: int) -> int:
    """Return ms since a time of the monotonic clock."""
    return (time.monotonic_ns() - ns) // _NS_PER_MS


def _events_json(counters: Counters, reported: _Reported) -> dict[str, Any]:
    """Return counters of events. The sum of several physical sources has no SCNs, which are valid for one only."""
    rows = [counters.read(*one) for one in reported.subjects]
    row, kind, buffer = rows[0], reported.subjects[0][0], reported.buffer
    if len(rows) > 1:
        sums = {name: sum(one[name] for one in rows) for name in _SUMS}
        row = row | sums | {name: max(one[name] for one in rows) for name in _NEWEST} | _UNKNOWN
    events, size = (row["numDataEvents"], row["sizeDataEvents"]) if kind in _SENT else (0, 0)
    since_reset, newest = _ms_since(row["resetNs"]), row["newestNs"]
    return {
        **{name: row[name] for name in _SUMS[:3]},
        "numDataEventsFiltered": events,
        "sizeDataEventsFiltered": size,
        "sizeDataEventsPayloadFiltered": 0,
        "numPeers": counters.peers if kind is SubjectKind.SENT else _PEERS.get(kind, 0),
        "minSeenWinScn": row["minSeenWinScn"],
        "maxSeenWinScn": row["maxSeenWinScn"],
        "maxFilteredWinScn": row["maxSeenWinScn"],
        **{name: row[name] for name in _SUMS[3:]},
        **dict.fromkeys(("numInvalidEvents", "numHeaderErrEvents", "numPayloadErrEvents"), 0),
        "minScn": buffer.min_scn,
        "maxScn": buffer.max_scn,
        "prevScn": buffer.oldest_resumable_scn,
        "timeSinceLastAccess": _ms_since(row["accessNs"]),
        "timeSinceCreation": since_reset,
        "timeSpan": (buffer.last_stamp - buffer.first_stamp) // _NS_PER_MS,
        "timeLag": row["latencyEvent"],
        "timeSinceLastEvent": (time.time_ns() - newest) // _NS_PER_MS if newest else 0,
        "latencyEvent": row["latencyEvent"],
        "timeSinceLastResetMs": since_reset,
        "dimension": reported.dimension,
    }


def _requests_json(counters: Counters, reported: _Reported) -> dict[str, Any]:
    """Return counters of requests. ``latencyStreamCalls`` is the mean duration of ``/stream`` in ms."""
    kind, name = reported.subjects[0]
    row = counters.read(kind, name)
    calls, errors = (sum(row[names[i]] for names in CALLS.values()) for i in (0, 1))
    return {
        **{figure: row[figure] for figure, _ in CALLS.values()},
        "numPeers": counters.peers if kind is SubjectKind.REQUESTS else _PEERS.get(kind, 0),
        "latencyStreamCalls": round(row["streamUs"] / 1000 / (row["numStreamCalls"] or 1), 3),
        "dimension": reported.dimension,
        **{figure: row[figure] for figure in ("minStreamWinScn", "maxStreamWinScn", "numScnNotFoundStream")},
        **{
            figure: row[figure]
            for command in ("stream", "register", "sources")
            for figure in (CALLS[command][1], f"{CALLS[command][1]}Req")
        },
        "httpErrorRate": errors / calls if calls else 0.0,
        "timeSinceLastResetMs": _ms_since(row["resetNs"]),
    }


def _connections_json(counters: Counters, reported: _Reported) -> dict[str, Any]:
    """Return counters of connections. A reset keeps open ones."""
    kind, name = reported.subjects[0]
    row = counters.read(kind, name)
    lives = counters.open_lives(kind, name)
    return {
        "containerId": 0,
        "timestampLastResetMs": row["resetMs"],
        "timeSinceLastResetMs": _ms_since(row["resetNs"]),
        "dimension": reported.dimension,
        "numBytes": row["numBytes"],
        "numOpenConns": len(lives),
        "numClosedConns": row["numClosedConns"],
        "numClients": row["numClients"],
        "timeClosedConnLifeMs": row["timeClosedConnLifeMs"],
        "timeOpenConnLifeMs": sum(lives),
        "errorTotalCount": row["errorTotalCount"],
        "errorConnectCount": 0,
        "errorTimeoutCount": row["errorTimeoutCount"],
    }


def _container_json(counters: Counters) -> dict[str, Any]:
    """Return counters of the server as a whole: requests, threads and errors.

    ``ioThreadRate`` is Databus's value if I/O threads are not a pool: here it is the server's own thread.
    """
    row = counters.read(*SERVER)
    workers = ("workerThreadRate", "workerThreadMax", "workerTaskCount", "workerTaskMax", "workerTaskQueueSize")
    errors = ("errorUncaughtCount", "errorRequestProcessingCount")
    return {
        "ioThreadRate": -1,
        **dict.fromkeys(("ioThreadMax", "ioTaskCount", "ioTaskMax", "ioTaskQueueSize"), 0),
        **{name: row[name] for name in workers},
        "errorCount": sum(row[name] for name in errors),
        **{name: row[name] for name in errors},
        "timestampLastResetMs": row["resetMs"],
        "timeSinceLastResetMs": _ms_since(row["resetNs"]),
    }


def _change(counters: Counters, reported: _Reported, changes: _Changes) -> None:
    for kind, name in reported.subjects:
        if changes.enabled is not None:
            counters.enable(kind, name, enabled=changes.enabled)
        if changes.reset is not None:
            counters.reset(kind, name)


def commands(relay: Relay) -> list[Command]:
    """Return the commands for counters."""
    counters, finder = relay.counters, _Finder(relay)
    inside, http, outbound = "/containerStats/{way}/", "/relayStats/outbound/http/", "/containerStats/outbound/"
    events = f"{inside}events/"

    def report(
        path: str, shown: _Shown, find: Callable[..., _Reported], model: type[Parameters] = Parameters
    ) -> Command:
        """:param find: raises InvalidParameterError."""

        async def answer(request: Request, parameters: Parameters) -> Response:
            reported, changes = find(**dict(parameters)), _Changes()
            if request.method in ("POST", "PUT"):
                changes = read_parameters("containerStats", _Changes, dict(request.query_params))
            response = reply(request, shown(counters, reported))
            _change(counters, reported, changes)
            return response

        return Command(path, answer, model, methods=("GET", "POST", "PUT"))

    def names(path: str, find: Callable[..., Sequence[Hashable]], model: type[Parameters] = Parameters) -> Command:
        async def answer(request: Request, parameters: Parameters) -> Response:
            return reply(request, find(**dict(parameters)))

        return Command(path, answer, model)

    async def container(request: Request, _parameters: Parameters) -> Response:
        workers = to_thread.current_default_thread_limiter()
        counters.observe_workers(int(workers.borrowed_tokens), workers.statistics().tasks_waiting)
        return reply(request, _container_json(counters))

    async def unknown_path(request: Request, _parameters: Parameters) -> Response:
        raise InvalidParameterError(request.scope["path"].split("/")[1], "path", request.path_params["rest"])

    return [
        report(f"{events}total", _events_json, finder.total, _Way),
        names(f"{events}sources", finder.sources, _Way),
        report(f"{events}source/{{source}}", _events_json, finder.source, _SourceEvents),
        names(f"{events}psources", finder.physicals, _Way),
        report(f"{events}psource/{{psource}}", _events_json, finder.physical, _Named),
        report(f"{events}psource/{{psource}}/{{partition}}", _events_json, finder.physical, _Physical),
        names(f"{outbound}events/clients", finder.clients),
        report(f"{outbound}events/client/{{client}}", _events_json, finder.client_events, _OneClient),
        report(f"{inside}total", _connections_json, finder.connections, _Way),
        names(f"{outbound}clients", finder.addresses),
        report(f"{outbound}client/{{client}}", _connections_json, finder.address, _OneClient),
        Command("/containerStats/container", container),
        Command("/containerStats/{rest:path}", unknown_path),
        report(f"{http}total", _requests_json, lambda: _Reported([REQUESTS], "total")),
        names(f"{http}sources", lambda: sorted(counters.names(SubjectKind.REQUESTS_SOURCE))),  # type: ignore[type-var]
        report(f"{http}source/{{source}}", _requests_json, finder.source_requests, _Source),
        names(f"{http}clients", finder.clients),
        report(f"{http}client/{{client}}", _requests_json, finder.client_requests, _OneClient),
        Command("/relayStats/{rest:path}", unknown_path),
    ]


class _Finder:
    """Finds the subjects of requests. All raise InvalidParameterError for an unknown one, or one forgotten since."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._counters = relay, relay.counters
        self._partitions = list(relay.partitions.values())

    def _events(self, way: str, partitions: Sequence[Partition]) -> _Reported:
        kind = SubjectKind.RECEIVED if way == "inbound" else SubjectKind.SENT
        subjects = [(kind, one.source.id) for one in partitions]
        if len(partitions) == 1:
            return _Reported(subjects, f"{partitions[0].source.name}.{way}", partitions[0].buffer.info())
        return _Reported(subjects, f"{way}.total")

    def total(self, way: str) -> _Reported:
        return self._events(way, self._partitions)

    def physical(self, way: str, psource: str, partition: int | None = None) -> _Reported:
        """Return one physical source, or all that share a name."""
        name = psource if partition is None else f"{psource}:{partition}"
        matches = [one for one in self._partitions if name in (one.source.name, one.name)]
        if not matches:
            raise InvalidParameterError("containerStats", "psource", name)
        return self._events(way, matches)

    def physicals(self, way: str) -> Sequence[str]:
        del way
        return [one.name for one in self._partitions]

    def sources(self, way: str) -> Sequence[Hashable]:
        kind = SubjectKind.RECEIVED_SOURCE if way == "inbound" else SubjectKind.SENT_SOURCE
        return sorted(self._counters.names(kind))  # type: ignore[type-var]

    def source(self, way: str, source: int) -> _Reported:
        """Return the events of a logical source."""
        self._check("containerStats", source)
        kind = SubjectKind.RECEIVED_SOURCE if way == "inbound" else SubjectKind.SENT_SOURCE
        physical = self._relay.partitions[self._relay.names.physical_of(source)].source
        return _Reported([(kind, source)], f"{physical.name}.{way}.{source}")

    def source_requests(self, source: int) -> _Reported:
        """Return the requests for a logical source."""
        self._check("relayStats", source)
        return _Reported([(SubjectKind.REQUESTS_SOURCE, source)], str(source))

    def _check(self, command: str, source: int) -> None:
        if self._relay.names.by_id(source) is None:
            raise InvalidParameterError(command, "source", source)

    def clients(self) -> Sequence[Hashable]:
        return sorted(self._counters.names(SubjectKind.REQUESTS_CLIENT))  # type: ignore[type-var]

    def addresses(self) -> Sequence[Hashable]:
        return sorted(self._counters.names(SubjectKind.CONNECTIONS_CLIENT))  # type: ignore[type-var]

    def client_events(self, client: str) -> _Reported:
        return self._known("client", SubjectKind.REQUESTS_CLIENT, client, SubjectKind.SENT_CLIENT)

    def client_requests(self, client: str) -> _Reported:
        return self._known("client", SubjectKind.REQUESTS_CLIENT, client, SubjectKind.REQUESTS_CLIENT)

    def address(self, client: str) -> _Reported:
        return self._known("outbound/client/", SubjectKind.CONNECTIONS_CLIENT, client, SubjectKind.CONNECTIONS_CLIENT)

    def connections(self, way: str) -> _Reported:
        return _Reported([INBOUND_CONNECTIONS if way == "inbound" else OUTBOUND_CONNECTIONS], way)

    def _known(self, parameter: str, known: SubjectKind, client: str, kind: SubjectKind) -> _Reported:
        if client not in self._counters.names(known):
            raise InvalidParameterError("containerStats", parameter, client)
        return _Reported([(kind, client)], client)
