"""Lookup of a table's rows by key, and the commit actions that delete them.

A data file never changes. A change is planned on one version. The key index of each file whose statistics allow it
returns the rows with one of the keys. Rows that the file's deletion vector already has are skipped, the others are
added to it. A file without live rows is removed; other files are removed and added again with the new vector.

**The guard.** A row stays, and the change of its key is dropped, unless the row's ``_seq`` is below the change's. Only
files that may hold rows of the changes' least epoch or a later one are checked: statistics exclude nearly all, because
all changes of a batch have the batch's epoch. Such files exist after a crash between a commit and the ledger row, and
if rows of the same batch were appended before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.delta._column_copies import ColumnCopies
from headgate.delta._copy import read_rows
from headgate.delta._index import IndexCache, KeyIndex
from headgate.delta._keys import Keys, exact_number, is_exact, keys_of, whole
from headgate.delta._log import DataFile, Snapshot
from headgate.delta._parquet import as_column
from headgate.delta.vectors import Positions, VectorFile, positions_of, read_vector, rows_of

__all__ = ["KeyLookup", "KeyedTable", "Sequences"]

_SEQ: Final = "_seq"
_BATCH_ROWS: Final = 1 << 20


@dataclass(frozen=True)
class Sequences:
    """``_seq`` of some rows: int64[n] for each field."""

    epoch: Any
    file: Any
    pos: Any
    ordinal: Any

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Sequences:
        """Convert a column of structs."""
        fields = whole(column).flatten()
        return cls(*(np.asarray(part.to_numpy(zero_copy_only=False)).astype(np.int64) for part in fields))

    @property
    def least_epoch(self) -> int:
        """The least epoch; 0 without rows."""
        return int(self.epoch.min()) if len(self.epoch) else 0

    def take(self, rows: Any) -> Sequences:
        """Return those of some rows."""
        return Sequences(self.epoch[rows], self.file[rows], self.pos[rows], self.ordinal[rows])

    def below(self, others: Sequences) -> Any:
        """bool[n]: whether each is below its counterpart."""
        less, equal = np.zeros(len(self.epoch), np.bool_), np.ones(len(self.epoch), np.bool_)
        for name in ("epoch", "file", "pos", "ordinal"):
            mine, theirs = getattr(self, name), getattr(others, name)
            less |= equal & (mine < theirs)
            equal &= mine == theirs
        return less

    def below_bound(self, bound: tuple[int, int, int, int]) -> Any:
        """bool[n]: whether each is below the ``_seq`` ``bound``."""
        return self.below(Sequences(*(np.full(len(self.epoch), part, np.int64) for part in bound)))


@dataclass
class KeyLookup:
    """Rows of a version to delete, and keys to skip.

    :param skipped_keys: bool[keys]: keys whose row is not below the change.
    """

    skipped_keys: Any = field(default_factory=lambda: np.zeros(0, np.bool_))
    deleted_rows: dict[str, Positions | None] = field(default_factory=dict)
    """By file: all its deleted rows, earlier ones included; None: every row."""


class KeyedTable:
    """Planner of deletions in the table in ``folder``.

    :param key: the columns of its key.
    :param types: their types.
    :param indexes: cache of the data files' key indexes.
    :param copies: cache of their columns, if single rows are read.
    """

    def __init__(
        self,
        folder: str,
        key: Sequence[str],
        types: Sequence[pa.DataType],
        indexes: IndexCache,
        copies: ColumnCopies | None = None,
    ) -> None:
        self.folder, self.key, self.types, self.indexes, self.copies = folder, tuple(key), tuple(types), indexes, copies
        self._vectors: dict[str, tuple[Mapping[str, Any], Positions]] = {}
        self._known: set[str] = set()
        """Paths of files with an index."""

    def find(self, table: Snapshot, keys: Keys, sequences: Sequences) -> KeyLookup:
        """Find the rows that have these keys.

        :param keys: no key twice.
        :param sequences: of the changes, one for each key.
        """
        self._forget_others(table)
        lookup = KeyLookup(np.zeros(keys.count, np.bool_))
        for file in table.files.values():
            rows = self._rows(file, keys, sequences, lookup)
            if rows is not None:
                self.remove(file, rows, lookup)
        return lookup

    def find_older(self, table: Snapshot, bound: tuple[int, int, int, int], since: int = 0) -> KeyLookup:
        """Find the rows whose ``_seq`` is below ``bound``, but not of an epoch before ``since``."""

        def chosen(batch: pa.RecordBatch) -> Any:
            sequences = Sequences.of(batch.column(_SEQ))
            return sequences.below_bound(bound) & (sequences.epoch >= since)

        lookup = KeyLookup()
        for file in table.files.values():
            epochs = file.bounds((_SEQ, "epoch"), pa.int64())
            if epochs is not None and ((epochs[0], 0, 0, 0) >= bound or epochs[1] < since):  # no part is below 0
                continue
            if epochs is not None and since <= epochs[0] and epochs[1] < bound[0]:
                lookup.deleted_rows[file.path] = None
                continue
            self.remove(file, self._rows_with(file, [_SEQ], chosen), lookup)
        return lookup

    def locate(
        self, table: Snapshot, keys: Keys, is_needed: Callable[[DataFile], bool]
    ) -> Iterator[tuple[DataFile, Any, Any]]:
        """Yield ``(file, rows, key numbers)`` for each file with live rows that have one of these keys: int64[m] both,
        in the order of the rows.

        :param keys: no key twice.
        :param is_needed: files for which this is false are left out.
        """
        self._forget_others(table)
        for file in filter(is_needed, table.files.values()):
            key_range = self._candidates(file, keys)
            if key_range.start == key_range.stop:
                continue
            key_numbers, rows = self._index(file).find(keys, key_range)
            live = np.flatnonzero(~np.isin(rows, rows_of(self._vector(file))))
            live = live[np.argsort(rows[live], kind="stable")]
            if len(live):
                yield file, rows[live], key_numbers[live]

    def select(self, file: DataFile, columns: Sequence[str], chosen: Callable[[pa.RecordBatch], Any]) -> Any:
        """int64[m]: the live rows of a file that are chosen by their values in these columns.

        :param chosen: returns bool[n] for n rows.
        """
        rows = self._rows_with(file, columns, chosen)
        return rows[~np.isin(rows, rows_of(self._vector(file)))]

    def read(self, file: DataFile, rows: Any, schema: pa.Schema) -> pa.Table:
        """Read single rows of a file, deleted ones included: fast, if :attr:`copies` has these columns of it.

        :param rows: int64[n], ascending.
        :raises OSError: the file cannot be read.
        """
        if self.copies is not None:
            return self.copies.rows(self.folder, file, rows, schema)
        return pa.concat_tables([schema.empty_table(), *read_rows(self.folder, file, rows, schema)])

    def remove(self, file: DataFile, rows: Any, lookup: KeyLookup) -> None:
        """Record these rows of a file as deleted, too, unless all were deleted before."""
        before = lookup.deleted_rows.get(file.path, self._vector(file))
        if before is not None and (new := positions_of(rows) - before):
            every = before | new
            lookup.deleted_rows[file.path] = None if len(every) >= file.rows(self.folder) else every

    def _rows(self, file: DataFile, keys: Keys, sequences: Sequences, lookup: KeyLookup) -> Any:
        """int64[m]: the file's rows to delete, perhaps some already deleted; None: there are none."""
        key_range = self._candidates(file, keys)
        if key_range.start == key_range.stop:
            return None
        key_numbers, rows = self._index(file).find(keys, key_range)
        if not len(rows):
            return None
        epochs = file.bounds((_SEQ, "epoch"), pa.int64())
        if epochs is None or epochs[1] >= sequences.least_epoch:
            counts = ~np.isin(rows, rows_of(self._vector(file)))
            older = self._sequences(file, rows).below(sequences.take(key_numbers))
            lookup.skipped_keys[key_numbers[counts & ~older]] = True
            rows = rows[older]
        return rows

    def _candidates(self, file: DataFile, keys: Keys) -> slice:
        """Return the keys that may be in the file, by its bounds: a range of ``keys.order``."""
        bounds, leading = self._bounds(file), keys.leading
        if bounds is None:
            return slice(0, keys.count)
        if len(self.key) > 1:
            apart = leading is not None and (leading[1] < bounds[0] or bounds[1] < leading[0])
            return slice(0, 0 if apart else keys.count)
        start = np.searchsorted(keys.ascending, bounds[0], "left")
        end = np.searchsorted(keys.ascending, bounds[1], "right")
        return slice(int(start), max(int(start), int(end)))

    def _bounds(self, file: DataFile) -> tuple[int, int] | None:
        """Return bounds of a file's first key column, if they are known and all its values there are exact."""
        kind = self.types[0]
        bounds = file.bounds((self.key[0],), kind) if is_exact(kind) else None
        if bounds is None:
            return None
        scale = 10**kind.scale if pa.types.is_decimal(kind) else 1
        low, high = (exact_number(int(bound * scale), kind) for bound in bounds)
        return None if low is None or high is None else (low, high)

    def _vector(self, file: DataFile) -> Positions:
        """Return the deleted rows of a file."""
        if file.vector is None:
            return read_vector(self.folder, None)
        known = self._vectors.get(file.path)
        if known is None or known[0] != file.vector:
            known = (file.vector, read_vector(self.folder, file.vector))
            self._vectors[file.path] = known
        return known[1]

    def _index(self, file: DataFile) -> KeyIndex:
        self._known.add(file.path)
        return self.indexes.get(self.folder, file.path, self.key, lambda: self._keys(file))

    def _keys(self, file: DataFile) -> Iterator[Keys]:
        all_unsigned = self._bounds(file) is not None
        for batch in self._batches(file, self.key):
            columns = [as_column(batch.column(name), kind) for name, kind in zip(self.key, self.types, strict=True)]
            yield keys_of(columns, all_unsigned=all_unsigned)

    def _sequences(self, file: DataFile, rows: Any) -> Sequences:
        """Return ``_seq`` of some rows of a file: of these row numbers, one or more, in any order."""
        order = np.argsort(rows)
        with file.open(self.folder) as opened:
            parts = [whole(part.column(_SEQ)) for part in opened.rows(rows[order], [_SEQ])]
        return Sequences.of(pa.concat_arrays(parts)).take(np.argsort(order))

    def _rows_with(self, file: DataFile, columns: Sequence[str], chosen: Callable[[pa.RecordBatch], Any]) -> Any:
        """int64[m]: the rows of a file, deleted ones included, that are chosen as in :meth:`select`."""
        masks = [np.asarray(chosen(batch)) for batch in self._batches(file, columns)]
        return np.flatnonzero(np.concatenate(masks)) if masks else np.empty(0, np.int64)

    def _batches(self, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of all rows of a file, deleted ones included, in order."""
        with file.open(self.folder) as opened:
            yield from opened.batches(_BATCH_ROWS, columns)

    def actions(self, table: Snapshot, lookup: KeyLookup) -> list[dict[str, Any]]:
        """Return the actions that delete the rows; write the file of their vectors, if they need one.

        :raises OSError: it cannot be written.
        """
        vectors = VectorFile()
        actions: list[dict[str, Any]] = []
        for path, rows in lookup.deleted_rows.items():
            file = table.files[path]
            actions.append(file.removal(data_change=True))
            if rows is not None:
                actions.append(vectors.mark({**file.action, "dataChange": True}, file.rows(self.folder), rows))
        vectors.write(self.folder)
        return actions

    def _forget_others(self, table: Snapshot) -> None:
        """Drop cached data of files that are no longer part of the table."""
        for path in (self._known | self._vectors.keys()) - table.files.keys():
            self._known.discard(path)
            self._vectors.pop(path, None)
            self.indexes.forget(self.folder, path, self.key)
            if self.copies is not None:
                self.copies.forget(self.folder, path)
