"""Counters of requests, delivered events and connections, in total and by client, in the server's only thread.

Names are Databus's (``ContainerStatisticsCollector.java``): outbound are the connections by which events go out, which
consumers make, and inbound the HTTP connections that the relay makes. Like Databus's relay of MySQL it makes none;
those to MySQL are neither. For connections a client is an address, because they have no tenant before their first
request.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.relay._counters import ContainerStats, EventStats, HttpStats, Latest, Outcome, TrafficStats

__all__ = ["OfClient", "Traffic", "Usage"]

_LISTS: Final = 64
"""Most lists of sources that wait to be counted."""


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
        self.clients = Latest(clients, lambda name: OfClient(HttpStats(name, peers=1), EventStats(name, peers=1)))
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
        client = self.clients.touch(name)
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
        self.clients = Latest(clients, TrafficStats)

    def opened(self, key: Hashable, client: str) -> None:
        """Count a new connection.

        :param key: identifies it when it ends.
        """
        for one in (self.total, self.clients.touch(client)):
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
