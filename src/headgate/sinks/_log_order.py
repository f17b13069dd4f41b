"""Images of a batch in the order of the log, a slice of the log at a time.

A task of the source gives the images of each table apart, in record batches whose first and last positions the driver
knows (:class:`~headgate.carrier.Arrival`) before it has the images. It fetches them as they arrive, and yields what
lies before the first position of all that are still to come (:func:`slices_in_order`). Tasks read consecutive ranges of
the log, so little waits: what a task gathers of other tables meanwhile. If all images are in the driver, or in files of
its machine, it opens them in that order without Spark; what waits is then mapped, not held.

If more would wait than the driver may hold (two servers' transactions take turns in one log, and each task has one
server's), Spark sorts: its tasks divide the images at the same places of the log (each ``_SLICE_BYTES``; rows of a
snapshot at each ``_SLICE_ROWS``), and the driver fetches one of Spark's partitions at a time, which joins the pieces of
one slice (:func:`fetch_sorted`). A piece is one row for Spark, so images cost Spark nothing for each row of MySQL's.

An update's ``b`` image stays before its ``u`` image: both have one position, or the piece ends after the ``u``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import (
    DATA_COLUMN,
    KIND_COLUMN,
    SCHEMA_COLUMN,
    Arrival,
    Definition,
    Part,
    Seq,
    open_images,
    serialised,
)
from headgate.errors import DecodeError
from headgate.replication import SNAPSHOT_FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TableImages", "fetch_slices", "log_order", "pieces", "slices_in_order"]

_SLICE_BYTES: Final = 8 << 20
_SLICE_ROWS: Final = 1 << 13
_MOST_WAITING: Final = 256 << 20
"""Most bytes of images that wait in the driver for others."""
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
    values = [np.concatenate([np.asarray(one[name]) for one in records]) for name in columns]
    if not _is_in_order(values):
        order = np.lexsort(values[::-1])
        records = pa.Table.from_batches(records).take(order).combine_chunks().to_batches()
    for one in records:
        for start in range(0, one.num_rows, _SLICE_ROWS):
            yield one.slice(start, _SLICE_ROWS)


def _is_in_order(columns: Sequence[Any]) -> bool:
    """Whether no row is less than the one before it."""
    equal, less = np.bool_(True), np.bool_(False)
    for column in columns:
        less |= equal & (column[1:] < column[:-1])
        equal &= column[1:] == column[:-1]
    return not np.any(less)


def fetch_slices(
    frame: DataFrame, parts: Mapping[str, Sequence[Part]], held_bytes: int = _MOST_WAITING
) -> Iterator[list[TableImages]]:
    """Yield the images of each slice of the log, then those of a snapshot's rows.

    :param frame: a batch's rows of the carrier, persisted.
    :param parts: all images of each table.
    :param held_bytes: if more would wait in the driver for others, Spark sorts them.
    :raises DecodeError: the images are not those of the parts.
    """
    described = [(one, part.definition) for of_table in parts.values() for part in of_table for one in part.arrivals]
    described.sort(key=lambda one: one[0].number)
    arrivals = [arrival for arrival, _ in described]
    if all(arrival.data is not None for arrival in arrivals):
        return slices_in_order(_open(described), arrivals)
    if most_waiting(arrivals) <= held_bytes:
        return slices_in_order(_fetch(frame, parts), arrivals)
    return fetch_sorted(frame, parts)


def _open(described: Iterable[tuple[Arrival, Definition]]) -> Iterator[TableImages]:
    """Yield images that came with the batch's description, or are in files, one record batch at a time."""
    for arrival, definition in described:
        for images in open_images([arrival.data]):
            yield TableImages(definition, images)


def _fetch(frame: DataFrame, parts: Mapping[str, Sequence[Part]]) -> Iterator[TableImages]:
    """Yield images as Spark has them, one of its partitions at a time."""
    for row in _chosen(frame, parts).toLocalIterator(prefetchPartitions=True):
        for images in open_images([pa.py_buffer(row[DATA_COLUMN])]):
            if images.num_rows:
                yield TableImages(Definition.from_json(row[SCHEMA_COLUMN]), images)


def _chosen(frame: DataFrame, parts: Mapping[str, Sequence[Part]]) -> DataFrame:
    """Return the images of these parts; a table's others, which a decision has left out, have other definitions."""
    from pyspark.sql import functions

    definitions = {part.schema for of_table in parts.values() for part in of_table}
    chosen = functions.col(SCHEMA_COLUMN).isin(*definitions) & functions.col(KIND_COLUMN).isin("rows", "chunk")
    return frame.where(chosen).select(SCHEMA_COLUMN, DATA_COLUMN)


