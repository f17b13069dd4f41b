"""Other columns for all rows of a table: one task copies each of its data files.

Spark's own writer would pass every row through generated Java, which takes several times as long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.delta import DataFile, Snapshot, TableLog, commit
from headgate.errors import CommitConflictError
from headgate.lake._append import CommitBase, inspect_base, table_schema
from headgate.lake._delta import discard_after_conflict, retry_conflicts

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
        base = inspect_base(delta, "", ())
        if not isinstance(base, CommitBase):
            return False
        table = TableLog(delta.path).refresh()
        if table.version != base.version:
            raise CommitConflictError(f"{delta.path}: another program committed version {table.version}")
        schema_json = after.schema_json(table)
        schema = table_schema(schema_json)
        if schema is None:
            return False
        files = list(table.files.values())
        added = _copy(delta, base, files, after, schema, always)
        now = time.time_ns() // 1_000_000
        metadata = {"metaData": {**table.metadata, "schemaString": schema_json}}
        actions = [metadata, *(file.removal(now, data_change=True) for file in files), *added]
        about = {"dropped": json.dumps(sorted(after.dropped)), "renamed": json.dumps(dict(after.renamed))}
        with discard_after_conflict(delta.path, added):
            commit(delta.path, table, actions, "REPLACE COLUMNS", about, blind=False, put=delta.put)
        return True

    return retry_conflicts(write)


def _copy(
    delta: DeltaPath,
    base: CommitBase,
    files: Sequence[DataFile],
    after: ColumnsAfter,
    schema: pa.Schema,
    always: Sequence[str],
) -> list[dict[str, Any]]:
    """Copy files with the columns afterwards. Return the ``add`` actions of the new ones."""
    if not files:
        return []
    from headgate.delta import copy_file  # loads numba

    folder, before, codec, sources = delta.path, base.schema, base.codec, list(files)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                added = copy_file(
                    folder, sources[number], before, codec, lambda rows: after.apply(rows, schema), always, schema
                )
                yield pa.RecordBatch.from_pydict({"action": pa.array(added, pa.string())})

    actions = delta.spark.range(0, len(files), 1, len(files)).mapInArrow(run, "action string").toArrow()
    return [json.loads(action) for action in actions["action"].to_pylist()]
