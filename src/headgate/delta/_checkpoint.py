"""Checkpoints of a table's log, and the removal of what no readable version needs of the log.

A checkpoint costs more the more files were removed lately, because it names each of them: 2.5 s with 150,000. So it is
no part of a commit. Whoever looks after a table writes one now and then; nothing rests on it but the time that readers
take, and that older log files can go.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from headgate.delta._log import TableLog, commit_path, find_checkpoints, log_folder

__all__ = ["CHECKPOINT_COMMITS", "checkpointed_version", "old_log_files", "version_at", "write_checkpoint"]

log = logging.getLogger("headgate")

CHECKPOINT_COMMITS: Final = 50
"""After so many commits a new checkpoint is worth its cost."""
_NUMBERED: Final = re.compile(r"(\d{20})\.(?:(\d{20})\.compacted\.)?")
_ASIDE: Final = re.compile(r"\.\d{20}\.json\.[0-9a-f]{32}\.tmp")


def checkpointed_version(folder: str) -> int:
    """The version of the newest checkpoint, by the log's own note; −1: there is none."""
    try:
        return int(json.loads((log_folder(folder) / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError):
        return -1


def write_checkpoint(folder: str) -> None:
    """Write a checkpoint of the newest version. A failure is logged."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        with ExitStack() as stack:
            path = folder
            if "%" in path:  # delta-rs would decode it
                path = stack.enter_context(TemporaryDirectory(prefix="headgate-"))
                Path(path, "_delta_log").symlink_to(log_folder(folder), target_is_directory=True)
            DeltaTable(path).create_checkpoint()
    except (DeltaError, OSError) as error:
        log.warning("no checkpoint of the log %s: %s", log_folder(folder), str(error).partition("\n")[0])


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
        return commit_path(folder, version).stat().st_mtime <= moment
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
