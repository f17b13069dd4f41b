"""Rows that change without an image of theirs, because of a TRUNCATE or a reading: one commit writes them again.

Such a change names the epochs of its rows. The rows are found by these, deleted in their files by deletion vectors, and
written to new files with their new values. The commit makes the version after the one in which they were found.

**Replay.** A marked row is of the change's own epoch, and an ended version is no longer open. So a replay chooses
neither again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import Seq
from headgate.delta import DataFile, KeyedTable, KeyLookup, Snapshot, discard_files, read_rows, write_files
from headgate.lake import (
    DELETED,
    END_GTID,
    END_SEQ,
    IS_CURRENT,
    SEEN,
    VALID_FROM,
    VALID_TO,
    CommitBase,
    Form,
    may_have_open,
    with_columns,
)

__all__ = ["Ending", "Marking", "RowChange", "changed_rows", "find_rows", "write_rows"]


@dataclass(frozen=True)
class Marking:
    """A change that marks rows of some epochs as deleted.

    :param first: the first of these epochs.
    :param end: the first epoch after them.
    :param seq: the change's ``_seq``; its GTID and time are not known.
    """

    first: int
    end: int
    seq: Seq
    columns: ClassVar[tuple[str, ...]] = (DELETED, "_seq")
    """Columns that :meth:`chosen` needs."""

    @property
    def condition(self) -> str:
        """The condition in SQL."""
        return f"{Form.MARKED.condition} AND _seq.epoch >= {self.first} AND _seq.epoch < {self.end}"

    def touches(self, file: DataFile) -> bool:
        """Return whether a file may have such rows."""
        return _meets(file.bounds(("_seq", "epoch"), pa.int64()), self.first, self.end)

    def chosen(self, rows: pa.RecordBatch) -> Any:
        """bool[n]: which of these rows are marked."""
        epochs = pc.struct_field(rows["_seq"], "epoch")
        in_range = pc.and_(pc.greater_equal(epochs, self.first), pc.less(epochs, self.end))
        return _mask(pc.and_(pc.invert(rows[DELETED]), in_range).fill_null(False))

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the rows, marked."""
        nulls = {name: pa.nulls(len(rows), rows.schema.field(name).type) for name in ("_gtid", "_ts")}
        seq = _repeated(self.seq, rows.schema.field("_seq").type, len(rows))
        return with_columns(rows, {DELETED: pa.repeat(pa.scalar(True), len(rows)), "_seq": seq, **nulls})


@dataclass(frozen=True)
class Ending:
    """A change that ends the open versions of a history that were last seen in some epochs.

    :param first: the first of these epochs.
    :param end: the first epoch after them.
    :param seq: the change's ``_seq``.
    :param gtid: its GTID, if known.
    :param at_us: its time, µs since 1970 UTC.
    """

    first: int
    end: int
    seq: Seq
    gtid: str | None
    at_us: int
    columns: ClassVar[tuple[str, ...]] = (IS_CURRENT, SEEN)

    @property
    def condition(self) -> str:
        """The condition in SQL."""
        return f"{SEEN} >= {self.first} AND {SEEN} < {self.end}"

    def touches(self, file: DataFile) -> bool:
        """Return whether a file may have such versions."""
        return may_have_open(file) and _meets(file.bounds((SEEN,), pa.int64()), self.first, self.end)

    def chosen(self, rows: pa.RecordBatch) -> Any:
        """bool[n]: which of these rows are ended."""
        seen = np.asarray(rows[SEEN].to_numpy(zero_copy_only=False))
        return _mask(rows[IS_CURRENT]) & (seen >= self.first) & (seen < self.end)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the rows, ended: not before their beginnings."""
        begun = np.asarray(rows[VALID_FROM].cast(pa.int64()).combine_chunks())
        ends = pa.array(np.maximum(begun, self.at_us), pa.int64())
        return with_columns(
            rows,
            {
                VALID_TO: ends.cast(rows.schema.field(VALID_TO).type),
                IS_CURRENT: pa.repeat(pa.scalar(False), len(rows)),
                END_SEQ: _repeated(self.seq, rows.schema.field(END_SEQ).type, len(rows)),
                END_GTID: pa.repeat(pa.scalar(self.gtid, pa.string()), len(rows)),
            },
        )


RowChange: TypeAlias = Marking | Ending
"""A change of a table's rows that were last seen in some epochs."""


def _meets(bounds: tuple[int, int] | None, first: int, end: int) -> bool:
    return bounds is None or (bounds[0] < end and bounds[1] >= first)


def _mask(array: pa.Array) -> Any:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)


def _repeated(seq: Seq, kind: pa.StructType, count: int) -> pa.Array:
    """Return a ``_seq`` so many times."""
    parts = [pa.repeat(pa.scalar(part, field.type), count) for part, field in zip(seq, kind, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(kind))


def find_rows(table: Snapshot, keyed: KeyedTable, change: RowChange) -> tuple[dict[str, Any], KeyLookup]:
    """Find the rows that change: int64[n] by file, the rows in it; and how to delete them.

    :raises OSError: a file cannot be read.
    """
    rows_by_file, lookup = {}, KeyLookup()
    for file in filter(change.touches, table.files.values()):
        rows = keyed.select(file, change.columns, change.chosen)
        if len(rows):
            rows_by_file[file.path] = rows
            keyed.remove(file, rows, lookup)
    return rows_by_file, lookup


def changed_rows(
    table: Snapshot, folder: str, rows_by_file: Mapping[str, Any], change: RowChange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that :func:`find_rows` has found, changed."""
    for path, rows in rows_by_file.items():
        for part in read_rows(folder, table.files[path], rows, schema):
            yield from change.apply(part).to_batches()


def write_rows(groups: Iterable[Iterable[pa.RecordBatch]], base: CommitBase, folder: str) -> list[dict[str, Any]]:
    """Write rows to new files. Return the ``add`` actions.

    :param groups: rows whose files are kept apart, in all columns of the table.
    :raises OSError: a file cannot be written. All files are removed.
    """
    actions: list[dict[str, Any]] = []
    try:
        for batches in groups:
            written = write_files(batches, folder, base.schema, base.codec, base.measured, base.names, base.leaves)
            actions += [json.loads(action) for action in written]
    except BaseException:
        discard_files(folder, [action["add"]["path"] for action in actions])
        raise
    return actions
