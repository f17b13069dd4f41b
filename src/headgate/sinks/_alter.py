"""Columns that a batch's ALTERs drop, rename or widen, applied to the current table without reading the source again.

Existing rows keep their values: a dropped column leaves them, a renamed one gets another name, and a number that moves
to a wider type is cast, which is exact. The rows are those of the lake, so one commit rewrites its files
(``Reshape``). Images from before the ALTER are converted in the same way, by name and type.

**A name identifies a column throughout the batch.** That holds because no statement of the batch gives a column a name
that another column had in it, and none changes a column twice. Any other batch is a Misfit, and the table is read
again. So the images' order relative to the statements does not matter, and a replay, which may find the table already
changed, plans only what is still missing: a column that the target lacks was dropped, a new name that it has was given.

**A wider type** is proven by the target's type: every value of that Spark type is exact in the new MySQL type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.carrier import DdlRow, Part
from headgate.catalog import AddedColumn, DroppedColumn, RedefinedColumn

__all__ = ["Alteration", "is_wider", "read_alteration"]

_INTEGERS: Final[Mapping[str, int]] = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
"""Bits of MySQL's types. Spark's have the same names."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)( unsigned)?")


@dataclass(frozen=True)
class Alteration:
    """What the statements of a batch do to columns, besides adding some."""

    dropped: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)  # new name → name before
    types: Mapping[str, str] = field(default_factory=dict)  # new name → MySQL type
    last: DdlRow | None = None  # the last statement that changes columns

    def __bool__(self) -> bool:
        return bool(self.dropped or self.renamed or self.types)

    @property
    def names(self) -> frozenset[str]:
        """All names of the changed columns."""
        return self.dropped | self.renamed.keys() | {*self.renamed.values()} | self.types.keys()

    def after(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Return columns of any moment in the batch under their names after it: name → type."""
        new_names = {old: new for new, old in self.renamed.items()}
        return {new_names.get(name, name): kind for name, kind in columns.items() if name not in self.dropped}

    def converts(self, name: str, old: str, new: str) -> bool:
        """Whether values of a column, by its name after the batch, become another Spark type exactly."""
        if name not in self.types:
            return old == new
        return is_wider(old, self.types[name]) and (old == new or is_wider(old, new))


def read_alteration(statements: Sequence[DdlRow], parts: Sequence[Part]) -> Alteration | str:
    """Return what statements of an altered table do, or why that is not clear.

    :param statements: those that change columns and nothing else.
    """
    changes = [change for ddl in statements for change in ddl.changes or ()]
    dropped = [change.name for change in changes if isinstance(change, DroppedColumn)]
    redefined = [change for change in changes if isinstance(change, RedefinedColumn)]
    renamed = {change.new_name: change.name for change in redefined if change.new_name != change.name}
    types = {change.new_name: change.mysql for change in redefined if change.mysql is not None}
    if not dropped and not redefined:
        return Alteration()
    added = [change.name for change in changes if isinstance(change, AddedColumn)]
    uses = [*dropped, *added, *(change.name for change in redefined), *renamed]
    if len({name.lower() for name in uses}) < len(uses):
        return "a column was changed twice in one batch, or its name was used again"
    known = {name for part in parts for name in part.definition.types}
    spelled = {name.lower(): name for name in known}
    if any(spelled.get(name.lower(), name) != name for name in uses):
        return "a statement spells a column differently"
    return Alteration(frozenset(dropped), renamed, types, statements[-1])


def is_wider(spark: str, kind: str) -> bool:
    """Return whether every value of a Spark type is exact in a type, which is MySQL's or Spark's: integers, decimals.

    Equal types count as wider.
    """
    digits, scale, bits = _digits(spark)
    other, unsigned = kind.removesuffix(" unsigned"), kind.endswith(" unsigned")
    if digits is None or unsigned:  # a Spark integer may be negative
        return False
    if other in _INTEGERS:
        return bits is not None and bits <= _INTEGERS[other]
    decimal = _DECIMAL.fullmatch(other)
    if decimal is None:
        return False
    return int(decimal[2]) >= scale and int(decimal[1]) - int(decimal[2]) >= digits


def _digits(spark: str) -> tuple[int | None, int, int | None]:
    """Return the integer and fraction digits of a Spark type, and its bits if it is an integer."""
    if spark in _INTEGERS:
        bits = _INTEGERS[spark]
        return len(str(1 << (bits - 1))), 0, bits
    decimal = _DECIMAL.fullmatch(spark)
    return (None, 0, None) if decimal is None else (int(decimal[1]) - int(decimal[2]), int(decimal[2]), None)
