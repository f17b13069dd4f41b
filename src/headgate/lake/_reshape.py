"""Other columns for all rows of a table: changed copies of its data files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.delta import Snapshot
from headgate.lake._append import CommitBase, inspect_base, table_schema
from headgate.lake._delta import retry_conflicts
from headgate.lake._replace import replace_files

if TYPE_CHECKING:
    from headgate.lake._delta import DeltaPath

__all__ = ["ColumnsAfter", "reshape_files"]


@dataclass(frozen=True)
class ColumnsAfter:
    """What becomes of a table's columns.

    :param emptied: columns that become null in all rows.
    :param kinds: new types by column, or by column and field of a struct, under the names before: Spark's JSON names.
    """

    dropped: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)  # name before → new name
    kinds: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    emptied: Collection[str] = ()

    def schema_json(self, table: Snapshot) -> str:
        """Return the table's columns afterwards, as in its log."""
        schema = json.loads(table.metadata["schemaString"])
        schema["fields"] = [
            {**self._re_typed(one, ()), "name": self.renamed.get(one["name"], one["name"])}
            for one in schema["fields"]
            if one["name"] not in self.dropped
        ]
        return json.dumps(schema)

    def _re_typed(self, one: dict[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
        path, kind = (*above, one["name"]), one["type"]
        if path in self.kinds:
            return {**one, "type": self.kinds[path]}
        if isinstance(kind, dict) and kind["type"] == "struct":
            return {**one, "type": {**kind, "fields": [self._re_typed(inner, path) for inner in kind["fields"]]}}
        return one

    def apply(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows with the columns afterwards."""
        old_names = {new: old for old, new in self.renamed.items()}
        columns = [rows[old_names.get(one.name, one.name)] for one in schema]
        arrays = [
            pa.nulls(rows.num_rows, one.type) if one.name in self.emptied else _typed(column, one.type)
            for one, column in zip(schema, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with this type."""
    return column if column.type.equals(kind) else column.cast(kind)


def reshape_files(delta: DeltaPath, after: ColumnsAfter, always: Sequence[str]) -> bool:
    """Give a table other columns, in one commit. Return whether that was possible; if not, Spark has to write it.

    :param always: columns, by their names afterwards, that get statistics at any position in the schema.
    :raises CommitConflictError: other programs changed the table, again and again.
    """

    def write() -> bool:
        base = inspect_base(delta, "", (), files=True)
        if not isinstance(base, CommitBase):
            return False
        schema_json = after.schema_json(base.snapshot)
        schema = table_schema(schema_json)
        if schema is None:
            return False
        about = {"dropped": json.dumps(sorted(after.dropped)), "renamed": json.dumps(dict(after.renamed))}
        files = list(base.snapshot.files.values())
        change = partial(after.apply, schema=schema)
        replace_files(delta, base, files, change, always, ("REPLACE COLUMNS", about), (schema_json, schema))
        return True

    return retry_conflicts(write)
