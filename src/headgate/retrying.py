"""A thread that repeats one job until it is stopped, such as reading the binlog.

After a ``Transient`` error it logs the error, waits and retries, without limit. Any other error ends the thread, with
the reason in :attr:`Retrying.problem`. It raises nothing: callers check that attribute.
"""

from __future__ import annotations

import abc
import enum
import logging
import threading
import time
from typing import Final

from headgate.errors import BinlogPurgedError, HeadgateError, Transient

__all__ = ["Retrying", "Stage"]

log = logging.getLogger("headgate")

_STOP_SECONDS: Final = 5.0
"""Longest wait for the thread to end. A binlog reader notices the stop at its next heartbeat, one a second."""


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
    :param retry_seconds: pause after a Transient error.
    """

    def __init__(self, thread: str, about: str, retry_seconds: float) -> None:
        self._about, self._retry_seconds = about, retry_seconds
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
                    log.warning("%s: %s", self._about, problem)
                if not isinstance(error, Transient):
                    self._fail(problem, error)
                    return
                self._since = self._since or time.monotonic()
                self._note_problem(problem)
                self._stop.wait(self._retry_seconds)
            except Exception as error:
                self._fail(f"unexpected {type(error).__name__}: {error}")
                log.exception("%s: the thread ended", self._about)
                return
