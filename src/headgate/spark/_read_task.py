"""Read everything of a task from the log and the tables. Runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import ABSENT, HighWatermark, Redo, Signals, UnreadableRows, check_names
from headgate.catalog import TableDef, TablePatterns, exact_pattern, load_table
from headgate.columns import hooked_table
from headgate.control import inserted_rows
from headgate.mysql import Connection, ConnectionSettings
from headgate.offsets import Last
from headgate.policies import Operation, Policies
from headgate.positions import parse_position
from headgate.replication import (
    Ddl,
    DecodeOptions,
    ImageBatch,
    LogBlock,
    LogRead,
    RangeEnd,
    Stopped,
    Transport,
    check_history,
    file_number,
    read_range,
)
from headgate.snapshot import ChunkOptions, ChunkRead, read_chunks
from headgate.spark._tasks import Task, Unread

__all__ = ["ImagesWanted", "hooked", "read_task", "table_now", "without_skipped", "without_unread"]

ImagesWanted: TypeAlias = Literal["all", "keys"]
"""``keys``: no before-image if the key does not change."""


def read_task(
    settings: ConnectionSettings, task: Task, images: ImagesWanted, options: ChunkOptions
) -> Iterator[ImageBatch | Ddl | Stopped | Redo | UnreadableRows | HighWatermark | Signals | RangeEnd]:
    """Yield everything of a task: images (except those of unread ranges), statements, signals, outcomes of chunks.

    :param options: how chunks are read. ``ambiguous`` is also for tables with unknown columns: raise, or yield a
        ``Stopped`` instead of the images.
    :raises HookError: a table's hook raised an exception, or broke its contract.
    :raises HistoryRewrittenError: at the end: the server no longer has the history that the batch was planned on.
    """
    for item in _read(settings, task, images, options):
        yield hooked(item, options.policies) if isinstance(item, ImageBatch) else item


def _read(
    settings: ConnectionSettings, task: Task, images: ImagesWanted, options: ChunkOptions
) -> Iterator[ImageBatch | Ddl | Stopped | Redo | UnreadableRows | HighWatermark | Signals | RangeEnd]:
    """Yield everything of a task, with the columns that the tables have at MySQL."""
    executed = parse_position(task.executed)
    met: tuple[Last | None, ...] = ()
    if task.log is not None:
        signals = _SignalTable(task.log.signal_table, TablePatterns(task.patterns))
        unread = {item.table: item for item in task.log.unread}
        for item in read_range(
            LogRead(
                settings,
                wanted=parse_position(task.log.wanted),
                executed=executed,
                server_uuid=task.server_uuid,
                hint=task.log.hint,
            ),
            DecodeOptions(
                signals.read, epoch=task.epoch, images=images, policies=options.policies, ambiguous=options.ambiguous
            ),
        ):
            if isinstance(item, LogBlock):
                for image in item.images:
                    yield from signals.inserted(image)
                    name = image.table.full_name
                    if signals.follows(name):
                        # Operations first: without_unread makes deletes of updates.
                        left = without_skipped(image, options.policies.of(name).skip)
                        remaining = without_unread(left, unread.get(name)) if left is not None else None
                        if remaining is not None:
                            yield remaining
            elif isinstance(item, RangeEnd):
                met = item.first, item.last
                if task.log.is_last:
                    yield item
            else:
                yield from signals.others(item)
    yield from task.redo
    read = ChunkRead(
        settings,
        task.chunks,
        executed,
        task.server_uuid,
        epoch=task.epoch,
        planned_us=task.planned_us,
        hint=task.hint,
        first_ordinal=task.first_ordinal,
    )
    yield from read_chunks(read, options)
    if task.last is not None and task.last not in met and (task.log is not None or task.chunks):
        log = LogRead(settings, had_by=None if task.hint is None else task.hint.server_uuid)
        Transport().retry.call(partial(check_history, log, task.last, hint=task.hint))


def hooked(image: ImageBatch, policies: Policies) -> ImageBatch:
    """Return images with the columns that their table's hook makes; unchanged without a hook.

    Everything that is read for a target goes through here, from the log, from chunks and for ``headgate verify``.

    :param image: whole rows; without columns (a TRUNCATE), it stays as it is.
    :param policies: those of all tables.
    :raises HookError: the hook raised an exception, or broke its contract.
    :raises SchemaChangedError: it returned a column with a name that headgate uses itself.
    """
    schema, first = image.batch.schema, image.batch.num_columns - len(image.table.columns)
    inputs = [schema.field(index) for index in range(first, len(schema))]
    hook = hooked_table(image.table, inputs, policies) if inputs else None
    if hook is None:
        return image
    check_names(image.table.full_name, [field.name for field in hook.fields], [ABSENT])
    meta = image.batch.columns[:first]
    fields = [*(schema.field(index) for index in range(first)), *hook.fields]
    columns = [*meta, *hook.apply(image.batch.columns[first:])]
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=schema.metadata))
    return ImageBatch(image.table, batch, hook)


class _SignalTable:
    """Handles the signal table's part of the log: its inserts are signals. Its changes are passed on only if the stream
    follows it.
    """

    def __init__(self, name: str | None, followed: TablePatterns) -> None:
        self._name, self._followed = name, followed
        self.read = followed if name is None else TablePatterns([*followed.patterns, exact_pattern(name)])

    def follows(self, table: str) -> bool:
        """Whether ``db.table`` is one of the stream's tables."""
        return table != self._name or self._followed.matches(*table.split(".", 1))

    def inserted(self, image: ImageBatch) -> Iterator[Signals]:
        if image.table.full_name == self._name and image.table.columns:
            rows = inserted_rows(image.batch)
            if rows:
                yield Signals(image.table.full_name, rows)

    def others(self, item: Ddl | Stopped) -> Iterator[Ddl | Stopped | Signals]:
        """Pass on statements and unreadable images; unreadable images of the signal table become a problem."""
        name = item.table if isinstance(item, Stopped) else f"{item.db}.{item.table}"
        if isinstance(item, Stopped) and name == self._name:
            position = {"gtid": item.gtid, "seq": [file_number(item.file), item.pos, 0], "ts_us": 0}
            yield Signals(name, [{**position, "problem": item.reason}])
        renamed = isinstance(item, Ddl) and item.new_name is not None and self.follows(item.new_name)
        if self.follows(name) or renamed:
            yield item


