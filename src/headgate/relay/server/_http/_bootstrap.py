"""``/startSCN``, ``/bootstrap``, ``/targetSCN``: Databus's bootstrap server, in the relay itself
(``StartSCNRequestProcessor.java``, ``BootstrapRequestProcessor.java``, ``TargetSCNRequestProcessor.java``).

An SCN is answered as a JSON *string*. The answer of ``/bootstrap`` ends with a checkpoint event, which the next request
sends back; the header ``PhaseCompleted: TRUE`` means that the phase is complete. All answers name the server in
``X-DBUS2-BS-HOSTPORT`` as ``host:port``, by the name that the client used: Databus's client resolves the name, and
continues only with a server of that address (``ServerInfo.java``, ``BootstrapPullThread.java``).

A request waits for rows in a separate thread pool, so that it blocks no other commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal

import numpy as np
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from pydantic import InstanceOf
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay.databus import (
    BOOTSTRAP_SERVER,
    CATCHUP,
    PENDING_EVENT_SIZE,
    PHASE_COMPLETED,
    BootstrapPoint,
    checkpoint_event,
)
from headgate.relay.server._http._choices import Choices
from headgate.relay.server._http._commands import HEADERS, Command, compact, events_response
from headgate.relay.server._http._pages import host_and_port
from headgate.relay.server._http._parameters import InvalidParameterError, Number, Parameters, any_case, json_text
from headgate.relay.server._http._requests import NO_FILTERS, EventVersion, FilterTexts, KeyFilters, filters_of
from headgate.relay.server._http._stream import encoded
from headgate.relay.server._relay import Relay
from headgate.relay.server._sources import LogicalSource
from headgate.relay.server._tenants import Client, client_of
from headgate.relay.server.bootstrap import Bootstrap, Piece, Supplier
from headgate.relay.server.events import Choice

__all__ = ["commands"]

_THREADS: Final = 40
"""Most requests that read rows at a time; more wait for a thread."""
_MARGIN: Final = 900
"""Bytes that Databus reserves in addition to the checkpoint of the request."""
_Point = Annotated[InstanceOf[BootstrapPoint], json_text(dict[str, Any], BootstrapPoint.from_json)]


class _Start(Parameters):
    sources: str
    """Names or ids."""
    check_point: _Point


class _Target(Parameters):
    source: str
    check_point: _Point | None = None


class _Batch(_Start):
    batch_size: Number
    output: Annotated[Literal["binary", "json", "json_plain_value"], any_case] = "binary"
    filter: Annotated[InstanceOf[KeyFilters] | None, json_text(KeyFilters)] = None
    filters: FilterTexts = NO_FILTERS
    maxev: EventVersion = 0


def commands(relay: Relay, suppliers: Mapping[int, Supplier] | None = None) -> list[Command]:
    """Return the three commands.

    :param suppliers: of rows, by physical source; default: MySQL.
    """
    handlers = _Commands(relay, suppliers or {})
    return [
        Command("/startSCN", handlers.start, _Start, for_all=True),
        Command("/bootstrap", handlers.bootstrap, _Batch, for_all=True),
        Command("/targetSCN", handlers.target, _Target, for_all=True),
    ]


class _Commands:
    def __init__(self, relay: Relay, suppliers: Mapping[int, Supplier]) -> None:
        self._relay, self._choices, self._threads = relay, Choices(relay), CapacityLimiter(_THREADS)
        self._bootstraps = {
            number: Bootstrap(relay, partition, suppliers.get(number)) for number, partition in relay.partitions.items()
        }

    def _source(self, client: Client, command: str, parameter: str, name_or_id: str) -> LogicalSource:
        """Return a source by its name or id.

        :raises NotAllowedError: the client may not read it.
        """
        wanted = name_or_id.strip()
        source = next((one for one in self._relay.names.all() if wanted in (one.name, str(one.id))), None)
        if source is None:
            raise InvalidParameterError(command, parameter, name_or_id)
        client.check([source.name])
        return source

    def _source_of(self, point: BootstrapPoint, client: Client) -> LogicalSource:
        """Return the source whose rows or changes come next."""
        is_catchup = point.mode == CATCHUP
        name = point.catchup_source if is_catchup else point.snapshot_source
        source = self._source(client, "bootstrap", "checkPoint", name)
        if point.start < 0 or (point.target if is_catchup else point.offset) < 0:
            problem = "it has no start or no target" if is_catchup else "it has no start, or its rows are complete"
            raise InvalidParameterError("bootstrap", "checkPoint", problem)
        return source

    def _of(self, source: LogicalSource) -> Bootstrap:
        return self._bootstraps[self._relay.names.physical_of(source.id)]

    async def start(self, request: Request, parameters: _Start) -> Response:
        """``/startSCN``"""
        sources = [
            self._source(client_of(request), "startSCN", "sources", one) for one in parameters.sources.split(",")
        ]
        bootstraps = {id(one): one for one in map(self._of, sources)}
        if len(bootstraps) > 1:
            raise InvalidParameterError("startSCN", "sources", "sources of different physical sources")
        (one,) = bootstraps.values()
        scn = await run_sync(one.start, parameters.check_point.since, limiter=self._threads)
        return _scn(request, scn)

    async def target(self, request: Request, parameters: _Target) -> Response:
        """``/targetSCN``"""
        point = parameters.check_point or BootstrapPoint()
        bootstrap = self._of(self._source(client_of(request), "targetSCN", "source", parameters.source))
        return _scn(request, await run_sync(bootstrap.target, point, limiter=self._threads))

    async def bootstrap(self, request: Request, parameters: _Batch) -> Response:
        """``/bootstrap``"""
        point = parameters.check_point
        head = len(compact(point.to_json())) + _MARGIN
        size = max(parameters.batch_size - head, 0)
        source = self._source_of(point, client_of(request))
        bootstrap, choice = self._of(source), partial(self._choice, source, parameters)
        choice()  # refuse filters that do not fit before anything is read
        read = partial(bootstrap.changes, point) if point.mode == CATCHUP else partial(bootstrap.rows, point, source)
        piece = await run_sync(read, min(size, self._relay.config.limits.answer), choice, limiter=self._threads)
        if not piece.batch.size and 0 < piece.batch.pending <= size:
            piece = await run_sync(read, piece.batch.pending, choice, limiter=self._threads)
        headers = _headers(request)
        if piece.is_last:
            headers[PHASE_COMPLETED] = "TRUE"
        if not piece.batch.size and piece.batch.pending:
            headers[PENDING_EVENT_SIZE] = str(piece.batch.pending + head)
        body = await run_sync(self._body, source, piece, parameters, limiter=self._threads)
        return events_response(request, body, headers)

    def _choice(self, source: LogicalSource, parameters: _Batch) -> Choice:
        one = parameters.filter
        filters = parameters.filters if one is None else filters_of({str(source.id): one})
        return self._choices.of("bootstrap", [source.id], filters)

    def _body(self, source: LogicalSource, piece: Piece, parameters: _Batch) -> bytes | memoryview[int]:
        data = piece.batch.joined()
        if not piece.is_last and not piece.batch.pending:
            partition = self._relay.names.physical_of(source.id)
            event = checkpoint_event(piece.after, self._relay.config.event_version, partition)
            data = np.concatenate([data, event])
        return encoded(data, parameters.output, accepted=parameters.maxev)


def _headers(request: Request) -> dict[str, str]:
    server = host_and_port(request.headers.get("host", ""), request.scope["server"])
    return {**HEADERS, BOOTSTRAP_SERVER: server}


def _scn(request: Request, scn: int) -> Response:
    return Response(compact(str(scn)), headers=_headers(request))
