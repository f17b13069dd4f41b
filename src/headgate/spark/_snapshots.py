"""Which chunks the next batch reads: queue, progress, re-reads. One call plans one batch; nothing is remembered here.

The life of a table: *queued* → *active* (its chunks go out, a few each batch) → *done* (every chunk went out) → known
through the sinks' ``finished.json``. A signal can send it back to the queue, or ask for one chunk again; a table is
done only when no such chunk is left, and stays active until the sinks confirm it, because only they see a chunk that
gave nothing.

*Paused*, no chunks are planned, but all else goes on: changes are followed, signals are taken (``spark/_requests.py``).

**Append.** A table that was not read yet and whose key is one integer needs no MERGE for its chunks, if changes to
ranges that are still unread are left out of the stream (their chunk, read later, has them). Whether a key is in such a
range must be decided alike by MySQL and by the reader of the log, hence integers only. As soon as a range has to be
read twice, the table leaves this mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.catalog import INTEGERS, TableDef, TablePatterns, exact_patterns
from headgate.errors import ConfigError, DefiniteServerError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec, SnapshotProgress, SnapshotState
from headgate.spark._notes import Notes, Reading
from headgate.spark._readings import Refusal, check_reading

if TYPE_CHECKING:
    from headgate.spark._server import Server

__all__ = ["SnapshotPlan", "can_append", "chunk_weights"]

_SMALL = 25
"""A chunk counts as at least one part in so many of a full one: opening its window and asking for its table is worth
about as much as reading 10,000 rows (1/25 of the default chunk)."""


def can_append(table: TableDef) -> bool:
    """Whether the key is one integer."""
    return len(table.key) == 1 and table.columns[table.key[0]].type in INTEGERS


@dataclass
class SnapshotPlan:
    """The state that a planning works on, and at its end the result."""

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
    """By ``db.table``: about how many rows the chunks have."""
    paused: bool = False
    readings: dict[str, Reading] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)
    settles: GtidSet = field(default_factory=GtidSet)
    """What the stream reads before it ends, because rows that were kept or dropped are exact only then."""
    position: str = ""
    """The server's GTID set at this planning, for messages."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """By ``db.table``: SQL that says which rows are wanted of it at all."""
    keeps: Callable[[str], bool] = lambda _table: False
    """Whether rows of a table that change while a chunk is read are kept as read (``window = "keep"``)."""
    initial: str | None = None
    """Where the snapshot that the stream begins with stands in the log, while it lasts."""
    holds: bool = False
    """Live changes wait for that snapshot (``snapshot_cut = "start"``)."""
    begun: frozenset[str] = frozenset()
    """The tables that had unread ranges before this planning."""

    @classmethod
    def begin(cls, state: SnapshotState, notes: Notes, **given: Any) -> SnapshotPlan:
        """Go on from the offset before."""
        read = {table for table, progress in state.active.items() if progress.finished} | set(state.done)
        plan = cls(
            active=dict(state.active), queue=list(state.queue), done=list(state.done), redo=list(notes.redo),
            append=set(notes.append) - read, reread=set(notes.reread), taken=list(notes.taken), paused=notes.paused,
            readings=dict(notes.readings), stopped=set(notes.stopped), initial=notes.initial,
            found=set(notes.found if notes.fresh else ()), settles=GtidSet.parse(notes.settles), **given,
        )  # fmt: skip
        plan.begun = frozenset(plan.being_read())
        return plan

    def state(self) -> SnapshotState:
        """For the offset."""
        return SnapshotState(dict(self.active), tuple(self.chunks), tuple(self.queue), tuple(self.done))

    def notes(self, **given: Any) -> Notes:
        """For the offset."""
        known = self.known() | {chunk.table for chunk in (*self.chunks, *self.redo)}
        return Notes(
            taken=tuple(self.taken),
            actions=tuple(self.actions),
            redo=tuple(self.redo),
            append=tuple(sorted(self.append & known)),
            reread=tuple(sorted(self.reread)),
            paused=self.paused,
            readings={table: reading for table, reading in self.readings.items() if table in known},
            stopped=tuple(sorted(self.stopped)),
            found=tuple(sorted(self.found & self.stopped)),
            initial=self.initial,
            settles=str(self.settles),
            reads=dict(self.reads),
            **given,
        )

    @property
    def pending(self) -> bool:
        """Whether there is anything left to read."""
        return bool(self.being_read())

    @property
    def blocks(self) -> bool:
        """Whether live changes have to wait."""
        return any(map(self._blocking, self.being_read())) and not self.paused and not self.redo

    def _blocking(self, table: str) -> bool:
        return table in self.readings and self.readings[table].blocking

    def stand(self, end: str) -> None:
        """The batch ends at this GTID set: the first snapshot is over, or stands there from now on.

        It is over when all that is to be read was asked for after it; a chunk that gave nothing is still its own.
        """
        if self.initial is None or (self.holds and self.initial == end):
            return
        its_own = self.begun | {chunk.table for chunk in self.redo}
        rest = [table for table in self.being_read() if (self._blocking(table) if self.holds else table in its_own)]
        self.initial = end if rest else None
        if self.holds and rest:
            self.actions.append(
                {
                    "id": "snapshot-cut",
                    "type": "snapshot-cut",
                    "tables": rest,
                    "error": "what is left of the first snapshot is of a later point in time, because it was paused, "
                    f"or a chunk gave nothing as of the one before: {end}",
                }
            )

    def being_read(self) -> list[str]:
        """The tables that have unread ranges."""
        running = [table for table, progress in self.active.items() if not progress.finished]
        return list(dict.fromkeys([*running, *(chunk.table for chunk in self.redo), *self.queue]))

    def wanted(self, table: str, filter: str | None = None, **more: Any) -> Reading:  # noqa: A002 - SQL's own word
        """A reading of what is wanted of a table, or, with a filter, of a part of that."""
        own = self.conditions.get(table)
        if filter is None:
            return Reading(filter=own, **more)
        return Reading(filter=filter if own is None else f"({own}) AND ({filter})", partial=True, **more)

    # --- what is known since the last planning

    def confirm(self, finished: frozenset[str] | None) -> None:
        """Let go of tables that the sinks hold completely (``None``: there are no sinks to ask)."""
        for table in list(self.done):
            if table in self.readings and self.readings[table].partial:
                self._confirm_partial(table, finished)
                continue
            if finished is None or table in finished:
                self.active.pop(table, None)
            if finished is not None and table in finished:
                self.done.remove(table)

    def _confirm_partial(self, table: str, finished: frozenset[str] | None) -> None:
        """Its batch is done; what it missed, if anything, is asked for by a signal of its own."""
        del self.readings[table]
        self.active.pop(table, None)
        self.done.remove(table)
        if finished is not None and table not in finished:
            self.stopped.add(table)  # known, although not all of it was read

    def enqueue(self, tables: Iterable[str], definitions: Mapping[str, TableDef]) -> None:
        """Tables that were never read."""
        for table in tables:
            self.queue.append(table)
            if table in self.conditions:
                self.readings[table] = self.wanted(table)
            elif self.append_allowed and table in definitions and can_append(definitions[table]):
                self.append.add(table)

    def wait(self, tables: Iterable[str]) -> None:
        """Tables that were never read, and are to be read when a signal names them."""
        self.stopped.update(tables)
        self.found.update(tables)

    def known(self) -> set[str]:
        """Every table that is or was read, as far as the offset tells."""
        return {*self.active, *self.queue, *self.done}

    def read_again(self, table: str, *, first: bool = True) -> None:
        """Queue a reading of all rows in place of any other of this table.

        :param first: before the tables that wait already.
        """
        self.stopped.discard(table)
        if table in self.queue and table in self.append:
            return
        unread = table in self.queue and table not in self.reread
        self.append.discard(table)
        self.active.pop(table, None)
        self.readings.pop(table, None)
        if table in self.conditions:
            self.readings[table] = self.wanted(table)
        self.redo = [chunk for chunk in self.redo if chunk.table != table]
        others = [queued for queued in self.queue if queued != table]
        self.queue = [table, *others] if first else [*others, table]
        if table in self.done:
            self.done.remove(table)
        if not unread:
            self.reread.add(table)

    def forget(self, table: str) -> None:
        """Read no more of a table. Its rows are complete as before only if the reading was a partial one."""
        reading = self.readings.pop(table, None)
        if reading is None or not reading.partial:
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
        """About how many rows the chunks of one batch have."""
        return self.slots * self.chunk_rows

    def plan_chunks(self, server: Server, limit: int | None = None) -> None:
        """Chunks for one batch, from several tables if there are.

        :param limit: about how many rows; default: ``full``. Chunks are smaller then, so that all slots have some.
        """
        self._limit = self.full if limit is None else limit
        self._rows = max(1, min(self.chunk_rows, -(-self._limit // self.slots)))
        for chunk in list(self.redo[: self.slots]):
            self.redo.remove(chunk)
            self._add(chunk, self.chunk_rows)
        exhausted: set[str] = set()
        while self._room():
            tables = [t for t, progress in self.active.items() if not progress.finished and t not in exhausted]
            queued = self._first_queued() if len(tables) < self.slots else None
            if queued is not None:
                self.queue.remove(queued)
                self._activate(server, queued)
                continue
            if not tables:
                break
            for table in tables:
                if self._room() and not self._next(server, table):
                    exhausted.add(table)
        waiting = {chunk.table for chunk in self.redo}
        for table, progress in self.active.items():
            if progress.finished and table not in waiting and table not in self.done:
                self.done.append(table)

    def _first_queued(self) -> str | None:
        """The next table to begin with. While live changes wait, only what they wait for: another table may have been
        made after the batch's end, and gives nothing as of it.
        """
        waiting = [table for table in self.queue if self._blocking(table)] if self.blocks else self.queue
        return waiting[0] if waiting else None

    def _room(self) -> bool:
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

        reading = self.readings.get(table, Reading())
        if self._refused(server, definition, reading):
            return
        stats = server.tables(exact_patterns([table])).get(table) if reading.filter is None else None
        try:
            self.active[table] = first_chunk_bounds(
                server.query,
                definition,
                epoch=self.epoch,
                rows=self._rows,
                rows_estimate=stats.rows if stats else 0,
                condition=reading.filter,
                surrogate=reading.surrogate,
            )
        except DefiniteServerError as error:
            self._fails(table, reading, error)
            return
        if reading.filter is not None or reading.surrogate is not None:
            self.append.discard(table)
        self._definitions[table] = definition

    def _refused(self, server: Server, definition: TableDef, reading: Reading) -> bool:
        """Whether the table has changed so that it cannot be read like this; then it is not, and that is said."""
        table = definition.full_name
        problem = check_reading(server, definition, reading, keeps=self.keeps(table))
        if problem is not None and reading.filter is not None and reading.filter == self.conditions.get(table):
            raise ConfigError(f"the condition of {table} cannot be used: {problem.reason}")
        if problem is not None:
            self._answer(table, reading, problem)
        return problem is not None

    def _fails(self, table: str, reading: Reading, error: DefiniteServerError) -> None:
        """A filter may fail on some row only. Other errors are not the signal's."""
        if not reading.partial:
            raise error
        self._answer(table, reading, Refusal("SQL_EXCEPTION", f"the server refuses the filter: {error.message}"))

    def _answer(self, table: str, reading: Reading, refusal: Refusal) -> None:
        self.forget(table)
        for name in reading.signals:
            self.actions.append(
                {
                    "id": name,
                    "type": "execute-snapshot",
                    "tables": [],
                    "error": f"{table}: {refusal.reason}",
                    "refused": {table: list(refusal)},
                }
            )

    def _next(self, server: Server, table: str) -> bool:
        """Plan the table's next chunk; False: there is none, or the table is gone."""
        from headgate.snapshot import advance, next_chunk

        definition = self._definitions.get(table)
        if definition is None:
            definition = server.definition(table)
            if definition is None:
                del self.active[table]
                return False
            if self._refused(server, definition, self.readings.get(table, Reading())):
                return False
            if self._rekeyed(definition):
                return False
            self._definitions[table] = definition
        progress, reading = self.active[table], self.readings.get(table, Reading())
        try:
            chunk = next_chunk(
                server.query, definition, progress, self._rows, condition=reading.filter, surrogate=reading.surrogate
            )
        except DefiniteServerError as error:
            self._fails(table, reading, error)
            return False
        if chunk is None:
            return False
        self.active[table] = advance(progress, chunk)
        self._add(chunk, _weight(chunk, self.active[table], self._rows, self.chunk_rows))
        return True

    def _rekeyed(self, definition: TableDef) -> bool:
        """Whether what was planned of the table means nothing under its key of now: then its reading begins again."""
        from headgate.snapshot import bound_columns, fits

        table = definition.full_name
        progress, reading = self.active[table], self.readings.get(table, Reading())
        if not definition.key or progress.max is None:
            return False
        columns = bound_columns(definition, reading.surrogate)
        if fits(columns, progress.hi) and fits(columns, progress.max):
            return False
        if reading.partial:
            reason = "the table has another key than when its reading began"
            self._answer(table, reading, Refusal("UNKNOWN_SCHEMA", reason))
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


def _expected(chunk: ChunkSpec, progress: SnapshotProgress | None, rows: int) -> int:
    """About how many rows a chunk holds.

    :param rows: how many it was to have.
    """
    if chunk.lo is not None and chunk.hi is None:
        return 0  # what lies above the greatest key
    if chunk.lo is None and chunk.hi is None and progress is not None:
        return min(rows, progress.rows_estimate)
    return rows


def _weight(chunk: ChunkSpec, progress: SnapshotProgress | None, rows: int, chunk_rows: int) -> int:
    """What a chunk counts for, in rows."""
    return max(1, chunk_rows // _SMALL, _expected(chunk, progress, rows))


def chunk_weights(chunks: Iterable[ChunkSpec], active: Mapping[str, SnapshotProgress], chunk_rows: int) -> list[int]:
    """About how many rows each chunk holds, for sharing them out between tasks."""
    return [_weight(chunk, active.get(chunk.table), chunk_rows, chunk_rows) for chunk in chunks]
