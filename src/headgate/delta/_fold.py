"""Folding of small files into one: prepared in parallel with the writer, committed by it.

Each batch adds a file to a table, and deletes rows in others. A fold keeps the number of files small: it copies the
rows of the files of one size class into one new file, in the order of the table's clustering columns, then in key
order. So a row is copied once per class. If many rows of
a file are deleted, its live rows are copied into a new file, too.

**Prepared on one version, committed on a later one.** Rows of the sources that were deleted in between are deleted in
the new file, too, because :class:`Fold` knows where each row went. If a source was removed because all its rows were
deleted, all of them are deleted in the new file. If another program removed a source, and perhaps wrote its rows
elsewhere, the fold is discarded. The commit has ``dataChange`` false, so streams that read the table skip it.

**Bounded**: by the bytes and rows of the sources, which are in memory while a fold is prepared. Well compressed sources
may have too many bytes in memory: then some are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta._commit import CommitPlan, commit
from headgate.delta._definition import unsupported_requirements
from headgate.delta._files import discard_files
from headgate.delta._log import DataFile, Snapshot, TableLog
from headgate.delta._parquet import as_rows, write_files
from headgate.delta._statistics import INDEXED_LEAVES
from headgate.delta.vectors import VectorFile, deleted_rows, positions_of, vectors_of
from headgate.errors import CommitConflictError
from headgate.names import with_positional_names

__all__ = ["Fold", "FoldLayout", "choose_files", "prepare_fold"]

_FILES: Final = 8
"""Number of files of a class that are folded. A reader takes 0.5 ms per file of any size: a table of 500,000 rows is
read in 50 ms as one file, in 63 ms as 26. The cost of 8 is negligible."""
_CLASSES: Final = (1 << 20, 16 << 20, 128 << 20)
"""Upper limits in bytes of the first, second and third class. Larger files are not folded."""
_MOST_BYTES: Final = 128 << 20
_MOST_ROWS: Final = 4_000_000
_MOST_DECODED: Final = 1 << 29
"""Bytes of several sources in memory. A fold takes twice as much."""
_MOST_OF_ONE: Final = (1 << 31) - 1
"""Bytes of a single one. Arrow takes rows only from columns of less than 2 GiB."""
_DELETED_SHARE: Final = 0.1
"""A reader takes about as long to skip a deleted row as to read a live one. At this share 9 rows are copied for each
deletion, at 1 µs each."""
_BATCH_ROWS: Final = 1 << 16
"""Rows that are sorted at a time. The writer makes row groups of 64 MB of them; a reader of a clustered file skips
whole groups."""
_NONE: Final = 0xFFFFFFFF
"""The position of a row that was already deleted."""


@dataclass(frozen=True)
class FoldLayout:
    """Layout of a folded file.

    :param schema: the table's; columns that a source lacks are null.
    :param codec: Spark's name of the compression.
    :param key: the columns to sort by; if there are none, the rows are in the order in which the files were written.
    :param divides: a column; files with a value of it in each row are not folded together with others.
    :param cluster_by: the table's clustering columns, to sort by before the key. Readers skip the parts of the file
        that a condition on the first of them excludes.
    :param measured: columns that have statistics at any position.
    :param leaves: so many leaf columns, from the first, have statistics, too.
    """

    schema: pa.Schema
    codec: str
    key: tuple[str, ...]
    divides: str | None = None
    cluster_by: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    leaves: int = INDEXED_LEAVES

    @property
    def order(self) -> tuple[str, ...]:
        """The columns to sort by."""
        return tuple(dict.fromkeys((*self.cluster_by, *self.key)))


def choose_files(table: Snapshot, least: int | None = None, divides: str | None = None) -> list[DataFile]:
    """Return the files to fold next; empty if none. Files that another program has clustered are folded only because of
    deleted rows: together with others they would have a wider range of values.

    :param least: number of files of a class that is enough; by default 8.
    :param divides: as in :class:`FoldLayout`.
    """
    classes: dict[tuple[bool, int], list[DataFile]] = {}
    for file in table.files.values():
        if file.size >= _CLASSES[-1] or file.statistics.rows is None or file.statistics.rows > _MOST_ROWS:
            continue
        if file.size >= _CLASSES[0] and file.deleted > _DELETED_SHARE * file.statistics.rows:
            return [file]
        if file.is_clustered:
            continue
        live = file.size * (1 - file.deleted / max(1, file.statistics.rows))
        size_class = next(number for number, limit in enumerate(_CLASSES) if live < limit)
        classes.setdefault((divides is not None and file.is_whole(divides), size_class), []).append(file)
    for _, files in sorted(classes.items()):
        chosen = _bounded(files) if len(files) >= (least or _FILES) else []
        if chosen:
            return chosen
    return []


def _bounded(files: Sequence[DataFile]) -> list[DataFile]:
    """Return as many of the files as one fold may take, without those that do not fit; none if that is only one."""
    chosen: list[DataFile] = []
    size = rows = 0
    for file in files:
        with_file = size + file.size, rows + (file.statistics.rows or 0)
        if with_file[0] <= _MOST_BYTES and with_file[1] <= _MOST_ROWS:
            size, rows = with_file
            chosen.append(file)
    return chosen if len(chosen) > 1 else []


@dataclass(frozen=True)
class Fold:
    """A prepared fold: rows that were copied into a new file."""

    folder: str
    sources: tuple[DataFile, ...]
    """The source files, as they were read."""
    new_positions: Mapping[str, Any]
    """uint32[rows] by source path: each row's position in the new file."""
    added: Mapping[str, Any] | None
    """The ``add`` of the new file; None: the sources had no live row."""
    leaves: int = INDEXED_LEAVES
    """Number of leaf columns with statistics in the new file."""

    def actions(self, table: Snapshot, emptied: Collection[str]) -> list[dict[str, Any]] | None:
        """Return the actions that commit the fold on a version; None if it is invalid.

        :param emptied: files that were removed because all their rows were deleted.
        :raises OSError: the new file's deletion vector cannot be written.
        """
        if unsupported_requirements(table) or table.indexed_leaves > self.leaves:
            return None
        actions = []
        marked = [np.empty(0, np.uint32)]
        for source in self.sources:
            file, new_positions = table.files.get(source.path), self.new_positions[source.path]
            if file is None:
                if source.path not in emptied:
                    return None
                marked.append(new_positions[new_positions != _NONE])
                continue
            actions.append(file.removal(data_change=False))
            if file.vector != source.vector:
                gone = new_positions[deleted_rows(self.folder, file.vector)]
                if np.count_nonzero(gone == _NONE) < source.deleted:
                    return None  # another program has restored an older version, in which more rows are live
                marked.append(gone[gone != _NONE])
        if self.added is not None:
            deleted, rows = positions_of(np.concatenate(marked)), json.loads(self.added["stats"])["numRecords"]
            if len(deleted) == rows:
                return actions
            vectors = VectorFile()
            actions.append(vectors.mark(self.added, rows, deleted) if deleted else {"add": self.added})
            vectors.write(self.folder)
        return actions

    def commit(
        self, log: TableLog, read: Callable[[], Snapshot], emptied: Collection[str] = (), **parameters: str
    ) -> bool:
        """Commit the fold. Return whether it was committed; False: it is invalid, or another program commits at the
        same time, and its file is removed.

        :param log: of the table.
        :param read: returns the version to commit it on.
        :param emptied: as in :meth:`actions`.
        :param parameters: as in :meth:`plan`.
        :raises CommitUnknownError: it is not known whether it was committed.
        :raises OSError: as :meth:`actions`, or the log cannot be read or written; StorageError likewise. It was not
            committed, and its file is removed.
        """
        try:
            done = commit(log, lambda: self.plan(read(), emptied, **parameters), tries=1, staged=self.written)
        except CommitConflictError:
            return False
        return done is not None

    def plan(self, table: Snapshot, emptied: Collection[str] = (), **parameters: str) -> CommitPlan | None:
        """Plan the commit of the fold on a version; None if it is invalid there. Arguments as in :meth:`actions`.

        :param parameters: of the operation in the table's history.
        """
        actions = self.actions(table, emptied)
        if not actions:
            return None
        about = {"predicate": "[]", **parameters}
        return CommitPlan(table, actions, "OPTIMIZE", about, written=vectors_of(actions))

    @property
    def written(self) -> tuple[str, ...]:
        """The new file, by name, if there is one."""
        return () if self.added is None else (str(self.added["path"]),)

    def discard(self) -> None:
        """Remove the new file of a fold that no commit was tried with."""
        discard_files(self.folder, self.written)


