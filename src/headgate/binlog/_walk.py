"""From row events to cells: the bytes of every value of every row image.

One kernel walks the row images of one table over many events. It sizes each cell by the table's layout (see
``_layout``) and records offset, length and validity column by column. Every read and every recorded value is checked
against the end of its own event, so that readers of the cells need no bounds check.

An update holds two images and gives two rows, ``b`` (before) and directly after it ``u`` (after). With ``keys_only``
the ``b`` row is dropped if its key has the same bytes as the ``u`` row's: then no key changed.

A row image may leave columns out (``binlog_row_image`` MINIMAL or NOBLOB, a setting of each session, so every event
has its own bitmaps). A column missing from an after-image was not changed. It is copied from the before-image if that
has it, so a ``u`` row has its key whenever the ``b`` row has it.

The after-images of a PARTIAL_UPDATE_ROWS event begin with options (a length-encoded number; 1: some JSON values are
differences). With that option, one bit follows for each JSON column of the table, whether it is in the image or not: 1
if its value is a list of differences from the before-image. An empty list means the value there. The other lists are
recorded, for the caller to resolve.

Source: MySQL source ``libs/mysql/binlog/event/rows_event.h`` (``Rows_event``) and ``sql/rpl_record.cc``
(``unpack_row``, ``start_partial_bits_reader``): a bitmap of the NULL columns among those present, then the values of
the others in table order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from headgate.binlog import codes
from headgate.binlog._layout import LAYOUT_FIXED, log_layout
from headgate.binlog._scan import (
    KIND_DELETE,
    KIND_PARTIAL_UPDATE,
    KIND_UPDATE,
    KIND_WRITE,
    R_BITMAP,
    R_BITMAP2,
    R_COLUMNS,
    R_DATA,
    R_END,
    R_KIND,
    R_POS,
    R_TXN,
    RowEvents,
)
from headgate.kernels import ABSENT, NULL, VALUE, Bytes, RowBlock, same_bytes, u8

__all__ = ["RowPositions", "RowWalker", "WalkedRows", "assign_ordinals", "locate_rows", "note_counts"]

_OK, _FULL, _SHORT, _COLUMNS, _OPTIONS = range(5)

_FIXED: Final = LAYOUT_FIXED
_WRITE, _UPDATE, _DELETE, _PARTIAL_UPDATE = KIND_WRITE, KIND_UPDATE, KIND_DELETE, KIND_PARTIAL_UPDATE
_JSON_DIFFERENCES: Final = 1
"""``PARTIAL_JSON_UPDATES``: the only option that an after-image can have."""
_OP_C, _OP_B, _OP_U, _OP_D = (ord(letter) for letter in "cbud")

CELLS_PER_WALK: Final = 1 << 21
"""Cells per walk: 13 bytes each, so at most about 27 MB of index."""
ROWS_PER_WALK: Final = 1 << 14
"""Rows per walk: the block's cells fit the second-level cache, because every column's codec reads it once more."""


# Rows of the table of JSON differences (int64): the value's cell, and the base that it differs from
D_ROW, D_COLUMN, D_OFFSET, D_LENGTH, D_VALID = range(5)


class WalkedRows(NamedTuple):
    """Row images of one table, and their events. Arrays have ``block.rows`` entries."""

    block: RowBlock
    op: Any
    """uint8: ASCII of ``c``, ``b``, ``u``, ``d``."""
    event: Any
    """int32: index of the row event in its scan."""
    change: Any
    """int32: number of the change within its event, from 0."""
    partial: bool
    """Whether any image leaves columns out (their cells are ABSENT)."""
    differences: Any
    """int64[5, n]: the D_… rows, one entry for each cell that holds JSON differences instead of a value."""


class _Cells(NamedTuple):
    """Cells of the rows in progress; [column, row]."""

    offset: Any
    """int64: index of the value's first byte."""
    length: Any
    """int32: number of bytes."""
    valid: Any
    """uint8: NULL, VALUE or ABSENT."""


class _Columns(NamedTuple):
    """Columns of a table."""

    mode: Any
    """int64[n]: how a cell is sized (``_layout``)."""
    arg: Any
    """int64[n]"""
    key: Any
    """int64: indexes of the key columns."""
    json: Any
    """int64: indexes of the JSON columns."""


class _Rows(NamedTuple):
    """Output of a walk, row after row."""

    cells: _Cells
    op: Any
    event: Any
    change: Any
    differences: Any


