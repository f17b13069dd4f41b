"""What the relay counts: one family of counters, which ``/containerStats``, ``/relayStats`` and ``/metrics`` serve.

A figure has Databus's name wherever it is counted, and stands in Databus's order (``DbusEventsTotalStatsMBean.java``,
``DbusHttpTotalStatsMBean.java``, ``ContainerTrafficTotalStatsEvent.java``). Of the container Jackson writes them there,
which promises no order: that of the interface is taken (``ContainerStatsMBean.java``).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

from headgate.relay._buffer import BufferInfo

__all__ = ["ContainerStats", "Counters", "EventStats", "HttpStats", "Latest", "Outcome", "TrafficStats"]

Outcome: TypeAlias = Literal["good", "bad request", "scn not found", "error"]
_T = TypeVar("_T")

_NS_PER_MS: Final = 1_000_000
_KEPT: Final = ("numPeers", "dimension")
"""Who is known stays known, whatever is reset."""
_CLIENTS: Final = 1000
"""The counters of so many clients are kept, of those that came last: addresses may be any number."""
_COUNTED: Final = 100_000
"""More clients are not told apart."""


def _ms_since(moment: float) -> int:
    """:param moment: of the monotonic clock, in seconds."""
    return int((time.monotonic() - moment) * 1000)


class Counters:
    """Figures of one dimension that are counted, stopped and reset together; for any number of threads."""

    ZERO: ClassVar[Mapping[str, Any]] = {}
    """Each figure as it begins. Those that depend on the time of the answer are worked out then."""

    def __init__(self, dimension: str = "", *, peers: int = 0) -> None:
        self.enabled = True
        """Whether anything is counted."""
        self._lock = threading.Lock()
        self._figures: dict[str, Any] = {"numPeers": peers, "dimension": dimension}
        self.reset()

    def __getitem__(self, figure: str) -> Any:
        return self._figures[figure]

    def reset(self) -> None:
        """Begin again to count."""
        with self._lock:
            kept = {name: self._figures[name] for name in _KEPT if name in self.ZERO}
            self._figures = {**self.ZERO, **kept}
            self._reset_at = self.last_access = time.monotonic()
            if "timestampLastResetMs" in self.ZERO:
                self._figures["timestampLastResetMs"] = time.time_ns() // _NS_PER_MS

    def add(self, **more: float) -> None:
        """Count; all of it or nothing."""
        with self._lock:
            if self.enabled:
                for figure, one in more.items():
                    self._figures[figure] += one
                self.last_access = time.monotonic()

    def span(self, least: str, most: str, scns: Sequence[int]) -> None:
        """SCNs were met: the figures ``least`` and ``most`` know the extreme ones, -1 before the first."""
        with self._lock:
            if self.enabled:
                known = self._figures[least]
                self._figures[least] = min(*scns, known) if known >= 0 else min(scns)
                self._figures[most] = max(*scns, self._figures[most])

    def put(self, **figures: Any) -> None:
        """What is no sum."""
        with self._lock:
            if self.enabled:
                self._figures |= figures

    def to_json(self) -> dict[str, Any]:
        """As Databus tells them; times in ms."""
        with self._lock:
            return {**self._figures, "timeSinceLastResetMs": _ms_since(self._reset_at)}


class EventStats(Counters):
    """Events that came in or went out: of one source, of one client, or of all.

    ``timeSinceLastEvent`` is counted as the newest commit (ns since 1970).

    :param buffer: tells of the one that they are in.
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
        """Of several physical sources; SCNs mean something for one only."""
        total = cls(dimension, peers=max(one["numPeers"] for one in parts))
        for one in parts:
            total.add(**{name: one[name] for name in cls.ZERO if name.startswith(("numData", "numSys", "size"))})
        total.put(timeSinceLastEvent=max(one["timeSinceLastEvent"] for one in parts))
        return total

    def came(self, events: int, size: int, payload: int, control: int = 0, control_size: int = 0) -> None:
        """Events came in; sizes in bytes of data events, of their values and of control events."""
        self.add(
            numDataEvents=events,
            sizeDataEvents=size,
            sizeDataEventsPayload=payload,
            numSysEvents=control,
            sizeSysEvents=control_size,
        )

    def seen(self, first_scn: int, last_scn: int, stamp: int, latency_ms: int) -> None:
        """Windows came by, the last one of a commit at ``stamp`` (ns since 1970), so long ago."""
        self.span("minSeenWinScn", "maxSeenWinScn", (first_scn, last_scn))
        self.put(timeSinceLastEvent=stamp, latencyEvent=latency_ms)

    def gave(self, events: int, size: int, control: int, control_size: int) -> None:
        """Events went out, after filters; sizes in bytes of data events and of control events."""
        self.add(
            numDataEvents=events,
            numDataEventsFiltered=events,
            sizeDataEvents=size,
            sizeDataEventsFiltered=size,
            numSysEvents=control,
            sizeSysEvents=control_size,
        )

    def to_json(self) -> dict[str, Any]:
        """Beside them the SCNs that the buffer holds."""
        found = super().to_json()
        stamp = found["timeSinceLastEvent"]
        found |= {
            "maxFilteredWinScn": found["maxSeenWinScn"],
            "timeLag": found["latencyEvent"],
            "timeSinceLastAccess": _ms_since(self.last_access),
            "timeSinceCreation": found["timeSinceLastResetMs"],
            "timeSinceLastEvent": (time.time_ns() - stamp) // _NS_PER_MS if stamp else 0,
        }
        if self._buffer is not None:
            buffer = self._buffer()
            found |= {"minScn": buffer.min_scn, "maxScn": buffer.max_scn, "prevScn": buffer.prev_scn}
            if buffer.max_scn >= 0:
                found["timeSpan"] = (buffer.last_stamp - buffer.first_stamp) // _NS_PER_MS
        return found


