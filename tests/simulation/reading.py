"""The executors: tasks become messages, by the rules of ``headgate.replication`` and ``headgate.snapshot``.

Sockets and bytes are not simulated. The contracts of what reads them are: a range of the log is complete or an error; a
chunk's SELECT sees the visible rows; its window reaches from E to the end of the log after the SELECT. The window
(``headgate.snapshot.Window``) and what is left out of unread ranges (``without_unread``) are headgate's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import DdlRow, End, Images, Message, Redo
from headgate.errors import BinlogPurgedError, ConnectionLostError, IncompleteReadError, ServerBehindError
from headgate.offsets import ChunkSpec, Hint
from headgate.positions import Position, parse_position
from headgate.replication import ImageBatch, canonical_schema, seq_array
from headgate.snapshot import Window
from headgate.spark import LogRange, Task
from headgate.spark._carried import definition_of
from headgate.spark._read_task import without_unread
from tests.simulation.planning import COLUMNS, definition
from tests.simulation.source import TABLES, Server
from tests.simulation.world import World

__all__ = ["read_task", "readable"]

_SCHEMAS: Final = {table: canonical_schema(definition(table), COLUMNS) for table in TABLES}
_ROWS: Final = pa.schema(COLUMNS)
_DEFINITIONS: Final = {table: definition_of(definition(table), _SCHEMAS[table]) for table in TABLES}
_SNAPSHOT: Final = (2**31 - 1, 2**63 - 1)


def read_task(world: World, task: Task) -> list[Message]:
    """Return everything of a task."""
    messages: list[Message] = [] if task.header is None else [task.header]
    if task.log is not None:
        messages += _log(world, task, task.log)
    ordinal = task.first_ordinal
    for chunk in task.chunks:
        read, rows = _chunk(world, task, chunk, ordinal)
        messages.append(read)
        ordinal += rows
    return messages


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


def _log(world: World, task: Task, part: LogRange) -> list[Message]:
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
    for table in TABLES:
        images = _images(server, table, indexes, task.epoch)
        rest = without_unread(ImageBatch(definition(table), images), unread.get(table)) if images is not None else None
        if rest is not None:
            messages.append(Images.of("rows", _DEFINITIONS[table], rest.batch))
    messages += _statements(server, indexes, task.epoch)
    if part.is_last and indexes:
        last = server.log[indexes[-1]]
        file, pos, created_s = server.file_of(indexes[-1] + 1)
        messages.append(End(task.executed, server.uuid, file, pos, last.gtid, last.commit_us, created_s))
    return messages


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


def _images(server: Server, table: str, indexes: Iterable[int], epoch: int) -> pa.RecordBatch | None:
    """Return a table's images of these transactions, in log order."""
    rows: list[tuple[Any, ...]] = []
    for index in indexes:
        one, ordinal = server.log[index], 0
        for name, op, key, value in one.images:
            if name == table:
                rows.append((op, index, ordinal, one.gtid, one.commit_us, key, value))
            ordinal += op != "b"
    if not rows:
        return None
    ops, places, ordinals, names, times, keys, values = zip(*rows, strict=True)
    files, positions = np.empty(len(rows), np.int32), np.empty(len(rows), np.int64)
    for number, index in enumerate(places):
        file, pos, _ = server.file_of(index)
        files[number], positions[number] = int(file[-6:]), pos
    seq = pa.StructArray.from_arrays(
        [
            pa.array(np.full(len(rows), epoch, np.int64)),
            pa.array(files),
            pa.array(positions),
            pa.array(np.array(ordinals, np.int64)),
        ],
        fields=list(_SCHEMAS[table].field("_seq").type),
    )
    arrays = [
        pa.array(ops, pa.string()),
        seq,
        pa.array(names, pa.string()).dictionary_encode(),
        pa.array(times, pa.timestamp("us", "UTC")),
        pa.array(keys, pa.int64()),
        pa.array(values, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMAS[table])


def _statements(server: Server, indexes: Iterable[int], epoch: int) -> list[DdlRow]:
    rows = []
    for index in indexes:
        one = server.log[index]
        if one.statement is not None:
            action, table = one.statement
            file, pos, _ = server.file_of(index)
            schema = _DEFINITIONS[table].to_json() if action in ("create", "alter") else None
            seq = (epoch, int(file[-6:]), pos, 0)
            text = f"{action.upper()} TABLE {table}"
            rows.append(DdlRow(table, text, action, seq, one.gtid, one.commit_us, schema=schema))
    return rows


# --- chunks


def _chunk(world: World, task: Task, chunk: ChunkSpec, ordinal: int) -> tuple[Message, int]:
    """Return a chunk as of E, and the number of its rows."""
    server, connection = _connect(world, task)
    table = chunk.table
    world.count("chunk read begun")
    view = server.states[server.visible].get(table)
    if view is None:
        return Redo(chunk, "the table does not exist", whole_table=True), 0
    low = int(chunk.lo[0]) if chunk.lo is not None else -1 << 60
    high = int(chunk.hi[0]) if chunk.hi is not None else 1 << 60
    selected = sorted((key, value) for key, value in view.items() if low < key <= high)
    _still(world, connection)
    begin, end = server.length_of(parse_position(task.executed)), len(server.log)
    _still(world, connection)
    if begin < server.purged:
        raise BinlogPurgedError("the window was purged", needed=task.executed, purged=str(server.purged_set()))
    world.count("chunk read ended")
    if any(one.statement is not None and one.statement[1] == table for one in server.log[begin:end]):
        return Redo(chunk, "a statement changed the table while the chunk was read"), 0
    rows = pa.table([[key for key, _ in selected], [value for _, value in selected]], schema=_ROWS)
    window, images = Window(definition(table), _ROWS), _images(server, table, range(begin, end), task.epoch)
    if images is not None:
        window.add(images)

    def in_range(keys: pa.Table) -> Any:
        within = pc.and_(pc.greater(keys["id"], low), pc.less_equal(keys["id"], high))
        return np.asarray(within.combine_chunks()).astype(np.bool_)

    rewound = window.rewind(rows, in_range).combine_chunks()
    count = rewound.num_rows
    numbers = np.arange(ordinal, ordinal + count, dtype=np.int64)
    columns = [rewound.column(number).combine_chunks() for number in range(2)]
    arrays = [
        pa.array(["r"] * count, pa.string()),
        seq_array(task.epoch, _SNAPSHOT[0], np.full(count, _SNAPSHOT[1], np.int64), numbers),
        pa.array([None] * count, pa.string()).dictionary_encode(),
        pa.array(np.full(count, task.planned_us, np.int64)).cast(pa.timestamp("us", "UTC")),
        *columns,
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=_SCHEMAS[table])
    return Images.of("chunk", _DEFINITIONS[table], batch), count
