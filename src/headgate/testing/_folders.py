"""Folders of running servers: a claim each, and no remains of owners that were killed.

A folder holds a file ``owner`` that its process keeps locked. A folder without a lock has no owner any more;
whoever starts the next server of the kind removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TextIO

__all__ = ["claim", "free_port", "new_folder"]


def new_folder(prefix: str) -> Path:
    """A new folder in the temporary one; folders of the same prefix without an owner are removed."""
    _sweep(prefix)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_short_temporary_folder()))


def claim(folder: Path) -> TextIO | None:
    """Hold the folder's lock; None when somebody else does, or the folder is gone."""
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


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody uses, and that the system gives to nobody of itself for a minute.

    So long the connection that was closed here stays in TIME-WAIT (RFC 9293, 3.6.1): whoever asks for this very port
    with SO_REUSEADDR, as servers do, gets it; port 0 leads to others.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as client:
            listener.accept()[0].close()  # who closes first is the one that waits
            client.recv(1)
        return int(address[1])


def _short_temporary_folder() -> str:
    """The temporary folder, unless a socket's path in it would be longer than the 107 bytes that sun_path holds."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < 60 else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it


def _sweep(prefix: str) -> None:
    """Remove the folders of our processes that were killed."""
    now = time.time()
    for folder in Path(_short_temporary_folder()).glob(prefix + "*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.geteuid() or now - folder.stat().st_mtime < 60:
                continue  # not ours, or just being made
            held = claim(folder)
            if held is not None:
                shutil.rmtree(folder, ignore_errors=True)
                held.close()
