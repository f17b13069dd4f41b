"""The window: a chunk as MySQL showed it, rewound to E, or cut down to the rows that nothing changed.

Let E be the GTID set at which the chunk shall be exact, R ⊇ E the read view of the SELECT, and W the log from E up to a
position noted after the SELECT. Everything in R that is not in E is in W, because a transaction reaches the log before
it becomes visible. W may reach beyond R. Which of its transactions R has seen is unknown, and irrelevant:

*Claim.* For every key k, the row of k at E is
  (a) the row that the SELECT returned, if W does not touch k: nothing changed k between E and R;
  (b) the before-image, if the first touch of k in W is an update or delete: nothing had changed k between E and that
      touch, so the image is the row at E, whichever state R saw;
  (c) absent, if the first touch is an insert or the after-image of an update that moved another row to k: k was free.

An update that changes the key touches the old key (before-image, b) and then the new one (after-image, c). Rows here
are *images*, one touch each, so an update is always the two images ``b`` and ``u``. The touch of k by ``b`` comes
first; a ``u`` is a first touch only if the row came from another key.

*Partial images* (``binlog_row_image`` MINIMAL or NOBLOB) break (b): the first image of a key does not hold the whole
row. It proves that the row existed, and its columns are right; the others are unknown. A chunk with such a key is
refused, unless the reader asks for partial rows (``report_absent``), which name their unknown columns. (a) and (c) need
no image.

So a chunk for the range (lo, hi] is: the SELECT's rows whose key W does not touch, plus the images (b) whose key is in
the range. For text, the collation decides that. A key that the SELECT returned is in the range for that reason alone;
for other keys ``in_range`` decides.

*Dropping* is DBLog's rule ("DBLog: A Watermark Based Change-Data-Capture Framework"): only (a) remains. The rows left
out changed after E, and a batch after E brings each of their changes, whole. So the table is exact as soon as W has
been applied, and the chunk holds no row that did not exist at E. No key is compared with the range. But an update whose
image leaves columns out would find no row, so a row that would be dropped for such an update is refused.

This module does not access the server: batches in, batches out. The state is one image per touched key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import TableDef
from headgate.errors import SchemaChangedError, SnapshotRefusedError, UnsupportedError
from headgate.replication import ABSENT_FIELD, PARTIAL_REMEDY
from headgate.snapshot._codes import key_codes

__all__ = ["InRange", "Mask", "Window"]

Mask: TypeAlias = npt.NDArray[np.bool_]
InRange: TypeAlias = Callable[[pa.Table], Mask]
"""Key columns of n rows → bool[n]: which keys are in the chunk's range."""

_OP, _ABSENT, _PARTIAL_UPDATE, _FILE, _POS = ("\0op", "\0absent", "\0partial_update", "\0file", "\0pos")
"""Names that no column of MySQL can have."""
_NOTES = (
    pa.field(_OP, pa.string()),
    pa.field(_ABSENT, pa.string()),
    pa.field(_PARTIAL_UPDATE, pa.bool_()),
    pa.field(_FILE, pa.int32()),
    pa.field(_POS, pa.int64()),
)
"""What is stored of an image next to its columns. ``partial_update``: it belongs to an update whose after-image leaves
columns out, so it applies only to an existing row."""
_COMPACT_ROWS = 1 << 16
"""Images to gather before first touches are selected again: bounds the state at a constant cost per image."""


