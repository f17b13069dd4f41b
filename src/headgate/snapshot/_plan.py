"""The chunk plan: cuts a table's key space into ranges, a few at a time, without holding all of them.

The invariant: the ranges of one snapshot are disjoint and cover *every possible key*, not only those seen while
planning. Each chunk is exact at the end of its batch, so it does not matter when the bounds were chosen, or which rows
appear or disappear between planning and reading. The cover is

    (max, ∞), (-∞, b1], (b1, b2], …, (bn, max]

``max`` is frozen when the snapshot begins, so a growing table does not grow its snapshot. The first chunk covers the
keys above ``max`` (almost none, because it was just frozen); rows inserted there later come with the stream. A table
that fits in one chunk, an empty one and a keyless one are a single chunk ``(-∞, ∞)``.

An ALTER may change the order of the key, and with it which keys are in a range (a collation, the members of an ENUM).
So the progress and each bounded chunk carry a fingerprint of the order in which their bounds were made.

*Counting.* The upper bound of a chunk is the key so many rows further on, which the server finds by walking over them:
a fifth of the work of reading them. If the key is one integer with dense values (AUTO_INCREMENT), the bound is
calculated instead: from the next existing key, as many *values* further on as a chunk shall have rows. Keys are unique,
so no chunk has more rows than that. It may have fewer, so sparse keys are counted. The server's estimate of the rows
decides which, when the snapshot begins.

*With a filter* the same ranges are laid over the rows that fulfil it; chunks select only those. *With a surrogate key*
the ranges are those of another column. A row may then change its range between two chunks, but is never missed: its
change comes with the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from headgate.catalog import INTEGERS, Column, TableDef, TableStats
from headgate.names import quote_name
from headgate.offsets import ChunkSpec, SnapshotProgress
from headgate.snapshot.keys import bound_columns, key_order, literal_expression, range_condition

__all__ = ["CHUNK_BYTES", "advance", "first_chunk_bounds", "next_chunk", "rows_of_chunk", "same_order"]

Query = Callable[[str], list[tuple[Any, ...]]]

CHUNK_BYTES: Final = 128 << 20
"""Most bytes of a chunk, as the server stores its rows: a reader holds a whole chunk in memory, some of it several
times. Rows of the default chunk reach it if they have more than 500 bytes."""
_SPARSE: Final = 2
"""Key values per row (by the server's estimate) above which rows are counted. InnoDB's estimates are within a factor of
about two, so a calculated chunk has at least about a quarter of the rows it may have."""


def rows_of_chunk(stats: TableStats | None, wanted: int, most_bytes: int) -> int:
    """Return the rows of a chunk: ``wanted``, or fewer if rows are so wide that a reader would hold more than
    ``most_bytes`` of them.

    :param stats: the server's statistics; None: unknown, as is the size of a row if they count none.
    """
    if stats is None or not stats.rows or stats.data_bytes <= most_bytes:
        return wanted
    return max(1, min(wanted, most_bytes * stats.rows // stats.data_bytes))


def first_chunk_bounds(
    query: Query,
    table: TableDef,
    *,
    epoch: int,
    rows: int,
    rows_estimate: int = 0,
    condition: str | None = None,
    surrogate: str | None = None,
) -> SnapshotProgress:
    """Begin a table's snapshot: freeze the greatest key.

    :param epoch: of the batch that will hold the first chunk.
    :param rows: rows of a chunk.
    :param rows_estimate: the server's estimate of the table's rows: for progress, and whether bounds are calculated.
    :param condition: only rows that fulfil this SQL condition.
    :param surrogate: the column along which the table is divided; default: its key.
    """
    columns = bound_columns(table, surrogate)
    greatest = _bound(query, table, columns, _with("TRUE", condition), "DESC", 0) if table.key else None
    dense, expected = False, rows_estimate
    if greatest is not None and condition is None and surrogate is None and _is_integer(columns):
        least = _bound(query, table, columns, "TRUE", "ASC", 0) or greatest
        span = int(greatest[0]) - int(least[0]) + 1
        dense = span <= _SPARSE * rows_estimate
        expected = span if dense else rows_estimate
    chunks = max(1, -(-expected // rows)) + (1 if expected > rows else 0)
    return SnapshotProgress(
        since_epoch=epoch,
        max=greatest,
        chunks_estimate=chunks if table.key else 1,
        rows_estimate=rows_estimate,
        rows_left=expected if table.key else 0,
        dense=dense,
        order="" if greatest is None else key_order(columns),
    )


def _is_integer(columns: Sequence[Column]) -> bool:
    return len(columns) == 1 and columns[0].type in INTEGERS


def next_chunk(
    query: Query,
    table: TableDef,
    progress: SnapshotProgress,
    rows: int,
    *,
    condition: str | None = None,
    surrogate: str | None = None,
) -> ChunkSpec | None:
    """Return the next range to read, of about ``rows`` rows; None after the last one. Follow it with ``advance``."""
    if progress.finished:
        return None
    number, name = progress.chunks_done, table.full_name
    if progress.max is None or not table.key:
        return ChunkSpec(name, number, None, None, condition, surrogate)
    columns = bound_columns(table, surrogate)
    between = range_condition([quote_name(column.name) for column in columns], progress.hi, progress.max)
    if progress.dense and _is_integer(columns):
        first = _bound(query, table, columns, between, "ASC", 0)
        hi = None if first is None else _calculated(first, progress.max, max(1, rows))
    else:
        hi = _bound(query, table, columns, _with(between, condition), "ASC", max(1, rows) - 1)
    if number == 0 and hi in (None, progress.max):
        return ChunkSpec(name, 0, None, None, condition, surrogate)
    lo, end = (progress.max, None) if number == 0 else (progress.hi, hi or progress.max)
    return ChunkSpec(name, number, lo, end, condition, surrogate, progress.order)


def same_order(table: TableDef, progress: SnapshotProgress, surrogate: str | None = None) -> bool:
    """Return whether the ranges planned so far still divide the table's rows as they did. If not, begin again: rows may
    have moved from an unread range into one that was read.
    """
    return progress.max is None or not table.key or key_order(bound_columns(table, surrogate)) == progress.order


def _calculated(first: Sequence[str], greatest: tuple[str, ...], rows: int) -> tuple[str, ...]:
    """Return the upper bound of a chunk of ``rows`` values from ``first`` on."""
    hi = int(first[0]) + rows - 1
    return greatest if hi >= int(greatest[0]) else (str(hi),)


def advance(progress: SnapshotProgress, chunk: ChunkSpec, rows: int) -> SnapshotProgress:
    """Return the progress after ``chunk`` was planned.

    :param rows: as for ``next_chunk``; the estimate takes it for the other chunks, too.
    """
    done = progress.chunks_done + 1
    finished = chunk.hi == progress.max if chunk.hi is not None else chunk.lo is None
    left = 0 if finished else _rows_left(progress, chunk, rows)
    is_known = finished or progress.rows_left > 0
    return replace(
        progress,
        hi=chunk.hi,
        chunks_done=done,
        finished=finished,
        chunks_estimate=done + -(-left // max(1, rows)) if is_known else max(progress.chunks_estimate, done),
        rows_left=left,
    )


def _rows_left(progress: SnapshotProgress, chunk: ChunkSpec, rows: int) -> int:
    """Return about how many rows are not planned yet, after ``chunk``."""
    if chunk.hi is None:  # the chunk above the greatest key
        return progress.rows_left
    if progress.dense and progress.max is not None:
        return int(progress.max[0]) - int(chunk.hi[0])
    return max(0, progress.rows_left - rows)


def _with(between: str, condition: str | None) -> str:
    return between if condition is None else f"{between} AND ({condition})"


def _bound(
    query: Query, table: TableDef, columns: Sequence[Column], condition: str, direction: str, offset: int
) -> tuple[str, ...] | None:
    """Return the key at ``offset`` of the rows that fulfil ``condition``, as literals; None if there are fewer rows."""
    literals = ", ".join(literal_expression(column, table.full_name) for column in columns)
    order = ", ".join(f"{quote_name(column.name)} {direction}" for column in columns)
    rows = query(
        f"SELECT {literals} FROM {quote_name(table.db)}.{quote_name(table.name)} WHERE {condition}"
        f" ORDER BY {order} LIMIT 1 OFFSET {offset}"
    )
    return tuple(str(value) for value in rows[0]) if rows else None
