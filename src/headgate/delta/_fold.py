"""Small files become one, beside the writer: prepared while it goes on, committed by it.

Each batch adds a file to a table, and marks rows in others. A fold keeps the number of files small: it copies the rows
of the files of one size class into one new file, in the order of the key. So a row is copied once for each class. If
many rows of a file are deleted, the others are copied into a new file, too.

**Prepared on one version, committed on a later one.** Meanwhile rows of the sources may have been marked: they are
marked in the new file, too, because :class:`Fold` knows where each row went. A source that is gone because all its rows
were marked is one of which every row is marked; one that another program has taken out, and perhaps written elsewhere,
makes the fold void. The commit says that no data has changed (``dataChange`` false), so streams that read the table
pass over it.

**Bounded**: by the bytes and rows of the sources, which are in memory while a fold is prepared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta._log import DataFile, Snapshot
from headgate.delta._parquet import as_column, discard_files, write_files
from headgate.delta._statistics import loosened
from headgate.delta._vectors import Positions, VectorFile, positions_of, read_vector, rows_of

__all__ = ["Fold", "choose_files", "prepare_fold"]

_FILES: Final = 8
"""So many files of a class become one. A reader takes 0.5 ms for each file, whatever it holds: a table of 500,000 rows
is read in 50 ms as one file, in 63 ms as 26; 8 are hardly seen."""
_CLASSES: Final = (1 << 20, 16 << 20, 128 << 20)
"""Bytes below which a file is of the first class, the second, the third; larger ones are left alone."""
_MOST_BYTES: Final = 128 << 20
_MOST_ROWS: Final = 4_000_000
_DELETED_SHARE: Final = 0.1
"""A reader passes over deleted rows in about the time in which it reads others. At this share a row is copied nine
times for each deletion, at 1 µs each time."""
_NONE: Final = 0xFFFFFFFF
"""The place of a row that was deleted before."""


def choose_files(table: Snapshot, least: int | None = None) -> list[DataFile]:
    """What should be folded next; empty: nothing.

    :param least: so many files of a class are enough; by default 8.
    """
    classes: list[list[DataFile]] = [[] for _ in _CLASSES]
    for file in table.files.values():
        if file.size >= _CLASSES[-1] or file.statistics.rows is None or file.statistics.rows > _MOST_ROWS:
            continue
        if file.size >= _CLASSES[0] and file.deleted > _DELETED_SHARE * file.statistics.rows:
            return [file]
        live = file.size * (1 - file.deleted / max(1, file.statistics.rows))
        classes[next(number for number, limit in enumerate(_CLASSES) if live < limit)].append(file)
    for files in classes:
        if len(files) >= (least or _FILES):
            return _bounded(files)
    return []


def _bounded(files: Sequence[DataFile]) -> list[DataFile]:
    """As many of them as one fold may take; none if that is only one."""
    chosen: list[DataFile] = []
    size = rows = 0
    for file in files:
        size, rows = size + file.size, rows + (file.statistics.rows or 0)
        if size > _MOST_BYTES or rows > _MOST_ROWS:
            break
        chosen.append(file)
    return chosen if len(chosen) > 1 else []


@dataclass(frozen=True)
class Fold:
    """Rows that were copied into a new file."""

    folder: str
    sources: tuple[DataFile, ...]
    """As they were read."""
    places: Mapping[str, Any]
    """uint32[rows] by source: the row of the new file that each of its rows has become."""
    added: Mapping[str, Any] | None
    """The ``add`` of the new file; None: no row was left."""

    def actions(self, table: Snapshot, emptied: Collection[str]) -> list[dict[str, Any]] | None:
        """What commits it on a version; None: it is void.

        :param emptied: files that are gone because all their rows were deleted.
        :raises OSError: the new file's deletion vector cannot be written.
        """
        now = time.time_ns() // 1_000_000
        actions = []
        marked = [np.empty(0, np.uint32)]
        for source in self.sources:
            file, places = table.files.get(source.path), self.places[source.path]
            if file is None:
                if source.path not in emptied:
                    return None
                marked.append(places[places != _NONE])
                continue
            actions.append(file.removal(now, data_change=False))
            if file.vector != source.vector:
                gone = places[rows_of(self._vector(file))]
                if np.count_nonzero(gone == _NONE) < source.deleted:
                    return None  # another program has restored an older version, in which more rows count
                marked.append(gone[gone != _NONE])
        if self.added is not None:
            add, deleted = dict(self.added), positions_of(np.concatenate(marked))
            rows = json.loads(add["stats"])["numRecords"]
            if len(deleted) == rows:
                self.discard()
                return actions
            if deleted:
                vectors = VectorFile()
                add |= {"deletionVector": vectors.add(deleted), "stats": loosened(add["stats"], rows)}
                vectors.write(self.folder)
            actions.append({"add": add})
        return actions

    def _vector(self, file: DataFile) -> Positions:
        return positions_of(np.empty(0)) if file.vector is None else read_vector(self.folder, file.vector)

    def discard(self) -> None:
        """Remove the new file, which no commit names."""
        if self.added is not None:
            discard_files(self.folder, [self.added["path"]])


def prepare_fold(
    folder: str, sources: Sequence[DataFile], schema: pa.Schema, codec: str, key: Sequence[str]
) -> Fold | None:
    """Write the rows of some files into a new one; None: they do not fit into one.

    :param schema: the table's; columns that a file lacks are null.
    :param key: the columns that the rows are ordered by, which have statistics wherever they stand; if there are none,
        the rows are in the order in which the files were written.
    :raises OSError: a file cannot be read or written.
    """
    tables, kept, counts = [], [], []
    sources = sorted(sources, key=lambda file: int(file.action.get("modificationTime") or 0))
    for source in sources:
        table = _read(folder, source, schema)
        rows = np.arange(table.num_rows)
        if source.vector is not None:
            rows = np.setdiff1d(rows, rows_of(read_vector(folder, source.vector)), assume_unique=True)
        tables.append(table.take(pa.array(rows)))
        kept.append(rows)
        counts.append(table.num_rows)
    whole = pa.concat_tables(tables).combine_chunks()
    order = pc.sort_indices(whole, [(name, "ascending") for name in key]) if key else np.arange(len(whole))
    batches = whole.take(pa.array(order)).to_batches()
    written = write_files(batches, folder, schema, codec, (*key, "_seq"), sources[0].names)
    added = [json.loads(text)["add"] for text in written]
    if len(added) > 1:
        discard_files(folder, [one["path"] for one in added])
        return None
    became = np.empty(len(order), np.uint32)
    became[np.asarray(order)] = np.arange(len(order), dtype=np.uint32)
    places, first = {}, 0
    for source, rows, count in zip(sources, kept, counts, strict=True):
        place = np.full(count, _NONE, np.uint32)
        place[rows] = became[first : first + len(rows)]
        places[source.path] = place
        first += len(rows)
    return Fold(folder, tuple(sources), places, {**added[0], "dataChange": False} if added else None)


def _read(folder: str, source: DataFile, schema: pa.Schema) -> pa.Table:
    """All rows of a file, deleted ones included, with the table's columns."""
    with source.open(folder) as file:
        table = file.read(name for name in schema.names if name in file.columns)
    columns = [
        as_column(table[one.name], one.type) if one.name in table.column_names else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, schema=schema)
