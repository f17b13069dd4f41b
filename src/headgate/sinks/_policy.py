"""What a batch means for one table: a pure decision, made before anything is written.

A table is in one of the ledger's states (``lake.TableState``). ``stale`` and ``stopped`` tables are *held*: their
images are left out until a re-read that began after the hold brings the whole table again (that re-read's first rows
replace the table if its columns changed). So leaving images out loses nothing that would have stayed: everything in the
held table is read again as of a later point. Tables in every other state take images.

What a statement does to the rows that are there is not in the log. So a table goes on taking images only where the
statement itself tells all of it:

| met in the log | under ``evolve`` | under ``strict`` |
|---|---|---|
| ALTER of indexes, constraints, comments, options; of partitions that keeps all rows | nothing to do | the same |
| ALTER that only adds columns, NULL or of an exact literal default | columns added and filled | the same |
| any other ALTER | held as ``stale``, read again | ``stopped`` |
| DROP, or a RENAME after which nothing has the name | ``stopped``; the target stays as it is | the same |
| CREATE after that, or a RENAME that gives the name to another table | held as ``stale``, read again | ``stopped`` |
| TRUNCATE | everything before it is deleted | the same |
| images that the reader left out: nobody knows their columns, or what their key is | ``stopped`` | the same |
| a chunk left out, because nobody knows what a row's key is; its reading frees nothing | ``stopped`` | the same |
| a foreign key that changes rows unseen, at a statement or when a reading begins | ``stopped`` | the same |
| the same, which is gone again | held as ``stale``, read again | ``stopped`` |
| images that do not fit the target, for whatever reason | held as ``stale``, read again | ``stopped`` |

Tools that change a table through a copy (gh-ost, pt-online-schema-change) end in a RENAME that gives the name away and
to the copy in one statement: that reads the table again.

**A batch in which a re-read begins** needs nothing of the table's log: its chunks are exact at the batch's end, and
every range is read then or later. So statements are settled by the reading, and log images are left out of ``current``,
but for a live table whose images fit it: it stays as new as it was. (A range read in an earlier batch of the same
re-read counts on the images since.)

**A partial reading** (a signal with a condition) brings some rows as they are at the batch's end: they are merged like
images. It begins and ends nothing: no rows are swept, a held table stays held, one that was never read whole is not
``live`` after it.

**When all rows were read** the table is ``live`` only if it is exact: ``_promises``.

The decision depends on the batch, the ledger and the target's columns alone, and every outcome is one that a replay of
the batch repeats. What came of each statement goes to the schema history: ``applied``, ``re-read``, ``held`` (the table
was held already), ``stopped``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.carrier import ABSENT, META, TABLE_COLUMN, Batch, DdlRow, Definition, HeaderTable, Part, Seq
from headgate.catalog import AddedColumn, existing_value
from headgate.lake import TableState, Way
from headgate.sinks._promises import Unseen, definition_after, promised

__all__ = ["Outcome", "Target", "Work", "plan_table", "read_again"]

RESERVED = frozenset({*META, TABLE_COLUMN, "_before", ABSENT})
RESERVED_KEYLESS = frozenset({"_row_hash", "_row_copy"})


@dataclass(frozen=True)
class Target:
    """What the current table at the target looks like: column → Spark type, without headgate's own columns."""

    types: Mapping[str, str]
    key: tuple[str, ...]
    since_epoch: int | None = None  # the snapshot whose chunks were appended to it, from its first batch on


@dataclass(frozen=True)
class Outcome:
    """What came of one statement for one table."""

    ddl: DdlRow
    done: str  # applied, re-read, held, stopped
    reason: str | None = None


