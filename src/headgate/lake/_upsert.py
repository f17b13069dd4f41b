"""Upserts into a keyed table without a MERGE: an index finds the old rows, deletion vectors delete them.

A MERGE joins: it reads the table's files, plans, shuffles and compiles, which takes seconds however few rows change.
Here the new rows are written (``_written``), the driver looks up where their keys are (``headgate.delta``), and one
commit deletes the old rows and adds the new ones.

**What is held where, if a batch is large or Spark runs on many machines.** Tasks write rows and return keys; the driver
holds the indexes and looks up keys. No task needs an index, or another task's disk.

**The result equals the MERGE's**, row by row. If a row's ``_seq`` is below the change's, the row is deleted, or
replaced by the new one; if not, the change is skipped. A change of a key without a row is inserted, unless it deletes.
So either one may repeat the other.

**Nothing comes between** the look-up and the commit: the commit makes the version after the one that was read. If
another program has made that one, the keys are looked up again.

**Only plain tables**, as in ``_append``, that have deletion vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from headgate.delta import ColumnCopies, FoldLayout, IndexCache, KeyedTable, KeyLookup, commit
from headgate.errors import CommitConflictError, TargetError
from headgate.files import cache_folder
from headgate.lake._append import CommitBase, inspect_base
from headgate.lake._delta import discard_after_conflict, retry_conflicts
from headgate.lake._folds import Folds
from headgate.lake._form import Form
from headgate.lake._replace import Fill, replace_files
from headgate.lake._row_changes import Ending, RowChange, changed_rows, find_rows, write_rows
from headgate.lake._status import IndexStatus
from headgate.lake._versions import VersionChanges, by_kind, find_open
from headgate.lake._write_methods import NO_VECTORS, has_vectors
from headgate.lake._written import Changes, Written, write_changes

if TYPE_CHECKING:
    from headgate.lake._delta import DeltaPath

__all__ = ["Changes", "Fill", "Upserts", "VersionChanges"]

_INDEX_BYTES: Final = 4 << 30
_EPOCH_DDL: Final = "_seq struct<epoch: bigint>"


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
        self._refused: dict[str, str] = {}
        self._lock = Lock()

    def refusal(self, delta: DeltaPath) -> str:
        """Return why a table does not support upserts, as of the last look at it; "": it does."""
        return self._refused.get(delta.path, "")

    def forget(self, delta: DeltaPath) -> None:
        """Forget a table that takes no more changes."""
        with self._lock:
            self._tables.pop(delta.path, None)
        self._folds.cancel(delta.path)

    def indexes(self) -> IndexStatus:
        """Return the status of the key indexes on this machine."""
        bytes_on_disk = self._indexes.files.bytes_on_disk + self._copies.files.bytes_on_disk
        return IndexStatus(tables_building=self._indexes.tables_building, bytes_on_disk=bytes_on_disk)

    def supports(self, delta: DeltaPath) -> bool:
        """Return whether the table supports upserts, as far as is known without the changes."""
        return self._find_base(delta, _EPOCH_DDL, ()) is not None

    def apply(self, delta: DeltaPath, changes: Changes) -> int | None:
        """Apply changes to a table. Return the number of commits (0: it has them already), None: a MERGE has to do it.

        :raises CommitConflictError: other programs changed the table, again and again, or its columns.
        """
        base = self._find_base(delta, changes.ddl, changes.columns)
        if base is None:
            return None
        folded = self._folds.finish(delta.path, base.snapshot, changes.key, delta.put)
        written = write_changes(changes, base, delta.path)
        if written is None:
            return int(folded)

        def write() -> int | None:
            base = self._find_base(delta, changes.ddl, changes.columns)
            if base is None:
                return None
            if not base.fits(written.base):
                raise CommitConflictError(f"{delta.path}: another program changed the columns")
            upserted = self._upsert(delta, base, written, changes.key)
            self._begin_fold(delta, base, changes.key)
            return folded + upserted

        try:
            done = retry_conflicts(write)
        except CommitConflictError:
            written.discard()
            raise
        written.discard()
        return done

    def apply_versions(self, delta: DeltaPath, changes: VersionChanges) -> int:
        """Apply changes to a history. Return the number of commits; 0: it has them already.

        :raises CommitConflictError: other programs changed the table, again and again.
        :raises TargetError: the table needs Spark's writer.
        """
        table = self._history_base(delta, changes.ddl, changes.columns).snapshot
        folded = self._folds.finish(delta.path, table, changes.key, delta.put)

        def write() -> int:
            base = self._history_base(delta, changes.ddl, changes.columns)
            if base.has(changes.marker):
                return int(folded)
            self._write_versions(delta, base, changes)
            self._begin_fold(delta, base, changes.key, Form.HISTORY)
            return folded + 1

        return retry_conflicts(write)

    def _begin_fold(self, delta: DeltaPath, base: CommitBase, key: Sequence[str], form: Form = Form.PLAIN) -> None:
        """Start to fold the table's small files as of now, if there are enough of them."""
        table = delta.followed(files=True)
        if table is not None:
            self._folds.begin(delta.path, table, FoldLayout(base.schema, base.codec, tuple(key), form.divides))

    def _write_versions(self, delta: DeltaPath, base: CommitBase, changes: VersionChanges) -> None:
        """Commit the changes.

        :raises CommitConflictError: another program committed first.
        """
        keyed = self._keyed(delta, base, changes.key)
        open_rows = find_open(base.snapshot, keyed, changes, base.schema)
        rows = changes.settle(open_rows.rows, open_rows.key_numbers)
        added = write_rows(by_kind(rows), base, delta.path, (*changes.key, "_seq", *Ending.statistics))
        about = {"outputMode": "Update", "epochId": str(changes.marker.version)}
        with discard_after_conflict(delta.path, added):
            actions = [*added, changes.marker.action()]
            self._commit(delta, base, keyed, open_rows.lookup, actions, "STREAMING UPDATE", about)

    def end_versions(self, delta: DeltaPath, ending: Ending, key: Sequence[str]) -> int:
        """End open versions of a history. Return the number of commits.

        :raises CommitConflictError: other programs changed the table, again and again.
        :raises TargetError: the table needs Spark's writer.
        """
        commits = self.change_rows(delta, ending, key)
        if commits is None:
            raise self._not_a_history(delta)
        return commits

    def change_rows(self, delta: DeltaPath, change: RowChange, key: Sequence[str]) -> int | None:
        """Write rows again, changed. Return the number of commits, None: an UPDATE has to do it.

        :raises CommitConflictError: other programs changed the table, again and again.
        """

        def write() -> int | None:
            base = self._find_base(delta, _EPOCH_DDL, ())
            if base is None:
                return None
            keyed, folder = self._keyed(delta, base, key), delta.path
            rows_by_file, lookup = find_rows(base.snapshot, keyed, change)
            rows = changed_rows(base.snapshot, folder, rows_by_file, change, base.schema)
            added = write_rows([rows], base, folder, (*key, "_seq", *change.statistics))
            with discard_after_conflict(folder, added):
                self._commit(delta, base, keyed, lookup, added, "UPDATE", {"predicate": f'["{change.condition}"]'})
            return int(bool(rows_by_file))

        return retry_conflicts(write)

    def _history_base(self, delta: DeltaPath, ddl: str, columns: Sequence[str]) -> CommitBase:
        base = self._find_base(delta, ddl, columns)
        if base is None:
            raise self._not_a_history(delta)
        return base

    def _not_a_history(self, delta: DeltaPath) -> TargetError:
        return TargetError(f"{delta.path}: a history cannot be written by MERGE: {self.refusal(delta)}")

    def clear(self, delta: DeltaPath, bound: tuple[int, int, int, int], key: Sequence[str]) -> int | None:
        """Delete the rows whose ``_seq`` is below ``bound``. Return the number of commits, None: a DELETE has to do it.

        :raises CommitConflictError: other programs changed the table, again and again.
        """

        def write() -> int | None:
            base = self._find_base(delta, _EPOCH_DDL, ())
            if base is None:
                return None
            keyed = self._keyed(delta, base, key)
            lookup = keyed.find_older(base.snapshot, bound)
            self._commit(delta, base, keyed, lookup, [], "DELETE", {"predicate": f'["_seq < {bound}"]'})
            return int(bool(lookup.deleted_rows))

        return retry_conflicts(write)

    def fill(self, delta: DeltaPath, fill: Fill, key: Sequence[str]) -> int | None:
        """Set columns in existing rows. Return the number of commits, None: an UPDATE has to do it.

        :raises CommitConflictError: other programs changed the table, again and again.
        """

        def write() -> int | None:
            base = self._find_base(delta, f"{fill.ddl}, {_EPOCH_DDL}", tuple(fill.values))
            if base is None:
                return None
            files = [file for file in base.snapshot.files.values() if fill.touches(file)]
            if not files:
                return 0
            about = {"predicate": f'["_seq.epoch < {fill.before}"]'}
            replace_files(delta, base, files, fill.apply, (*key, "_seq"), ("UPDATE", about))
            return 1

        return retry_conflicts(write)

    def _find_base(self, delta: DeltaPath, ddl: str, columns: Sequence[str]) -> CommitBase | None:
        """Return the base of a commit, as for an append; None also for tables without deletion vectors."""
        inspected = inspect_base(delta, ddl, columns, files=True)
        if isinstance(inspected, CommitBase) and not has_vectors(inspected.snapshot):
            inspected = NO_VECTORS
        self._refused[delta.path] = "" if isinstance(inspected, CommitBase) else inspected
        return inspected if isinstance(inspected, CommitBase) else None

    def _upsert(self, delta: DeltaPath, base: CommitBase, written: Written, key: Sequence[str]) -> bool:
        """Commit the changes. Return whether there was something to commit.

        :raises CommitConflictError: another program committed first.
        """
        keyed = self._keyed(delta, base, key)
        lookup = keyed.find(base.snapshot, written.keys, written.sequences)
        added = written.actions(lookup.skipped_keys)
        about = {"outputMode": "Update", "epochId": str(written.sequences.least_epoch)}
        self._commit(delta, base, keyed, lookup, added, "STREAMING UPDATE", about)
        written.committed(added)
        return bool(lookup.deleted_rows or added)

    def _commit(
        self,
        delta: DeltaPath,
        base: CommitBase,
        keyed: KeyedTable,
        lookup: KeyLookup,
        added: Sequence[dict[str, Any]],
        operation: str,
        about: dict[str, str],
    ) -> None:
        """Commit new files and the removal of what they replace, if there is anything."""
        if not lookup.deleted_rows and not added:
            return
        actions = [*added, *keyed.actions(base.snapshot, lookup)]
        commit(delta.path, base.snapshot, actions, operation, about, blind=False, put=delta.put)
        self._folds.emptied(delta.path, [path for path, left in lookup.deleted_rows.items() if left is None])

    def _keyed(self, delta: DeltaPath, base: CommitBase, key: Sequence[str]) -> KeyedTable:
        path, types = delta.path, [base.schema.field(name).type for name in key]
        with self._lock:
            keyed = self._tables.get(path)
            if keyed is None or keyed.key != tuple(key) or keyed.types != tuple(types):
                keyed = self._tables[path] = KeyedTable(path, key, types, self._indexes, self._copies)
            return keyed
