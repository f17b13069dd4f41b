"""Small files of the lake's tables become larger ones while batches are written: when, and how much of the time.

A fold is prepared in a thread of its own and committed by whoever writes the table's next batch, before that batch. So
no two of our commits to a table ever meet, and the ledger's newest row is of a version at or after the last fold. A
table that stands still keeps its small files; there are few of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headgate.delta import DataFile, Fold, Snapshot, choose_files, commit, prepare_fold
from headgate.errors import CommitConflictError, HeadgateError

__all__ = ["Folds"]

log = logging.getLogger("headgate")

_SHARE: Final = 0.2
"""Of the time, at most, in which folds are prepared."""


@dataclass
class _Prepared:
    """A fold under way."""

    key: tuple[str, ...]
    fold: Future[Fold | None]
    emptied: set[str] = field(default_factory=set)
    """Files that lost their last rows to us since it began."""


class Folds:
    """The folds of one lake's tables. Different tables may be written at the same time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "headgate-fold")
        self._prepared: dict[str, _Prepared] = {}
        self._free_at = 0.0

    def begin(self, path: str, table: Snapshot, schema: pa.Schema, codec: str, key: Sequence[str]) -> None:
        """Have the table's small files folded, if there are enough of them and it is time."""
        if path in self._prepared or time.monotonic() < self._free_at:
            return
        files = choose_files(table)
        if files:
            fold = self._thread.submit(self._prepare, path, files, schema, codec, key)
            self._prepared[path] = _Prepared(tuple(key), fold)

    def _prepare(
        self, path: str, files: Sequence[DataFile], schema: pa.Schema, codec: str, key: Sequence[str]
    ) -> Fold | None:
        begun = time.monotonic()
        try:
            return prepare_fold(path, files, schema, codec, key)
        finally:
            now = time.monotonic()
            self._free_at = now + (now - begun) * (1 / _SHARE - 1)

    def emptied(self, path: str, files: Sequence[str]) -> None:
        """A commit of ours has deleted the last rows of these files."""
        if path in self._prepared:
            self._prepared[path].emptied.update(files)

    def finish(self, path: str, table: Snapshot, key: Sequence[str]) -> bool:
        """Commit the table's fold, if it is prepared; whether that was done."""
        prepared = self._prepared.get(path)
        if prepared is None or not prepared.fold.done():
            return False
        del self._prepared[path]
        try:
            fold = prepared.fold.result()
        except (HeadgateError, OSError, pa.ArrowException) as error:
            log.warning("%s: its small files could not be folded: %s", path, error)
            return False
        if fold is None:
            return False
        try:
            actions = fold.actions(table, prepared.emptied) if prepared.key == tuple(key) else None
            if actions:
                commit(path, table, actions, "OPTIMIZE", {"predicate": "[]", "auto": "true"}, blind=False)
                return True
        except (CommitConflictError, OSError) as error:
            log.info("%s: a fold of its small files is void: %s", path, error)
        fold.discard()
        return False
