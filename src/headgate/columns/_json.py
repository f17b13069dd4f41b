"""JSON as MySQL's normal text.

| type | log | text |
|---|---|---|
| JSON | MySQL's binary JSON; no bytes at all = ``null`` | the text |

Binary JSON (MySQL source ``sql-common/json_binary.h``) is a type byte and a value. Objects and arrays begin with
the number of elements and their size in bytes, then fixed-size entries: an object's keys ``(offset, length)``, then
for each value its type and either the value itself (literals, numbers that fit) or its offset from the container's
first byte.
Containers are small (2-byte counts and offsets) or large (4-byte). Numbers are little-endian. Strings, and opaque
values after their column type, have a length of 7 bits a byte. An opaque value of type VAR_STRING prints as a string
(``sql-common/json_dom.cc``, ``wrapper_to_string``): MySQL 9.7 makes one of a ``utf16``, ``utf16le``, ``utf32`` or
``ucs2`` text, of its stored bytes. If these are not UTF-8, neither is what MySQL prints: it is printed as other opaque
values are.

The kernel walks each document twice, with an explicit stack. The first walk checks it, computes the most bytes that its
text needs, and collects its doubles. The second one writes. In between, one call of Arrow turns all doubles of the
block into shortest decimal digits. Every offset is checked against its container's bounds. Nesting is limited as in
MySQL, and a child lies behind its container's entries, so a malformed document cannot loop. A document with overlapping
parts would give more text or doubles than its bytes allow; both are limited.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.columns._codec import MAX_ARRAY_BYTES, BaseCodec
from headgate.columns._decimals import put_decimal
from headgate.columns._json_scalars import (
    DOUBLE_ROOM,
    INTEGER_ROOM,
    TEMPORAL_ROOM,
    base64_room,
    put_double,
    put_opaque,
    put_string,
    put_temporal,
    string_room,
)
from headgate.errors import CutValueError
from headgate.kernels import VALUE, Cells, is_utf8, put_unsigned, u8, u16, u32, u64

__all__ = ["JsonCodec"]

_MAX_DEPTH = 100
"""``JSON_DOCUMENT_MAX_DEPTH`` of MySQL, which cannot store deeper documents."""

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64 = 4, 5, 6, 7, 8, 9, 10
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15

_T_TIMESTAMP, _T_DATE, _T_TIME, _T_DATETIME, _T_NEWDECIMAL, _T_VAR_STRING = 7, 10, 11, 12, 246, 253

_EXPONENT = np.uint64(0x7FF << 52)
"""If all of these bits are set, the double is an infinity or NaN, which JSON does not have."""

# Columns of the stack: the container's first byte, its end, elements, elements done, type.
_BASE, _END, _COUNT, _DONE, _KIND = 0, 1, 2, 3, 4


@njit(cache=True, nogil=True)
def _word(buf: Any, at: int, wide: Any) -> Any:
    """Return an entry's number: 4 bytes in large containers, 2 in small ones."""
    return u32(buf, at) if wide else u16(buf, at)


@njit(cache=True, nogil=True)
def _open(buf: Any, kind: int, place: int, end: int, frame: Any) -> bool:
    """Check a container's header and fill its stack frame."""
    wide = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    width = 4 if wide else 2
    if end - place < 2 * width:
        return False
    count = _word(buf, place, wide)
    size = _word(buf, place + width, wide)
    entry = 1 + width + (width + 2 if kind <= _LARGE_OBJECT else 0)
    if size > end - place or 2 * width + count * entry > size:
        return False
    frame[_BASE] = place
    frame[_END] = place + size
    frame[_COUNT] = count
    frame[_DONE] = 0
    frame[_KIND] = kind
    return True


@njit(cache=True, nogil=True)
def _key(buf: Any, frame: Any) -> tuple[int, int]:
    """Return ``(start, end)`` of the current element's key; start -1 if it is out of bounds."""
    wide = frame[_KIND] == _LARGE_OBJECT
    width = 4 if wide else 2
    entry = frame[_BASE] + 2 * width + frame[_DONE] * (width + 2)
    start = frame[_BASE] + _word(buf, entry, wide)
    end = start + u16(buf, entry + width)
    return (start, end) if end <= frame[_END] else (-1, 0)


