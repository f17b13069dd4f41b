"""How a batch's columns fit those of a table's targets, and what has to be done to these.

Nothing here knows of states. What does not fit is raised as :class:`Misfit`, and who asked decides what it means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.carrier import ABSENT, META, TABLE_COLUMN, DdlRow, Definition, Part
from headgate.catalog import AddedColumn, existing_value

__all__ = ["Misfit", "Shape", "Target", "conflict", "fit", "fits", "reserved", "shortened", "union", "widest"]

RESERVED = frozenset({*META, TABLE_COLUMN, "_before", ABSENT})
RESERVED_KEYLESS = frozenset({"_row_hash", "_row_copy"})


class Misfit(Exception):
    """Why images do not fit the target: part of a table's reason in the ledger."""


@dataclass(frozen=True)
class Target:
    """What the current table at the target looks like: column → Spark type, without headgate's own columns."""

    types: Mapping[str, str]
    key: tuple[str, ...]
    since_epoch: int | None = None  # the snapshot whose chunks were appended to it, from its first batch on


@dataclass(frozen=True)
class Shape:
    """How the current table's columns are brought to those of the batch."""

    definition: Definition | None = None  # the columns then; None: the batch has nothing to write
    replace: bool = False  # the table is made again with these columns
    added: tuple[str, ...] = ()  # those that the target lacks
    fills: Mapping[str, str] = field(default_factory=dict)  # added column → its value in the rows before, as text


def fit(parts: Sequence[Part], target: Target | None, adds: Sequence[DdlRow], *, restarts: bool) -> Shape:
    """Compare the batch with the target.

    :param adds: the batch's statements that added columns.
    :param restarts: every row of the table is read from this batch on, so the target may be replaced.
    :raises Misfit: rows may have changed that the batch does not bring.
    """
    definition = _joined(parts)
    added = {column.name: column for ddl in adds for column in ddl.adds or ()}
    if target is not None and not added.keys() <= (definition.types.keys() if definition else set()):
        definition = _with_added(definition, adds[-1], target, added)
    if definition is None:
        return Shape()
    fills = _fills(definition, added)
    if target is None:
        return Shape(definition, fills=fills)
    try:
        new = _compare(definition, target)
    except Misfit:
        if not restarts:
            raise
        return Shape(definition, replace=True, fills=fills)
    unexplained = [name for name in new if name not in added]
    if unexplained and not restarts:
        raise Misfit(f"column {unexplained[0]} is new, and no statement of the log added it")
    return Shape(definition, added=new, fills=fills)


def fits(parts: Sequence[Part], target: Target | None) -> bool:
    """Whether these images are of exactly the target's columns."""
    shapes = _definitions(parts)
    return target is not None and all(shape.types == target.types and shape.key == target.key for shape in shapes)


def widest(parts: Sequence[Part]) -> Definition | None:
    """The definition of these parts that has the most columns."""
    return max(_definitions(parts), key=lambda definition: len(definition.columns), default=None)


def reserved(definition: Definition) -> str | None:
    """Why one of the columns cannot be written: headgate has its own of this name."""
    taken = RESERVED if definition.key else RESERVED | RESERVED_KEYLESS
    names = (column.name for column in definition.columns if column.name.lower() in taken)
    name = next(names, None)
    return (
        None
        if name is None
        else f"column {name} has a name that headgate uses itself; rename it or leave the table out"
    )


def union(parts: Sequence[Part]) -> Definition | None:
    """A definition with every column of these parts."""
    last = widest(parts)
    if last is None:
        return None
    columns = {column.name: column for column in last.columns}
    for definition in _definitions(parts):
        for column in definition.columns:
            columns.setdefault(column.name, column)
    return Definition(last.table, last.fingerprint, last.key, tuple(columns.values()))


def conflict(parts: Sequence[Part], logged: Mapping[str, str] | None) -> str | None:
    """Which column has two types, among these parts and the columns of a changelog."""
    whole = union(parts)
    types = whole.types if whole is not None else {}
    for others in (*(definition.types for definition in _definitions(parts)), logged or {}):
        for name, kind in others.items():
            if name in types and types[name] != kind:
                return _retyped(name, kind, types[name])
    return None


def shortened(statement: str) -> str:
    """A statement on one line, for people."""
    text = " ".join(statement.split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _definitions(parts: Sequence[Part]) -> list[Definition]:
    return list({part.schema: part.definition for part in parts}.values())


def _joined(parts: Sequence[Part]) -> Definition | None:
    """The definition that contains all others, which there must be."""
    whole = widest(parts)
    if whole is None:
        return None
    for other in _definitions(parts):
        if other.key != whole.key:
            raise Misfit(_rekeyed(other.key, whole.key))
        for name, kind in other.types.items():
            if name not in whole.types:
                raise Misfit(f"the columns changed within one batch: {name} comes and goes")
            if whole.types[name] != kind:
                raise Misfit(_retyped(name, kind, whole.types[name]))
    return whole


def _with_added(
    definition: Definition | None, last: DdlRow, target: Target, added: Mapping[str, AddedColumn]
) -> Definition:
    """The definition after statements that added columns, if no image shows it yet.

    What the table looked like when the last of them was read may be newer than the batch. Later columns are left out;
    anything else that is new makes it useless.
    """
    if last.schema is None:
        raise Misfit(f"the table after its ALTER is not known: {shortened(last.statement)}")
    seen = Definition.from_json(last.schema)
    wanted = {*target.types, *added}
    columns = tuple(column for column in seen.columns if column.name in wanted)
    known = Definition(seen.table, seen.fingerprint, target.key, columns)
    older = definition.types if definition is not None else {}
    agrees = all(known.types.get(name) == kind for name, kind in {**target.types, **older}.items())
    if len(columns) < len(wanted) or not agrees or seen.key != target.key:
        raise Misfit(f"the table has changed again since its ALTER: {shortened(last.statement)}")
    return known


def _fills(definition: Definition, added: Mapping[str, AddedColumn]) -> dict[str, str]:
    """The values of added columns in the rows before them, which must be known."""
    fills: dict[str, str] = {}
    for name, column in added.items():
        if column.is_null or name not in definition.types:  # neither there nor in the target, which is not there yet
            continue
        value = existing_value(definition.column(name).mysql, column)
        if definition.types[name] == "string" and definition.column(name).mysql.startswith("datetime"):
            value = None  # as text it has all its digits of fraction, which the DEFAULT need not have
        if value is None or not definition.key:  # a table without a key knows its rows by their content
            raise Misfit(f"ALTER added column {name} with a default that only reading tells")
        fills[name] = value
    return fills


def _compare(definition: Definition, target: Target) -> tuple[str, ...]:
    """The columns that the target lacks, which must be all that differs."""
    if definition.key != target.key:
        raise Misfit(_rekeyed(target.key, definition.key))
    types = definition.types
    for name in target.types:
        if name not in types:
            raise Misfit(f"column {name} of the target is no longer in the source table")
    for name, kind in target.types.items():
        if types[name] != kind:
            raise Misfit(f"column {name} changed its type from {kind} to {types[name]}")
    return tuple(name for name in types if name not in target.types)


def _rekeyed(old: Sequence[str], new: Sequence[str]) -> str:
    return f"the key changed from ({', '.join(old)}) to ({', '.join(new)})"


def _retyped(name: str, one: str, other: str) -> str:
    return f"column {name} changed its type between {one} and {other}"
