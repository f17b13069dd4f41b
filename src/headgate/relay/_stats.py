"""What went in and out, under the names of Databus's statistics (``DbusEventsTotalStatsMBean.java``)."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.relay._buffer import BufferInfo

__all__ = ["EventStats"]

_NS_PER_MS: Final = 1_000_000


@dataclass
class EventStats:
    """Counters of one direction and one source, or of all. Written by one thread, and by who resets them; a reader may
    see them half a transaction apart.
    """

    dimension: str
    events: int = 0
    """Data events."""
    bytes: int = 0
    payload: int = 0
    """Bytes of the events' values."""
    control: int = 0
    control_bytes: int = 0
    chosen: int = 0
    """Data events that went out after filters; what came in is not filtered."""
    chosen_bytes: int = 0
    peers: int = 0
    min_seen: int = -1
    max_seen: int = -1
    max_given: int = -1
    last_stamp: int = 0
    """ns since 1970."""
    latency_ms: int = 0
    """From the commit of the newest event to its entry."""
    reset_at: float = field(default_factory=time.monotonic)
    last_access: float = field(default_factory=time.monotonic)
    enabled: bool = True
    """Whether anything is counted."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def came(self, events: int, size: int, payload: int, control: int = 0, control_size: int = 0) -> None:
        """Events came in; sizes in bytes of data events, of their values and of control events."""
        with self._lock:
            if self.enabled:
                self.events += events
                self.bytes += size
                self.payload += payload
                self.control += control
                self.control_bytes += control_size

    def seen(self, first_scn: int, last_scn: int, stamp: int, latency_ms: int) -> None:
        """Windows came by, the last one of a commit at ``stamp`` (ns since 1970), so long ago."""
        with self._lock:
            if self.enabled:
                self.min_seen = first_scn if self.min_seen < 0 else min(self.min_seen, first_scn)
                self.max_seen = self.max_given = max(self.max_seen, last_scn)
                self.last_stamp, self.latency_ms = stamp, latency_ms
                self.last_access = time.monotonic()

    def gave(self, events: int, size: int, control: int, control_size: int) -> None:
        """Events went out; sizes in bytes of data events and of control events."""
        with self._lock:
            if self.enabled:
                self.events += events
                self.chosen += events
                self.bytes += size
                self.chosen_bytes += size
                self.control += control
                self.control_bytes += control_size
                self.last_access = time.monotonic()

    def reset(self) -> None:
        """Count anew; who is known (``numPeers``) stays known."""
        with self._lock:
            self.events = self.bytes = self.payload = self.control = self.control_bytes = 0
            self.chosen = self.chosen_bytes = self.last_stamp = self.latency_ms = 0
            self.min_seen = self.max_seen = self.max_given = -1
            self.reset_at = self.last_access = time.monotonic()

    def to_json(self, buffer: BufferInfo | None = None) -> dict[str, Any]:
        """In Databus's order; times in ms."""
        now_ms = time.time_ns() // _NS_PER_MS
        idle = int((time.monotonic() - self.last_access) * 1000)
        age = int((time.monotonic() - self.reset_at) * 1000)
        since_event = now_ms - self.last_stamp // _NS_PER_MS if self.last_stamp else 0
        known = buffer is not None and buffer.max_scn >= 0
        span = (buffer.last_stamp - buffer.first_stamp) // _NS_PER_MS if known and buffer is not None else 0
        return {
            "numDataEvents": self.events,
            "sizeDataEvents": self.bytes,
            "sizeDataEventsPayload": self.payload,
            "numDataEventsFiltered": self.chosen,
            "sizeDataEventsFiltered": self.chosen_bytes,
            "sizeDataEventsPayloadFiltered": 0,
            "numPeers": self.peers,
            "minSeenWinScn": self.min_seen,
            "maxSeenWinScn": self.max_seen,
            "maxFilteredWinScn": self.max_given,
            "numSysEvents": self.control,
            "sizeSysEvents": self.control_bytes,
            "numInvalidEvents": 0,
            "numHeaderErrEvents": 0,
            "numPayloadErrEvents": 0,
            "minScn": buffer.min_scn if buffer is not None else -1,
            "maxScn": buffer.max_scn if buffer is not None else -1,
            "prevScn": buffer.prev_scn if buffer is not None else -1,
            "timeSinceLastAccess": idle,
            "timeSinceCreation": age,
            "timeSpan": span,
            "timeLag": self.latency_ms,
            "timeSinceLastEvent": since_event,
            "latencyEvent": self.latency_ms,
            "timeSinceLastResetMs": age,
            "dimension": self.dimension,
        }
