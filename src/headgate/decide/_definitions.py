"""Definitions of a batch's images: those that count, and their union, which the changelog gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headgate.carrier import CarriedColumn, Definition, Part
from headgate.catalog import keeps_values
from headgate.decide._misfits import Misfit, retyped

__all__ = ["definitions_of", "names_in_log", "union", "widest", "with_rows"]


def definitions_of(parts: Sequence[Part]) -> list[Definition]:
    """Return the definitions of these parts, each once."""
    return list({part.schema: part.definition for part in parts}.values())


def with_rows(parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts whose definitions are those of rows."""
    return [part for part in parts if not part.only_truncates]


def widest(parts: Sequence[Part]) -> Definition | None:
    """Return the definition of these parts with the most columns."""
    return max(definitions_of(parts), key=lambda definition: len(definition.columns), default=None)


def union(parts: Sequence[Part], logged: Mapping[str, str] | None = None) -> Definition | None:
    """Return a definition with every column of these parts, each in a type that holds all of its values.

    :param logged: columns of a changelog, whose types count, too. Names that differ from those there, or from each
        other, only in letter case are of one column: see :func:`names_in_log`.
    :raises Misfit: a column has two types of which neither holds all values of the other.
    """
    rows = with_rows(parts)
    last = widest(rows or parts)
    if last is None:
        return None
    columns: dict[str, CarriedColumn] = {}
    names = names_in_log(parts, logged)
    for definition in [last, *definitions_of(rows or parts)]:
        for column in definition.columns:
            name = names.get(column.name, column.name)
            columns[name] = _wider(columns.setdefault(name, replace(column, name=name)), column.spark)
    for name in columns.keys() & (logged or {}).keys():
        kind = (logged or {})[name]
        columns[name] = _wider(columns[name], kind) if rows else replace(columns[name], spark=kind)
    return replace(last, columns=tuple(columns.values()), key=tuple(names.get(name, name) for name in last.key))


def names_in_log(parts: Sequence[Part], logged: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return which columns of these parts the changelog has in other letter case: name in images → name there. MySQL
    renames columns so, and columns of Delta tables do not differ by it.
    """
    known = {name.lower(): name for name in logged or {}}
    names = {}
    for definition in definitions_of(parts):
        for name in definition.types:
            if known.setdefault(name.lower(), name) != name:
                names[name] = known[name.lower()]
    return names


def _wider(column: CarriedColumn, spark: str) -> CarriedColumn:
    """Return the column, in this type if it is a wider one."""
    if column.spark == spark or keeps_values(spark, column.spark):
        return column
    if keeps_values(column.spark, spark):
        return replace(column, spark=spark)
    raise Misfit(retyped(column.name, spark, column.spark))
