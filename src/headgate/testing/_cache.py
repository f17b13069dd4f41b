"""The user's cache folder, for files that may be deleted at any time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cache_folder", "locked", "make_once"]


def cache_folder(*parts: str) -> Path:
    """Return ``$XDG_CACHE_HOME/headgate`` or ``~/.cache/headgate``; create it (XDG Base Directory Specification)."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = named if named.is_absolute() else Path.home() / ".cache"
    folder = root.joinpath("headgate", *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (created when missing); the kernel drops it when the process dies."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def make_once(target: Path) -> Iterator[Path | None]:
    """Create the folder ``target`` once, even if several processes try.

    Yields ``None`` if it exists. Otherwise yields an empty folder next to it, which becomes ``target`` if the block
    succeeds and is removed if it fails, so that no process sees half of it. Other processes wait meanwhile.
    """
    if target.exists():
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(target.name + ".lock")):
        if target.exists():
            yield None
            return
        unfinished = target.with_name(target.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            yield unfinished
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
