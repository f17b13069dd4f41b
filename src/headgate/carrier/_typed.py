"""From images to typed rows: one table's columns in one schema, whatever columns its images had. No Spark in here.

Columns meet by name. What a row's own definition lacked is null; what the schema lacks stops the reader, because a
value would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier._images import ABSENT, META, Images, open_images
from headgate.carrier._messages import Redo, Stop
from headgate.carrier._wire import TABLE_COLUMN, open_rows
from headgate.errors import ChunkRetryError, SchemaChangedError, UnsupportedError

__all__ = ["check_names", "typed_batch", "typed_images"]


def check_names(table: str, columns: Iterable[str], own: Iterable[str] = ()) -> None:
    """Refuse a table with a column that has the name of one of headgate's.

    :param own: columns of headgate's beside those that each typed row has.
    :raises SchemaChangedError: there is one.
    """
    taken = {*META, TABLE_COLUMN, *own}
    for name in columns:
        if name.lower() in taken:
            raise SchemaChangedError(
                f"column {name} has a name that headgate uses itself: rename it", table=table, column=name
            )


def typed_images(rows: Iterator[pa.RecordBatch], table: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All images of one table in the stream's rows, each update with its before-image.

    :param schema: the rows' columns; with ``_absent`` it takes partial images.
    :raises ChunkRetryError: a chunk of the table was left out of the stream.
    :raises UnsupportedError: images of the table were left out of the stream, or leave columns out.
    :raises SchemaChangedError: an image has a column that the schema lacks, or another type.
    """
    tell = ABSENT in schema.names
    for batch in rows:
        for message in open_rows(batch):
            match message:
                case Redo(reason=reason):
                    raise ChunkRetryError(
                        f"a chunk of the table is missing: {reason}; ask for it again by a signal and leave out rows of"
                        " kind redo",
                        table=table,
                    )
                case Stop(reason=reason, gtid=gtid):
                    raise UnsupportedError(f"rows of the table are missing: {reason}", table=table, gtid=gtid)
                case Images(data=data):
                    for images in open_images([data]):
                        check_names(table, images.schema.names[len(META) :])
                        yield typed_batch(images, table, schema, "all", tell=tell)


@lru_cache(maxsize=4)
def _repeated(name: str, rows: int) -> pa.Array:
    """The column ``_table``; most batches of a task are equally long."""
    return pa.repeat(pa.scalar(name), rows)


def typed_batch(
    batch: pa.RecordBatch, table: str, schema: pa.Schema, images: Literal["all", "keys"], *, tell: bool = False
) -> pa.RecordBatch:
    """Images of one table in exactly ``schema``.

    :param table: ``db.table``
    :param images: ``keys``: the before-image of a changed key becomes a ``d`` of it.
    :param tell: ``schema`` has a column ``_absent``: a row's unknown columns.
    :raises UnsupportedError: a row image leaves columns out, for which there is no ``_absent``.
    :raises SchemaChangedError: a column that the schema lacks, or another type.
    """
    if ABSENT in batch.schema.names and not tell:
        from headgate.replication import PARTIAL_REMEDY  # numba loads only where there is something to refuse

        raise UnsupportedError(
            f"a row image leaves columns out, which typed rows cannot say: {PARTIAL_REMEDY}, and begin after that; or "
            f"read the table through option tables and expand it with a column {ABSENT} (string)",
            table=table,
        )
    for field in batch.schema:
        if schema.get_field_index(field.name) < 0 and field.name not in META:
            raise SchemaChangedError(
                f"the log has a column {field.name}, which this query's schema lacks: start the query again; with a new"
                " checkpoint if the column was dropped or got another name",
                table=table,
                column=field.name,
            )
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if field.name == TABLE_COLUMN:
            arrays.append(_repeated(table, batch.num_rows))
        elif field.name == META[0] and images == "keys":
            op = batch.column(0)
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
            f"column {field.name} has become {values.type}, which does not fit the query's {field.type}: start the "
            "query again",
            table=table,
            column=field.name,
        ) from None
