"""Convert a table's stored images to typed rows, in tasks or in this process: the Spark side of ``_images``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.carrier import ABSENT, META_DDL, Definition, Part, open_images
from headgate.delta import as_column, keys_of
from headgate.lake import DeltaPath, Form, Marker, append, append_frame, spark_schema
from headgate.names import quote_name
from headgate.sinks._actions import AppendVersions, RowAction, Upsert
from headgate.sinks._carrier import image_frame
from headgate.sinks._images import align, fold, fold_marked, pair_updates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.lake import Changes, VersionChanges

__all__ = [
    "HEADGATE_COLUMNS",
    "append_once",
    "change_rows",
    "changed_rows",
    "folded_images",
    "image_rows",
    "last_images",
    "row_columns",
    "version_changes",
]

HEADGATE_COLUMNS = ("_seq", "_gtid", "_ts")
"""The columns of an image, except ``_op``, that every table of headgate has."""

ONE_TASK_IMAGES = 100_000
"""Most images of a table that one task folds, without a shuffle: it takes some 50 ms, a shuffle more."""
_DRIVER_BYTES = 128 << 20
"""Most bytes of images that this process folds at a time, without a job; each of the tables written has a share."""

Expand = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class RowConversion:
    """Conversion of the carrier's data, in a task, to record batches with these columns (Spark DDL)."""

    ddl: str
    expand: Expand

    def frame(self, data: DataFrame) -> DataFrame:
        """Return the rows of ``data`` (one binary column)."""
        return data.mapInArrow(self.expand, self.ddl)


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

    def all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold all images in the carrier's batches, in a task."""
        yield from self(_opened(batches)).to_batches()

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
    return RowConversion(ddl, lambda batches: map(form.begin, _aligned(batches, schema, names=names)))


def change_rows(definition: Definition, names: Mapping[str, str | None] | None = None) -> RowConversion:
    """Convert to one row per change: updates carry ``_before``, partial images ``_absent``; otherwise both are null.

    :param names: where images have other names than the definition.
    """
    ddl = f"{META_DDL}, {definition.ddl}"
    fields = ", ".join(f"{quote_name(column.name)}: {column.spark}" for column in definition.columns)
    full_ddl = f"{ddl}, _before struct<{fields}>, {ABSENT} array<string>"
    plain, full = _arrow_schema(f"{ddl}, {ABSENT} string"), _arrow_schema(full_ddl)

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (pair_updates(part, full) for part in _aligned(batches, plain, names=names))

    return RowConversion(full_ddl, convert)


def append_once(delta: DeltaPath, data: DataFrame, rows: RowConversion, columns: Sequence[str], marker: Marker) -> None:
    """Append the rows of ``data`` to a table, once under the marker.

    :param columns: the rows' columns that the table gets.
    """
    if not append(delta, data, rows.expand, rows.ddl, columns, marker):
        append_frame(delta, rows.frame(data).select(*[quote_name(name) for name in columns]), marker)


def last_images(spark: SparkSession, action: Upsert, form: Form = Form.PLAIN) -> DataFrame:
    """Return the last image of each key, once.

    :param form: of the table; a marked one gets deletions as rows with ``_deleted`` true.
    """
    data, folding = image_frame(spark, action.parts), _Folding(action, form)
    if sum(part.images for part in action.parts) <= ONE_TASK_IMAGES:
        return data.coalesce(1).mapInArrow(folding.all, folding.ddl)
    return _last(data.mapInArrow(folding.each, folding.ddl), action.definition.key)


def folded_images(spark: SparkSession, action: Upsert, form: Form = Form.PLAIN) -> DataFrame:
    """Fold a batch with partial images to one line per key; the columns are those of ``_partial.fold_partial``.

    One task does it: an update of a key links images that no partitioning by key or position would keep together.
    """
    definition, bound, fills, names = action.definition, action.bound, action.fills, action.names
    types, key = definition.types, definition.key
    old = ", ".join(f"k{i}: {types[name]}" for i, name in enumerate(key))
    ddl = f"{META_DDL}, {definition.ddl}"
    full_ddl = f"{ddl}, {ABSENT} struct<columns: array<string>, vanishes: boolean, old: struct<{old}>>"
    images_schema, schema = _arrow_schema(f"{ddl}, {ABSENT} string"), _arrow_schema(full_ddl)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headgate.sinks._partial import fold_partial  # loads numba, only if needed

        images = pa.Table.from_batches(_aligned(batches, images_schema, fills, names), images_schema)
        lines = fold_partial(images, key, bound, form)
        columns = [as_column(column, field.type) for column, field in zip(lines.columns, schema, strict=True)]
        yield from pa.table(columns, schema=schema).to_batches()

    return image_frame(spark, action.parts).coalesce(1).mapInArrow(run, full_ddl)


def changed_rows(spark: SparkSession, action: Upsert, form: Form = Form.PLAIN) -> Changes:
    """Return the last image of each key, for an upsert without Spark's writers.

    :param form: of the table; a marked one gets deletions as rows with ``_deleted`` true.
    """
    from headgate.lake import Changes

    key, folding, parts = action.definition.key, _Folding(action, form), action.parts
    share = _DRIVER_BYTES // max(2, spark.sparkContext.defaultParallelism)
    fits = sum(part.size for part in parts) <= share
    return Changes(
        folding.ddl,
        row_columns(action.definition, form),
        key,
        lambda images: fold(images, key),
        (lambda: folding(_all_images(parts))) if fits else None,
        lambda: image_frame(spark, parts),
        folding.each,
    )


def version_changes(action: AppendVersions, marker: Marker) -> VersionChanges:
    """Fold images to versions, in this process: the open rows that they end are read here, too."""
    from headgate.lake import VersionChanges
    from headgate.sinks._versions import fold_versions

    definition = action.definition
    schema = _arrow_schema(_ddl(definition, Form.PLAIN))
    aligned = (align(part, schema, action.fills, action.names) for part in _all_images(action.parts))
    versions = fold_versions(pa.Table.from_batches(aligned, schema), definition.key)
    return VersionChanges(
        _ddl(definition, Form.HISTORY),
        row_columns(definition, Form.HISTORY),
        definition.key,
        keys_of([versions.ends[name] for name in definition.key]),
        versions.has_values,
        definition.types.keys(),
        lambda open_rows, numbers: versions.settle(open_rows, numbers, list(definition.types), marker.version),
        marker,
    )


def _all_images(parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(part.record_batches() for part in parts)


def _aligned(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    fills: Mapping[str, str] | None = None,
    names: Mapping[str, str | None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the images in the carrier's batches, each with exactly these columns."""
    return (align(part, schema, fills, names) for part in _opened(batches))


def _opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the images in the carrier's batches."""
    return open_images(chain.from_iterable(batch.column(0) for batch in batches))


def _last(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions

    everything = functions.struct(*[frame[quote_name(name)] for name in frame.columns])
    order = functions.struct(functions.col("_seq"), functions.col("_op") != "b")
    keys = [functions.col(quote_name(name)).alias(f"_key{i}") for i, name in enumerate(key)]
    return frame.groupBy(*keys).agg(functions.max_by(everything, order).alias("_last")).select("_last.*")


def _arrow_schema(ddl: str) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(spark_schema(ddl), timezone="UTC")
