"""A thread for work in parallel with the batches. It rests after each piece of work, so it takes only a part of the
time.

There are two kinds of work. A *task* runs once, soon. *Rounds* repeat: a generator that pauses where it yields, so a
task need not wait for the end of a round. Each kind has its own share of the time, and they take turns: a round waits
for one task at most, however many there are, and not for the rest after it. Of a round's pieces in a local lake only
the processor time counts: on a busy machine they mostly wait for a core or the disk, and would rest for a minute after
a second of work. So rounds keep pace with the batches. In an object store, other threads send a round's requests and
parse the answers, and tasks also work in Arrow's threads, so all their time counts.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from headgate.lake import task

__all__ = ["Background"]

log = logging.getLogger("headgate")

_T = TypeVar("_T")

_SHARE: Final = 0.2
_PIECE_SECONDS: Final = 0.02
"""Shorter pieces are combined before a rest."""
_END_SECONDS: Final = 60.0


@dataclass
class _Pace:
    """Work of one kind, and its rests."""

    worked: float = 0.0
    """Seconds since the last rest."""
    free_at: float = 0.0
    """End of the current rest, by the monotonic clock."""

    def add(self, seconds: float, now: float, rest: float) -> None:
        """Add a piece of work that has ended, and begin to rest if it is time.

        :param rest: seconds of rest for one of work.
        """
        self.worked += seconds
        if self.worked >= _PIECE_SECONDS:
            self.free_at, self.worked = now + self.worked * rest, 0.0


class Background:
    """Background thread that starts with the first task or :meth:`repeat`, and ends with :meth:`close`.

    :param share: the largest share of the time in which it works on tasks, and the same of rounds.
    :param counts_waiting: whether all the time of a round's pieces counts, not only this thread's processor time.
    """

    def __init__(self, share: float = _SHARE, *, counts_waiting: bool = False) -> None:
        self._rest = 1 / share - 1
        self.counts_waiting = counts_waiting
        self._changed = threading.Condition()
        self._tasks: deque[Callable[[], None]] = deque()
        self._rounds: Callable[[], Iterator[None]] | None = None
        self._round: Iterator[None] | None = None
        self._every = self._due = 0.0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.tasks_pace, self.rounds_pace = _Pace(), _Pace()
        self._was_task = False
        """Whether the last piece was a task."""

    @property
    def is_free(self) -> bool:
        """Whether a task could begin at once."""
        return not self._tasks and time.monotonic() >= self.tasks_pace.free_at

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
        while (piece := self._next()) is not None:
            begun, begun_cpu = time.monotonic(), time.thread_time()
            piece()
            now, cpu = time.monotonic(), time.thread_time() - begun_cpu
            if self._was_task:
                self.tasks_pace.add(now - begun, now, self._rest)
            else:
                self.rounds_pace.add(now - begun if self.counts_waiting else cpu, now, self._rest)

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next piece of work; None: the end."""
        with self._changed:
            while not self._closing.is_set():
                now = time.monotonic()
                task_at = self.tasks_pace.free_at if self._tasks else math.inf
                round_at = math.inf if self._rounds is None else max(self._due, self.rounds_pace.free_at)
                if task_at <= now and not (self._was_task and round_at <= now):
                    self._was_task = True
                    return self._tasks.popleft()
                if round_at <= now:
                    self._was_task = False
                    return self._piece
                until = min(task_at, round_at)
                self._changed.wait(None if until == math.inf else until - now)
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
