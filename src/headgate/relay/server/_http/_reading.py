"""Events for the commands that return some: read from the buffers, waited for, counted, decoded.

Events in memory are read in the server's thread, which takes microseconds. Files, and choices from many bytes, are read
in a worker thread. A batch refers to the buffer's bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from starlette.concurrency import run_in_threadpool

from headgate.relay.databus import EOP_SIZE, EventFields, StreamPosition, convert_to_v1, event_fields
from headgate.relay.server._cursor import EventBatch, SegmentCursor
from headgate.relay.server._http._choices import Choices
from headgate.relay.server._http._decoded import DecodedRows, Decoders, decode_rows
from headgate.relay.server._http._requests import NO_FILTERS, StreamRequest
from headgate.relay.server._relay import Relay
from headgate.relay.server.events import Choice, json_lines

__all__ = ["AppendNotifier", "Streams", "encoded"]

_CHOSEN_QUICKLY: Final = 8 << 20
"""Choosing from so many bytes takes some milliseconds."""


class _Delivered(NamedTuple):
    """Counts of events read from a partition, to be added in the server's thread."""

    partition: int
    events: int
    control: int
    size: int


class Streams:
    """Reads events for ``/stream`` and other commands."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._choices = Choices(relay)
        self._notifier = AppendNotifier(one.buffer for one in relay.partitions.values())
        self._decoders = Decoders(relay.names, relay.registry)

    async def read(self, stream_request: StreamRequest) -> EventBatch:
        """Return the next events; wait up to ``wait_ms`` for them.

        :raises UnfitFilterError: a filter does not fit a source.
        :raises KeyIsNoNumberError: a RANGE filter met a key that is not a number.
        """
        if stream_request.filters != NO_FILTERS:  # check them, even if there are no events yet
            self._choices.of("stream", self._relay.names.select(stream_request.sources).ids, stream_request.filters)
        if stream_request.wait_ms:
            return await self._await_events(stream_request, stream_request.wait_ms / 1000)
        return await self._read(stream_request)

    def decode(self, stream_request: StreamRequest, batch: EventBatch) -> tuple[EventFields, list[DecodedRows]]:
        """Return a batch's events as arrays, and their rows as columns; with the rows before updates if the request
        accepts events of version 2 and the relay has them.

        :raises DecodeError: a row does not fit its schema.
        :raises UnsupportedError: a type that has no column type.
        """
        data = batch.joined()
        fields = event_fields(data)
        with_before_images = stream_request.version > 1 and self._relay.config.before_images
        return fields, decode_rows(data, fields, self._decoders, with_before_images=with_before_images)

    async def _read(self, stream_request: StreamRequest) -> EventBatch:
        if all(self._is_quick(stream_request, *one) for one in stream_request.positions.items()):
            batch, delivered = self._read_now(stream_request)
        else:
            batch, delivered = await run_in_threadpool(self._read_now, stream_request)
        for one in delivered:
            self._count(stream_request, one)
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
            delivered.append(_Delivered(partition, batch.events - events, batch.control - control, batch.size - before))
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
        wanted = self._relay.names.select(stream_request.sources)
        if partition in wanted.whole and stream_request.filters == NO_FILTERS:
            return None
        return self._choices.of("stream", wanted.ids, stream_request.filters)

    def _count(self, stream_request: StreamRequest, delivered: _Delivered) -> None:
        of_control = delivered.control * EOP_SIZE[self._relay.config.event_version]
        counts = (delivered.events, delivered.size - of_control, delivered.control, of_control)
        self._relay.counters.deliver(delivered.partition, stream_request.client.name, *counts)

    async def _await_events(self, stream_request: StreamRequest, seconds: float) -> EventBatch:
        """Read, again after each append, until there are events or the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            appended = self._notifier.listen()
            try:
                batch = await self._read(stream_request)
                if batch.size or batch.pending or batch.cut or loop.time() >= end:
                    return batch
                await self._notifier.wait(appended, end - loop.time())
            finally:
                self._notifier.forget(appended)


def encoded(data: Any, output: str, *, version: int, accepted: int) -> bytes | memoryview[int]:
    """Return events (uint8[]) in one of Databus's forms: ``binary``, ``json`` or ``json_plain_value``.

    :param version: the events' version.
    :param accepted: the newest version that the client accepts.
    """
    if accepted < version:
        data = convert_to_v1(data)
    return memoryview(data.data) if output == "binary" else json_lines(data, plain=output == "json_plain_value")


class Appended(Protocol):
    """What grows in another thread: an event buffer, or a binlog archive."""

    def on_append(self, listener: Callable[[], None], /) -> object:
        """Call ``listener`` in the writer's thread after each append."""


class AppendNotifier:
    """Wakes requests that wait for windows: one call into the event loop per block, however many requests wait.

    No wakeup is lost: a request is listed before its last look into the buffer, and the writer appends windows before
    it looks at the list. Only the notification runs outside the loop's thread.
    """

    def __init__(self, buffers: Iterable[Appended]) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called = False
        for buffer in buffers:
            buffer.on_append(self._notify)

    def listen(self) -> asyncio.Future[None]:
        """Return a future for the next append, to pass to :meth:`wait` and then to :meth:`forget`."""
        self._loop = asyncio.get_running_loop()
        appended = self._loop.create_future()
        self._waiting.add(appended)
        return appended

    async def wait(self, appended: asyncio.Future[None], seconds: float) -> None:
        """Wait until the future is done or the time is over."""
        timer = asyncio.get_running_loop().call_later(seconds, _done, appended)
        try:
            await appended
        finally:
            timer.cancel()

    def forget(self, appended: asyncio.Future[None]) -> None:
        """Stop waiting for a future."""
        self._waiting.discard(appended)

    def _notify(self) -> None:
        """Schedule the wakeup, in the writer's thread."""
        loop = self._loop
        if loop is None or not self._waiting or self._called:
            return
        self._called = True
        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        waiting, self._waiting = self._waiting, set()
        for appended in waiting:
            _done(appended)


def _done(appended: asyncio.Future[None]) -> None:
    if not appended.done():
        appended.set_result(None)