@dataclass(frozen=True)
class Work:
    """What to do with one table in one batch."""

    table: str
    state: TableState  # after the batch, but for the versions
    definition: Definition | None = None  # None: nothing to write
    parts: Sequence[Part] = ()  # those for the current table
    apply: bool = False  # whether there is anything to do to the current table
    exact: bool = False  # whether the current table equals the source before the batch and its images say all
    midway: bool = False  # whether some ranges were read in earlier batches, and the table is not exact yet
    log: Definition | None = None  # of the changelog's rows; None: nothing goes there
    log_parts: Sequence[Part] = ()
    append_chunks: bool = False
    replace: bool = False
    add_columns: tuple[str, ...] = ()
    fills: Mapping[str, str] = field(default_factory=dict)  # added column → its value in the rows before, as text
    truncated: Seq | None = None
    sweep_before: int | None = None  # delete rows of epochs below this
    strays: tuple[int, int] | None = None  # delete rows of epochs from the first of these up to below the second
    reread: str | None = None  # ask the planner to read the table again, because …
    passing: bool = False  # the table came and went within the batch: nothing is kept of it
    warnings: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    ways: Mapping[Way, str] = field(default_factory=dict)  # once it is done: how the batch came into the current table


@dataclass
class _Verdict:
    """What is known so far; ``hold`` is the one place where a table gets held."""

    table: str
    strict: bool
    held: str | None = None  # "stale" | "stopped"
    reason: str | None = None
    reread: str | None = None
    truncated: Seq | None = None
    gone: bool = False
    adds: list[DdlRow] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def stop(self, reason: str) -> None:
        self.held, self.reason, self.reread = "stopped", reason, None

    def read_again(self, reason: str) -> None:
        """Under ``strict``: stop."""
        if self.strict:
            self.stop(f"{reason}; {_remedy(self.table)}")
        else:
            self.held, self.reason, self.reread = "stale", f"{reason}; waits to be read again", reason

    def settle(self) -> None:
        """The reading that begins in this batch has settled all that would hold the table."""
        self.held = self.reason = self.reread = None
        self.adds = []
        self.outcomes = [Outcome(found.ddl, "applied", "the table is read in this batch") for found in self.outcomes]

    def note(self, ddl: DdlRow, done: str, reason: str | None = None) -> None:
        self.outcomes.append(Outcome(ddl, done, reason))


