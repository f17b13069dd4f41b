"""A few threads for work in compiled code, outside of Python's lock."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["StoppedError", "Workers", "task"]

_T = TypeVar("_T")
_R = TypeVar("_R")

_END_SECONDS = 2.0
"""How long the end waits for threads. Those that compute check ``stopped`` more often. One that waits for a server's
answer must not delay the end of the process."""


class StoppedError(Exception):
    """Work that was not done, because its results are no longer needed."""


def task(work: Callable[[], _R], stopped: threading.Event) -> tuple[Future[_R], Callable[[], None]]:
    """Return a future, and the function that runs ``work`` for it, or ends it with :class:`StoppedError`."""
    future: Future[_R] = Future()

    def run() -> None:
        try:
            if stopped.is_set():
                raise StoppedError
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)

    return future, run


class Workers:
    """Pool of ``threads`` threads, while the block runs. They do not keep the process from ending."""

    def __init__(self, threads: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        self._ended = False
        self._lock = threading.Lock()
        """Guards ``_ended``: no task follows the threads' ends in the queue, where nobody would take it."""
        self.stopped = threading.Event()
        """Set when the block has ended."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        with self._lock:
            self._ended = True
            for _ in self._threads:
                self._tasks.put(None)
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def submit(self, work: Callable[[], _R]) -> Future[_R]:
        """Run ``work`` in one of the threads. After the block's end its result is a :class:`StoppedError`."""
        future, run = task(work, self.stopped)
        with self._lock:
            if self._ended:
                run()
            else:
                self._tasks.put(run)
        return future

    def each(self, work: Callable[[_T], None], items: Iterable[_T]) -> None:
        """Run ``work`` for each item, in any order. After an error, start no other item.

        :raises BaseException: the first error, in the order of the items.
        """
        failed = threading.Event()

        def one(item: _T) -> None:
            if failed.is_set():
                raise StoppedError
            try:
                work(item)
            except BaseException:
                failed.set()
                raise

        futures = [self.submit(partial(one, item)) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise next((error for error in errors if not isinstance(error, StoppedError)), errors[0])

    def _work(self) -> None:
        while (run := self._tasks.get()) is not None:
            run()
