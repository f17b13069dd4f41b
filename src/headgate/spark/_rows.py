"""What a task hands to Spark: carrier rows of any tables, or typed rows of one. Runs in Spark's Python workers.

Images of one table definition are gathered into larger record batches before they become carrier rows; their order in
the log is in ``_seq`` and is kept inside a batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate._changes import count_changes
from headgate._policies import DEFAULT, Policies
from headgate.catalog import TableDef, TablePatterns, exact_pattern, load_table
from headgate.columns import TableCodec
from headgate.control import inserted_rows
from headgate.errors import ChunkRetryError, ConfigError, SchemaChangedError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings
from headgate.offsets import Hint
from headgate.replication import (
    ABSENT_FIELD,
    PARTIAL_REMEDY,
    Ddl,
    ImageBatch,
    LogBlock,
    LogHint,
    RangeEnd,
    Stopped,
    canonical_schema,
    file_number,
    read_range,
)
from headgate.snapshot import HighWatermark, Redo, TableLocks, read_chunks
from headgate.spark._progress import TaskProgress
from headgate.spark._tasks import Task, Unread

__all__ = [
    "CARRIER",
    "META",
    "carrier_rows",
    "existing",
    "find_table",
    "read_task",
    "schema_json",
    "spark_type",
    "typed_batch",
    "typed_fields",
    "typed_rows",
    "without_unread",
]

CARRIER = pa.schema(
    [
        pa.field("_table", pa.string()),
        pa.field("_kind", pa.string()),
        pa.field("_schema", pa.string()),
        pa.field("_count", pa.int64()),
        pa.field("_data", pa.binary()),
    ]
)
"""The carrier: see docs/architecture.md, "The carrier"."""
META = ("_op", "_seq", "_gtid", "_ts", "_table")
"""Columns of typed rows before the table's own."""

_GATHER_ROWS = 1 << 17
_GATHER_BYTES = 16 << 20
_ALL_BYTES = 128 << 20
"""Over all tables: bounds a task's memory."""

Images = Literal["all", "keys"]


@dataclass(frozen=True)
class Inserted:
    """Rows that were inserted into the signal table: ``headgate.control.inserted_rows``."""

    table: str
    rows: list[dict[str, Any]]


def read_task(
    settings: ConnectionSettings,
    task: Task,
    *,
    images: Images,
    policies: Policies,
    ambiguous: Literal["raise", "stop"] = "raise",
    locks: TableLocks | None = None,
    partial: Literal["refuse", "tell"] = "refuse",
    truncate: Literal["keep", "redo"] = "redo",
    progress: TaskProgress | None = None,
) -> Iterator[ImageBatch | Ddl | Stopped | Redo | HighWatermark | Inserted | RangeEnd]:
    """Everything of a task: images (those of unread ranges left out), statements, signals, what becomes of chunks.

    :param ambiguous: tables whose columns nobody knows, and keys that cannot be told from others: an error, or a
        ``Stopped`` in place of the images, an unreadable ``Redo`` in place of a chunk.
    :param locks: how chunks lock their tables, if at all.
    :param partial: rows of chunks of which an image tells only a part: see ``read_chunks``.
    :param truncate: tables that are truncated while chunks are read: see ``read_chunks``.
    :param progress: told what has been read.
    """
    executed, progress = GtidSet.parse(task.executed), progress or TaskProgress()
    if task.log is not None:
        signals = _SignalTable(task.log.signal_table, TablePatterns(task.patterns))
        unread = {item.table: item for item in task.log.unread}
        for item in read_range(
            settings, GtidSet.parse(task.log.wanted), executed=executed, server_uuid=task.server_uuid,
            tables=signals.read, epoch=task.epoch, hint=_hint(task.log.hint), images=images,
            policies=policies, ambiguous=ambiguous,
        ):  # fmt: skip
            if isinstance(item, LogBlock):
                for image in item.images:
                    yield from signals.inserted(image)
                    if signals.follows(image.table.full_name):
                        rest = without_unread(image, unread.get(image.table.full_name))
                        if rest is not None:
                            progress.changes(image.table.full_name, count_changes(rest.batch))
                            yield rest
            elif isinstance(item, RangeEnd):
                if task.log.is_last:
                    yield item
            else:
                yield from signals.others(item)
    yield from read_chunks(
        settings, task.chunks, executed=executed, server_uuid=task.server_uuid, epoch=task.epoch,
        planned_us=task.planned_us, hint=_hint(task.hint), first_ordinal=task.first_ordinal, policies=policies,
        locks=locks, partial=partial, truncate=truncate, ambiguous=ambiguous, on_rows=progress.rows,
    )  # fmt: skip


