"""Intervals and sizes of a consumer; consecutive failures: the pause after each, and when to give up."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from headgate.errors import RelayConsumerError

__all__ = ["ClientTuning", "Failures", "Retry", "Setbacks"]


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
class Retry:
    """Pauses and limits of retries. Databus also begins at 100 ms, grows by 1.1 and never gives up."""

    first_seconds: float = 0.1
    factor: float = 1.1
    longest_seconds: float = 10.0
    """Each pause is shortened at random, by half at most, so that consumers do not retry all at once."""
    tries: int | None = None
    """Consecutive failures after the first one; None: no limit."""
    deadline_seconds: float | None = None
    """How long failures may continue; None: no limit."""


class Failures:
    """Counter of consecutive failures."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self.clear()

    def clear(self) -> None:
        self._count, self._pause, self._since = 0, self._retry.first_seconds, 0.0

    def add(self, error: Exception) -> None:
        """:raises RelayConsumerError: it was one too many, or the deadline has passed."""
        now = time.monotonic()
        self._since = self._since if self._count else now
        self._count += 1
        tries, deadline = self._retry.tries, self._retry.deadline_seconds
        if (tries is not None and self._count > tries) or (deadline is not None and now - self._since >= deadline):
            raise RelayConsumerError(f"given up after {self._count} tries: {error}") from error

    def pause(self, requested_seconds: float = 0.0) -> float:
        """Return the seconds until the next try, which the deadline limits.

        :param requested_seconds: seconds that the relay requests; up to a tenth more is added, at random.
        """
        pause, self._pause = self._pause, min(self._pause * self._retry.factor, self._retry.longest_seconds)
        pause = max(pause * random.uniform(0.5, 1.0), requested_seconds * random.uniform(1.0, 1.1))
        deadline = self._retry.deadline_seconds
        return pause if deadline is None else min(pause, max(0.0, self._since + deadline - time.monotonic()))


class Setbacks(Failures):
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
