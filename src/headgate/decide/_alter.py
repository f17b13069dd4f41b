"""What a batch's ALTERs do to columns, and whether existing values become those of the new columns exactly.

``_columns`` argues when the table may follow them. All names are the target's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headgate.carrier import DdlRow, Definition, Part, SourceType
from headgate.catalog import AddedColumn, DroppedColumn, RedefinedColumn, is_text_type, keeps_values
from headgate.decide._misfits import Misfit
from headgate.lake import TargetColumn
from headgate.names import lower_name

__all__ = ["Alteration"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Alteration:
    """What the statements of a batch do to columns. It is true if they do more than add some."""

    added: Mapping[str, AddedColumn] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    redefined: Mapping[str, RedefinedColumn] = field(default_factory=dict)  # by the new name

    @classmethod
    def of(cls, statements: Sequence[DdlRow], parts: Sequence[Part]) -> Alteration:
        """Return what statements do that change columns and nothing else.

        :raises Misfit: names are not clear: a column is changed twice, or its name is used again.
        """
        changes = [change for ddl in statements for change in ddl.changes or ()]
        dropped = [change.name for change in changes if isinstance(change, DroppedColumn)]
        redefined = {change.new_name: change for change in changes if isinstance(change, RedefinedColumn)}
        added = {change.name: change for change in changes if isinstance(change, AddedColumn)}
        alteration = cls(added, frozenset(dropped), redefined)
        if not dropped and not redefined:
            return alteration
        uses = [*(change.name for change in changes), *alteration.renamed]
        if min(len({name.lower() for name in uses}), len({lower_name(name) for name in uses})) < len(uses):
            raise Misfit("a column was changed twice in one batch, or its name was used again")
        spelled = {lower_name(name): name for part in parts for name in part.definition.source_types}
        if any(spelled.get(lower_name(name), name) != name for name in uses):
            raise Misfit("a statement spells a column differently")
        return alteration

    def __bool__(self) -> bool:
        changes = self.redefined.values()
        return bool(self.dropped) or any(not change.keeps_names or change.mysql is not None for change in changes)

    @property
    def renamed(self) -> dict[str, str]:
        """New name → name before, where they differ."""
        return {new: change.name for new, change in self.redefined.items() if change.name != new}

    @property
    def types(self) -> dict[str, str]:
        """New name → MySQL type, where a statement names one."""
        return {new: change.mysql for new, change in self.redefined.items() if change.mysql is not None}

    def after(self, columns: Mapping[str, _T]) -> dict[str, _T]:
        """Return columns of any moment in the batch under their names after it: name → anything about them."""
        new_names = {old: new for new, old in self.renamed.items()}
        return {new_names.get(name, name): value for name, value in columns.items() if name not in self.dropped}

    def changed(self, before: Mapping[str, SourceType]) -> set[str]:
        """Return all names of columns that vanish or get another name or type.

        :param before: the types before, as far as they are known.
        """
        renamed, types = self.renamed, self.types
        same = {name for name, kind in types.items() if name not in renamed and before.get(name, ("",))[0] == kind}
        return {*self.dropped, *renamed, *renamed.values(), *types} - same

    def has_happened(self, definition: Definition) -> bool:
        """Whether a definition that has the columns after the batch has their types and names at the source, too."""
        types, names = definition.source_types, definition.source_names
        return all(
            (change.mysql is None or types.get(name, ("", ""))[0] == change.mysql)
            and (change.source_name == change.new_source_name or names.get(name, "") == change.new_source_name)
            for name, change in self.redefined.items()
        )

    def converts(self, name: str, old: TargetColumn, new: TargetColumn) -> bool:
        """Whether values of a column, by its name after the batch, become those of another type exactly."""
        change, names = self.redefined.get(name), (old.source_name, new.source_name)
        is_renamed = change is not None and names == (change.source_name, change.new_source_name)
        if old.rule != new.rule or (names[0] != names[1] and not is_renamed):
            return False
        if change is None or change.mysql is None:
            return old.spark == new.spark
        if not _holds(change.mysql, old.source, new.source):
            return False
        return old.spark == new.spark if is_text_type(change.mysql) else keeps_values(old.spark, new.spark)

    def keeps_input(self, before: Mapping[str, SourceType], after: Mapping[str, SourceType]) -> bool:
        """Whether a hook that gets columns of the same Arrow types before and after also gets the same values.

        A DECIMAL as text shows its scale, so it must keep its type.
        """
        return all(
            _holds(kind, before.get(name), after.get(name))
            and (not kind.startswith("decimal") or before[name][0] == kind)
            for name, kind in self.types.items()
        )

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


def _holds(mysql: str, before: SourceType | None, after: SourceType | None) -> bool:
    """Return whether every value of a column's type at the source is one of its new type; None: unknown."""
    if before is None or after is None or not keeps_values(before[0], mysql):
        return False
    return not is_text_type(before[0]) or before[1] == after[1]
