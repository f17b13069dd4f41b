"""The changes of one upsert: their rows stand in new files of the table's folder, their keys are in this process.

Rows are written before anybody looks up what the table holds of their keys: by Spark's tasks, each with its share of
the batch, or by this process if all images are here. A row that turns out not to count is marked in the new file's
deletion vector: another share has a later image of its key, or the table has a row that is as new. So shares need not
be divided by keys, and a second look after a conflict writes no row again.

A file that no commit names is removed; one that a killed task leaves is an orphan, as with Spark's own writers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import Keys, Sequences, VectorFile, discard_files, keys_of, loosened, positions_of, write_files
from headgate.lake._append import Begun, Expand, fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Changes", "Written", "write_changes"]

_DELETES: Final = ("b", "d")
_ROW: Final = "_row"


@dataclass(frozen=True)
class Changes:
    """What a batch brings to one table.

    :param ddl: the columns of the images, as Spark DDL.
    :param columns: of them, those that the table gets; its other columns become null.
    :param key: the columns of the table's key.
    :param last: the last image of each key, of some images; keeps columns that it does not know.
    :param here: gives the last image of each key, if all images are in this process.
    :param data: else the images are in this frame,
    :param expand: and this makes record batches of them, in tasks; in each batch no key comes twice.
    """

    ddl: str
    columns: Sequence[str]
    key: Sequence[str]
    last: Callable[[pa.Table], pa.Table]
    here: Callable[[], pa.Table] | None
    data: DataFrame
    expand: Expand


@dataclass
class Written:
    """The last image of each key.

    :param begun: what its row was written for.
    :param keys: its key, n of them.
    :param sequences: its ``_seq``.
    :param places: int64[n]: the place of its row among all rows of the new files; −1: it deletes.
    :param adds: the ``add`` actions of the new files, in the order of their rows.
    """

    folder: str
    begun: Begun
    keys: Keys
    sequences: Sequences
    places: Any
    adds: Sequence[dict[str, Any]]
    _used: set[str] = field(default_factory=set)

    def actions(self, spared: Any) -> list[dict[str, Any]]:
        """What adds the rows that count.

        :param spared: bool[n]: the images that are left out.
        :raises OSError: the file of deletion vectors cannot be written.
        """
        vectors = VectorFile()
        counts = np.zeros(sum(_rows(add) for add in self.adds), np.bool_)
        counts[self.places[(self.places >= 0) & ~spared]] = True
        actions, first = [], 0
        for add in self.adds:
            rows = _rows(add)
            void = np.flatnonzero(~counts[first : first + rows])
            first += rows
            if not len(void):
                actions.append({"add": add})
            elif len(void) < rows:
                stats = loosened(add["stats"], rows)
                actions.append({"add": {**add, "deletionVector": vectors.add(positions_of(void)), "stats": stats}})
        vectors.write(self.folder)
        return actions

    def committed(self, actions: Iterable[dict[str, Any]]) -> None:
        """These actions are in the table."""
        self._used |= {action["add"]["path"] for action in actions}

    def discard(self) -> None:
        """Remove the files that no commit names."""
        discard_files(self.folder, {add["path"] for add in self.adds} - self._used)


def _rows(add: dict[str, Any]) -> int:
    return int(json.loads(add["stats"])["numRecords"])


def write_changes(changes: Changes, begun: Begun, folder: str) -> Written | None:
    """Write the rows of all changes; None: there are none.

    :raises OSError: a file cannot be written.
    """
    key, schema, codec, names = tuple(changes.key), begun.schema, begun.codec, begun.names
    given = frozenset(changes.columns)

    def write(images: Iterable[pa.RecordBatch]) -> tuple[list[str], pa.Table]:
        told: list[pa.RecordBatch] = []

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in images:
                told.append(batch.select([*key, "_seq", "_op"]))
                yield fit(batch.filter(pc.invert(_deletes(batch["_op"]))), schema, given)

        added = list(write_files(rows(), folder, schema, codec, (*key, "_seq"), names))
        return added, pa.Table.from_batches(told) if told else pa.table({})

    if changes.here is not None:
        return _join([write(changes.here().to_batches())], changes, begun, folder)
    expand = changes.expand

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        added, told = write(expand(batches))
        if told.num_rows:
            yield pa.RecordBatch.from_pydict({"files": [added], "images": [_packed(told)]})

    parts = changes.data.mapInArrow(run, "files array<string>, images binary").toArrow()
    opened = [pa.ipc.open_stream(images.as_buffer()).read_all() for images in parts["images"]]
    return _join(list(zip(parts["files"].to_pylist(), opened, strict=True)), changes, begun, folder)


def _packed(told: pa.Table) -> bytes:
    """As an IPC stream. Most of it is equal from row to row: compressed, a fifth of the bytes pass through the JVM."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, told.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(told)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _join(parts: Sequence[tuple[list[str], pa.Table]], changes: Changes, begun: Begun, folder: str) -> Written | None:
    """What the shares have written, as one."""
    parts = [(added, told) for added, told in parts if told.num_rows]
    if not parts:
        return None
    adds = [json.loads(action)["add"] for added, _ in parts for action in added]
    told = pa.concat_tables([table for _, table in parts])
    deletes = np.asarray(_deletes(told["_op"]).combine_chunks())
    places = np.where(deletes, -1, np.cumsum(~deletes) - 1)
    keys = keys_of([told[name] for name in changes.key])
    if not keys.are_distinct:
        last = changes.last(told.append_column(_ROW, pa.array(np.arange(told.num_rows))))
        told, places = last, places[np.asarray(last[_ROW])]
        keys = keys_of([told[name] for name in changes.key])
    return Written(folder, begun, keys, Sequences.of(told["_seq"]), places, adds)


def _deletes(op: pa.Array | pa.ChunkedArray) -> Any:
    return pc.is_in(op, pa.array(_DELETES))
