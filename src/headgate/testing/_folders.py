"""Folders of running servers: each is locked by its owner; folders of killed owners are removed.

A folder holds a file ``owner`` that its process keeps locked. A folder without a lock has no owner any more; the next
process that starts a server of the kind removes it.
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


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1, which the system assigns to no other process for a minute.

    For that time the connection closed here stays in TIME-WAIT (RFC 9293, 3.6.1): a bind to exactly this port with
    SO_REUSEADDR, as servers do, succeeds; a bind to port 0 gets another one.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as client:
            listener.accept()[0].close()  # the side that closes first enters TIME-WAIT
            client.recv(1)
        return int(address[1])


def _short_temporary_folder() -> str:
    """Return the temporary folder, unless a socket's path in it would exceed the 107 bytes of sun_path."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < 60 else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it


def _sweep(prefix: str) -> None:
    """Remove the folders of this user's killed processes."""
    now = time.time()
    for folder in Path(_short_temporary_folder()).glob(prefix + "*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.geteuid() or now - folder.stat().st_mtime < 60:
                continue  # another user's, or just being created
            held = claim(folder)
            if held is not None:
                shutil.rmtree(folder, ignore_errors=True)
                held.close()
