"""``/stream``: events from a checkpoint on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from headgate.databus import Place, checkpoint_json, convert_to_v1
from headgate.kernels import text_bytes
from headgate.relay._buffer import Batch
from headgate.relay._events._json import json_lines
from headgate.relay._http import _live
from headgate.relay._http._commands import HEADERS, TEXT, Command, compact, events_response
from headgate.relay._http._decoded import arrow_streams, places_after, row_lines
from headgate.relay._http._openapi import ROW_PLACE
from headgate.relay._http._reading import Streams, joined
from headgate.relay._http._registered import Registrations
from headgate.relay._http._requests import STREAM, StreamRequest, stream_request
from headgate.relay._relay import Relay
from headgate.relay._tenants import client_of

__all__ = ["commands"]

ARROW: Final = "application/vnd.apache.arrow.stream"
CHECKPOINT: Final = "x-headgate-checkpoint"
_LARGE_BODY: Final = 1 << 20
"""Bodies from here on, and JSON, are put together in another thread, so that nobody waits for them."""


def commands(relay: Relay) -> list[Command]:
    """``/stream`` and ``/events``."""
    streams = Streams(relay)
    pending = "Bytes of the next event, if the answer is empty because it is larger than size."
    after = "Of rows and arrow: the checkpoint to go on from."
    return [
        Command(
            "/stream",
            _Stream(relay, streams).stream,
            "Events from a checkpoint on, in the order of the log",
            STREAM,
            {"description": f"Events as output says; of rows each line is a {ROW_PLACE}."},
            media=(TEXT, ARROW),
            for_all=True,
            headers={"x-dbus-pending-event-size": pending, CHECKPOINT: after},
        ),
        _live.command(relay, streams),
    ]


class _Stream:
    def __init__(self, relay: Relay, streams: Streams) -> None:
        self._relay, self._streams, self._registered = relay, streams, Registrations(relay.registry)

    async def stream(self, request: Request, given: Mapping[str, Any]) -> Response:
        asked = stream_request(given, client_of(request), self._relay.selections, list(self._relay.partitions))
        scns = {number: one.scn for number, one in asked.places.items()}
        self._relay.usage.asked(asked.client.name, asked.sources or (), scns)
        asked = replace(self._streams.begin(asked), unknown=partial(self._registered.newer, request))
        batch = await self._streams.read(asked)
        headers = dict(HEADERS)
        if batch.cut:
            headers["connection"] = "close"
        if not batch.size and batch.pending:
            headers["x-dbus-pending-event-size"] = str(batch.pending)
        if asked.encoding == "binary" and batch.size < _LARGE_BODY:
            return events_response(request, self._body(asked, batch), headers)
        if asked.encoding in ("rows", "arrow"):
            body, places = await run_in_threadpool(self._rows, asked, batch)
            headers[CHECKPOINT] = self._checkpoint(places)
            if asked.encoding == "arrow":
                headers["content-type"] = ARROW
            return Response(body, headers=headers)
        return events_response(request, await run_in_threadpool(self._body, asked, batch), headers)

    def _rows(self, asked: StreamRequest, batch: Batch) -> tuple[bytes, Mapping[int, Place]]:
        _, fields, found = self._streams.decode(asked, batch)
        places = places_after(fields, asked.places)
        if asked.encoding == "arrow":
            return arrow_streams(found), places
        lines, _ = row_lines(found)
        return text_bytes(pc.binary_join_element_wise(lines, "\n", "")), places

    def _checkpoint(self, places: Mapping[int, Place]) -> str:
        """As ``checkPoint`` takes it, or, of several physical sources, ``checkPointMult``."""
        if len(places) == 1:
            return compact(checkpoint_json(*places.values()))
        return compact(
            {
                compact({"id": number, "name": self._relay.partitions[number].source.name}): compact(
                    checkpoint_json(place)
                )
                for number, place in places.items()
            }
        )

    def _body(self, asked: StreamRequest, batch: Batch) -> bytes | memoryview[int]:
        data = joined(batch)
        if asked.version < self._relay.config.event_version:
            data = convert_to_v1(data)
        if asked.encoding == "binary":
            return memoryview(data.data)
        return json_lines(data, plain=asked.encoding == "json_plain_value")
