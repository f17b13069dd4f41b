"""Small files, written atomically; locks of files and folders; headgate's errors for the system's; the user's cache
folder.

Locks are advisory: they exclude only callers of these functions. The system releases them when the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Final

from headgate.errors import ConfigError, HeadgateError, StorageError

__all__ = [
    "LockedError",
    "cache_folder",
    "file_errors",
    "lock_file",
    "lock_folder",
    "read_json",
    "sync",
    "try_lock",
    "write_all",
    "write_bytes",
    "write_json",
    "write_text",
]

_DISK_ERRORS: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})
"""Errors of fsync(2) after which what was written may be lost."""


_PASSING: Final = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.ESTALE,
        errno.ETIMEDOUT,
    }
)  # fmt: skip
"""Errors that end without a change of the configuration."""


def cache_folder(*parts: str) -> Path:
    """Return ``$XDG_CACHE_HOME/headgate`` or ``~/.cache/headgate``, or a path in it, which may not exist yet. It is for
    files that may be deleted at any time (XDG Base Directory Specification, which ignores a relative variable).
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = named if named.is_absolute() else Path.home() / ".cache"
    return root.joinpath("headgate", *parts)


@contextlib.contextmanager
def file_errors(problem: str, kind: type[HeadgateError] = ConfigError) -> Iterator[None]:
    """Convert errors of files in the block, and text that is not UTF-8.

    :param problem: what is impossible, such as ``/a/b cannot be read``; the error adds the reason.
    :raises StorageError: the disk or quota is full, too many files are open, or the device failed.
    :raises HeadgateError: one of ``kind``, for any other reason.
    """
    try:
        yield
    except OSError as error:
        raised = StorageError if error.errno in _PASSING else kind
        raise raised(f"{problem}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise kind(f"{problem}: it is not UTF-8") from None


class LockedError(Exception):
    """Another caller holds the lock; the text names its process, if known."""


@contextlib.contextmanager
def try_lock(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``file`` for the block, among all processes and threads that use this function.

    :raises LockedError: another caller holds it.
    :raises OSError: the file cannot be opened, or its folder not created.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise LockedError(lock.read().strip() or "another process") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield


@contextlib.contextmanager
def lock_file(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``file``, among all processes and threads that use this function; wait for it.

    :raises ConfigError: the lock file next to it cannot be created; StorageError likewise.
    """
    with file_errors(f"{file} cannot be locked"):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.with_name(f"{file.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``folder`` for the block, among all processes and threads that use this function; the
    system releases it when the process ends.

    :raises ConfigError: another caller holds it, or the folder cannot be written; StorageError likewise.
    """
    with contextlib.ExitStack() as stack:
        try:
            with file_errors(f"{folder} cannot be written"):
                stack.enter_context(try_lock(folder / "lock"))
        except LockedError as error:
            raise ConfigError(f"{folder} is in use by {error}: stop it, or choose another folder") from None
        yield


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write ``value`` to ``file``; see :func:`write_text`.

    :raises ConfigError: the file cannot be written; StorageError likewise.
    """
    with file_errors(f"{file} cannot be written"):
        write_text(file, json.dumps(value))


def write_text(file: Path, text: str) -> None:
    """Write text as UTF-8; see :func:`write_bytes`."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, content: bytes | memoryview) -> None:
    """Write a file atomically: a crash leaves the old content or the new one, and of several writers at a time one
    has its content there. When this returns, the file survives a crash of the machine, if its file system can sync
    folders.

    :raises OSError: the file cannot be written; the old content stays, and nothing else.
    """
    partial = file.with_name(f".{uuid.uuid4().hex}")  # the file's name may be as long as a name can be
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(file.parent)


def sync(path: Path) -> None:
    """Make a file's content, or the names in a folder, survive a crash of the machine, if its file system can.

    :raises OSError: its disk has failed. Some file systems, and folders that may only be written, refuse: that is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise


def write_all(file: FileIO, data: memoryview) -> None:
    """Write all of the data to a file without a buffer, which may take a part of it at a time.

    :raises OSError: the file cannot be written.
    """
    while data:
        data = data[file.write(data) :]


def read_json(file: Path) -> dict[str, Any] | None:
    """Return the content of ``file``; None if it does not exist.

    :raises ConfigError: the file cannot be read, or is not a JSON object; StorageError likewise.
    """
    with file_errors(f"{file} cannot be read"):
        try:
            value = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except json.JSONDecodeError as error:
            raise ConfigError(f"{file} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file} is not a JSON object")
    return value