@njit(cache=True, nogil=True)
def _set_cell(cells: _Cells, c: int, row: int, valid: int, offset: Any, length: Any) -> None:
    cells.valid[c, row] = valid
    cells.offset[c, row] = offset
    cells.length[c, row] = length


@njit(cache=True, nogil=True)
def _copy_cell(cells: _Cells, c: int, row: int, other: int) -> None:
    """Copy another row's cell in this column."""
    cells.offset[c, row] = cells.offset[c, other]
    cells.length[c, row] = cells.length[c, other]
    cells.valid[c, row] = cells.valid[c, other]


@njit(cache=True, nogil=True)
def _present(buf: Any, bitmap: int, columns: int) -> Any:
    """Return how many columns the columns-present bitmap at index ``bitmap`` names."""
    present = 0
    for c in range(columns):
        present += (u8(buf, bitmap + (c >> 3)) >> (c & 7)) & 1
    return present


@njit(cache=True, nogil=True)
def _image(buf: Any, p: Any, end: int, bitmap: int, columns: _Columns, cells: _Cells, row: int) -> Any:
    """Walk one image at ``p``. Return the index behind it, or -1 if it does not fit before ``end``.

    ``bitmap`` is the index of the columns-present bitmap, -1 if all columns are present. An image is a bitmap of the
    NULL columns among those present, then the values of the others.
    """
    count = columns.mode.shape[0]
    present = count if bitmap < 0 else _present(buf, bitmap, count)
    nulls = p
    p += (present + 7) >> 3
    if p > end:
        return -1
    k = 0
    for c in range(count):
        if bitmap >= 0 and not (u8(buf, bitmap + (c >> 3)) >> (c & 7)) & 1:
            _set_cell(cells, c, row, ABSENT, 0, 0)
            continue
        is_null = (u8(buf, nulls + (k >> 3)) >> (k & 7)) & 1
        k += 1
        if is_null:
            _set_cell(cells, c, row, NULL, 0, 0)
            continue
        size: Any = np.int64(columns.arg[c])
        if columns.mode[c] != _FIXED:
            if p + size > end:
                return -1
            n = u8(buf, p)
            if size > 1:
                n |= u8(buf, p + 1) << 8
                if size > 2:
                    n |= u8(buf, p + 2) << 16
                    if size > 3:
                        n |= u8(buf, p + 3) << 24
            p += size
            size = n
        if p + size > end:
            return -1
        _set_cell(cells, c, row, VALUE, p, size)
        p += size
    return p


@njit(cache=True, nogil=True)
def _same_key(buf: Any, cells: _Cells, a: int, b: int, keys: Any) -> bool:
    """Return whether rows ``a`` and ``b`` have the same key bytes. A key column absent from both was not changed."""
    for i in range(keys.shape[0]):
        c = keys[i]
        if cells.valid[c, b] == ABSENT:
            continue
        if cells.valid[c, a] != cells.valid[c, b] or cells.length[c, a] != cells.length[c, b]:
            return False
        if not same_bytes(buf, cells.offset[c, a], buf, cells.offset[c, b], cells.length[c, a]):
            return False
    return True


@njit(cache=True, nogil=True)
def _bits_behind(buf: Any, p: Any, end: int, json_columns: int) -> Any:
    """Return ``(index behind the options of an after-image, index of its bits)``; bits -1: no differences; -2: it is
    malformed; -3: an option is unknown.
    """
    if p >= end:
        return p, -2
    options = u8(buf, p)
    p += 1
    if options == 0:
        return p, -1
    if options != _JSON_DIFFERENCES:
        return p, -3
    size = (json_columns + 7) >> 3
    return (p + size, p) if p + size <= end else (p, -2)


@njit(cache=True, nogil=True)
def _note_differences(buf: Any, bits: int, json: Any, cells: _Cells, row: int, differences: Any, noted: int) -> Any:
    """Record the cells in ``row + 1`` that hold differences from those in ``row``. Return the number recorded."""
    for k in range(json.shape[0]):
        if not (u8(buf, bits + (k >> 3)) >> (k & 7)) & 1:
            continue
        c = json[k]
        if cells.valid[c, row + 1] != VALUE:
            continue
        if cells.length[c, row + 1] == 0:
            _copy_cell(cells, c, row + 1, row)
            continue
        differences[D_ROW, noted] = row + 1
        differences[D_COLUMN, noted] = c
        differences[D_OFFSET, noted] = cells.offset[c, row]
        differences[D_LENGTH, noted] = cells.length[c, row]
        differences[D_VALID, noted] = cells.valid[c, row]
        noted += 1
    return noted


