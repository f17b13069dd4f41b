"""Changes of current tables and histories: an index finds the old rows, deletion vectors delete them.

Spark's MERGE joins: it reads the table's files, plans, shuffles and compiles, which takes seconds however few rows
change. Here the new rows are written (``_staged_rows``), the driver looks up where their keys are (``headgate.delta``),
and one commit deletes the old rows and adds the new ones.

**What is held where, if a batch is large or Spark runs on many machines.** Tasks write rows and return keys; the driver
holds the indexes and looks up keys. No task needs an index, or another task's disk.

**The result equals a MERGE's**, row by row. If a row's ``_seq`` is below the change's, the row is deleted, or
replaced by the new one; if not, the change is skipped. A change of a key without a row is inserted, unless it deletes.
So either one may repeat the other.

**Nothing comes between** the look-up and the commit: the commit makes the version after the one that was read. If
another program has made that one, the keys are looked up again.

**Only plain tables**, as in ``lake._append``, that have deletion vectors. Others are refused, with the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate.apply._counted import CountedChanges, delete_copies
from headgate.apply._row_changes import RowChange, changed_rows, find_rows, write_rows
from headgate.apply._staged_rows import Changes, write_all, write_changes
from headgate.apply._version_changes import VersionChanges, settled_rows
from headgate.delta import (
    ColumnCopies,
    CommitPlan,
    IndexCache,
    KeyedTable,
    KeyLookup,
    discard_files,
    keys_of,
    read_rows,
    snapshot_at,
    vectors_of,
)
from headgate.errors import CommitConflictError, StorageError
from headgate.files import cache_folder
from headgate.lake import ROW_HASH, CommitBase, Fill, inspect_base, plan_replacement
from headgate.status import IndexStatus
from headgate.upkeep import Folds, fold_layout

if TYPE_CHECKING:
    from headgate.lake import DeltaPath

__all__ = ["Upserts"]

_INDEX_BYTES: Final = 4 << 30
_EPOCH_DDL: Final = "_seq struct<epoch: bigint>"
_PART_BYTES: Final = 64 << 20
"""Bytes of rows that are read at a time, or those of one row group."""


class Upserts:
    """Upserts into the tables of one lake. Different tables may be written at the same time.

    :param cache: the folder for key indexes; by default one of the user's caches.
    :param folds: folds small files of the lake's tables.
    """

    def __init__(self, cache: Path | None = None, folds: Folds | None = None) -> None:
        folder = cache or cache_folder("keys")
        self._indexes, self._copies = IndexCache(folder, _INDEX_BYTES), ColumnCopies(folder, _INDEX_BYTES)
        self._folds = folds or Folds()
        self._tables: dict[str, KeyedTable] = {}
        self._lock = Lock()

    def forget(self, delta: DeltaPath) -> None:
        """Forget a table that takes no more changes."""
        with self._lock:
            self._tables.pop(delta.path, None)
        self._folds.cancel(delta.path)

    def indexes(self) -> IndexStatus:
        """Return the status of the key indexes on this machine."""
        bytes_on_disk = self._indexes.files.bytes_on_disk + self._copies.files.bytes_on_disk
        return IndexStatus(tables_building=self._indexes.tables_building, bytes_on_disk=bytes_on_disk)

    def apply(self, delta: DeltaPath, changes: Changes) -> None:
        """Apply changes to a table.

        :raises CommitConflictError: other programs changed the table, again and again, or its columns.
        :raises TargetError: headgate cannot write the table.
        """
        find_base = partial(self._base, delta, changes.ddl, changes.columns)
        base = self._folded(delta, find_base, changes.key)
        written = write_changes(changes, base, delta.path)
        if written is None:
            return

        def plan(base: CommitBase) -> CommitPlan | None:
            if not base.fits(written.base):
                raise CommitConflictError(f"{delta.path}: another program changed the columns")
            keyed = self._keyed(delta, base, changes.key)
            lookup = keyed.find(base.snapshot, written.keys, written.sequences)
            added = written.actions(lookup.skipped_keys)
            about = {"outputMode": "Update", "epochId": str(written.sequences.least_epoch)}
            return _plan(base, keyed, lookup, added, ("STREAMING UPDATE", about))

        self._commit(delta, find_base, plan, written.files, base=base)
        self._begin_fold(delta, base)

    def apply_versions(self, delta: DeltaPath, changes: VersionChanges) -> None:
        """Apply changes to a history.

        :raises CommitConflictError: other programs changed the table, again and again.
        :raises TargetError: headgate cannot write the table.
        """
        find_base = partial(self._base, delta, changes.ddl, changes.columns)
        base = self._folded(delta, find_base, changes.key)

        def plan(base: CommitBase) -> CommitPlan | None:
            if base.has(changes.marker):
                return None
            keyed, lookup = self._keyed(delta, base, changes.key), KeyLookup()
            rows = settled_rows(base.snapshot, keyed, changes, base.schema, lookup)
            added = write_rows(rows, base, delta.path)
            about = {"outputMode": "Update", "epochId": str(changes.marker.version)}
            actions = [*added, changes.marker.action()]
            return _plan(base, keyed, lookup, actions, ("STREAMING UPDATE", about), _files(added))

        self._commit(delta, find_base, plan, base=base)
        self._begin_fold(delta, base)

    def apply_counts(self, delta: DeltaPath, changes: CountedChanges) -> None:
        """Apply changes to a table without a key.

        :raises CommitConflictError: other programs changed the table, again and again, or its columns.
        :raises TargetError: headgate cannot write the table, or ``check`` raised it.
        """
        find_base = partial(self._base, delta, changes.ddl, changes.columns)
        base = self._folded(delta, find_base, ())
        written = [] if base.has(changes.marker) else write_all(changes, base, delta.path)

        def plan(now: CommitBase) -> CommitPlan | None:
            if now.has(changes.marker):
                return None
            if not now.fits(base):
                raise CommitConflictError(f"{delta.path}: another program changed the columns")
            keyed, lookup = self._keyed(delta, now, ()), KeyLookup()
            if changes.empties:
                lookup.deleted_rows.update(dict.fromkeys(now.snapshot.files))
            delete_copies(now.snapshot, keyed, changes, lookup)
            if not written and not lookup.deleted_rows:
                return None
            about = {"outputMode": "Complete" if changes.empties else "Update", "epochId": str(changes.marker.version)}
            return _plan(now, keyed, lookup, [*written, changes.marker.action()], ("STREAMING UPDATE", about))

        self._commit(delta, find_base, plan, _files(written), base=base)
        self._begin_fold(delta, base)

    def rows_at(self, delta: DeltaPath, version: int, keys: pa.Table) -> Iterator[tuple[pa.Table, Any]]:
        """Yield the rows with some keys at a version, in the columns that it has, in parts of some ``_PART_BYTES``; for
        each also the number of each row's key (int64[rows]): its row in ``keys``.

        :param keys: the columns of the key; no key twice.
        :raises OSError: a file cannot be read.
        :raises TargetError: headgate cannot write the table.
        """
        base = self._base(delta, _EPOCH_DDL, ())
        table = base.snapshot if base.version == version else snapshot_at(delta.path, version)
        columns = {field["name"] for field in json.loads(table.schema_json)["fields"]}
        schema = pa.schema([field for field in base.schema if field.name in columns])
        keyed, parts, numbers, size = self._keyed(delta, base, keys.column_names), list[pa.Table](), list[Any](), 0
        for file, rows, key_numbers in keyed.locate(table, keys_of(keys.columns), lambda _file: True):
            first = 0
            for part in read_rows(delta.path, file, rows, schema):
                if parts and size + part.nbytes > _PART_BYTES:
                    yield pa.concat_tables(parts), np.concatenate(numbers)
                    parts, numbers, size = [], [], 0
                parts.append(part)
                numbers.append(key_numbers[first : first + len(part)])
                first, size = first + len(part), size + part.nbytes
        if parts:
            yield pa.concat_tables(parts), np.concatenate(numbers)

    def _folded(self, delta: DeltaPath, find_base: Callable[..., CommitBase], key: Sequence[str]) -> CommitBase:
        """Commit the table's fold, if it is prepared; return the base of the next commit."""
        base = find_base(newest=False)
        return find_base(newest=False) if self._folds.finish(delta.path, base.snapshot, key) else base

    def _begin_fold(self, delta: DeltaPath, base: CommitBase) -> None:
        """Start to fold the table's small files as of now, if there are enough of them."""
        table = delta.known(files=True)
        layout = fold_layout(table, base.codec)
        if layout is not None:
            self._folds.begin(delta.path, table, layout)

    def change_rows(self, delta: DeltaPath, change: RowChange, key: Sequence[str]) -> None:
        """Write rows again, changed.

        :raises CommitConflictError: other programs changed the table, again and again.
        :raises TargetError: headgate cannot write the table.
        """

        def plan(base: CommitBase) -> CommitPlan | None:
            keyed, folder = self._keyed(delta, base, key), delta.path
            rows_by_file, lookup = find_rows(base.snapshot, keyed, change)
            rows = changed_rows(base.snapshot, folder, rows_by_file, change, base.schema)
            added = write_rows([rows], base, folder)
            about = {"predicate": f'["{change.condition}"]'}
            return _plan(base, keyed, lookup, added, ("UPDATE", about), _files(added))

        self._commit(delta, partial(self._base, delta, _EPOCH_DDL, ()), plan)

    def clear(self, delta: DeltaPath, bound: tuple[int, int, int, int], key: Sequence[str], *, since: int = 0) -> None:
        """Delete the rows whose ``_seq`` is below ``bound``.

        :param since: rows of earlier epochs stay.
        :raises CommitConflictError: other programs changed the table, again and again.
        :raises TargetError: headgate cannot write the table.
        """

        def plan(base: CommitBase) -> CommitPlan | None:
            keyed = self._keyed(delta, base, key)
            lookup = keyed.find_older(base.snapshot, bound, since)
            about = {"predicate": f'["_seq.epoch >= {since} AND _seq < {bound}"]'}
            return _plan(base, keyed, lookup, [], ("DELETE", about))

        self._commit(delta, partial(self._base, delta, _EPOCH_DDL, ()), plan)

    def fill(self, delta: DeltaPath, fill: Fill) -> None:
        """Set columns in existing rows.

        :raises CommitConflictError: other programs changed the table, again and again.
        :raises TargetError: headgate cannot write the table.
        """

        def plan(base: CommitBase) -> CommitPlan | None:
            files = [file for file in base.snapshot.files.values() if fill.touches(file)]
            about = {"predicate": f'["_seq.epoch < {fill.before}"]'}
            return plan_replacement(delta, base, files, fill.apply, ("UPDATE", about)) if files else None

        find_base = partial(self._base, delta, f"{fill.ddl}, {_EPOCH_DDL}", tuple(fill.values))
        self._commit(delta, find_base, plan)

    def _base(self, delta: DeltaPath, ddl: str, columns: Sequence[str], *, newest: bool = True) -> CommitBase:
        """Return the base of a commit, as for an append, to a table with deletion vectors.

        :param newest: False: the version that is known. A batch has read the newest when it looked at the table's
            columns; whatever another program commits after that is a conflict.
        :raises TargetError: headgate cannot write the table.
        """
        return inspect_base(delta, ddl, columns, files=True, deletes=True, newest=newest)

    def _commit(
        self,
        delta: DeltaPath,
        find_base: Callable[[], CommitBase],
        plan: Callable[[CommitBase], CommitPlan | None],
        staged: Sequence[str] = (),
        *,
        base: CommitBase | None = None,
    ) -> None:
        """Commit what is planned on the newest version.

        :param plan: None: there is nothing to commit.
        :param staged: files that were written for all plans.
        :param base: for the first plan. If it is no longer the newest version, that plan conflicts, and the next one is
            on the newest.
        """

        def plan_next() -> CommitPlan | None:
            nonlocal base
            now, base = base or find_base(), None
            return plan(now)

        done = delta.commit(plan_next, staged=staged)
        if done is not None:
            self._folds.emptied(delta.path, done.emptied)

    def _keyed(self, delta: DeltaPath, base: CommitBase, key: Sequence[str]) -> KeyedTable:
        """Return the planner of deletions in a table.

        :param key: of the table; ``()``: it has none.
        """
        key = tuple(key) or (ROW_HASH,)
        path, types = delta.path, [base.schema.field(name).type for name in key]
        with self._lock:
            keyed = self._tables.get(path)
            if keyed is None or keyed.key != key or keyed.types != tuple(types):
                keyed = self._tables[path] = KeyedTable(path, key, types, self._indexes, self._copies)
            return keyed


def _plan(
    base: CommitBase,
    keyed: KeyedTable,
    lookup: KeyLookup,
    added: Sequence[dict[str, Any]],
    operation: tuple[str, dict[str, str]],
    written: Sequence[str] = (),
) -> CommitPlan | None:
    """Plan the addition of new files and the removal of what they replace; None if there is neither."""
    if not lookup.deleted_rows and not added:
        return None
    try:
        marked = keyed.actions(base.snapshot, lookup)
    except (StorageError, OSError):
        discard_files(keyed.folder, written)
        raise
    files = {*written, *vectors_of(marked)}
    return CommitPlan(base.snapshot, [*added, *marked], *operation, written=files)


def _files(added: Iterable[dict[str, Any]]) -> list[str]:
    return [str(action["add"]["path"]) for action in added]