class Window:
    """First touches of one table's keys in the log since E.

    :param table: the definition under which the chunk's rows are read; must have a key.
    :param schema: the table's columns as Arrow fields, those of the chunk's rows.
    """

    def __init__(self, table: TableDef, schema: pa.Schema) -> None:
        if not table.key:
            raise SnapshotRefusedError("a table without a key cannot be rewound", table=table.full_name)
        self._table = table
        self._keys = [table.columns[index].name for index in table.key]
        self._schema = pa.schema([*_NOTES, *(field.remove_metadata() for field in schema)])
        self._first = self._schema.empty_table()
        self._later: list[pa.Table] = []
        self._later_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next images of the table, in log order: ``_op`` (c, b, u, d), optionally ``_seq`` and ``_absent``,
        and the table's columns; others are ignored.

        :raises SchemaChangedError: the images have other columns than the chunk's rows.
        """
        try:
            images = _with_notes(batch).select(self._schema.names)
        except KeyError:
            raise self._changed() from None
        if images.schema.types != self._schema.types:
            raise self._changed()
        self._check_keys(images)
        self._later.append(pa.Table.from_arrays(images.columns, schema=self._schema))
        self._later_rows += batch.num_rows
        if self._later_rows > max(_COMPACT_ROWS, self._first.num_rows):
            self._compact()

    def rewind(
        self,
        rows: pa.Table,
        in_range: InRange,
        *,
        range_column: str | None = None,
        fulfils: InRange | None = None,
        report_absent: bool = False,
    ) -> pa.Table:
        """Return the chunk as of E.

        :param rows: the SELECT's rows of the chunk's range: the table's columns. Keys are unique.
        :param in_range: called only for keys that the SELECT did not return.
        :param range_column: the range is one of this column, not of the key. Then a key that the SELECT returned may
            have been in another range at E, so ``in_range`` is called for every before-image.
        :param fulfils: rows → bool[n]: which rows fulfil the chunk's filter. Called for every image that is restored,
            because the row at E may fulfil it where the SELECT's row does not, and vice versa.
        :param report_absent: also return rows that are known in part, and append a column ``_absent``: the names of a
            row's unknown columns (null there), as a JSON list; null for a whole row. Not with ``range_column`` or
            ``fulfils``, which need values.
        :raises UnsupportedError: a row cannot be rewound, because its first image leaves columns out.
        """
        self._check_keys(rows)
        self._compact()
        first = self._first
        if report_absent:
            rows = rows.append_column(ABSENT_FIELD.name, pa.nulls(rows.num_rows, pa.string()))
        if not first.num_rows:
            return rows
        touched, selected = self._common_keys(rows)
        restore = np.asarray(pc.is_in(first[_OP], pa.array(["b", "d"])).combine_chunks()).astype(np.bool_)
        if range_column is not None:
            self._check_whole(first.filter(pa.array(restore)))
            selected[:] = False
        candidates = np.flatnonzero(restore & ~selected)
        if len(candidates):
            restore[candidates] = in_range(
                first.select(self._keys if range_column is None else [range_column]).take(candidates)
            )
        if not report_absent:
            self._check_whole(first.filter(pa.array(restore)))
        kept = rows.filter(pa.array(~touched))
        names = [field.name for field in self._schema][len(_NOTES) :]
        restored = first.filter(pa.array(restore)).select([*names, _ABSENT] if report_absent else names)
        restored = restored.rename_columns(rows.schema.names).cast(rows.schema)
        if fulfils is not None and restored.num_rows:
            restored = restored.filter(pa.array(fulfils(restored)))
        return pa.concat_tables([kept, restored])

    def drop(self, rows: pa.Table) -> pa.Table:
        """Return the rows that the window does not touch; the changes after E bring all others.

        :param rows: the SELECT's rows of the chunk's range: the table's columns. Keys are unique.
        :raises UnsupportedError: the changes after E cannot bring a row, because its first image leaves columns out.
        """
        self._check_keys(rows)
        self._compact()
        first = self._first
        if not first.num_rows:
            return rows
        touched, selected = self._common_keys(rows)
        self._check_dropped(first.filter(pa.array(selected)))
        return rows.filter(pa.array(~touched))

    def _common_keys(self, rows: pa.Table) -> tuple[Mask, Mask]:
        """Return which of the rows have a touched key, and which of the first touches have a key of the rows."""
        codes = key_codes([rows.select(self._keys), self._first.select(self._keys)], self._keys)
        of_rows, of_first = codes[: rows.num_rows], codes[rows.num_rows :]
        return np.isin(of_rows, of_first), np.isin(of_first, of_rows)

    def _compact(self) -> None:
        """Keep only the first image of every key."""
        if not self._later:
            return
        images = pa.concat_tables([self._first, *self._later])
        codes = key_codes([images.select(self._keys)], self._keys)
        first = np.empty(len(codes), np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of equal codes, the last assignment wins
        self._first = images.take(np.sort(first[: int(codes.max(initial=-1)) + 1])).combine_chunks()
        self._later, self._later_rows = [], 0

    def _check_whole(self, images: pa.Table) -> None:
        """Refuse restored images that do not hold a whole row."""
        self._refuse(
            images.filter(images[_ABSENT].is_valid()), "its before-image leaves columns out, so it cannot be rewound"
        )

    def _check_dropped(self, images: pa.Table) -> None:
        """Refuse dropped rows that later changes do not hold whole."""
        self._refuse(
            images.filter(images[_PARTIAL_UPDATE]),
            "its image leaves columns out, so later changes do not hold the whole row",
        )

    def _refuse(self, partial: pa.Table, reason: str) -> None:
        if partial.num_rows:
            raise UnsupportedError(
                f"a row changed while its chunk was read, and {reason}: {PARTIAL_REMEDY}; or read the table with"
                ' window = "keep"',
                table=self._table.full_name,
                file=partial[_FILE][0].as_py(),
                pos=partial[_POS][0].as_py(),
            )

    def _check_keys(self, images: pa.Table) -> None:
        for name in self._keys:
            column: Any = images.column(name)
            if column.null_count:
                raise SnapshotRefusedError(
                    "the key contains a date that Arrow cannot represent (it was read as null)",
                    table=self._table.full_name,
                    column=name,
                )

    def _changed(self) -> SchemaChangedError:
        return SchemaChangedError("the log and the table have different columns", table=self._table.full_name)


def _with_notes(batch: pa.RecordBatch) -> pa.Table:
    """Return the batch with :data:`_NOTES` next to its columns."""
    images, names = pa.Table.from_batches([batch]), batch.schema.names
    op = images["_op"]
    absent = pa.nulls(len(images), pa.string())
    if ABSENT_FIELD.name in names:
        absent = images[ABSENT_FIELD.name].cast(pa.string())
    partial = np.asarray(absent.is_valid())
    partial_update = partial & np.asarray(pc.equal(op, "u"))
    partial_update |= np.append(partial_update[1:], False) & np.asarray(pc.equal(op, "b"))
    images = (
        images.append_column(_OP, op)
        .append_column(_ABSENT, absent)
        .append_column(_PARTIAL_UPDATE, pa.array(partial_update))
    )
    for note, part in ((_FILE, "file"), (_POS, "pos")):
        kind = pa.int32() if part == "file" else pa.int64()
        position = pc.struct_field(images["_seq"], part) if "_seq" in names else pa.nulls(len(images), kind)
        images = images.append_column(note, position)
    return images
