"""Removable files of a table's log, and the version at a point in time."""

from __future__ import annotations

import re
from typing import Final

from headgate.delta._files import files_of
from headgate.delta._log import LOG, TableLog, checkpoints_among, commit_identity
from headgate.files import is_temporary

__all__ = ["old_log_files", "version_at"]

_NUMBERED: Final = re.compile(rf"{LOG}/(\d{{20}})\.(?:(\d{{20}})\.compacted\.)?")


def version_at(folder: str, moment: float, low: int = 0, high: int | None = None) -> int:
    """Return the newest version at a moment, by its file's time; ``low`` if no existing file is that old.

    In a store the times are the store's.

    :param moment: seconds since 1970 UTC.
    :param low: a version that is not newer than that.
    :param high: the newest version, if known.
    """
    newest = TableLog(folder).refresh(files=False).version if high is None else high
    while low < newest:
        middle = (low + newest + 1) // 2
        if _committed_by(folder, middle, moment):
            low = middle
        else:
            newest = middle - 1
    return low


def _committed_by(folder: str, version: int, moment: float) -> bool:
    """Whether a version existed at a moment. Versions without a file are older than the others."""
    file = commit_identity(folder, version)
    return file is None or file.modified <= moment


def old_log_files(folder: str, oldest: int, before: float) -> list[str]:
    """List the log; return the names of files that no version from ``oldest`` on needs, oldest first.

    These are files of versions before the newest complete checkpoint that is not newer than ``oldest``, and temporary
    files of failed commits that were written before a moment.

    :param before: that moment, in seconds since 1970 UTC.
    """
    files = list(files_of(folder).below(LOG))
    checkpoints = checkpoints_among(file.name for file in files)
    base = max((version for version in checkpoints if version <= oldest), default=-1)
    names = []
    for file in files:
        numbered = _NUMBERED.match(file.name)
        is_old = numbered is not None and int(numbered[2] or numbered[1]) < base
        if not is_old and is_temporary(file.name.rpartition("/")[2]):
            identity = file.identity()
            is_old = identity is not None and identity.modified < before
        if is_old:
            names.append(file.name)
    return sorted(names)
