"""Rows of a data file: the live ones, some of them, or copies with changed values, as an UPDATE of whole files writes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.delta._log import DataFile
from headgate.delta._parquet import as_rows, write_files
from headgate.delta._statistics import INDEXED_LEAVES
from headgate.delta.vectors import deleted_rows

__all__ = ["copy_file", "live_rows", "read_rows"]

_BATCH_ROWS = 1 << 17


def copy_file(
    folder: str,
    source: DataFile,
    schema: pa.Schema,
    codec: str,
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
    always: Collection[str],
    schema_after: pa.Schema | None = None,
    *,
    leaves: int = INDEXED_LEAVES,
) -> list[str]:
    """Write the live rows, in order, to new files; return the ``add`` actions of these, as JSON.

    :param schema: the table's; columns that the file lacks are null.
    :param change: returns the rows to write for a batch of rows.
    :param always: columns that have statistics at any position.
    :param schema_after: the columns that ``change`` returns; None: the same.
    :param leaves: so many leaf columns, from the first, have statistics, too.
    :raises OSError: a file cannot be read or written.
    """
    rows = (change(as_rows(batch, schema)) for batch in live_rows(folder, source, schema.names, _BATCH_ROWS))
    return list(write_files(rows, folder, schema_after or schema, codec, always, source.names, leaves))


def read_rows(folder: str, source: DataFile, numbers: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """Read some rows of a file, deleted ones included, in parts that memory can hold.

    :param numbers: int64[n]: the rows, ascending.
    :param schema: the columns to read; those that the file lacks are null.
    :raises OSError: the file cannot be read.
    """
    with source.open(folder) as opened:
        for part in opened.rows(numbers, schema.names):
            yield as_rows(part, schema)


def live_rows(
    folder: str,
    source: DataFile,
    names: Sequence[str],
    rows: int,
    groups: Collection[int] | None = None,
    *,
    threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that its deletion vector leaves, of up to ``rows`` rows at a time: the columns that it
    has of these.

    :param groups: numbers of the row groups to read; None: all.
    :raises OSError: the file cannot be read.
    """
    gone = deleted_rows(folder, source.vector)
    with source.open(folder) as opened:
        first = 0
        for group, count in enumerate(opened.group_rows):
            at, first = first, first + count
            if groups is not None and group not in groups:
                continue
            for batch in opened.batches(rows, names, [group], threads=threads):
                here = gone[np.searchsorted(gone, at) : np.searchsorted(gone, at + batch.num_rows)] - at
                at += batch.num_rows
                yield _without(batch, here) if len(here) else batch


def _without(batch: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
    kept = np.ones(batch.num_rows, np.bool_)
    kept[rows] = False
    return batch.filter(pa.array(kept))
