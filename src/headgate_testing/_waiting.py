"""Waiting in tests: the only place that sleeps.

Wait for an event itself where there is one: a condition, a blocking read, a callback. :func:`wait_until` is for what
can only be looked at again and again, :func:`pass_time` for tests whose subject is time itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["pass_time", "wait_until"]

PATIENCE_SECONDS: Final = 120.0
"""More than anything takes on a busy machine."""
LOOK_SECONDS: Final = 0.01

_T = TypeVar("_T")


def wait_until(
    look: Callable[[], _T],
    problem: str | Callable[[], str] = "what is waited for did not come",
    *,
    seconds: float = PATIENCE_SECONDS,
    every: float = LOOK_SECONDS,
) -> _T:
    """Call ``look`` until it returns something true, and return that. What it raises ends the wait.

    :param problem: what is wrong if it does not come, or a function that describes it then, with logs and states.
    :param seconds: at most; it is called once more after that.
    :param every: seconds between two calls.
    :raises TimeoutError: it does not come in time; the message has the problem.
    """
    deadline = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() >= deadline
        if value := look():
            return value
        if is_last:
            raise TimeoutError(f"{problem if isinstance(problem, str) else problem()} (after {seconds:g} s)")
        time.sleep(every)


def pass_time(seconds: float) -> None:
    """Let time pass: a lease that expires, a reader that is slow, a rate that is limited. Nothing may wait by this."""
    time.sleep(seconds)
