"""Turn two offsets into the tasks of a batch. The same offsets give the same tasks on one server.

A batch is a range of the log and chunks. The range is divided at the planner's cuts, so each transaction is in exactly
one task; the order between tasks is that of ``_seq``. Each task that reads chunks numbers its rows from a separate
start, so ``_seq`` is unique.

**Chunks of a batch that meets another server.** What an attempt that was killed wrote of a chunk counts, also if it is
only the batch's marker, without rows. On the planned server that does no harm: the window of a later attempt contains
the first one's, so a chunk without a result has none again. Another server may have lost the end of that window, so
once an attempt has met another server, each chunk gives a ``Redo`` in all attempts, and a later batch reads its range
over whatever was written. If rows were kept (``window = "keep"``), that may hold changes which the other server lost:
then the whole table is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from headgate.carrier import Header, HeaderTable, ReadingProgress, Redo
from headgate.offsets import ChunkSpec, Hint, Last, ReadState, SourceOffset, TableRead
from headgate.policies import Policies
from headgate.positions import Position
from headgate.spark._notes import Cut, Notes
from headgate.spark._snapshots import chunk_weights

__all__ = ["LogRange", "Task", "Unread", "batch_header", "pack", "plan_tasks", "planned_start"]

_ORDINALS = 1 << 40
"""Most rows that a task may number."""


@dataclass(frozen=True)
class Unread:
    """Keys that a first snapshot had not read before this batch: those in ``(hi, max]``, or all."""

    table: str
    started: bool = False
    hi: int | None = None
    max: int | None = None


@dataclass(frozen=True)
class LogRange:
    """A set of transactions for one task."""

    wanted: str
    hint: Hint | None = None
    is_last: bool = True
    """Whether its reader ends where the batch ends."""
    unread: tuple[Unread, ...] = ()
    signal_table: str | None = None
    """``db.table`` whose inserts are signals, even if the stream does not follow it."""


@dataclass(frozen=True)
class Task:
    """All that an executor needs, in plain values."""

    server_uuid: str
    executed: str
    """E, as text."""
    epoch: int
    planned_us: int
    patterns: tuple[str, ...]
    header: Header | None = None
    """The batch's header: in exactly one of its tasks."""
    log: LogRange | None = None
    chunks: tuple[ChunkSpec, ...] = ()
    redo: tuple[Redo, ...] = ()
    """Chunks of the batch that no task reads."""
    first_ordinal: int = 0
    last: Last | None = None
    """The newest transaction of E; without GTIDs, the first one of the batch (``spark/_server_history.py``). If the
    server has another one when all is read, that may be of two histories."""
    hint: Hint | None = None
    """Position in the log before which everything is a part of E: that of ``last``, if there is one."""
    initial: bool = False
    """Whether the chunks belong to the snapshot that the stream begins with."""
    tasks: int = 1
    """How many tasks the batch has: they share its bound on bytes in rows."""


def planned_start(start: SourceOffset, end: SourceOffset) -> SourceOffset:
    """Return the start with which a batch was planned. Of a stream's first batch, ``start`` may be a later one."""
    begun = Notes.from_dict(end.signals).begun
    return start if begun is None else replace(start, gtid=begun.gtid, epoch=begun.epoch)


def plan_tasks(
    start: SourceOffset,
    end: SourceOffset,
    *,
    server_uuid: str,
    slots: int,
    chunk_rows: int,
    log_uuid: str | None = None,
    moved: Policies | None = None,
) -> list[Task]:
    """Return the batch's tasks: at least one, the header in the first.

    :param server_uuid: the server to read from. If it is not the planned one, ignore the notes about files.
    :param log_uuid: the server that wrote the part of the log that is read, if that is another one (from a relay).
    :param moved: the policies of the tables, if an attempt met another server than planned: chunks give a ``Redo``.
    """
    notes = Notes.from_dict(end.signals)
    same_server = notes.server_uuid == server_uuid
    common: dict[str, Any] = {
        "server_uuid": server_uuid,
        "executed": end.gtid,
        "epoch": end.epoch,
        "planned_us": end.planned_us,
        "patterns": end.tables,
        "last": end.last,
        "hint": end.hint,
    }
    unread = _unread(start, end)
    begin, cuts = (notes.begin, notes.cuts) if same_server else (None, ())
    ranges = _ranges(start.position, end.position, begin, cuts, unread, notes)
    tasks: list[dict[str, Any]] = [{**common, "server_uuid": log_uuid or server_uuid, "log": log} for log in ranges]
    first = notes.initial is not None
    readable = end.snapshot.chunks if moved is None else ()
    for chunks in _share(readable, chunk_weights(readable, end.snapshot, chunk_rows), slots):
        ordinal = len(tasks) * _ORDINALS
        tasks.append({**common, "chunks": chunks, "first_ordinal": ordinal, "initial": first})
    if not tasks:
        tasks.append(common)
    tasks[0]["header"] = batch_header(start, end, server_uuid)
    if moved is not None:
        tasks[0]["redo"] = tuple(_redo(chunk, moved) for chunk in end.snapshot.chunks)
    return [Task(**task, tasks=len(tasks)) for task in tasks]


def _redo(chunk: ChunkSpec, policies: Policies) -> Redo:
    """Return the request to read a chunk's range, or the whole table, in a later batch."""
    reason = "its batch met another server than it was planned on"
    if policies.of(chunk.table).window == "keep":
        return Redo(replace(chunk, filter=None), reason, whole_table=True)
    return Redo(chunk, reason)


