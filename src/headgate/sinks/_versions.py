"""Fold a batch's images to the versions that each key had: rows of a history (SCD type 2).

**Order.** Images are sorted by key, then by ``_seq``, ``b`` before the rest. Each after-image (``c``, ``u``, ``r``) is
a version. The next image of the same key ends it: ``b`` of an update, ``d``, or another after-image. So does a TRUNCATE
(a ``t`` image) that comes before that image. A version without an end is open. An update that keeps the
key closes with its ``b`` and opens with its ``u``, at one ``_seq``. If it changes the key, it closes the old key and
opens the new one.

**Re-reads.** An ``r`` has the greatest ``_seq`` of its batch. If it repeats the version directly before it, it is left
out, and that version stays open. If it is the key's only image, the table decides: it may hold an equal open row.

**The table's open row** of a key ends at the key's first image, or at a TRUNCATE before it.

**Times** of one key never go back, although clocks of servers may: each is at least the one before it in the log. So no
version ends before it begins, and no two versions of a key overlap.

**Division.** The result for a key depends on its images and the ``t`` images only. Parts of a batch may be folded
separately if they are divided by key and each has all ``t`` images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import Keys, keys_of
from headgate.sinks._images import rank_images

__all__ = ["Versions", "fold_versions"]


@dataclass(frozen=True)
class Versions:
    """Result of a fold.

    :param rows: the versions: the images' columns, then ``_valid_from``, ``_valid_to``, ``_is_current``, ``_end_seq``
        and ``_end_gtid``; the last three ends are null while a version is open.
    :param ends: one row per key: its columns, ``_end_seq``, ``_end_gtid`` and ``_valid_to``, by which an open row of
        the table ends, and ``_only_read`` (boolean): its only image is an ``r``.
    """

    rows: pa.Table
    ends: pa.Table


def fold_versions(table: pa.Table, key: Sequence[str]) -> Versions:
    """Return the versions of each key, in the order of keys and log.

    :param table: images in canonical columns, in any order, all of one epoch; ``t`` images have no other values.
    :param key: the key's columns.
    """
    table = table.take(pc.sort_indices(rank_images(table))).combine_chunks()
    is_truncate = np.asarray(pc.equal(table["_op"], "t").combine_chunks())
    truncates = np.flatnonzero(is_truncate)
    rows = np.flatnonzero(~is_truncate)
    ids = _numbers(keys_of([table[name].take(pa.array(rows)) for name in key]))
    order = np.argsort(ids, kind="stable")
    ids, rows = ids[order], rows[order]
    begins = np.diff(ids, prepend=-1) != 0
    stamps = np.asarray(table["_ts"].cast(pa.int64()).combine_chunks())
    limits = np.maximum.accumulate(stamps[truncates])
    times = _times(ids, rows, begins, stamps, truncates, limits)
    return Versions(
        _version_rows(table, key, rows, begins, times, truncates, limits),
        _first_ends(table, key, rows, begins, stamps, truncates),
    )


def _numbers(keys: Keys) -> Any:
    """int64[n]: a number for each key, equal for equal keys."""
    if keys.is_exact:
        return np.unique(keys.exact, return_inverse=True)[1].astype(np.int64)
    buffers = [None, pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)]
    encoded = pa.Array.from_buffers(pa.large_binary(), keys.count, buffers).dictionary_encode()
    return np.asarray(encoded.indices).astype(np.int64)


def _times(ids: Any, rows: Any, begins: Any, stamps: Any, truncates: Any, limits: Any) -> Any:
    """int64[n]: µs of each image, not before those of its key's images and TRUNCATEs that precede it."""
    own, passed = stamps[rows].copy(), np.searchsorted(truncates, rows)
    before = np.where(begins, 0, np.concatenate([[0], passed])[: len(passed)])
    later = passed > before
    own[later] = np.maximum(own[later], limits[passed[later] - 1])
    distinct, positions = np.unique(own, return_inverse=True)
    base = ids * len(distinct)
    return distinct[np.maximum.accumulate(positions + base) - base] if len(own) else own


