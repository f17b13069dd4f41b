"""Counters of the relay: one family, which ``/containerStats``, ``/relayStats`` and ``/metrics`` serve.

A figure has Databus's name wherever it is counted, and Databus's order (``DbusEventsTotalStatsMBean.java``,
``DbusHttpTotalStatsMBean.java``, ``ContainerTrafficTotalStatsEvent.java``). Databus writes the container's figures with
Jackson, which promises no order; here they have that of the interface (``ContainerStatsMBean.java``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

from headgate.relay._buffer import BufferInfo

__all__ = ["ContainerStats", "Counters", "EventStats", "HttpStats", "Outcome", "TrafficStats"]

Outcome: TypeAlias = Literal["good", "bad request", "scn not found", "error"]

_NS_PER_MS: Final = 1_000_000
_KEPT: Final = ("numPeers", "dimension")
"""Not reset: the known peers and the name."""
_COUNTED: Final = 100_000
"""Most clients that ``numClients`` counts."""


def _ms_since(moment: float) -> int:
    """Return ms since a monotonic time in seconds."""
    return int((time.monotonic() - moment) * 1000)


class Counters:
    """Figures of one dimension, counted, disabled and reset together. Thread-safe."""

    ZERO: ClassVar[Mapping[str, Any]] = {}
    """Initial figures. Those that depend on the time of the answer are computed in :meth:`to_json`."""

    def __init__(self, dimension: str = "", *, peers: int = 0) -> None:
        self.enabled = True
        """Whether counting is enabled."""
        self._lock = threading.Lock()
        self._figures: dict[str, Any] = {"numPeers": peers, "dimension": dimension}
        self.reset()

    def __getitem__(self, figure: str) -> Any:
        return self._figures[figure]

    def reset(self) -> None:
        """Reset all but the known peers and the name."""
        with self._lock:
            kept = {name: self._figures[name] for name in _KEPT if name in self.ZERO}
            self._figures = {**self.ZERO, **kept}
            self._reset_at = self.last_access = time.monotonic()
            if "timestampLastResetMs" in self.ZERO:
                self._figures["timestampLastResetMs"] = time.time_ns() // _NS_PER_MS

    def add(self, **more: float) -> None:
        """Add to figures at once."""
        with self._lock:
            if self.enabled:
                for figure, one in more.items():
                    self._figures[figure] += one
                self.last_access = time.monotonic()

    def span(self, least: str, most: str, scns: Sequence[int]) -> None:
        """Extend the range of SCNs from ``least`` to ``most``, figures that are -1 before the first."""
        with self._lock:
            if self.enabled:
                known = self._figures[least]
                self._figures[least] = min(*scns, known) if known >= 0 else min(scns)
                self._figures[most] = max(*scns, self._figures[most])

    def put(self, **figures: Any) -> None:
        """Set figures that are not sums."""
        with self._lock:
            if self.enabled:
                self._figures |= figures

    def to_json(self) -> dict[str, Any]:
        """Return the figures as in Databus; times in ms."""
        with self._lock:
            return {**self._figures, "timeSinceLastResetMs": _ms_since(self._reset_at)}


class EventStats(Counters):
    """Counters of incoming or outgoing events: of one source, one client, or all.

    ``timeSinceLastEvent`` stores the time of the newest commit (ns since 1970).

    :param buffer: describes the buffer of the events.
    """

    ZERO: ClassVar[Mapping[str, Any]] = {
        "numDataEvents": 0, "sizeDataEvents": 0, "sizeDataEventsPayload": 0, "numDataEventsFiltered": 0,
        "sizeDataEventsFiltered": 0, "sizeDataEventsPayloadFiltered": 0, "numPeers": 0, "minSeenWinScn": -1,
        "maxSeenWinScn": -1, "maxFilteredWinScn": -1, "numSysEvents": 0, "sizeSysEvents": 0, "numInvalidEvents": 0,
        "numHeaderErrEvents": 0, "numPayloadErrEvents": 0, "minScn": -1, "maxScn": -1, "prevScn": -1,
        "timeSinceLastAccess": 0, "timeSinceCreation": 0, "timeSpan": 0, "timeLag": 0, "timeSinceLastEvent": 0,
        "latencyEvent": 0, "timeSinceLastResetMs": 0, "dimension": "",
    }  # fmt: skip

    def __init__(self, dimension: str = "", *, peers: int = 0, buffer: Callable[[], BufferInfo] | None = None) -> None:
        super().__init__(dimension, peers=peers)
        self._buffer = buffer

    @classmethod
    def together(cls, dimension: str, parts: Sequence[Counters]) -> Self:
        """Return the sum of several physical sources, without SCNs, which are valid for one only."""
        total = cls(dimension, peers=max(one["numPeers"] for one in parts))
        for one in parts:
            total.add(**{name: one[name] for name in cls.ZERO if name.startswith(("numData", "numSys", "size"))})
        total.put(timeSinceLastEvent=max(one["timeSinceLastEvent"] for one in parts))
        return total

    def count_in(self, events: int, size: int, payload: int, control: int = 0, control_size: int = 0) -> None:
        """Count incoming events; sizes in bytes of data events, of their values and of control events."""
        self.add(
            numDataEvents=events,
            sizeDataEvents=size,
            sizeDataEventsPayload=payload,
            numSysEvents=control,
            sizeSysEvents=control_size,
        )

    def record_windows(self, first_scn: int, last_scn: int, stamp: int, latency_ms: int) -> None:
        """Record windows, the last one of a commit at ``stamp`` (ns since 1970), ``latency_ms`` ago."""
        self.span("minSeenWinScn", "maxSeenWinScn", (first_scn, last_scn))
        self.put(timeSinceLastEvent=stamp, latencyEvent=latency_ms)

    def count_out(self, events: int, size: int, control: int, control_size: int) -> None:
        """Count outgoing events, after filters; sizes in bytes of data events and of control events."""
        self.add(
            numDataEvents=events,
            numDataEventsFiltered=events,
            sizeDataEvents=size,
            sizeDataEventsFiltered=size,
            numSysEvents=control,
            sizeSysEvents=control_size,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figures with the SCNs of the buffer."""
        figures = super().to_json()
        stamp = figures["timeSinceLastEvent"]
        figures |= {
            "maxFilteredWinScn": figures["maxSeenWinScn"],
            "timeLag": figures["latencyEvent"],
            "timeSinceLastAccess": _ms_since(self.last_access),
            "timeSinceCreation": figures["timeSinceLastResetMs"],
            "timeSinceLastEvent": (time.time_ns() - stamp) // _NS_PER_MS if stamp else 0,
        }
        if self._buffer is not None:
            buffer = self._buffer()
            figures |= {"minScn": buffer.min_scn, "maxScn": buffer.max_scn, "prevScn": buffer.oldest_resumable_scn}
            if buffer.max_scn >= 0:
                figures["timeSpan"] = (buffer.last_stamp - buffer.first_stamp) // _NS_PER_MS
        return figures


