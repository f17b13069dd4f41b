"""Which chunks the next batch reads. One call plans one batch; no state is stored here.

The tables' reads are records (``spark/table_reads.py``). This module asks the server where their chunks end, and fills
a batch with them: chunks to retry first, then ranges of several tables at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.carrier import SinkTables
from headgate.catalog import INTEGERS, TableDef, TablePatterns, TableStats, exact_patterns
from headgate.errors import ConfigError, DefiniteServerError, TransientServerError
from headgate.offsets import ChunkSpec, SnapshotProgress, SnapshotRequest, SnapshotState, TableRead
from headgate.policies import DEFAULT, Policies
from headgate.positions import parse_position
from headgate.spark._notes import Notes
from headgate.spark._snapshot_requests import Refusal, check_request
from headgate.spark.table_reads import TableReads

if TYPE_CHECKING:
    from headgate.spark._server import Server

__all__ = ["PlanSettings", "SnapshotPlan", "can_append", "chunk_weights"]

_SMALL = 25
"""A chunk counts as at least one part in so many of a full one: opening its window and querying its table costs about
as much as reading 10,000 rows (1/25 of the default chunk)."""

_NOTHING_READ, _NO_NOTES = SnapshotState(), Notes()


def can_append(table: TableDef) -> bool:
    """Whether the key is one integer."""
    return len(table.key) == 1 and table.columns[table.key[0]].type in INTEGERS


@dataclass(frozen=True)
class PlanSettings:
    """What a planning does not change."""

    patterns: TablePatterns
    epoch: int
    chunk_rows: int
    slots: int
    append_allowed: bool = False
    """Whether the stream may leave out changes in ranges that are still unread, also in reads that began so."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """By ``db.table``: SQL condition of the rows that the pipeline wants."""
    policies: Policies = DEFAULT
    """Of all tables."""
    blocks_changes: bool = False
    """Whether live changes wait for the stream's first snapshot (``snapshot_cut = "start"``)."""
    position: str = ""
    """The server's GTID set at this planning, for messages."""
    sinks: SinkTables | None = None
    """The sinks' tables; None: there are no sinks."""

    @property
    def finished(self) -> frozenset[str] | None:
        """Tables that the sinks hold completely; None: there are no sinks."""
        return None if self.sinks is None else self.sinks.finished

    def request_for(self, table: str, filter: str | None = None, **more: Any) -> SnapshotRequest:  # noqa: A002 - SQL's own word
        """Return the settings to read the wanted rows of a table, or, with a filter, a part of them."""
        condition = self.conditions.get(table)
        if filter is None:
            return SnapshotRequest(filter=condition, **more)
        return SnapshotRequest(
            filter=filter if condition is None else f"({condition}) AND ({filter})", partial=True, **more
        )


