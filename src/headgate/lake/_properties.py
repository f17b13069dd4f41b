"""Properties by which a table of a lake says what it is and how its rows were written: readers need no configuration.

The properties of a form are in ``_form``. Values that are no plain text are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MERGED", "PIPELINE", "TABLE", "SourceMapping", "key_of", "key_property"]

PIPELINE: Final = "headgate.pipeline"
TABLE: Final = "headgate.table"
MERGED: Final = "headgate.merged"
"""``true`` for a table that consists of other tables' files, which are removed with those; else missing."""
_KEY: Final = "headgate.key"
"""The columns of the table's key, as a JSON list; empty without a key."""
_SOURCE_TYPES, _SOURCE_NAMES, _RULES = "headgate.source_types", "headgate.source_names", "headgate.columns"
_ROWS, _HOOK, _KEPT = "headgate.rows", "headgate.hook", "headgate.dropped_columns"
"""Properties of :class:`SourceMapping`."""
_MOST_TYPE_LETTERS: Final = 4096
"""Longer types (ENUMs of many members) are not stored: the property is part of each checkpoint of the table's log."""


def key_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key's columns of a table with these properties; empty without a key."""
    return tuple(json.loads(properties.get(_KEY) or "[]"))


def key_property(key: Sequence[str]) -> dict[str, str]:
    """Return the property of a table with this key."""
    return {_KEY: json.dumps(list(key), ensure_ascii=False)}


@dataclass(frozen=True)
class SourceMapping:
    """How a current table's columns and rows come from its source. All names of columns are the table's.

    Columns that the table no longer has may remain in ``rules`` and ``source_names``.
    """

    source_types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Column → MySQL type and collation, as of the last images that were written; some may lack. Behind a hook: those
    of the columns that it gets. An ALTER is compared with them."""
    source_names: Mapping[str, str] = field(default_factory=dict)
    """Column → its name at the source, if a rule of ``[columns]`` renames it."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """Column → the rule of ``[columns]`` by which its values were written, if it has one."""
    rows: str = ""
    """The expression ``rows`` that the table's rows pass; "": the table has all rows of its source."""
    hook: str = ""
    """What made the columns, ``module:function@version/digest of the columns it gets``; "" without a hook."""
    kept: tuple[str, ...] = ()
    """Columns that the source has dropped and the table keeps, null in all rows."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> SourceMapping:
        """Parse the properties of a table."""

        def parsed(name: str, default: str) -> Any:
            return json.loads(properties.get(name) or default)

        types = {name: (mysql, collation) for name, (mysql, collation) in parsed(_SOURCE_TYPES, "{}").items()}
        names, rules, kept = parsed(_SOURCE_NAMES, "{}"), parsed(_RULES, "{}"), tuple(parsed(_KEPT, "[]"))
        return cls(types, names, rules, properties.get(_ROWS, ""), properties.get(_HOOK, ""), kept)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table with this mapping. Without ``rows`` or a hook theirs are missing: a table that has
        one never loses it.
        """
        stored = {name: kind for name, kind in self.source_types.items() if len(kind[0]) <= _MOST_TYPE_LETTERS}
        optional = {_ROWS: self.rows, _HOOK: self.hook}
        return {
            _SOURCE_TYPES: json.dumps(stored, ensure_ascii=False, sort_keys=True),
            _SOURCE_NAMES: json.dumps(dict(self.source_names), ensure_ascii=False, sort_keys=True),
            _RULES: json.dumps(dict(self.rules), sort_keys=True),
            _KEPT: json.dumps(self.kept, ensure_ascii=False),
            **{name: text for name, text in optional.items() if text},
        }
