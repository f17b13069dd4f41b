"""The window: a chunk as MySQL showed it, turned back to what it was at E, or cut down to what nothing changed.

Let E be the GTID set at which the chunk shall be exact, R ⊇ E the read view that SELECT had, and W the log from E up to
a position noted after the SELECT: everything in R that is not in E is in W, because a transaction reaches the log
before it becomes visible. W may reach beyond R; which of its transactions R has seen is not known, and need not be:

*Claim.* For every key k, the row of k at E is
  (a) the row that the SELECT found, if W does not touch k: nothing changed k between E and R;
  (b) the before-image, if the first touch of k in W is an update or delete: nothing had changed k between E and that
      touch, so the image is the row at E, whatever R saw of it;
  (c) absent, if the first touch is an insert or the after-image of an update that moved another row to k: k was free.

An update that changes the key is a touch of the old key (its before-image, b) and then of the new one (its
after-image, c). Rows here are *images*, one touch each, so an update is always the two images ``b`` and ``u``: the
touch of k by ``b`` comes first, and a ``u`` is a first touch only when the row came from another key.

*Partial images* (``binlog_row_image`` MINIMAL or NOBLOB) break (b): the first image of a key does not hold the row. It
proves that there was one, and what it holds of it is right; the rest is unknown. A chunk with such a key is refused,
unless the reader asks to be told: then the row has the names of the unknown columns. (a) and (c) need no
image.

So a chunk for the range (lo, hi] is: the rows found whose key W does not touch, plus the images (b) whose key lies in
the range. Whether it does is the collation's business where text is concerned; a key that the SELECT itself found lies
in the range by that very fact, and for others ``in_range`` is asked.

*Dropping* is DBLog's own rule ("DBLog: A Watermark Based Change-Data-Capture Framework"): what remains is (a) alone.
The rows left out are those that changed after E, and each of their changes is brought by a batch after E, whole: so the
table is exact as soon as W has been applied, and the chunk holds no row that was not there at E. It asks nobody where a
key lies. But it counts on changes that make a row by themselves: an update whose image leaves columns out would find no
row, so a row that was dropped for one is refused.

Nothing here knows the server: batches in, batches out. The state is one image per touched key.
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
"""Key columns of n rows → bool[n]: which keys lie in the chunk's range."""

