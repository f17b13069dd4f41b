"""From events to transactions: which row events belong to which transaction, and which transactions are whole.

A :class:`Scanner` walks the events of a segment in a compiled kernel. The common events (GTID, BEGIN, TABLE_MAP of a
known table, rows, XID) never reach Python; the kernel stops only for what it cannot decide: a table map it has not seen
before, a statement, a tagged GTID, an event that has to be refused. The scanner then yields a :class:`Stop`, the
caller settles it (``register_table``, ``begin_tagged``, ``end_transaction``) and goes on.

Which transactions are wanted is given as a GTID set: either "these" or "all but these". Everything of the others is
passed over, table maps included (each statement brings its own).

Guarantees. A transaction is reported done once, when its last event (XID, COMMIT, or the DDL statement that it is) was
seen. Row events are reported in log order. A second GTID while a wanted transaction is open, rows outside a
transaction, or rows of an unmapped table are errors: nothing is skipped silently.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from headgate._memory import u64
from headgate.binlog import codes as c
from headgate.binlog._frame import EVENTS_PER_SEGMENT, Segment
from headgate.binlog._table_index import TABLE_HEADER, TableIndex, Tables, find_table, is_known, uint_le
from headgate.errors import DecodeError

__all__ = ["GtidFilter", "RowEvents", "Scanner", "Stop", "Transactions", "other_statements"]

_HEADER: Final = c.HEADER_SIZE

# Why the kernel stopped
_DONE, _PYTHON, _BAD, _OPEN, _UNMAPPED, _OUTSIDE = range(6)

# Places in the state vector (int64). WANTED: 0 in a transaction that is passed over, 1 in a wanted one, 2 in none.
_S_TXN, _S_WANTED, _S_BEGUN, _S_TXNS, _S_ROWS, _S_NEXT_POS = range(6)

# Rows of the row-event table (int64)
R_DATA, R_END, R_SLOT, R_KIND, R_TXN, R_POS, R_BITMAP, R_BITMAP2, R_COLUMNS = range(9)

KIND_WRITE: Final = 0
KIND_UPDATE: Final = 1
KIND_DELETE: Final = 2
KIND_PARTIAL_UPDATE: Final = 3
"""An update whose after-images may hold JSON differences (PARTIAL_UPDATE_ROWS)."""

_GTID, _QUERY, _XID, _TABLE_MAP = c.GTID, c.QUERY, c.XID, c.TABLE_MAP
_W1, _U1, _D1, _W2, _U2, _D2 = (
    c.WRITE_ROWS_V1, c.UPDATE_ROWS_V1, c.DELETE_ROWS_V1, c.WRITE_ROWS, c.UPDATE_ROWS, c.DELETE_ROWS,
)  # fmt: skip
_LOAD, _PREPARE, _PARTIAL = c.EXECUTE_LOAD_QUERY, c.XA_PREPARE, c.PARTIAL_UPDATE_ROWS

_PASSED = np.zeros(256, np.bool_)
"""By event type: nothing is done with it. The pieces of a file that a LOAD DATA brings are among these:
EXECUTE_LOAD_QUERY says what is done with the file."""
_PASSED[[
    c.ROWS_QUERY, c.IGNORABLE, c.TRANSACTION_CONTEXT, c.VIEW_CHANGE, c.INTVAR, c.RAND, c.USER_VAR, c.STOP,
    c.PREVIOUS_GTIDS, c.BEGIN_LOAD_QUERY, c.APPEND_BLOCK, c.DELETE_FILE,
]] = True  # fmt: skip

_BEGIN_TEXT = np.frombuffer(b"BEGIN", np.uint8)
_COMMIT_TEXT = np.frombuffer(b"COMMIT", np.uint8)


class GtidFilter(NamedTuple):
    """A GTID set for the kernel: untagged intervals, sorted by (hi, lo, first)."""

    hi: Any
    """uint64[n]: the UUID's first eight bytes, read as a little-endian number."""
    lo: Any
    """uint64[n]: its last eight."""
    first: Any
    """int64[n]"""
    last: Any
    """int64[n], inclusive."""
    inside: bool
    """True: transactions in the set are wanted; False: those outside it."""

    @classmethod
    def build(cls, sid: Any, first: Any, last: Any, *, inside: bool) -> GtidFilter:
        """From ``sid`` uint8[n, 16] and inclusive intervals int64[n]."""
        words = np.ascontiguousarray(sid, np.uint8).reshape(-1, 16).view("<u8")
        hi, lo = words[:, 0], words[:, 1]
        order = np.lexsort((first, lo, hi))
        return cls(
            np.ascontiguousarray(hi[order]), np.ascontiguousarray(lo[order]),
            np.ascontiguousarray(np.asarray(first, np.int64)[order]),
            np.ascontiguousarray(np.asarray(last, np.int64)[order]), inside,
        )  # fmt: skip


