"""Replacement of a table's data files by changed copies, in one commit: one task copies each file.

Spark's UPDATE would pass every row through generated Java, which takes several times as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.delta import DataFile, commit, copy_file
from headgate.lake._append import CommitBase
from headgate.lake._delta import discard_after_conflict

if TYPE_CHECKING:
    from headgate.lake._delta import DeltaPath

__all__ = ["replace_files"]


def replace_files(
    delta: DeltaPath,
    base: CommitBase,
    files: Sequence[DataFile],
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
    always: Sequence[str],
    operation: tuple[str, Mapping[str, str]],
    columns: tuple[str, pa.Schema] | None = None,
) -> None:
    """Replace files of the base.

    :param change: returns the rows to write for a batch of rows; runs in the tasks.
    :param always: columns, by their names afterwards, that get statistics at any position in the schema.
    :param operation: its name in the table's history, and parameters.
    :param columns: the columns that ``change`` returns, as in the table's log and in Arrow; None: the same.
    :raises CommitConflictError: another program committed first.
    """
    folder, schema, codec, sources = delta.path, base.schema, base.codec, list(files)
    schema_after = None if columns is None else columns[1]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                added = copy_file(folder, sources[number], schema, codec, change, always, schema_after)
                yield pa.RecordBatch.from_pydict({"action": pa.array(added, pa.string())})

    added: list[dict[str, Any]] = []
    if sources:
        tasks = delta.spark.range(0, len(sources), 1, len(sources)).mapInArrow(run, "action string")
        added = [json.loads(action) for action in tasks.toArrow()["action"].to_pylist()]
    removed = [file.removal(data_change=True) for file in sources]
    definition = [] if columns is None else [{"metaData": {**base.snapshot.metadata, "schemaString": columns[0]}}]
    with discard_after_conflict(folder, added):
        actions = [*definition, *removed, *added]
        commit(folder, base.snapshot, actions, *operation, blind=False, put=delta.put)
