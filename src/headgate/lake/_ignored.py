"""How the columns of a current table differ from those of its source, because changes of these were ignored.

The ledger row of each batch has it, for each table: a replay begins with the names before its batch, although the
batch may have been written already. Names of the source are those in its images, hence by the rules of ``[columns]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

__all__ = ["IgnoredChanges", "absent_columns"]


@dataclass(frozen=True)
class IgnoredChanges:
    """Changes of a table's columns at the source that left the table as it is."""

    names: Mapping[str, str | None] = field(default_factory=dict)
    """Column of the source → column of the table with its values; None: the table has none. All others have the same
    name."""
    kept: tuple[str, ...] = ()
    """Columns of the table that the source has dropped."""

    def __bool__(self) -> bool:
        return bool(self.names or self.kept)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> IgnoredChanges:
        """Create it from the result of :meth:`to_dict`."""
        return cls(value["names"], tuple(value["kept"]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"names": dict(self.names), "kept": list(self.kept)}

    @property
    def source_names(self) -> dict[str, str]:
        """Column of the table → column of the source with its values, where the names differ."""
        return {column: name for name, column in self.names.items() if column is not None}

    def texts(self) -> list[str]:
        """Return each difference from the source, for people."""
        names = sorted(self.names.items())
        added = [f"{name} left out" for name, column in names if column is None]
        renamed = [f"{column} is {name} in MySQL" for name, column in names if column is not None]
        return [*added, *renamed, *(f"{name} dropped in MySQL" for name in self.kept)]


def absent_columns(absent: Any, names: Mapping[str, str | None]) -> pa.Array:
    """Return which columns rows lack, as columns of the table.

    :param absent: JSON lists of columns of the source, null for whole rows; string[rows], perhaps a dictionary.
    :param names: column of the source → column of the table, or None, where they differ.
    :returns: string[rows], null for rows that lack no column of the table.
    """
    encoded = absent if pa.types.is_dictionary(absent.type) else absent.dictionary_encode()
    texts: list[str | None] = []
    for text in encoded.dictionary.to_pylist():
        columns = [column for name in json.loads(text) if (column := names.get(name, name)) is not None]
        texts.append(json.dumps(columns) if columns else None)
    return pa.array(texts, pa.string()).take(encoded.indices)
