"""A task as carrier messages, for any tables. Runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import (
    CarriedColumn,
    DdlRow,
    Definition,
    End,
    Gatherer,
    HighWatermark,
    ImageFolder,
    Message,
    Redo,
    Signals,
    UnreadableRows,
    encode,
)
from headgate.catalog import AddedColumn, Column, ColumnChange, DroppedColumn, RedefinedColumn, TableDef
from headgate.columns import HookedTable, TableCodec, hooked_table, mysql_type, unmasked_names, written_name
from headgate.errors import HookError, UnreadableTableError, UnsupportedError
from headgate.mysql import ConnectionSettings
from headgate.names import split_table
from headgate.policies import DEFAULT, ColumnRule, Policies
from headgate.replication import Ddl, ImageBatch, RangeEnd, Stopped, canonical_schema
from headgate.snapshot import ChunkOptions, TableLocks
from headgate.spark._read_task import ImagesWanted, read_task, table_now
from headgate.spark._tasks import Task

__all__ = ["carrier_rows", "definition_of", "spark_type"]


def carrier_rows(
    settings: ConnectionSettings,
    task: Task,
    *,
    images: ImagesWanted,
    policies: Policies,
    folder: ImageFolder | None = None,
    locks: TableLocks | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a task's carrier rows.

    :param folder: gets large record batches of images; None: all are in rows.
    """
    if task.header is not None:
        yield encode(task.header)
    gathered = Gatherer("chunk" if task.log is None else "rows", folder)
    options = ChunkOptions(policies, locks=locks, ambiguous="stop")
    for item in read_task(settings, task, images, options):
        if isinstance(item, ImageBatch):
            image = item
            if not image.table.columns:
                yield encode(_truncate(image))
                image = _with_columns(settings, image, policies)
            definition = definition_of(image.table, image.batch.schema, policies, image.hook)
            yield from map(encode, gathered.add(image, definition))
        elif not isinstance(item, RangeEnd) or item.file:
            yield encode(_message(settings, item, task.epoch, policies))
    yield from map(encode, gathered.rest())


def _message(
    settings: ConnectionSettings,
    item: Ddl | Stopped | Redo | UnreadableRows | HighWatermark | Signals | RangeEnd,
    epoch: int,
    policies: Policies,
) -> Message:
    if isinstance(item, Ddl):
        return _ddl(settings, item, epoch, policies)
    if isinstance(item, Stopped):
        return UnreadableRows(item.table, item.reason, gtid=item.gtid, unknown=item.unknown)
    if isinstance(item, RangeEnd):
        return End(str(item.gtid), item.server_uuid, item.file, item.pos, item.created_s)
    return item


_DEFINED_AFTER = frozenset({"create", "alter", "rename"})
"""Actions after which the table exists, under its new name if it has one."""


def _ddl(settings: ConnectionSettings, ddl: Ddl, epoch: int, policies: Policies) -> DdlRow:
    name, changes = f"{ddl.db}.{ddl.table}", _changes(ddl, policies)
    schema, renames = None, ddl.renames
    moved = None if ddl.new_name is None else split_table(ddl.new_name)
    if ddl.action in _DEFINED_AFTER:
        table = table_now(settings, ddl.new_name or name)
        if moved is not None and table is not None:
            renames = tuple((column.name, column.name) for column in table.columns)
        schema = _schema_json(table, policies)
        if changes and _may_recompute(table, changes):
            changes = None
    return DdlRow(
        name,
        ddl.statement,
        ddl.action,
        (epoch, ddl.file_number, ddl.pos, ddl.ordinal),
        ddl.gtid,
        ddl.ts_us,
        ddl.new_name,
        changes,
        schema,
        tuple(unmasked_names(policies, ddl.db, ddl.table, renames, moved)),
    )


def _may_recompute(table: TableDef | None, changes: Sequence[ColumnChange]) -> bool:
    """Whether a new type may change what generated columns compute, or that is unknown: the table is gone."""
    retypes = any(isinstance(change, RedefinedColumn) and change.mysql is not None for change in changes)
    return retypes and (table is None or any(column.generated for column in table.columns))


def _changes(ddl: Ddl, policies: Policies) -> tuple[ColumnChange, ...] | None:
    """Return the columns that a statement changes in the target, or that a hook gets; None: rows may have changed.

    What a hook makes of other columns, or of the same under other names, is unknown.
    """
    changes = _ruled_changes(ddl, policies)
    if policies.of(f"{ddl.db}.{ddl.table}").hook is None or changes is None:
        return changes
    return changes if all(isinstance(one, RedefinedColumn) and one.keeps_names for one in changes) else None


def _ruled_changes(ddl: Ddl, policies: Policies) -> tuple[ColumnChange, ...] | None:
    """Return the columns that a statement changes in the target, by their names there; None: their values must be
    read.
    """
    if not ddl.changes:
        return ddl.changes
    written = partial(written_name, policies, ddl.db, ddl.table)
    changes: list[ColumnChange] = []
    for change in ddl.changes:
        ruled = _ruled_change(change, written)
        if ruled is None:
            return None
        changes += ruled
    return tuple(changes)


