"""Statuses that a run cannot write into its lake: kept in this user's cache, for readers on this machine.

A lake whose disk is full or whose folder is read-only cannot say so itself. Nor is anything written into a lake in
which no run has begun yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import Any, Final

from headgate.carrier import ControlFile, ControlFolder
from headgate.errors import HeadgateError
from headgate.files import cache_folder, read_json, write_text

__all__ = ["forget_noted", "newest", "note"]

_DAYS: Final = 30
"""Older notes are removed with the next one."""


def note(inbox: ControlFolder, value: dict[str, Any]) -> None:
    """Keep a status that cannot be in the inbox.

    :raises OSError: the cache cannot be written either.
    """
    file = _file(inbox)
    with contextlib.suppress(OSError):
        for old in file.parent.glob("*.json"):
            if time.time() - old.stat().st_mtime > _DAYS * 86_400:
                old.unlink(missing_ok=True)
    write_text(file, json.dumps(value))


def newest(inbox: ControlFolder) -> tuple[dict[str, Any] | None, bool]:
    """Return the newest status, in the inbox or noted, None if there is none; and whether the inbox can be read.

    :raises HeadgateError: the inbox cannot be read, and nothing is noted; OSError likewise.
    """
    noted = None
    with contextlib.suppress(HeadgateError):
        noted = read_json(_file(inbox))
    try:
        value = inbox.read(ControlFile.STATUS)
    except (HeadgateError, OSError):
        if noted is None:
            raise
        return noted, False
    if value is None or noted is None:
        return noted if value is None else value, True
    return noted if _updated_us(noted) > _updated_us(value) else value, True


def _updated_us(status: dict[str, Any]) -> float:
    """Return when a status was written; a damaged one, which has to be reported, counts as new."""
    at_us = status.get("updated_us")
    return at_us if isinstance(at_us, int) else float("inf")


def forget_noted(inbox: ControlFolder) -> None:
    """Remove what was noted: the inbox has a newer status."""
    with contextlib.suppress(OSError):
        _file(inbox).unlink(missing_ok=True)


def _file(inbox: ControlFolder) -> Path:
    """Return the file for an inbox. If its folder, or the nearest one that exists, was replaced, it is another file."""
    name = inbox.path
    if inbox.is_local:
        with contextlib.suppress(OSError, StopIteration):
            status = next(one for one in Path(name).parents if one.exists()).stat()
            name = f"{name}\0{status.st_dev}\0{status.st_ino}"
    return cache_folder("status", f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json")