class _SignalTable:
    """What becomes of the signal table's part of the log: its inserts are signals, and if it is none of the stream's
    tables, nothing else of it goes on.
    """

    def __init__(self, name: str | None, followed: TablePatterns) -> None:
        self._name, self._followed = name, followed
        self.read = followed if name is None else TablePatterns([*followed.patterns, exact_pattern(name)])

    def follows(self, table: str) -> bool:
        """Whether ``db.table`` is one of the stream's tables."""
        return table != self._name or self._followed.matches(*table.split(".", 1))

    def inserted(self, image: ImageBatch) -> Iterator[Inserted]:
        if image.table.full_name == self._name and image.table.columns:
            rows = inserted_rows(image.batch)
            if rows:
                yield Inserted(image.table.full_name, rows)

    def others(self, item: Ddl | Stopped) -> Iterator[Ddl | Stopped | Inserted]:
        """Statements, and images that nobody can read."""
        name = item.table if isinstance(item, Stopped) else f"{item.db}.{item.table}"
        if isinstance(item, Stopped) and name == self._name:
            place = {"gtid": item.gtid, "seq": [file_number(item.file), item.pos, 0], "ts_us": 0}
            yield Inserted(name, [{**place, "problem": item.reason}])
        renamed = isinstance(item, Ddl) and item.new_name is not None and self.follows(item.new_name)
        if self.follows(name) or renamed:
            yield item


def _hint(hint: Hint | None) -> LogHint | None:
    return None if hint is None else LogHint(hint.server_uuid, hint.file, hint.pos)


# --- changes of ranges that a later chunk brings


def without_unread(image: ImageBatch, unread: Unread | None) -> ImageBatch | None:
    """Leave out images of keys that were unread before this batch; None: nothing is left.

    Both images of an update are looked at by themselves. A before-image whose after-image moved into an unread range
    becomes a delete; one whose after-image is partial stays with it.
    """
    if unread is None:
        return image
    if not unread.started:
        return None
    names = image.table.key_names
    if len(names) != 1:
        return image
    key = image.batch.column(image.batch.schema.get_field_index(names[0]))
    if not (pa.types.is_integer(key.type) or pa.types.is_decimal(key.type)):
        return image  # the table has another key than when it was planned, and the sinks hold it
    keep = np.zeros(image.batch.num_rows, np.bool_)
    if unread.max is not None:
        keep |= _mask(pc.greater(key, _bound(unread.max, key.type)))
    if unread.hi is not None:
        keep |= _mask(pc.less_equal(key, _bound(unread.hi, key.type)))
    if keep.all():
        return image
    if not keep.any():
        return None
    batch = image.batch
    keep |= _moved_partial(image, keep)
    before = _mask(pc.equal(batch.column(0), "b"))
    lonely = before & ~np.append(keep[1:], False)
    if lonely.any():
        op = pc.if_else(pa.array(lonely), "d", batch.column(0))
        batch = batch.set_column(0, batch.schema.field(0), op)
    return ImageBatch(image.table, batch.filter(pa.array(keep)))


def _moved_partial(image: ImageBatch, keep: Any) -> Any:
    """bool[images]: before-images to keep all the same, because the after-image leaves columns out: it is of use only
    beside the row at its old key, and that this one is not there yet has to be seen.
    """
    index = image.batch.schema.get_field_index(ABSENT_FIELD.name)
    if index < 0:
        return np.zeros(len(keep), np.bool_)
    partial = np.asarray(image.batch.column(index).is_valid()) & _mask(pc.equal(image.batch.column(0), "u"))
    return np.append(partial[1:] & keep[1:], False)


def _mask(values: Any) -> Any:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _bound(value: int, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(value), kind) if pa.types.is_decimal(kind) else pa.scalar(value, pa.int64())


# --- the carrier


def carrier_rows(
    settings: ConnectionSettings,
    task: Task,
    *,
    images: Images,
    policies: Policies,
    locks: TableLocks | None = None,
    progress: TaskProgress | None = None,
) -> Iterator[pa.RecordBatch]:
    """A task's carrier rows.

    :param progress: told what has been read.
    """
    if task.header is not None:
        yield _row(None, "batch", None, 0, task.header.encode())
    gathered = _Gatherer("chunk" if task.log is None else "rows", policies)
    for item in read_task(
        settings, task, images=images, policies=policies, ambiguous="stop", locks=locks, progress=progress
    ):
        if isinstance(item, ImageBatch):
            image = item
            if not image.table.columns:
                yield _truncate_row(image)
                image = _with_columns(settings, image, policies)
            yield from gathered.add(image)
        elif isinstance(item, Ddl):
            yield _ddl_row(settings, item, task.epoch, policies)
        elif isinstance(item, Stopped):
            yield _stop_row(item.table, item.reason, gtid=item.gtid)
        elif isinstance(item, Inserted):
            yield _row(item.table, "signal", None, len(item.rows), json.dumps(item.rows).encode())
        elif isinstance(item, Redo):
            if item.unreadable:
                yield _stop_row(item.chunk.table, item.reason, chunk=item.chunk.number)
            else:
                yield _row(item.chunk.table, "redo", None, 0, item.to_json().encode())
        elif isinstance(item, HighWatermark):
            yield _row(item.table, "watermark", None, 0, json.dumps({"gtid": str(item.gtid)}).encode())
        elif item.file:
            value = {"server_uuid": item.server_uuid, "file": item.file, "pos": item.pos, "gtid": str(item.gtid)}
            yield _row(None, "end", None, 0, json.dumps(value).encode())
    yield from gathered.rest()


