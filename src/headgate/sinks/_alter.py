"""Columns that a batch's ALTERs drop, rename or widen, applied to the current table without reading the source again.

Existing rows keep their values: a dropped column leaves them, a renamed one gets another name, and a number that moves
to a wider type is cast, which is exact. The rows are those of the lake, so one commit rewrites its files
(``Reshape``). Images from before the ALTER are converted in the same way, by name and type. All names here are the
target's, also those of statements; by ``[columns]`` they may differ from the source's.

**A name identifies a column throughout the batch.** That holds because no statement of the batch gives a column a name
that another column had in it, and none changes a column twice. Any other batch is a Misfit, and the table is read
again. So the images' order relative to the statements does not matter, and a replay, which may find the table already
changed, plans only what is still missing: a column that the target lacks was dropped, a new name that it has was given.

**A RENAME at the source** gives the target's column the name that ``[columns]`` has for the new one: another name, or
the same. If both names have the same rule for values, the values are the same. The statement names the columns of the
source, so a column of the target that has its values from another one (a changed rule) is a Misfit.

**A wider type** is proven by the MySQL type before it, which the target's properties have (``Target.source_types``):
every value of that type is a value of the new one, and the cast between their Spark types is exact. A target without
the type of the column, made by an older version, is read again. Text keeps its collation, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headgate.carrier import DdlRow, Definition, Part, SourceType
from headgate.catalog import AddedColumn, DroppedColumn, RedefinedColumn, is_text_type, keeps_values
from headgate.names import lower_name

__all__ = ["Alteration", "ColumnType", "column_types", "read_alteration"]


_T = TypeVar("_T")


@dataclass(frozen=True)
class ColumnType:
    """A column's type, in the lake and at the source."""

    spark: str
    source: SourceType | None = None  # None: unknown
    source_name: str = ""  # in MySQL, if a rule renames the column
    rule: str = ""  # how its values differ from MySQL's


def column_types(
    types: Mapping[str, str],
    sources: Mapping[str, SourceType],
    source_names: Mapping[str, str],
    rules: Mapping[str, str],
) -> dict[str, ColumnType]:
    """Return the types of columns, by their names."""
    return {
        name: ColumnType(spark, sources.get(name), source_names.get(name, ""), rules.get(name, ""))
        for name, spark in types.items()
    }


@dataclass(frozen=True)
class Alteration:
    """What the statements of a batch do to columns, besides adding some."""

    dropped: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)  # new name → name before
    types: Mapping[str, str] = field(default_factory=dict)  # new name → MySQL type
    source_names: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # new name → name in MySQL before, after
    last: DdlRow | None = None  # the last statement that changes columns

    def __bool__(self) -> bool:
        return bool(self.dropped or self.renamed or self.types or self.source_names)

    @property
    def names(self) -> frozenset[str]:
        """All names of the changed columns."""
        return self.dropped | self.renamed.keys() | {*self.renamed.values()} | self.types.keys()

    def after(self, columns: Mapping[str, _T]) -> dict[str, _T]:
        """Return columns of any moment in the batch under their names after it: name → anything about them."""
        new_names = {old: new for new, old in self.renamed.items()}
        return {new_names.get(name, name): value for name, value in columns.items() if name not in self.dropped}

    def leaves(self, name: str, before: SourceType | None) -> bool:
        """Whether a column keeps its name and its type."""
        is_renamed = name in self.dropped or name in self.renamed or name in self.renamed.values()
        return not is_renamed and before is not None and self.types.get(name) == before[0]

    def has_happened(self, definition: Definition) -> bool:
        """Whether a definition that has the columns after the batch has their types and names at the source, too."""
        types = definition.source_types
        has_types = all(types.get(name, ("", ""))[0] == kind for name, kind in self.types.items())
        names = definition.source_names
        return has_types and all(names.get(name, "") == after for name, (_, after) in self.source_names.items())

    def converts(self, name: str, old: ColumnType, new: ColumnType) -> bool:
        """Whether values of a column, by its name after the batch, become those of another type exactly."""
        names = old.source_name, new.source_name
        if old.rule != new.rule or (names[0] != names[1] and names != self.source_names.get(name)):
            return False
        if name not in self.types:
            return old.spark == new.spark
        if not self._keeps_values(name, old.source, new.source):
            return False
        return old.spark == new.spark if is_text_type(self.types[name]) else keeps_values(old.spark, new.spark)

    def keeps_input(self, before: Mapping[str, SourceType], after: Mapping[str, SourceType]) -> bool:
        """Whether a hook that gets columns of the same Arrow types before and after also gets the same values.

        A DECIMAL as text shows its scale, so it must keep its type.
        """
        return all(
            self._keeps_values(name, before.get(name), after.get(name))
            and (not kind.startswith("decimal") or before[name][0] == kind)
            for name, kind in self.types.items()
        )

    def _keeps_values(self, name: str, before: SourceType | None, after: SourceType | None) -> bool:
        """Whether every value of a column's type at the source is one of its new type; None: unknown."""
        if before is None or after is None or not keeps_values(before[0], self.types[name]):
            return False
        return not is_text_type(before[0]) or before[1] == after[1]

    def source_types(
        self, before: Mapping[str, SourceType], parts: Sequence[Part], latest: Definition
    ) -> dict[str, SourceType]:
        """Return the source's types of the columns at the batch's end, as far as they are certain.

        A definition that was read with a statement, or for the image of a TRUNCATE, may be newer than the batch. That
        of a chunk is not.

        :param before: those at its start.
        :param latest: the definition with the columns at its end.
        """
        known = self.after(before)
        for part in sorted(parts, key=lambda part: (part.kind == "chunk", part.newest_seq or (0, 0, 0, 0))):
            if not part.truncates:
                known |= self.after(part.definition.source_types)
        now = latest.source_types
        known |= {name: (mysql, now[name][1]) for name, mysql in self.types.items()}
        return {name: known[name] for name in now if name in known}


def read_alteration(statements: Sequence[DdlRow], parts: Sequence[Part]) -> Alteration | str:
    """Return what statements of an altered table do, or why that is not clear.

    :param statements: those that change columns and nothing else.
    """
    changes = [change for ddl in statements for change in ddl.changes or ()]
    dropped = [change.name for change in changes if isinstance(change, DroppedColumn)]
    redefined = [change for change in changes if isinstance(change, RedefinedColumn)]
    renamed = {change.new_name: change.name for change in redefined if change.new_name != change.name}
    types = {change.new_name: change.mysql for change in redefined if change.mysql is not None}
    names = {change.new_name: (change.source_name, change.new_source_name) for change in redefined}
    source_names = {name: (before, after) for name, (before, after) in names.items() if before != after}
    if not dropped and not redefined:
        return Alteration()
    added = [change.name for change in changes if isinstance(change, AddedColumn)]
    uses = [*dropped, *added, *(change.name for change in redefined), *renamed]
    if min(len({name.lower() for name in uses}), len({lower_name(name) for name in uses})) < len(uses):
        return "a column was changed twice in one batch, or its name was used again"
    known = {name for part in parts for name in part.definition.source_types}
    spelled = {lower_name(name): name for name in known}
    if any(spelled.get(lower_name(name), name) != name for name in uses):
        return "a statement spells a column differently"
    return Alteration(frozenset(dropped), renamed, types, source_names, statements[-1])
