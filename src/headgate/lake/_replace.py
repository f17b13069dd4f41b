"""Replacement of a table's data files by changed copies, in one commit: one task copies each file.

:class:`Fill` gives existing rows values of added columns, since Delta has no default for them; :class:`ColumnsAfter`
gives all rows other columns; :func:`keep_until` leaves rows out. Spark's UPDATE would pass every row through generated
Java, which takes several times as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import CommitPlan, DataFile, Snapshot, as_column, copy_file, kept_clustering
from headgate.lake._append import CommitBase, inspect_base, table_schema
from headgate.lake._table_kind import IS_CURRENT, may_have_open
from headgate.lake._write_methods import OTHER_COLUMNS, not_writable

if TYPE_CHECKING:
    from headgate.lake._delta import DeltaPath

__all__ = ["ColumnsAfter", "Fill", "keep_until", "plan_replacement", "reshape_files"]


def plan_replacement(
    delta: DeltaPath,
    base: CommitBase,
    files: Sequence[DataFile],
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
    operation: tuple[str, Mapping[str, str]],
    columns: tuple[str, pa.Schema] | None = None,
) -> CommitPlan:
    """Write copies of files of the base, and plan the commit that replaces them.

    :param change: returns the rows to write for a batch of rows; runs in the tasks.
    :param operation: its name in the table's history, and parameters.
    :param columns: the columns that ``change`` returns, as in the table's log and in Arrow; None: the same.
    """
    folder, schema, codec, leaves, sources = delta.path, base.schema, base.codec, base.leaves, list(files)
    measured = base.measured  # none of these columns is ever renamed
    schema_after = None if columns is None else columns[1]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                added = copy_file(folder, sources[number], schema, codec, change, measured, schema_after, leaves=leaves)
                yield pa.RecordBatch.from_pydict({"action": pa.array(added, pa.string())})

    added: list[dict[str, Any]] = []
    if sources:
        tasks = delta.spark.range(0, len(sources), 1, len(sources)).mapInArrow(run, "action string")
        added = [json.loads(action) for action in tasks.toArrow()["action"].to_pylist()]
    removed = [file.removal(data_change=True) for file in sources]
    definition: list[dict[str, Any]] = []
    if columns is not None:
        definition = [{"metaData": {**base.snapshot.metadata, "schemaString": columns[0]}}]
        definition += kept_clustering(base.snapshot, columns[0])
    written = [action["add"]["path"] for action in added]
    return CommitPlan(base.snapshot, [*definition, *removed, *added], *operation, written=written)


@dataclass(frozen=True)
class Fill:
    """Values to set in existing rows.

    :param values: by column, as text that casts to its type exactly.
    :param ddl: these columns, as Spark DDL.
    :param before: set them in rows of epochs before this one.
    :param open_only: only in the open versions of a history.
    """

    values: Mapping[str, str]
    ddl: str
    before: int
    open_only: bool = False

    def touches(self, file: DataFile) -> bool:
        """Return whether a data file may have such rows."""
        epochs = file.bounds(("_seq", "epoch"), pa.int64())
        return (epochs is None or epochs[0] < self.before) and (not self.open_only or may_have_open(file))

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows, filled."""
        chosen = pc.less(pc.struct_field(rows["_seq"], "epoch"), self.before)
        if self.open_only:
            chosen = pc.and_(chosen, rows[IS_CURRENT])
        columns = [
            pc.if_else(chosen, pa.scalar(self.values[one.name]).cast(one.type), column)
            if one.name in self.values
            else column
            for one, column in zip(rows.schema, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


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
            pa.nulls(rows.num_rows, one.type) if one.name in self.emptied else as_column(column, one.type)
            for one, column in zip(schema, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def reshape_files(delta: DeltaPath, after: ColumnsAfter) -> None:
    """Give a table other columns, in one commit.

    :raises CommitConflictError: other programs changed the table, again and again.
    :raises TargetError: headgate cannot write the table, before or after.
    """

    def plan() -> CommitPlan:
        base = inspect_base(delta, "", (), files=True)
        schema_json = after.schema_json(base.snapshot)
        schema = table_schema(schema_json)
        if schema is None:
            raise not_writable(delta.path, OTHER_COLUMNS)
        about = {"dropped": json.dumps(sorted(after.dropped)), "renamed": json.dumps(dict(after.renamed))}
        files = list(base.snapshot.files.values())
        change = partial(after.apply, schema=schema)
        return plan_replacement(delta, base, files, change, ("REPLACE COLUMNS", about), (schema_json, schema))

    delta.commit(plan)


def keep_until(
    delta: DeltaPath, epoch: int, column: str, *, unless: Callable[[Snapshot], bool] = lambda _: False
) -> None:
    """Delete the rows of later epochs, in one commit, from a table that may have no deletion vectors.

    :param column: has the epoch of a row's batch, or is a struct with it.
    :param unless: returns whether nothing is to be deleted from a version.
    :raises CommitConflictError: other programs changed the table, again and again.
    :raises TargetError: headgate cannot write the table.
    """

    def kept(rows: pa.RecordBatch) -> pa.RecordBatch:
        epochs = rows[column]
        epochs = pc.struct_field(epochs, "epoch") if pa.types.is_struct(epochs.type) else epochs
        return rows.filter(pc.less_equal(epochs, epoch))

    def plan() -> CommitPlan | None:
        base = inspect_base(delta, "", (), files=True)
        if unless(base.snapshot):
            return None
        path = (column, "epoch") if pa.types.is_struct(base.schema.field(column).type) else (column,)
        bounds = [(file, file.bounds(path, pa.int64())) for file in base.snapshot.files.values()]
        files = [file for file, known in bounds if known is None or known[1] > epoch]
        about = {"predicate": f'["{".".join(path)} > {epoch}"]'}
        return plan_replacement(delta, base, files, kept, ("DELETE", about)) if files else None

    delta.commit(plan)