def plan_table(
    table: str,
    batch: Batch,
    before: TableState | None,
    target: Target | None,
    *,
    logged: Mapping[str, str] | None = None,
    reread_asked: bool = False,
    current: bool = True,
    changelog: bool = True,
    strict: bool = False,
    unseen: Unseen | None = None,
) -> Work:
    """Decide for ``table``.

    :param before: the table in the last ledger row, if any.
    :param target: the current table, if it exists.
    :param logged: the changelog's columns of the table, if it exists: name → Spark type.
    :param reread_asked: a re-read of this table has been asked for and has not begun.
    :param current: whether there is a current table at all.
    :param changelog: whether there is a changelog.
    :param strict: what would have the table read again stops it instead.
    :param unseen: why its rows change without images, from this batch on or in it.
    """
    info = _info(table, batch, before)
    parts = batch.parts.get(table, [])
    chunks = [part for part in parts if part.kind == "chunk"]
    redo = any(item.table == table for item in batch.redo)
    was_held = before is not None and before.held
    freed = _is_freed(before, info, chunks, redo)
    begins = info.since_epoch == batch.header.epoch and (freed or not was_held)
    verdict = _Verdict(table, strict)
    said = batch.header.tables.get(table, HeaderTable())
    waits = said.state == "snapshotting" and said.since_epoch is None and not said.partial
    if table in batch.stops and not waits and (freed or not was_held) and not (begins and chunks):
        verdict.stop(batch.stops[table])
    if current:
        known = before is not None or table in batch.header.tables or bool(parts)
        _read_ddl(verdict, batch, before, known=known)
        if begins and (chunks or not verdict.gone):
            verdict.settle()
    else:
        verdict.outcomes = [Outcome(ddl, "applied") for ddl in batch.ddl if ddl.table == table]
    if before is not None and was_held and not freed and verdict.held is None:
        verdict.held, verdict.reason = before.state, before.reason
    if table in batch.unread:
        verdict.stop(batch.unread[table])
    if unseen is not None and not unseen.accepted:
        _hold_unseen(verdict, unseen, begins=begins, current=current)
    takes_all = before is not None and before.state in ("settling", "live", "inexact")
    settled = begins and not (takes_all and not verdict.outcomes and _fits(parts, target))
    applied = chunks if settled else parts
    definition, misfit = _merge_definitions(applied)
    shape = _Shape()
    if definition is not None and verdict.held is None:
        _check_names(definition, verdict)
    if current and verdict.held is None:
        shape = _shape(verdict, definition, misfit, target, anew=begins or freed, asked=reread_asked)
    log: Definition | None = None
    log_parts: Sequence[Part] = ()
    if changelog and not (verdict.held == "stopped" and before is not None and before.state == "stopped"):
        log, log_parts = _plan_log(verdict, parts, chunks if settled else None, logged)
    if waits:
        verdict.reread = None  # its reading is yet to begin
    passing = before is None and table not in batch.header.tables and verdict.gone and log is None
    _tell(verdict, None if freed else before)
    state = _state_after(table, batch, before, info, verdict, parts, freed=freed)
    if verdict.held is None:
        state = promised(state, batch, None if begins or freed else before, unseen, begins=begins)
        if state.state == "inexact" and (before is None or before.state != "inexact"):
            verdict.warnings.append(f"{table} is inexact: {state.reason}")
        if current:
            state = replace(state, definition=definition_after(table, batch, before, parts))
    # Chunks may be appended only where no earlier reading of the table can have left rows.
    appends = info.append and not shape.replace and (target is None or target.since_epoch == info.since_epoch)
    reread = info.since_epoch is not None and not appends
    return Work(
        table=table,
        state=state,
        definition=shape.definition,
        parts=applied,
        apply=current and shape.definition is not None and verdict.held is None,
        exact=_is_live(before) and info.state == "live" and verdict.held is None and not reread_asked and not chunks,
        midway=before is not None
        and (before.state == "settling" or (before.state == "snapshotting" and before.since_epoch is not None)),
        log=log,
        log_parts=log_parts,
        append_chunks=verdict.held is None and appends,
        replace=shape.replace,
        add_columns=shape.added,
        fills=shape.fills,
        truncated=verdict.truncated if verdict.held is None else None,
        sweep_before=info.since_epoch if info.last and reread and state.is_read and not shape.replace else None,
        strays=_strays(info, batch) if freed and not shape.replace else None,
        reread=verdict.reread,
        passing=passing,
        warnings=tuple(verdict.warnings),
        outcomes=tuple(verdict.outcomes),
    )


def read_again(work: Work, reason: str, epoch: int, *, strict: bool) -> Work:
    """``work`` of a table that turned out, while it was written, not to hold all it should: held, and read again."""
    verdict = _Verdict(work.table, strict)
    verdict.read_again(reason)
    _tell(verdict, None)
    state = replace(work.state, state=verdict.held or "", since_epoch=None, held_epoch=epoch, reason=verdict.reason)
    return replace(work, state=state, reread=verdict.reread, warnings=(*work.warnings, *verdict.warnings))


def _is_freed(before: TableState | None, info: HeaderTable, chunks: Sequence[Part], redo: bool) -> bool:
    """Whether a held table takes images again: rows of a re-read that began later are here, or it ended without any."""
    if before is None or not before.held or info.since_epoch is None:
        return False
    return info.since_epoch > (before.held_epoch or 0) and (bool(chunks) or (info.last and not redo))


def _strays(info: HeaderTable, batch: Batch) -> tuple[int, int] | None:
    """The epochs of a reading that frees its table now, up to this batch's: nothing of them has come to the table.

    But for an attempt that was killed before its batch counted, and whose chunks, read again, gave nothing: then the
    table stayed held, its changes were left out, and rows of that attempt are no longer what the source has.
    """
    since = info.since_epoch
    return (since, batch.header.epoch) if since is not None and since < batch.header.epoch else None