class _Events(NamedTuple):
    """The events of a segment, for the kernel: its fields without the file's name."""

    buf: Any
    start: Any
    end: Any
    pos: Any
    next_pos: Any


class Transactions(NamedTuple):
    """The transactions met in one scan, in log order; arrays of length n."""

    hi: Any
    """uint64: the UUID's first eight bytes, little-endian."""
    lo: Any
    number: Any
    """int64"""
    commit_us: Any
    """int64: original commit time, microseconds since the Unix epoch."""
    done: Any
    """uint8: its last event was seen."""
    tag: Any
    """int32: index into ``Scanner.tags``; 0 is no tag."""


class RowEvents(NamedTuple):
    """Row events met in one scan, in log order."""

    table: Any
    """int64[9, n]: the R_… rows."""
    events: int


class Stop(NamedTuple):
    """An event that the kernel could not settle."""

    place: int
    """Its place in the segment."""
    kind: int
    """Its event type."""


@njit(cache=True, nogil=True)
def _is_wanted(gtids: GtidFilter, hi: Any, lo: Any, number: int) -> bool:
    """Binary search for the last interval that begins at or before (hi, lo, number)."""
    a, b = 0, gtids.hi.shape[0]
    while a < b:
        m = (a + b) >> 1
        same_sid = gtids.hi[m] == hi and gtids.lo[m] == lo
        after = same_sid and gtids.first[m] > number
        if after or gtids.hi[m] > hi or (gtids.hi[m] == hi and gtids.lo[m] > lo):
            b = m
        else:
            a = m + 1
    k = a - 1
    inside = k >= 0 and gtids.hi[k] == hi and gtids.lo[k] == lo and number <= gtids.last[k]
    return bool(inside == gtids.inside)


@njit(cache=True, nogil=True)
def _commit_time(buf: Any, p: int, end: int) -> Any:
    """Original commit time of a GTID event whose header begins at ``p``; before 8.0.1 the header's seconds."""
    at = p + _HEADER + 42
    if at + 7 > end:
        return uint_le(buf, p, 4) * 1000000
    immediate = uint_le(buf, at, 7)
    if immediate >> 55 & 1:
        if at + 14 > end:
            return uint_le(buf, p, 4) * 1000000
        original = uint_le(buf, at + 7, 7)
        return original if original > 0 else immediate & ((1 << 55) - 1)
    return immediate


@njit(cache=True, nogil=True)
def _query_is(buf: Any, p: int, end: int, word: Any) -> bool:
    """Whether the QUERY event at ``p`` holds exactly the statement ``word``."""
    body = p + _HEADER
    if body + 13 > end:
        return False
    text = body + 13 + (np.int64(buf[body + 11]) | np.int64(buf[body + 12]) << 8) + np.int64(buf[body + 8]) + 1
    if end - text != word.shape[0]:
        return False
    same = True
    for i in range(word.shape[0]):
        same = same and buf[text + i] == word[i]
    return same


