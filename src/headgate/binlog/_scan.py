"""From events to transactions: which row events belong to which transaction, and which transactions are whole.

A :class:`Scanner` walks the events of a segment in a compiled kernel. The common events (GTID, BEGIN, TABLE_MAP of a
known table, rows, XID) never reach Python. The kernel stops only for what it cannot decide: a new table map, a
statement, a tagged GTID, an event that must be refused. The scanner then returns a :class:`Stop`. The caller settles it
(``register_table``, ``begin``, ``end_transaction``) and continues.

A GTID set defines which transactions are wanted: either "these" or "all but these". All events of the others are
skipped, with their table maps (each statement brings its own).

Guarantees. A transaction is reported done once, when its last event (XID, COMMIT, or the DDL statement that it is) was
seen. Row events are reported in log order. A second GTID while a wanted transaction is open, rows outside a
transaction, or rows of an unmapped table are errors: nothing is skipped silently.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from headgate.binlog import codes as c
from headgate.binlog._frame import EVENTS_PER_SEGMENT, Segment
from headgate.binlog._gtid_events import commit_time
from headgate.errors import DecodeError
from headgate.gtid import Gtid
from headgate.kernels import same_bytes, u8, u16, u64

__all__ = ["GtidFilter", "RowEvents", "Scanner", "Stop", "Transactions", "other_statements"]

# Why the kernel stopped
_DONE, _PYTHON, _BAD, _OPEN, _UNMAPPED, _OUTSIDE = range(6)

# Indexes in the state vector (int64). WANTED: 0 in a transaction that is skipped, 1 in a wanted one, 2 in none.
_S_TXN, _S_WANTED, _S_EXPLICIT_BEGIN, _S_TXNS, _S_ROWS, _S_NEXT_POS = range(6)

# Rows of the row-event table (int64)
R_DATA, R_END, R_SLOT, R_KIND, R_TXN, R_POS, R_BITMAP, R_BITMAP2, R_COLUMNS = range(9)

KIND_WRITE: Final = 0
KIND_UPDATE: Final = 1
KIND_DELETE: Final = 2
KIND_PARTIAL_UPDATE: Final = 3
"""An update whose after-images may hold JSON differences (PARTIAL_UPDATE_ROWS)."""

_BEGIN = np.frombuffer(b"BEGIN", np.uint8)
_COMMIT = np.frombuffer(b"COMMIT", np.uint8)


class GtidFilter(NamedTuple):
    """A GTID set for the kernel: untagged intervals, sorted by (hi, lo, first)."""

    hi: Any
    """uint64[n]: first eight bytes of the UUID, read as a little-endian number."""
    lo: Any
    """uint64[n]: last eight bytes of the UUID."""
    first: Any
    """int64[n]"""
    last: Any
    """int64[n], inclusive."""
    inside: bool
    """True: transactions in the set are wanted; False: those outside it."""

    @classmethod
    def build(cls, sid: Any, first: Any, last: Any, *, inside: bool) -> GtidFilter:
        """Build a filter from ``sid`` uint8[n, 16] and inclusive intervals int64[n]."""
        words = np.ascontiguousarray(sid, np.uint8).reshape(-1, 16).view("<u8")
        hi, lo = words[:, 0], words[:, 1]
        order = np.lexsort((first, lo, hi))
        return cls(
            np.ascontiguousarray(hi[order]),
            np.ascontiguousarray(lo[order]),
            np.ascontiguousarray(np.asarray(first, np.int64)[order]),
            np.ascontiguousarray(np.asarray(last, np.int64)[order]),
            inside,
        )


class Transactions(NamedTuple):
    """Transactions met in one scan, in log order; arrays of length n."""

    hi: Any
    """uint64: first eight bytes of the UUID, little-endian."""
    lo: Any
    number: Any
    """int64"""
    commit_us: Any
    """int64: original commit time, microseconds since the Unix epoch."""
    done: Any
    """uint8: 1 if its last event was seen."""
    tag: Any
    """int32: index into ``Scanner.tags``; 0 is no tag."""


class RowEvents(NamedTuple):
    """Row events met in one scan, in log order."""

    table: Any
    """int64[9, n]: the R_… rows."""
    events: int


class Stop(NamedTuple):
    """An event that the kernel could not settle."""

    event_index: int
    """Index in the segment."""
    kind: int
    """Event type."""


@njit(cache=True, nogil=True)
def _le(buf: Any, p: int, size: int) -> Any:
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(buf[p + i]) << (8 * i)
    return value


@njit(cache=True, nogil=True)
def _in_set(hi: Any, lo: Any, number: int, f_hi: Any, f_lo: Any, f_first: Any, f_last: Any) -> bool:
    """Return whether the set has a GTID, by binary search for the last interval at or before it."""
    a, b = 0, f_hi.shape[0]
    while a < b:
        m = (a + b) >> 1
        after = f_hi[m] > hi or (f_hi[m] == hi and (f_lo[m] > lo or (f_lo[m] == lo and f_first[m] > number)))
        if after:
            b = m
        else:
            a = m + 1
    if a == 0:
        return False
    k = a - 1
    return bool(f_hi[k] == hi and f_lo[k] == lo and number <= f_last[k])


@njit(cache=True, nogil=True)
def _find(table_id: int, h_key: Any, h_value: Any) -> Any:
    """Return a table id's index in the open-addressing hash, -1 if it is missing. The size is a power of two."""
    mask = h_key.shape[0] - 1
    i = (table_id * 0x9E3779B1) & mask
    while h_key[i] >= 0:
        if h_key[i] == table_id:
            return h_value[i]
        i = (i + 1) & mask
    return -1


