"""What a batch means for one table: a pure decision, made before anything is written.

A table is in one of the ledger's states. ``snapshotting`` and ``live`` tables take images; ``stale`` and ``stopped``
ones are *held*: their images are left out until a re-read that began after the hold brings the whole table again
(that re-read's first images replace the table if its columns changed). So leaving images out loses nothing that would
have stayed: everything in the held table is read again as of a later point.

| met in the log | then |
|---|---|
| ALTER that only adds nullable columns without a default | columns are added, nothing is read again |
| any other ALTER | rows may have changed unseen: read again; held as ``stale`` if images do not fit the target |
| DROP, RENAME | held as ``stopped``, with a warning: what the name means now is for the user to say |
| CREATE after a DROP or RENAME | held as ``stale``, read again |
| TRUNCATE | everything before it is deleted |
| images that do not fit the target, no re-read asked for | ``SchemaChangedError`` before anything is written |

The decision depends on the batch, the ledger and the target's columns alone, and every outcome is one that a replay of
the batch repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.errors import SchemaChangedError
from headgate.lake import TableState
from headgate.sinks._carrier import Batch, Definition, HeaderTable, Part
from headgate.sinks._images import META, Seq

__all__ = ["Target", "Work", "plan_table"]

RESERVED = frozenset({*META, "_table", "_before"})


@dataclass(frozen=True)
class Target:
    """What the current table at the target looks like: column → Spark type, without headgate's own columns."""

    types: Mapping[str, str]
    key: tuple[str, ...]
    since_epoch: int | None = None  # the snapshot whose chunks were appended to it, from its first batch on


@dataclass(frozen=True)
class Work:
    """What to do with one table in one batch."""

    table: str
    state: TableState  # after the batch, but for the versions
    definition: Definition | None = None  # None: nothing to write
    parts: Sequence[Part] = ()
    apply: bool = False  # whether images go to the current table
    log: bool = True  # whether they go to the changelog
    append_chunks: bool = False
    replace: bool = False
    add_columns: tuple[str, ...] = ()
    truncated: Seq | None = None
    sweep_before: int | None = None  # delete rows of epochs below this
    reread: str | None = None  # ask the planner to read the table again, because …
    warnings: tuple[str, ...] = ()


@dataclass
class _Verdict:
    held: str | None = None  # "stale" | "stopped"
    reason: str | None = None
    reread: str | None = None
    truncated: Seq | None = None
    warnings: list[str] = field(default_factory=list)


def plan_table(
    table: str,
    batch: Batch,
    before: TableState | None,
    target: Target | None,
    *,
    reread_asked: bool = False,
    current: bool = True,
    strict: bool = False,
) -> Work:
    """Decide for ``table``.

    :param before: the table in the last ledger row, if any.
    :param target: the current table, if it exists.
    :param reread_asked: a re-read of this table has been asked for and has not begun.
    :param strict: an ALTER that may change rows stops the table instead of having it read again.
    :param current: whether there is a current table at all; a changelog alone is never held.
    :raises SchemaChangedError: images do not fit the target and nothing says that the table is to be read again.
    """
    info = _info(table, batch, before)
    parts = batch.parts.get(table, [])
    epoch = batch.header.epoch
    if not current:
        return _plan_log(table, batch, before, info)
    verdict = _read_ddl(table, batch, before, strict)
    fresh = info.since_epoch is not None and info.since_epoch == epoch
    was_held = before is not None and before.held
    if was_held and before is not None:
        began = info.since_epoch is not None and info.since_epoch > (before.held_epoch or 0)
        fresh = began and bool(parts)
        if not fresh and verdict.held is None:
            verdict.held, verdict.reason = before.state, before.reason
    definition, misfit = _merge_definitions(parts)
    if definition is not None and verdict.held is None:
        _check_names(definition, verdict)
        _check_key(definition, verdict)
    added: tuple[str, ...] = ()
    replace = False
    if definition is not None and verdict.held is None:
        if misfit is None and target is not None:
            added, misfit = _compare(definition, target)
        if misfit is not None and fresh:
            replace = target is not None
        elif misfit is not None and (verdict.reread or reread_asked):
            verdict.held = "stale"
            verdict.reason = f"{misfit}; waits to be read again"
        elif misfit is not None:
            raise SchemaChangedError(f"{misfit}; {_remedy(table)}", table=table)
    state = _state_after(table, batch, before, info, verdict, parts)
    apply = definition is not None and verdict.held is None
    # Chunks may be appended only where no earlier reading of the table can have left rows.
    appends = info.append and not replace and (target is None or target.since_epoch == info.since_epoch)
    reread = info.since_epoch is not None and not appends
    return Work(
        table=table,
        state=state,
        definition=definition,
        parts=parts,
        apply=apply,
        log=not _reserved(definition),
        append_chunks=apply and appends,
        replace=replace,
        add_columns=added,
        truncated=verdict.truncated,
        sweep_before=info.since_epoch if info.last and reread and state.state == "live" else None,
        reread=verdict.reread,
        warnings=tuple(verdict.warnings),
    )