@njit(cache=True, nogil=True)
def _row_event(buf: Any, p: int, end: int, kind: int, out: Any, k: int) -> bool:
    """Parse a row event up to its images into column ``k`` of the row-event table. False: it does not fit.

    | bytes | field |
    |---|---|
    | 6 | table id |
    | 2 | flags |
    | 2 + n | in version 2: length of extra data, itself included, and the data |
    | 1 or 3 | number of columns (a length-encoded integer) |
    | (columns + 7) / 8 | bitmap of the columns in the image; in an update, of the before-image |
    | the same | in an update: bitmap of the columns in the after-image |
    | the rest | row images |

    Source: MySQL source ``libs/mysql/binlog/event/rows_event.h``, ``Rows_event``.
    """
    q: Any = p + _HEADER + TABLE_HEADER
    if kind >= _W2:
        if q + 2 > end:
            return False
        extra = np.int64(buf[q]) | np.int64(buf[q + 1]) << 8
        if extra < 2:
            return False
        q += extra
    if q + 1 > end:
        return False
    columns: Any = np.int64(buf[q])
    q += 1
    if columns == 252:
        if q + 2 > end:
            return False
        columns = np.int64(buf[q]) | np.int64(buf[q + 1]) << 8
        q += 2
    elif columns > 252:
        return False
    size = (columns + 7) >> 3
    update = kind == _U1 or kind == _U2 or kind == _PARTIAL
    out[R_BITMAP, k] = q
    q += size
    out[R_BITMAP2, k] = q if update else q - size
    if update:
        q += size
    if q > end:
        return False
    out[R_DATA, k] = q
    out[R_END, k] = end
    out[R_COLUMNS, k] = columns
    if update:
        out[R_KIND, k] = KIND_PARTIAL_UPDATE if kind == _PARTIAL else KIND_UPDATE
    elif kind == _D1 or kind == _D2:
        out[R_KIND, k] = KIND_DELETE
    else:
        out[R_KIND, k] = KIND_WRITE
    return True


@njit(cache=True, nogil=True)
def _begin(events: _Events, i: int, state: Any, gtids: GtidFilter, met: Transactions) -> Any:
    """Take in a GTID event. Returns why the walk has to stop, or ``_DONE``.

    | offset in the body | bytes | field |
    |---|---|---|
    | 0 | 1 | flags |
    | 1 | 16 | the server's UUID |
    | 17 | 8 | the transaction's number |
    | 42 | 7 | immediate commit time; with its bit 55, the original one follows in 7 bytes |

    Source: MySQL source ``libs/mysql/binlog/event/control_events.h``, ``Gtid_event``.
    """
    if state[_S_TXN] >= 0:
        return _OPEN
    buf, p, end = events.buf, events.start[i], events.end[i]
    if end - p < _HEADER + 25:
        return _BAD
    hi = u64(buf, p + _HEADER + 1)
    lo = u64(buf, p + _HEADER + 9)
    number = uint_le(buf, p + _HEADER + 17, 8)
    state[_S_BEGUN] = 0
    if not _is_wanted(gtids, hi, lo, number):
        state[_S_WANTED] = 0
        return _DONE
    t = state[_S_TXNS]
    met.hi[t] = hi
    met.lo[t] = lo
    met.number[t] = number
    met.commit_us[t] = _commit_time(buf, p, end)
    met.done[t] = 0
    met.tag[t] = 0
    state[_S_WANTED] = 1
    state[_S_TXN] = t
    state[_S_TXNS] = t + 1
    return _DONE


@njit(cache=True, nogil=True)
def _end(events: _Events, i: int, state: Any, met: Transactions) -> None:
    """Take in an event that ends a transaction."""
    if state[_S_TXN] >= 0:
        met.done[state[_S_TXN]] = 1
        state[_S_TXN] = -1
        state[_S_NEXT_POS] = events.next_pos[i]
    state[_S_WANTED] = 2


@njit(cache=True, nogil=True)
def _rows(events: _Events, i: int, state: Any, tables: Tables, rows: Any) -> Any:
    """Note a row event of a wanted transaction. Returns why the walk has to stop, or ``_DONE``."""
    if state[_S_TXN] < 0:
        return _OUTSIDE
    buf, p, end = events.buf, events.start[i], events.end[i]
    if end - p < _HEADER + TABLE_HEADER:
        return _BAD
    at = find_table(tables, uint_le(buf, p + _HEADER, 6))
    if at < 0:
        return _UNMAPPED
    k = state[_S_ROWS]
    if not _row_event(buf, p, end, buf[p + 4], rows, k):
        return _BAD
    rows[R_SLOT, k] = tables.slot[at]
    rows[R_TXN, k] = state[_S_TXN]
    rows[R_POS, k] = events.pos[i]
    state[_S_ROWS] = k + 1
    return _DONE


