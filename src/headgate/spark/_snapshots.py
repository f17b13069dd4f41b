"""Which chunks the next batch reads: queue, progress, re-reads. One call plans one batch; nothing is remembered here.

The life of a table: *queued* → *active* (its chunks go out, a few each batch) → *done* (every chunk went out) → known
through the sinks' ``finished.json``. A signal can send it back to the queue, or ask for one chunk again; a table is
done only when no such chunk is left, and stays active until the sinks confirm it, because only they see a chunk that
gave nothing.

A signal is taken once: its id is kept in the offset for as long as its file is there.

**Append.** A table that nobody has read yet and whose key is one integer needs no MERGE for its chunks, if changes to
ranges that are still unread are left out of the stream (their chunk, read later, has them). Whether a key is in such a
range must be decided alike by MySQL and by the reader of the log, hence integers only. As soon as a range has to be
read twice, the table leaves this mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate.catalog import TableDef, TablePatterns
from headgate.errors import ConfigError, HeadgateError
from headgate.offsets import ChunkSpec, SnapshotProgress, SnapshotState
from headgate.spark._notes import Notes

if TYPE_CHECKING:
    from headgate.spark._server import Server

__all__ = ["SnapshotPlan", "can_append", "chunk_weights", "exact_pattern", "plan_snapshots"]

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_SMALL = 25
"""A chunk counts as at least one part in so many of a full one: opening its window and asking for its table is worth
about as much as reading 10,000 rows (1/25 of the default chunk)."""


def can_append(table: TableDef) -> bool:
    """Whether the key is one integer."""
    return len(table.key) == 1 and table.columns[table.key[0]].type in _INTEGERS


def exact_pattern(table: str) -> str:
    """A pattern that matches just ``db.table``."""
    escaped = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in table)
    return f"[!]{escaped[1:]}" if escaped.startswith("!") else escaped


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

    @classmethod
    def begin(cls, state: SnapshotState, notes: Notes, **given: Any) -> SnapshotPlan:
        """Go on from the offset before."""
        read = {table for table, progress in state.active.items() if progress.finished} | set(state.done)
        return cls(
            active=dict(state.active), queue=list(state.queue), done=list(state.done), redo=list(notes.redo),
            append=set(notes.append) - read, reread=set(notes.reread), taken=list(notes.taken), **given,
        )  # fmt: skip

    def state(self) -> SnapshotState:
        """For the offset."""
        return SnapshotState(dict(self.active), tuple(self.chunks), tuple(self.queue), tuple(self.done))

    @property
    def pending(self) -> bool:
        """Whether there is anything left to read."""
        return bool(self.queue or self.redo or any(not progress.finished for progress in self.active.values()))

    # --- what is known since the last planning

    def confirm(self, finished: frozenset[str] | None) -> None:
        """Let go of tables that the sinks hold completely (``None``: there are no sinks to ask)."""
        for table in list(self.done):
            if finished is None or table in finished:
                self.active.pop(table, None)
            if finished is not None and table in finished:
                self.done.remove(table)

    def enqueue(self, tables: Iterable[str], definitions: Mapping[str, TableDef]) -> None:
        """Tables that were never read."""
        for table in tables:
            self.queue.append(table)
            if self.append_allowed and table in definitions and can_append(definitions[table]):
                self.append.add(table)

    def known(self) -> set[str]:
        """Every table that is or was read, as far as the offset tells."""
        return {*self.active, *self.queue, *self.done}

    def take_signals(self, signals: Mapping[str, Mapping[str, Any]], tables: Callable[[], Iterable[str]]) -> None:
        """Take every signal that was not taken before.

        :param tables: names of all tables there are (asked only if a signal needs them).
        :raises ConfigError: a signal that makes no sense.
        """
        self.taken = [name for name in self.taken if name in signals]
        for name, signal in signals.items():
            if name in self.taken:
                continue
            self.taken.append(name)
            touched = self._take(name, signal, tables)
            self.actions.append({"id": name, "type": str(signal["type"]), "tables": touched})

    def _take(self, name: str, signal: Mapping[str, Any], tables: Callable[[], Iterable[str]]) -> list[str]:
        kind = signal.get("type")
        try:
            if kind == "redo":
                chunk = ChunkSpec.from_dict(signal.get("chunk"))
                return self._redo(chunk, whole_table=bool(signal.get("whole_table", False)))
            if kind == "resnapshot":
                wanted = TablePatterns([str(pattern) for pattern in signal["tables"]])
                touched = [t for t in tables() if _matches(wanted, t) and _matches(self.patterns, t)]
                for table in touched:
                    self._read_again(table)
                return touched
        except (HeadgateError, KeyError, TypeError) as error:
            raise ConfigError(f"signal {name} cannot be understood ({error}); remove signals/{name}.json") from None
        raise ConfigError(f"signal {name} has the unknown type {kind!r}; remove signals/{name}.json")

    def _redo(self, chunk: ChunkSpec, *, whole_table: bool) -> list[str]:
        """:param whole_table: the table is gone or has another key, so none of its planned ranges means anything."""
        table = chunk.table
        self.append.discard(table)
        if table in self.active and not whole_table:
            self.redo.append(chunk)
            if table in self.done:
                self.done.remove(table)
        elif table not in self.queue:
            self._read_again(table)
        return [table]

    def _read_again(self, table: str) -> None:
        if table in self.queue and table in self.append:
            return
        self.append.discard(table)
        self.active.pop(table, None)
        self.redo = [chunk for chunk in self.redo if chunk.table != table]
        self.queue = [table, *(queued for queued in self.queue if queued != table)]
        if table in self.done:
            self.done.remove(table)
        self.reread.add(table)

    # --- chunks

    def plan_chunks(self, server: Server) -> None:
        """Chunks for one batch: about ``slots`` times ``chunk_rows`` rows, from several tables if there are."""
        for chunk in list(self.redo[: self.slots]):
            self.redo.remove(chunk)
            self._add(chunk, self.chunk_rows)
        exhausted: set[str] = set()
        while self._room():
            tables = [t for t, progress in self.active.items() if not progress.finished and t not in exhausted]
            if len(tables) < self.slots and self.queue:
                self._activate(server, self.queue.pop(0))
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

    def _room(self) -> bool:
        return self.weight < self.slots * self.chunk_rows

    def _activate(self, server: Server, table: str) -> None:
        definition = server.definitions(TablePatterns([exact_pattern(table)])).get(table)
        self.reread.discard(table)
        if definition is None:  # dropped meanwhile
            self.append.discard(table)
            return
        if not can_append(definition):
            self.append.discard(table)
        from headgate.snapshot import first_chunk_bounds

        stats = server.tables(TablePatterns([exact_pattern(table)])).get(table)
        self.active[table] = first_chunk_bounds(
            server.query, definition, epoch=self.epoch, rows=self.chunk_rows, rows_estimate=stats.rows if stats else 0
        )
        self._definitions[table] = definition

    def _next(self, server: Server, table: str) -> bool:
        """Plan the table's next chunk; False: there is none, or the table is gone."""
        from headgate.snapshot import advance, next_chunk

        definition = self._definitions.get(table)
        if definition is None:
            definition = server.definitions(TablePatterns([exact_pattern(table)])).get(table)
            if definition is None:
                del self.active[table]
                return False
            self._definitions[table] = definition
        progress = self.active[table]
        chunk = next_chunk(server.query, definition, progress, self.chunk_rows)
        if chunk is None:
            return False
        self.active[table] = advance(progress, chunk)
        self._add(chunk, _weight(chunk, self.active[table], self.chunk_rows))
        return True

    def _add(self, chunk: ChunkSpec, weight: int) -> None:
        self.chunks.append(chunk)
        self.weight += weight

    _definitions: dict[str, TableDef] = field(default_factory=dict, repr=False)


