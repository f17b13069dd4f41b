"""What consumers were given, by logical source: ``/containerStats/outbound/events/source/<id>``.

An answer is walked once more, by a compiled loop that looks at the head of each event, right after it was chosen and
while it is in the processor's cache: half a microsecond and 4 ns an event, however many sources there are. A large one
of one source is counted as a whole. The counts stand in an array until somebody asks for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from headgate.databus import EOP_SIZE, count_sources
from headgate.relay._buffer import Batch
from headgate.relay._counters import EventStats

__all__ = ["Given"]

_IDS: Final = 1 << 15
"""Ids of sources are signed 16-bit numbers, and those of data events not below 0."""
_FEW: Final = 100
"""Events that are walked sooner than what is known of them is written down."""
_NS_PER_SECOND: Final = 1_000_000_000


class Given:
    """Counts the answers of one relay, in the server's one thread.

    :param version: of the events in the buffer.
    """

    def __init__(self, version: int) -> None:
        self._eop = EOP_SIZE[version]
        self._new = np.zeros((3, _IDS), np.int64)
        """By source, what is not in its counters yet: events, their bytes, and when the last of them went out."""
        self._stats: dict[int, EventStats] = {}

    def count(self, sources: Sequence[int] | None, batch: Batch) -> None:
        """An answer goes out.

        :param sources: ids of those that were asked for; None: all.
        """
        if not batch.events:
            return
        now = time.monotonic_ns()
        if batch.events > _FEW and sources is not None and len(sources) == 1:
            self._new[:2, sources[0]] += (batch.events, batch.size - batch.control * self._eop)
            self._new[2, sources[0]] = now
            return
        for part in batch.parts:
            count_sources(part, self._new, now)

    def sources(self) -> list[int]:
        """The ids of those that had events for somebody."""
        return sorted({*self._stats, *np.flatnonzero(self._new[0]).tolist()})

    def of(self, source: int, dimension: str) -> EventStats:
        """The counters of a source.

        :param dimension: what they are called where there are none yet.
        """
        found = self._stats.get(source)
        if found is None:
            found = EventStats(dimension)
        events, size, last = self._new[:, source].tolist()
        if events:
            self._new[:, source] = 0
            self._stats[source] = found
            found.gave(events, size, 0, 0)
            found.last_access = last / _NS_PER_SECOND
        return found
