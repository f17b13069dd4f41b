"""The executors: tasks become messages, by the rules of ``headgate.replication`` and ``headgate.snapshot``.

Sockets and bytes are not simulated. The contracts of what reads them are: a range of the log is complete or an error; a
chunk's SELECT sees the visible rows; its window reaches from E to the end of the log after the SELECT. The window
(``headgate.snapshot.Window``) and what is left out of unread ranges (``without_unread``) are headgate's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import DdlRow, End, HighWatermark, Images, Message, Redo
from headgate.errors import (
    BinlogPurgedError,
    ConnectionLostError,
    HistoryRewrittenError,
    IncompleteReadError,
    ServerBehindError,
)
from headgate.offsets import ChunkSpec, Hint, Last
from headgate.policies import Window as WindowRule
from headgate.positions import Position, parse_position
from headgate.snapshot import Window
from headgate.snapshot._reader import _moves_partly
from headgate.spark import LogRange, Task, Unread
from headgate.spark._read_task import without_unread
from tests.simulation.images import RowImage, RowImages, images_message
from tests.simulation.source import Server, gtids
from tests.simulation.tables import SHAPES, Row, Shape
from tests.simulation.world import World

__all__ = ["read_task", "readable"]

_SNAPSHOT: Final = (2**31 - 1, 2**63 - 1)
_ALL: Final = 1 << 60


def read_task(world: World, task: Task, rules: Mapping[str, WindowRule]) -> list[Message]:
    """Return everything of a task.

    :param rules: by table, what becomes of rows that change while a chunk is read.
    """
    messages: list[Message] = [] if task.header is None else [task.header]
    newest: Last | None = None
    if task.log is not None:
        logged, newest = _log(world, task, task.log)
        messages += logged
    messages += task.redo
    ordinal = task.first_ordinal
    for chunk in task.chunks:
        read = _chunk(world, task, chunk, ordinal, rules[chunk.table])
        messages += read
        ordinal += sum(one.count for one in read if isinstance(one, Images))
    if task.last is not None and task.last != newest and (task.log is not None or task.chunks):
        _check_history(world, task.last)
    return messages


def _check_history(world: World, last: Last) -> None:
    """Check that the server still has the newest transaction, or has purged it."""
    server = world.server
    indexes = server.indexes(parse_position(last.gtid))
    if not indexes:
        raise ServerBehindError("the server lacks the newest transaction of the batch", missing=last.gtid)
    if indexes[0] >= server.purged and server.log[indexes[0]].commit_us != last.ts_us:
        raise HistoryRewrittenError("the newest transaction of the batch has another commit time", gtid=last.gtid)


def _connect(world: World, task: Task) -> tuple[Server, int]:
    """Return the server, and the connection to it: the planned server, which has executed all of the batch."""
    world.pause()
    server = world.server
    if server.uuid != task.server_uuid:
        raise ServerBehindError("connected to another server than planned")
    missing = parse_position(task.executed) - server.executed_set()
    if missing:
        raise ServerBehindError("the server lacks transactions of the batch", missing=str(missing))
    return server, world.connection


def _still(world: World, connection: int) -> None:
    world.pause()
    if connection != world.connection:
        raise ConnectionLostError("the connection was lost")


# --- the log


def _log(world: World, task: Task, part: LogRange) -> tuple[list[Message], Last | None]:
    """Return a range of the log, and its newest transaction."""
    server, connection = _connect(world, task)
    wanted = parse_position(part.wanted)
    indexes = received(server, wanted, part.hint)
    if not _is_complete(server, wanted, indexes):
        indexes = received(server, wanted, None)  # the hint led elsewhere
    if not _is_complete(server, wanted, indexes):
        raise IncompleteReadError("the range is not complete")
    _still(world, connection)
    if any(index < server.purged for index in indexes):
        raise BinlogPurgedError("the log was purged", needed=part.wanted, purged=str(server.purged_set()))
    world.count("transaction delivered", len(indexes))
    unread = {item.table: item for item in part.unread}
    messages: list[Message] = []
    for table, images in sorted(_images(server, indexes, task.epoch).items()):
        left = _read(SHAPES[table], images, unread[table]) if table in unread else images
        if left:
            messages.append(images_message("rows", RowImages(SHAPES[table], left)))
    messages += _statements(server, indexes, task.epoch)
    if part.is_last and indexes:
        messages.append(End(task.executed, server.uuid, *server.file_of(indexes[-1] + 1)))
    newest = server.log[indexes[-1]] if indexes else None
    return messages, None if newest is None else Last(newest.gtid, newest.commit_us)


def _read(shape: Shape, images: Sequence[RowImage], unread: Unread) -> list[RowImage]:
    """Leave out images of keys that a later chunk brings. The decoder gives the image of a TRUNCATE by itself."""
    if not unread.started:
        return []
    rows = [one for one in images if one.op != "t"]
    left = without_unread(RowImages(shape, rows).image_batch, unread)
    kept = [] if left is None else list(RowImages.of(left).images)
    return sorted([*kept, *(one for one in images if one.op == "t")], key=lambda one: one.seq)


def received(server: Server, wanted: Position, hint: Hint | None) -> list[int]:
    """Return what a dump of this set brings: with a hint of this server, from there on."""
    begin = 0 if hint is None else _begin(server, hint)
    return [index for index in server.indexes(wanted) if index >= begin]


def _begin(server: Server, hint: Hint) -> int:
    """Return the first transaction at a hint; 0 if that is not of this server, or of another file."""
    if hint.server_uuid != server.uuid:
        return 0
    return server.index_at(hint.file, hint.pos, hint.created_s) or 0


def _is_complete(server: Server, wanted: Position, indexes: Sequence[int]) -> bool:
    """Return whether the received set is the wanted one."""
    del server
    return len(indexes) == wanted.transactions()


def readable(server: Server, wanted: Position) -> bool:
    """Return whether the server can deliver a set."""
    indexes = server.indexes(wanted)
    return _is_complete(server, wanted, indexes) and (not indexes or indexes[0] >= server.purged)


def _images(server: Server, indexes: Iterable[int], epoch: int) -> dict[str, list[RowImage]]:
    """Return the images of these transactions by table, in log order."""
    images: dict[str, list[RowImage]] = {}
    for index in indexes:
        one = server.log[index]
        if not one.images:
            continue
        number, pos = server.position_of(index)
        ordinal = 0
        for table, op, row, absent in one.images:
            image = RowImage(op, (epoch, number, pos, ordinal), one.gtid, one.commit_us, row, absent)
            images.setdefault(table, []).append(image)
            ordinal += op != "b"
    return images


def _statements(server: Server, indexes: Iterable[int], epoch: int) -> list[DdlRow]:
    rows = []
    for index in indexes:
        one = server.log[index]
        if one.statement is not None:
            action, table = one.statement
            number, pos = server.position_of(index)
            schema = SHAPES[table].carried_json if action in ("create", "alter") else None
            text = f"{action.upper()} TABLE {table}"
            rows.append(DdlRow(table, text, action, (epoch, number, pos, 0), one.gtid, one.commit_us, schema=schema))
    return rows


# --- chunks


def _chunk(
    world: World, task: Task, chunk: ChunkSpec, ordinal: int, rule: WindowRule
) -> list[Images | Redo | HighWatermark]:
    """Return a chunk: as of E, or with the watermark from which on it is exact."""
    server, connection = _connect(world, task)
    table, shape = chunk.table, SHAPES[chunk.table]
    world.count("chunk read begun")
    view = server.states[server.visible].get(table)
    if view is None:
        return [Redo(chunk, "the table does not exist", whole_table=True)]
    low = int(chunk.lo[0]) if chunk.lo is not None else -_ALL
    high = int(chunk.hi[0]) if chunk.hi is not None else _ALL
    selected = shape.select(view, low, high)
    _still(world, connection)
    begin, end = server.length_of(parse_position(task.executed)), len(server.log)
    _still(world, connection)
    if begin < server.purged:
        raise BinlogPurgedError("the window was purged", needed=task.executed, purged=str(server.purged_set()))
    world.count("chunk read ended")
    if any(one.statement is not None and one.statement[1] == table for one in server.log[begin:end]):
        return [Redo(chunk, "a statement changed the table while the chunk was read")]
    changes = _images(server, range(begin, end), task.epoch).get(table)
    more: list[HighWatermark] = []
    if changes is not None:
        window = RowImages(shape, changes)
        if not shape.has_key:
            return [Redo(chunk, "a table without a key was written while it was read")]
        if rule == "keep" and window.is_partial and _moves_partly(window.batch, ("id",)):
            return [Redo(chunk, "an update gave a row another key, in a partial row image")]
        if rule != "rewind":
            newest = server.log[end - 1]
            more = [HighWatermark(table, gtids(server.counts[end]), Last(newest.gtid, newest.commit_us))]
        if rule != "keep":
            selected = _without_window(shape, selected, window, low, high, drops=rule == "drop")
    images = [
        RowImage("r", (task.epoch, *_SNAPSHOT, ordinal + number), None, task.planned_us, row)
        for number, row in enumerate(selected)
    ]
    return [images_message("chunk", RowImages(shape, images)), *more]


def _without_window(
    shape: Shape, selected: Sequence[Row], images: RowImages, low: int, high: int, *, drops: bool
) -> list[Row]:
    """Return the rows rewound, or without those that changed."""
    window = Window(shape.definition, shape.rows)
    window.add(images.batch)

    def in_range(keys: pa.Table) -> Any:
        within = pc.and_(pc.greater(keys["id"], low), pc.less_equal(keys["id"], high))
        return np.asarray(within.combine_chunks()).astype(np.bool_)

    rows = pa.table([[row[index] for row in selected] for index in range(len(shape.columns))], schema=shape.rows)
    left = window.drop(rows) if drops else window.rewind(rows, in_range)
    return [*zip(*(column.to_pylist() for column in left.columns), strict=True)]