@njit(cache=True, nogil=True)
def _copy_unchanged(cells: _Cells, columns: int, row: int) -> None:
    """Copy into the after-image in ``row + 1`` the columns that only the before-image in ``row`` has."""
    for c in range(columns):
        if cells.valid[c, row + 1] == ABSENT and cells.valid[c, row] != ABSENT:
            _copy_cell(cells, c, row + 1, row)


@njit(cache=True, nogil=True)
def _partial(buf: Any, bitmap: int, columns: int) -> bool:
    """Return whether a columns-present bitmap leaves a column out."""
    for i in range(columns >> 3):
        if u8(buf, bitmap + i) != 0xFF:
            return True
    rest = columns & 7
    mask = (1 << rest) - 1
    return rest != 0 and (u8(buf, bitmap + (columns >> 3)) & mask) != mask


@njit(cache=True, nogil=True)
def _update(
    buf: Any, p: Any, end: int, second: int, is_partial: bool, columns: _Columns, rows: _Rows, row: int, noted: int
) -> Any:
    """Walk the after-image of an update, whose before-image is in ``row``, into the row after it.

    Return (index behind it, status, differences recorded so far).
    """
    bits = -1
    if is_partial:
        p, bits = _bits_behind(buf, p, end, columns.json.shape[0])
        if bits < -1:
            return p, _SHORT if bits == -2 else _OPTIONS, noted
    if second < 0:
        q = _image(buf, p, end, -1, columns, rows.cells, row + 1)
    else:
        q = _image(buf, p, end, second, columns, rows.cells, row + 1)
    if q <= p:
        return p, _SHORT, noted
    if bits >= 0:
        noted = _note_differences(buf, bits, columns.json, rows.cells, row, rows.differences, noted)
    if second >= 0:
        _copy_unchanged(rows.cells, columns.mode.shape[0], row)
    return q, _OK, noted


@njit(cache=True, nogil=True)
def _drop_before(rows: _Rows, row: int, columns: int, first_noted: int, noted: int) -> None:
    """Move the after-image behind ``row`` to ``row``, with its differences."""
    for c in range(columns):
        _copy_cell(rows.cells, c, row, row + 1)
    for d in range(first_noted, noted):
        rows.differences[D_ROW, d] = row


@njit(cache=True, nogil=True)
def _walk(buf: Any, events: Any, which: Any, cursor: Any, columns: _Columns, keys_only: bool, rows: _Rows) -> Any:
    """Walk the events ``which`` (indexes into ``events``) from ``cursor``.

    ``cursor`` is int64[4]: index into ``which``, byte index (0 = the event's begin), changes walked in it, whether
    any image was partial. It is left where the walk stopped. Return (rows, status, differences recorded).
    """
    capacity = rows.op.shape[0]
    count = columns.mode.shape[0]
    row = 0
    noted: Any = 0
    k = cursor[0]
    while k < which.shape[0]:
        e = which[k]
        if events[R_COLUMNS, e] != count:
            cursor[0] = k
            return row, _COLUMNS, noted
        kind = events[R_KIND, e]
        end = events[R_END, e]
        first = events[R_BITMAP, e] if _partial(buf, events[R_BITMAP, e], count) else -1
        second = events[R_BITMAP2, e] if _partial(buf, events[R_BITMAP2, e], count) else -1
        if first >= 0 or second >= 0:
            cursor[3] = 1
        p = cursor[1] if cursor[1] > 0 else events[R_DATA, e]
        if p >= end:  # a row without columns has no bytes, so the number of such rows is unknown
            cursor[0] = k
            return row, _SHORT, noted
        done = cursor[2]
        while p < end:
            if row + 2 > capacity:
                cursor[0] = k
                cursor[1] = p
                cursor[2] = done
                return row, _FULL, noted
            if first < 0:  # written twice, so that the compiler makes a loop without bitmaps
                q = _image(buf, p, end, -1, columns, rows.cells, row)
            else:
                q = _image(buf, p, end, first, columns, rows.cells, row)
            if q <= p:
                cursor[0] = k
                return row, _SHORT, noted
            p = q
            rows.event[row] = e
            rows.change[row] = done
            if kind == _UPDATE or kind == _PARTIAL_UPDATE:
                first_noted: Any = noted
                p, status, noted = _update(buf, p, end, second, kind == _PARTIAL_UPDATE, columns, rows, row, noted)
                if status != _OK:
                    cursor[0] = k
                    return row, status, noted
                if keys_only and _same_key(buf, rows.cells, row, row + 1, columns.key):
                    _drop_before(rows, row, count, first_noted, noted)
                else:
                    rows.op[row] = _OP_B
                    row += 1
                    rows.event[row] = e
                    rows.change[row] = done
                rows.op[row] = _OP_U
            elif kind == _WRITE:
                rows.op[row] = _OP_C
            else:
                rows.op[row] = _OP_D
            row += 1
            done += 1
        k += 1
        cursor[1] = 0
        cursor[2] = 0
    cursor[0] = k
    return row, _OK, noted