class SnapshotPlan:
    """The state that a planning works on, and its result at the end.

    :param state: at the previous offset.
    :param notes: of the previous offset.
    :param is_first: whether the stream begins at that offset: no batch has taken its state.
    """

    def __init__(
        self,
        settings: PlanSettings,
        state: SnapshotState = _NOTHING_READ,
        notes: Notes = _NO_NOTES,
        *,
        is_first: bool = False,
    ) -> None:
        self.settings = settings
        self.reads = TableReads(state.tables)
        if not is_first:
            self.reads.next_batch()
        if not settings.append_allowed:
            self.reads.leave_append_mode()
        self.taken, self.paused = list(notes.taken), notes.paused
        self.initial = notes.initial
        """GTID set of the stream's first snapshot, while it lasts."""
        self.settles_at = parse_position(notes.settles)
        """GTID set to read before the stream ends: rows that were kept or dropped are exact only then."""
        self.windows = dict(notes.windows)
        """By table: the newest transactions of the windows in which rows were kept or dropped."""
        self.actions: list[dict[str, Any]] = []
        self.chunks: list[ChunkSpec] = []
        self.weight = 0
        self.rows: dict[str, int] = {}
        """By ``db.table``: approximate rows of the chunks."""
        self._was_pending = {read.table for read in self.reads.pending()}
        self._definitions: dict[str, TableDef] = {}
        self._stats: dict[str, TableStats | None] = {}

    def state(self) -> SnapshotState:
        return SnapshotState(tuple(self.reads), tuple(self.chunks))

    def notes(self, **more: Any) -> Notes:
        return Notes(
            taken=tuple(self.taken),
            actions=tuple(self.actions),
            paused=self.paused,
            initial=self.initial,
            settles=str(self.settles_at),
            windows=dict(self.windows),
            reads=dict(self.rows),
            **more,
        )

    @property
    def changes_wait(self) -> bool:
        """Whether live changes have to wait."""
        blocked = any(read.request.blocking for read in self.reads.pending())
        return blocked and not self.paused and not self.reads.has_retries

    def record_end(self, end: str) -> None:
        """Record that the batch ends at this GTID set: the first snapshot is over, or is as of this set from now on.

        It is over when all that is left to read was requested after it; a chunk without a result still belongs to it.
        """
        blocks = self.settings.blocks_changes
        if self.initial is None or (blocks and self.initial == end):
            return
        unread = [
            read.table
            for read in self.reads.pending()
            if (read.request.blocking if blocks else read.table in self._was_pending or read.retries)
        ]
        self.initial = end if unread else None
        if blocks and unread:
            self.actions.append(
                {
                    "id": "snapshot-cut",
                    "type": "snapshot-cut",
                    "tables": unread,
                    "error": "the rest of the first snapshot is as of a later point in time, because it was paused, "
                    f"or a chunk had to be retried: {end}",
                }
            )

    # --- changes since the last planning

    def enqueue(self, tables: Iterable[str], definitions: Mapping[str, TableDef], **more: Any) -> None:
        """Queue tables that were never read.

        :param definitions: of those that may be appended to.
        """
        for table in tables:
            request = self.settings.request_for(table, **more)
            definition = definitions.get(table) if self.settings.append_allowed and request.filter is None else None
            self.reads.add(table, request, append=definition is not None and can_append(definition))

    def read_again(self, table: str) -> None:
        """Queue a snapshot of all wanted rows instead of any other of this table, before the queued tables.

        It includes the one that signals requested: it blocks changes if that one did, and names these signals.
        """
        before = self.reads.request(table)
        request = self.settings.request_for(table, signals=before.signals, blocking=before.blocking)
        self.reads.read_again(table, request)

    def read_from_start(self, table: str) -> None:
        """Do as :meth:`read_again` with a table whose rows are not valid: headers say so until its snapshot begins."""
        before = self.reads.request(table)
        if self.reads.get(table) is not None:
            self.reads.exclude(table)
        self.enqueue([table], {}, signals=before.signals, blocking=before.blocking)

    def stop(self, table: str) -> None:
        """Stop reading a table. The sinks have it only if the snapshot was a partial one, and they had it before."""
        finished = self.settings.finished or frozenset()
        self.reads.end(table, is_complete=self.reads.request(table).partial and table in finished)

    # --- chunks

    @property
    def full(self) -> int:
        """Approximate rows of the chunks of one batch."""
        return self.settings.slots * self.settings.chunk_rows

    def plan_chunks(self, server: Server, limit: int | None = None) -> None:
        """Plan chunks for one batch, from several tables if possible.

        :param limit: approximate rows; default: ``full``. With fewer, chunks are smaller, so that all slots have some.
        """
        slots, chunk_rows = self.settings.slots, self.settings.chunk_rows
        limit = self.full if limit is None else limit
        rows = max(1, min(chunk_rows, -(-limit // slots)))
        for chunk in self.reads.take_retries(slots):
            self._add(chunk, rows, chunk_rows)
        exhausted: set[str] = set()
        while self.weight < limit:
            reading = [read for read in self.reads if read.has_ranges and read.table not in exhausted]
            queued = self._first_queued() if len(reading) < slots else None
            if queued is not None:
                self._begin(server, queued, rows)
                exhausted.discard(queued.table)  # if its key has changed, it begins a second time
                continue
            if not reading:
                break
            for read in reading:
                if self.weight < limit and not self._plan_next(server, read, rows):
                    exhausted.add(read.table)

    def _first_queued(self) -> TableRead | None:
        """Return the next table to begin with. While live changes wait, only tables that they wait for: another table
        may have been created after the batch's end, and has no rows as of it.
        """
        wait = self.changes_wait
        return next((read for read in self.reads if read.is_queued and (read.request.blocking or not wait)), None)

    def _begin(self, server: Server, read: TableRead, rows: int) -> None:
        """Begin with a queued table, if it can be read as requested."""
        from headgate.snapshot import first_chunk_bounds

        table, request = read.table, read.request
        definition = server.definition(table)
        if definition is None:
            self.reads.drop(table)
            return
        if self._refused(server, definition, request):
            return
        stats = self._stats_of(server, table) if request.filter is None else None
        try:
            progress = first_chunk_bounds(
                server.query,
                definition,
                epoch=self.settings.epoch,
                rows=self._rows_of_chunk(server, table, rows),
                rows_estimate=stats.rows if stats else 0,
                condition=request.filter,
                surrogate=request.surrogate,
            )
        except DefiniteServerError as error:
            self._report_failure(server, definition, request, error)
            return
        is_plain = request.filter is None and request.surrogate is None
        self.reads.begin(table, progress, append=read.append and is_plain and can_append(definition))
        self._definitions[table] = definition

    def _refused(self, server: Server, definition: TableDef, request: SnapshotRequest) -> bool:
        """Whether the table has changed so that it cannot be read like this; if so, stop its read and report that."""
        table = definition.full_name
        problem = check_request(server, definition, request, self.settings.policies.of(table))
        if problem is not None:
            _check_unchanged(server, definition, problem.reason)
        if problem is not None and request.filter is not None and request.filter == self.settings.conditions.get(table):
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
        self.stop(table)
        for name in request.signals:
            self.actions.append(
                {
                    "id": name,
                    "type": "execute-snapshot",
                    "tables": [],
                    "late": True,
                    "error": f"{table}: {refusal.reason}",
                    "refused": {table: list(refusal)},
                }
            )

    def _plan_next(self, server: Server, read: TableRead, rows: int) -> bool:
        """Plan the next range of a table that is being read; False: there is none, or the table cannot be read."""
        from headgate.snapshot import advance, next_chunk

        table, request, progress = read.table, read.request, read.progress
        definition = self._definitions.get(table)
        if progress is None:
            return False
        if definition is None:
            definition = server.definition(table)
            if definition is None:
                self.reads.drop(table)
                return False
            if self._refused(server, definition, request) or self._rekeyed(definition, request, progress):
                return False
            self._definitions[table] = definition
        rows = self._rows_of_chunk(server, table, rows)
        try:
            chunk = next_chunk(
                server.query, definition, progress, rows, condition=request.filter, surrogate=request.surrogate
            )
        except DefiniteServerError as error:
            self._report_failure(server, definition, request, error)
            return False
        if chunk is None:
            return False
        progress = advance(progress, chunk, rows)
        self.reads.hand_out(table, progress)
        self._add(chunk, rows, _weight(chunk, progress, rows, self.settings.chunk_rows))
        return True

    def _stats_of(self, server: Server, table: str) -> TableStats | None:
        if table not in self._stats:
            self._stats[table] = server.tables(exact_patterns([table])).get(table)
        return self._stats[table]

    def _rows_of_chunk(self, server: Server, table: str, rows: int) -> int:
        """Return the rows of a table's next chunk, at most ``rows``."""
        from headgate.snapshot import CHUNK_BYTES, rows_of_chunk

        return rows_of_chunk(self._stats_of(server, table), rows, CHUNK_BYTES)

    def _rekeyed(self, definition: TableDef, request: SnapshotRequest, progress: SnapshotProgress) -> bool:
        """Whether the table's key or its order is not the planned ranges' any more; its snapshot then starts again, or
        ends.
        """
        from headgate.snapshot import same_order

        table = definition.full_name
        if same_order(definition, progress, request.surrogate):
            return False
        if request.partial:
            reason = "the table has another key, or another order of it, than when its snapshot began"
            self._report_refusal(table, request, Refusal("UNKNOWN_SCHEMA", reason))
        else:
            self.read_again(table)
        return True

    def _add(self, chunk: ChunkSpec, rows: int, weight: int) -> None:
        self.chunks.append(chunk)
        self.weight += weight
        expected = _expected(chunk, self.reads.progress(chunk.table), rows)
        self.rows[chunk.table] = self.rows.get(chunk.table, 0) + expected


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


def chunk_weights(chunks: Iterable[ChunkSpec], snapshot: SnapshotState, chunk_rows: int) -> list[int]:
    """Return about how many rows each chunk holds, to share the chunks between tasks."""
    progress = {read.table: read.progress for read in snapshot.tables}
    return [_weight(chunk, progress.get(chunk.table), chunk_rows, chunk_rows) for chunk in chunks]
