"""Small JSON files that are there whole or not at all; and locks of files and folders.

Locks are advisory, for all who ask by the functions here. The system drops them with the process.
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

__all__ = ["OwnedError", "locked", "owned", "read_json", "sole_owner", "write_json"]


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


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Alone with ``file``, among all processes and threads that ask for it by this.

    :raises ConfigError: the lock beside it cannot be made.
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
def owned(folder: Path) -> Iterator[None]:
    """Alone in ``folder``, among all processes and threads that ask for it by this, as long as the block lasts; the
    system ends it with the process.

    :raises ConfigError: it is somebody else's, or cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(sole_owner(folder / "lock"))
        except OwnedError as error:
            raise ConfigError(f"{folder} is in use by {error}: stop it, or choose another folder") from None
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from None
        yield


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Put ``value`` there, replacing what was there; it survives the process, and with it the machine.

    :raises ConfigError: it cannot be written.
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
    """What is there; None if nothing is.

    :raises ConfigError: it cannot be read, or is no JSON object.
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
