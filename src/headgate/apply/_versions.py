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
version ends before it begins, and versions of one key do not overlap: each begins at its change, or when the one before
it ended, if that is later. Within a batch and behind the table's open row, these are known. If a key has no open row,
its newest ended version is looked up in the files where one may have ended later (:attr:`Versions.begins`): in none,
unless a clock went back.

**Writing** (:meth:`Versions.settle`). The open rows of the batch's keys are written again, ended, next to the new
versions. If the first image of a key is a before-image, the values of the ended row are taken from it, so only the
beginning of that row is read. Exception: a row may be of a time from which changes are missing. While a snapshot runs,
these are rows that it has not seen (the table was suspended, or is read again from the start). In a table that is
``inexact``, or waits to be read, they are all rows that were last seen before the batch. Such a row keeps its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.apply._images import image_order
from headgate.carrier import META
from headgate.delta import keys_of
from headgate.lake import END_GTID, END_SEQ, IS_CURRENT, SEEN, VALID_FROM, VALID_TO, with_columns

__all__ = ["Versions", "fold_versions"]

_ONLY_READ, _HAS_VALUES = "_only_read", "_has_values"


@dataclass(frozen=True)
class Versions:
    """Result of a fold.

    :param rows: the versions: the images' columns, then ``_valid_from``, ``_valid_to``, ``_is_current``, ``_end_seq``
        and ``_end_gtid``; ``_valid_to`` and the last two are null while a version is open.
    :param key_numbers: int64[rows]: the number of each version's key: its row in ``ends``; ascending.
    :param ends: one row per key: its columns, ``_end_seq``, ``_end_gtid`` and ``_valid_to``, by which an open row of
        the table ends; ``_only_read`` (boolean): its only image is an ``r``; ``_has_values`` (boolean): its first image
        is a before-image, so it has the values of the table's open row.
    :param firsts: the first image of each key, in the order of ``ends``.
    """

    rows: pa.Table
    key_numbers: Any
    ends: pa.Table
    firsts: pa.Table

    @property
    def has_values(self) -> Any:
        """bool[keys]: whether the images have the values of the table's open row."""
        return np.asarray(self.ends[_HAS_VALUES].combine_chunks())

    @property
    def begins(self) -> Any:
        """int64[keys]: when the first new version of each key begins, µs since 1970 UTC; the greatest: it has none."""
        begins = np.full(len(self.ends), np.iinfo(np.int64).max)
        firsts = np.flatnonzero(np.diff(self.key_numbers, prepend=-1))
        begins[self.key_numbers[firsts]] = _micros(self.rows[VALID_FROM].take(pa.array(firsts)))
        return begins

    def settle(
        self,
        open_rows: pa.Table,
        key_numbers: Any,
        names: Sequence[str],
        epoch: int,
        last_ends: Any = None,
        *,
        exact_since: int = 0,
    ) -> pa.Table:
        """Return the rows to write in place of the table's open rows of these keys: those rows, ended or confirmed, and
        the new versions. A row that was only read again, with the same values, stays open: it has no new version.

        :param open_rows: the open rows, in all columns of the table; the result's columns, too. Those of keys with
            ``has_values`` may lack the source's values, if they were last seen in ``exact_since`` or later.
        :param key_numbers: int64[open_rows]: the number of each one's key.
        :param names: the source's columns, by which rows are compared.
        :param epoch: of the batch.
        :param last_ends: int64[keys]: for keys without an open row, a time at which a version of the table ended, µs
            since 1970 UTC. New versions begin at that time, or later. None: none are known.
        :param exact_since: a row that was last seen in an earlier epoch keeps its values, as they may have changed
            since without an image.
        """
        count = len(self.ends)
        firsts = np.searchsorted(self.key_numbers, key_numbers)
        stays = np.asarray(self.ends[_ONLY_READ].combine_chunks())[key_numbers]
        checked = np.flatnonzero(stays)
        stays[checked] = _equal_rows(open_rows.take(checked), self.rows.take(firsts[checked]), names)
        has_open = np.zeros(count, np.bool_)
        has_open[key_numbers[stays]] = True
        begun = _micros(open_rows[VALID_FROM])
        floors = np.full(count, np.iinfo(np.int64).min) if last_ends is None else last_ends.copy()
        np.maximum.at(floors, key_numbers[~stays], begun[~stays])
        confirmed = with_columns(open_rows.filter(pa.array(stays)), {SEEN: pa.repeat(epoch, int(stays.sum()))})
        seen = np.asarray(open_rows[SEEN].fill_null(0).combine_chunks())
        from_images = ~stays & self.has_values[key_numbers] & (seen >= exact_since)
        read = self._ended(open_rows, key_numbers, begun, ~stays & ~from_images)
        known = self.firsts.take(pa.array(key_numbers[from_images]))
        ended = with_columns(
            self._ended(open_rows, key_numbers, begun, from_images), {name: known[name] for name in names}
        )
        return pa.concat_tables([confirmed, read, ended, self._begun(open_rows.schema, ~has_open, floors, epoch)])

    def _ended(self, open_rows: pa.Table, key_numbers: Any, begun: Any, chosen: Any) -> pa.Table:
        """Return the chosen open rows with their ends, not before their beginnings."""
        ends = self.ends.take(pa.array(key_numbers[chosen]))
        return with_columns(
            open_rows.filter(pa.array(chosen)),
            {
                VALID_TO: _moments(np.maximum(_micros(ends[VALID_TO]), begun[chosen])),
                IS_CURRENT: pa.repeat(pa.scalar(False), len(ends)),
                END_SEQ: ends[END_SEQ],
                END_GTID: ends[END_GTID],
            },
        )

    def _begun(self, schema: pa.Schema, is_new: Any, floors: Any, epoch: int) -> pa.Table:
        """Return the versions of new keys in these columns, not before the row that they follow began or ended."""
        chosen = is_new[self.key_numbers]
        rows, floor = self.rows.filter(pa.array(chosen)), floors[self.key_numbers[chosen]]
        is_open = np.asarray(rows[IS_CURRENT].combine_chunks())
        ends = np.maximum(_micros(rows[VALID_TO]), floor)
        rows = with_columns(
            rows.append_column(SEEN, pa.repeat(epoch, len(rows))),
            {VALID_FROM: _moments(np.maximum(_micros(rows[VALID_FROM]), floor)), VALID_TO: _moments(ends, is_open)},
        )
        present = {*rows.column_names}
        columns = [rows[one.name] if one.name in present else pa.nulls(len(rows), one.type) for one in schema]
        return pa.table(columns, schema=schema)


