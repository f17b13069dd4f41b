"""Who asked for what: the counters of ``/relayStats``, and of clients in ``/containerStats``.

Names are Databus's (``DbusHttpTotalStatsMBean.java``). All of it is counted in the server's one thread.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from headgate.relay._container import ContainerStats
from headgate.relay._stats import EventStats

__all__ = ["HttpStats", "OfClient", "Outcome", "Usage"]

Outcome: TypeAlias = Literal["good", "bad request", "scn not found", "error"]

_CLIENTS: Final = 1000
"""The counters of so many clients are kept, of those that asked last: addresses may be any number."""
_COUNTED: Final = ("sources", "register", "stream")
_LISTS: Final = 64
"""Of sources: so many different ones wait to be counted."""


@dataclass
class HttpStats:
    """Requests in all, of a client or for a source."""

    dimension: str
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    bad: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    """Of the errors those whose parameters are wrong."""
    not_found: int = 0
    stream_seconds: float = 0.0
    min_scn: int = -1
    max_scn: int = -1
    peers: int = 0
    since: float = field(default_factory=time.monotonic)
    enabled: bool = True
    """Whether anything is counted."""

    def reset(self) -> None:
        """Count anew; who is known (``numPeers``) stays known."""
        fresh = HttpStats(self.dimension)
        self.calls, self.errors, self.bad, self.not_found = fresh.calls, fresh.errors, fresh.bad, 0
        self.stream_seconds, self.min_scn, self.max_scn, self.since = 0.0, -1, -1, fresh.since

    def count(self, command: str, outcome: Outcome, seconds: float) -> None:
        """A request was answered."""
        if command not in self.calls or not self.enabled:
            return
        self.calls[command] += 1
        self.errors[command] += outcome != "good"
        self.bad[command] += outcome == "bad request"
        self.not_found += outcome == "scn not found"
        if command == "stream":
            self.stream_seconds += seconds

    def asked(self, scn: int) -> None:
        """A stream begins after ``scn``; negative: with the oldest."""
        if not self.enabled or scn < 0:
            return
        self.min_scn = scn if self.min_scn < 0 else min(self.min_scn, scn)
        self.max_scn = max(self.max_scn, scn)

    def to_json(self) -> dict[str, Any]:
        """Times in ms; the latency is the mean of ``/stream``."""
        calls, streams = sum(self.calls.values()), self.calls["stream"]
        return {
            "numSourcesCalls": self.calls["sources"],
            "numRegisterCalls": self.calls["register"],
            "numStreamCalls": streams,
            "numPeers": self.peers,
            "latencyStreamCalls": round(1000 * self.stream_seconds / streams, 3) if streams else 0.0,
            "dimension": self.dimension,
            "minStreamWinScn": self.min_scn,
            "maxStreamWinScn": self.max_scn,
            "numScnNotFoundStream": self.not_found,
            "numErrStream": self.errors["stream"],
            "numErrStreamReq": self.bad["stream"],
            "numErrRegister": self.errors["register"],
            "numErrRegisterReq": self.bad["register"],
            "numErrSources": self.errors["sources"],
            "numErrSourcesReq": self.bad["sources"],
            "httpErrorRate": sum(self.errors.values()) / calls if calls else 0.0,
            "timeSinceLastResetMs": int((time.monotonic() - self.since) * 1000),
        }


@dataclass
class OfClient:
    """A client's counters."""

    http: HttpStats
    events: EventStats
    asked: dict[int, int] = field(default_factory=dict)
    """Number of a physical source → the SCN from which it last asked for its stream."""


class Usage:
    """The counters of one relay."""

    def __init__(self) -> None:
        self.total = HttpStats("total")
        self._by_source: dict[int, HttpStats] = {}
        self._waiting: dict[tuple[int, ...], HttpStats] = {}
        """What was asked of lists of sources, to be counted for each of them: lists may be long, and requests many."""
        self.container = ContainerStats()
        self._clients: OrderedDict[str, OfClient] = OrderedDict()

    def clients(self) -> list[str]:
        """Who asked, by name."""
        return sorted(self._clients)

    def of(self, client: str) -> OfClient | None:
        """The counters of one; None: it never asked, or long ago."""
        return self._clients.get(client)

    @property
    def by_source(self) -> Mapping[int, HttpStats]:
        """By id of the source, of those that were asked for."""
        self._tell_sources()
        return self._by_source

    def _tell_sources(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for sources, asked in waiting.items():
            for number in sources:
                one = self._by_source.get(number)
                if one is None:
                    one = self._by_source[number] = HttpStats(str(number))
                one.calls["stream"] += asked.calls["stream"] if one.enabled else 0
                one.asked(asked.min_scn)
                one.asked(asked.max_scn)

    def _client(self, name: str) -> OfClient:
        found = self._clients.get(name)
        if found is None:
            found = self._clients[name] = OfClient(HttpStats(name, peers=1), EventStats(name, peers=1))
            while len(self._clients) > _CLIENTS:
                self._clients.popitem(last=False)
            self.total.peers = max(self.total.peers, len(self._clients))
        self._clients.move_to_end(name)
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
        waiting = self._waiting.get(sources)
        if waiting is None:
            if len(self._waiting) >= _LISTS:
                self._tell_sources()
            waiting = self._waiting[sources] = HttpStats("")
        waiting.calls["stream"] += 1
        for scn in scns.values():
            for one in (self.total, found.http, waiting):
                one.asked(scn)

    def gave(self, client: str, events: int, size: int, control: int, control_size: int) -> None:
        """Events went out to a client; sizes in bytes of data events and of control events."""
        self._client(client).events.gave(events, size, control, control_size)
