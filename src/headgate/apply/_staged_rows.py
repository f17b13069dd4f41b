"""Changes of one upsert: their rows are in new files of the table's folder, their keys in this process.

Rows are written before their keys are looked up in the table: by Spark's tasks, each with its share of the batch, or by
this process. A row that turns out not to count is marked in the new file's deletion vector:
another share has a later image of its key, or the table has a row that is as new. So shares need not be divided by
keys, and a second look-up after a conflict writes no row again.

A file that the commit does not name is removed after it; one that a killed task leaves is an orphan, as with Spark's
own writers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.apply._counted import CountedChanges
from headgate.apply._shares import PackedRows, Shares, unpacked
from headgate.delta import Keys, Sequences, VectorFile, keys_of, positions_of, write_files
from headgate.lake import CommitBase, fit

__all__ = ["Changes", "Written", "write_all", "write_changes"]

_DELETES: Final = ("b", "d")
_ROW: Final = "_row"
_WRITTEN: Final = pa.schema([("files", pa.list_(pa.string())), ("images", pa.binary())])
"""What tasks return: keys and ``_seq`` of rows, a group in each row, and with a task's last group its files."""


@dataclass(frozen=True)
class Changes:
    """Changes of a batch to one table.

    :param ddl: columns of the images, as Spark DDL.
    :param columns: those of them that the table gets; its other columns become null.
    :param key: columns of the table's key.
    :param last: returns the last image of each key, of some images; keeps columns that it does not know.
    :param images: the last image of each key, to be read once, if this process folds the images; else the shares of
        tasks, in each of whose record batches no key occurs twice.
    """

    ddl: str
    columns: Sequence[str]
    key: Sequence[str]
    last: Callable[[pa.Table], pa.Table]
    images: Iterable[pa.RecordBatch] | Shares


@dataclass
class Written:
    """The last image of each key.

    :param base: the version that its row was written for.
    :param keys: its key, n of them.
    :param sequences: its ``_seq``.
    :param row_indexes: int64[n]: index of its row among all rows of the new files; −1: it deletes.
    :param adds: the ``add`` actions of the new files, in the order of their rows.
    """

    folder: str
    base: CommitBase
    keys: Keys
    sequences: Sequences
    row_indexes: Any
    adds: Sequence[dict[str, Any]]

    @property
    def files(self) -> list[str]:
        """The new files, by name."""
        return [str(add["path"]) for add in self.adds]

    def actions(self, skipped: Any) -> list[dict[str, Any]]:
        """Return the actions that add the rows that count.

        :param skipped: bool[n]: images to leave out.
        :raises OSError: the file of deletion vectors cannot be written.
        """
        vectors = VectorFile()
        counts = np.zeros(sum(_rows(add) for add in self.adds), np.bool_)
        counts[self.row_indexes[(self.row_indexes >= 0) & ~skipped]] = True
        actions, first = [], 0
        for add in self.adds:
            rows = _rows(add)
            unused_rows = np.flatnonzero(~counts[first : first + rows])
            first += rows
            if not len(unused_rows):
                actions.append({"add": add})
            elif len(unused_rows) < rows:
                actions.append(vectors.mark(add, rows, positions_of(unused_rows)))
        vectors.write(self.folder)
        return actions


def _rows(add: dict[str, Any]) -> int:
    return int(json.loads(add["stats"])["numRecords"])


def write_changes(changes: Changes, base: CommitBase, folder: str) -> Written | None:
    """Write the rows of all changes; return None if there are none.

    :raises OSError: a file cannot be written.
    """
    schema, codec, measured, names, leaves = base.schema, base.codec, base.measured, base.names, base.leaves
    key, row_columns = tuple(changes.key), frozenset(changes.columns)

    def write(batches: Iterable[pa.RecordBatch], note_keys: Callable[[pa.RecordBatch], None]) -> list[str]:
        def rows() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                note_keys(batch.select([*key, "_seq", "_op"]))
                yield fit(batch.filter(pc.invert(_deletes(batch["_op"]))), schema, row_columns)

        return list(write_files(rows(), folder, schema, codec, measured, names, leaves))

    images = changes.images
    if not isinstance(images, Shares):
        key_rows: list[pa.RecordBatch] = []
        added = write(images, key_rows.append)
        return _join([(added, pa.Table.from_batches(key_rows))] if key_rows else [], changes, base, folder)
    expand = images.expand

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packed_keys = PackedRows()
        added = write(expand(batches), packed_keys.add)
        groups = packed_keys.take()
        while groups:
            files = [] if len(groups) > 1 else added  # with the last ones, so that they come in the order of the rows
            yield pa.RecordBatch.from_pydict({"files": [files], "images": [groups.pop(0)]}, schema=_WRITTEN)

    parts = images.data().mapInArrow(run, "files array<string>, images binary").toArrow()
    opened = [unpacked(rows.as_buffer()) for rows in parts["images"]]
    return _join(list(zip(parts["files"].to_pylist(), opened, strict=True)), changes, base, folder)


def write_all(changes: CountedChanges, base: CommitBase, folder: str) -> list[dict[str, Any]]:
    """Write the rows that a table without a key gets. Return the ``add`` actions.

    :raises OSError: a file cannot be written.
    """
    schema, codec, measured, names, leaves = base.schema, base.codec, base.measured, base.names, base.leaves
    row_columns = frozenset(changes.columns)

    def write(batches: Iterable[pa.RecordBatch]) -> list[str]:
        fitted = (fit(batch, schema, row_columns) for batch in batches)
        return list(write_files(fitted, folder, schema, codec, measured, names, leaves))

    shares = changes.rows
    if not isinstance(shares, Shares):
        return [json.loads(action) for action in write(shares)]
    expand = shares.expand

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array(write(expand(batches)), pa.string())], ["action"])

    actions = shares.data().mapInArrow(run, "action string").toArrow()
    return [json.loads(action) for action in actions["action"].to_pylist()]


def _join(
    parts: Sequence[tuple[list[str], pa.Table]], changes: Changes, base: CommitBase, folder: str
) -> Written | None:
    """Combine what the shares have written."""
    parts = [(added, key_rows) for added, key_rows in parts if key_rows.num_rows]
    if not parts:
        return None
    adds = [json.loads(action)["add"] for added, _ in parts for action in added]
    key_rows = pa.concat_tables([table for _, table in parts])
    deletes = np.asarray(_deletes(key_rows["_op"]).combine_chunks())
    row_indexes = np.where(deletes, -1, np.cumsum(~deletes) - 1)
    keys = keys_of([key_rows[name] for name in changes.key])
    if not keys.are_distinct:
        last = changes.last(key_rows.append_column(_ROW, pa.array(np.arange(key_rows.num_rows))))
        key_rows, row_indexes = last, row_indexes[np.asarray(last[_ROW])]
        keys = keys_of([key_rows[name] for name in changes.key])
    return Written(folder, base, keys, Sequences.of(key_rows["_seq"]), row_indexes, adds)


def _deletes(op: pa.Array | pa.ChunkedArray) -> Any:
    return pc.is_in(op, pa.array(_DELETES))