@njit(cache=True, nogil=True)
def _element(buf: Any, frame: Any) -> tuple[int, int]:
    """Return ``(type, place)`` of the current element's value; place -1 if it is out of bounds."""
    kind = frame[_KIND]
    wide = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    width = 4 if wide else 2
    keys = frame[_COUNT] * (width + 2) if kind <= _LARGE_OBJECT else 0
    first = frame[_BASE] + 2 * width + keys
    entry = first + frame[_DONE] * (1 + width)
    value_kind = u8(buf, entry)
    if _LITERAL <= value_kind <= _UINT16 or (wide and value_kind in (_INT32, _UINT32)):
        return value_kind, entry + 1
    place = frame[_BASE] + _word(buf, entry + 1, wide)
    if place < first + frame[_COUNT] * (1 + width) or place >= frame[_END]:
        return value_kind, -1
    return value_kind, place


@njit(cache=True, nogil=True)
def _varlen(buf: Any, place: int, end: int) -> tuple[int, int]:
    """Return ``(start, end)`` of bytes after their variable-length length; start -1 if they are out of bounds."""
    length = 0
    for k in range(5):
        if place + k >= end:
            break
        byte = u8(buf, place + k)
        length |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            start = place + k + 1
            return (start, start + length) if length <= end - start else (-1, 0)
    return -1, 0


@njit(cache=True, nogil=True)
def _scalar_size(kind: int) -> int:
    """Return the bytes of a fixed-size scalar, 0 for others."""
    if kind == _LITERAL:
        return 1
    if kind in (_INT16, _UINT16):
        return 2
    if kind in (_INT32, _UINT32):
        return 4
    return 8 if kind in (_INT64, _UINT64, _DOUBLE) else 0


@njit(cache=True, nogil=True)
def _put_integer(buf: Any, kind: int, place: int, out: Any, at: int) -> int:
    if kind in (_INT16, _INT32, _INT64):
        if kind == _INT16:
            value = (u16(buf, place) ^ 0x8000) - 0x8000
        elif kind == _INT32:
            value = (u32(buf, place) ^ 0x80000000) - 0x80000000
        else:
            value = np.int64(u64(buf, place))
        if value >= 0:
            return put_unsigned(out, at, np.uint64(value), 1)
        out[at] = 45
        return put_unsigned(out, at + 1, np.uint64(0) - np.uint64(value), 1)
    if kind == _UINT16:
        return put_unsigned(out, at, np.uint64(u16(buf, place)), 1)
    if kind == _UINT32:
        return put_unsigned(out, at, np.uint64(u32(buf, place)), 1)
    return put_unsigned(out, at, u64(buf, place), 1)


@njit(cache=True, nogil=True)
def _put_literal(literal: Any, out: Any, at: int) -> int:
    """Write ``null``, ``true`` or ``false`` (0, 1, 2)."""
    if literal == 0:
        letters = (110, 117, 108, 108, 0)
    elif literal == 1:
        letters = (116, 114, 117, 101, 0)
    else:
        letters = (102, 97, 108, 115, 101)
    for letter in letters:
        if letter:
            out[at] = letter
            at += 1
    return at


@njit(cache=True, nogil=True)
def _decimal_bytes(digits: int) -> int:
    return digits // 9 * 4 + (digits % 9 + 1) // 2


@njit(cache=True, nogil=True)
def _opaque_room(buf: Any, column_type: int, start: int, end: int) -> int:
    """Return the most bytes that an opaque value's text takes, -1 if it is malformed."""
    count = end - start
    if column_type == _T_NEWDECIMAL:
        if count < 2:
            return -1
        precision, scale = u8(buf, start), u8(buf, start + 1)
        if precision < 1 or precision > 81 or scale > precision:
            return -1
        wanted = 2 + _decimal_bytes(precision - scale) + _decimal_bytes(scale)
        return precision + 3 if count == wanted else -1
    if column_type in (_T_DATE, _T_TIME, _T_DATETIME, _T_TIMESTAMP):
        return TEMPORAL_ROOM if count == 8 else -1
    return base64_room(count)


