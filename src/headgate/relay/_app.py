"""The relay over HTTP: Databus's commands, answered as its clients expect.

A command is the first segment of the path. What is the same for all of them (Databus, ``DatabusRequest.java``,
``DatabusHttpHeaders.java``): bodies are ``text/plain; charset=UTF-8`` whatever they hold, anybody's page may read them,
and an error is status 500, a body ``{"error": …, "message": …}`` and headers with the Java classes of error and cause,
by which clients tell a consumer that is too far behind (``ScnNotFoundException``) from everything else.

``/stream`` answers from memory in the server's own thread, which takes microseconds; what is in files only is read in
another thread. A response refers to the buffer's bytes; nothing is copied until they are sent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headgate.errors import HeadgateError, ScnNotFoundError
from headgate.relay._buffer import Batch, KeyIsNoNumberError, Place, Stretch
from headgate.relay._choice import Choice, choice_of
from headgate.relay._events import EOP_SIZE, convert_to_v1
from headgate.relay._json import json_lines
from headgate.relay._relay import Partition, Relay
from headgate.relay._requests import InvalidParameterError, StreamRequest, number, source_ids, stream_request
from headgate.relay._sources import LogicalSource
from headgate.relay._stats import EventStats

__all__ = ["create_app"]

_HEADERS: Final = {"content-type": "text/plain; charset=UTF-8", "access-control-allow-origin": "*"}
_JAVA: Final = "com.linkedin.databus2.core.container.request."
_PROCESSING: Final = f"{_JAVA}RequestProcessingException"
_INVALID: Final = f"{_JAVA}InvalidRequestParamValueException"
_UNKNOWN: Final = f"{_JAVA}UnknownCommandException"
_SCN_NOT_FOUND: Final = "com.linkedin.databus.core.ScnNotFoundException"
_NS_PER_MS: Final = 1_000_000
_PROTOCOLS: Final = (2, 3, 4)
_LARGEST_BATCH: Final = 16 << 20
"""More than this is given in several answers, whatever ``size`` says, unless it is one event."""
_LARGE_BODY: Final = 1 << 20
"""Bodies from here on, and JSON, are put together in another thread, so that nobody waits for them."""


def create_app(relay: Relay) -> Starlette:
    """The HTTP side of a relay."""
    commands = _Commands(relay)
    routes = [
        Route("/sources", _safely(commands.sources)),
        Route("/register", _safely(commands.register)),
        Route("/stream", _safely(commands.stream)),
        Route("/containerStats/{rest:path}", _safely(commands.container_stats)),
        Route("/bufferInfo/{rest:path}", _safely(commands.buffer_info)),
        Route("/physicalSources", _safely(commands.physical_sources)),
        Route("/physicalBuffers", _safely(commands.physical_buffers)),
        Route("/admin", _safely(commands.admin)),
        Route("/admin/status", _safely(commands.admin)),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _unknown, 405: _unknown})
    app.router.redirect_slashes = False
    return app


async def _unknown(request: Request, error: Exception) -> Response:
    """A path that means nothing, or another method than GET."""
    del error
    return _failure(_UNKNOWN, f"Unknown command: {request.method} {request.url.path}")


def _safely(command: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """Errors as Databus's clients read them."""

    async def answer(request: Request) -> Response:
        try:
            response: Response = await command(request)
        except InvalidParameterError as error:
            return _failure(_INVALID, str(error))
        except ScnNotFoundError as error:
            return _failure(_PROCESSING, str(error), _SCN_NOT_FOUND)
        except (HeadgateError, KeyIsNoNumberError) as error:
            return _failure(_PROCESSING, str(error))
        return response

    return answer


def _failure(error: str, message: str, cause: str | None = None) -> Response:
    text = " ".join(message.split())
    headers = {**_HEADERS, "x-dbus-error": error, "x-dbus-error-message": _in_header(text)}
    if cause is not None:
        headers |= {"x-dbus-error-cause": cause, "x-dbus-error-cause-message": _in_header(text)}
    return Response(_compact({"error": error, "message": text}) + "\r\n", 500, headers)


def _in_header(text: str) -> str:
    """As it may stand in a header: what is not printable ASCII is escaped."""
    return text.encode("unicode_escape").decode("ascii")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pretty(value: Any) -> str:
    """As Jackson's default printer has it: ``"name" : value`` a line."""
    return json.dumps(value, ensure_ascii=False, indent=2, separators=(",", " : "))


def _reply(request: Request, value: Any) -> Response:
    text = _pretty(value) if "pretty" in request.query_params else _compact(value)
    return Response(text, headers=_HEADERS)


