"""Failures in a row: how long to wait after each, and when to give up."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from headgate.errors import RelayConsumerError

__all__ = ["Failures", "Retry", "Setbacks"]


@dataclass(frozen=True)
class Retry:
    """How failures are met. Databus begins at 100 ms and grows by 1.1, too, without an end."""

    first_seconds: float = 0.1
    factor: float = 1.1
    longest_seconds: float = 10.0
    """Each pause is between half of its length and all of it, at random, so that consumers do not come all at once."""
    tries: int | None = None
    """Failures in a row after the first one; None: without end."""
    deadline_seconds: float | None = None
    """How long it may go on failing; None: without end."""


class Failures:
    """Failures in a row."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self.clear()

    def clear(self) -> None:
        self._count, self._pause, self._since = 0, self._retry.first_seconds, 0.0

    def add(self, error: Exception) -> None:
        """:raises RelayConsumerError: it was one too many."""
        now = time.monotonic()
        self._since = self._since if self._count else now
        self._count += 1
        tries, deadline = self._retry.tries, self._retry.deadline_seconds
        if (tries is not None and self._count > tries) or (deadline is not None and now - self._since >= deadline):
            raise RelayConsumerError(f"given up after {self._count} tries: {error}") from error

    def pause(self, asked: float = 0.0) -> float:
        """Seconds until the next try.

        :param asked: so many the relay wants; a little more is taken, at random. The deadline is not passed.
        """
        pause, self._pause = self._pause, min(self._pause * self._retry.factor, self._retry.longest_seconds)
        pause = max(pause * random.uniform(0.5, 1.0), asked * random.uniform(1.0, 1.1))
        deadline = self._retry.deadline_seconds
        return pause if deadline is None else min(pause, max(0.0, self._since + deadline - time.monotonic()))


class Setbacks(Failures):
    """Failures that are in a row until what was set back has come further than it was: what lies before that may well
    succeed once more.
    """

    _goal: tuple[float, ...] = ()

    def add_at(self, error: Exception, goal: tuple[float, ...]) -> None:
        """Until the client is beyond ``goal``.

        :raises RelayConsumerError: it was one too many.
        """
        self.add(error)
        self._goal = goal

    def come_to(self, progress: tuple[float, ...]) -> None:
        """The client is so far."""
        if progress > self._goal:
            self.clear()