@njit(cache=True, nogil=True)
def _count(buf: Any, events: Any, which: Any, columns: _Columns, cells: _Cells, counts: Any) -> Any:
    """Write the number of changes of each event ``which`` to ``counts``. Return (index into ``which``, status).

    ``cells`` is room for one row.
    """
    for k in range(which.shape[0]):
        e = which[k]
        if events[R_COLUMNS, e] != columns.mode.shape[0]:
            return k, _COLUMNS
        p = events[R_DATA, e]
        end = events[R_END, e]
        n = 0
        while p < end:
            q = _image(buf, p, end, events[R_BITMAP, e], columns, cells, 0)
            if q > p and (events[R_KIND, e] == _UPDATE or events[R_KIND, e] == _PARTIAL_UPDATE):
                p = q
                if events[R_KIND, e] == _PARTIAL_UPDATE:
                    p, bits = _bits_behind(buf, p, end, columns.json.shape[0])
                    if bits < -1:
                        return k, _SHORT if bits == -2 else _OPTIONS
                q = _image(buf, p, end, events[R_BITMAP2, e], columns, cells, 0)
            if q <= p:
                return k, _SHORT
            p = q
            n += 1
        counts[e] = n
    return which.shape[0], _OK


@njit(cache=True, nogil=True)
def _ordinals(txn: Any, counts: Any, state: Any, out: Any) -> None:
    for e in range(txn.shape[0]):
        if txn[e] != state[0]:
            state[0] = txn[e]
            state[1] = 0
        out[e] = state[1]
        state[1] += counts[e]


def assign_ordinals(txn: Any, counts: Any, continued: int) -> tuple[Any, int]:
    """Return the ordinal of each event's first change within its transaction.

    :param txn: int64[n]: each event's transaction, in log order.
    :param counts: int64[n]: changes in each event.
    :param continued: changes already counted in transaction 0 (one that began in an earlier scan).
    :returns: int64[n], and the changes counted in the last transaction.
    """
    state = np.array([0, continued], np.int64)
    out = np.empty(len(txn), np.int64)
    _ordinals(txn, counts, state, out)
    return out, int(state[1]) if len(txn) else continued


def _cells(columns: int, rows: int) -> _Cells:
    shape = (max(1, columns), rows)
    return _Cells(np.zeros(shape, np.int64), np.zeros(shape, np.int32), np.zeros(shape, np.uint8))


