"""What of a table's log may be removed, and which version there was when."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.delta._log import TableLog, commit_name, find_checkpoints, log_folder

__all__ = ["old_log_files", "version_at"]

_NUMBERED: Final = re.compile(r"(\d{20})\.(?:(\d{20})\.compacted\.)?")
_ASIDE: Final = re.compile(r"\.[\w.]+\.[0-9a-f]{32}\.tmp")
"""Files that were to get their names when they were whole."""


def version_at(folder: str, moment: float) -> int:
    """The newest version that was there at a moment, by its file's time; 0 if none of those that are there was.

    :param moment: seconds since 1970 UTC.
    """
    low, high = 0, TableLog(folder, files=False).refresh().version
    while low < high:
        middle = (low + high + 1) // 2
        if _committed_by(folder, middle, moment):
            low = middle
        else:
            high = middle - 1
    return low


def _committed_by(folder: str, version: int, moment: float) -> bool:
    """Whether a version was there; those without a file are older than the others."""
    try:
        return Path(folder, commit_name(version)).stat().st_mtime <= moment
    except FileNotFoundError:
        return True


def old_log_files(folder: str, oldest: int, before: float) -> Iterator[Path]:
    """The log files that no version from ``oldest`` on needs, oldest first: lists the log.

    Those are the files of versions before the newest checkpoint that is not newer than ``oldest``; and files that were
    written aside before a moment, of commits that did not come about.

    :param before: that moment, in seconds since 1970 UTC.
    """
    base = max((version for version in find_checkpoints(folder) if version <= oldest), default=-1)
    found = []
    with os.scandir(log_folder(folder)) as entries:
        for entry in entries:
            numbered = _NUMBERED.match(entry.name)
            is_old = numbered is not None and int(numbered[2] or numbered[1]) < base
            if is_old or (_ASIDE.fullmatch(entry.name) and entry.stat().st_mtime < before):
                found.append(entry.path)
    yield from map(Path, sorted(found))
