"""Small JSON files, written atomically, and locks of files and folders.

Locks are advisory: they exclude only callers of these functions. The system releases them when the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headgate.errors import ConfigError

__all__ = ["LockedError", "lock_file", "lock_folder", "read_json", "try_lock", "write_json"]


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

    :raises ConfigError: the lock file next to it cannot be created.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.with_name(f"{file.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(f"{file} cannot be locked: {error.strerror or error}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``folder`` for the block, among all processes and threads that use this function; the
    system releases it when the process ends.

    :raises ConfigError: another caller holds it, or the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(try_lock(folder / "lock"))
        except LockedError as error:
            raise ConfigError(f"{folder} is in use by {error}: stop it, or choose another folder") from None
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from None
        yield


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write ``value`` to ``file``, atomically: a crash leaves the old content or the new one. The content is synced.

    :raises ConfigError: the file cannot be written.
    """
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as out:
            json.dump(value, out)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror or error}") from None


def read_json(file: Path) -> dict[str, Any] | None:
    """Return the content of ``file``; None if it does not exist.

    :raises ConfigError: the file cannot be read, or is not a JSON object.
    """
    try:
        value = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file} is not a JSON object")
    return value
