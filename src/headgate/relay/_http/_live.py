"""``/events``: decoded changes as server-sent events (WHATWG HTML, "Server-sent events"), for browsers and ``curl -N``.

A message is one change, its data the JSON object that ``headgate consume`` prints; an ``end`` message follows the last
one of each transaction. Ids are positions: ``<SCN>:<events of the transaction so far>``, and ``<SCN>`` at its end. A
browser that lost the connection reconnects with the last id in ``Last-Event-ID`` and gets what follows it. So it sees
every change at least once, in order, while the buffer reaches back to that id. If the buffer does not, the first answer
is the same error as of ``/stream``, and the browser stops; in a running answer it is a ``failure`` message, then the
end.

Without events a comment is sent every 15 s, so that proxies do not close the connection. Nothing is read ahead of a
slow client, except one piece of at most 256 KiB of events.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headgate.databus import EOP_SOURCE, EventFields, StreamPosition
from headgate.errors import HeadgateError
from headgate.kernels import text_bytes
from headgate.relay._buffer import Batch, KeyIsNoNumberError
from headgate.relay._http._commands import Command, compact
from headgate.relay._http._decoded import positions_after, row_lines, window_offsets
from headgate.relay._http._openapi import ROW_REFERENCE
from headgate.relay._http._parameters import InvalidParameterError, integer
from headgate.relay._http._reading import Streams
from headgate.relay._http._requests import STREAM, StreamRequest, build_stream_request, readable
from headgate.relay._relay import Relay
from headgate.relay._tenants import client_of

__all__ = ["command"]

MEDIA: Final = "text/event-stream"
_HEADERS: Final = {"content-type": MEDIA, "cache-control": "no-store"}
_POSITION: Final = re.compile(r"([0-9]{1,19})(?::([0-9]{1,10}))?", re.ASCII)
_RETRY_MS: Final = 1000
_COMMON: Final = {"sources", "checkPoint", "streamFromLatestScn", "filters", "maxev"}
"""The parameters that mean the same as in ``/stream``."""


def command(relay: Relay, streams: Streams) -> Command:
    """Return the command ``/events``."""
    parameters = [one for one in STREAM if one.name in _COMMON]
    seconds = integer("seconds", "End after so many seconds; default: never.", most=86_400)
    return Command(
        "/events",
        _Live(relay, streams).events,
        "Decoded changes of one physical source as server-sent events",
        [*parameters, seconds],
        {"description": f"Messages; the data of a change is a {ROW_REFERENCE}."},
        media=(MEDIA,),
        for_all=True,
    )


class _Live:
    def __init__(self, relay: Relay, streams: Streams) -> None:
        self._relay, self._streams, self._piece = relay, streams, relay.config.limits.piece

    async def events(self, request: Request, parameters: Mapping[str, Any]) -> Response:
        stream_request = self._stream_request(request, parameters)
        if request.method == "HEAD":
            return Response(headers=_HEADERS)
        batch = await self._streams.read(
            stream_request
        )  # before the response starts, so that an early error is the request's
        return StreamingResponse(self._messages(stream_request, batch, parameters["seconds"]), headers=_HEADERS)

    def _stream_request(self, request: Request, parameters: Mapping[str, Any]) -> StreamRequest:
        unused = {"subs": None, "checkPointMult": None, "wait": 0, "size": self._piece, "output": "rows"}
        client, names = client_of(request), self._relay.names
        if parameters["sources"] is None:
            parameters = {**parameters, "sources": readable(client, names)}
        stream_request = build_stream_request({**parameters, **unused}, client, self._relay)
        if len(stream_request.positions) != 1:
            raise InvalidParameterError("events", "sources", "sources of one physical source, not of several or none")
        last = request.headers.get("last-event-id")
        if not last:
            return stream_request
        return replace(stream_request, positions=dict.fromkeys(stream_request.positions, _parse_position(last)))

    async def _messages(self, stream_request: StreamRequest, batch: Batch, seconds: int | None) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        yield f"retry: {_RETRY_MS}\n\n".encode()
        try:
            while True:
                if batch.size:
                    text, stream_request = await run_in_threadpool(self._text, stream_request, batch)
                    yield text
                elif batch.pending:
                    stream_request = replace(stream_request, size=batch.pending)
                else:
                    yield b":\n\n"
                heartbeat = self._relay.times.heartbeat
                left = heartbeat if end is None else min(heartbeat, end - loop.time())
                if left <= 0:
                    return
                batch = await self._streams.read(replace(stream_request, wait_ms=max(1, int(left * 1000))))
        except (HeadgateError, KeyIsNoNumberError, InvalidParameterError) as error:
            value = compact({"error": type(error).__name__, "message": " ".join(str(error).split())})
            yield f"event: failure\ndata: {value}\n\n".encode()

    def _text(self, stream_request: StreamRequest, batch: Batch) -> tuple[bytes, StreamRequest]:
        """Return the messages of a batch, and the next request."""
        fields, decoded = self._streams.decode(stream_request, batch)
        ((number, position),) = stream_request.positions.items()
        lines, events = row_lines(decoded)
        texts = _with_ends(fields, window_offsets(fields, position), lines, events)
        positions = positions_after(fields, {number: position})
        return text_bytes(texts), replace(stream_request, positions=positions, size=self._piece)


def _with_ends(fields: EventFields, offsets: Any, lines: pa.Array, events: Any) -> pa.Array:
    """Return each event as a message, in their order."""
    ends = np.flatnonzero(fields.source == EOP_SOURCE)
    scns = pa.array(fields.scn).cast(pa.string())
    ids = pc.binary_join_element_wise("id: ", scns, ":", pa.array(offsets).cast(pa.string()), "")
    changes = pc.binary_join_element_wise(ids.take(pa.array(events)), "\ndata: ", lines, "\n\n", "")
    closed = scns.take(pa.array(ends))
    marks = pc.binary_join_element_wise("event: end\nid: ", closed, '\ndata: {"scn":', closed, "}\n\n", "")
    order = np.argsort(np.concatenate([events, ends]))
    return pa.concat_arrays([changes, marks]).take(pa.array(order))


def _parse_position(text: str) -> StreamPosition:
    match = _POSITION.fullmatch(text)
    if match is None or int(match[1]) >= 2**63:
        raise InvalidParameterError("events", "Last-Event-ID", text)
    return StreamPosition(int(match[1]), -1 if match[2] is None else int(match[2]))
