"""Retries of a run's queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headgate.retrying import Failures, RetryPolicy

__all__ = ["RetryBudget"]

_RETRY: Final = RetryPolicy(1.0, longest_seconds=60.0, jitter=0.0)


class RetryBudget:
    """Decides whether a query that failed is followed by another: Transient failures are retried, for ``seconds``, but
    at least once.

    The time counts from the first failure after which nothing succeeded. The planner retries as long before it fails,
    so a query that lived longer had succeeded meanwhile, even if there was nothing to do.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._failures = Failures(replace(_RETRY, clock=clock))
        self._clock, self._begun = clock, clock()

    def begin(self) -> None:
        """Note that a query begins."""
        self._begun = self._clock()

    def pause(self, error: BaseException, *, moved: bool, unplanned: float = 0.0) -> float | None:
        """Return the seconds to wait before the next try; None: give up.

        :param moved: whether the query that failed had applied a batch.
        :param unplanned: seconds for which every planning has failed, the last one too.
        """
        if 0 < self.seconds <= unplanned:
            return None
        failures = self._failures
        failures.policy = replace(failures.policy, deadline_seconds=max(self.seconds, _RETRY.first_seconds))
        if moved or self._clock() - self._begun > self.seconds + _RETRY.longest_seconds:
            failures.clear()
        return failures.pause() if failures.note(error) else None
