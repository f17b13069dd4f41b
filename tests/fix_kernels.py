"""Each kernel is compiled once for all workers of a run.

Workers begin together, and most tests need the same kernels. If numba's cache is empty, each worker would compile them:
three times the work, minutes of processor time. Here a worker locks a kernel's file while it compiles it, and the
others wait for the file, then load what was stored.

Locks are taken inside numba's own lock, and a kernel's before those of the kernels that it calls. Both orders are the
same in all threads and processes, so none waits for another in a circle.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_held: set[Path] = set()
"""Locks of this process, which may compile a kernel for other types while it compiles it."""


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``file``, against other processes and other callers of ``flock``."""
    if file in _held:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    opened = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        _held.add(file)
        try:
            yield
        finally:
            _held.remove(file)
    finally:
        os.close(opened)


def lock_of(kernel: Any) -> Path | None:
    """Return the lock of a compiled function; None if it is not cached."""
    folder = kernel._cache.cache_path
    return None if folder is None else Path(folder, f"{kernel._cache._impl.filename_base}.lock")


def compiled_once(compile_kernel: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return numba's function that loads or compiles a kernel for some types, under the kernel's lock."""
    from numba.core.compiler_lock import global_compiler_lock

    def compile_locked(kernel: Any, types: Any) -> Any:
        file = lock_of(kernel)
        if file is None:
            return compile_kernel(kernel, types)
        with global_compiler_lock, locked(file):
            return compile_kernel(kernel, types)

    return compile_locked


def pytest_collection_finish() -> None:
    """The modules of the tests are loaded, and none of their kernels has been called."""
    if "numba" not in sys.modules:
        return
    from numba.core.dispatcher import Dispatcher

    kind: Any = Dispatcher
    if kind.compile.__name__ != "compile_locked":
        kind.compile = compiled_once(kind.compile)
