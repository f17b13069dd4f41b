"""Who asked for what, who was given what, and who is connected. All of it is counted in the server's one thread.

Names are Databus's (``ContainerStatisticsCollector.java``): outbound are the connections by which events go out, which
consumers make, and inbound the HTTP connections that the relay makes itself. Like Databus's relay of MySQL it makes
none; those to MySQL are of neither kind. Of connections a client is an address, because they have no tenant before
their first request.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.relay._counters import ContainerStats, EventStats, HttpStats, Latest, Outcome, TrafficStats

__all__ = ["OfClient", "Traffic", "Usage"]

_LISTS: Final = 64
"""Of sources: so many different ones wait to be counted."""


@dataclass
class OfClient:
    """A client's counters."""

    http: HttpStats
    events: EventStats
    asked: dict[int, int] = field(default_factory=dict)
    """Number of a physical source → the SCN from which it last asked for its stream."""


class Usage:
    """The requests to one relay."""

    def __init__(self) -> None:
        self.total = HttpStats("total")
        self.container = ContainerStats()
        self.clients = Latest(lambda name: OfClient(HttpStats(name, peers=1), EventStats(name, peers=1)))
        self._by_source: dict[int, HttpStats] = {}
        self._waiting: dict[tuple[int, ...], HttpStats] = {}
        """What was asked of lists of sources, to be counted for each of them: lists may be long, and requests many."""

    @property
    def by_source(self) -> Mapping[int, HttpStats]:
        """By id of the source, of those that were asked for."""
        self._tell_sources()
        return self._by_source

    def _tell_sources(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for sources, asked in waiting.items():
            for number in sources:
                one = self._by_source.get(number) or self._by_source.setdefault(number, HttpStats(str(number)))
                one.add(numStreamCalls=asked["numStreamCalls"])
                one.asked(asked["minStreamWinScn"], asked["maxStreamWinScn"])

    def _client(self, name: str) -> OfClient:
        found = self.clients.met(name)
        if len(self.clients) > self.total["numPeers"]:
            self.total.put(numPeers=len(self.clients))
        return found

    def count(self, client: str, command: str, outcome: Outcome, seconds: float) -> None:
        """A request was answered."""
        self.container.answered(good=outcome == "good", processing=outcome != "bad request")
        for one in (self.total, self._client(client).http):
            one.count(command, outcome, seconds)

    def asked(self, client: str, sources: tuple[int, ...], scns: Mapping[int, int]) -> None:
        """A ``/stream`` of these sources (ids) begins after these SCNs, by the numbers of their physical sources."""
        found = self._client(client)
        found.asked.update(scns)
        if sources not in self._waiting:
            if len(self._waiting) >= _LISTS:
                self._tell_sources()
            self._waiting[sources] = HttpStats()
        waiting = self._waiting[sources]
        waiting.add(numStreamCalls=1)
        for one in (self.total, found.http, waiting):
            one.asked(*scns.values())

    def gave(self, client: str, events: int, size: int, control: int, control_size: int) -> None:
        """Events went out to a client; sizes in bytes of data events and of control events."""
        self._client(client).events.gave(events, size, control, control_size)


class Traffic:
    """The connections of one relay."""

    def __init__(self) -> None:
        self.total = TrafficStats("outbound")
        self.inbound = TrafficStats("inbound")
        self.clients = Latest(TrafficStats)

    def opened(self, key: Hashable, client: str) -> None:
        """A connection was made.

        :param key: by which its end is known.
        """
        for one in (self.total, self.clients.met(client)):
            one.opened(key, client)

    def lost(self, key: Hashable, client: str, error: Exception | None) -> None:
        """A connection ended, perhaps with an error."""
        for one in self._of(client):
            one.lost(key, error)

    def sent(self, client: str, size: int) -> None:
        """Bytes of an answer's body go out to an address."""
        for one in self._of(client):
            one.add(numBytes=size)

    def _of(self, client: str) -> list[TrafficStats]:
        return [self.total, *([self.clients[client]] if client in self.clients else [])]