@njit(cache=True, nogil=True)
def _query(events: _Events, i: int, state: Any, met: Transactions) -> Any:
    """Take in a QUERY event of a wanted transaction; ``_PYTHON``: it is neither BEGIN nor COMMIT."""
    buf, p, end = events.buf, events.start[i], events.end[i]
    if _query_is(buf, p, end, _BEGIN_TEXT):
        state[_S_BEGUN] = 1
    elif _query_is(buf, p, end, _COMMIT_TEXT):
        _end(events, i, state, met)
    else:
        return _PYTHON
    return _DONE


@njit(cache=True, nogil=True)
def _scan(events: _Events, i: int, state: Any, gtids: GtidFilter, tables: Tables, met: Transactions, rows: Any) -> Any:
    """Walk the events from ``i`` on. Returns (index of the event it stopped at, why)."""
    while i < events.start.shape[0]:
        kind = events.buf[events.start[i] + 4]
        wanted = state[_S_WANTED]
        why = _DONE
        if kind == _GTID:
            why = _begin(events, i, state, gtids, met)
        elif kind == _TABLE_MAP:
            if wanted == 1:
                p, end = events.start[i] + _HEADER, events.end[i]
                if end - p < TABLE_HEADER:
                    why = _BAD
                elif not is_known(tables, events.buf, p, end):
                    why = _PYTHON
        elif (kind >= _W2 and kind <= _D2) or (kind >= _W1 and kind <= _D1) or kind == _PARTIAL:
            if wanted == 1:
                why = _rows(events, i, state, tables, rows)
            elif wanted == 2:
                why = _OUTSIDE
        elif kind == _XID:
            _end(events, i, state, met)
        elif kind == _QUERY or kind == _LOAD:
            if wanted == 1:
                why = _query(events, i, state, met) if kind == _QUERY else _PYTHON
        elif not (_PASSED[kind] or (wanted == 0 and kind == _PREPARE)):
            why = _PYTHON
        if why != _DONE:
            return i, why
        i += 1
    return i, _DONE


@njit(cache=True, nogil=True)
def _other_statements(buf: Any, start: Any, ends: Any, out: Any) -> Any:
    count = 0
    for i in range(start.shape[0]):
        p, end = start[i], ends[i]
        if (
            buf[p + 4] == _QUERY
            and not _query_is(buf, p, end, _BEGIN_TEXT)
            and not _query_is(buf, p, end, _COMMIT_TEXT)
        ):
            out[count] = i
            count += 1
    return count


def other_statements(segment: Segment) -> list[int]:
    """The places of all QUERY events in a segment but BEGIN and COMMIT, of whatever transactions."""
    out = np.empty(len(segment.start), np.int64)
    count = _other_statements(segment.buf, segment.start, segment.end, out)
    return list(out[:count].tolist())


