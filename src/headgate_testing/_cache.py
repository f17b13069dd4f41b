"""Folders of the user's cache that are made once: programs, archives, templates."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from headgate.files import lock_file

__all__ = ["make_once"]


@contextlib.contextmanager
def make_once(target: Path) -> Iterator[Path | None]:
    """Create the folder ``target`` once, even if several processes try.

    Yields ``None`` if it exists. Otherwise yields an empty folder next to it, which becomes ``target`` if the block
    succeeds and is removed if it fails, so that no process sees half of it. Other processes wait meanwhile.

    :raises ConfigError: the folder of ``target`` cannot be written.
    """
    if target.exists():
        yield None
        return
    with lock_file(target):
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
