"""Keyless tables in ``current``: equal rows are counted, so the target is the same multiset as the source.

An image of such a table gives a row's content, not which of several equal rows it means; the source cannot distinguish
these either. So content identifies a row: ``_row_hash`` is a hash of all its columns (module ``_row_hash``),
``_row_copy`` numbers the equal rows from 0 without gaps. Both are columns of the current table and together its key.

**A batch of changes.** ``c`` and ``u`` images add one row of their content, ``b`` and ``d`` images remove one (an
update always has its ``b`` here). Only the sum over the batch, ``net``, matters, in any order: ``before`` equal rows
become ``after = before + net``. If there are more, copies ``before … after - 1`` are inserted. If there are fewer,
copies ``after … before - 1`` are deleted. Nothing else is written. A TRUNCATE deletes all rows in the same commit, and
only the images after it count.

**Why a replay is safe.** The commit carries a marker with the batch's epoch, and is made once. So ``before`` is the
count before the batch, whatever its first try wrote.

**A chunk** of such a table is the whole table as of the batch's end, so it includes all changes of its batch. The table
is overwritten with it.

**A count below zero** means that the target had lost a row. That is an error while the table counts as equal to the
source. During a re-read (rows may have changed unseen) the count stops at zero: the next chunk brings the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import Keys, keys_of
from headgate.errors import TargetError
from headgate.lake import ROW_COPY, ROW_HASH
from headgate.sinks._images import image_order
from headgate.sinks._row_hash import row_hashes

__all__ = ["ROW_DDL", "Contents", "buckets_of", "fold_contents", "hashed", "number_copies"]

ROW_DDL = f"{ROW_HASH} string, {ROW_COPY} int"
_SETS = pa.array(["c", "u", "r"])
_SHOWN = 300
"""Most characters of a row in a message."""


@dataclass(frozen=True)
class Contents:
    """Contents whose number of copies changes.

    :param rows: of each the last image that sets it, or the last one of all.
    :param net: int64[rows]: how many copies are added, minus those that are removed; never 0.
    """

    rows: pa.Table
    net: Any

    @property
    def hashes(self) -> Keys:
        """The contents' hashes, as keys."""
        return keys_of([self.rows[ROW_HASH]])

    def settle(self, before: Any) -> tuple[pa.Table, Any]:
        """Return the rows to add, and how many copies of each content are removed (int64[rows]).

        :param before: int64[rows]: how many copies the table has.
        """
        after = np.maximum(before + self.net, 0)
        added = np.maximum(after - before, 0)
        rows = self.rows.take(pa.array(np.repeat(np.arange(len(added)), added)))
        starts = np.repeat(np.cumsum(added) - added, added)
        copies = np.repeat(before, added) + np.arange(len(rows)) - starts
        return rows.append_column(ROW_COPY, pa.array(copies, pa.int32())), np.maximum(before - after, 0)

    def check(self, before: Any, columns: Sequence[str], table: str) -> None:
        """Raise ``TargetError`` if more copies of a content are removed than the table has."""
        wrong = np.flatnonzero(before + self.net < 0)
        if not len(wrong):
            return
        first = int(wrong[0])
        values = self.rows.select(list(columns)).slice(first, 1).to_pylist()[0]
        row = ", ".join(f"{name}={value!r}" for name, value in values.items())
        row = row if len(row) <= _SHOWN else f"{row[: _SHOWN - 3]}..."
        raise TargetError(
            f"the log deletes {-self.net[first]} rows ({row}), but the target has {before[first]}, so it is not exact; "
            f"read the table again with: headgate run --resnapshot '{table}'",
            table=table,
        )


def hashed(images: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return images with ``_row_hash``.

    :param columns: the table's own columns.
    """
    return images.append_column(ROW_HASH, row_hashes(images, columns))


def fold_contents(images: pa.Table) -> Contents:
    """Sum up the images of each content.

    :param images: with ``_row_hash``, in any order.
    """
    numbers = keys_of([images[ROW_HASH]]).numbers
    sets = np.asarray(pc.is_in(images["_op"], _SETS).combine_chunks())
    contents, count = int(numbers.max(initial=-1)) + 1, images.num_rows
    net = np.bincount(numbers, np.where(sets, 1, -1), contents).astype(np.int64)
    order, ranks = image_order(images), np.empty(count, np.int64)
    ranks[order] = np.arange(count)
    last = np.full(contents, -1, np.int64)
    np.maximum.at(last, numbers, ranks + sets * count)
    changed = np.flatnonzero(net)
    return Contents(images.take(pa.array(order[last[changed] % max(count, 1)])), net[changed])


def number_copies(rows: pa.Table) -> pa.Table:
    """Return all rows of a table, or all of some contents, with ``_row_copy``.

    :param rows: with ``_row_hash``.
    """
    numbers = keys_of([rows[ROW_HASH]]).numbers
    order = np.argsort(numbers, kind="stable")
    grouped, copies = numbers[order], np.empty(len(order), np.int32)
    copies[order] = np.arange(len(order)) - np.searchsorted(grouped, grouped)
    return rows.append_column(ROW_COPY, pa.array(copies))


def buckets_of(rows: pa.RecordBatch, count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each of ``count`` buckets by hash, with its number; none without rows."""
    digits = pc.utf8_slice_codeunits(rows[ROW_HASH], 0, 7)
    numbers = np.array([int(text, 16) % count for text in digits.to_pylist()], np.int64)
    for number in np.unique(numbers).tolist():
        yield number, rows.filter(pa.array(numbers == number))