def prepare_fold(folder: str, sources: Sequence[DataFile], layout: FoldLayout) -> Fold | None:
    """Write the live rows of some files, or of those among them that fit, into a new one; None if they do not fit.

    :raises OSError: a file cannot be read or written.
    """
    schema, sorted_by = layout.schema, layout.order
    taken, tables, kept, counts = [], [], [], []
    decoded = 0
    for source in sorted(sources, key=lambda file: int(file.action.get("modificationTime") or 0)):
        with source.open(folder) as file:
            table = as_rows(file.read(schema.names), schema)
        if decoded + table.nbytes > (_MOST_DECODED if len(sources) > 1 else _MOST_OF_ONE):
            continue
        decoded += table.nbytes
        rows = np.setdiff1d(np.arange(table.num_rows), deleted_rows(folder, source.vector), assume_unique=True)
        taken.append(source)
        tables.append(table.take(pa.array(rows)))
        kept.append(rows)
        counts.append(table.num_rows)
    if len(taken) < min(2, len(sources)):
        return None
    whole = pa.concat_tables(tables).combine_chunks()
    del tables
    keys = with_positional_names(whole.select(sorted_by))
    ascending = [(name, "ascending") for name in keys.column_names]
    order = pc.sort_indices(keys, ascending) if ascending else pa.array(np.arange(len(whole)))
    batches = chain.from_iterable(
        whole.take(order.slice(first, _BATCH_ROWS)).to_batches() for first in range(0, len(order), _BATCH_ROWS)
    )
    written = write_files(batches, folder, schema, layout.codec, layout.measured, taken[0].names, layout.leaves)
    added = [json.loads(text)["add"] for text in written]
    if len(added) > 1:
        discard_files(folder, [one["path"] for one in added])
        return None
    new_index = np.empty(len(order), np.uint32)
    new_index[np.asarray(order)] = np.arange(len(order), dtype=np.uint32)
    new_positions, first = {}, 0
    for source, rows, count in zip(taken, kept, counts, strict=True):
        positions = np.full(count, _NONE, np.uint32)
        positions[rows] = new_index[first : first + len(rows)]
        new_positions[source.path] = positions
        first += len(rows)
    add = {**added[0], "dataChange": False} if added else None
    return Fold(folder, tuple(taken), new_positions, add, layout.leaves)