class RowWalker:
    """Walker of the row images of one table definition.

    :param types: type code of each column, as in the table map.
    :param metas: metadata of each column, as in the table map.
    :param key: indexes of the key columns, for ``keys_only``; empty: every ``b`` row is kept.
    """

    def __init__(
        self, types: Sequence[int], metas: Sequence[int], *, key: Sequence[int] = (), keys_only: bool = False
    ) -> None:
        layouts = [log_layout(code, meta) for code, meta in zip(types, metas, strict=True)]
        self.columns = len(layouts)
        self._of_table = _Columns(
            np.array([mode for mode, _ in layouts], np.int64),
            np.array([arg for _, arg in layouts], np.int64),
            np.array(key, np.int64),
            np.flatnonzero(np.array([code == codes.T_JSON for code in types], bool)).astype(np.int64),
        )
        self._differences = np.zeros((5, 0), np.int64)
        self._keys_only = keys_only and len(key) > 0
        self._capacity = 0

    def _allocate(self, wanted: int) -> None:
        capacity = max(2, min(wanted, ROWS_PER_WALK, CELLS_PER_WALK // max(1, self.columns)))
        if capacity <= self._capacity:
            return
        self._capacity = capacity
        self._rows = _Rows(
            _cells(self.columns, capacity),
            np.zeros(capacity, np.uint8),
            np.zeros(capacity, np.int32),
            np.zeros(capacity, np.int32),
            self._differences,
        )

    def walk(self, buf: Bytes, events: RowEvents, which: Any, cursor: Any) -> WalkedRows:
        """Walk events ``which`` (int64 indexes) from ``cursor`` (see :meth:`start`) until the block is full.

        The next call reuses the result's arrays.

        :raises ValueError: with a reason, if an image does not fit its event or table. The caller knows the position.
        """
        self._allocate(
            2 * int((events.table[R_END, which] - events.table[R_DATA, which]).sum()) // max(1, self.columns // 8) + 2
        )
        if (events.table[R_KIND, which] == _PARTIAL_UPDATE).any():
            room = self._capacity * len(self._of_table.json)
            if self._differences.shape[1] < room:
                self._differences = np.zeros((5, room), np.int64)
                self._rows = self._rows._replace(differences=self._differences)
        walked = self._rows
        rows, status, noted = _walk(buf, events.table, which, cursor, self._of_table, self._keys_only, walked)
        self._raise(status)
        block = RowBlock(buf, *walked.cells, int(rows))
        return WalkedRows(
            block,
            walked.op[:rows],
            walked.event[:rows],
            walked.change[:rows],
            bool(cursor[3]),
            walked.differences[:, : int(noted)],
        )

    @staticmethod
    def start() -> Any:
        """Return a cursor for :meth:`walk`: int64[4]; the first entry counts the events walked."""
        return np.zeros(4, np.int64)

    def count(self, buf: Bytes, events: RowEvents, which: Any, counts: Any) -> None:
        """Write the number of changes of each event ``which`` to ``counts[event]`` (int64).

        :raises ValueError: as :meth:`walk`.
        """
        _, status = _count(buf, events.table, which, self._of_table, _cells(self.columns, 1), counts)
        self._raise(status)

    def _raise(self, status: int) -> None:
        if status == _COLUMNS:
            raise ValueError("a row event has another number of columns than its table map")
        if status == _SHORT:
            raise ValueError("a row image does not fit its event")
        if status == _OPTIONS:
            raise ValueError("a row image has options that are not known")


@njit(cache=True, nogil=True)
def _note_counts(event: Any, change: Any, counts: Any) -> None:
    for i in range(event.shape[0]):
        counts[event[i]] = change[i] + 1


def note_counts(walked: WalkedRows, counts: Any) -> None:
    """Set ``counts[event]`` (int64) for every event in a walked block to its changes walked so far."""
    _note_counts(walked.event, walked.change, counts)


class RowPositions(NamedTuple):
    """Log positions of walked rows; int64[rows] each."""

    txn: Any
    """Index of the row's transaction in its scan."""
    pos: Any
    """Start position of its row event."""
    ordinal: Any
    """Number of its change in the transaction, from 0."""
    commit_us: Any
    """Original commit time, microseconds since the Unix epoch."""


@njit(cache=True, nogil=True)
def _locate_rows(
    event: Any,
    change: Any,
    event_txn: Any,
    event_pos: Any,
    starts: Any,
    commit_us: Any,
    txn: Any,
    pos: Any,
    ordinal: Any,
    ts: Any,
) -> None:
    for i in range(event.shape[0]):
        e = event[i]
        t = event_txn[e]
        txn[i] = t
        pos[i] = event_pos[e]
        ordinal[i] = starts[e] + change[i]
        ts[i] = commit_us[t]


def locate_rows(walked: WalkedRows, events: RowEvents, starts: Any, commit_us: Any) -> RowPositions:
    """Return the log positions of a walked block's rows.

    :param starts: int64: ordinal of each event's first change (:func:`assign_ordinals`).
    :param commit_us: int64: commit time of each transaction of the scan.
    """
    positions = RowPositions(*(np.empty(walked.block.rows, np.int64) for _ in range(4)))
    _locate_rows(walked.event, walked.change, events.table[R_TXN], events.table[R_POS], starts, commit_us, *positions)
    return positions
