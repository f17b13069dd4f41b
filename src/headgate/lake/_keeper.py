"""Removes from one table's folder what no version needs that has to stay readable.

Data files and deletion vectors go as soon as no such version has them; log files as soon as a checkpoint takes their
place; files that no commit names after a day, because a batch that is being written may have made them.

Methods that are generators yield now and then, so that the caller may pause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.delta import FileHistory, old_log_files

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
        self._listed_at = 0.0
        self._log_from = 0

    def follow(self, oldest: int) -> Iterator[None]:
        """Read what was committed since.

        :param oldest: the oldest version that has to stay readable.
        """
        if self.history.version < 0 or not self.history.is_continued():
            self.history, self._listed_at = FileHistory(self.folder, oldest), 0.0
        yield from self.history.follow()

    def clean(self, oldest: int) -> Iterator[None]:
        """Remove what no version from ``oldest`` on needs: what the log tells; now and then also what listings do."""
        history = self.history
        names = history.unneeded(oldest)
        for count, name in enumerate(names):
            self._remove(Path(self.folder, name))
            if count % _YIELD_FILES == 0:
                yield
        history.forget(names)
        if not history.is_removable:
            return
        now = time.time()
        is_due, before = now - self._listed_at >= _LISTING_SECONDS, now - _ORPHAN_SECONDS
        if is_due:
            self._listed_at = now
            for entry in history.orphans(before):
                if entry is not None:
                    self._remove(Path(entry.path))
                yield
        if is_due or oldest - self._log_from >= _OLD_VERSIONS:
            self._log_from = oldest
            yield from self._clean_log(oldest, before)

    def _clean_log(self, oldest: int, before: float) -> Iterator[None]:
        for count, path in enumerate(old_log_files(self.folder, oldest, before)):
            self._remove(path)
            if count % _YIELD_FILES == 0:
                yield

    def _remove(self, path: Path) -> None:
        try:
            size = path.stat().st_size
            if not self._dry:
                path.unlink()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("%s cannot be removed: %s", path, error.strerror)
            return
        self.removed += Amount(1, size)
