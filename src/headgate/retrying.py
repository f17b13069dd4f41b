"""When failed work is retried, for all of headgate, and a thread that repeats one job until it is stopped.

A :class:`RetryPolicy` is the rule, :class:`Failures` counts under it. After progress, a caller clears the count.

The thread (:class:`Retrying`) logs a ``Transient`` error, waits and retries, without limit. Any other error ends the
thread, with the reason in :attr:`Retrying.problem`. It raises nothing: callers check that attribute.
"""

from __future__ import annotations

import abc
import enum
import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from headgate.errors import BinlogPurgedError, HeadgateError, Transient, error_line

__all__ = ["Failures", "RetryPolicy", "Retrying", "Stage"]

T = TypeVar("T")

log = logging.getLogger("headgate")

_STOP_SECONDS: Final = 5.0
"""Longest wait for the thread to end. A binlog reader notices the stop at its next heartbeat, one a second."""


@dataclass(frozen=True)
class RetryPolicy:
    """Whether and when to retry failed work."""

    first_seconds: float = 0.1
    """Pause before the first retry."""
    factor: float = 2.0
    """Ratio of each pause to the one before."""
    longest_seconds: float = 10.0
    """Longest pause."""
    tries: int | None = None
    """Retries in a row without progress; None: no limit."""
    deadline_seconds: float | None = None
    """How long work may fail without progress: from its first failure on, or from :meth:`Failures.begin`. It also
    limits the last pause. None: no limit."""
    jitter: float = 0.5
    """Each pause is shortened at random by this part of it at most, so that programs do not retry all at once."""
    errors: type[Any] = Transient
    """Errors after which to retry."""
    sleep: Callable[[float], object] = time.sleep
    """Wait for so many seconds. An error that it raises ends the retries."""
    clock: Callable[[], float] = time.monotonic
    """Return the time in seconds."""

    @classmethod
    def every(cls, seconds: float) -> Self:
        """Return a policy that retries without limit, with equal pauses."""
        return cls(seconds, 1.0, seconds, jitter=0.0)

    def call(self, work: Callable[[], T], on_failure: Callable[[Any], object] = lambda _: None) -> T:
        """Return ``work()``, retried; the deadline counts from now.

        :param on_failure: called with each error that is followed by a retry.
        :raises Exception: the last error of ``work``.
        """
        failures = Failures(self)
        failures.begin()
        while True:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - raised again, unless the policy retries it
                failures.add(error)
                on_failure(error)
                failures.wait()


