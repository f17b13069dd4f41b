"""Retry policy of a run's queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from headgate.errors import Transient

__all__ = ["Patience"]

_MAX_WAIT_SECONDS: Final = 60.0
"""The longest pause between two tries after a Transient failure; the first is one second, each next twice as long."""


class Patience:
    """Decides whether a query that failed is followed by another: Transient failures are retried, for ``seconds``.

    The time counts from the first failure after which nothing succeeded. The planner retries as long before it fails,
    so a query that lived longer had succeeded meanwhile, even if there was nothing to do.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._begun = self._failing_since = clock()
        self._wait: float | None = None
        self._tries = 0

    @property
    def is_first(self) -> bool:
        """Whether no query has begun yet."""
        return not self._tries

    def begin(self) -> None:
        """Note that a query begins."""
        self._tries += 1
        self._begun = self._clock()

    def pause(self, error: BaseException, *, moved: bool, unplanned: float = 0.0) -> float | None:
        """Return the seconds to wait before the next try; None: give up.

        :param moved: whether the query that failed had applied a batch.
        :param unplanned: seconds for which every planning has failed, the last one too.
        """
        if not isinstance(error, Transient) or 0 < self.seconds <= unplanned:
            return None
        now = self._clock()
        if self._wait is None or moved or now - self._begun > self.seconds + _MAX_WAIT_SECONDS:
            self._failing_since, self._wait = now, 1.0
        elif now - self._failing_since >= self.seconds:
            return None
        else:
            self._wait = min(2 * self._wait, _MAX_WAIT_SECONDS)
        return self._wait
