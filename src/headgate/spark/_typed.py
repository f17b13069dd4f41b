"""A task as typed rows of one table. Runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headgate.carrier import ABSENT, META, TABLE_COLUMN, Redo, check_names, typed_batch
from headgate.catalog import TableDef
from headgate.columns import TableCodec, hooked_table
from headgate.errors import ChunkRetryError, ConfigError
from headgate.mysql import ConnectionSettings
from headgate.policies import Policies
from headgate.replication import ImageBatch, canonical_schema
from headgate.snapshot import ChunkOptions
from headgate.spark._read_task import ImagesWanted, read_task, table_now
from headgate.spark._tasks import Task

__all__ = ["find_table", "require_table", "typed_fields", "typed_rows"]


def typed_fields(table: TableDef, policies: Policies, *, meta: bool, report_absent: bool = False) -> list[pa.Field]:
    """Return the columns of typed rows; with ``report_absent`` also ``_absent``, at the end.

    :raises SchemaChangedError: a column of the table has the name of a meta column.
    """
    codec = TableCodec(table, policies)
    hook = hooked_table(codec.table, codec.fields, policies)
    columns = list(codec.fields if hook is None else hook.fields)
    absent = [pa.field(ABSENT, pa.string())] if report_absent else []
    check_names(table.full_name, (field.name for field in columns), (field.name for field in absent))
    if not meta:
        return columns + absent
    canonical = canonical_schema(table, columns)
    first = [canonical.field(name) for name in META]
    first[2] = pa.field(META[2], pa.string())
    return [*first, pa.field(TABLE_COLUMN, pa.string()), *columns, *absent]


def typed_rows(
    settings: ConnectionSettings, task: Task, table: str, schema: pa.Schema, images: ImagesWanted, options: ChunkOptions
) -> Iterator[pa.RecordBatch]:
    """Yield a task's rows of one table, in exactly ``schema``.

    :param options: with ``partial="tell"``, ``schema`` has a column ``_absent``: a row's unknown columns.
    :raises UnsupportedError: a row image leaves columns out, which typed rows cannot represent.
    :raises SchemaChangedError: the table has a column that the query's schema lacks, or another type.
    :raises ChunkRetryError: a chunk cannot be read as of this batch.
    """
    for item in read_task(settings, task, images, options):
        if isinstance(item, Redo):
            raise ChunkRetryError(f"a chunk cannot be read exactly: {item.reason}", table=item.chunk.table)
        if isinstance(item, ImageBatch) and item.table.full_name == table and item.batch.num_rows:
            yield typed_batch(item.batch, table, schema, images, with_absent=options.partial == "tell")


def find_table(settings: ConnectionSettings, name: str) -> TableDef:
    """Return the definition of ``db.table``.

    :raises ConfigError: it does not exist, or the user cannot see it.
    """
    return require_table(table_now(settings, name), name)


def require_table(table: TableDef | None, name: str) -> TableDef:
    """Return the table, if it exists.

    :raises ConfigError: it does not.
    """
    if table is not None:
        return table
    raise ConfigError(f"no table {name}: check the name (letter case counts) and that the user may SELECT from it")
