"""A file's sole owner among processes: an advisory lock, which the system drops with the process, and in the file who
has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["OwnedError", "sole_owner"]


class OwnedError(Exception):
    """Somebody else has it: the text says who."""


@contextlib.contextmanager
def sole_owner(file: Path) -> Iterator[None]:
    """Own ``file``, among all processes and threads that ask for it by this, as long as the block lasts.

    :raises OwnedError: it is somebody else's.
    :raises OSError: it cannot be opened, or its folder not made.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise OwnedError(lock.read().strip() or "another process") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield
