"""``/stream``: events from a checkpoint onwards, read from the buffers, waited for, counted, and decoded.

Events in memory are read in the server's thread, which takes microseconds. Files, and choices from many bytes, are read
in a worker thread. A batch refers to the buffer's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from headgate.kernels import text_bytes
from headgate.relay.databus import (
    CHECKPOINT,
    EOP_SIZE,
    PENDING_EVENT_SIZE,
    StreamPosition,
    checkpoint_json,
    convert_to_v1,
    event_fields,
)
from headgate.relay.server._cursor import EventBatch, SegmentCursor
from headgate.relay.server._http._choices import Choices
from headgate.relay.server._http._commands import HEADERS, Command, compact, events_response
from headgate.relay.server._http._decoded import Decoders, arrow_streams, decode_rows, positions_after, row_lines
from headgate.relay.server._http._registered import Registrations
from headgate.relay.server._http._requests import NO_FILTERS, StreamParameters, StreamRequest, build_stream_request
from headgate.relay.server._http._waiting import AppendNotifier
from headgate.relay.server._relay import Relay
from headgate.relay.server._tenants import client_of
from headgate.relay.server.events import Choice, json_lines

__all__ = ["commands", "encoded"]

_ARROW: Final = "application/vnd.apache.arrow.stream"
_CHOSEN_QUICKLY: Final = 8 << 20
"""Choosing from so many bytes takes some milliseconds."""
_NEWEST_VERSION: Final = 2
_LARGE_BODY: Final = 1 << 20
"""Bodies from this size on, and JSON, are built in a worker thread, so that other requests do not wait for them."""

_Delivered: TypeAlias = tuple[int, int, int, int, int]
"""What was read from a partition: its id; data events and their bytes; control events and theirs."""


def commands(relay: Relay) -> list[Command]:
    """Return the command ``/stream``."""
    return [Command("/stream", _Stream(relay).stream, StreamParameters, for_all=True)]


class _Stream:
    def __init__(self, relay: Relay) -> None:
        self._relay, self._registered = relay, Registrations(relay.registry)
        self._choices, self._decoders = Choices(relay), Decoders(relay.names, relay.registry)
        self._notifier = AppendNotifier(one.buffer for one in relay.partitions.values())

    async def stream(self, request: Request, parameters: StreamParameters) -> Response:
        """Answer a request.

        :raises UnfitFilterError: a filter does not fit a source.
        :raises KeyIsNoNumberError: a RANGE filter met a key that is not a number.
        :raises DecodeError: a row does not fit its schema.
        :raises UnsupportedError: a type that has no column type.
        """
        stream_request = build_stream_request(parameters, client_of(request), self._relay)
        latest = parameters.stream_from_latest_scn
        scns = {number: -1 if latest else one.scn for number, one in stream_request.positions.items()}
        self._relay.counters.start(stream_request.client.name, stream_request.sources or (), scns)
        stream_request = replace(stream_request, unknown=partial(self._registered.newer, request))
        batch = await self._events(stream_request)
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
                headers["content-type"] = _ARROW
            return Response(body, headers=headers)
        return events_response(request, await run_in_threadpool(self._body, stream_request, batch), headers)

    # --- reading

    async def _events(self, stream_request: StreamRequest) -> EventBatch:
        """Return the next events; wait for them if that is requested."""
        if stream_request.filters != NO_FILTERS:  # check them, even if there are no events yet
            self._choices.of("stream", stream_request.selection(self._relay.names).ids, stream_request.filters)

        async def attempt(is_last: bool) -> EventBatch | None:
            batch = await self._read(stream_request)
            return batch if is_last or batch.size or batch.pending or batch.cut else None

        return await self._notifier.repeat(attempt, stream_request.wait_ms / 1000)

    async def _read(self, stream_request: StreamRequest) -> EventBatch:
        if all(self._is_quick(stream_request, *one) for one in stream_request.positions.items()):
            batch, delivered = self._read_now(stream_request)
        else:
            batch, delivered = await run_in_threadpool(self._read_now, stream_request)
        for partition, *counts in delivered:
            self._relay.counters.deliver(partition, stream_request.client.name, *counts)
        self._relay.counters.deliver_parts(batch.parts)
        return batch

    def _is_quick(self, stream_request: StreamRequest, partition: int, position: StreamPosition) -> bool:
        """Return whether reading blocks other requests only briefly: choosing looks at every event."""
        if stream_request.unknown():
            return False
        size = self._relay.partitions[partition].buffer.bytes_in_memory(position)
        return size is not None and (size <= _CHOSEN_QUICKLY or self._choice(stream_request, partition) is None)

    def _read_now(self, stream_request: StreamRequest) -> tuple[EventBatch, Sequence[_Delivered]]:
        size = min(stream_request.size, self._relay.config.limits.answer)
        batch, delivered = self._read_up_to(size, stream_request)
        if not batch.size and 0 < batch.pending <= stream_request.size:
            return self._read_up_to(batch.pending, stream_request)
        return batch, delivered

    def _read_up_to(self, size: int, stream_request: StreamRequest) -> tuple[EventBatch, Sequence[_Delivered]]:
        batch, delivered = EventBatch([]), list[_Delivered]()
        choices: dict[tuple[int, int, int], Choice | None] = {}
        for partition, cursor in self._turns(stream_request.positions):
            events, control, before = batch.events, batch.control, batch.size
            # Only here: the windows may have events of a table that was discovered since the previous ones were read,
            # or by a new schema; compiled filters have the versions that are known.
            known = (partition, self._relay.names.changes, self._relay.registry.changes)
            if known not in choices:
                choices[known] = self._choice(stream_request, partition)
            until_unknown = cursor.cut_before(stream_request.unknown())
            more = until_unknown.take(batch, size, choices[known])
            batch.cut = more and until_unknown.end < cursor.end
            control = batch.control - control
            of_control = control * EOP_SIZE[self._relay.config.event_version]
            of_events = batch.size - before - of_control
            delivered.append((partition, batch.events - events, of_events, control, of_control))
            if batch.cut or not more:
                break
        return batch, delivered

    def _turns(self, positions: Mapping[int, StreamPosition]) -> Iterator[tuple[int, SegmentCursor]]:
        """Yield all cursors of one partition; of several partitions one of a window of each in turn."""
        several = len(positions) > 1
        waiting = [
            (number, self._relay.partitions[number].buffer.cursors(position, each=several))
            for number, position in positions.items()
        ]
        while waiting:
            left = []
            for partition, cursors in waiting:
                for cursor in cursors:
                    yield partition, cursor
                    if several:
                        left.append((partition, cursors))
                        break
            waiting = left

    def _choice(self, stream_request: StreamRequest, partition: int) -> Choice | None:
        """Return the choice of events; None: all of the partition."""
        wanted = stream_request.selection(self._relay.names)
        if partition in wanted.whole and stream_request.filters == NO_FILTERS:
            return None
        return self._choices.of("stream", wanted.ids, stream_request.filters)

    # --- the answer

    def _rows(self, stream_request: StreamRequest, batch: EventBatch) -> tuple[bytes, Mapping[int, StreamPosition]]:
        """Return a batch's rows, with those before updates if the request accepts events of version 2 and the relay has
        them, and the positions after them.
        """
        data = batch.joined()
        fields = event_fields(data)
        with_before_images = stream_request.version > 1 and self._relay.config.before_images
        decoded = decode_rows(data, fields, self._decoders, with_before_images=with_before_images)
        positions = positions_after(fields, stream_request.positions)
        if stream_request.encoding == "arrow":
            return arrow_streams(decoded), positions
        return text_bytes(pc.binary_join_element_wise(row_lines(decoded), "\n", "")), positions

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
        return encoded(batch.joined(), stream_request.encoding, accepted=stream_request.version)


def encoded(data: Any, output: str, *, accepted: int) -> bytes | memoryview[int]:
    """Return events (uint8[]) in one of Databus's forms: ``binary``, ``json`` or ``json_plain_value``.

    :param accepted: the newest version that the client accepts.
    :raises DecodeError: they are not whole events.
    """
    if accepted < _NEWEST_VERSION:
        data = convert_to_v1(data)
    return memoryview(data.data) if output == "binary" else json_lines(data, plain=output == "json_plain_value")
