"""``/events``: decoded changes as server-sent events (WHATWG HTML, "Server-sent events"), for browsers and ``curl -N``.

A message is one change, its data the JSON object that ``headgate consume`` prints; an ``end`` message follows the last
one of each transaction. Ids are places: ``<SCN>:<events of the transaction so far>``, and ``<SCN>`` at its end. A
browser that lost the connection comes again with the last one it saw in ``Last-Event-ID`` and gets what follows it, so
it sees every change at least once, in order, as long as the buffer reaches back. Where it does not, the first answer is
the same error as of ``/stream``, at which a browser ends; within an answer it is a ``failure`` message, then the end.

While nothing happens a comment is sent from time to time, so that whoever is between does not take the connection for
dead. What a client does not take is not read ahead: one piece of at most 256 KiB of events at a time.
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

from headgate.databus import EOP_SOURCE, EventFields, Place
from headgate.errors import HeadgateError
from headgate.kernels import text_bytes
from headgate.relay._buffer import Batch, KeyIsNoNumberError
from headgate.relay._http._commands import Command, compact
from headgate.relay._http._decoded import places_after, row_lines, window_offsets
from headgate.relay._http._openapi import ROW_PLACE
from headgate.relay._http._parameters import InvalidParameterError, integer
from headgate.relay._http._reading import Streams
from headgate.relay._http._requests import STREAM, StreamRequest, readable, stream_request
from headgate.relay._relay import Relay
from headgate.relay._tenants import client_of

__all__ = ["command"]

MEDIA: Final = "text/event-stream"
_HEADERS: Final = {"content-type": MEDIA, "cache-control": "no-store"}
_PLACE: Final = re.compile(r"([0-9]{1,19})(?::([0-9]{1,10}))?", re.ASCII)
_PIECE: Final = 256 << 10
_HEARTBEAT_SECONDS: Final = 15.0
"""Proxies close connections that were idle for a minute, some after half of that."""
_RETRY_MS: Final = 1000
_COMMON: Final = {"sources", "checkPoint", "streamFromLatestScn", "filters", "maxev"}
"""The parameters of ``/stream`` that mean the same here."""


def command(relay: Relay, streams: Streams) -> Command:
    """``/events``."""
    parameters = [one for one in STREAM if one.name in _COMMON]
    seconds = integer("seconds", "End after so many seconds; by default never.", most=86_400)
    return Command(
        "/events",
        _Live(relay, streams).events,
        "Decoded changes of one physical source as server-sent events",
        [*parameters, seconds],
        {"description": f"Messages; the data of a change is a {ROW_PLACE}."},
        media=(MEDIA,),
        for_all=True,
    )


class _Live:
    def __init__(self, relay: Relay, streams: Streams) -> None:
        self._relay, self._streams = relay, streams

    async def events(self, request: Request, given: Mapping[str, Any]) -> Response:
        asked = self._asked(request, given)
        if request.method == "HEAD":
            return Response(headers=_HEADERS)
        batch = await self._streams.read(asked)  # so that what is wrong from the start is an error of the request
        return StreamingResponse(self._messages(asked, batch, given["seconds"]), headers=_HEADERS)

    def _asked(self, request: Request, given: Mapping[str, Any]) -> StreamRequest:
        unused = {"subs": None, "checkPointMult": None, "wait": 0, "size": _PIECE, "output": "rows"}
        client, selections = client_of(request), self._relay.selections
        if given["sources"] is None:
            given = {**given, "sources": readable(client, selections)}
        asked = stream_request({**given, **unused}, client, selections, list(self._relay.partitions))
        if len(asked.places) != 1:
            raise InvalidParameterError("events", "sources", "sources of one physical source, not of several or none")
        last = request.headers.get("last-event-id")
        if not last:
            return self._streams.begin(asked)
        return replace(asked, places=dict.fromkeys(asked.places, _place(last)), latest=False)

    async def _messages(self, asked: StreamRequest, batch: Batch, seconds: int | None) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        yield f"retry: {_RETRY_MS}\n\n".encode()
        try:
            while True:
                if batch.size:
                    text, asked = await run_in_threadpool(self._text, asked, batch)
                    yield text
                elif batch.pending:
                    asked = replace(asked, size=batch.pending)
                else:
                    yield b":\n\n"
                left = _HEARTBEAT_SECONDS if end is None else min(_HEARTBEAT_SECONDS, end - loop.time())
                if left <= 0:
                    return
                batch = await self._streams.read(replace(asked, wait_ms=max(1, int(left * 1000))))
        except (HeadgateError, KeyIsNoNumberError, InvalidParameterError) as error:
            value = compact({"error": type(error).__name__, "message": " ".join(str(error).split())})
            yield f"event: failure\ndata: {value}\n\n".encode()

    def _text(self, asked: StreamRequest, batch: Batch) -> tuple[bytes, StreamRequest]:
        """The messages of a batch, and what to ask for next."""
        _, fields, found = self._streams.decode(asked, batch)
        ((number, place),) = asked.places.items()
        lines, events = row_lines(found)
        texts = _with_ends(fields, window_offsets(fields, place), lines, events)
        places = places_after(fields, {number: place})
        return text_bytes(texts), replace(asked, places=places, size=_PIECE)


def _with_ends(fields: EventFields, offsets: Any, lines: pa.Array, events: Any) -> pa.Array:
    """Each event as a message, in their order."""
    ends = np.flatnonzero(fields.source == EOP_SOURCE)
    scns = pa.array(fields.scn).cast(pa.string())
    ids = pc.binary_join_element_wise("id: ", scns, ":", pa.array(offsets).cast(pa.string()), "")
    changes = pc.binary_join_element_wise(ids.take(pa.array(events)), "\ndata: ", lines, "\n\n", "")
    closed = scns.take(pa.array(ends))
    marks = pc.binary_join_element_wise("event: end\nid: ", closed, '\ndata: {"scn":', closed, "}\n\n", "")
    order = np.argsort(np.concatenate([events, ends]))
    return pa.concat_arrays([changes, marks]).take(pa.array(order))


def _place(text: str) -> Place:
    found = _PLACE.fullmatch(text)
    if found is None or int(found[1]) >= 2**63:
        raise InvalidParameterError("events", "Last-Event-ID", text)
    return Place(int(found[1]), -1 if found[2] is None else int(found[2]))
