"""The server as a whole: its requests, its threads and what went wrong; ``/containerStats/container``.

Names and what they count are Databus's (``ContainerStatsMBean.java``, ``ContainerStats.java``); there Jackson writes
them, which promises no order. Each request is a task there, and a worker's thread takes it; here most are answered by
the server's own thread, and those that take longer, in part, by a worker's. What are maxima there is looked at when
somebody asks, and so it is here.
"""

from __future__ import annotations

import time
from typing import Any

__all__ = ["ContainerStats"]


class ContainerStats:
    """Counted in the server's one thread."""

    def __init__(self) -> None:
        self._began = time.time_ns() // 1_000_000
        self._requests = self._processing = self._others = 0
        self._told = self._most_requests = self._most_threads = 0

    def answered(self, *, good: bool, processing: bool) -> None:
        """A request was answered.

        :param processing: whether an error is what Databus calls a RequestProcessingException: the request was right.
        """
        self._requests += 1
        if not good:
            self._processing += processing
            self._others += not processing

    def failed(self) -> None:
        """A request ended with an error that nobody expected."""
        self.answered(good=False, processing=False)

    def to_json(self, threads: int, waiting: int) -> dict[str, Any]:
        """In the order of the interface; times in ms, the first since 1970.

        :param threads: workers that do something now.
        :param waiting: requests that wait for one.
        """
        if self._told:  # what came before anybody asked is of no interval
            self._most_requests = max(self._most_requests, self._requests - self._told)
        self._told = self._requests
        self._most_threads = max(self._most_threads, threads)
        return {
            "ioThreadRate": -1,  # what Databus has of them where they are no pool: here it is the server's own thread
            "ioThreadMax": 0,
            "ioTaskCount": 0,
            "ioTaskMax": 0,
            "ioTaskQueueSize": 0,
            "workerThreadRate": threads,
            "workerThreadMax": self._most_threads,
            "workerTaskCount": self._requests,
            "workerTaskMax": self._most_requests,
            "workerTaskQueueSize": waiting,
            "errorCount": self._processing + self._others,
            "errorUncaughtCount": self._others,
            "errorRequestProcessingCount": self._processing,
            "timestampLastResetMs": self._began,
            "timeSinceLastResetMs": time.time_ns() // 1_000_000 - self._began,
        }
