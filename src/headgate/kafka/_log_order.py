"""Images of a batch in the order of the log, a slice of the log at a time.

A task of the source gives the images of each table apart, in record batches whose first positions the driver knows
(:class:`~headgate.carrier.StoredImages`). It opens them in the order of these, and yields what lies before the first
position of the next one. What waits for others is mapped, if it is in a file of this machine, else held: of each task
and table one record batch at most.

An update's ``b`` image stays before its ``u`` image: both have one position, or the slice ends after the ``u``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.carrier import Definition, Part, open_images

__all__ = ["TableImages", "log_order", "slices_in_order"]

_SLICE_ROWS: Final = 1 << 13


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


def slices_in_order(parts: Mapping[str, Sequence[Part]]) -> Iterator[list[TableImages]]:
    """Yield the images of each slice of the log, then those of a snapshot's rows, at most about ``_SLICE_ROWS`` rows at
    a time.

    :param parts: all images of each table.
    :raises EngineError: the file of some cannot be read.
    """
    stored = [(one, part.definition) for of_table in parts.values() for part in of_table for one in part.stored]
    stored.sort(key=lambda one: one[0].oldest)
    waiting: list[TableImages] = []
    for (one, definition), after in zip_longest(stored, stored[1:]):
        bound = None if after is None else after[0].oldest[1:]
        waiting += [TableImages(definition, images) for images in open_images([one.data])]
        due = [_split(each, bound) for each in waiting]
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