class HttpStats(Counters):
    """Counters of requests: of all, of a client or for a source.

    ``latencyStreamCalls``, the mean duration of ``/stream`` in ms, is stored as a sum.
    """

    ZERO: ClassVar[Mapping[str, Any]] = {
        "numSourcesCalls": 0, "numRegisterCalls": 0, "numStreamCalls": 0, "numPeers": 0, "latencyStreamCalls": 0.0,
        "dimension": "", "minStreamWinScn": -1, "maxStreamWinScn": -1, "numScnNotFoundStream": 0, "numErrStream": 0,
        "numErrStreamReq": 0, "numErrRegister": 0, "numErrRegisterReq": 0, "numErrSources": 0, "numErrSourcesReq": 0,
        "httpErrorRate": 0.0, "timeSinceLastResetMs": 0,
    }  # fmt: skip
    CALLS: ClassVar[Mapping[str, tuple[str, str]]] = {
        one: (f"num{one.capitalize()}Calls", f"numErr{one.capitalize()}") for one in ("sources", "register", "stream")
    }
    """Command → its figures of all requests and of those answered with an error."""

    def count(self, command: str, outcome: Outcome, seconds: float) -> None:
        """Count an answered request."""
        if command not in self.CALLS:
            return
        calls, errors = self.CALLS[command]
        more: dict[str, float] = {calls: 1}
        if outcome != "good":
            more[errors] = 1
        if outcome == "bad request":
            more[f"{errors}Req"] = 1
        elif outcome == "scn not found":
            more["numScnNotFoundStream"] = 1
        if command == "stream":
            more["latencyStreamCalls"] = seconds * 1000
        self.add(**more)

    def record_start(self, *scns: int) -> None:
        """Record the SCNs after which streams begin; ignore negative ones (the oldest)."""
        if starts := [one for one in scns if one >= 0]:
            self.span("minStreamWinScn", "maxStreamWinScn", starts)

    def to_json(self) -> dict[str, Any]:
        """Return the figures with means."""
        figures = super().to_json()
        calls, errors = (sum(figures[names[i]] for names in self.CALLS.values()) for i in (0, 1))
        figures["latencyStreamCalls"] = round(figures["latencyStreamCalls"] / (figures["numStreamCalls"] or 1), 3)
        figures["httpErrorRate"] = errors / calls if calls else 0.0
        return figures