def _ruled_change(
    change: ColumnChange, written: Callable[[str], tuple[str, ColumnRule]]
) -> Sequence[ColumnChange] | None:
    """Return what a change of a column does to the target's column, if anything; None: its values must be read.

    :param written: a column's name in MySQL → its name in the target, and its rule.
    """
    name, rule = written(change.name)
    if isinstance(change, RedefinedColumn):
        if rule.kind == "exclude":
            return _ruled_change(AddedColumn(change.new_name, known=False), written)
        new_name, new_rule = written(change.new_name)
        if new_rule.kind == "exclude":
            return [DroppedColumn(name)]
        # RENAME COLUMN keeps the type, so a rule gives the same values under both names.
        has_other_values = replace(rule, name="") != replace(new_rule, name="")
        if has_other_values or (rule.kind != "keep" and change.mysql is not None):
            return None
        before, after = (old if old != new else "" for old, new in ((change.name, name), (change.new_name, new_name)))
        return [RedefinedColumn(name, new_name, change.mysql, before, after)]
    if rule.kind == "exclude":
        return ()
    if isinstance(change, AddedColumn) and rule.kind == "null":
        return [AddedColumn(name)]
    if isinstance(change, AddedColumn) and rule.kind not in ("keep", "boolean") and not change.is_null:
        return [AddedColumn(name, change.nullable, known=False)]
    return [replace(change, name=name)]


def _schema_json(table: TableDef | None, policies: Policies) -> str | None:
    """Return a table's definition as JSON, for sinks that change columns before a row with them arrives, and for
    messages about statements; None if the table is gone, or has a column that cannot be read.
    """
    try:
        if table is None:
            return None
        codec = TableCodec(table, policies)
        hook = hooked_table(codec.table, codec.fields, policies)
        return definition_of(codec.table, pa.schema(codec.fields), policies, hook).to_json()
    except (UnsupportedError, UnreadableTableError, HookError):
        return None


def _truncate(image: ImageBatch) -> DdlRow:
    """Return the statement behind a ``t`` image."""
    table, cells = image.table, image.batch.slice(0, 1).to_pylist()[0]
    seq = cells["_seq"]
    return DdlRow(
        table.full_name,
        f"TRUNCATE TABLE `{table.db}`.`{table.name}`",
        "truncate",
        (seq["epoch"], seq["file"], seq["pos"], seq["ordinal"]),
        cells["_gtid"],
        pc.cast(image.batch.column(3), pa.int64())[0].as_py(),
    )


def _with_columns(settings: ConnectionSettings, image: ImageBatch, policies: Policies) -> ImageBatch:
    """Return a ``t`` image with its table's present columns, all null; unchanged if the table is gone, or has a column
    now that cannot be read.
    """
    table = table_now(settings, image.table.full_name)
    if table is None:
        return image
    try:
        codec = TableCodec(replace(table, comment=None), policies)  # as other images of the log have it
    except (UnsupportedError, UnreadableTableError):
        return image
    hook = hooked_table(codec.table, codec.fields, policies)
    count, fields = image.batch.num_rows, codec.fields if hook is None else hook.fields
    nulls = [pa.nulls(count, field.type) for field in fields]
    schema = canonical_schema(codec.table, fields)
    return ImageBatch(codec.table, pa.RecordBatch.from_arrays([*image.batch.columns, *nulls], schema=schema), hook)


_DEFINITIONS: dict[tuple[Any, ...], Definition] = {}
"""By fingerprint, policy and Arrow types: one process may serve queries with different policies."""


def definition_of(
    table: TableDef, schema: pa.Schema, policies: Policies = DEFAULT, hook: HookedTable | None = None
) -> Definition:
    """Return the definition of a table whose images have this schema.

    :param table: as it is written, without its hook.
    :param hook: the table behind its hook, if it has one.
    """
    table_policies = policies.of(table.full_name)
    variant = table_policies.json == "variant"
    mark = hook.mark if hook is not None else ""
    unequal = [(column.rule, column.source_name, column.comment) for column in table.columns]
    about_table = table.fingerprint, table.has_chosen_key, table.comment, *unequal
    cache_key = about_table, variant, table_policies.rows, mark, *schema.types
    known = _DEFINITIONS.get(cache_key)
    if known is not None:
        return known

    comments = {column.name: column.comment for column in table.columns} if table.comment is not None else {}

    def carried(field: pa.Field, column: Column) -> CarriedColumn:
        return CarriedColumn(
            field.name,
            "variant" if variant and column.type == "json" and not column.rule else spark_type(field.type),
            column.mysql,
            column.nullable or column.rule == "null",
            column.rule,
            column.collation or "",
            column.source_name,
            comments.get(column.name, ""),  # a hook may have been called with an equal table from the log
        )

    if hook is None:
        columns = tuple(carried(schema.field(column.name), column) for column in table.columns)
    else:
        columns = tuple(
            carried(field, hook.sources[field.name])
            if field.name in hook.sources
            else CarriedColumn(field.name, spark_type(field.type), mysql_type(field.type))
            for field in hook.fields
        )
    if len(_DEFINITIONS) >= 10_000:
        _DEFINITIONS.clear()
    definition = _DEFINITIONS[cache_key] = Definition(
        table.full_name,
        table.key_names,
        columns,
        table_policies.rows,
        table.has_chosen_key,
        mark,
        tuple((one.name, one.mysql, one.collation or "") for one in table.columns) if hook is not None else (),
        table.comment,
    )
    return definition


def spark_type(kind: pa.DataType) -> str:
    """Return Spark's short name of an Arrow type, such as ``decimal(20,0)``."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()
