"""Rows of a data file: some of them, or copies with changed values, as an UPDATE of whole files writes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.delta._log import DataFile
from headgate.delta._parquet import as_rows, write_files
from headgate.delta._vectors import read_vector, rows_of

__all__ = ["copy_file", "read_rows"]

_BATCH_ROWS = 1 << 17


def copy_file(
    folder: str,
    source: DataFile,
    schema: pa.Schema,
    codec: str,
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
    always: Collection[str],
    schema_after: pa.Schema | None = None,
) -> list[str]:
    """Write the live rows, in order, to new files; return the ``add`` actions of these, as JSON.

    :param schema: the table's; columns that the file lacks are null.
    :param change: returns the rows to write for a batch of rows.
    :param always: columns that have statistics at any position.
    :param schema_after: the columns that ``change`` returns; None: the same.
    :raises OSError: a file cannot be read or written.
    """
    rows = (change(batch) for batch in _live_rows(folder, source, schema))
    return list(write_files(rows, folder, schema_after or schema, codec, always, source.names))


def read_rows(folder: str, source: DataFile, numbers: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read some rows of a file, deleted ones included, in parts that memory can hold.

    :param numbers: int64[n]: the rows, ascending.
    :param schema: the columns to read; those that the file lacks are null.
    :raises OSError: the file cannot be read.
    """
    with source.open(folder) as opened:
        present = [name for name in schema.names if name in opened.columns]
        for part in opened.rows(numbers, present):
            yield as_rows(part, schema)


def _live_rows(folder: str, source: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the live rows in batches, with the table's columns."""
    gone = np.empty(0, np.int64) if source.vector is None else rows_of(read_vector(folder, source.vector))
    with source.open(folder) as opened:
        present = [name for name in schema.names if name in opened.columns]
        first = 0
        for batch in opened.batches(_BATCH_ROWS, present):
            counts = np.ones(batch.num_rows, np.bool_)
            counts[gone[np.searchsorted(gone, first) : np.searchsorted(gone, first + batch.num_rows)] - first] = False
            first += batch.num_rows
            yield as_rows(batch, schema).filter(pa.array(counts))