def _version_rows(
    table: pa.Table, key: Sequence[str], rows: Any, begins: Any, times: Any, truncates: Any, limits: Any
) -> pa.Table:
    op = np.asarray(pc.index_in(table["_op"], pa.array(["b", "d", "r"])).fill_null(-1).combine_chunks())[rows]
    is_version = (op == -1) | (op == 2)
    passed = np.searchsorted(truncates, rows)
    repeats = np.flatnonzero((op[1:] == 2) & is_version[:-1] & ~begins[1:] & (passed[1:] == passed[:-1])) + 1
    if len(repeats):
        same = _equal_rows(table, rows[repeats - 1], rows[repeats], key)
        kept = np.ones(len(rows), np.bool_)
        kept[repeats[same]] = False
        rows, begins, times, is_version, passed = (one[kept] for one in (rows, begins, times, is_version, passed))
    count, open_end = len(rows), len(table)
    followed = np.append(~begins[1:], False)[:count]
    next_image = np.where(followed, np.append(rows[1:], open_end)[:count], open_end)
    next_truncate = np.append(truncates, open_end)[passed]
    end = np.minimum(next_image, next_truncate)
    end_time = np.append(times[1:], 0)[:count]
    cut = next_truncate < next_image
    end_time[cut] = np.maximum(times[cut], limits[passed[cut]])
    chosen = np.flatnonzero(is_version)
    end, is_open = end[chosen], end[chosen] == open_end
    at = pa.array(end, mask=is_open)
    return (
        table.take(pa.array(rows[chosen]))
        .append_column("_valid_from", _moments(times[chosen]))
        .append_column("_valid_to", _moments(end_time[chosen], is_open))
        .append_column("_is_current", pa.array(is_open))
        .append_column("_end_seq", table["_seq"].take(at))
        .append_column("_end_gtid", table["_gtid"].take(at))
    )


def _first_ends(table: pa.Table, key: Sequence[str], rows: Any, begins: Any, stamps: Any, truncates: Any) -> pa.Table:
    starts = np.flatnonzero(begins)
    first = rows[starts]
    at = np.minimum(first, truncates[0]) if len(truncates) else first
    is_read = np.asarray(pc.equal(table["_op"], "r").combine_chunks())[first]
    alone = (np.diff(np.append(starts, len(rows))) == 1) & (at == first)
    ends = table.select(list(key)).take(pa.array(first))
    return (
        ends.append_column("_end_seq", table["_seq"].take(pa.array(at)))
        .append_column("_end_gtid", table["_gtid"].take(pa.array(at)))
        .append_column("_valid_to", _moments(stamps[at]))
        .append_column("_only_read", pa.array(is_read & alone))
    )


def _moments(micros: Any, mask: Any = None) -> pa.Array:
    return pa.array(micros, pa.int64(), mask=mask).cast(pa.timestamp("us", "UTC"))


def _equal_rows(table: pa.Table, one: Any, other: Any, key: Sequence[str]) -> Any:
    """bool[n]: whether pairs of rows with equal keys have equal values."""
    same = np.ones(len(one), np.bool_)
    for name in table.column_names:
        if name in ("_op", "_seq", "_gtid", "_ts", *key):
            continue
        left, right = (table[name].take(pa.array(rows)).combine_chunks() for rows in (one, other))
        same &= _equal(left, right)
    return same


def _equal(left: pa.Array, right: pa.Array) -> Any:
    """bool[n]: whether values of two columns of one type are equal; nulls are."""
    missing, absent = (np.asarray(side.is_null()) for side in (left, right))
    if pa.types.is_struct(left.type):
        same = np.ones(len(left), np.bool_)
        for mine, theirs in zip(left.flatten(), right.flatten(), strict=True):
            same &= _equal(mine, theirs)
    elif pa.types.is_list(left.type):
        same = np.asarray(pc.equal(pc.list_value_length(left), pc.list_value_length(right)).fill_null(False)).copy()
        alike = pa.array(same)
        mine, theirs = left.filter(alike), right.filter(alike)
        parents = np.asarray(pc.list_parent_indices(mine)).astype(np.int64)
        differs = parents[~_equal(mine.flatten(), theirs.flatten())]
        same[np.flatnonzero(same)[differs]] = False
    else:
        same = np.asarray(pc.equal(left, right).fill_null(False))
    return (missing & absent) | (same & ~missing & ~absent)