@njit(cache=True, nogil=True)
def _query_is(buf: Any, p: int, end: int, word: Any) -> bool:
    """Return whether the QUERY event at ``p`` holds exactly the statement ``word``."""
    body = p + c.HEADER_SIZE
    if body + 13 > end:
        return False
    text = body + 13 + u16(buf, body + 11) + u8(buf, body + 8) + 1
    if end - text != len(word):
        return False
    same = True
    for i in range(len(word)):
        same = same and u8(buf, text + i) == u8(word, i)
    return same


@njit(cache=True, nogil=True)
def _row_event(buf: Any, p: int, end: int, kind: int, out: Any, k: int) -> bool:
    """Parse a row event's post-header into column ``k`` of the row-event table. Return False if it does not fit."""
    q: Any = p + c.HEADER_SIZE + 8
    if kind >= c.WRITE_ROWS:
        if q + 2 > end:
            return False
        extra = u16(buf, q)
        if extra < 2:
            return False
        q += extra
    if q + 1 > end:
        return False
    columns: Any = u8(buf, q)
    q += 1
    if columns == 252:
        if q + 2 > end:
            return False
        columns = u16(buf, q)
        q += 2
    elif columns > 252:
        return False
    size = (columns + 7) >> 3
    update = kind == c.UPDATE_ROWS_V1 or kind == c.UPDATE_ROWS or kind == c.PARTIAL_UPDATE_ROWS
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
        out[R_KIND, k] = 3 if kind == c.PARTIAL_UPDATE_ROWS else 1
    elif kind == c.DELETE_ROWS_V1 or kind == c.DELETE_ROWS:
        out[R_KIND, k] = 2
    else:
        out[R_KIND, k] = 0
    return True


