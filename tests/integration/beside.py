"""Sessions beside a test: threads that work until the test is through, and whose failures are the test's."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["beside"]


@contextmanager
def beside(work: Callable[[random.Random, threading.Event], None], threads: int) -> Iterator[None]:
    """Run ``work`` in so many threads, each with chances of its own, until the event is set."""
    stop, failures = threading.Event(), list[BaseException]()

    def run(seed: int) -> None:
        try:
            work(random.Random(seed), stop)
        except BaseException as error:  # noqa: BLE001 - told in the main thread
            failures.append(error)

    started = [threading.Thread(target=run, args=(seed,)) for seed in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in started:
            thread.join()
    assert failures == []
