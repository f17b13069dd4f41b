"""Typed rows from images: one table's columns in one schema, for images of any definition. Does not need Spark.

Columns are matched by name. A column that a row's definition lacks is null. A column that the schema lacks is an error,
because a value would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier._image_files import open_images
from headgate.carrier._images import ABSENT, META, Images
from headgate.carrier._messages import Redo, UnreadableRows
from headgate.carrier._wire import TABLE_COLUMN, decode
from headgate.errors import ChunkRetryError, SchemaChangedError, UnsupportedError

__all__ = ["check_names", "typed_batch", "typed_images"]


def check_names(table: str, columns: Iterable[str], reserved: Iterable[str] = ()) -> None:
    """Refuse a table with a column that has the name of one of headgate's.

    :param reserved: headgate's columns besides those of each typed row.
    :raises SchemaChangedError: such a column exists.
    """
    taken = {*META, TABLE_COLUMN, *reserved}
    for name in columns:
        if name.lower() in taken:
            raise SchemaChangedError(
                f"column {name} has a name that headgate uses itself: rename it", table=table, column=name
            )


def typed_images(rows: Iterator[pa.RecordBatch], table: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert all images of one table in the stream's rows, each update with its before-image.

    :param schema: the rows' columns; partial images need ``_absent``.
    :raises ChunkRetryError: the stream lacks a chunk of the table.
    :raises UnsupportedError: the stream lacks images of the table, or an image lacks columns.
    :raises SchemaChangedError: an image has a column that the schema lacks, of another type, or with a name of
        headgate's.
    """
    with_absent = ABSENT in schema.names
    for batch in rows:
        for message in decode(batch):
            match message:
                case Redo(reason=reason):
                    raise ChunkRetryError(
                        f"a chunk of the table is missing: {reason}; request it again by a signal and skip rows of kind"
                        " redo",
                        table=table,
                    )
                case UnreadableRows(reason=reason, gtid=gtid):
                    raise UnsupportedError(f"rows of the table are missing: {reason}", table=table, gtid=gtid)
                case Images(data=data):
                    for images in open_images([data]):
                        check_names(table, images.schema.names[len(META) :])
                        yield typed_batch(images, table, schema, "all", with_absent=with_absent)


@lru_cache(maxsize=4)
def _repeated(name: str, rows: int) -> pa.Array:
    """Return column ``_table``, cached: most batches of a task are equally long."""
    return pa.repeat(pa.scalar(name), rows)


def typed_batch(
    batch: pa.RecordBatch, table: str, schema: pa.Schema, images: Literal["all", "keys"], *, with_absent: bool = False
) -> pa.RecordBatch:
    """Convert images of one table to exactly ``schema``.

    :param table: ``db.table``
    :param images: ``keys``: the before-image of a changed key becomes a ``d`` of it.
    :param with_absent: whether ``schema`` has column ``_absent``, a row's unknown columns.
    :raises UnsupportedError: a row image lacks columns, and there is no ``_absent``.
    :raises SchemaChangedError: a column that the schema lacks, or one of a type that does not fit.
    """
    if ABSENT in batch.schema.names and not with_absent:
        from headgate.replication import PARTIAL_REMEDY  # loads numba, so only for the error

        raise UnsupportedError(
            f"a row image lacks columns, which typed rows cannot represent: {PARTIAL_REMEDY}, and start after that; or "
            f"read the table through option tables and expand it with a column {ABSENT} (string)",
            table=table,
        )
    for field in batch.schema:
        if schema.get_field_index(field.name) < 0 and field.name not in META:
            raise SchemaChangedError(
                f"the log has a column {field.name}, which this query's schema lacks: restart the query, with a new"
                " checkpoint if the column was dropped or renamed",
                table=table,
                column=field.name,
            )
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if field.name == TABLE_COLUMN:
            arrays.append(_repeated(table, batch.num_rows))
        elif field.name == META[0] and images == "keys":
            op = batch.column(index)
            arrays.append(pc.if_else(pc.equal(op, "b"), "d", op))
        elif index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(_cast(batch.column(index), field, table))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(values: pa.Array, field: pa.Field, table: str) -> pa.Array:
    if values.type.equals(field.type):
        return values
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaChangedError(
            f"column {field.name} has become {values.type}, which does not fit the query's {field.type}: restart the "
            "query",
            table=table,
            column=field.name,
        ) from None