def fold_versions(table: pa.Table, key: Sequence[str]) -> Versions:
    """Return the versions of each key, in the order of keys and log.

    :param table: images in canonical columns, in any order, all of one epoch; ``t`` images have no other values.
    :param key: the key's columns.
    """
    table = table.take(image_order(table)).combine_chunks()
    is_truncate = np.asarray(pc.equal(table["_op"], "t").combine_chunks())
    truncates = np.flatnonzero(is_truncate)
    rows = np.flatnonzero(~is_truncate)
    ids = keys_of([table[name].take(pa.array(rows)) for name in key]).numbers
    order = np.argsort(ids, kind="stable")
    ids, rows = ids[order], rows[order]
    begins = np.diff(ids, prepend=-1) != 0
    stamps = np.asarray(table["_ts"].cast(pa.int64()).combine_chunks())
    limits = np.maximum.accumulate(stamps[truncates])
    times = _times(ids, rows, begins, stamps, truncates, limits)
    return Versions(
        *_version_rows(table, key, rows, begins, times, truncates, limits),
        _first_ends(table, key, rows, begins, stamps, truncates),
        table.take(pa.array(rows[begins])),
    )


def _times(ids: Any, rows: Any, begins: Any, stamps: Any, truncates: Any, limits: Any) -> Any:
    """int64[n]: µs of each image, not before those of its key's images and TRUNCATEs that precede it."""
    times, passed = stamps[rows].copy(), np.searchsorted(truncates, rows)
    before = np.where(begins, 0, np.concatenate([[0], passed])[: len(passed)])
    later = passed > before
    times[later] = np.maximum(times[later], limits[passed[later] - 1])
    distinct, positions = np.unique(times, return_inverse=True)
    base = ids * len(distinct)
    return distinct[np.maximum.accumulate(positions + base) - base] if len(times) else times


