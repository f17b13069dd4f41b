"""Removable files of a table's log, and the version at a point in time.

A listing costs 2 µs a file, and requests in a store. So a log is listed now and then. Between two listings the names of
removable files follow from the checkpoints that were written since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from headgate.delta._files import Listed, files_of
from headgate.delta._log import (
    LOG,
    TableLog,
    checkpoint_name,
    checkpointed_version,
    checkpoints_among,
    commit_identity,
    commit_name,
)
from headgate.files import is_temporary

__all__ = ["LogFiles", "version_at"]

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


class _Checkpoint(NamedTuple):
    names: list[str]
    written: float
    """When its last file was written, in seconds since 1970 UTC."""


class LogFiles:
    """Files of the log of the table in ``folder``. Not thread-safe.

    Versions before a complete checkpoint need no files if it is not newer than the oldest version to keep, and old
    enough: a reader may have begun at the one before.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._first: int | None = None
        """The first version that may have files; None: the log was not listed yet."""
        self._checkpoints: dict[int, _Checkpoint] = {}

    def count(self, newest: int) -> int:
        """Return the number of files, as far as they are known, if the newest version is ``newest``."""
        commits = 0 if self._first is None else newest + 1 - self._first
        return commits + sum(len(one.names) for one in list(self._checkpoints.values()))

    def note_checkpoint(self, version: int, moment: float) -> None:
        """Record a checkpoint that this process has written at a moment, in seconds since 1970 UTC."""
        self._checkpoints[version] = _Checkpoint([checkpoint_name(version)], moment)

    def old_by_listing(self, oldest: int, before: float, failed_before: float) -> list[str]:
        """List the log; return the names of files that no version from ``oldest`` on needs, oldest first, with
        temporary files of failed commits.

        :param before: as for :meth:`old_by_name`; in a store by its clock.
        :param failed_before: temporary files that were written after this moment may be of a commit in progress.
        """
        files = list(files_of(self._folder).below(LOG))
        self._checkpoints = _checkpoints({file.name: file for file in files}, self._checkpoints)
        base = self._base(oldest, before)
        if not self._is_noted(base):
            base = -1
        names, versions = [], []
        for file in files:
            numbered = _NUMBERED.match(file.name)
            version = base if numbered is None else int(numbered[2] or numbered[1])
            is_old = version < base
            if not is_old and is_temporary(file.name.rpartition("/")[2]):
                identity = file.identity()
                is_old = identity is not None and identity.modified < failed_before
            if is_old:
                names.append(file.name)
            elif numbered is not None:
                versions.append(version)
        self._begin_at(min(versions, default=0))
        return sorted(names)

    def old_by_name(self, oldest: int, before: float) -> list[str]:
        """Return the names of files that no version from ``oldest`` on needs, as far as they are known, oldest first.
        None of them is returned again.

        :param before: checkpoints that were written after this moment replace nothing yet, because a reader may have
            begun at the one before. In seconds since 1970 UTC.
        """
        base = self._base(oldest, before)
        if self._first is None or base <= self._first:
            return []
        if not all(self._has_content(name) for name in self._checkpoints[base].names):
            del self._checkpoints[base]
            return []
        if not self._is_noted(base):
            return []
        names = [commit_name(version) for version in range(self._first, base)]
        names += [name for version, one in self._checkpoints.items() if version < base for name in one.names]
        self._begin_at(base)
        return sorted(names)

    def _base(self, oldest: int, before: float) -> int:
        """Return the version of the newest checkpoint that replaces the log before it; -1: none does."""
        settled = (version for version, one in self._checkpoints.items() if one.written <= before)
        return max((version for version in settled if version <= oldest), default=-1)

    def _is_noted(self, base: int) -> bool:
        """Whether ``_last_checkpoint`` names no version before ``base``. Else a load could begin there, and take it for
        the newest version while some of the files between are removed: in any order.
        """
        return not 0 <= checkpointed_version(self._folder) < base

    def _has_content(self, name: str) -> bool:
        """Whether a file still exists and is not empty: other programs remove checkpoints, too."""
        identity = files_of(self._folder).identity(name)
        return identity is not None and identity.size > 0

    def _begin_at(self, first: int) -> None:
        self._first = first
        self._checkpoints = {version: one for version, one in self._checkpoints.items() if version >= first}


def _checkpoints(files: Mapping[str, Listed], known: Mapping[int, _Checkpoint]) -> dict[int, _Checkpoint]:
    """Return the complete checkpoints among files of a log, but for those of which a file is gone since."""
    checkpoints = {}
    for version, names in checkpoints_among(files).items():
        identities = [files[name].identity() for name in names]
        times = [identity.modified for identity in identities if identity is not None]
        if len(times) == len(names):
            noted = known.get(version)
            checkpoints[version] = _Checkpoint(names, max(times) if noted is None else noted.written)
    return checkpoints
