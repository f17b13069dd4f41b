"""Who is connected and how much was sent to whom: the connections of ``/containerStats/outbound`` and ``inbound``.

Names are Databus's (``ContainerTrafficTotalStatsEvent.java``, ``ContainerStatisticsCollector.java``): outbound are the
connections by which events go out, which consumers make, and inbound the HTTP connections that the relay makes itself.
Like Databus's relay of MySQL it makes none; those to MySQL are of neither kind. A client is here an address, because a
connection has no tenant before its first request. All of it is counted in the server's one thread.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Traffic", "TrafficStats"]

_CLIENTS: Final = 1000
"""The counters of so many addresses are kept, of those that came last."""
_COUNTED: Final = 100_000
"""More of them are not told apart."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class TrafficStats:
    """Connections in all, or of one client."""

    dimension: str
    bytes: int = 0
    """Of answers' bodies."""
    closed: int = 0
    closed_ms: int = 0
    """How long the closed ones were open, altogether."""
    errors: int = 0
    timeouts: int = 0
    clients: set[str] = field(default_factory=set)
    open: dict[Hashable, float] = field(default_factory=dict)
    """Connection → since when; those that are open are so whatever is reset."""
    reset_at: int = field(default_factory=_now_ms)
    """ms since 1970."""
    enabled: bool = True
    """Whether anything is counted."""

    def opened(self, key: Hashable, client: str) -> None:
        """A connection was made."""
        self.open[key] = time.monotonic()
        if self.enabled and len(self.clients) < _COUNTED:
            self.clients.add(client)

    def lost(self, key: Hashable, error: Exception | None) -> None:
        """A connection ended, perhaps with an error."""
        since = self.open.pop(key, None)
        if since is None or not self.enabled:
            return
        self.closed += 1
        self.closed_ms += int((time.monotonic() - since) * 1000)
        self.errors += error is not None
        self.timeouts += isinstance(error, TimeoutError)

    def sent(self, size: int) -> None:
        """Bytes of an answer's body went out."""
        self.bytes += size if self.enabled else 0

    def reset(self) -> None:
        """Count anew."""
        self.bytes = self.closed = self.closed_ms = self.errors = self.timeouts = 0
        self.clients.clear()
        self.reset_at = _now_ms()

    def to_json(self) -> dict[str, Any]:
        """In Databus's order."""
        now = time.monotonic()
        return {
            "containerId": 0,
            "timestampLastResetMs": self.reset_at,
            "timeSinceLastResetMs": _now_ms() - self.reset_at,
            "dimension": self.dimension,
            "numBytes": self.bytes,
            "numOpenConns": len(self.open),
            "numClosedConns": self.closed,
            "numClients": len(self.clients),
            "timeClosedConnLifeMs": self.closed_ms,
            "timeOpenConnLifeMs": sum(int((now - since) * 1000) for since in self.open.values()),
            "errorTotalCount": self.errors,
            "errorConnectCount": 0,  # of who connects: to a server none is known
            "errorTimeoutCount": self.timeouts,
        }


class Traffic:
    """The connections of one relay."""

    def __init__(self) -> None:
        self.total = TrafficStats("outbound")
        self.inbound = TrafficStats("inbound")
        self._clients: OrderedDict[str, TrafficStats] = OrderedDict()

    def clients(self) -> list[str]:
        """The addresses that were connected."""
        return sorted(self._clients)

    def of(self, client: str) -> TrafficStats | None:
        """The counters of an address; None: it was never connected, or long ago."""
        return self._clients.get(client)

    def opened(self, key: Hashable, client: str) -> None:
        """A connection was made.

        :param key: by which its end is known.
        """
        own = self._clients.setdefault(client, TrafficStats(client))
        self._clients.move_to_end(client)
        while len(self._clients) > _CLIENTS:
            self._clients.popitem(last=False)
        for one in (self.total, own):
            one.opened(key, client)

    def lost(self, key: Hashable, client: str, error: Exception | None) -> None:
        """A connection ended, perhaps with an error."""
        self.total.lost(key, error)
        if (own := self._clients.get(client)) is not None:
            own.lost(key, error)

    def sent(self, client: str, size: int) -> None:
        """Bytes of an answer's body go out to an address."""
        self.total.sent(size)
        if (own := self._clients.get(client)) is not None:
            own.sent(size)
