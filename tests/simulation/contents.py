"""What a simulated table of a lake has, and what actions make of it (``headgate.decide.actions``).

A data file is a Python value. What is simulated is how rows are located and written. What a batch's images come to is
headgate's, except for whole images of a table with a key: ``Contents`` counts copies, ``fold_partial`` and ``complete``
complete partial images, ``fold_versions`` and ``Versions`` make the versions of a history.

======== ==========================================
form     a file
======== ==========================================
keyed    key → (row, ``_seq``)
keyless  list of (row, ``_seq``, ``_row_hash``)
history  Arrow table of versions
======== ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import META_DDL, SEQ_DDL, Seq
from headgate.decide import actions as do
from headgate.decide.actions import TableContent
from headgate.lake import END_GTID, END_SEQ, IS_CURRENT, ROW_HASH, SEEN, VALID_FROM, VALID_TO, Form, Marker
from tests.simulation.images import RowImage, rows_of
from tests.simulation.rooms import (
    _FIRST,
    Completed,
    Contents,
    Ending,
    _epochs,
    align,
    all_images,
    completed_changes,
    drop_before,
    version_changes,
    whole_table,
)
from tests.simulation.tables import Row, Shape

__all__ = ["Content", "Keyed", "Keyless", "Removal", "Versioned", "arrow_schema", "content_of", "until"]

_KINDS: Final = {
    "bigint": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    SEQ_DDL: pa.struct([("epoch", pa.int64()), ("file", pa.int32()), ("pos", pa.int64()), ("ordinal", pa.int64())]),
}
_META: Final = (("_op", "string"), ("_seq", SEQ_DDL), ("_gtid", "string"), ("_ts", "timestamp"))
_PERIOD: Final = {
    VALID_FROM: "timestamp",
    VALID_TO: "timestamp",
    IS_CURRENT: "boolean",
    END_SEQ: SEQ_DDL,
    END_GTID: "string",
    SEEN: "bigint",
}
"""Columns of a history."""

Removal: TypeAlias = do.Truncate | do.DropStrays | do.Sweep


@cache
def arrow_schema(ddl: str) -> pa.Schema:
    """Stand for ``headgate.apply._expand._arrow_schema``, which needs Spark: columns of images as Arrow fields."""
    columns = [column.rsplit(" ", 1) for column in ddl.removeprefix(f"{META_DDL}, ").split(", ")]
    fields = [(name.strip("`"), kind) for name, kind in columns]
    return pa.schema([(name, _KINDS[kind]) for name, kind in (*_META, *fields)])


class Keyed:
    """Contents of a table with a key."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def joined(self, files: Sequence[Any]) -> dict[int, tuple[Row, Seq]]:
        """Return the rows of some files as those of one."""
        rows: dict[int, tuple[Row, Seq]] = {}
        for file in files:
            rows |= file
        return rows

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two files have the same rows."""
        return bool(one == other)

    def removed(self, rows: Any, action: Removal, epoch: int, planned_us: int) -> Any:
        """Return the rows that an action leaves."""
        del epoch, planned_us
        return {key: row for key, row in rows.items() if not _removes(action, row[1])}

    def upserted(self, rows: Any, action: do.Upsert) -> Any:
        """Return the rows with the last image of each key."""
        bound = action.bound
        images = sorted(rows_of(action.parts), key=lambda image: image.seq)
        return self._set(rows, (one for one in images if one.op != "t" and (bound is None or one.seq >= bound)))

    def completed(
        self, rows: Any, action: do.UpsertPartial, before: Callable[[], Any], note: Callable[[Completed], None]
    ) -> Any:
        """Return the rows with the last image of each key, completed.

        :param before: returns the rows at the version in the ledger.
        """

        def find(keys: pa.Table) -> Iterator[tuple[pa.Table, Any]]:
            known = before()
            wanted = [(number, known[key]) for number, key in enumerate(keys["id"].to_pylist()) if key in known]
            for part in (wanted[::2], wanted[1::2]):
                columns = [[row[index] for _, (row, _) in part] for index in range(len(self._shape.columns))]
                table = pa.table(columns, schema=self._shape.rows)
                seqs = pa.array([seq for _, (_, seq) in part], self._shape.schema.field("_seq").type)
                yield table.append_column("_seq", seqs), np.array([number for number, _ in part], np.int64)

        return self._set(rows, self._completed(action, find, note))

    def _completed(self, action: do.UpsertPartial, find: Any, note: Callable[[Completed], None]) -> Iterator[RowImage]:
        batches: Any = completed_changes(action, find, note, Form.PLAIN).images
        for batch in batches:
            seqs = zip(*(part.to_pylist() for part in batch["_seq"].flatten()), strict=True)
            rows = zip(*(batch[name].to_pylist() for name in self._shape.columns), strict=True)
            for op, seq, row in zip(batch["_op"].to_pylist(), seqs, rows, strict=True):
                yield RowImage(op, seq, None, 0, row)

    @staticmethod
    def _set(rows: Any, images: Iterable[RowImage]) -> Any:
        last, after = {image.row[0]: image for image in images}, dict(rows)
        for key, image in last.items():
            if key in after and after[key][1] >= image.seq:
                continue
            if image.op in ("b", "d"):
                after.pop(key, None)
            else:
                after[key] = image.row, image.seq
        return after

    def appended(self, action: do.Append) -> Any:
        """Return the rows of chunks."""
        return {image.row[0]: (image.row, image.seq) for image in rows_of(action.parts)}


class Keyless:
    """Contents of a table without a key."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def joined(self, files: Sequence[Any]) -> list[tuple[Row, Seq, bytes]]:
        return [copy for file in files for copy in file]

    def same(self, one: Any, other: Any) -> bool:
        return bool(one == other)

    def removed(self, rows: Any, action: Removal, epoch: int, planned_us: int) -> Any:
        del epoch, planned_us
        return [copy for copy in rows if not _removes(action, copy[1])]

    def overwritten(self, action: do.Overwrite, marker: Marker) -> Any:
        """Return the rows of the table's chunk."""
        rows: Any = whole_table(None, action, marker).rows  # type: ignore[arg-type]
        return [copy for batch in rows for copy in self._copies(batch)]

    def counted(self, rows: Any, action: do.Count) -> Any:
        """Return the rows with the copies that are added, without those that are removed."""
        schema = arrow_schema(f"{META_DDL}, {action.definition.ddl}")

        def images() -> Iterator[pa.RecordBatch]:
            for part in all_images(action.parts):
                yield drop_before(align(part, schema, names=action.names), action.bound)

        contents = Contents.of(images, self._shape.columns)
        missing = {
            bytes(contents.hashes[image]): int(count)
            for image, count in zip(contents.removes, contents.removed, strict=True)
        }
        left = []
        for copy in () if action.bound is not None else rows:
            if missing.get(copy[2], 0):
                missing[copy[2]] -= 1
            else:
                left.append(copy)
        if action.content is TableContent.ALL:
            contents.check(np.array([*missing.values()], np.int64), self._shape.columns, self._shape.table)
        return [*left, *(copy for batch in contents.added() for copy in self._copies(batch))]

    def _copies(self, batch: pa.RecordBatch) -> Iterator[tuple[Row, Seq, bytes]]:
        seqs = zip(*(part.to_pylist() for part in batch["_seq"].flatten()), strict=True)
        rows = zip(*(batch[name].to_pylist() for name in self._shape.columns), strict=True)
        yield from zip(rows, seqs, batch[ROW_HASH].to_pylist(), strict=True)