_OP, _ABSENT, _LEANS, _FILE, _POS = ("\0op", "\0absent", "\0leans", "\0file", "\0pos")
"""Names that no column of MySQL can have."""
_NOTES = (
    pa.field(_OP, pa.string()),
    pa.field(_ABSENT, pa.string()),
    pa.field(_LEANS, pa.bool_()),
    pa.field(_FILE, pa.int32()),
    pa.field(_POS, pa.int64()),
)
"""What is kept of an image beside its columns. ``leans``: it belongs to an update whose after-image leaves columns
out, so it is of use only to a row that is there."""
_SETTLE_ROWS = 1 << 16
"""Images to gather before first touches are picked out again: bounds the state at a constant cost per image."""


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
        """The next images of the table, in log order: ``_op`` (c, b, u, d), perhaps ``_seq`` and ``_absent``, and the
        table's columns; others are ignored.

        :raises SchemaChangedError: the images have other columns than the chunk's rows.
        """
        try:
            found = _with_notes(batch).select(self._schema.names)
        except KeyError:
            raise self._changed() from None
        if found.schema.types != self._schema.types:
            raise self._changed()
        self._check_keys(found)
        self._later.append(pa.Table.from_arrays(found.columns, schema=self._schema))
        self._later_rows += batch.num_rows
        if self._later_rows > max(_SETTLE_ROWS, self._first.num_rows):
            self._settle()

    def rewind(
        self,
        rows: pa.Table,
        in_range: InRange,
        *,
        along: str | None = None,
        fulfils: InRange | None = None,
        tell: bool = False,
    ) -> pa.Table:
        """The chunk as of E.

        :param rows: what the SELECT found in the chunk's range: the table's columns. Keys are unique.
        :param in_range: asked only about keys that the SELECT did not find.
        :param along: the range is one of this column, not of the key. Then a key that the SELECT found may have had
            another place at E, so ``in_range`` is asked about every image.
        :param fulfils: rows → bool[n]: which rows fulfil the chunk's filter. Asked about every image that is put back,
            because the row at E may fulfil it where the row found does not, and the other way round.
        :param tell: rows that are known in part are given, and there is a column ``_absent`` behind the table's: the
            names of a row's unknown columns (null there), as a JSON list; null for a whole row. Not with ``along``
            or ``fulfils``, which ask about values.
        :raises UnsupportedError: a row cannot be turned back, because its first image leaves columns out.
        """
        self._check_keys(rows)
        self._settle()
        first = self._first
        if tell:
            rows = rows.append_column(ABSENT_FIELD.name, pa.nulls(rows.num_rows, pa.string()))
        if not first.num_rows:
            return rows
        codes = key_codes([rows.select(self._keys), first.select(self._keys)], self._keys)
        of_rows, of_first = codes[: rows.num_rows], codes[rows.num_rows :]
        touched, found = np.zeros(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
        touched[of_first] = True
        found[of_rows] = True
        restore = np.asarray(pc.is_in(first[_OP], pa.array(["b", "d"])).combine_chunks()).astype(np.bool_)
        if along is not None:
            self._check_whole(first.filter(pa.array(restore)))
            found[:] = False
        ask = np.flatnonzero(restore & ~found[of_first])
        if len(ask):
            restore[ask] = in_range(first.select(self._keys if along is None else [along]).take(ask))
        if not tell:
            self._check_whole(first.filter(pa.array(restore)))
        kept = rows.filter(pa.array(~touched[of_rows]))
        names = [field.name for field in self._schema][len(_NOTES) :]
        restored = first.filter(pa.array(restore)).select([*names, _ABSENT] if tell else names)
        restored = restored.rename_columns(rows.schema.names).cast(rows.schema)
        if fulfils is not None and restored.num_rows:
            restored = restored.filter(pa.array(fulfils(restored)))
        return pa.concat_tables([kept, restored])

    def drop(self, rows: pa.Table) -> pa.Table:
        """The rows that the window does not touch; all others are left to the changes after E.

        :param rows: what the SELECT found in the chunk's range: the table's columns. Keys are unique.
        :raises UnsupportedError: what follows cannot bring a row, because its first image leaves columns out.
        """
        self._check_keys(rows)
        self._settle()
        first = self._first
        if not first.num_rows:
            return rows
        codes = key_codes([rows.select(self._keys), first.select(self._keys)], self._keys)
        of_rows, of_first = codes[: rows.num_rows], codes[rows.num_rows :]
        touched, found = np.zeros(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
        touched[of_first] = True
        found[of_rows] = True
        self._check_brought(first.filter(pa.array(found[of_first])))
        return rows.filter(pa.array(~touched[of_rows]))

    @property
    def touched_keys(self) -> int:
        """How many keys the window touches."""
        self._settle()
        return int(self._first.num_rows)

    def _settle(self) -> None:
        """Keeps the first image of every key."""
        if not self._later:
            return
        images = pa.concat_tables([self._first, *self._later])
        codes = key_codes([images.select(self._keys)], self._keys)
        first = np.empty(len(codes), np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of equal codes, the assignment made last stays
        self._first = images.take(np.sort(first[: int(codes.max(initial=-1)) + 1])).combine_chunks()
        self._later, self._later_rows = [], 0

    def _check_whole(self, images: pa.Table) -> None:
        """What is put back must be all of a row."""
        self._refuse(
            images.filter(images[_ABSENT].is_valid()),
            "its before-image leaves columns out, so it cannot be turned back",
        )

    def _check_brought(self, images: pa.Table) -> None:
        """What is left to the changes that follow must be in them."""
        self._refuse(
            images.filter(images[_LEANS]), "its image leaves columns out, so the changes that follow cannot bring it"
        )

    def _refuse(self, partial: pa.Table, lost: str) -> None:
        if partial.num_rows:
            raise UnsupportedError(
                f"a row changed while its chunk was read, and {lost}: {PARTIAL_REMEDY}; or read the table with"
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
                    "a key value cannot be told from others (a date that Arrow cannot hold was read as null)",
                    table=self._table.full_name,
                    column=name,
                )

    def _changed(self) -> SchemaChangedError:
        return SchemaChangedError("the log has other columns than the table", table=self._table.full_name)


def _with_notes(batch: pa.RecordBatch) -> pa.Table:
    """The batch with :data:`_NOTES` beside its columns."""
    found, names = pa.Table.from_batches([batch]), batch.schema.names
    op = found["_op"]
    absent = pa.nulls(len(found), pa.string())
    if ABSENT_FIELD.name in names:
        absent = found[ABSENT_FIELD.name].cast(pa.string())
    partial = np.asarray(absent.is_valid())
    leans = partial & np.asarray(pc.equal(op, "u"))
    leans |= np.append(leans[1:], False) & np.asarray(pc.equal(op, "b"))
    found = found.append_column(_OP, op).append_column(_ABSENT, absent).append_column(_LEANS, pa.array(leans))
    for note, part in ((_FILE, "file"), (_POS, "pos")):
        kind = pa.int32() if part == "file" else pa.int64()
        place = pc.struct_field(found["_seq"], part) if "_seq" in names else pa.nulls(len(found), kind)
        found = found.append_column(note, place)
    return found