@njit(cache=True, nogil=True)
def _put_opaque(buf: Any, column_type: int, start: int, end: int, out: Any, at: int) -> int:
    """Write an opaque value that :func:`_opaque_room` accepted; -1 if a decimal in it is malformed."""
    if column_type == _T_NEWDECIMAL:
        return put_decimal(buf, start + 2, u8(buf, start), u8(buf, start + 1), out, at)
    if column_type in (_T_DATE, _T_TIME, _T_DATETIME, _T_TIMESTAMP):
        return put_temporal(np.int64(u64(buf, start)), column_type, out, at)
    return put_opaque(buf, start, end, column_type, out, at)


@njit(cache=True, nogil=True)
def _scalar(
    buf: Any, kind: int, place: int, end: int, writing: Any, out: Any, at: int, numbers: Any, texts: Any,
    text_offsets: Any, cursor: int, scratch: Any,
) -> tuple[int, int]:  # fmt: skip
    """Measure or write one scalar: ``(at, cursor)``, at -1 if it is malformed."""
    size = _scalar_size(kind)
    if size > 0:
        if end - place < size:
            return -1, cursor
        if kind == _LITERAL:
            literal = u8(buf, place)
            if literal > 2:
                return -1, cursor
            return (_put_literal(literal, out, at) if writing else at + 5), cursor
        if kind == _DOUBLE:
            if writing:
                at = put_double(texts, text_offsets[cursor], text_offsets[cursor + 1], scratch, out, at)
                return at, cursor + 1
            number = u64(buf, place)
            if cursor == len(numbers) or number & _EXPONENT == _EXPONENT:
                return -1, cursor
            numbers[cursor] = number
            return at + DOUBLE_ROOM, cursor + 1
        return (_put_integer(buf, kind, place, out, at) if writing else at + INTEGER_ROOM), cursor
    column_type = 0
    if kind == _OPAQUE and place < end:
        column_type = u8(buf, place)
        place += 1
    elif kind != _STRING:
        return -1, cursor
    start, stop = _varlen(buf, place, end)
    if start < 0:
        return -1, cursor
    if kind == _STRING or (column_type == _T_VAR_STRING and is_utf8(buf, start, stop)):
        return (put_string(buf, start, stop, out, at) if writing else at + string_room(buf, start, stop)), cursor
    if writing:
        return _put_opaque(buf, column_type, start, stop, out, at), cursor
    room = _opaque_room(buf, column_type, start, stop)
    return (at + room if room >= 0 else -1), cursor


@njit(cache=True, nogil=True)
def _document(
    buf: Any, start: int, end: int, writing: Any, out: Any, at: int, numbers: Any, texts: Any, text_offsets: Any,
    cursor: int, stack: Any, scratch: Any,
) -> tuple[int, int]:  # fmt: skip
    """Measure or write one document: ``(at, cursor)``, at -1 if it is malformed."""
    kind = u8(buf, start)
    place = start + 1
    depth = 0
    while True:
        if kind <= _LARGE_ARRAY:
            if depth == _MAX_DEPTH or not _open(buf, kind, place, end, stack[depth]):
                return -1, cursor
            if writing:
                out[at] = 123 if kind <= _LARGE_OBJECT else 91
            at += 1
            depth += 1
        else:
            at, cursor = _scalar(buf, kind, place, end, writing, out, at, numbers, texts, text_offsets, cursor, scratch)
            if at < 0:
                return -1, cursor
        while depth > 0 and stack[depth - 1, _DONE] == stack[depth - 1, _COUNT]:
            depth -= 1
            if writing:
                out[at] = 125 if stack[depth, _KIND] <= _LARGE_OBJECT else 93
            at += 1
        if depth == 0:
            return at, cursor
        if at > MAX_ARRAY_BYTES:
            return -1, cursor
        frame = stack[depth - 1]
        if frame[_DONE] > 0:
            if writing:
                out[at] = 44
                out[at + 1] = 32
            at += 2
        if frame[_KIND] <= _LARGE_OBJECT:
            key, key_end = _key(buf, frame)
            if key < 0:
                return -1, cursor
            if writing:
                at = put_string(buf, key, key_end, out, at)
                out[at] = 58
                out[at + 1] = 32
            else:
                at += string_room(buf, key, key_end)
            at += 2
        kind, place = _element(buf, frame)
        if place < 0:
            return -1, cursor
        end = frame[_END]
        frame[_DONE] += 1


