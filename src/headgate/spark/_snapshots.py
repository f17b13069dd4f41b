"""Which chunks the next batch reads: queue, progress, retries. One call plans one batch; no state is stored here.

The life of a table: *queued* → *active* (its chunks are handed out, a few per batch) → *done* (every chunk was handed
out) → known through the sinks' ``finished.json``. A signal can return it to the queue, or request one chunk again. A
table is done only when no such chunk is left. It stays active until the sinks confirm it, because only they see a chunk
without a result.

*Paused*, no chunks are planned. All else continues: changes are followed, signals are taken (``spark/_requests.py``).

**Append.** A table that was not read yet and whose key is one integer needs no upsert for its chunks, if the stream
leaves out changes in ranges that are still unread (their chunk, read later, has them). MySQL and the reader of the log
must decide alike whether a key is in such a range, hence integers only. As soon as a range has to be read twice, the
table leaves this mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate._policies import DEFAULT, Policies
from headgate.catalog import INTEGERS, TableDef, TablePatterns, exact_patterns
from headgate.errors import ConfigError, DefiniteServerError, TransientServerError
from headgate.offsets import ChunkSpec, SnapshotProgress, SnapshotState
from headgate.positions import NOTHING, Position, parse_position
from headgate.spark._notes import Notes, SnapshotRequest
from headgate.spark._snapshot_requests import Refusal, check_request

if TYPE_CHECKING:
    from headgate.spark._server import Server

__all__ = ["SnapshotPlan", "can_append", "chunk_weights"]

_SMALL = 25
"""A chunk counts as at least one part in so many of a full one: opening its window and querying its table costs about
as much as reading 10,000 rows (1/25 of the default chunk)."""


def can_append(table: TableDef) -> bool:
    """Whether the key is one integer."""
    return len(table.key) == 1 and table.columns[table.key[0]].type in INTEGERS


@dataclass
class SnapshotPlan:
    """The state that a planning works on, and its result at the end."""

    patterns: TablePatterns
    epoch: int
    chunk_rows: int
    slots: int
    append_allowed: bool
    active: dict[str, SnapshotProgress] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    redo: list[ChunkSpec] = field(default_factory=list)
    append: set[str] = field(default_factory=set)
    reread: set[str] = field(default_factory=set)
    taken: list[str] = field(default_factory=list)
    actions: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[ChunkSpec] = field(default_factory=list)
    weight: int = 0
    reads: dict[str, int] = field(default_factory=dict)
    """By ``db.table``: approximate rows of the chunks."""
    paused: bool = False
    snapshot_requests: dict[str, SnapshotRequest] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    waiting_tables: set[str] = field(default_factory=set)
    settles_at: Position = NOTHING
    """GTID set to read before the stream ends: rows that were kept or dropped are exact only then."""
    position: str = ""
    """The server's GTID set at this planning, for messages."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """By ``db.table``: SQL condition of the rows that the pipeline wants."""
    policies: Policies = DEFAULT
    """Of all tables."""
    initial: str | None = None
    """GTID set of the stream's first snapshot, while it lasts."""
    blocks_changes: bool = False
    """Whether live changes wait for that snapshot (``snapshot_cut = "start"``)."""
    begun: frozenset[str] = frozenset()
    """Tables that had unread ranges before this planning."""

    @classmethod
    def begin(cls, state: SnapshotState, notes: Notes, **settings: Any) -> SnapshotPlan:
        """Continue from the previous offset."""
        read = {table for table, progress in state.active.items() if progress.finished} | set(state.done)
        plan = cls(
            active=dict(state.active), queue=list(state.queue), done=list(state.done), redo=list(notes.redo),
            append=set(notes.append) - read, reread=set(notes.reread), taken=list(notes.taken), paused=notes.paused,
            snapshot_requests=dict(notes.readings), stopped=set(notes.stopped), initial=notes.initial,
            waiting_tables=set(notes.found if notes.fresh else ()), settles_at=parse_position(notes.settles),
            **settings,
        )  # fmt: skip
        plan.begun = frozenset(plan.being_read())
        return plan

    def state(self) -> SnapshotState:
        return SnapshotState(dict(self.active), tuple(self.chunks), tuple(self.queue), tuple(self.done))

    def notes(self, **more: Any) -> Notes:
        known = self.known() | {chunk.table for chunk in (*self.chunks, *self.redo)}
        return Notes(
            taken=tuple(self.taken),
            actions=tuple(self.actions),
            redo=tuple(self.redo),
            append=tuple(sorted(self.append & known)),
            reread=tuple(sorted(self.reread)),
            paused=self.paused,
            readings={table: request for table, request in self.snapshot_requests.items() if table in known},
            stopped=tuple(sorted(self.stopped)),
            found=tuple(sorted(self.waiting_tables & self.stopped)),
            initial=self.initial,
            settles=str(self.settles_at),
            reads=dict(self.reads),
            **more,
        )

    @property
    def pending(self) -> bool:
        """Whether anything is left to read."""
        return bool(self.being_read())

    @property
    def changes_wait(self) -> bool:
        """Whether live changes have to wait."""
        return any(map(self._blocking, self.being_read())) and not self.paused and not self.redo

    def _blocking(self, table: str) -> bool:
        return table in self.snapshot_requests and self.snapshot_requests[table].blocking

    def record_end(self, end: str) -> None:
        """Record that the batch ends at this GTID set: the first snapshot is over, or is as of this set from now on.

        It is over when all that is left to read was requested after it; a chunk without a result still belongs to it.
        """
        if self.initial is None or (self.blocks_changes and self.initial == end):
            return
        initial_tables = self.begun | {chunk.table for chunk in self.redo}
        unread = [
            table
            for table in self.being_read()
            if (self._blocking(table) if self.blocks_changes else table in initial_tables)
        ]
        self.initial = end if unread else None
        if self.blocks_changes and unread:
            self.actions.append(
                {
                    "id": "snapshot-cut",
                    "type": "snapshot-cut",
                    "tables": unread,
                    "error": "the rest of the first snapshot is as of a later point in time, because it was paused, "
                    f"or a chunk had to be retried: {end}",
                }
            )

    def being_read(self) -> list[str]:
        """Return the tables that have unread ranges."""
        running = [table for table, progress in self.active.items() if not progress.finished]
        return list(dict.fromkeys([*running, *(chunk.table for chunk in self.redo), *self.queue]))

    def request_for(self, table: str, filter: str | None = None, **more: Any) -> SnapshotRequest:  # noqa: A002 - SQL's own word
        """Return the settings to read the wanted rows of a table, or, with a filter, a part of them."""
        condition = self.conditions.get(table)
        if filter is None:
            return SnapshotRequest(filter=condition, **more)
        return SnapshotRequest(
            filter=filter if condition is None else f"({condition}) AND ({filter})", partial=True, **more
        )

    # --- changes since the last planning

    def confirm(self, finished: frozenset[str] | None) -> None:
        """Release tables that the sinks hold completely (``None``: there are no sinks)."""
        for table in list(self.done):
            if table in self.snapshot_requests and self.snapshot_requests[table].partial:
                self._confirm_partial(table, finished)
                continue
            if finished is None or table in finished:
                self.active.pop(table, None)
            if finished is not None and table in finished:
                self.done.remove(table)

    def _confirm_partial(self, table: str, finished: frozenset[str] | None) -> None:
        """Release a table whose partial snapshot is done; a separate signal requests what it missed, if anything."""
        del self.snapshot_requests[table]
        self.active.pop(table, None)
        self.done.remove(table)
        if finished is not None and table not in finished:
            self.stopped.add(table)  # known, although not all of it was read

    def enqueue(self, tables: Iterable[str], definitions: Mapping[str, TableDef]) -> None:
        """Queue tables that were never read."""
        for table in tables:
            self.queue.append(table)
            if table in self.conditions:
                self.snapshot_requests[table] = self.request_for(table)
            elif self.append_allowed and table in definitions and can_append(definitions[table]):
                self.append.add(table)

    def defer(self, tables: Iterable[str]) -> None:
        """Record tables that were never read, to be read when a signal names them."""
        self.stopped.update(tables)
        self.waiting_tables.update(tables)

    def known(self) -> set[str]:
        """Return every table that is or was read, according to the offset."""
        return {*self.active, *self.queue, *self.done}

    def read_again(self, table: str, *, first: bool = True) -> None:
        """Queue a snapshot of all rows instead of any other of this table.

        :param first: before the tables that are already queued.
        """
        self.stopped.discard(table)
        if table in self.queue and table in self.append:
            return
        unread = table in self.queue and table not in self.reread
        self.append.discard(table)
        self.active.pop(table, None)
        self.snapshot_requests.pop(table, None)
        if table in self.conditions:
            self.snapshot_requests[table] = self.request_for(table)
        self.redo = [chunk for chunk in self.redo if chunk.table != table]
        others = [queued for queued in self.queue if queued != table]
        self.queue = [table, *others] if first else [*others, table]
        if table in self.done:
            self.done.remove(table)
        if not unread:
            self.reread.add(table)

    def forget(self, table: str) -> None:
        """Stop reading a table. Its rows stay complete only if the snapshot was a partial one."""
        request = self.snapshot_requests.pop(table, None)
        if request is None or not request.partial:
            self.stopped.add(table)
        self.active.pop(table, None)
        self.append.discard(table)
        self.reread.discard(table)
        self.redo = [chunk for chunk in self.redo if chunk.table != table]
        self.queue = [queued for queued in self.queue if queued != table]
        if table in self.done:
            self.done.remove(table)

    # --- chunks

    @property
    def full(self) -> int:
        """Approximate rows of the chunks of one batch."""
        return self.slots * self.chunk_rows

    def plan_chunks(self, server: Server, limit: int | None = None) -> None:
        """Plan chunks for one batch, from several tables if possible.

        :param limit: approximate rows; default: ``full``. With fewer, chunks are smaller, so that all slots have some.
        """
        self._limit = self.full if limit is None else limit
        self._rows = max(1, min(self.chunk_rows, -(-self._limit // self.slots)))
        for chunk in list(self.redo[: self.slots]):
            self.redo.remove(chunk)
            self._add(chunk, self.chunk_rows)
        exhausted: set[str] = set()
        while self._has_room():
            tables = [t for t, progress in self.active.items() if not progress.finished and t not in exhausted]
            queued = self._first_queued() if len(tables) < self.slots else None
            if queued is not None:
                self.queue.remove(queued)
                self._activate(server, queued)
                continue
            if not tables:
                break
            for table in tables:
                if self._has_room() and not self._plan_next(server, table):
                    exhausted.add(table)
        waiting = {chunk.table for chunk in self.redo}
        for table, progress in self.active.items():
            if progress.finished and table not in waiting and table not in self.done:
                self.done.append(table)

    def _first_queued(self) -> str | None:
        """Return the next table to begin with. While live changes wait, only tables that they wait for: another table
        may have been created after the batch's end, and has no rows as of it.
        """
        waiting = [table for table in self.queue if self._blocking(table)] if self.changes_wait else self.queue
        return waiting[0] if waiting else None

    def _has_room(self) -> bool:
        return self.weight < self._limit

    def _activate(self, server: Server, table: str) -> None:
        definition = server.definition(table)
        self.reread.discard(table)
        if definition is None:  # dropped meanwhile
            self.append.discard(table)
            return
        if not can_append(definition):
            self.append.discard(table)
        from headgate.snapshot import first_chunk_bounds

        request = self.snapshot_requests.get(table, SnapshotRequest())
        if self._refused(server, definition, request):
            return
        stats = server.tables(exact_patterns([table])).get(table) if request.filter is None else None
        try:
            self.active[table] = first_chunk_bounds(
                server.query,
                definition,
                epoch=self.epoch,
                rows=self._rows,
                rows_estimate=stats.rows if stats else 0,
                condition=request.filter,
                surrogate=request.surrogate,
            )
        except DefiniteServerError as error:
            self._report_failure(server, definition, request, error)
            return
        if request.filter is not None or request.surrogate is not None:
            self.append.discard(table)
        self._definitions[table] = definition

    def _refused(self, server: Server, definition: TableDef, request: SnapshotRequest) -> bool:
        """Whether the table has changed so that it cannot be read like this; if so, stop its read and report that."""
        table = definition.full_name
        problem = check_request(server, definition, request, self.policies.of(table))
        if problem is not None:
            _check_unchanged(server, definition, problem.reason)
        if problem is not None and request.filter is not None and request.filter == self.conditions.get(table):
            raise ConfigError(f"the condition of {table} cannot be used: {problem.reason}")
        if problem is not None:
            self._report_refusal(table, request, problem)
        return problem is not None

    def _report_failure(
        self, server: Server, definition: TableDef, request: SnapshotRequest, error: DefiniteServerError
    ) -> None:
        """Report a refused filter, which may fail on some row only; raise other errors."""
        _check_unchanged(server, definition, error.message)
        if not request.partial:
            raise error
        refusal = Refusal("SQL_EXCEPTION", f"the server refuses the filter: {error.message}")
        self._report_refusal(definition.full_name, request, refusal)

    def _report_refusal(self, table: str, request: SnapshotRequest, refusal: Refusal) -> None:
        self.forget(table)
        for name in request.signals:
            self.actions.append(
                {
                    "id": name,
                    "type": "execute-snapshot",
                    "tables": [],
                    "error": f"{table}: {refusal.reason}",
                    "refused": {table: list(refusal)},
                }
            )

    def _plan_next(self, server: Server, table: str) -> bool:
        """Plan the table's next chunk; False: there is none, or the table cannot be read."""
        from headgate.snapshot import advance, next_chunk

        definition = self._definitions.get(table)
        if definition is None:
            definition = server.definition(table)
            if definition is None:
                del self.active[table]
                return False
            if self._refused(server, definition, self.snapshot_requests.get(table, SnapshotRequest())):
                return False
            if self._rekeyed(definition):
                return False
            self._definitions[table] = definition
        progress, request = self.active[table], self.snapshot_requests.get(table, SnapshotRequest())
        try:
            chunk = next_chunk(
                server.query, definition, progress, self._rows, condition=request.filter, surrogate=request.surrogate
            )
        except DefiniteServerError as error:
            self._report_failure(server, definition, request, error)
            return False
        if chunk is None:
            return False
        self.active[table] = advance(progress, chunk)
        self._add(chunk, _weight(chunk, self.active[table], self._rows, self.chunk_rows))
        return True

    def _rekeyed(self, definition: TableDef) -> bool:
        """Whether the table's key or its order is not the planned ranges' any more; its snapshot then starts again, or
        ends.
        """
        from headgate.snapshot import same_order

        table = definition.full_name
        progress, request = self.active[table], self.snapshot_requests.get(table, SnapshotRequest())
        if same_order(definition, progress, request.surrogate):
            return False
        if request.partial:
            reason = "the table has another key, or another order of it, than when its snapshot began"
            self._report_refusal(table, request, Refusal("UNKNOWN_SCHEMA", reason))
        else:
            self.read_again(table)
        return True

    def _add(self, chunk: ChunkSpec, weight: int) -> None:
        self.chunks.append(chunk)
        self.weight += weight
        rows = _expected(chunk, self.active.get(chunk.table), self._rows)
        self.reads[chunk.table] = self.reads.get(chunk.table, 0) + rows

    _limit: int = 0
    _rows: int = 0
    """Rows of a chunk in this batch."""
    _definitions: dict[str, TableDef] = field(default_factory=dict, repr=False)


def _check_unchanged(server: Server, definition: TableDef, problem: str) -> None:
    """Check whether a table is still as it was when its chunks were planned.

    :raises TransientServerError: it is not, so a problem with it may be gone when the planning starts again.
    """
    table = definition.full_name
    if server.definition(table) != definition:
        raise TransientServerError(f"{table} was changed while its chunks were planned: {problem}", table=table)


def _expected(chunk: ChunkSpec, progress: SnapshotProgress | None, rows: int) -> int:
    """Return about how many rows a chunk holds.

    :param rows: its planned number.
    """
    if chunk.lo is not None and chunk.hi is None:
        return 0  # above the greatest key
    if chunk.lo is None and chunk.hi is None and progress is not None:
        return min(rows, progress.rows_estimate)
    return rows


def _weight(chunk: ChunkSpec, progress: SnapshotProgress | None, rows: int, chunk_rows: int) -> int:
    """Return a chunk's weight, in rows."""
    return max(1, chunk_rows // _SMALL, _expected(chunk, progress, rows))


def chunk_weights(chunks: Iterable[ChunkSpec], active: Mapping[str, SnapshotProgress], chunk_rows: int) -> list[int]:
    """Return about how many rows each chunk holds, to share the chunks between tasks."""
    return [_weight(chunk, active.get(chunk.table), chunk_rows, chunk_rows) for chunk in chunks]