class _Gatherer:
    """Joins record batches of one table definition until they are worth a row; those with partial images apart."""

    def __init__(self, kind: str, policies: Policies) -> None:
        self._kind = kind
        self._policies = policies
        self._waiting: dict[tuple[str, str, bool], list[ImageBatch]] = {}
        self._rows: dict[tuple[str, str, bool], int] = {}
        self._bytes: dict[tuple[str, str, bool], int] = {}

    def add(self, image: ImageBatch) -> Iterator[pa.RecordBatch]:
        if not image.table.columns:
            return
        name = (image.table.full_name, image.table.fingerprint, ABSENT_FIELD.name in image.batch.schema.names)
        self._waiting.setdefault(name, []).append(image)
        self._rows[name] = self._rows.get(name, 0) + image.batch.num_rows
        self._bytes[name] = self._bytes.get(name, 0) + image.batch.nbytes
        if self._rows[name] >= _GATHER_ROWS or self._bytes[name] >= _GATHER_BYTES:
            yield self._take(name)
        elif sum(self._bytes.values()) >= _ALL_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        for name in list(self._waiting):
            yield self._take(name)

    def _take(self, name: tuple[str, str, bool]) -> pa.RecordBatch:
        images = self._waiting.pop(name)
        count = self._rows.pop(name)
        del self._bytes[name]
        batch = images[0].batch if len(images) == 1 else _joined([image.batch for image in images])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return _row(
            name[0], self._kind, schema_json(images[0].table, batch.schema, self._policies), count, sink.getvalue()
        )


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    whole = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    found: list[pa.RecordBatch] = whole.to_batches() or batches[:1]
    if len(found) != 1:
        raise ValueError(f"{len(found)} record batches where one was gathered")
    return found[0]


def _row(table: str | None, kind: str, schema: str | None, count: int, data: Any) -> pa.RecordBatch:
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    offsets = pa.py_buffer(np.array([0, buffer.size], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, buffer])
    texts = [pa.array([text], pa.string()) for text in (table, kind, schema)]
    return pa.RecordBatch.from_arrays([*texts, pa.array([count], pa.int64()), column], schema=CARRIER)


def _stop_row(table: str, reason: str, **place: Any) -> pa.RecordBatch:
    return _row(table, "stop", None, 0, json.dumps({"reason": reason, **place}).encode())


def _ddl_row(settings: ConnectionSettings, ddl: Ddl, epoch: int, policies: Policies) -> pa.RecordBatch:
    name = f"{ddl.db}.{ddl.table}"
    value = {
        "statement": ddl.statement, "action": ddl.action, "seq": [epoch, ddl.file_number, ddl.pos, ddl.ordinal],
        "gtid": ddl.gtid, "ts": ddl.ts_us, "db": ddl.db, "table": ddl.table, "new_name": ddl.new_name,
        "adds": None if ddl.adds is None else [asdict(column) for column in ddl.adds],
        "schema": _schema_now(settings, name, policies) if ddl.adds else None,
    }  # fmt: skip
    return _row(name, "ddl", None, 1, json.dumps(value).encode())


def _schema_now(settings: ConnectionSettings, name: str, policies: Policies) -> str | None:
    """What a table looks like now, for sinks that add columns before a row with them comes; None: it is gone, or has
    a column that cannot be read.
    """
    table = _table_now(settings, name)
    try:
        return None if table is None else schema_json(table, pa.schema(TableCodec(table, policies).fields), policies)
    except UnsupportedError:
        return None


def _table_now(settings: ConnectionSettings, name: str) -> TableDef | None:
    with Connection.open(settings) as connection:
        db, _, table = name.partition(".")
        found = load_table(connection.query, db, table)
    return found.table if found is not None else None


