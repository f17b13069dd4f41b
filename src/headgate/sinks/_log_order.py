"""Images of a batch in the order of the log, a slice of the log at a time.

A task of the source gives the images of each table apart. Small batches are sorted as they are, in the driver. Of
larger ones Spark's tasks divide the images at the same places of the log (each ``_SLICE_BYTES``; rows of a snapshot at
each ``_SLICE_ROWS``), Spark sorts the pieces, and the driver fetches one of Spark's partitions at a time, which joins
the pieces of one slice. A piece is one row for Spark, so images cost Spark nothing for each row of MySQL's.

An update's ``b`` image stays before its ``u`` image: both have one position, or the piece ends after the ``u``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import DATA_COLUMN, KIND_COLUMN, TABLE_COLUMN, Definition, open_images, serialised
from headgate.replication import SNAPSHOT_FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TableImages", "fetch_slices", "log_order", "pieces"]

_SLICE_BYTES: Final = 8 << 20
_SLICE_ROWS: Final = 1 << 16
_PIECE: Final = pa.schema({"file": pa.int32(), "slice": pa.int64(), "definition": pa.string(), "data": pa.binary()})
_PIECE_DDL: Final = "file int, slice bigint, definition string, data binary"


class TableImages(NamedTuple):
    """Images of one table definition, in the order of the log."""

    definition: Definition
    images: pa.RecordBatch


def log_order(records: Sequence[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of record batches in the order of integer columns."""
    records = [one for one in records if one.num_rows]
    if not records:
        return
    table = pa.Table.from_batches(records).combine_chunks()
    order = np.lexsort([table[name].to_numpy() for name in reversed(columns)])
    is_ordered = bool((np.diff(order) == 1).all())
    for start in range(0, len(order), _SLICE_ROWS):
        rows = table.slice(start, _SLICE_ROWS) if is_ordered else table.take(order[start : start + _SLICE_ROWS])
        yield from rows.combine_chunks().to_batches()


def fetch_slices(frame: DataFrame, tables: Iterable[str]) -> Iterator[list[TableImages]]:
    """Yield the images of each slice of the log, then those of a snapshot's rows.

    :param frame: a batch's rows of the carrier, persisted.
    """
    from pyspark.sql import functions

    def divide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for schema, cell in zip(batch["_schema"].to_pylist(), batch[DATA_COLUMN], strict=True):
                for images in open_images([cell]):
                    yield from pieces(schema, images)

    chosen = functions.col(TABLE_COLUMN).isin(*tables) & functions.col(KIND_COLUMN).isin("rows", "chunk")
    rows = frame.where(chosen).select("_schema", DATA_COLUMN)
    fetched = rows.mapInArrow(divide, _PIECE_DDL).orderBy("file", "slice").toLocalIterator(prefetchPartitions=True)
    for _, of_slice in groupby(fetched, key=lambda row: (row["file"], row["slice"])):
        yield [
            TableImages(Definition.from_json(row["definition"]), images)
            for row in of_slice
            for images in open_images([pa.py_buffer(row["data"])])
        ]


def pieces(definition: str, images: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a row for each slice of the log that images in log order belong to."""
    seq = images["_seq"]
    files, positions, ordinals = (np.asarray(seq.field(name)) for name in ("file", "pos", "ordinal"))
    slices = np.where(files == SNAPSHOT_FILE, ordinals // _SLICE_ROWS, positions // _SLICE_BYTES)
    begins = np.flatnonzero(_differs(files) | _differs(slices))
    is_before = np.asarray(pc.equal(images["_op"], "b"))
    begins = begins + is_before[begins - 1] * (begins > 0)  # a pair stays whole
    for start, end in pairwise([*begins.tolist(), images.num_rows]):
        piece = images.slice(start, end - start)
        cells: list[Any] = [[files[start]], [slices[start]], [definition], [serialised(piece).to_pybytes()]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(one, field.type) for one, field in zip(cells, _PIECE, strict=True)], schema=_PIECE
        )


def _differs(values: Any) -> Any:
    """Return whether each value differs from the one before; the first does."""
    return np.r_[np.ones(min(1, len(values)), bool), values[1:] != values[:-1]]