@njit(cache=True, nogil=True)
def _documents(
    buf: Any,
    offset: Any,
    length: Any,
    valid: Any,
    writing: Any,
    offsets: Any,
    out: Any,
    numbers: Any,
    texts: Any,
    text_offsets: Any,
) -> tuple[int, int, int]:
    """Measure or write every row: ``(bytes, doubles, first malformed row or -1)``; row ends go to ``offsets``."""
    stack = np.empty((_MAX_DEPTH, 5), np.int64)
    scratch = np.empty(32, np.uint8)
    at: Any = np.int64(0)
    cursor: Any = np.int64(0)
    if writing:
        offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            if length[i] == 0:
                at = _put_literal(np.int64(0), out, at) if writing else at + 4
            else:
                start = offset[i]
                at, cursor = _document(
                    buf,
                    start,
                    start + length[i],
                    writing,
                    out,
                    at,
                    numbers,
                    texts,
                    text_offsets,
                    cursor,
                    stack,
                    scratch,
                )
                if at < 0 or at > MAX_ARRAY_BYTES:
                    return at, cursor, i
        if writing:
            offsets[i + 1] = at
    return at, cursor, -1


_NO_BYTES = np.zeros(1, np.uint8)
_NO_OFFSETS = np.zeros(1, np.int32)
_NO_NUMBERS = np.zeros(1, np.uint64)


class JsonCodec(BaseCodec):
    """JSON as string."""

    arrow_type = pa.string()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        where = (cells.buf, cells.offset, cells.length, cells.valid)
        # A double takes 8 bytes and an entry of at least 3.
        numbers = np.empty(int(cells.length.sum(dtype=np.int64)) // 9 + 1, np.uint64)
        room, doubles, bad = _documents(*where, False, _NO_OFFSETS, _NO_BYTES, numbers, _NO_BYTES, _NO_OFFSETS)
        if bad >= 0:
            raise self.undecodable(cells, bad, "a JSON document in MySQL's binary form (or too large as text)")
        texts, text_offsets = _shortest(numbers[:doubles].view(np.float64))
        offsets = np.empty(len(cells.valid) + 1, np.int32)
        out = np.empty(room, np.uint8)
        _, _, bad = _documents(*where, True, offsets, out, _NO_NUMBERS, texts, text_offsets)
        if bad >= 0:
            raise self.undecodable(cells, bad, "a JSON document in MySQL's binary form")
        return self.strings(cells, offsets, out)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`.

        :raises CutValueError: a text has no bytes. MySQL returns that, and a warning, if it exceeds max_allowed_packet.
        """
        cut = np.flatnonzero((cells.length == 0) & (cells.valid == VALUE))
        if len(cut):
            raise CutValueError(
                "MySQL returned '' for a JSON document whose text exceeds max_allowed_packet",
                table=self.table,
                column=self.column.name,
                row=int(cut[0]),
                setting="max_allowed_packet",
            )
        return self.strings(cells, *self.gathered(cells))


def _shortest(numbers: Any) -> tuple[Any, Any]:
    """Return ``(bytes, int32 offsets)`` of the shortest decimal digits of each float64, in Arrow's form."""
    if len(numbers) == 0:
        return _NO_BYTES, _NO_OFFSETS
    texts = pc.cast(pa.array(numbers), pa.string())
    _, offsets, data = texts.buffers()
    # Copies, so that the kernel sees writable arrays in every call and is compiled once.
    return np.frombuffer(data, np.uint8).copy(), np.frombuffer(offsets, np.int32).copy()
