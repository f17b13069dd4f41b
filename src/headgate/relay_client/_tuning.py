"""Intervals and sizes of a consumer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClientTuning"]


@dataclass(frozen=True)
class ClientTuning:
    """Intervals of a consumer, in seconds, and sizes of its requests, in bytes."""

    wait: float = 1.0
    """How long the relay may wait for an event before it answers without one; at least a millisecond."""
    resume_check: float = 0.05
    """Between two checks of whether delivery may resume."""
    stalled: float = 10.0
    """With several relays: check the state of one that sends nothing for this time."""
    sync: float = 1.0
    """Longest time between two reports of a group's member; a third of the lease at most."""
    after_failure: float = 0.2
    """Pause of a member after a report without an answer."""
    stream_bytes: int = 1 << 20
    """Of a first request of the stream; later as many as a larger event has."""
    rows_bytes: int = 2 << 20
    """The same of a bootstrap's rows."""
    largest_bytes: int = 256 << 20
    """A larger event is refused rather than held. MySQL's largest packet has 1 GiB."""
