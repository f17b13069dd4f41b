"""Requests to object stores, counted by operation where a store is called.

A run counts its own requests and those of its processes on this machine: the planner's and, unless a cluster has them,
the tasks'. Each process counts in a mapped file of its own, in a folder that an environment variable names, so that no
count is lost with a process and none waits for another. Without that variable nothing is counted.
"""

from __future__ import annotations

import enum
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

__all__ = ["COUNTS_VARIABLE", "Operation", "RequestCounts", "count_requests", "read_counts", "shared_counts"]

COUNTS_VARIABLE: Final = "HEADGATE_REQUEST_COUNTS"
"""Environment variable: the folder of a run's counts."""

_lock = Lock()


class Operation(enum.Enum):
    """Kinds of requests that a store prices alike. The value is the position in a file of counts."""

    PUT = 0
    """Also a request of an upload in parts, and a copy."""
    GET = 1
    """Also a HEAD."""
    LIST = 2
    DELETE = 3


RequestCounts = dict[Operation, int]


def count_requests(operation: Operation, number: int = 1) -> None:
    """Count requests of this process, if a run of this machine counts them."""
    folder = os.environ.get(COUNTS_VARIABLE)
    if folder:
        with _lock:
            _counts_of(folder, os.getpid())[operation.value] += number


@contextmanager
def shared_counts() -> Iterator[Path]:
    """Count the requests of this process, and of processes that get :data:`COUNTS_VARIABLE`, while the block is open.

    :return: the variable's value, for :func:`read_counts`.
    """
    folder = tempfile.mkdtemp(prefix="headgate-requests-")
    os.environ[COUNTS_VARIABLE] = folder
    try:
        yield Path(folder)
    finally:
        os.environ.pop(COUNTS_VARIABLE, None)
        shutil.rmtree(folder, ignore_errors=True)


def read_counts(folder: Path) -> RequestCounts:
    """Return how many requests the processes have made."""
    import numpy as np

    totals = np.zeros(len(Operation), np.int64)
    for file in folder.iterdir():
        counts = np.fromfile(file, np.int64)
        if len(counts) == len(totals):  # else it is being created
            totals += counts
    return {operation: int(totals[operation.value]) for operation in Operation}


@lru_cache(maxsize=1)
def _counts_of(folder: str, process: int) -> Any:
    """Return this process's counts: int64, by operation; in memory alone if the folder cannot be written."""
    import numpy as np

    path = Path(folder, str(process))
    with suppress(OSError):
        return np.memmap(path, np.int64, "r+" if path.exists() else "w+", shape=(len(Operation),))
    return np.zeros(len(Operation), np.int64)