def most_waiting(arrivals: Sequence[Arrival]) -> int:
    """Return the most bytes of images that wait in :func:`slices_in_order`."""
    bounds, most, waiting = _bounds(arrivals), 0, list[Arrival]()
    for arrival, bound in zip(arrivals, bounds, strict=True):
        waiting.append(arrival)
        most = max(most, sum(one.size for one in waiting))
        waiting = [one for one in waiting if bound is not None and one.newest >= bound]
    return most


def _bounds(arrivals: Sequence[Arrival]) -> list[Seq | None]:
    """Return after each arrival the first position of all later ones; None: there are none."""
    bounds: list[Seq | None] = [None]
    for arrival in reversed(arrivals[1:]):
        last = bounds[-1]
        bounds.append(arrival.oldest if last is None else min(arrival.oldest, last))
    return bounds[::-1][-len(arrivals) :] if arrivals else []


def slices_in_order(images: Iterator[TableImages], arrivals: Sequence[Arrival]) -> Iterator[list[TableImages]]:
    """Yield images in the order of the log, at most about ``_SLICE_ROWS`` rows at a time.

    :param images: each in the order of the log.
    :param arrivals: what is known of each of them.
    :raises DecodeError: something else is known of one.
    """
    waiting: list[TableImages] = []
    for one, arrival, bound in zip(images, arrivals, _bounds(arrivals), strict=True):
        if _positions(one.images.slice(0, 1))[0].tolist() != list(arrival.oldest[1:]):
            raise DecodeError("images come in another order than described", table=one.definition.table)
        waiting.append(one)
        due = [_split(each, None if bound is None else bound[1:]) for each in waiting]
        waiting = [rest for _, rest in due if rest.images.num_rows]
        yield from _slices([first for first, _ in due if first.images.num_rows])


def _slices(images: list[TableImages]) -> Iterator[list[TableImages]]:
    """Divide images, each in the order of the log, at the same positions."""
    counts = [one.images.num_rows for one in images]
    total, most = sum(counts), max(_SLICE_ROWS, 2)  # an update's two images have one position
    if total <= most:
        yield from [images] if images else []
        return
    positions = np.concatenate([_positions(one.images) for one in images])
    owners = np.repeat(np.arange(len(images)), counts)
    if len(images) > 1:
        order = np.lexsort(positions.T[::-1])
        positions, owners = positions[order], owners[order]
    begins, start = np.zeros(len(images), np.int64), 0
    while start < total:
        end = min(start + most, total)
        if end < total and (positions[end] == positions[end - 1]).all():
            end -= 1
        ends = begins + np.bincount(owners[start:end], minlength=len(images))
        yield [
            one._replace(images=one.images.slice(first, last - first))
            for one, first, last in zip(images, begins.tolist(), ends.tolist(), strict=True)
            if last > first
        ]
        begins, start = ends, end


def _positions(images: pa.RecordBatch) -> Any:
    """Return file, pos and ordinal: int64[images, 3]."""
    seq = images["_seq"]
    return np.stack([np.asarray(seq.field(name)).astype(np.int64) for name in ("file", "pos", "ordinal")], axis=1)


def _split(images: TableImages, bound: tuple[int, ...] | None) -> tuple[TableImages, TableImages]:
    """Divide images before a position; None: after all of them."""
    count = images.images.num_rows
    if bound is not None:
        file, pos, ordinal = _positions(images.images).T
        same_file, same_pos = file == bound[0], pos == bound[1]
        before = (file < bound[0]) | (same_file & ((pos < bound[1]) | (same_pos & (ordinal < bound[2]))))
        count = int(before.sum())
    return (images._replace(images=images.images.slice(0, count)), images._replace(images=images.images.slice(count)))


def fetch_sorted(frame: DataFrame, parts: Mapping[str, Sequence[Part]]) -> Iterator[list[TableImages]]:
    """Yield the images of each slice of the log, then those of a snapshot's rows, sorted by Spark."""

    def divide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for schema, cell in zip(batch[SCHEMA_COLUMN].to_pylist(), batch[DATA_COLUMN], strict=True):
                for images in open_images([cell]):
                    yield from pieces(schema, images)

    rows = _chosen(frame, parts).mapInArrow(divide, _PIECE_DDL)
    fetched = rows.orderBy("file", "slice").toLocalIterator(prefetchPartitions=True)
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