def _info(table: str, batch: Batch, before: TableState | None) -> HeaderTable:
    """The header's word on the table, or what was last known where it says nothing."""
    info = batch.header.tables.get(table)
    if info is not None and info.partial and before is None:
        return HeaderTable("snapshotting", partial=True)
    if info is not None and not info.partial:
        return info
    if before is None or before.held:
        return HeaderTable()
    return HeaderTable(before.state, before.since_epoch)


def _fits(parts: Sequence[Part], target: Target | None) -> bool:
    """Whether these images are of exactly the target's columns."""
    shapes = {part.schema: part.definition for part in parts}.values()
    return target is not None and all(shape.types == target.types and shape.key == target.key for shape in shapes)


def _hold_unseen(verdict: _Verdict, unseen: Unseen, *, begins: bool, current: bool) -> None:
    if not unseen.over:
        verdict.stop(f"{unseen.reason}; then {_remedy(verdict.table)}")
    elif current and not begins and verdict.held is None:
        verdict.read_again(unseen.reason)


def _is_live(before: TableState | None) -> bool:
    return before is not None and before.state == "live"


def _remedy(table: str) -> str:
    return f"read the table again with: headgate run --resnapshot '{table}'"


def _read_ddl(verdict: _Verdict, batch: Batch, before: TableState | None, *, known: bool) -> None:
    """Go through the batch's statements on this table, in log order.

    :param known: headgate has the table, or is about to read it; a name it never had cannot be lost.
    """
    verdict.gone = before is not None and before.state == "stopped"
    for ddl in batch.ddl:
        if ddl.table == verdict.table:
            _apply_ddl(verdict, ddl, before, known)
        if ddl.new_name == verdict.table and known:
            verdict.gone = False
            verdict.read_again(f"the name was given to another table: {_short(ddl.statement)}")
            verdict.note(ddl, verdict.held or "", verdict.reason)


def _apply_ddl(verdict: _Verdict, ddl: DdlRow, before: TableState | None, known: bool) -> None:
    held = verdict.held or (before.state if before is not None and before.held else None)
    text = _short(ddl.statement)
    if ddl.action == "truncate":
        verdict.truncated = ddl.seq
        verdict.note(ddl, "held" if held else "applied")
    elif ddl.action == "alter" and ddl.adds is not None:
        verdict.adds.append(ddl)
        verdict.note(ddl, "held" if held else "applied")
    elif ddl.action == "alter" and (held == "stopped" and verdict.strict):
        verdict.note(ddl, "held")
    elif ddl.action == "alter":
        verdict.read_again(f"ALTER may have changed rows: {text}")
        verdict.note(ddl, verdict.held or "", verdict.reason)
    elif ddl.action in ("drop", "rename") and known:
        verdict.gone = True
        verdict.stop(f"{text}; if the name is in use again, {_remedy(verdict.table)}")
        verdict.note(ddl, "stopped", verdict.reason)
    elif ddl.action == "create" and verdict.gone:
        verdict.gone = False
        verdict.read_again(f"created again: {text}")
        verdict.note(ddl, verdict.held or "", verdict.reason)
    else:
        verdict.note(ddl, "applied")


def _tell(verdict: _Verdict, before: TableState | None) -> None:
    """Warnings, and each statement's outcome in the history's words."""
    found = []
    for outcome in verdict.outcomes:
        done, reason = outcome.done, outcome.reason
        if done == "applied" and verdict.held is not None and outcome.ddl in verdict.adds:
            done, reason = verdict.held, verdict.reason
        found.append(Outcome(outcome.ddl, "re-read" if done == "stale" else done, reason))
    verdict.outcomes = found
    if verdict.held == "stopped" and (before is None or before.reason != verdict.reason):
        verdict.warnings.append(f"{verdict.table} is stopped: {verdict.reason}")
    if verdict.reread is not None:
        verdict.warnings.append(f"{verdict.table} is read again: {verdict.reread}")


# --- columns


