"""Folds of small files into larger ones while batches are written: when, and for how much of the time.

A fold is prepared in parallel with the batches (``_background``). The writer commits it: before the table's next batch,
or after a batch of other tables. So two commits of ours to a table never conflict, and the newest ledger row names a
version at or after the last fold.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final

import pyarrow as pa

from headgate.delta import DataFile, Fold, FoldLayout, Snapshot, choose_files, prepare_fold
from headgate.errors import HeadgateError, StorageError
from headgate.lake import StoppedError, followed_log
from headgate.upkeep._background import Background

__all__ = ["Folds"]

log = logging.getLogger("headgate")

_VALID_SECONDS: Final = 3600.0
"""Maximum age of a fold when it is committed. Until then its file belongs to no version, and such files are removed
some time later (``_upkeep``)."""


@dataclass
class _Prepared:
    """A fold that is not committed yet."""

    key: tuple[str, ...]
    sources: frozenset[str]
    """Paths of the files to fold."""
    fold: Future[Fold | None]
    emptied: set[str] = field(default_factory=set)
    """Files whose last rows we have deleted since it began."""
    begun: float = field(default_factory=time.time)


class Folds:
    """Folds of one lake's tables. Different tables may be written at the same time."""

    def __init__(self, background: Background | None = None) -> None:
        self.background = background or Background()
        self._prepared: dict[str, _Prepared] = {}
        self._unfit: dict[str, frozenset[str]] = {}
        """Files that do not fit into one, by table: the last ones that were tried."""
        self._lock = Lock()

    def begin(self, path: str, table: Snapshot, layout: FoldLayout) -> None:
        """Start to fold the table's small files, if there are enough of them and the background thread is free."""
        if path not in self._prepared and self.background.is_free:
            self.begin_with(path, choose_files(table, divides=layout.divides), layout)

    def begin_with(self, path: str, files: Sequence[DataFile], layout: FoldLayout) -> None:
        """Start to fold these files of a table, if there are any and no other fold of it is under way."""
        names = frozenset(file.path for file in files)
        with self._lock:
            if files and path not in self._prepared and self._unfit.get(path) != names:
                fold = self.background.submit(partial(prepare_fold, path, files, layout))
                self._prepared[path] = _Prepared(layout.key, names, fold)

    def cancel(self, path: str) -> None:
        """Remove the fold of a table that takes no more commits."""
        prepared = self._prepared.pop(path, None)
        if prepared is not None:
            prepared.fold.add_done_callback(_discard)

    def ready(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return path and key of each prepared fold."""
        return [(path, one.key) for path, one in list(self._prepared.items()) if one.fold.done()]

    def close(self) -> None:
        """Remove prepared folds that were not committed."""
        for path, prepared in list(self._prepared.items()):
            if prepared.fold.done():
                _discard(prepared.fold)
            del self._prepared[path]

    def emptied(self, path: str, files: Sequence[str]) -> None:
        """Record that a commit of ours has deleted the last rows of these files."""
        if path in self._prepared:
            self._prepared[path].emptied.update(files)

    def finish(self, path: str, table: Snapshot, key: Sequence[str]) -> bool:
        """Commit the table's fold, if it is prepared. Return whether it was committed.

        :raises CommitUnknownError: it is not known whether it was committed.
        """
        prepared = self._prepared.get(path)
        if prepared is None or not prepared.fold.done():
            return False
        del self._prepared[path]
        try:
            fold = prepared.fold.result()
        except StoppedError:
            return False
        except (HeadgateError, OSError, pa.ArrowException) as error:
            log.warning("%s: could not fold small files: %s", path, error)
            return False
        if fold is None:
            self._unfit[path] = prepared.sources
            log.info("%s: %d files stay as they are: they do not fit into one", path, len(prepared.sources))
            return False
        if prepared.key != tuple(key) or time.time() - prepared.begun >= _VALID_SECONDS:
            fold.discard()
            return False
        try:
            return fold.commit(followed_log(path), lambda: table, prepared.emptied, auto="true")
        except (StorageError, OSError) as error:
            log.info("%s: a fold of small files was not committed: %s", path, error)
            return False


def _discard(fold: Future[Fold | None]) -> None:
    """Remove the new file of a fold that is done."""
    if fold.exception() is None and (prepared := fold.result()):
        prepared.discard()
