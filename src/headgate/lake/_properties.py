"""Properties by which a table of a lake says what it is and how its rows were written: readers need no configuration.

The properties of a form are in ``_form``. Values that are no plain text are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = [
    "MERGED",
    "PIPELINE",
    "TABLE",
    "column_rules_of",
    "hook_of",
    "hook_property",
    "kept_columns_of",
    "kept_columns_property",
    "key_of",
    "key_property",
    "row_filter_of",
    "row_filter_property",
    "rules_property",
    "source_names_of",
    "source_names_property",
    "source_types_of",
    "source_types_property",
]

PIPELINE: Final = "headgate.pipeline"
TABLE: Final = "headgate.table"
MERGED: Final = "headgate.merged"
"""``true`` for a table that consists of other tables' files, which are removed with those; else missing."""
_KEY: Final = "headgate.key"
"""The columns of the table's key, as a JSON list; empty without a key."""
_RULES: Final = "headgate.columns"
"""The rules of ``[columns]`` by which a table's columns were written, as JSON, column → rule. Columns
that the table no longer has may remain."""
_ROWS: Final = "headgate.rows"
"""The expression ``rows`` that a table's rows pass; missing if the table has all rows of its source."""
_HOOK: Final = "headgate.hook"
"""What made a table's columns, ``module:function@version/digest of the columns it gets``; missing without a hook."""
_SOURCE_TYPES: Final = "headgate.source_types"
"""The source's types of a table's columns, as of the last images that were written, as JSON: column → [MySQL type,
collation]. A column may lack. Behind a hook: those of the columns that it gets. An ALTER is compared with them."""
_SOURCE_NAMES: Final = "headgate.source_names"
"""The source's names of the columns that a rule of ``[columns]`` renames, as JSON, column → name at the source. Columns
that the table no longer has may remain. All other properties, and the table, have the columns' new names."""
_KEPT: Final = "headgate.dropped_columns"
"""Columns that the source has dropped and the table keeps, null in all rows, as a JSON list; missing without any."""
_MOST_TYPE_LETTERS: Final = 4096
"""Longer types (ENUMs of many members) are not stored: the property is part of each checkpoint of the table's log."""


def key_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key's columns of a table with these properties; empty without a key."""
    return tuple(json.loads(properties.get(_KEY) or "[]"))


def key_property(key: Sequence[str]) -> dict[str, str]:
    """Return the property of a table with this key."""
    return {_KEY: json.dumps(list(key), ensure_ascii=False)}


def column_rules_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the rules by which the columns of a table with these properties were written."""
    rules: dict[str, str] = json.loads(properties.get(_RULES) or "{}")
    return rules


def rules_property(rules: Mapping[str, str]) -> dict[str, str]:
    """Return the property of a table whose columns have these rules."""
    return {_RULES: json.dumps(rules, sort_keys=True)}


def row_filter_of(properties: Mapping[str, str]) -> str:
    """Return the expression ``rows`` that the rows of a table with these properties pass; "" without one."""
    return properties.get(_ROWS, "")


def row_filter_property(rows: str) -> dict[str, str]:
    """Return the property of a table with this expression ``rows``."""
    return {_ROWS: rows} if rows else {}


def hook_of(properties: Mapping[str, str]) -> str:
    """Return the mark of the hook that made the columns of a table with these properties; "" without one."""
    return properties.get(_HOOK, "")


def hook_property(mark: str) -> dict[str, str]:
    """Return the property of a table whose columns a hook with this mark made."""
    return {_HOOK: mark} if mark else {}


def kept_columns_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a table with these properties that the source has no longer."""
    return tuple(json.loads(properties.get(_KEPT) or "[]"))


def kept_columns_property(names: Sequence[str]) -> dict[str, str]:
    """Return the property of a table that keeps these columns."""
    return {_KEPT: json.dumps(list(names), ensure_ascii=False)} if names else {}


def source_names_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the source's names of the renamed columns of a table with these properties."""
    names: dict[str, str] = json.loads(properties.get(_SOURCE_NAMES) or "{}")
    return names


def source_names_property(names: Mapping[str, str]) -> dict[str, str]:
    """Return the property of a table whose renamed columns have these names at the source."""
    return {_SOURCE_NAMES: json.dumps(names, ensure_ascii=False, sort_keys=True)}


def source_types_of(properties: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the source's types of the columns of a table with these properties, as far as they are stored."""
    stored: dict[str, list[str]] = json.loads(properties.get(_SOURCE_TYPES) or "{}")
    return {name: (mysql, collation) for name, (mysql, collation) in stored.items()}


def source_types_property(types: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return the property of a table whose columns have these types at the source."""
    stored = {name: kind for name, kind in types.items() if len(kind[0]) <= _MOST_TYPE_LETTERS}
    return {_SOURCE_TYPES: json.dumps(stored, ensure_ascii=False, sort_keys=True)}