@dataclass(frozen=True)
class _Shape:
    """How the current table's columns are brought to those of the batch."""

    definition: Definition | None = None
    replace: bool = False
    added: tuple[str, ...] = ()
    fills: Mapping[str, str] = field(default_factory=dict)


def _shape(
    verdict: _Verdict,
    definition: Definition | None,
    misfit: str | None,
    target: Target | None,
    *,
    anew: bool,
    asked: bool,
) -> _Shape:
    """Compare with the target; what does not fit and was not begun to be read again holds the table.

    :param anew: every row of the table is read from this batch on.
    :param asked: somebody asked for that already.
    """
    adds = {column.name: column for ddl in verdict.adds for column in ddl.adds or ()}
    added: tuple[str, ...] = ()
    fills: dict[str, str] = {}
    replace = False
    if target is not None and misfit is None and not adds.keys() <= (definition.types.keys() if definition else set()):
        definition, misfit = _with_added(definition, verdict, target, adds)
    if definition is not None and misfit is None:
        fills, misfit = _fills(definition, adds)
    if definition is not None and target is not None and misfit is None:
        added, misfit = _compare(definition, target)
        unexplained = [name for name in added if name not in adds]
        if anew:
            replace, misfit = misfit is not None, None
        elif unexplained and misfit is None:
            misfit = f"column {unexplained[0]} is new, and no statement of the log added it"
    if misfit is None:
        return _Shape(definition, replace, added, fills)
    verdict.read_again(misfit)
    if asked:
        verdict.reread = None
    return _Shape()


def _with_added(
    definition: Definition | None, verdict: _Verdict, target: Target, adds: Mapping[str, AddedColumn]
) -> tuple[Definition | None, str | None]:
    """The definition after statements that added columns, where no image shows it yet.

    What the table looked like when the last of them was read may be newer than the batch; later columns are left out,
    and anything else that is new makes it useless.
    """
    text = _short(verdict.adds[-1].statement)
    schema = verdict.adds[-1].schema
    if schema is None:
        return None, f"the table after its ALTER is not known: {text}"
    seen = Definition.from_json(schema)
    wanted = {*target.types, *adds}
    columns = tuple(column for column in seen.columns if column.name in wanted)
    known = Definition(seen.table, seen.fingerprint, target.key, columns)
    older = definition.types if definition is not None else {}
    fits = all(known.types.get(name) == kind for name, kind in {**target.types, **older}.items())
    if len(columns) < len(wanted) or not fits or seen.key != target.key:
        return None, f"the table has changed again since its ALTER: {text}"
    return known, None


def _fills(definition: Definition, adds: Mapping[str, AddedColumn]) -> tuple[dict[str, str], str | None]:
    """The values of added columns in the rows before them, and why they are not known."""
    fills: dict[str, str] = {}
    for name, column in adds.items():
        if column.is_null or name not in definition.types:  # neither there nor in the target, which is not there yet
            continue
        value = existing_value(definition.column(name).mysql, column)
        if definition.types[name] == "string" and definition.column(name).mysql.startswith("datetime"):
            value = None  # as text it has all its digits of fraction, which the DEFAULT need not have
        if value is None or not definition.key:  # a table without a key knows its rows by their content
            return {}, f"ALTER added column {name} with a default that only reading tells"
        fills[name] = value
    return fills, None


def _plan_log(
    verdict: _Verdict, parts: Sequence[Part], chunks: Sequence[Part] | None, logged: Mapping[str, str] | None
) -> tuple[Definition | None, Sequence[Part]]:
    """What goes to the changelog, whose columns only grow; a type that it cannot hold stops the table.

    :param chunks: the rows of a reading that begins in this batch; they go alone where older images do not fit them.
    """
    definition, misfit = _union(parts, logged)
    if misfit is not None and chunks:
        parts = chunks
        definition, misfit = _union(parts, logged)
    if definition is None:
        return None, ()
    if _reserved(definition):
        _check_names(definition, verdict)
        return None, ()
    if misfit is not None:
        verdict.stop(f"{misfit}, which its changelog cannot hold: move that folder away, then {_remedy(verdict.table)}")
        return None, ()
    return definition, parts


