"""What consumers were given, by logical source: ``/containerStats/outbound/events/source/<id>``.

An answer of one source is counted as a whole. One of several is walked once more, by a compiled loop that looks at the
head of each event, right after it was chosen and while it is in the processor's cache: some nanoseconds an event.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.relay._buffer import Batch
from headgate.relay._events._binary import EOP_SIZE, count_sources
from headgate.relay._relay import Relay
from headgate.relay._stats import EventStats

__all__ = ["GivenBySource"]


class GivenBySource:
    """Counts the answers of one relay, in the server's one thread."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._eop = EOP_SIZE[relay.config.event_version]

    def count(self, sources: Sequence[int] | None, batch: Batch) -> None:
        """An answer.

        :param sources: ids of those that were asked for; None: all.
        """
        if not batch.events:
            return
        asked = [one.id for one in self._relay.names.all()] if sources is None else sources
        if len(asked) == 1:
            self._stats(asked[0]).gave(batch.events, batch.size - batch.control * self._eop, 0, 0)
            return
        ids = np.unique(np.array(asked, np.int64))
        counts = np.zeros((2, len(ids)), np.int64)
        for part in batch.parts:
            count_sources(part, ids, counts)
        for place in np.flatnonzero(counts[0]).tolist():
            self._stats(int(ids[place])).gave(int(counts[0, place]), int(counts[1, place]), 0, 0)

    def _stats(self, source: int) -> EventStats:
        number = self._relay.names.physical_of(source)
        assert number is not None
        partition = self._relay.partitions[number]
        found = partition.outbound_sources.get(source)
        if found is None:
            found = EventStats(f"{partition.outbound.dimension}.{source}")
            partition.outbound_sources[source] = found
        return found
