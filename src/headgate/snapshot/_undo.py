"""Undo changes of a table without a key, by counting rows and images by content.

Images do not identify which of several equal rows they mean, but equal rows do not differ. So if the rows are exactly
the table *after* some changes, the table before them is a sum of counts: one more of each before-image, one less of
each after-image. "Exactly" is essential: a change that the SELECT has not seen must not be undone. Only for a view that
was opened under a lock is it known which changes it has seen (``snapshot/_locks.py``).

This module does not access the server: batches in, rows out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SchemaChangedError, SnapshotRefusedError, UnsupportedError
from headgate.replication import ABSENT_FIELD, PARTIAL_REMEDY
from headgate.snapshot._codes import key_codes

__all__ = ["undo"]


def undo(rows: pa.Table, images: Sequence[pa.RecordBatch], table: str) -> pa.Table:
    """Return the rows before the changes.

    :param rows: all rows of the table after the changes: its columns.
    :param images: the changes: ``_op`` (c, b, u, d), optional ``_absent``, and the table's columns; others are ignored.
    :param table: its name, for errors.
    :raises SchemaChangedError: the images have other columns than the rows.
    :raises UnsupportedError: an image leaves columns out.
    :raises SnapshotRefusedError: the changes do not lead to these rows.
    """
    if not images:
        return rows
    before_images, after_images = (
        pa.concat_tables([_content(batch, ops, rows.schema, table) for batch in images])
        for ops in (("b", "d"), ("c", "u"))
    )
    codes = key_codes([rows, before_images, after_images], rows.schema.names)
    after_start = len(rows) + len(before_images)
    known = int(codes.max(initial=-1)) + 1
    counts = np.bincount(codes[:after_start], minlength=known) - np.bincount(codes[after_start:], minlength=known)
    if (counts < 0).any():
        raise SnapshotRefusedError("undo would remove rows the table does not have", table=table)
    first = np.empty(known, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return pa.concat_tables([rows, before_images, after_images]).take(pa.array(np.repeat(first, counts)))


def _content(batch: pa.RecordBatch, ops: Sequence[str], schema: pa.Schema, table: str) -> pa.Table:
    names = batch.schema.names
    if ABSENT_FIELD.name in names and batch.column(ABSENT_FIELD.name).null_count < len(batch):
        raise UnsupportedError(
            "a table without a key changed before its view was opened, which cannot be undone, because a row image"
            f" leaves columns out: {PARTIAL_REMEDY}",
            table=table,
        )
    chosen = batch.filter(pc.is_in(batch.column(0), pa.array(ops)))
    try:
        images = pa.Table.from_batches([chosen]).select(schema.names)
    except KeyError:
        raise SchemaChangedError("the log and the table have different columns", table=table) from None
    if images.schema.types != schema.types:
        raise SchemaChangedError("the log and the table have different columns", table=table)
    return pa.Table.from_arrays(images.columns, schema=schema)