class HttpStats(Counters):
    """Requests in all, of a client or for a source.

    ``latencyStreamCalls``, the mean of ``/stream`` in ms, is counted as their sum.
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
        """A request was answered."""
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

    def asked(self, *scns: int) -> None:
        """Streams begin after these; negative ones: with the oldest."""
        if found := [one for one in scns if one >= 0]:
            self.span("minStreamWinScn", "maxStreamWinScn", found)

    def to_json(self) -> dict[str, Any]:
        """With the means."""
        found = super().to_json()
        calls, errors = (sum(found[names[i]] for names in self.CALLS.values()) for i in (0, 1))
        found["latencyStreamCalls"] = round(found["latencyStreamCalls"] / (found["numStreamCalls"] or 1), 3)
        found["httpErrorRate"] = errors / calls if calls else 0.0
        return found


class TrafficStats(Counters):
    """Connections in all, or of one address. Those that are open are so whatever is reset."""

    ZERO: ClassVar[Mapping[str, Any]] = {
        "containerId": 0, "timestampLastResetMs": 0, "timeSinceLastResetMs": 0, "dimension": "", "numBytes": 0,
        "numOpenConns": 0, "numClosedConns": 0, "numClients": 0, "timeClosedConnLifeMs": 0, "timeOpenConnLifeMs": 0,
        "errorTotalCount": 0, "errorConnectCount": 0, "errorTimeoutCount": 0,
    }  # fmt: skip

    def __init__(self, dimension: str = "") -> None:
        self.open: dict[Hashable, float] = {}
        """Connection → since when."""
        self._clients: set[str] = set()
        super().__init__(dimension)

    def reset(self) -> None:
        """Begin again to count, clients, too."""
        super().reset()
        self._clients.clear()

    def opened(self, key: Hashable, client: str) -> None:
        """A connection was made."""
        self.open[key] = time.monotonic()
        if self.enabled and len(self._clients) < _COUNTED:
            self._clients.add(client)

    def lost(self, key: Hashable, error: Exception | None) -> None:
        """A connection ended, perhaps with an error."""
        since = self.open.pop(key, None)
        if since is not None:
            self.add(
                numClosedConns=1,
                timeClosedConnLifeMs=_ms_since(since),
                errorTotalCount=error is not None,
                errorTimeoutCount=isinstance(error, TimeoutError),
            )

    def to_json(self) -> dict[str, Any]:
        """With those that are open."""
        life = sum(map(_ms_since, self.open.values()))
        mine = {"numOpenConns": len(self.open), "numClients": len(self._clients), "timeOpenConnLifeMs": life}
        return super().to_json() | mine


class ContainerStats(Counters):
    """The server as a whole: its requests, its threads and what went wrong.

    Each request is a task in Databus, and a worker's thread takes it; here most are answered by the server's own
    thread, and those that take longer, in part, by a worker's. Maxima are updated by each question for them,
    as they are there.
    """

    ZERO: ClassVar[Mapping[str, Any]] = {
        "ioThreadRate": -1,  # what Databus has of them where they are no pool: here it is the server's own thread
        "ioThreadMax": 0, "ioTaskCount": 0, "ioTaskMax": 0, "ioTaskQueueSize": 0, "workerThreadRate": 0,
        "workerThreadMax": 0, "workerTaskCount": 0, "workerTaskMax": 0, "workerTaskQueueSize": 0, "errorCount": 0,
        "errorUncaughtCount": 0, "errorRequestProcessingCount": 0, "timestampLastResetMs": 0,
        "timeSinceLastResetMs": 0,
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._told = 0

    def answered(self, *, good: bool, processing: bool = False) -> None:
        """A request was answered, or ended with an unexpected error.

        :param processing: whether an error is what Databus calls a RequestProcessingException: the request was right.
        """
        self.add(workerTaskCount=1)
        if not good:
            kind = "errorRequestProcessingCount" if processing else "errorUncaughtCount"
            self.add(**{"errorCount": 1, kind: 1})

    def look(self, threads: int, waiting: int) -> None:
        """Note the present figures, because they are asked for.

        :param threads: workers that do something now.
        :param waiting: requests that wait for one.
        """
        requests = self["workerTaskCount"]
        self.put(
            workerThreadRate=threads,
            workerTaskQueueSize=waiting,
            workerThreadMax=max(self["workerThreadMax"], threads),
            # What came before anybody asked is of no interval.
            workerTaskMax=max(self["workerTaskMax"], requests - self._told if self._told else 0),
        )
        self._told = requests


class Latest(OrderedDict[str, _T]):
    """The counters of those that came last, by name."""

    def __init__(self, make: Callable[[str], _T]) -> None:
        super().__init__()
        self._make = make

    def met(self, name: str) -> _T:
        """One came."""
        if name not in self:
            self[name] = self._make(name)
            while len(self) > _CLIENTS:
                self.popitem(last=False)
        self.move_to_end(name)
        return self[name]