class Failures:
    """Counter of consecutive failures under a policy.

    Time counts by the policy's clock, but at least as much as the pauses returned.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.clear()

    def clear(self) -> None:
        """Reset the count after progress."""
        self.count = 0
        """Failures in a row."""
        self._since: float | None = None
        self._next, self._waited = self.policy.first_seconds, 0.0

    def begin(self) -> None:
        """Count the deadline from now."""
        self._since = self.policy.clock()

    def note(self, error: BaseException) -> bool:
        """Count a failure. Return whether to retry: False if that cannot help, or no retry is left."""
        if self._since is None:
            self.begin()
        self.count += 1
        is_last = self.policy.tries is not None and self.count > self.policy.tries
        return isinstance(error, self.policy.errors) and not is_last and self._left() > 0

    def add(self, error: BaseException) -> None:
        """Count a failure, or raise ``error`` if no retry follows."""
        if not self.note(error):
            raise error

    def pause(self, requested_seconds: float = 0.0) -> float:
        """Return the seconds to wait before the next try.

        :param requested_seconds: seconds that a server requests; up to a tenth more is added, at random.
        """
        policy = self.policy
        pause = min(self._next, policy.longest_seconds) * random.uniform(1.0 - policy.jitter, 1.0)
        self._next = min(self._next * policy.factor, policy.longest_seconds)
        pause = min(max(pause, requested_seconds * random.uniform(1.0, 1.1)), self._left())
        self._waited += pause
        return pause

    def wait(self, requested_seconds: float = 0.0) -> None:
        """Sleep before the next try, for the seconds of :meth:`pause`."""
        self.policy.sleep(self.pause(requested_seconds))

    def _left(self) -> float:
        """Return the seconds until the deadline."""
        deadline = self.policy.deadline_seconds
        if deadline is None:
            return math.inf
        elapsed = 0.0 if self._since is None else self.policy.clock() - self._since
        return max(0.0, deadline - max(elapsed, self._waited))


class Stage(enum.Enum):
    """The state of a thread that works until it is stopped.

    ::

        WORKING            Transient error    RETRYING
        RETRYING           it works again     WORKING
        WORKING, RETRYING  any other error    FAILED
    """

    WORKING = enum.auto()
    RETRYING = enum.auto()
    FAILED = enum.auto()


class Retrying(abc.ABC):
    """A thread that calls :meth:`_work` until it is stopped; :meth:`_begin` starts it.

    :param thread: the thread's name.
    :param about: prefix of its log messages.
    :param retry: pauses after Transient errors. It works again when :meth:`_resume` is called.
    """

    def __init__(self, thread: str, about: str, retry: RetryPolicy) -> None:
        self._about, self._failures = about, Failures(retry)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)
        self.stage = Stage.WORKING
        self.problem: str | None = None
        """Why the work stopped; None while it runs."""
        self.error: HeadgateError | None = None
        """The error that ended it, if known."""
        self._since: float | None = None
        """Monotonic time at which the last logged problem began; None while it works."""

    @property
    def failed(self) -> bool:
        """Whether it has ended with an error."""
        return self.stage is Stage.FAILED

    @abc.abstractmethod
    def _work(self) -> None:
        """Do the job until ``_stop`` is set; called again after it returns."""

    def _describe(self, error: HeadgateError) -> str:
        """Return the log text of an error."""
        if isinstance(error, BinlogPurgedError):
            needed, purged = error.fields.get("needed"), error.fields.get("purged")
            return (
                f"the server has purged log that was not read yet ({needed}; purged: {purged}): start the relay with "
                "--anew; consumers with older checkpoints are then too far behind"
            )
        return str(error)

    def _is_logged(self, error: HeadgateError) -> bool:  # noqa: ARG002
        """Return whether to log an error; all of them, if not overridden. :attr:`stage` is as before the error."""
        return True

    def _resume(self) -> None:
        """Note that it works; after a logged problem, log the recovery."""
        if self.stage is Stage.WORKING:
            return
        self.stage, self.problem = Stage.WORKING, None
        self._failures.clear()
        if self._since is not None:
            log.warning("%s: resumed after %.0f s", self._about, time.monotonic() - self._since)
            self._since = None

    def _note_problem(self, problem: str) -> None:
        """Note a problem; the job will be retried."""
        self.stage, self.problem = Stage.RETRYING, problem

    def _fail(self, problem: str, error: HeadgateError | None = None) -> None:
        """Note an error that ends the thread."""
        self.stage, self.problem, self.error = Stage.FAILED, problem, error

    def _begin(self) -> None:
        self._thread.start()

    def _end(self) -> None:
        """Stop and wait, at most ``_STOP_SECONDS``."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._work()
            except HeadgateError as error:
                if self._stop.is_set():  # errors during shutdown are not reported
                    return
                problem = self._describe(error)
                if self._is_logged(error):
                    log.warning("%s: %s", self._about, error_line(error, problem))
                if not self._failures.note(error):
                    self._fail(problem, error)
                    return
                self._since = self._since or time.monotonic()
                self._note_problem(problem)
                self._stop.wait(self._failures.pause())
            except Exception as error:
                self._fail(f"unexpected {type(error).__name__}: {error}")
                log.exception("%s: the thread ended", self._about)
                return