@njit(cache=True, nogil=True)
def _scan(
    buf: Any, e_start: Any, e_end: Any, e_pos: Any, e_next: Any, i: int, n: int, state: Any,
    f_hi: Any, f_lo: Any, f_first: Any, f_last: Any, f_inside: bool,
    h_key: Any, h_value: Any, t_slot: Any, t_at: Any, t_size: Any, pool: Any,
    x_hi: Any, x_lo: Any, x_number: Any, x_time: Any, x_done: Any, x_tag: Any, rows: Any, begin: Any, commit: Any,
) -> Any:  # fmt: skip
    """Walk events ``i`` to ``n``. Return (index of the event it stopped at, why)."""
    while i < n:
        p = e_start[i]
        end = e_end[i]
        kind = buf[p + 4]
        if kind == c.GTID:
            if state[_S_TXN] >= 0:
                return i, _OPEN
            if end - p < c.HEADER_SIZE + 25:
                return i, _BAD
            hi = u64(buf, p + c.HEADER_SIZE + 1)
            lo = u64(buf, p + c.HEADER_SIZE + 9)
            number = _le(buf, p + c.HEADER_SIZE + 17, 8)
            wanted = _in_set(hi, lo, number, f_hi, f_lo, f_first, f_last) == f_inside
            state[_S_WANTED] = 1 if wanted else 0
            state[_S_EXPLICIT_BEGIN] = 0
            if wanted:
                t = state[_S_TXNS]
                x_hi[t] = hi
                x_lo[t] = lo
                x_number[t] = number
                x_time[t] = commit_time(buf, p, end)
                x_done[t] = 0
                x_tag[t] = 0
                state[_S_TXN] = t
                state[_S_TXNS] = t + 1
        elif kind == c.TABLE_MAP:
            if state[_S_WANTED] == 1:
                if end - p < c.HEADER_SIZE + 8:
                    return i, _BAD
                at = _find(_le(buf, p + c.HEADER_SIZE, 6), h_key, h_value)
                size = end - p - c.HEADER_SIZE - 8
                if at < 0 or t_size[at] != size or not same_bytes(buf, p + c.HEADER_SIZE + 8, pool, t_at[at], size):
                    return i, _PYTHON
        elif (
            (kind >= c.WRITE_ROWS and kind <= c.DELETE_ROWS)
            or (kind >= c.WRITE_ROWS_V1 and kind <= c.DELETE_ROWS_V1)
            or kind == c.PARTIAL_UPDATE_ROWS
        ):
            if state[_S_WANTED] == 2 or (state[_S_WANTED] == 1 and state[_S_TXN] < 0):
                return i, _OUTSIDE
            if state[_S_WANTED] == 1:
                if end - p < c.HEADER_SIZE + 8:
                    return i, _BAD
                at = _find(_le(buf, p + c.HEADER_SIZE, 6), h_key, h_value)
                if at < 0:
                    return i, _UNMAPPED
                k = state[_S_ROWS]
                if not _row_event(buf, p, end, kind, rows, k):
                    return i, _BAD
                rows[R_SLOT, k] = t_slot[at]
                rows[R_TXN, k] = state[_S_TXN]
                rows[R_POS, k] = e_pos[i]
                state[_S_ROWS] = k + 1
        elif kind == c.XID:
            if state[_S_TXN] >= 0:
                x_done[state[_S_TXN]] = 1
                state[_S_TXN] = -1
                state[_S_NEXT_POS] = e_next[i]
            state[_S_WANTED] = 2
        elif kind == c.QUERY or kind == c.EXECUTE_LOAD_QUERY:
            if state[_S_WANTED] == 1:
                if kind == c.EXECUTE_LOAD_QUERY:
                    return i, _PYTHON
                if _query_is(buf, p, end, begin):
                    state[_S_EXPLICIT_BEGIN] = 1
                elif _query_is(buf, p, end, commit):
                    if state[_S_TXN] >= 0:
                        x_done[state[_S_TXN]] = 1
                        state[_S_TXN] = -1
                        state[_S_NEXT_POS] = e_next[i]
                    state[_S_WANTED] = 2
                else:
                    return i, _PYTHON
        elif not (
            kind == c.ROWS_QUERY
            or kind == c.IGNORABLE
            or kind == c.TRANSACTION_CONTEXT
            or kind == c.VIEW_CHANGE
            or kind == c.INTVAR
            or kind == c.RAND
            or kind == c.USER_VAR
            or kind == c.STOP
            or kind == c.PREVIOUS_GTIDS
            or kind == c.BEGIN_LOAD_QUERY  # this and the next two: the pieces of a file that a LOAD DATA brings
            or kind == c.APPEND_BLOCK
            or kind == c.DELETE_FILE
            or (state[_S_WANTED] == 0 and kind == c.XA_PREPARE)
        ):
            return i, _PYTHON
        i += 1
    return i, _DONE


@njit(cache=True, nogil=True)
def _other_statements(buf: Any, e_start: Any, e_end: Any, begin: Any, commit: Any, out: Any) -> Any:
    count = 0
    for i in range(e_start.shape[0]):
        p, end = e_start[i], e_end[i]
        if buf[p + 4] == c.QUERY and not _query_is(buf, p, end, begin) and not _query_is(buf, p, end, commit):
            out[count] = i
            count += 1
    return count


def other_statements(segment: Segment) -> list[int]:
    """Return the indexes of all QUERY events in a segment except BEGIN and COMMIT, of all transactions."""
    out = np.empty(len(segment.start), np.int64)
    count = _other_statements(segment.buf, segment.start, segment.end, _BEGIN, _COMMIT, out)
    return list(out[:count].tolist())


class _TableIndex:
    """Table maps met so far: table id → slot, with the map's bytes, so that a repeated one costs a comparison."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset: every table must be put again."""
        self.key = np.full(256, -1, np.int64)
        self.value = np.zeros(256, np.int64)
        self.slot = np.zeros(64, np.int64)
        self.at = np.zeros(64, np.int64)
        self.size = np.zeros(64, np.int64)
        self.pool = np.zeros(1 << 16, np.uint8)
        self._count = 0
        self._used = 0

    def put(self, table_id: int, body: bytes, slot: int) -> None:
        """Map ``table_id`` to ``slot``; ``body`` is the event's body behind id and flags."""
        while self._used + len(body) + 8 > len(self.pool):
            self.pool = np.concatenate([self.pool, np.zeros_like(self.pool)])
        if self._count == len(self.slot):
            self.slot, self.at, self.size = (np.concatenate([a, a]) for a in (self.slot, self.at, self.size))
        if 2 * self._count >= len(self.key):
            self._rehash()
        entry = self._count
        self.pool[self._used : self._used + len(body)] = np.frombuffer(body, np.uint8)
        self.slot[entry], self.at[entry], self.size[entry] = slot, self._used, len(body)
        self._insert(table_id, entry)
        self._used += len(body)
        self._count += 1

    def _insert(self, table_id: int, entry: int) -> None:
        mask = len(self.key) - 1
        i = table_id * 0x9E3779B1 & mask
        while self.key[i] >= 0 and self.key[i] != table_id:
            i = i + 1 & mask
        self.key[i], self.value[i] = table_id, entry

    def _rehash(self) -> None:
        old = [(int(k), int(v)) for k, v in zip(self.key, self.value, strict=True) if k >= 0]
        self.key = np.full(2 * len(self.key), -1, np.int64)
        self.value = np.zeros(len(self.key), np.int64)
        for table_id, entry in old:
            self._insert(table_id, entry)