def _union(parts: Sequence[Part], logged: Mapping[str, str] | None) -> tuple[Definition | None, str | None]:
    """A definition with every column of these parts, and which of them has two types."""
    definitions = list({part.schema: part.definition for part in parts}.values())
    if not definitions:
        return None, None
    last = max(definitions, key=lambda definition: len(definition.columns))
    columns = {column.name: column for column in last.columns}
    for definition in definitions:
        for column in definition.columns:
            columns.setdefault(column.name, column)
    union = Definition(last.table, last.fingerprint, last.key, tuple(columns.values()))
    for types in (*(definition.types for definition in definitions), logged or {}):
        for name, kind in types.items():
            if name in columns and columns[name].spark != kind:
                return union, f"column {name} changed its type between {kind} and {columns[name].spark}"
    return union, None


def _short(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _merge_definitions(parts: Sequence[Part]) -> tuple[Definition | None, str | None]:
    """The definition that contains all others, and, where there is none, why."""
    definitions = {part.schema: part.definition for part in parts}
    if not definitions:
        return None, None
    widest = max(definitions.values(), key=lambda definition: len(definition.columns))
    for other in definitions.values():
        if other.key != widest.key:
            return widest, f"the key changed from ({', '.join(other.key)}) to ({', '.join(widest.key)})"
        for name, kind in other.types.items():
            if name not in widest.types:
                return widest, f"the columns changed within one batch: {name} comes and goes"
            if widest.types[name] != kind:
                return widest, f"column {name} changed its type between {kind} and {widest.types[name]}"
    return widest, None


def _compare(definition: Definition, target: Target) -> tuple[tuple[str, ...], str | None]:
    """The columns the target lacks, and what else does not fit."""
    if definition.key != target.key:
        return (), f"the key changed from ({', '.join(target.key)}) to ({', '.join(definition.key)})"
    types = definition.types
    gone = [name for name in target.types if name not in types]
    if gone:
        return (), f"column {gone[0]} of the target is no longer in the source table"
    for name, kind in target.types.items():
        if types[name] != kind:
            return (), f"column {name} changed its type from {kind} to {types[name]}"
    return tuple(name for name in types if name not in target.types), None


def _reserved(definition: Definition | None) -> list[str]:
    if definition is None:
        return []
    taken = RESERVED if definition.key else RESERVED | RESERVED_KEYLESS
    return [column.name for column in definition.columns if column.name.lower() in taken]


def _check_names(definition: Definition, verdict: _Verdict) -> None:
    taken = _reserved(definition)
    if taken:
        verdict.stop(f"column {taken[0]} has a name that headgate uses itself; rename it or leave the table out")


def _state_after(
    table: str,
    batch: Batch,
    before: TableState | None,
    info: HeaderTable,
    verdict: _Verdict,
    parts: Sequence[Part],
    *,
    freed: bool,
) -> TableState:
    redo = any(item.table == table for item in batch.redo)
    kept_since = info.since_epoch
    state = "live" if info.state in ("settling", "inexact") else info.state  # until `promised` looks at it again
    if info.last and not redo:
        state, kept_since = "filtered" if info.filtered else "live", None
    held_epoch = None
    if verdict.held is not None:
        state, kept_since = verdict.held, None
        # What holds a table again while it is read makes that reading useless: only a later one frees it.
        same = before is not None and before.held and before.reason == verdict.reason and verdict.reread is None
        same = same and table not in batch.unread
        held_epoch = before.held_epoch if before is not None and same and not freed else batch.header.epoch
    return TableState(
        table=table,
        state=state,
        version=before.version if before else None,
        changelog_version=before.changelog_version if before else None,
        since_epoch=kept_since,
        held_epoch=held_epoch,
        rows_estimate=info.rows_estimate,
        chunks_done=info.chunks_done,
        chunks_estimate=info.chunks_estimate,
        images=sum(part.images for part in parts),
        reason=verdict.reason if verdict.held else None,
    )