def _ranges(
    had: Position, end: Position, hint: Hint | None, cuts: Sequence[Cut], unread: tuple[Unread, ...], notes: Notes
) -> list[LogRange]:
    wanted = end - had
    if not wanted:
        return []
    parts: list[tuple[Position, Hint | None]] = []
    for cut in cuts:
        part = wanted & cut.position
        if part:
            parts.append((part, hint))
            wanted = wanted - part
        hint = Hint(notes.server_uuid, cut.file, 4)
    if wanted:
        parts.append((wanted, hint))
    last = len(parts) - 1
    return [LogRange(str(part), hint, i == last, unread, notes.signal_table) for i, (part, hint) in enumerate(parts)]


def _unread(start: SourceOffset, end: SourceOffset) -> tuple[Unread, ...]:
    before = start.snapshot.by_table
    tables = sorted(read.table for read in end.snapshot.tables if read.append)
    return tuple(_unread_of(table, before.get(table)) for table in tables)


def _unread_of(table: str, read: TableRead | None) -> Unread:
    """Return the keys unread before this batch. The first chunk of several covers those above ``max``; others go up."""
    progress = None if read is None else read.progress
    if progress is None or progress.chunks_done == 0:
        return Unread(table)
    limit = int(progress.max[0]) if progress.max else None
    return Unread(table, True, int(progress.hi[0]) if progress.hi else None, limit)


def _share(chunks: Sequence[ChunkSpec], weights: Sequence[int], slots: int) -> list[tuple[ChunkSpec, ...]]:
    """Share chunks among at most ``slots`` tasks of about equal weight: heaviest first, each to the lightest task."""
    loads = [0] * min(slots, len(chunks))
    shares: list[list[int]] = [[] for _ in loads]
    for index in sorted(range(len(chunks)), key=lambda i: (-weights[i], i)):
        lightest = loads.index(min(loads))
        shares[lightest].append(index)
        loads[lightest] += weights[index]
    return [tuple(chunks[index] for index in sorted(share)) for share in shares]


def pack(offset: SourceOffset, chunks: Sequence[ChunkSpec], chunk_rows: int) -> list[Task]:
    """Return the tasks of a batch read of tables: a full chunk each, or several small ones."""
    notes = Notes.from_dict(offset.signals)
    groups: list[list[ChunkSpec]] = []
    load = chunk_rows
    for chunk, weight in zip(chunks, chunk_weights(chunks, offset.snapshot, chunk_rows), strict=True):
        if load + weight > chunk_rows:
            groups.append([])
            load = 0
        groups[-1].append(chunk)
        load += weight
    return [
        Task(
            notes.server_uuid,
            offset.gtid,
            offset.epoch,
            offset.planned_us,
            offset.tables,
            chunks=tuple(group),
            first_ordinal=index * _ORDINALS,
            tasks=len(groups),
        )
        for index, group in enumerate(groups)
    ]


def batch_header(start: SourceOffset, end: SourceOffset, server_uuid: str) -> Header:
    """Return the header of the batch between two offsets."""
    notes = Notes.from_dict(end.signals)
    last = end.last or Last("", 0)
    return Header(
        end.epoch,
        start.gtid,
        end.gtid,
        server_uuid,
        end.planned_us,
        _header_tables(end),
        tuple(dict(action) for action in notes.actions),
        notes.behind,
        _snapshot_progress(end),
        notes.begun is not None and notes.begun.full_restart,
        start.epoch,
        end.tables,
        last.gtid,
        last.ts_us,
        notes.paused,
    )


def _snapshot_progress(end: SourceOffset) -> dict[str, ReadingProgress]:
    from headgate.snapshot import readable_bound

    by_table = {chunk.table: ReadingProgress("read") for chunk in end.snapshot.chunks}
    for read in end.snapshot.tables:
        progress, complete = read.progress, read.state is ReadState.READ
        if read.table not in by_table:
            if not read.is_idle:
                by_table[read.table] = ReadingProgress("done" if complete else "waits")
            continue
        state: Literal["read", "reading"] = "reading" if read.is_reading else "read"
        if progress is None:  # chunks of an earlier read, retried
            by_table[read.table] = ReadingProgress(state)
        else:
            bounds = readable_bound(progress.max), readable_bound(progress.max if progress.finished else progress.hi)
            by_table[read.table] = ReadingProgress(state, progress.since_epoch, *bounds)
    return by_table


def _header_tables(end: SourceOffset) -> dict[str, HeaderTable]:
    chunk_tables = {chunk.table for chunk in end.snapshot.chunks}
    tables: dict[str, HeaderTable] = {}
    for read in end.snapshot.tables:
        progress, complete = read.progress, read.state is ReadState.READ
        if read.state in (ReadState.QUEUED, ReadState.DEFERRED):
            tables[read.table] = replace(_header_table(read), rows_estimate=0, chunks_done=0, chunks_estimate=0)
        elif progress is not None and (not complete or read.table in chunk_tables):  # else: of an earlier batch
            tables[read.table] = replace(
                _header_table(read),
                since_epoch=progress.since_epoch,
                first=progress.since_epoch == end.epoch,
                last=complete,
                rows_estimate=progress.rows_estimate,
                chunks_done=progress.chunks_done,
                chunks_estimate=max(progress.chunks_estimate, progress.chunks_done),
            )
    for chunk in end.snapshot.chunks:
        if chunk.filter is not None and chunk.table not in tables:  # a retried chunk, read alone
            tables[chunk.table] = HeaderTable(ReadState.READING, end.epoch, partial=True)
    return tables


def _header_table(read: TableRead) -> HeaderTable:
    """Return what is equal in all batches of a table's snapshot."""
    has_filter = read.request.filter is not None
    return HeaderTable(
        read.state,
        append=read.append,
        partial=has_filter and read.request.partial,
        filtered=has_filter and not read.request.partial,
        surrogate=read.request.surrogate is not None,
        signals=read.request.signals,
    )
