"""Convert a table's stored images to typed rows, in tasks or in this process: the Spark side of ``_images``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.apply._complete import Completed, FindRows, complete
from headgate.apply._counted import CountedChanges
from headgate.apply._images import align, drop_before, fold, fold_marked, pair_updates
from headgate.apply._keyless import ROW_DDL, Contents, hashed
from headgate.apply._partial import fold_partial
from headgate.apply._pieces import all_images, pieces
from headgate.apply._shares import Shares
from headgate.apply._staged_rows import Changes
from headgate.apply._version_changes import VersionChanges
from headgate.apply._versions import fold_versions
from headgate.carrier import ABSENT, DATA_COLUMN, META_DDL, Definition, Part, open_images
from headgate.decide.actions import (
    AppendChanges,
    AppendVersions,
    Count,
    Overwrite,
    RowAction,
    TableContent,
    Upsert,
    UpsertPartial,
)
from headgate.lake import ROW_HASH, DeltaPath, Form, Marker, append, spark_schema
from headgate.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


__all__ = [
    "HEADGATE_COLUMNS",
    "append_once",
    "change_rows",
    "changed_rows",
    "completed_changes",
    "counted_changes",
    "image_rows",
    "row_columns",
    "version_changes",
    "whole_table",
]

HEADGATE_COLUMNS = ("_seq", "_gtid", "_ts")
"""The columns of an image, except ``_op``, that every table of headgate has."""

_DRIVER_BYTES = 128 << 20
"""Most bytes of images that this process folds at a time, without a job; each of the tables written has a share."""

Expand = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _image_frame(spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
    """Return stored images as one binary column, for :func:`~headgate.carrier.open_images` in tasks."""
    cells = [one.data.to_pybytes() for part in parts for one in part.stored]
    partitions = min(len(cells), spark.sparkContext.defaultParallelism) or 1
    ends = [len(cells) * number // partitions for number in range(partitions + 1)]
    arrays = [pa.array(cells[begin:end], pa.binary()) for begin, end in pairwise(ends)]
    return spark.createDataFrame(pa.table({DATA_COLUMN: pa.chunked_array(arrays)}))


@dataclass(frozen=True)
class RowConversion:
    """Conversion of the carrier's data, in a task, to record batches with these columns (Spark DDL)."""

    ddl: str
    expand: Expand