# --- operations that are left out

_OPS: Final[dict[Operation, str]] = {"insert": "c", "update": "bu", "delete": "d", "truncate": "t"}


def without_skipped(image: ImageBatch, skip: Sequence[Operation]) -> ImageBatch | None:
    """Leave out the images of these operations; None: nothing is left."""
    if not skip:
        return image
    letters = pa.array([letter for operation in skip for letter in _OPS[operation]])
    batch = image.batch.filter(pc.invert(pc.is_in(image.batch.column(0), letters)))
    return ImageBatch(image.table, batch) if batch.num_rows else None


# --- changes of ranges that a later chunk brings


def without_unread(image: ImageBatch, unread: Unread | None) -> ImageBatch | None:
    """Leave out images of keys that were unread before this batch; None: nothing is left.

    The two images of an update are judged separately. A before-image whose after-image moved into an unread range
    becomes a delete. A before-image whose after-image is partial stays with it.
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
        return image  # the table's key changed since planning, and the sinks suspend the table
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
    unpaired = before & ~np.append(keep[1:], False)
    if unpaired.any():
        op = pc.if_else(pa.array(unpaired), "d", batch.column(0))
        batch = batch.set_column(0, batch.schema.field(0), op)
    return ImageBatch(image.table, batch.filter(pa.array(keep)))


def _moved_partial(image: ImageBatch, keep: Any) -> Any:
    """Return bool[images]: before-images to keep although their key is unread, because the after-image leaves columns
    out. It needs the row at its old key, and the sink has to see that this row does not exist yet.
    """
    index = image.batch.schema.get_field_index(ABSENT)
    if index < 0:
        return np.zeros(len(keep), np.bool_)
    partial = np.asarray(image.batch.column(index).is_valid()) & _mask(pc.equal(image.batch.column(0), "u"))
    return np.append(partial[1:] & keep[1:], False)


def _mask(values: Any) -> Any:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _bound(value: int, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(value), kind) if pa.types.is_decimal(kind) else pa.scalar(value, pa.int64())


def table_now(settings: ConnectionSettings, name: str) -> TableDef | None:
    """Return the present definition of ``db.table``; None if there is no such table."""
    with Connection.open(settings) as connection:
        db, _, table = name.partition(".")
        named = load_table(connection.query, db, table)
    return named.table if named is not None else None