def plan_snapshots(
    plan: SnapshotPlan,
    server: Server,
    *,
    finished: frozenset[str] | None,
    signals: Mapping[str, Mapping[str, Any]],
    discover: bool,
) -> None:
    """One batch's part of the snapshots, from what was left and what is new.

    :param discover: look for tables that are not known yet.
    """
    plan.confirm(finished)
    names: list[str] | None = None

    def tables() -> list[str]:
        nonlocal names
        if names is None:
            names = sorted(server.tables(plan.patterns))
        return names

    plan.take_signals(signals, tables)
    if discover:
        unknown = [table for table in tables() if table not in plan.known() and table not in (finished or ())]
        if unknown:
            plan.enqueue(unknown, server.definitions(plan.patterns) if plan.append_allowed else {})
    if plan.pending:
        plan.plan_chunks(server)


def _weight(chunk: ChunkSpec, progress: SnapshotProgress | None, chunk_rows: int) -> int:
    """About how many rows a chunk holds."""
    least = max(1, chunk_rows // _SMALL)
    if chunk.lo is not None and chunk.hi is None:
        return least  # what lies above the greatest key
    if chunk.lo is None and chunk.hi is None and progress is not None:
        return max(least, min(chunk_rows, progress.rows_estimate))
    return max(least, chunk_rows)


def chunk_weights(chunks: Iterable[ChunkSpec], active: Mapping[str, SnapshotProgress], chunk_rows: int) -> list[int]:
    """About how many rows each chunk holds, for sharing them out between tasks."""
    return [_weight(chunk, active.get(chunk.table), chunk_rows) for chunk in chunks]


def _matches(patterns: TablePatterns, table: str) -> bool:
    db, _, name = table.partition(".")
    return patterns.matches(db, name)