class _Folding:
    """Returns the last image of each key.

    :param form: of the table; a marked one gets deletions as rows with ``_deleted`` true.
    """

    def __init__(self, action: Upsert, form: Form) -> None:
        self.ddl = _ddl(action.definition, form)
        self._schema, self._key, self._form = _arrow_schema(self.ddl), action.definition.key, form
        self._bound, self._fills, self._names = action.bound, action.fills, action.names

    def __call__(self, images: Iterator[pa.RecordBatch]) -> pa.Table:
        parts = (align(part, self._schema, self._fills, self._names) for part in images)
        table = pa.Table.from_batches(parts, self._schema)
        return (fold_marked if self._form is Form.MARKED else fold)(table, self._key, self._bound)

    def each(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold each of the carrier's record batches of images by itself, in a task."""
        for part in _opened(batches):
            yield from self(iter([part])).to_batches()


def row_columns(definition: Definition, form: Form) -> list[str]:
    """Return the columns of a keyed current table of this form."""
    return [*definition.types, *HEADGATE_COLUMNS, *form.columns]


def _ddl(definition: Definition, form: Form) -> str:
    """Return the columns of images, and of a form, as Spark DDL."""
    return f"{META_DDL}, {definition.ddl}{form.ddl}"


def image_rows(action: RowAction, form: Form = Form.PLAIN) -> RowConversion:
    """Convert to all images, unchanged, with the values of the form's columns in rows that the source has."""
    ddl, names = _ddl(action.definition, form), action.names
    schema = _arrow_schema(ddl)
    return RowConversion(ddl, lambda batches: map(form.begin, _aligned(batches, schema, names)))


def change_rows(action: AppendChanges, before: Mapping[str, str]) -> RowConversion:
    """Convert to one row per change: updates carry ``_before``, partial images ``_absent``; otherwise both are null.

    :param before: name → Spark type of each field of ``_before``. Those that the definition lacks are null.
    """
    ddl, names = f"{META_DDL}, {action.definition.ddl}", action.names
    fields = ", ".join(f"{quote_name(name)}: {kind}" for name, kind in before.items())
    full_ddl = f"{ddl}, _before struct<{fields}>, {ABSENT} array<string>"
    plain, full = _arrow_schema(f"{ddl}, {ABSENT} string"), _arrow_schema(full_ddl)

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (pair_updates(part, full) for part in _aligned(batches, plain, names))

    return RowConversion(full_ddl, convert)


def append_once(
    delta: DeltaPath, parts: Sequence[Part], rows: RowConversion, columns: Sequence[str], marker: Marker
) -> None:
    """Append images to a table, converted to rows, once under the marker.

    :param columns: the rows' columns that the table gets.
    """
    append(delta, _image_frame(delta.spark, parts), rows.expand, rows.ddl, columns, marker)


def completed_changes(
    action: UpsertPartial, find: FindRows, note: Callable[[Completed], None], form: Form = Form.PLAIN
) -> Changes:
    """Fold a batch with partial images, and complete them, in this process: an update of a key links images that no
    partitioning by key or position would keep together.

    :param note: gets what each part of the batch comes to.
    """
    definition, key, fills = action.definition, action.definition.key, action.fills
    schema = _arrow_schema(f"{_ddl(definition, Form.PLAIN)}, {ABSENT} string")

    def images() -> Iterator[pa.RecordBatch]:
        for piece in pieces(action, schema, _local_folder()):
            folded = fold_partial(piece, key, action.bound, form)
            for completed in complete(folded, find, key, fills, form, since=action.since):
                note(completed)
                yield from completed.images.to_batches()

    return Changes(_ddl(definition, form), row_columns(definition, form), key, lambda rows: fold(rows, key), images())


def changed_rows(spark: SparkSession, action: Upsert, form: Form = Form.PLAIN) -> Changes:
    """Return the last image of each key.

    :param form: of the table; a marked one gets deletions as rows with ``_deleted`` true.
    """
    key, folding, parts = action.definition.key, _Folding(action, form), action.parts
    shares = Shares(lambda: _image_frame(spark, parts), folding.each)
    images = folding(all_images(parts)).to_batches() if _are_few(spark, parts) else shares
    return Changes(folding.ddl, row_columns(action.definition, form), key, lambda rows: fold(rows, key), images)


def version_changes(action: AppendVersions, marker: Marker) -> VersionChanges:
    """Fold images to versions, in this process: the open rows that they end are read here, too."""
    definition = action.definition
    schema = _arrow_schema(_ddl(definition, Form.PLAIN))
    return VersionChanges(
        _ddl(definition, Form.HISTORY),
        row_columns(definition, Form.HISTORY),
        definition.key,
        list(definition.types),
        lambda: (fold_versions(piece, definition.key) for piece in pieces(action, schema, _local_folder())),
        marker,
        action.exact_since,
    )


def counted_changes(action: Count, marker: Marker, table: str) -> CountedChanges:
    """Sum up images of a table without a key, in this process."""
    definition, columns = action.definition, list(action.definition.types)
    schema = _arrow_schema(_ddl(definition, Form.PLAIN))

    def images() -> Iterator[pa.RecordBatch]:
        for part in all_images(action.parts):
            yield drop_before(align(part, schema, names=action.names), action.bound)

    contents = Contents.of(images, columns)

    def check(missing: Any) -> None:
        if action.content is TableContent.ALL:
            contents.check(missing, columns, table)

    return CountedChanges(
        *_keyless_columns(definition),
        contents.added(),
        marker,
        empties=action.bound is not None,
        removes=contents.removed_keys,
        removed=contents.removed,
        check=check,
    )


def whole_table(spark: SparkSession, action: Overwrite, marker: Marker) -> CountedChanges:
    """Return the rows of a whole table without a key, in place of those that it has. Tasks write many of them."""
    parts, definition = action.parts, action.definition
    schema, columns, names = _arrow_schema(_ddl(definition, Form.PLAIN)), list(definition.types), action.names

    def expand(images: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (hashed(align(part, schema, names=names), columns) for part in images)

    shares = Shares(lambda: _image_frame(spark, parts), lambda batches: expand(_opened(batches)))
    rows = expand(all_images(parts)) if _are_few(spark, parts) else shares
    return CountedChanges(*_keyless_columns(definition), rows, marker, empties=True)


def _keyless_columns(definition: Definition) -> tuple[str, list[str]]:
    """Return the columns of rows of a keyless table, as Spark DDL, and the names of those that the table gets."""
    return f"{_ddl(definition, Form.PLAIN)}, {ROW_DDL}", [*row_columns(definition, Form.PLAIN), ROW_HASH]


def _are_few(spark: SparkSession, parts: Sequence[Part]) -> bool:
    """Whether this process folds the images, without a job."""
    return sum(part.size for part in parts) <= _DRIVER_BYTES // max(2, spark.sparkContext.defaultParallelism)


def _local_folder() -> Path:
    """Return a folder of this process's machine, in Spark's."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory())


def _aligned(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, names: Mapping[str, str | None]
) -> Iterator[pa.RecordBatch]:
    """Yield the images in the carrier's batches, each with exactly these columns."""
    return (align(part, schema, names=names) for part in _opened(batches))


def _opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the images in the carrier's batches."""
    return open_images(chain.from_iterable(batch.column(0) for batch in batches))


def _arrow_schema(ddl: str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(ddl), timezone="UTC")
