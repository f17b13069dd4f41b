"""A task as typed rows of one table. Runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headgate._policies import Policies
from headgate.carrier import ABSENT, META, TABLE_COLUMN, Redo
from headgate.catalog import TableDef
from headgate.columns import TableCodec
from headgate.errors import ChunkRetryError, ConfigError, SchemaChangedError, UnsupportedError
from headgate.mysql import ConnectionSettings
from headgate.replication import PARTIAL_REMEDY, ImageBatch, canonical_schema
from headgate.snapshot import TableLocks
from headgate.spark._read_task import ImagesWanted, read_task, table_now
from headgate.spark._tasks import Task

__all__ = ["existing", "find_table", "typed_batch", "typed_fields", "typed_rows"]


def typed_fields(table: TableDef, policies: Policies, *, meta: bool, tell: bool = False) -> list[pa.Field]:
    """The columns of typed rows; with ``tell`` also ``_absent``, at the end.

    :raises SchemaChangedError: a column of the table has the name of a meta column.
    """
    columns = list(TableCodec(table, policies).fields)
    absent = [pa.field(ABSENT, pa.string())] if tell else []
    taken = [
        field.name
        for field in columns
        if field.name.lower() in {*META, TABLE_COLUMN, *(field.name for field in absent)}
    ]
    if taken:
        raise SchemaChangedError(
            f"column {taken[0]} has a name that headgate uses itself: rename it",
            table=table.full_name, column=taken[0],
        )  # fmt: skip
    if not meta:
        return columns + absent
    canonical = canonical_schema(table, columns)
    first = [canonical.field(name) for name in META]
    first[2] = pa.field(META[2], pa.string())
    return [*first, pa.field(TABLE_COLUMN, pa.string()), *columns, *absent]


def typed_rows(
    settings: ConnectionSettings,
    task: Task,
    table: str,
    schema: pa.Schema,
    *,
    images: ImagesWanted,
    policies: Policies,
    locks: TableLocks | None = None,
    partial_rows: Literal["error", "tell"] = "error",
    truncate: Literal["keep", "redo"] = "redo",
) -> Iterator[pa.RecordBatch]:
    """A task's rows of one table, in exactly ``schema``.

    :param partial_rows: ``tell``: ``schema`` has a column ``_absent``: a row's unknown columns.
    :param truncate: tables that are truncated while chunks are read: see ``read_chunks``.
    :raises UnsupportedError: a row image leaves columns out, for which typed rows have no place.
    :raises SchemaChangedError: the table has a column that the query's schema lacks, or another type.
    :raises ChunkRetryError: a chunk cannot be read as of this batch.
    """
    tell = partial_rows == "tell"
    for item in read_task(
        settings, task, images=images, policies=policies, locks=locks, partial="tell" if tell else "refuse",
        truncate=truncate,
    ):  # fmt: skip
        if isinstance(item, Redo):
            raise ChunkRetryError(
                f"a chunk cannot be read exactly: {item.reason}; start the query again: a stream with a new checkpoint,"
                " a batch as of a later set",
                table=item.chunk.table,
            )
        if isinstance(item, ImageBatch) and item.table.full_name == table and item.batch.num_rows:
            yield typed_batch(item, schema, images, tell=tell)


@lru_cache(maxsize=4)
def _repeated(name: str, rows: int) -> pa.Array:
    """The column ``_table``; most batches of a task are equally long."""
    return pa.repeat(pa.scalar(name), rows)


def typed_batch(image: ImageBatch, schema: pa.Schema, images: ImagesWanted, *, tell: bool = False) -> pa.RecordBatch:
    """Rows of one table in exactly ``schema``; ``tell`` and errors as for :func:`typed_rows`."""
    batch, name = image.batch, image.table.full_name
    if ABSENT in batch.schema.names and not tell:
        raise UnsupportedError(
            f"a row image leaves columns out, which typed rows cannot say: {PARTIAL_REMEDY}, and begin after that; or "
            "read the table through option tables, whose batches say it",
            table=name,
        )
    for field in batch.schema:
        if schema.get_field_index(field.name) < 0 and field.name not in META:
            raise SchemaChangedError(
                f"the log has a column {field.name}, which this query's schema lacks: start the query again; with a new"
                " checkpoint if the column was dropped or got another name",
                table=name, column=field.name,
            )  # fmt: skip
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if field.name == TABLE_COLUMN:
            arrays.append(_repeated(name, batch.num_rows))
        elif field.name == META[0] and images == "keys":
            op = batch.column(0)
            arrays.append(pc.if_else(pc.equal(op, "b"), "d", op))
        elif index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            arrays.append(_cast(batch.column(index), field, name))
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
            table=table, column=field.name,
        ) from None  # fmt: skip


def find_table(settings: ConnectionSettings, name: str) -> TableDef:
    """The definition of ``db.table``.

    :raises ConfigError: it does not exist, or cannot be seen.
    """
    return existing(table_now(settings, name), name)


def existing(table: TableDef | None, name: str) -> TableDef:
    """The table, if there is one.

    :raises ConfigError: there is none.
    """
    if table is not None:
        return table
    raise ConfigError(f"no table {name}: check the name (letter case counts) and that the user may SELECT from it")
