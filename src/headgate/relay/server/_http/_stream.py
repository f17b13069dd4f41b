"""``/stream``: events from a checkpoint onwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from headgate.kernels import text_bytes
from headgate.relay.databus import CHECKPOINT, PENDING_EVENT_SIZE, StreamPosition, checkpoint_json
from headgate.relay.server._cursor import EventBatch
from headgate.relay.server._http._commands import HEADERS, Command, compact, events_response
from headgate.relay.server._http._decoded import arrow_streams, positions_after, row_lines
from headgate.relay.server._http._reading import Streams, encoded
from headgate.relay.server._http._registered import Registrations
from headgate.relay.server._http._requests import STREAM, StreamRequest, build_stream_request
from headgate.relay.server._relay import Relay
from headgate.relay.server._tenants import client_of

__all__ = ["commands"]

ARROW: Final = "application/vnd.apache.arrow.stream"
_LARGE_BODY: Final = 1 << 20
"""Bodies from this size on, and JSON, are built in a worker thread, so that other requests do not wait for them."""


def commands(relay: Relay) -> list[Command]:
    """Return the command ``/stream``."""
    return [Command("/stream", _Stream(relay).stream, STREAM, for_all=True)]


class _Stream:
    def __init__(self, relay: Relay) -> None:
        self._relay, self._streams, self._registered = relay, Streams(relay), Registrations(relay.registry)

    async def stream(self, request: Request, parameters: Mapping[str, Any]) -> Response:
        stream_request = build_stream_request(parameters, client_of(request), self._relay)
        latest = parameters["streamFromLatestScn"]
        scns = {number: -1 if latest else one.scn for number, one in stream_request.positions.items()}
        self._relay.counters.start(stream_request.client.name, stream_request.sources or (), scns)
        stream_request = replace(stream_request, unknown=partial(self._registered.newer, request))
        batch = await self._streams.read(stream_request)
        headers = dict(HEADERS)
        if batch.cut:
            headers["connection"] = "close"
        if not batch.size and batch.pending:
            headers[PENDING_EVENT_SIZE] = str(batch.pending)
        if stream_request.encoding == "binary" and batch.size < _LARGE_BODY:
            return events_response(request, self._body(stream_request, batch), headers)
        if stream_request.encoding in ("rows", "arrow"):
            body, positions = await run_in_threadpool(self._rows, stream_request, batch)
            headers[CHECKPOINT] = self._checkpoint(positions)
            if stream_request.encoding == "arrow":
                headers["content-type"] = ARROW
            return Response(body, headers=headers)
        return events_response(request, await run_in_threadpool(self._body, stream_request, batch), headers)

    def _rows(self, stream_request: StreamRequest, batch: EventBatch) -> tuple[bytes, Mapping[int, StreamPosition]]:
        fields, decoded = self._streams.decode(stream_request, batch)
        positions = positions_after(fields, stream_request.positions)
        if stream_request.encoding == "arrow":
            return arrow_streams(decoded), positions
        lines, _ = row_lines(decoded)
        return text_bytes(pc.binary_join_element_wise(lines, "\n", "")), positions

    def _checkpoint(self, positions: Mapping[int, StreamPosition]) -> str:
        """Format positions as ``checkPoint``, or, for several physical sources, ``checkPointMult``."""
        if len(positions) == 1:
            return compact(checkpoint_json(*positions.values()))
        return compact(
            {
                compact({"id": number, "name": self._relay.partitions[number].source.name}): compact(
                    checkpoint_json(position)
                )
                for number, position in positions.items()
            }
        )

    def _body(self, stream_request: StreamRequest, batch: EventBatch) -> bytes | memoryview[int]:
        version = self._relay.config.event_version
        return encoded(batch.joined(), stream_request.encoding, version=version, accepted=stream_request.version)