class _Commands:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._clients: set[str] = set()

    # --- what there is

    async def sources(self, request: Request) -> Response:
        version = number(request.query_params, "sources", "v", 1)
        if version not in (1, 2):
            raise InvalidParameterError("sources", "v", version)
        found = self._relay.names.all()
        if version == 1:
            return _reply(request, [{"name": one.name, "id": one.id} for one in found])
        wild = {"wildcard": False, "allSourcesWildcard": False}
        return _reply(request, [{"id": one.id, "name": one.name, **wild} for one in found])

    async def register(self, request: Request) -> Response:
        parameters = request.query_params
        protocol = number(parameters, "register", "protocolVersion", 3)
        if protocol not in _PROTOCOLS:
            raise InvalidParameterError("register", "protocolVersion", protocol)
        names = self._relay.names
        given = parameters.get("sources")
        wanted: list[LogicalSource] = names.all()
        if given is not None:
            ids = source_ids(given, names, "register")
            wanted = [one for number in ids if (one := names.by_id(number)) is not None]
        entries = [
            {"id": one.id, "version": schema.version, "schema": schema.text}
            for one in wanted
            for schema in self._relay.registry.versions(one.name)
        ]
        text = _compact({"sourceSchemas": entries} if protocol == 4 else entries)
        if parameters.get("compress") == "true":
            text = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        return Response(text, headers={**_HEADERS, "x-dbus-protocol-version": str(protocol)})

    async def physical_sources(self, request: Request) -> Response:
        return _reply(request, [dict(one.source.shown) for one in self._relay.partitions.values()])

    async def physical_buffers(self, request: Request) -> Response:
        names = self._relay.names
        return _reply(
            request,
            {
                f"{one.source.name}:{number}": [
                    {"name": source.name, "id": source.id}
                    for source in names.all()
                    if names.physical_of(source.id) == number
                ]
                for number, one in self._relay.partitions.items()
            },
        )

    # --- how it is

    async def admin(self, request: Request) -> Response:
        status, message = self._relay.status()
        return _reply(request, {"status": status, "message": message})

    async def buffer_info(self, request: Request) -> Response:
        match request.path_params["rest"].split("/"):
            case ["inbound", name, digits] if digits.isascii() and digits.isdigit():
                found = self._relay.partitions.get(int(digits))
                if found is None or found.source.name != name:
                    raise InvalidParameterError("bufferInfo", "partition", f"{name}/{digits}")
            case other:
                raise InvalidParameterError("bufferInfo", "path", "/".join(other))
        info = found.buffer.info()
        stamps = [stamp if stamp < 0 else stamp // _NS_PER_MS for stamp in (info.last_stamp, info.first_stamp)]
        value = {"minScn": info.min_scn, "maxScn": info.max_scn}
        return _reply(request, value | {"timestampLatestEvent": stamps[0], "timestampFirstEvent": stamps[1]})

    async def container_stats(self, request: Request) -> Response:
        path = request.path_params["rest"].split("/")
        partitions = list(self._relay.partitions.values())
        match path:
            case [("inbound" | "outbound") as way, "events", "total"]:
                return _reply(request, _total(way, partitions))
            case ["inbound", "events", "sources"]:
                return _reply(request, sorted(_by_source(partitions)))
            case ["inbound", "events", "source", digits] if digits.isascii() and digits.isdigit():
                known = self._relay.names.by_id(int(digits))
                if known is None:
                    raise InvalidParameterError("containerStats", "source", digits)
                return _reply(request, _by_source(partitions).get(known.id, EventStats(digits)).to_json())
            case [("inbound" | "outbound"), "events", "psources"]:
                return _reply(request, [f"{one.source.name}:{one.source.id}" for one in partitions])
            case [("inbound" | "outbound") as way, "events", "psource", name]:
                found = [one for one in partitions if name in (one.source.name, f"{one.source.name}:{one.source.id}")]
                if not found:
                    raise InvalidParameterError("containerStats", "psource", name)
                return _reply(request, _total(way, found))
        raise InvalidParameterError("containerStats", "path", "/".join(path))

    # --- events

    async def stream(self, request: Request) -> Response:
        asked = stream_request(request.query_params, self._relay.names, list(self._relay.partitions))
        if request.client is not None:
            self._clients.add(request.client.host)
        batch = await self._read(asked)
        if not batch.size and not batch.pending and asked.wait_ms:
            batch = await self._await_events(asked, asked.wait_ms / 1000)
        headers = dict(_HEADERS)
        if not batch.size and batch.pending:
            headers["x-dbus-pending-event-size"] = str(batch.pending)
        if asked.encoding == "binary" and batch.size < _LARGE_BODY:
            return Response(self._body(asked, batch), headers=headers)
        return Response(await run_in_threadpool(self._body, asked, batch), headers=headers)

    async def _read(self, asked: StreamRequest) -> Batch:
        places = {
            number: self._relay.partitions[number].buffer.last_place() if asked.latest else place
            for number, place in asked.places.items()
        }
        if all(self._relay.partitions[number].buffer.in_memory(place) for number, place in places.items()):
            return self._read_now(asked, places)
        return await run_in_threadpool(self._read_now, asked, places)

    def _read_now(self, asked: StreamRequest, places: Mapping[int, Place]) -> Batch:
        batch = self._read_up_to(min(asked.size, _LARGEST_BATCH), asked, places)
        if not batch.size and 0 < batch.pending <= asked.size:
            batch = self._read_up_to(batch.pending, asked, places)
        return batch

    def _read_up_to(self, size: int, asked: StreamRequest, places: Mapping[int, Place]) -> Batch:
        batch = Batch([])
        for partition, stretch in self._turns(places):
            before = batch.events, batch.control, batch.size
            more = batch.add(stretch, size, self._choice(asked, partition))
            self._count(self._relay.partitions[partition], batch, before)
            if not more:
                break
        for partition, place in places.items():
            self._relay.partitions[partition].buffer.release(place.scn if place.offset < 0 else place.scn - 1)
        return batch

    def _turns(self, places: Mapping[int, Place]) -> Iterator[tuple[int, Stretch]]:
        """Of one partition all there is; of several a window of each by turns."""
        several = len(places) > 1
        waiting = [
            (number, self._relay.partitions[number].buffer.stretches(place, each=several))
            for number, place in places.items()
        ]
        while waiting:
            left = []
            for partition, stretches in waiting:
                for stretch in stretches:
                    yield partition, stretch
                    if several:
                        left.append((partition, stretches))
                        break
            waiting = left

    def _choice(self, asked: StreamRequest, partition: int) -> Choice | None:
        """What to choose; None where that is all that the partition has."""
        names = self._relay.names
        there = [one.id for one in names.all() if names.physical_of(one.id) == partition]
        wanted = there if asked.sources is None else asked.sources
        return None if set(there) <= set(wanted) and not asked.rules else choice_of(wanted, asked.rules)

    def _count(self, partition: Partition, batch: Batch, before: tuple[int, int, int]) -> None:
        stats = partition.outbound
        events, control, size = batch.events - before[0], batch.control - before[1], batch.size - before[2]
        of_control = control * EOP_SIZE[self._relay.config.event_version]
        stats.events += events
        stats.chosen += events
        stats.control += control
        stats.control_bytes += of_control
        stats.bytes += size - of_control
        stats.chosen_bytes += size - of_control
        stats.peers = len(self._clients)

    async def _await_events(self, asked: StreamRequest, seconds: float) -> Batch:
        """Read again whenever something was put in, until there are events or the time is over."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        end = loop.time() + seconds

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(news.set)

        forget = [self._relay.partitions[number].buffer.on_append(tell) for number in asked.places]
        try:
            while True:
                news.clear()
                batch = await self._read(asked)
                if batch.size or batch.pending or loop.time() >= end:
                    return batch
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(news.wait(), end - loop.time())
        finally:
            for one in forget:
                one()

    def _body(self, asked: StreamRequest, batch: Batch) -> bytes:
        data = batch.parts[0] if len(batch.parts) == 1 else np.concatenate([np.zeros(0, np.uint8), *batch.parts])
        if asked.version < self._relay.config.event_version:
            data = convert_to_v1(data)
        if asked.encoding == "binary":
            return bytes(data)
        return json_lines(data, plain=asked.encoding == "json_plain_value")


def _total(way: str, partitions: list[Partition]) -> dict[str, Any]:
    """Of all partitions together; SCNs mean something for one only."""
    parts = [one.feeder.stats if way == "inbound" else one.outbound for one in partitions]
    if len(parts) == 1:
        return parts[0].to_json(partitions[0].buffer.info())
    total = EventStats(f"{way}.total")
    for one in parts:
        for name in ("events", "bytes", "payload", "control", "control_bytes", "chosen", "chosen_bytes"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.peers = max(total.peers, one.peers)
        total.last_stamp = max(total.last_stamp, one.last_stamp)
    return total.to_json()


def _by_source(partitions: list[Partition]) -> dict[int, EventStats]:
    return {number: stats for one in partitions for number, stats in one.feeder.source_stats.items()}