def _plan_log(table: str, batch: Batch, before: TableState | None, info: HeaderTable) -> Work:
    parts = batch.parts.get(table, [])
    definition, misfit = _merge_definitions(parts)
    if misfit is not None:
        raise SchemaChangedError(f"{misfit}; move the changelog's folder away and read again", table=table)
    verdict = _Verdict()
    if definition is not None:
        _check_names(definition, verdict)
    state = _state_after(table, batch, before, info, verdict, parts)
    return Work(table, state, definition, parts, log=verdict.held is None, warnings=tuple(verdict.warnings))


def _info(table: str, batch: Batch, before: TableState | None) -> HeaderTable:
    """The header's word on the table, or what was last known where it says nothing."""
    info = batch.header.tables.get(table)
    if info is not None:
        return info
    if before is None or before.held:
        return HeaderTable()
    return HeaderTable(before.state, before.since_epoch)


def _remedy(table: str) -> str:
    return f"read the table again with: headgate run --resnapshot '{table}'"


def _read_ddl(table: str, batch: Batch, before: TableState | None, strict: bool) -> _Verdict:
    """Go through the batch's statements on this table, in log order."""
    verdict = _Verdict()
    gone = before is not None and before.state == "stopped"
    for ddl in batch.ddl:
        if ddl.table != table:
            continue
        if ddl.action == "truncate":
            verdict.truncated = ddl.seq
        elif ddl.action == "alter" and not ddl.only_adds_nullable and strict:
            verdict.held = "stopped"
            verdict.reason = f"{_short(ddl.statement)}; {_remedy(table)}"
        elif ddl.action == "alter" and not ddl.only_adds_nullable and verdict.held is None:
            verdict.reread = f"ALTER may have changed rows: {_short(ddl.statement)}"
        elif ddl.action in ("drop", "rename") and before is not None:
            gone = True
            verdict.held, verdict.reread = "stopped", None
            verdict.reason = f"{_short(ddl.statement)}; if the name is in use again, {_remedy(table)}"
        elif ddl.action == "create" and gone:
            gone = False
            verdict.held, verdict.reason = "stale", f"{_short(ddl.statement)}; waits to be read again"
            verdict.reread = f"created again: {_short(ddl.statement)}"
    if verdict.held == "stopped":
        verdict.warnings.append(f"{table} is stopped: {verdict.reason}")
    if verdict.reread is not None:
        verdict.warnings.append(f"{table} is read again: {verdict.reread}")
    return verdict


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
    return [c.name for c in definition.columns if c.name.lower() in RESERVED] if definition else []


def _check_names(definition: Definition, verdict: _Verdict) -> None:
    taken = _reserved(definition)
    if taken:
        verdict.held = "stopped"
        verdict.reason = f"column {taken[0]} has a name that headgate uses itself; rename it or leave the table out"
        verdict.warnings.append(f"{definition.table} is stopped: {verdict.reason}")


def _check_key(definition: Definition, verdict: _Verdict) -> None:
    if verdict.held is None and not definition.key:
        verdict.held = "stopped"
        verdict.reason = (
            "the table has neither a primary key nor a unique key of NOT NULL columns, so its rows look alike: "
            'add one, leave the table out, or use mode = "changelog"'
        )
        verdict.warnings.append(f"{definition.table} is stopped: {verdict.reason}")


def _state_after(
    table: str,
    batch: Batch,
    before: TableState | None,
    info: HeaderTable,
    verdict: _Verdict,
    parts: Sequence[Part],
) -> TableState:
    redo = any(item.table == table for item in batch.redo)
    kept_since = info.since_epoch
    state = info.state
    if info.last and not redo:
        state, kept_since = "live", None
    held_epoch = None
    if verdict.held is not None:
        state, kept_since = verdict.held, None
        again = before is not None and before.held and before.reason == verdict.reason
        held_epoch = before.held_epoch if again and before is not None else batch.header.epoch
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
