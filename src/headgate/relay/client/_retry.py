"""Intervals and sizes of a consumer, and its retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.errors import RelayConsumerError
from headgate.retrying import Failures, RetryPolicy

__all__ = ["ClientTuning", "ConsumerFailures", "Retry", "Setbacks"]


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
    others: float = 60.0
    """With several relays: how long to wait for one that does not answer before a bootstrap begins."""
    after_failure: float = 0.2
    """Pause of a member after a report without an answer."""
    stream_bytes: int = 1 << 20
    """Of a first request of the stream; later as many as a larger event has."""
    rows_bytes: int = 2 << 20
    """The same of a bootstrap's rows."""
    largest_bytes: int = 256 << 20
    """A larger event is refused rather than held. MySQL's largest packet has 1 GiB."""


@dataclass(frozen=True)
class Retry(RetryPolicy):
    """Retries of a consumer. Databus also begins at 100 ms, grows by 1.1 and never gives up."""

    factor: float = 1.1
    errors: type[Any] = Exception


class ConsumerFailures(Failures):
    """Counter of consecutive failures, the last of which ends the consumer."""

    def add(self, error: BaseException) -> None:
        """:raises RelayConsumerError: it was one too many, or the deadline has passed."""
        if not self.note(error):
            raise RelayConsumerError(f"given up after {self.count} tries: {error}") from error


class Setbacks(ConsumerFailures):
    """Counter of failures that ends only when the client gets beyond the point of the failure, because work before that
    point may well succeed again.
    """

    _goal: tuple[float, ...] = ()

    def add_at(self, error: Exception, goal: tuple[float, ...]) -> None:
        """Count a failure until the client is beyond ``goal``.

        :raises RelayConsumerError: it was one too many, or the deadline has passed.
        """
        self.add(error)
        self._goal = goal

    def clear_beyond(self, progress: tuple[float, ...]) -> None:
        """Reset the count if ``progress`` is beyond the goal."""
        if progress > self._goal:
            self.clear()