class Scanner:
    """Finder of one dump's transactions. Make a new one for each dump: table ids belong to a server's run."""

    def __init__(self, wanted: GtidFilter) -> None:
        self.tags = [""]
        """Tags met so far; ``Transactions.tag`` indexes it."""
        self._filter = wanted
        self._tables = _TableIndex()
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
            np.zeros(size, np.uint64),
            np.zeros(size, np.uint64),
            np.zeros(size, np.int64),
            np.zeros(size, np.int64),
            np.zeros(size, np.uint8),
            np.zeros(size, np.int32),
        )
        if old is not None:
            for new_array, old_array in zip(self._txn, old, strict=True):
                new_array[: len(old_array)] = old_array
        self._rows = np.zeros((9, size), np.int64)

    @property
    def open(self) -> bool:
        """Whether a wanted transaction has begun and not ended."""
        return bool(self._state[_S_TXN] >= 0)

    @property
    def has_explicit_begin(self) -> bool:
        """Whether the open transaction began with BEGIN (so that a statement in it does not end it)."""
        return bool(self._state[_S_EXPLICIT_BEGIN])

    @property
    def next_pos(self) -> int:
        """Position behind the last wanted transaction that is done, in the file of its segment."""
        return int(self._state[_S_NEXT_POS])

    @property
    def current(self) -> int:
        """Index of the open transaction in :meth:`transactions`, -1 if none is open."""
        return int(self._state[_S_TXN])

    def scan(self, segment: Segment, first: int = 0) -> Stop | None:
        """Scan the segment from event ``first``. Return None when it is done.

        :raises DecodeError: for events that do not fit together.
        """
        n = len(segment.start)
        self._allocate(n)
        f, t, x = self._filter, self._tables, self._txn
        i, status = _scan(
            segment.buf, segment.start, segment.end, segment.pos, segment.next_pos, first, n, self._state,
            f.hi, f.lo, f.first, f.last, f.inside, t.key, t.value, t.slot, t.at, t.size, t.pool,
            x.hi, x.lo, x.number, x.commit_us, x.done, x.tag, self._rows, _BEGIN, _COMMIT,
        )  # fmt: skip
        if status == _DONE:
            return None
        kind = int(segment.buf[segment.start[i] + c.TYPE_OFFSET])
        if status == _PYTHON:
            return Stop(int(i), kind)
        reason = {
            _BAD: "is truncated or malformed",
            _OPEN: "begins a transaction while another one is open",
            _UNMAPPED: "names a table id that no table map announced",
            _OUTSIDE: "is outside any transaction",
        }[status]
        name = c.EVENT_NAMES.get(kind, str(kind))
        raise DecodeError(f"a {name} event {reason}", file=segment.file, pos=int(segment.pos[i]))

    def transactions(self) -> Transactions:
        """Return the transactions met since :meth:`clear`, as views."""
        count = int(self._state[_S_TXNS])
        return Transactions(*(array[:count] for array in self._txn))

    def row_events(self) -> RowEvents:
        """Return the row events met since :meth:`clear`, as views."""
        count = int(self._state[_S_ROWS])
        return RowEvents(self._rows[:, :count], count)

    def clear(self) -> None:
        """Discard what was reported. An open transaction becomes number 0."""
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
        """Stop at every table's next map again, even of a known table. Only while no transaction is open: the rows of
        a statement may come after the maps of several tables.
        """
        self._tables.forget()

    def note_explicit_begin(self) -> None:
        """Note that the open transaction began with a statement like BEGIN (XA START)."""
        self._state[_S_EXPLICIT_BEGIN] = 1

    def begin(self, gtid: Gtid, commit_us: int, *, wanted: bool) -> None:
        """Settle an event that begins a transaction: with a tag, or numbered by the caller.

        :raises DecodeError: a wanted transaction is still open.
        """
        if self.open:
            raise DecodeError("a transaction begins while another one is open")
        self._state[_S_WANTED] = int(wanted)
        self._state[_S_EXPLICIT_BEGIN] = 0
        if not wanted:
            return
        if gtid.tag not in self.tags:
            self.tags.append(gtid.tag)
        t = int(self._state[_S_TXNS])
        words = np.frombuffer(gtid.uuid, "<u8")
        values = (words[0], words[1], gtid.number, commit_us, 0, self.tags.index(gtid.tag))
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
