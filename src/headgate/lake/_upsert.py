"""Upserts into a keyed table without a MERGE: an index finds the old rows, deletion vectors take them out.

A MERGE joins: it reads the table's files, plans, shuffles and compiles, which takes seconds however few rows change.
Here the new rows are written (``_written``), the driver looks up where their keys are (``headgate.delta``), and one
commit takes the old rows out and adds the new ones.

**Who holds what, if a batch is large or Spark runs on many machines.** Tasks write rows and return keys; the driver
holds the indexes and finds the places. No task needs an index, or the disk of another.

**What it does is what the MERGE does**, row by row: a row goes, or gives way to the new one, if its ``_seq`` is below
the change's; if it is not, the change is left out; a change of a key that has no row is inserted, unless it deletes. So
one may be repeated by the other.

**Nothing comes between** the look-up and the commit: the commit makes the version after the one that was looked at. If
another program has made that one, the keys are looked up again.

**Only plain tables**, as in ``_append``, and those that have deletion vectors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.delta import Found, IndexCache, KeyedTable, Put, Snapshot, TableLog, commit, discard_files
from headgate.errors import CommitConflictError
from headgate.lake._append import Begun, look
from headgate.lake._delta import tried
from headgate.lake._fill import Fill, fill_files
from headgate.lake._folds import Folds
from headgate.lake._status import IndexStatus
from headgate.lake._ways import NO_VECTORS, has_vectors
from headgate.lake._written import Changes, Written, write_changes

if TYPE_CHECKING:
    from headgate.lake._delta import DeltaPath

__all__ = ["Changes", "Fill", "Upserts"]

_INDEX_BYTES: Final = 4 << 30
_EPOCH_DDL: Final = "_seq struct<epoch: bigint>"


@dataclass
class _Known:
    """What is known of one table from batch to batch."""

    log: TableLog
    table: KeyedTable
    put: Put | None


class Upserts:
    """Upserts into the tables of one lake; different tables may be written at the same time.

    :param cache: the folder for key indexes; by default one of the user's caches.
    :param folds: who folds small files of the lake's tables.
    """

    def __init__(self, cache: Path | None = None, folds: Folds | None = None) -> None:
        self._indexes = IndexCache(cache or _cache_folder(), _INDEX_BYTES)
        self._folds = folds or Folds()
        self._tables: dict[str, _Known] = {}
        self._refused: dict[str, str] = {}
        self._lock = Lock()

    def refusal(self, delta: DeltaPath) -> str:
        """Why a table is not one for upserts, as of the last look at it; "": it is one."""
        return self._refused.get(delta.path, "")

    def indexes(self) -> IndexStatus:
        """The key indexes on this machine."""
        return IndexStatus(tables_building=self._indexes.tables_building, bytes_on_disk=self._indexes.bytes_on_disk)

    def takes(self, delta: DeltaPath) -> bool:
        """Whether the table is one for upserts, as far as is known without the changes."""
        return self._begin(delta, _EPOCH_DDL, ()) is not None

    def apply(self, delta: DeltaPath, changes: Changes) -> int | None:
        """Apply changes to a table; how many commits that took (0: it has them already), None: a MERGE has to do it.

        :raises CommitConflictError: other programs changed the table, again and again, or its columns.
        """
        begun = self._begin(delta, changes.ddl, changes.columns)
        if begun is None:
            return None
        table = self._known(delta, changes.key, begun.schema).log.refresh()
        folded = self._folds.finish(delta.path, table, changes.key, delta.put)
        written = write_changes(changes, begun, delta.path)
        if written is None:
            return int(folded)

        def write() -> int | None:
            begun = self._begin(delta, changes.ddl, changes.columns)
            if begun is None:
                return None
            if not begun.takes(written.begun):
                raise CommitConflictError(f"{delta.path}: another program changed the columns")
            known = self._known(delta, changes.key, begun.schema)
            upserted = self._upsert(known, begun, written)
            self._folds.begin(delta.path, known.log.refresh(), begun.schema, begun.codec, changes.key)
            return folded + upserted

        try:
            done = tried(write)
        except CommitConflictError:
            written.discard()
            raise
        written.discard()
        return done

    def clear(self, delta: DeltaPath, bound: tuple[int, int, int, int], key: Sequence[str]) -> int | None:
        """Delete the rows whose ``_seq`` is below ``bound``; how many commits that took, None: a DELETE has to do it.

        :raises CommitConflictError: other programs changed the table, again and again.
        """

        def write() -> int | None:
            begun = self._begin(delta, _EPOCH_DDL, ())
            if begun is None:
                return None
            known = self._known(delta, key, begun.schema)
            table = self._at(known, begun)
            found = known.table.older(table, bound)
            self._commit(known, table, found, [], "DELETE", {"predicate": f'["_seq < {bound}"]'})
            return int(bool(found.removed))

        return tried(write)

    def fill(self, delta: DeltaPath, fill: Fill, key: Sequence[str]) -> int | None:
        """Set columns in the rows that were there; how many commits that took, None: an UPDATE has to do it.

        :raises CommitConflictError: other programs changed the table, again and again.
        """

        def write() -> int | None:
            begun = self._begin(delta, f"{fill.ddl}, {_EPOCH_DDL}", tuple(fill.values))
            if begun is None:
                return None
            table = self._at(self._known(delta, key, begun.schema), begun)
            files = [file for file in table.files.values() if fill.touches(file)]
            if not files:
                return 0
            added = fill_files(delta.spark, delta.path, begun, files, fill, (*key, "_seq"))
            now = time.time_ns() // 1_000_000
            actions = [*(file.removal(now, data_change=True) for file in files), *added]
            try:
                about = {"predicate": f'["_seq.epoch < {fill.before}"]'}
                commit(delta.path, table, actions, "UPDATE", about, blind=False, put=delta.put)
            except CommitConflictError:
                discard_files(delta.path, [action["add"]["path"] for action in added])
                raise
            return 1

        return tried(write)

    def _begin(self, delta: DeltaPath, ddl: str, columns: Sequence[str]) -> Begun | None:
        """As for an append; None also for tables without deletion vectors."""
        found = look(delta, ddl, columns)
        if isinstance(found, Begun) and not has_vectors(found.snapshot):
            found = NO_VECTORS
        self._refused[delta.path] = "" if isinstance(found, Begun) else found
        return found if isinstance(found, Begun) else None

    def _upsert(self, known: _Known, begun: Begun, written: Written) -> bool:
        """Whether there was something to commit.

        :raises CommitConflictError: another program's commit came before.
        """
        table = self._at(known, begun)
        found = known.table.find(table, written.keys, written.sequences)
        added = written.actions(found.spared)
        about = {"outputMode": "Update", "epochId": str(written.sequences.least_epoch)}
        self._commit(known, table, found, added, "STREAMING UPDATE", about)
        written.committed(added)
        return bool(found.removed or added)

    def _at(self, known: _Known, begun: Begun) -> Snapshot:
        """The table with its files, at the version that was looked at.

        :raises CommitConflictError: there is a newer one.
        """
        table = known.log.refresh()
        if table.version != begun.version:
            raise CommitConflictError(f"{known.log.folder}: another program committed version {table.version}")
        return table

    def _commit(
        self,
        known: _Known,
        table: Snapshot,
        found: Found,
        added: Sequence[dict[str, Any]],
        operation: str,
        about: dict[str, str],
    ) -> None:
        """Commit new files and what they take the place of, if there is anything."""
        if not found.removed and not added:
            return
        actions = [*added, *known.table.actions(table, found)]
        commit(known.log.folder, table, actions, operation, about, blind=False, put=known.put)
        self._folds.emptied(known.log.folder, [path for path, left in found.removed.items() if left is None])

    def _known(self, delta: DeltaPath, key: Sequence[str], schema: pa.Schema) -> _Known:
        path, types = delta.path, [schema.field(name).type for name in key]
        with self._lock:
            known = self._tables.get(path)
            if known is None or known.table.key != tuple(key) or known.table.types != tuple(types):
                known = _Known(TableLog(path), KeyedTable(path, key, types, self._indexes), delta.put)
                self._tables[path] = known
            return known


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headgate" / "keys"
