"""Garbage collection in a Python worker process of Spark, which runs one task after another.

PySpark's daemon (``pyspark/daemon.py``) lets the worker collect garbage after every task. With numba and its kernels in
memory, that visits some hundred thousand permanent objects: 50 to 100 ms a task, more than many tasks take to read.
``gc.freeze`` hides existing objects from the collector (reference counts still free them). Garbage must not be frozen
with them, so it is collected first. Later tasks load more kernels, so this is repeated after the 2nd, 4th, 8th … task
of a process: the effort stays small, and so does the garbage that a process may keep.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

__all__ = ["task"]

_ended = count(1)
"""Numbers of the tasks that end in this process."""


@contextmanager
def task() -> Iterator[None]:
    """Run one task, and clean up after it."""
    try:
        yield
    finally:
        _task_ended()


def _task_ended() -> None:
    number = next(_ended)
    if number & (number - 1) == 0:
        gc.collect()
        gc.freeze()
