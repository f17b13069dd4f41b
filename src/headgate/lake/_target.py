"""A current table's columns, one entry each, and how its rows come from its source.

The table's schema has the columns and their types, its properties have the rest. So readers need no configuration, and
a replay of a batch sees how far the one before it came.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate.carrier import Definition, SourceType
from headgate.delta import Description
from headgate.lake._properties import key_of, key_property
from headgate.lake._table_kind import Form

__all__ = ["Target", "TargetColumn", "columns_of", "description_of", "kept_columns"]

_SINCE: Final = "headgate.since"
_ROWS, _HOOK, _KEPT = "headgate.rows", "headgate.hook", "headgate.dropped_columns"
_SOURCE_TYPES, _SOURCE_NAMES, _RULES = "headgate.source_types", "headgate.source_names", "headgate.columns"
"""Properties with an entry for each column that has such a value."""
_MOST_TYPE_LETTERS: Final = 4096
"""Longer types (ENUMs of many members) are not stored: the property is part of each checkpoint of the table's log."""


@dataclass(frozen=True)
class TargetColumn:
    """A column's type in the lake, and where its values come from."""

    spark: str
    source: SourceType | None = None
    """Its type at the source, as of the last images that were written. None: unknown, or a hook makes the column."""
    source_name: str = ""
    """Its name at the source, if a rule of ``[columns]`` renames it."""
    rule: str = ""
    """The rule of ``[columns]`` by which its values were written, if it has one."""


def columns_of(definition: Definition) -> dict[str, TargetColumn]:
    """Return the columns of a table that is written by this definition, by their names."""
    sources = {} if definition.hook else definition.source_types
    return {
        column.name: TargetColumn(column.spark, sources.get(column.name), column.source_name, column.rule)
        for column in definition.columns
    }


def description_of(definition: Definition, *, required: Collection[str] = ()) -> Description:
    """Return the description of a table that is written by this definition: its comments, as far as they are known.

    :param required: columns that are never null in the table.
    """
    return Description(definition.comment, definition.comments, required)


@dataclass(frozen=True)
class Target:
    """Columns and key of a current table, without headgate's own columns."""

    columns: Mapping[str, TargetColumn]
    key: tuple[str, ...] = ()
    form: Form = Form.PLAIN
    since_epoch: int | None = None
    """First epoch of the snapshot whose chunks were appended to it."""
    rows: str = ""
    """The expression ``rows`` that its rows pass; "": it has all rows of its source."""
    hook: str = ""
    """What made its columns, ``module:function@version/digest of the columns it gets``; "" without a hook."""
    hook_gets: Mapping[str, SourceType] = field(default_factory=dict)
    """Types of the columns that the hook gets, by their names at the source."""
    kept: Mapping[str, TargetColumn] = field(default_factory=dict)
    """Columns that the source has dropped and the table keeps, null in all rows."""
    unnoted: Mapping[str, TargetColumn] = field(default_factory=dict)
    """Entries of the properties without a column, of unknown types: one that an attempt renamed or dropped which was
    killed before it noted that."""

    @classmethod
    def of(cls, types: Mapping[str, str], properties: Mapping[str, str]) -> Target:
        """Return the table with these properties.

        :param types: its columns' Spark types, without headgate's own columns.
        """

        def parsed(name: str) -> dict[str, Any]:
            return dict(json.loads(properties.get(name) or "{}"))

        sources: dict[str, SourceType] = {name: (kind, text) for name, (kind, text) in parsed(_SOURCE_TYPES).items()}
        names, rules, hook = parsed(_SOURCE_NAMES), parsed(_RULES), properties.get(_HOOK, "")
        columns = {
            name: TargetColumn(
                types.get(name, ""), None if hook else sources.get(name), names.get(name, ""), rules.get(name, "")
            )
            for name in {**types, **({} if hook else sources), **names, **rules}
        }
        unnoted = {name: columns.pop(name) for name in [*columns] if name not in types}
        kept = {name: columns.pop(name) for name in kept_columns(properties) if name in columns}
        since, gets = properties.get(_SINCE), sources if hook else {}
        key, form, rows = key_of(properties), Form.of(properties), properties.get(_ROWS, "")
        return cls(columns, key, form, int(since) if since else None, rows, hook, gets, kept, unnoted)

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties. Those that are missing without a value are never taken from a table that has them."""
        types = {name: kind for name, kind in self.source_types.items() if len(kind[0]) <= _MOST_TYPE_LETTERS}
        names = {name: column.source_name for name, column in self.noted.items() if column.source_name}
        rules = {name: column.rule for name, column in self.noted.items() if column.rule}
        since = str(self.since_epoch) if self.since_epoch is not None else ""
        optional = {_SINCE: since, _ROWS: self.rows, _HOOK: self.hook}
        return {
            **key_property(self.key),
            **self.form.properties,
            _SOURCE_TYPES: json.dumps(types, ensure_ascii=False, sort_keys=True),
            _SOURCE_NAMES: json.dumps(names, ensure_ascii=False, sort_keys=True),
            _RULES: json.dumps(rules, sort_keys=True),
            _KEPT: json.dumps([*self.kept], ensure_ascii=False),
            **{name: text for name, text in optional.items() if text},
        }

    @property
    def noted(self) -> dict[str, TargetColumn]:
        """All entries of the properties."""
        return {**self.unnoted, **self.kept, **self.columns}

    @property
    def types(self) -> dict[str, str]:
        """Column → Spark type."""
        return {name: column.spark for name, column in self.columns.items()}

    @property
    def source_types(self) -> Mapping[str, SourceType]:
        """Types at the source, where known: of the columns, or of those that its hook gets."""
        if self.hook:
            return self.hook_gets
        return {name: column.source for name, column in self.noted.items() if column.source is not None}

    def with_source_types(self, types: Mapping[str, SourceType]) -> Target:
        """Return the table with these types at the source; those of other columns are unknown."""
        if self.hook:
            return replace(self, hook_gets=types)
        columns = {name: replace(column, source=types.get(name)) for name, column in self.columns.items()}
        return replace(self, columns=columns)

    def seen_by(self, definition: Definition) -> dict[str, TargetColumn]:
        """Return the columns that should be in images of a definition: a history may have further ones."""
        names = definition.types if self.form is Form.HISTORY else self.columns
        return {name: column for name, column in self.columns.items() if name in names}


def kept_columns(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that the source has dropped and a table with these properties keeps."""
    return tuple(json.loads(properties.get(_KEPT) or "[]"))
