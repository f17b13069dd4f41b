"""A thread that does one thing until it is stopped: what a reader of a log is, whatever it makes of it.

If an error may pass, it is logged and the thing is tried again after a while, without end. Any other error ends the
thread, which says why. Nothing is raised: who depends on it looks at :attr:`Retrying.problem`.
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
"""A log's reader hears of the stop with its next heartbeat, each second."""


class Stage(enum.Enum):
    """The state of a thread that works until it is stopped.

    ::

        WORKING            an error that may pass    RETRYING
        RETRYING           it works again            WORKING
        WORKING, RETRYING  any other error           FAILED
    """

    WORKING = enum.auto()
    RETRYING = enum.auto()
    FAILED = enum.auto()


class Retrying(abc.ABC):
    """Begins with :meth:`_begin`.

    :param thread: the thread's name.
    :param about: what messages in the log begin with.
    :param retry_seconds: after an error that may pass.
    """

    def __init__(self, thread: str, about: str, retry_seconds: float) -> None:
        self._about, self._retry_seconds = about, retry_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)
        self.stage = Stage.WORKING
        self.problem: str | None = None
        """Why it stands still; None: it runs."""
        self.error: HeadgateError | None = None
        """What it failed with, if that is known."""
        self._since: float | None = None
        """When the problem began that was told last, by the monotonic clock."""

    @property
    def failed(self) -> bool:
        """Whether it stands still for good."""
        return self.stage is Stage.FAILED

    @abc.abstractmethod
    def _work(self) -> None:
        """Do it, until ``_stop`` is set; called again when it comes back."""

    def _told(self, error: HeadgateError) -> str:
        """An error, for who looks after it."""
        if isinstance(error, BinlogPurgedError):
            needed, purged = error.fields.get("needed"), error.fields.get("purged")
            return (
                f"the server has purged log that was not read yet ({needed}; purged: {purged}): start the relay with "
                "--anew, and consumers with older checkpoints are told that they are too far behind"
            )
        return str(error)

    def _goes_on(self) -> None:
        """It works; if it did not before, that is told, too."""
        if self.stage is Stage.WORKING:
            return
        self.stage, self.problem = Stage.WORKING, None
        if self._since is not None:
            log.warning("%s: going on, after %.0f s", self._about, time.monotonic() - self._since)
            self._since = None

    def _stumble(self, problem: str) -> None:
        """It stands still, and is tried again."""
        self.stage, self.problem = Stage.RETRYING, problem

    def _fail(self, problem: str, error: HeadgateError | None = None) -> None:
        """It stands still for good."""
        self.stage, self.problem, self.error = Stage.FAILED, problem, error

    def _begin(self) -> None:
        self._thread.start()

    def _end(self) -> None:
        """Stop and wait, but not for ever."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._work()
            except HeadgateError as error:
                if self._stop.is_set():  # a server that is away while the relay ends is no news
                    return
                problem = self._told(error)
                log.warning("%s: %s", self._about, problem)
                if not isinstance(error, Transient):
                    self._fail(problem, error)
                    return
                self._since = self._since or time.monotonic()
                self._stumble(problem)
                self._stop.wait(self._retry_seconds)
            except Exception as error:
                self._fail(f"unexpected {type(error).__name__}: {error}")
                log.exception("%s: the reader ended", self._about)
                return