def _version_rows(
    table: pa.Table, key: Sequence[str], rows: Any, begins: Any, times: Any, truncates: Any, limits: Any
) -> tuple[pa.Table, Any]:
    numbers = np.cumsum(begins) - 1
    op = np.asarray(pc.index_in(table["_op"], pa.array(["b", "d", "r"])).fill_null(-1).combine_chunks())[rows]
    is_version = (op == -1) | (op == 2)
    passed = np.searchsorted(truncates, rows)
    repeats = np.flatnonzero((op[1:] == 2) & is_version[:-1] & ~begins[1:] & (passed[1:] == passed[:-1])) + 1
    if len(repeats):
        names = [name for name in table.column_names if name not in (*META, *key)]
        same = _equal_rows(table.take(rows[repeats - 1]), table.take(rows[repeats]), names)
        kept = np.ones(len(rows), np.bool_)
        kept[repeats[same]] = False
        rows, begins, times, is_version, passed, numbers = (
            one[kept] for one in (rows, begins, times, is_version, passed, numbers)
        )
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
    versions = (
        table.take(pa.array(rows[chosen]))
        .append_column(VALID_FROM, _moments(times[chosen]))
        .append_column(VALID_TO, _moments(end_time[chosen], is_open))
        .append_column(IS_CURRENT, pa.array(is_open))
        .append_column(END_SEQ, table["_seq"].take(at))
        .append_column(END_GTID, table["_gtid"].take(at))
    )
    return versions, numbers[chosen]


def _first_ends(table: pa.Table, key: Sequence[str], rows: Any, begins: Any, stamps: Any, truncates: Any) -> pa.Table:
    starts = np.flatnonzero(begins)
    first = rows[starts]
    at = np.minimum(first, truncates[0]) if len(truncates) else first
    op = table["_op"].take(pa.array(first)).combine_chunks()
    is_read, is_before = (np.asarray(pc.is_in(op, pa.array(kinds))) for kinds in (["r"], ["b", "d"]))
    alone = (np.diff(np.append(starts, len(rows))) == 1) & (at == first)
    ends = table.select(list(key)).take(pa.array(first))
    return (
        ends.append_column(END_SEQ, table["_seq"].take(pa.array(at)))
        .append_column(END_GTID, table["_gtid"].take(pa.array(at)))
        .append_column(VALID_TO, _moments(stamps[at]))
        .append_column(_ONLY_READ, pa.array(is_read & alone))
        .append_column(_HAS_VALUES, pa.array(is_before & (at == first)))
    )


def _moments(micros: Any, mask: Any = None) -> pa.Array:
    return pa.array(micros, pa.int64(), mask=mask).cast(pa.timestamp("us", "UTC"))


def _micros(column: pa.ChunkedArray) -> Any:
    """int64[n]: µs; 0 for null."""
    return np.asarray(column.cast(pa.int64()).fill_null(0).combine_chunks())


def _equal_rows(one: pa.Table, other: pa.Table, names: Sequence[str]) -> Any:
    """bool[n]: whether pairs of rows have equal values in these columns."""
    same = np.ones(len(one), np.bool_)
    for name in names:
        same &= _equal(one[name].combine_chunks(), other[name].combine_chunks())
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
