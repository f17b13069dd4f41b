"""A thread for work in parallel with the batches. It rests after each piece of work, so it takes only a part of the
time.

There are two kinds of work. A *task* runs once, soon. *Rounds* repeat: a generator that pauses where it yields, so a
task need not wait for the end of a round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

from headgate.lake import task

__all__ = ["Background"]

log = logging.getLogger("headgate")

_T = TypeVar("_T")

_SHARE: Final = 0.2
_PIECE_SECONDS: Final = 0.02
"""Shorter pieces are combined before a rest."""
_END_SECONDS: Final = 60.0


class Background:
    """Background thread that starts with the first task or :meth:`repeat`, and ends with :meth:`close`.

    :param share: the largest share of the time in which it works.
    """

    def __init__(self, share: float = _SHARE) -> None:
        self._rest = 1 / share - 1
        self._changed = threading.Condition()
        self._tasks: deque[Callable[[], None]] = deque()
        self._rounds: Callable[[], Iterator[None]] | None = None
        self._round: Iterator[None] | None = None
        self._every = self._due = 0.0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.free_at = 0.0
        """End of the current rest, by the monotonic clock."""

    @property
    def is_free(self) -> bool:
        """Whether a task could begin at once."""
        return not self._tasks and time.monotonic() >= self.free_at

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Run ``work`` after the tasks before it. After :meth:`close` its result is a ``StoppedError``."""
        future, run = task(work, self._closing)
        with self._changed:
            if self._closing.is_set():
                run()
            else:
                self._tasks.append(run)
                self._begin()
        return future

    def repeat(self, rounds: Callable[[], Iterator[None]], every: float) -> None:
        """Repeat rounds from now on, with ``every`` seconds between them. An error ends its round and is logged."""
        with self._changed:
            self._rounds, self._every = rounds, every
            self._begin()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="headgate-upkeep", daemon=True)
            self._thread.start()
        self._changed.notify()

    def close(self) -> None:
        """End the thread after its current piece. Waiting tasks are not run."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        while self._tasks:
            self._tasks.popleft()()

    def _work(self) -> None:
        worked = 0.0
        while (piece := self._next()) is not None:
            begun = time.monotonic()
            piece()
            now = time.monotonic()
            worked += now - begun
            if worked >= _PIECE_SECONDS:
                self.free_at, worked = now + worked * self._rest, 0.0

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next piece of work; None: the end."""
        with self._changed:
            while not self._closing.is_set():
                now = time.monotonic()
                if now < self.free_at:
                    self._changed.wait(self.free_at - now)
                elif self._tasks:
                    return self._tasks.popleft()
                elif self._rounds is not None and now >= self._due:
                    return self._piece
                else:
                    self._changed.wait(None if self._rounds is None else self._due - now)
            return None

    def _piece(self) -> None:
        """Continue the current round, or begin one."""
        assert self._rounds is not None
        self._round = self._round or self._rounds()
        try:
            next(self._round)
        except StopIteration:
            self._end_round()
        except Exception as error:
            log.warning("upkeep of the tables failed, will retry: %s", error, exc_info=log.isEnabledFor(logging.DEBUG))
            self._end_round()

    def _end_round(self) -> None:
        self._round, self._due = None, time.monotonic() + self._every