def _truncate_row(image: ImageBatch) -> pa.RecordBatch:
    """The statement behind a ``t`` image."""
    table, cells = image.table, image.batch.slice(0, 1).to_pylist()[0]
    seq = cells["_seq"]
    value = {
        "statement": f"TRUNCATE TABLE `{table.db}`.`{table.name}`", "action": "truncate",
        "seq": [seq["epoch"], seq["file"], seq["pos"], seq["ordinal"]], "gtid": cells["_gtid"],
        "ts": pc.cast(image.batch.column(3), pa.int64())[0].as_py(), "db": table.db, "table": table.name,
        "new_name": None, "adds": None, "schema": None,
    }  # fmt: skip
    return _row(table.full_name, "ddl", None, 1, json.dumps(value).encode())


def _with_columns(settings: ConnectionSettings, image: ImageBatch, policies: Policies) -> ImageBatch:
    """A ``t`` image with the columns that its table has now, all null; as it is if the table is gone."""
    table = _table_now(settings, image.table.full_name)
    if table is None:
        return image
    fields = TableCodec(table, policies).fields
    count = image.batch.num_rows
    nulls = [pa.nulls(count, field.type) for field in fields]
    schema = canonical_schema(table, fields)
    return ImageBatch(table, pa.RecordBatch.from_arrays([*image.batch.columns, *nulls], schema=schema))


_SCHEMAS: dict[tuple[Any, ...], str] = {}
"""By fingerprint, policy and Arrow types: one process may serve queries with different policies."""


def schema_json(table: TableDef, schema: pa.Schema, policies: Policies = DEFAULT) -> str:
    """The carrier's ``_schema`` of a canonical record batch."""
    variant = policies.of(table.full_name).json == "variant"
    which = table.fingerprint, variant, *schema.types
    known = _SCHEMAS.get(which)
    if known is not None:
        return known
    columns = [
        {
            "name": c.name, "mysql": c.mysql, "nullable": c.nullable,
            "spark": "variant" if variant and c.type == "json" else spark_type(schema.field(c.name).type),
        }
        for c in table.columns
    ]  # fmt: skip
    value = {
        "table": table.full_name, "fingerprint": table.common_fingerprint, "key": list(table.key_names),
        "columns": columns,
    }  # fmt: skip
    text = json.dumps(value, sort_keys=True)
    if len(_SCHEMAS) >= 10_000:
        _SCHEMAS.clear()
    _SCHEMAS[which] = text
    return text


def spark_type(kind: pa.DataType) -> str:
    """Spark's short name of an Arrow type, such as ``decimal(20,0)``."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()


# --- one table, typed


def typed_fields(table: TableDef, policies: Policies, *, meta: bool, tell: bool = False) -> list[pa.Field]:
    """The columns of typed rows; with ``tell`` also ``_absent``, at the end.

    :raises SchemaChangedError: a column of the table has the name of a meta column.
    """
    columns = list(TableCodec(table, policies).fields)
    absent = [pa.field(ABSENT_FIELD.name, pa.string())] if tell else []
    taken = [field.name for field in columns if field.name.lower() in {*META, *(field.name for field in absent)}]
    if taken:
        raise SchemaChangedError(
            f"column {taken[0]} has a name that headgate uses itself: rename it",
            table=table.full_name, column=taken[0],
        )  # fmt: skip
    if not meta:
        return columns + absent
    canonical = canonical_schema(table, columns)
    first = [canonical.field(name) for name in META[:-1]]
    first[2] = pa.field("_gtid", pa.string())
    return [*first, pa.field("_table", pa.string()), *columns, *absent]


def typed_rows(
    settings: ConnectionSettings,
    task: Task,
    table: str,
    schema: pa.Schema,
    *,
    images: Images,
    policies: Policies,
    locks: TableLocks | None = None,
    partial_rows: Literal["error", "tell"] = "error",
    truncate: Literal["keep", "redo"] = "redo",
) -> Iterator[pa.RecordBatch]:
    """A task's rows of one table, in exactly ``schema``.

    :param partial_rows: ``tell``: ``schema`` has a column ``_absent``, what nobody knows of a row.
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


def typed_batch(image: ImageBatch, schema: pa.Schema, images: Images, *, tell: bool = False) -> pa.RecordBatch:
    """Rows of one table in exactly ``schema``; ``tell`` and errors as for :func:`typed_rows`."""
    batch, name = image.batch, image.table.full_name
    if ABSENT_FIELD.name in batch.schema.names and not tell:
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
        if field.name == "_table":
            arrays.append(_repeated(name, batch.num_rows))
        elif field.name == "_op" and images == "keys":
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
    return existing(_table_now(settings, name), name)


def existing(table: TableDef | None, name: str) -> TableDef:
    """The table, if there is one.

    :raises ConfigError: there is none.
    """
    if table is not None:
        return table
    raise ConfigError(f"no table {name}: check the name (letter case counts) and that the user may SELECT from it")
