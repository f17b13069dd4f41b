"""Housekeeping of a Python worker process of Spark's, which runs one task after the other.

PySpark's daemon (``pyspark/daemon.py``) lets the worker collect garbage after every task. With numba and its kernels in
memory that goes over some hundred thousand objects that never go away: 50 to 100 ms a task, more than many tasks take
to read. ``gc.freeze`` puts what is there out of the collector's sight (reference counts still free it). What is garbage
at that moment must not be frozen with it, so it is collected before; and since later tasks load further kernels, it is
done again after the 2nd, 4th, 8th … task of a process: the effort stays small, and so does what a process may keep for
nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

__all__ = ["task"]

_ended = count(1)
"""Tasks of this process."""


@contextmanager
def task() -> Iterator[None]:
    """Around the work of one task."""
    try:
        yield
    finally:
        _task_ended()


def _task_ended() -> None:
    number = next(_ended)
    if number & (number - 1) == 0:
        gc.collect()
        gc.freeze()
