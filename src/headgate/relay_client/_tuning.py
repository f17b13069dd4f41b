"""Intervals of a consumer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClientTimes"]


@dataclass(frozen=True)
class ClientTimes:
    """Intervals of a consumer, in seconds."""

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