class Scanner:
    """The transactions of one dump. Make a new one for each dump: table ids belong to a server's run."""

    def __init__(self, wanted: GtidFilter) -> None:
        self.tags = [""]
        """Tags met so far; ``Transactions.tag`` indexes it."""
        self._filter = wanted
        self._tables = TableIndex()
        self._state = np.zeros(6, np.int64)
        self._state[_S_TXN] = -1
        self._state[_S_WANTED] = 2
        self._capacity = 0
        self._allocate(EVENTS_PER_SEGMENT)

    def _allocate(self, events: int) -> None:
        if events + 2 <= self._capacity:
            return
        old = self.transactions() if self._capacity else None
        size = self._capacity = events + 2
        self._txn = Transactions(
            np.zeros(size, np.uint64), np.zeros(size, np.uint64), np.zeros(size, np.int64), np.zeros(size, np.int64),
            np.zeros(size, np.uint8), np.zeros(size, np.int32),
        )  # fmt: skip
        if old is not None:
            for new_array, old_array in zip(self._txn, old, strict=True):
                new_array[: len(old_array)] = old_array
        self._rows = np.zeros((9, size), np.int64)

    @property
    def open(self) -> bool:
        """Whether a wanted transaction has begun and not ended."""
        return bool(self._state[_S_TXN] >= 0)

    @property
    def begun(self) -> bool:
        """Whether the open transaction began with BEGIN (so that a statement in it does not end it)."""
        return bool(self._state[_S_BEGUN])

    @property
    def next_pos(self) -> int:
        """The position behind the last wanted transaction that is done, in the file of its segment."""
        return int(self._state[_S_NEXT_POS])

    @property
    def current(self) -> int:
        """Index of the open transaction in :meth:`transactions`, -1 if none is open."""
        return int(self._state[_S_TXN])

    def scan(self, segment: Segment, first: int = 0) -> Stop | None:
        """Go through the segment from event ``first``; ``None`` when it is done.

        :raises DecodeError: for events that do not fit together.
        """
        self._allocate(len(segment.start))
        events = _Events(segment.buf, segment.start, segment.end, segment.pos, segment.next_pos)
        tables = self._tables.for_kernel()
        i, why = _scan(events, first, self._state, self._filter, tables, self._txn, self._rows)
        if why == _DONE:
            return None
        kind = int(segment.buf[segment.start[i] + c.TYPE_OFFSET])
        if why == _PYTHON:
            return Stop(int(i), kind)
        reason = {
            _BAD: "is cut short or malformed",
            _OPEN: "begins a transaction while another one is open",
            _UNMAPPED: "names a table id that no table map announced",
            _OUTSIDE: "stands outside any transaction",
        }[why]
        name = c.EVENT_NAMES.get(kind, str(kind))
        raise DecodeError(f"a {name} event {reason}", file=segment.file, pos=int(segment.pos[i]))

    def transactions(self) -> Transactions:
        """The transactions met since :meth:`clear`, as views."""
        count = int(self._state[_S_TXNS])
        return Transactions(*(array[:count] for array in self._txn))

    def row_events(self) -> RowEvents:
        """The row events met since :meth:`clear`, as views."""
        count = int(self._state[_S_ROWS])
        return RowEvents(self._rows[:, :count], count)

    def clear(self) -> None:
        """Forget what was reported; an open transaction becomes number 0."""
        current = self.current
        if current >= 0:
            for array in self._txn:
                array[0] = array[current]
            self._state[_S_TXN] = 0
        self._state[_S_TXNS] = 1 if current >= 0 else 0
        self._state[_S_ROWS] = 0

    def register_table(self, table_id: int, body: bytes, slot: int) -> None:
        """Settle an unknown table map. ``body``: the event's body behind table id and flags."""
        self._tables.put(table_id, body, slot)

    def forget_tables(self) -> None:
        """Stop at every table's next map again, known or not."""
        self._tables.forget()

    def mark_begun(self) -> None:
        """The open transaction began with a statement like BEGIN (XA START)."""
        self._state[_S_BEGUN] = 1

    def begin_tagged(self, sid: bytes, tag: str, number: int, commit_us: int, *, wanted: bool) -> None:
        """Settle a GTID_TAGGED event.

        :raises DecodeError: a wanted transaction is still open.
        """
        if self.open:
            raise DecodeError("a GTID_TAGGED event begins a transaction while another one is open")
        self._state[_S_WANTED] = int(wanted)
        self._state[_S_BEGUN] = 0
        if not wanted:
            return
        if tag not in self.tags:
            self.tags.append(tag)
        t = int(self._state[_S_TXNS])
        words = np.frombuffer(sid, "<u8")
        values = (words[0], words[1], number, commit_us, 0, self.tags.index(tag))
        for array, value in zip(self._txn, values, strict=True):
            array[t] = value
        self._state[_S_TXN] = t
        self._state[_S_TXNS] = t + 1

    def end_transaction(self, next_pos: int) -> None:
        """Settle an event that ends the open transaction (a DDL statement)."""
        if self.open:
            self._txn.done[self.current] = 1
            self._state[_S_TXN] = -1
            self._state[_S_NEXT_POS] = next_pos
        self._state[_S_WANTED] = 2