class Versioned:
    """Contents of a history."""

    def __init__(self, shape: Shape) -> None:
        fields = [field for field in arrow_schema(f"{META_DDL}, {shape.carried.ddl}") if field.name != "_op"]
        period = [pa.field(name, _KINDS[kind]) for name, kind in _PERIOD.items()]
        self._schema = pa.schema([*fields[3:], *fields[:3], *period])
        self._shape = shape

    def joined(self, files: Sequence[Any]) -> pa.Table:
        return pa.concat_tables([self._schema.empty_table(), *files]).combine_chunks()

    def same(self, one: Any, other: Any) -> bool:
        return bool(one.equals(other))

    def removed(self, rows: Any, action: Removal, epoch: int, planned_us: int) -> Any:
        first, end = _epochs(action, epoch)
        ending = Ending(first, end, (epoch, *_FIRST), None, planned_us)
        if isinstance(action, do.Truncate):
            ending = Ending(first, end, action.bound, action.gtid, planned_us if action.at_us is None else action.at_us)
        ended = np.zeros(len(rows), np.bool_)
        if len(rows):
            ended = ending.chosen(rows.to_batches()[0])
        if not ended.any():
            return rows
        changed = ending.apply(rows.filter(pa.array(ended))).select(self._schema.names)
        return pa.concat_tables([rows.filter(pa.array(~ended)), changed]).combine_chunks()

    def appended(self, action: do.Append) -> Any:
        """Return the versions that chunks begin."""
        batches = [Form.HISTORY.begin(align(batch, self._schema)) for batch in all_images(action.parts)]
        return pa.Table.from_batches(batches, self._schema)

    def versioned(self, rows: Any, action: do.AppendVersions, marker: Marker) -> Any:
        """Return the rows with the versions of the images, and the open ones that these end."""
        changes = version_changes(action, marker)
        for versions in changes.pieces():
            keys = {key: number for number, key in enumerate(versions.ends["id"].to_pylist())}
            is_open = zip(rows["id"].to_pylist(), rows[IS_CURRENT].to_pylist(), strict=True)
            numbers = [keys[key] if current and key in keys else -1 for key, current in is_open]
            chosen = np.array(numbers, np.int64)
            ended = np.full(len(keys), np.iinfo(np.int64).min)
            for key, at in zip(rows["id"].to_pylist(), rows[VALID_TO].cast(pa.int64()).to_pylist(), strict=True):
                if key in keys and at is not None:
                    ended[keys[key]] = max(ended[keys[key]], at)
            settled = versions.settle(
                rows.filter(pa.array(chosen >= 0)),
                chosen[chosen >= 0],
                changes.values,
                marker.version,
                ended,
                exact_since=changes.exact_since,
            )
            rows = pa.concat_tables([rows.filter(pa.array(chosen < 0)), settled.select(self._schema.names)])
        return rows.combine_chunks()


Content: TypeAlias = Keyed | Keyless | Versioned
"""A form of contents."""


def content_of(shape: Shape, form: Form) -> Content:
    """Return the form of a table's contents."""
    if form is Form.HISTORY:
        return Versioned(shape)
    return Keyed(shape) if shape.has_key else Keyless(shape)


def until(rows: Any, epoch: int) -> Any:
    """Return the rows of a file, of a table or a changelog, whose epochs are up to this one."""
    match rows:
        case dict():
            return {key: row for key, row in rows.items() if row[1][0] <= epoch}
        case list():
            return [one for one in rows if one[1][0] <= epoch]
    return rows.filter(pc.less_equal(pc.struct_field(rows["_seq"], "epoch"), epoch))


def _removes(action: Removal, seq: Seq) -> bool:
    match action:
        case do.Truncate(bound=bound):
            return seq < bound
        case do.DropStrays(first=first, end=end):
            return first <= seq[0] < end
        case do.Sweep(epoch=end):
            return seq[0] < end