class TrafficStats(Counters):
    """Counters of connections: of all, or of one address. A reset keeps open connections."""

    ZERO: ClassVar[Mapping[str, Any]] = {
        "containerId": 0, "timestampLastResetMs": 0, "timeSinceLastResetMs": 0, "dimension": "", "numBytes": 0,
        "numOpenConns": 0, "numClosedConns": 0, "numClients": 0, "timeClosedConnLifeMs": 0, "timeOpenConnLifeMs": 0,
        "errorTotalCount": 0, "errorConnectCount": 0, "errorTimeoutCount": 0,
    }  # fmt: skip

    def __init__(self, dimension: str = "") -> None:
        self.open: dict[Hashable, float] = {}
        """Connection → since when, monotonic."""
        self._clients: set[str] = set()
        super().__init__(dimension)

    def reset(self) -> None:
        """Reset the figures and the known clients."""
        super().reset()
        self._clients.clear()

    def opened(self, key: Hashable, client: str) -> None:
        """Record a new connection."""
        self.open[key] = time.monotonic()
        if self.enabled and len(self._clients) < _COUNTED:
            self._clients.add(client)

    def lost(self, key: Hashable, error: Exception | None) -> None:
        """Record the end of a connection, perhaps with an error."""
        since = self.open.pop(key, None)
        if since is not None:
            self.add(
                numClosedConns=1,
                timeClosedConnLifeMs=_ms_since(since),
                errorTotalCount=error is not None,
                errorTimeoutCount=isinstance(error, TimeoutError),
            )

    def to_json(self) -> dict[str, Any]:
        """Return the figures with open connections."""
        life = sum(map(_ms_since, self.open.values()))
        open_connections = {
            "numOpenConns": len(self.open),
            "numClients": len(self._clients),
            "timeOpenConnLifeMs": life,
        }
        return super().to_json() | open_connections


class ContainerStats(Counters):
    """Counters of the server as a whole: requests, threads and errors.

    In Databus each request is a task of a worker thread. Here the server's own thread answers most requests, and a
    worker does a part of the longer ones. As in Databus, each query of the figures updates the maxima.
    """

    ZERO: ClassVar[Mapping[str, Any]] = {
        "ioThreadRate": -1,  # Databus's value if I/O threads are not a pool: here it is the server's own thread
        "ioThreadMax": 0, "ioTaskCount": 0, "ioTaskMax": 0, "ioTaskQueueSize": 0, "workerThreadRate": 0,
        "workerThreadMax": 0, "workerTaskCount": 0, "workerTaskMax": 0, "workerTaskQueueSize": 0, "errorCount": 0,
        "errorUncaughtCount": 0, "errorRequestProcessingCount": 0, "timestampLastResetMs": 0,
        "timeSinceLastResetMs": 0,
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._last_total = 0

    def answered(self, *, good: bool, processing: bool = False) -> None:
        """Count a request that was answered, or ended with an unexpected error.

        :param processing: whether an error is Databus's RequestProcessingException: a valid request.
        """
        self.add(workerTaskCount=1)
        if not good:
            kind = "errorRequestProcessingCount" if processing else "errorUncaughtCount"
            self.add(**{"errorCount": 1, kind: 1})

    def update(self, threads: int, waiting: int) -> None:
        """Update the current figures, before each query.

        :param threads: busy workers.
        :param waiting: requests that wait for a worker.
        """
        requests = self["workerTaskCount"]
        self.put(
            workerThreadRate=threads,
            workerTaskQueueSize=waiting,
            workerThreadMax=max(self["workerThreadMax"], threads),
            # Before the first query there is no interval.
            workerTaskMax=max(self["workerTaskMax"], requests - self._last_total if self._last_total else 0),
        )
        self._last_total = requests
