"""Folders of running servers: each is locked by its owner; folders of killed owners are removed.

A folder holds a file ``owner`` that its process keeps locked. A folder without a lock has no owner any more; the next
process that starts a server of the kind removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TextIO

__all__ = ["claim", "new_folder"]

_CLAIM_SECONDS = 60.0
"""Time in which the creator of a folder certainly claims it."""


def new_folder(prefix: str) -> Path:
    """Create a folder in the temporary one; remove folders of the same prefix without an owner."""
    _sweep(prefix)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_short_temporary_folder()))


def claim(folder: Path) -> TextIO | None:
    """Hold the folder's lock; None if another process holds it, or the folder is gone."""
    try:
        handle = (folder / "owner").open("a")
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        return None
    return handle


def _short_temporary_folder() -> str:
    """Return the temporary folder, unless a socket's path in it would exceed the 107 bytes of sun_path."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < 60 else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it


def _sweep(prefix: str) -> None:
    """Remove the folders of this user's killed processes."""
    now = time.time()
    for folder in Path(_short_temporary_folder()).glob(prefix + "*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.geteuid() or now - folder.stat().st_mtime < _CLAIM_SECONDS:
                continue  # another user's, or perhaps not claimed yet
            held = claim(folder)
            if held is not None:
                shutil.rmtree(folder, ignore_errors=True)
                held.close()
