"""Counters of requests, delivered events and connections, in total and by client, in the server's only thread.

Names are Databus's (``ContainerStatisticsCollector.java``): outbound are the connections by which events go out, which
consumers make, and inbound the HTTP connections that the relay makes. Like Databus's relay of MySQL it makes none;
those to MySQL are neither. For connections a client is an address, because they have no tenant before their first
request.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headgate.databus import count_sources
from headgate.relay._buffer import Batch
from headgate.relay._counters import ContainerStats, EventStats, HttpStats, Outcome, TrafficStats
from headgate.relay._recent import Recent

__all__ = ["DeliveredEvents", "OfClient", "Traffic", "Usage"]

_LISTS: Final = 64
"""Most lists of sources that wait to be counted."""
_IDS: Final = 1 << 15
"""Source ids are signed 16-bit numbers, and those of data events are not negative."""
_NS_PER_SECOND: Final = 1_000_000_000


@dataclass
class OfClient:
    """Counters of one client."""

    http: HttpStats
    events: EventStats
    last_scns: dict[int, int] = field(default_factory=dict)
    """Id of a physical source → the SCN of the client's last ``/stream``."""


class Usage:
    """Counters of the requests to one relay.

    :param clients: most clients with counters.
    """

    def __init__(self, clients: int) -> None:
        self.total = HttpStats("total")
        self.container = ContainerStats()
        self.clients = Recent[str, OfClient](clients)
        self._by_source: dict[int, HttpStats] = {}
        self._waiting: dict[tuple[int, ...], HttpStats] = {}
        """Requests by list of sources, not yet counted for each of them: lists may be long, and requests many."""

    @property
    def by_source(self) -> Mapping[int, HttpStats]:
        """Source id → counters, for requested sources."""
        self._count_sources()
        return self._by_source

    def _count_sources(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for sources, stats in waiting.items():
            for number in sources:
                one = self._by_source.get(number) or self._by_source.setdefault(number, HttpStats(str(number)))
                one.add(numStreamCalls=stats["numStreamCalls"])
                one.record_start(stats["minStreamWinScn"], stats["maxStreamWinScn"])

    def _client(self, name: str) -> OfClient:
        client = self.clients.find(name)
        if client is None:
            client = self.clients.keep(name, OfClient(HttpStats(name, peers=1), EventStats(name, peers=1)))
        if len(self.clients) > self.total["numPeers"]:
            self.total.put(numPeers=len(self.clients))
        return client

    def count(self, client: str, command: str, outcome: Outcome, seconds: float) -> None:
        """Count an answered request."""
        self.container.answered(good=outcome == "good", processing=outcome != "bad request")
        for one in (self.total, self._client(client).http):
            one.count(command, outcome, seconds)

    def record_start(self, client: str, sources: tuple[int, ...], scns: Mapping[int, int]) -> None:
        """Count a ``/stream`` of these source ids that begins after these SCNs, by id of the physical source."""
        counters = self._client(client)
        counters.last_scns.update(scns)
        if sources not in self._waiting:
            if len(self._waiting) >= _LISTS:
                self._count_sources()
            self._waiting[sources] = HttpStats()
        waiting = self._waiting[sources]
        waiting.add(numStreamCalls=1)
        for one in (self.total, counters.http, waiting):
            one.record_start(*scns.values())

    def count_out(self, client: str, events: int, size: int, control: int, control_size: int) -> None:
        """Count events delivered to a client; sizes in bytes of data events and of control events."""
        self._client(client).events.count_out(events, size, control, control_size)


class Traffic:
    """Counters of the connections of one relay.

    :param clients: most addresses with counters.
    """

    def __init__(self, clients: int) -> None:
        self.total = TrafficStats("outbound")
        self.inbound = TrafficStats("inbound")
        self.clients = Recent[str, TrafficStats](clients)

    def opened(self, key: Hashable, client: str) -> None:
        """Count a new connection.

        :param key: identifies it when it ends.
        """
        known = self.clients.find(client) or self.clients.keep(client, TrafficStats(client))
        for one in (self.total, known):
            one.opened(key, client)

    def lost(self, key: Hashable, client: str, error: Exception | None) -> None:
        """Count the end of a connection, perhaps with an error."""
        for one in self._of(client):
            one.lost(key, error)

    def sent(self, client: str, size: int) -> None:
        """Count bytes of an answer's body, sent to an address."""
        for one in self._of(client):
            one.add(numBytes=size)

    def _of(self, client: str) -> list[TrafficStats]:
        return [self.total, *([self.clients[client]] if client in self.clients else [])]


class DeliveredEvents:
    """Counters of delivered events by logical source: ``/containerStats/outbound/events/source/<id>``.

    A compiled loop reads the head of each event of an answer, right after the event was chosen and while it is in the
    processor's cache. That takes half a microsecond and 4 ns an event, however many sources there are. The counts stay
    in an array until they are queried.
    """

    def __init__(self) -> None:
        self._new = np.zeros((3, _IDS), np.int64)
        """By source, not yet in its counters: events, their bytes, and when the last of them went out."""
        self._stats: dict[int, EventStats] = {}

    def count(self, batch: Batch) -> None:
        """Count an outgoing answer."""
        if batch.events:
            now = time.monotonic_ns()
            for part in batch.parts:
                count_sources(part, self._new, now)

    def sources(self) -> list[int]:
        """Return the ids of the sources whose events were delivered."""
        return sorted({*self._stats, *np.flatnonzero(self._new[0]).tolist()})

    def of(self, source: int, dimension: str) -> EventStats:
        """Return the counters of a source.

        :param dimension: their name, if there are none yet.
        """
        stats = self._stats.get(source)
        if stats is None:
            stats = EventStats(dimension)
        events, size, last = self._new[:, source].tolist()
        if events:
            self._new[:, source] = 0
            self._stats[source] = stats
            stats.count_out(events, size, 0, 0)
            stats.last_access = last / _NS_PER_SECOND
        return stats
