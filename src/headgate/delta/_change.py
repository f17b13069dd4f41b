"""Which rows of a table have given keys, and the actions of a commit by which they no longer count.

A data file never changes. A change is planned on one version: each file whose statistics allow it is asked through its
key index which of its rows have one of the keys; those that the file's deletion vector names already are left out, and
the rest is joined to it. A file that keeps no row is removed; else it is removed and added again with its new vector.

**The guard.** A row stays, and the change of its key is left out, unless the row's ``_seq`` is below the change's. That
is to be looked at only in files that may hold rows of the changes' least epoch or a later one: statistics exclude
nearly all, because all changes of a batch have the batch's epoch. There are such files after a crash between a commit
and the ledger, and where rows of this very batch were appended before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.delta._files import files_of
from headgate.delta._index import IndexCache, KeyIndex
from headgate.delta._keys import Keys, exact_number, is_exact, keys_of
from headgate.delta._log import DataFile, Snapshot
from headgate.delta._statistics import loosened
from headgate.delta._vectors import Positions, VectorFile, positions_of, read_vector, rows_of

__all__ = ["Found", "KeyedTable", "Sequences"]

_SEQ: Final = "_seq"
_BATCH_ROWS: Final = 1 << 20


@dataclass(frozen=True)
class Sequences:
    """``_seq`` of some rows, column by column: int64[n] each."""

    epoch: Any
    file: Any
    pos: Any
    ordinal: Any

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Sequences:
        """Out of a column of structs."""
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        return cls(*(np.asarray(part.to_numpy(zero_copy_only=False)).astype(np.int64) for part in array.flatten()))

    @property
    def least_epoch(self) -> int:
        """The least epoch; 0 without rows."""
        return int(self.epoch.min()) if len(self.epoch) else 0

    def take(self, rows: Any) -> Sequences:
        """Those of some rows."""
        return Sequences(self.epoch[rows], self.file[rows], self.pos[rows], self.ordinal[rows])

    def below(self, others: Sequences) -> Any:
        """bool[n]: which are below their counterparts."""
        less, equal = np.zeros(len(self.epoch), np.bool_), np.ones(len(self.epoch), np.bool_)
        for name in ("epoch", "file", "pos", "ordinal"):
            mine, theirs = getattr(self, name), getattr(others, name)
            less |= equal & (mine < theirs)
            equal &= mine == theirs
        return less


@dataclass
class Found:
    """What a version has of some keys.

    :param spared: bool[keys]: those whose row is not below the change.
    """

    spared: Any
    removed: dict[str, Positions | None] = field(default_factory=dict)
    """By file: its rows that count no longer, those of before included; None: all of them."""


class KeyedTable:
    """Plans changes of the table in ``folder``.

    :param key: the columns of its key.
    :param types: and their types.
    :param indexes: where the indexes of data files are kept.
    """

    def __init__(self, folder: str, key: Sequence[str], types: Sequence[pa.DataType], indexes: IndexCache) -> None:
        self.folder, self.key, self.types, self.indexes = folder, tuple(key), tuple(types), indexes
        self._vectors: dict[str, tuple[Mapping[str, Any], Positions]] = {}
        self._known: set[str] = set()
        """Files with an index."""

    def find(self, table: Snapshot, keys: Keys, sequences: Sequences) -> Found:
        """The rows that have these keys.

        :param keys: no key twice.
        :param sequences: of the changes, one for each key.
        """
        self._forget_others(table)
        found = Found(np.zeros(keys.count, np.bool_))
        for file in table.files.values():
            rows = self._rows(file, keys, sequences, found)
            if rows is not None:
                self._remove(file, rows, found)
        return found

    def older(self, table: Snapshot, bound: tuple[int, int, int, int]) -> Found:
        """The rows whose ``_seq`` is below ``bound``."""
        found = Found(np.zeros(0, np.bool_))
        for file in table.files.values():
            epochs = file.bounds((_SEQ, "epoch"), pa.int64())
            if epochs is not None and (epochs[0], 0, 0, 0) >= bound:  # no part of a place is below 0
                continue
            if epochs is not None and epochs[1] < bound[0]:
                found.removed[file.path] = None
                continue
            sequences = self._sequences(file)
            count = len(sequences.epoch)
            limit = Sequences(*(np.full(count, part, np.int64) for part in bound))
            self._remove(file, np.flatnonzero(sequences.below(limit)), found)
        return found

    def _remove(self, file: DataFile, rows: Any, found: Found) -> None:
        """Let these rows of a file go, if they are not gone."""
        before = self._vector(file)
        new = positions_of(rows) - before
        if new:
            every = before | new
            found.removed[file.path] = None if len(every) >= self._count(file) else every

    def _rows(self, file: DataFile, keys: Keys, sequences: Sequences, found: Found) -> Any:
        """int64[m]: the file's rows that go, perhaps some that are gone; None: there are none."""
        some = self._candidates(file, keys)
        if some.start == some.stop:
            return None
        asked, rows = self._index(file).find(keys, some)
        if not len(rows):
            return None
        epochs = file.bounds((_SEQ, "epoch"), pa.int64())
        if epochs is None or epochs[1] >= sequences.least_epoch:
            counts = ~np.isin(rows, rows_of(self._vector(file)))
            older = self._sequences(file).take(rows).below(sequences.take(asked))
            found.spared[asked[counts & ~older]] = True
            rows = rows[older]
        return rows

    def _candidates(self, file: DataFile, keys: Keys) -> slice:
        """The keys that the file's bounds allow, by their places in ``keys.order``."""
        kind = self.types[0]
        bounds = file.bounds((self.key[0],), kind) if len(self.key) == 1 and is_exact(kind) else None
        if bounds is None:
            return slice(0, keys.count)
        scale = 10**kind.scale if pa.types.is_decimal(kind) else 1
        low, high = (exact_number(int(bound * scale), kind) for bound in bounds)
        start, end = (np.searchsorted(keys.ascending, low, "left"), np.searchsorted(keys.ascending, high, "right"))
        return slice(int(start), max(int(start), int(end)))

    def _vector(self, file: DataFile) -> Positions:
        """The rows of a file that do not count."""
        if file.vector is None:
            return positions_of(np.empty(0, np.uint32))
        known = self._vectors.get(file.path)
        if known is None or known[0] != file.vector:
            known = (file.vector, read_vector(self.folder, file.vector))
            self._vectors[file.path] = known
        return known[1]

    def _count(self, file: DataFile) -> int:
        """How many rows stand in a file, deleted ones included."""
        rows = file.statistics.rows
        if rows is not None:
            return rows
        with files_of(self.folder).open_parquet(file.name) as opened:
            return int(opened.metadata.num_rows)

    def _index(self, file: DataFile) -> KeyIndex:
        self._known.add(file.path)
        return self.indexes.get(self.folder, file.path, self.key, lambda: self._keys(file))

    def _keys(self, file: DataFile) -> Iterator[Keys]:
        for batch in self._batches(file, self.key):
            yield keys_of([_as(batch.column(name), kind) for name, kind in zip(self.key, self.types, strict=True)])

    def _sequences(self, file: DataFile) -> Sequences:
        return Sequences.of(pa.chunked_array([batch.column(_SEQ) for batch in self._batches(file, [_SEQ])]))

    def _batches(self, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of all rows of a file, deleted ones included, in their order."""
        with file.open(self.folder) as opened:
            yield from opened.batches(_BATCH_ROWS, columns)

    def actions(self, table: Snapshot, found: Found) -> list[dict[str, Any]]:
        """The actions that take the rows out; writes the file of their vectors, if they need one.

        :raises OSError: it cannot be written.
        """
        now = time.time_ns() // 1_000_000
        vectors = VectorFile()
        actions: list[dict[str, Any]] = []
        for path, rows in found.removed.items():
            file = table.files[path]
            actions.append(file.removal(now, data_change=True))
            if rows is None:
                continue
            stats = loosened(file.action.get("stats"), self._count(file))
            add = {**file.action, "deletionVector": vectors.add(rows), "dataChange": True, "stats": stats}
            actions.append({"add": add})
        vectors.write(self.folder)
        return actions

    def _forget_others(self, table: Snapshot) -> None:
        """What is known of files that are no longer part of the table."""
        for path in (self._known | self._vectors.keys()) - table.files.keys():
            self._known.discard(path)
            self._vectors.pop(path, None)
            self.indexes.forget(self.folder, path, self.key)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A key column of a file in the table's type: who wrote it may have used another unit or width."""
    return column if column.type.equals(kind) else column.cast(kind)
