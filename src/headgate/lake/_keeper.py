"""Removes from one table's folder what no version needs that has to stay readable.

Data files and deletion vectors go as soon as no such version has them; log files as soon as a checkpoint takes their
place; files that no commit names after a day, because a batch that is being written may have made them.

A folder is listed at most once an hour, and not again before the table changes, but for once a day after that.

Methods that are generators yield now and then, so that the caller may pause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.delta import FileHistory, files_of, old_log_files

__all__ = ["Amount", "TableKeeper"]

log = logging.getLogger("headgate")

_LISTING_SECONDS: Final = 3600.0
_OLD_VERSIONS: Final = 500
"""So many versions that nothing needs any more are worth a listing of the log. Whoever opens the table lists it, too:
2 µs a file."""
_ORPHAN_SECONDS: Final = 24 * 3600.0
_YIELD_FILES: Final = 100


@dataclass(frozen=True)
class Amount:
    """Files, and their bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.files + other.files, self.bytes + other.bytes)

    def times(self, factor: float) -> Amount:
        """So many times this."""
        return Amount(round(self.files * factor), round(self.bytes * factor))


class TableKeeper:
    """Removes what is not needed from one table's folder. Not to be used by several threads.

    :param dry: only count it.
    """

    def __init__(self, folder: str, *, dry: bool = False) -> None:
        self.folder = folder
        self.removed = Amount()
        self.history = FileHistory(folder, 0)
        self._dry = dry
        self._changed_at = self._looked_at = self._listed_at = 0.0
        self._listed_version = self._log_from = -1
        self._has_failed = False

    def follow(self, oldest: int) -> Iterator[None]:
        """Read what was committed since.

        :param oldest: the oldest version that has to stay readable.
        """
        if self.history.version < 0 or not self.history.is_continued():
            self.history = FileHistory(self.folder, oldest)
            self._looked_at = self._listed_at = 0.0
        known = self.history.version
        yield from self.history.follow()
        if known != self.history.version:
            self._changed_at = time.time()

    def clean(self, oldest: int) -> Iterator[None]:
        """Remove what no version from ``oldest`` on needs: what the log tells; now and then also what listings do."""
        history = self.history
        names = history.unneeded(oldest)
        yield from self._remove(names)
        history.forget(names)
        if not history.is_removable:
            return
        now = time.time()
        is_hour, again, before = now - self._looked_at >= _LISTING_SECONDS, False, now - _ORPHAN_SECONDS
        if is_hour:
            again, self._has_failed, self._looked_at = self._has_failed, False, now
        if is_hour and (again or self._may_have_orphans(now)):
            self._listed_at, self._listed_version = now, history.version
            yield from self._remove_orphans(before)
        if (is_hour and (again or oldest != self._log_from)) or oldest - self._log_from >= _OLD_VERSIONS:
            self._log_from = oldest
            yield from self._remove(old_log_files(self.folder, oldest, before))

    def _may_have_orphans(self, now: float) -> bool:
        """Whether there may be files of no commit that the last listing has not found, or found too young."""
        is_old_now = self._listed_at < self._changed_at + _ORPHAN_SECONDS <= now
        return is_old_now or self._listed_version != self.history.version

    def _remove_orphans(self, before: float) -> Iterator[None]:
        found = []
        for file in self.history.orphans(before):
            if file is not None:
                found.append(file.name)
            yield
        yield from self._remove(found)

    def _remove(self, names: Sequence[str]) -> Iterator[None]:
        """Remove these; some of them at once, so files of a log have to go in any order."""
        for start in range(0, len(names), _YIELD_FILES):
            for done in files_of(self.folder).each(self._remove_one, names[start : start + _YIELD_FILES]):
                self.removed += done
            yield

    def _remove_one(self, name: str) -> Amount:
        files = files_of(self.folder)
        try:
            found = files.identity(name)
            if found is not None and not self._dry:
                files.delete(name)
        except OSError as error:
            log.warning("%s/%s cannot be removed: %s", self.folder, name, error.strerror or error)
            self._has_failed = True  # tried again when the folder is listed
            return Amount()
        return Amount() if found is None else Amount(1, found.size)
