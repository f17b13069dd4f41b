"""Events for the commands that give some: read from the buffers, waited for, counted, decoded.

What is in memory is read in the server's own thread, which takes microseconds; what is in files, or has to be chosen
from much, in another one. A batch refers to the buffer's bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from starlette.concurrency import run_in_threadpool

from headgate.databus import EOP_SIZE, EventFields, Place, event_fields
from headgate.relay._buffer import Batch, Stretch
from headgate.relay._events._choice import Choice, choice_of
from headgate.relay._http._compiled import CompiledFilters
from headgate.relay._http._decoded import DecodedRows, Decoders, decoded
from headgate.relay._http._news import News
from headgate.relay._http._requests import StreamRequest
from headgate.relay._relay import Relay
from headgate.relay._selections import Selection

__all__ = ["Streams", "joined"]

_LARGEST_BATCH: Final = 16 << 20
"""More than this is given in several answers, whatever ``size`` says, unless it is one event."""
_CHOSEN_QUICKLY: Final = 8 << 20
"""To choose from so many bytes takes some milliseconds."""


class _Given(NamedTuple):
    """What a partition gave, to be counted in the server's thread."""

    partition: int
    events: int
    control: int
    size: int


class Streams:
    """Reads for ``/stream`` and for what else gives events."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._filters = CompiledFilters(relay)
        self._news = News(one.buffer for one in relay.partitions.values())
        self._decoders = Decoders(relay.names, relay.registry)

    def begin(self, asked: StreamRequest) -> StreamRequest:
        """With the places from which it is to be read, also where that is the newest window."""
        if not asked.latest:
            return asked
        places = {number: self._relay.partitions[number].buffer.last_place() for number in asked.places}
        return replace(asked, places=places, latest=False)

    async def read(self, asked: StreamRequest) -> Batch:
        """The next events; waits for them as long as asked.

        :raises UnfitFilterError: a filter does not fit a source.
        :raises KeyIsNoNumberError: a filter cannot be asked about a key.
        """
        if asked.rules or asked.rows:
            self._check(asked)
        if asked.wait_ms:
            return await self._await_events(asked, asked.wait_ms / 1000)
        return await self._read(asked)

    def decode(self, asked: StreamRequest, batch: Batch) -> tuple[Any, EventFields, list[DecodedRows]]:
        """A batch's bytes, its events as arrays and their rows as columns; with the rows before updates where events of
        version 2 are understood and the relay has them.

        :raises DecodeError: a row does not fit its schema.
        :raises UnsupportedError: a type that has no column type.
        """
        data = joined(batch)
        fields = event_fields(data)
        befores = asked.version > 1 and self._relay.config.before_images
        return data, fields, decoded(data, fields, self._decoders, befores=befores)

    async def _read(self, asked: StreamRequest) -> Batch:
        places = asked.places
        given: list[_Given] = []
        if all(self._is_quick(asked, number, place) for number, place in places.items()):
            batch = self._read_now(asked, places, given)
        else:
            batch = await run_in_threadpool(self._read_now, asked, places, given)
        for one in given:
            self._count(asked, one)
        self._relay.given.count(asked.sources, batch)
        return batch

    def _is_quick(self, asked: StreamRequest, partition: int, place: Place) -> bool:
        """Whether nobody else waits long while it is read: what is chosen from is gone through event by event."""
        if asked.unknown():
            return False
        found = self._relay.partitions[partition].buffer.bytes_in_memory(place)
        return found is not None and (found <= _CHOSEN_QUICKLY or self._choice(asked, partition) is None)

    def _read_now(self, asked: StreamRequest, places: Mapping[int, Place], given: list[_Given]) -> Batch:
        batch = self._read_up_to(min(asked.size, _LARGEST_BATCH), asked, places, given)
        if not batch.size and 0 < batch.pending <= asked.size:
            batch = self._read_up_to(batch.pending, asked, places, given)
        return batch

    def _read_up_to(self, size: int, asked: StreamRequest, places: Mapping[int, Place], given: list[_Given]) -> Batch:
        batch = Batch([])
        choices: dict[tuple[int, int], Choice | None] = {}
        for partition, stretch in self._turns(places):
            events, control, before = batch.events, batch.control, batch.size
            # Only now: the stretch may have events of a table that turned up after the last one was read.
            known = (partition, self._relay.names.changes)
            if known not in choices:
                choices[known] = self._choice(asked, partition)
            stops = self._relay.partitions[partition].buffer.stops
            known_to_it = stretch.before(asked.unknown())
            more = batch.add(known_to_it, size, choices[known], stops)
            batch.cut = more and known_to_it.end < stretch.end
            given.append(_Given(partition, batch.events - events, batch.control - control, batch.size - before))
            if batch.cut or not more:
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

    def _check(self, asked: StreamRequest) -> None:
        """Whether filters fit, also where there is nothing to be chosen from yet."""
        self._filters.check_keys("stream", asked.rules, self._selection(asked).ids)
        self._filters.rows("stream", asked.rows)

    def _selection(self, asked: StreamRequest) -> Selection:
        """The sources as they are known now."""
        selections = self._relay.selections
        return selections.everything() if asked.sources is None else selections.of(asked.sources)

    def _choice(self, asked: StreamRequest, partition: int) -> Choice | None:
        """What to choose; None where that is all that the partition has."""
        wanted = self._selection(asked)
        if partition in wanted.whole and not asked.rules and not asked.rows:
            return None
        return choice_of(wanted.ids, asked.rules, self._filters.rows("stream", asked.rows))

    def _count(self, asked: StreamRequest, given: _Given) -> None:
        of_control = given.control * EOP_SIZE[self._relay.config.event_version]
        counts = (given.events, given.size - of_control, given.control, of_control)
        stats = self._relay.partitions[given.partition].outbound
        stats.gave(*counts)
        stats.put(numPeers=self._relay.usage.total["numPeers"])
        self._relay.usage.gave(asked.client.name, *counts)

    async def _await_events(self, asked: StreamRequest, seconds: float) -> Batch:
        """Read, again whenever something was put in, until there are events or the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            news = self._news.listen()
            try:
                batch = await self._read(asked)
            except BaseException:
                self._news.forget(news)
                raise
            if batch.size or batch.pending or batch.cut or loop.time() >= end:
                self._news.forget(news)
                return batch
            await self._news.wait(news, end - loop.time())


def joined(batch: Batch) -> Any:
    """A batch's events behind each other, uint8[]."""
    return batch.parts[0] if len(batch.parts) == 1 else np.concatenate([np.zeros(0, np.uint8), *batch.parts])
