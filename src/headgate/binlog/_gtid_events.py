"""Events that begin transactions: GTID, GTID_TAGGED and ANONYMOUS_GTID.

The scan has its own loop over the common ones, and shares their commit time. Every other reader of these events uses
:func:`gtid_events`, or :func:`gtid_indexes` and :func:`gtid_event` for some of them.

Layouts: MySQL source ``libs/mysql/binlog/event/control_events.h`` (``Gtid_event``, ``Gtid_event::define_fields``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from headgate.binlog import codes as c
from headgate.binlog._cursor import Cursor
from headgate.binlog._frame import Segment
from headgate.binlog._table_map import decode_text
from headgate.errors import DecodeError
from headgate.gtid import MAX_NUMBER, Gtid
from headgate.kernels import u32, u64

__all__ = ["GtidEvent", "commit_time", "gtid_event", "gtid_events", "gtid_indexes"]

_KINDS: Final = (c.GTID, c.GTID_TAGGED, c.ANONYMOUS_GTID)
_NUMBER: Final = 17
"""Offset of the number in the body of a GTID event, behind flags (1) and UUID (16)."""
_SMALLEST_BODY: Final = _NUMBER + 8
_TIMES: Final = 42
"""Offset of the commit times in the body: :func:`commit_time`."""


class GtidEvent(NamedTuple):
    """Begin of a transaction."""

    gtid: Gtid | None
    """None: it is anonymous."""
    commit_us: int
    """Original commit time, microseconds since the Unix epoch. If it is unknown, the time of this server's commit, and
    before MySQL 8.0.1 the time of the event in whole seconds."""
    pos: int
    """Position in the file."""
    is_original: bool = True
    """Whether ``commit_us`` is the same in the log of each server. If not, the original time is unknown: the
    transaction comes from a server before MySQL 8.0.1."""


def gtid_events(segment: Segment) -> Iterator[GtidEvent]:
    """Yield the begins of transactions in a segment, in log order.

    :raises DecodeError: one is damaged.
    """
    return (gtid_event(segment, index) for index in gtid_indexes(segment).tolist())


def gtid_indexes(segment: Segment) -> Any:
    """Return the indexes of the events that begin transactions, ``int64[n]``."""
    return np.flatnonzero(np.isin(segment.buf[np.asarray(segment.start) + c.TYPE_OFFSET], _KINDS))


def gtid_event(segment: Segment, index: int) -> GtidEvent:
    """Parse one event of :func:`gtid_indexes`.

    :raises DecodeError: it is damaged.
    """
    start, end, pos = int(segment.start[index]), int(segment.end[index]), int(segment.pos[index])
    kind = int(segment.buf[start + c.TYPE_OFFSET])
    body = bytes(segment.buf[start + c.HEADER_SIZE : end].tobytes())
    if kind == c.GTID_TAGGED:
        tagged, commit_us, is_original = _parse_tagged(body)
        return GtidEvent(tagged, commit_us, pos, is_original)
    if len(body) < _SMALLEST_BODY:
        raise DecodeError(f"a GTID event has only {len(body)} bytes")
    number = int.from_bytes(body[_NUMBER:_SMALLEST_BODY], "little")
    gtid = Gtid(body[1:_NUMBER], "", number) if kind == c.GTID else None
    times = body[_TIMES : _TIMES + 14]
    is_original = len(times) < 14 or times[6] < 0x80 or any(times[7:])
    return GtidEvent(gtid, int(commit_time(segment.buf, start, end)), pos, is_original)


@njit(cache=True, nogil=True)
def commit_time(buf: Any, p: int, end: int) -> Any:
    """Return :attr:`GtidEvent.commit_us` of a GTID or ANONYMOUS_GTID event from ``p`` to ``end``.

    Behind the number are a clock type (1), two logical clocks (8 each), and the time of this server's commit (7), whose
    highest bit is set if the original time (7) differs and follows.
    """
    at = p + c.HEADER_SIZE + _TIMES
    if at + 7 > end:
        return u32(buf, p) * 1000000
    immediate = np.int64(u64(buf, at - 1) >> 8)
    if immediate >> 55 & 1:
        if at + 14 > end:
            return u32(buf, p) * 1000000
        original = np.int64(u64(buf, at + 6) >> 8)
        return original if original > 0 else immediate & ((1 << 55) - 1)
    return immediate


def _parse_tagged(body: bytes) -> tuple[Gtid, int, bool]:
    """Return GTID, commit time and ``is_original`` of a GTID_TAGGED (42) event.

    It is a message of the server's serialization library: a format version, the message's size and the last field that
    a reader must know, then fields, each after its number. All numbers are variable-length.
    """
    cursor = Cursor(body)
    cursor.varint()
    cursor.varint()
    cursor.varint()
    sid, tag, number, immediate = b"", "", 0, 0
    original: int | None = None  # the same
    while cursor.left:
        field = cursor.varint()
        if field == 0:
            cursor.varint()
        elif field == 1:
            sid = bytes(cursor.varint() & 0xFF for _ in range(16))
        elif field == 2:
            number = cursor.signed_varint()
        elif field == 3:
            tag = decode_text(cursor.take(cursor.varint()), "the tag of a GTID")
        elif field in (4, 5):
            cursor.signed_varint()
        elif field == 6:
            immediate = cursor.varint()
        elif field == 7:
            original = cursor.varint()
        else:
            break
    return _tagged(sid, tag, number), _fitting_time(original or immediate), original != 0


def _tagged(sid: bytes, tag: str, number: int) -> Gtid:
    if len(sid) != 16 or not 0 < number <= MAX_NUMBER:
        raise DecodeError("a GTID_TAGGED event names no GTID")
    return Gtid(sid, tag, number)


def _fitting_time(commit_us: int) -> int:
    if commit_us >= 1 << 55:
        raise DecodeError(f"a GTID_TAGGED event names the commit time {commit_us} µs, which has more than 55 bits")
    return commit_us
