"""Scalars inside a JSON document, as MySQL prints them.

Every function writes to ``out`` at ``at`` and returns the index of the next byte. The caller has reserved the room
(``…_ROOM``). The forms are what MySQL 9.7 prints; the parity tests verify them. Rules with a source: doubles from
``my_gcvt`` (MySQL source ``strings/dtoa.cc``), escapes and opaque values from ``sql-common/json_dom.cc``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from headgate.columns._temporals import put_clock, put_date
from headgate.kernels import put_base64, put_unsigned, u8

__all__ = [
    "DOUBLE_ROOM",
    "INTEGER_ROOM",
    "TEMPORAL_ROOM",
    "base64_room",
    "put_double",
    "put_opaque",
    "put_string",
    "put_temporal",
    "string_room",
]

INTEGER_ROOM = 20
"""``-9223372036854775808``, ``18446744073709551615``"""
DOUBLE_ROOM = 40
"""Sign, ``0.``, 14 zeros and 17 digits; or 17 digits, ``.``, sign and exponent."""
TEMPORAL_ROOM = 40
"""Two quotes and ``-YYYY-MM-DD HHH:MM:SS.ffffff``, for every packed number."""

_SMALLEST_PLAIN = -14
_LARGEST_PLAIN = 15
"""Limits beyond which ``my_gcvt`` writes a double with an exponent: ``MAX_DECPT_FOR_F_FORMAT`` = DBL_DIG digits."""

_HEX = np.frombuffer(bytearray(b"0123456789abcdef"), np.uint8)
_LINE_BYTES = 57
"""Bytes in a line of MySQL's base64 encoder: 76 letters. Inside a JSON string the line break is the escape ``\\n``."""

_DATE = 10
_TIME = 11
_SIX = np.int64(6)


@njit(cache=True, nogil=True)
def string_room(buf: Any, start: int, end: int) -> int:
    """Return the bytes of a quoted string."""
    room = 2 + end - start
    for k in range(start, end):
        byte = u8(buf, k)
        if byte in (34, 92):
            room += 1
        elif byte < 32:
            room += 1 if byte in (8, 9, 10, 12, 13) else 5
    return room


@njit(cache=True, nogil=True)
def put_string(buf: Any, start: int, end: int, out: Any, at: int) -> int:
    """Write a quoted string. Quote, backslash and control characters are escaped; all other bytes are unchanged."""
    out[at] = 34
    at += 1
    for k in range(start, end):
        byte = u8(buf, k)
        if byte >= 32 and byte not in (34, 92):
            out[at] = byte
            at += 1
            continue
        letter = byte
        if byte == 8:
            letter = 98
        elif byte == 9:
            letter = 116
        elif byte == 10:
            letter = 110
        elif byte == 12:
            letter = 102
        elif byte == 13:
            letter = 114
        out[at] = 92
        out[at + 1] = letter
        at += 2
        if letter < 32:
            out[at - 1] = 117
            out[at] = 48
            out[at + 1] = 48
            out[at + 2] = _HEX[byte >> 4]
            out[at + 3] = _HEX[byte & 15]
            at += 4
    out[at] = 34
    return at + 1


@njit(cache=True, nogil=True)
def put_double(text: Any, start: int, end: int, digits: Any, out: Any, at: int) -> int:
    """Write a double from any decimal text of its shortest digits (``-1.5e+30``, ``0.001``, ``12``), as MySQL does.

    :param digits: uint8[32], scratch.
    """
    if u8(text, start) == 45:
        out[at] = 45
        at += 1
        start += 1
    count = 0
    point = 0  # number of digits before the point, without leading zeros; may be negative
    fraction = False
    exponent = 0
    k = start
    while k < end:
        byte = u8(text, k)
        k += 1
        if byte == 46:
            fraction = True
        elif byte in (69, 101):
            negative = u8(text, k) == 45
            if negative or u8(text, k) == 43:
                k += 1
            while k < end:
                exponent = exponent * 10 + u8(text, k) - 48
                k += 1
            exponent = -exponent if negative else exponent
        elif count == 0 and byte == 48:
            point -= fraction
        else:
            if count < 32:
                digits[count] = byte
            count += 1
            point += not fraction
    point += exponent
    while count > 0 and digits[count - 1] == 48:
        count -= 1
    if count == 0:
        out[at] = 48
        out[at + 1] = 46
        out[at + 2] = 48
        return at + 3
    if point < _SMALLEST_PLAIN or (point > _LARGEST_PLAIN and count <= point):
        return _put_exponent(digits, count, point - 1, out, at)
    if point <= 0:
        out[at] = 48
        out[at + 1] = 46
        at += 2
        for _ in range(-point):
            out[at] = 48
            at += 1
    for j in range(max(count, point)):
        if j == point and j > 0:
            out[at] = 46
            at += 1
        out[at] = digits[j] if j < count else 48
        at += 1
    if count <= point:
        out[at] = 46
        out[at + 1] = 48
        at += 2
    return at


@njit(cache=True, nogil=True)
def _put_exponent(digits: Any, count: int, exponent: int, out: Any, at: int) -> int:
    """Write ``d.ddde[-]x``."""
    out[at] = digits[0]
    at += 1
    if count > 1:
        out[at] = 46
        at += 1
    for j in range(1, count):
        out[at] = digits[j]
        at += 1
    out[at] = 101
    at += 1
    if exponent < 0:
        out[at] = 45
        at += 1
    return put_unsigned(out, at, np.uint64(abs(exponent)), 1)


@njit(cache=True, nogil=True)
def put_temporal(packed: Any, kind: int, out: Any, at: int) -> int:
    """Write a quoted DATE, TIME, DATETIME or TIMESTAMP from MySQL's packed 64-bit form, always with 6 fraction digits.

    Packed: the low 24 bits are microseconds. Above them are second and minute (6 bits each), then for TIME hours, else
    hour (5), day (5) and year * 13 + month. The sign is the number's.
    """
    out[at] = 34
    at += 1
    if packed < 0:
        out[at] = 45
        at += 1
        packed = -packed
    micros = packed & 0xFFFFFF
    clock = packed >> 24
    second, minute = clock & 63, clock >> 6 & 63
    if kind == _TIME:
        at = put_clock(out, at, (clock >> 12) % 1000, minute, second, micros, _SIX)
    else:
        day = clock >> 17
        months = day >> 5
        at = put_date(out, at, months // 13 % 10000, months % 13, day & 31)
        if kind != _DATE:
            out[at] = 32
            at = put_clock(out, at + 1, clock >> 12 & 31, minute, second, micros, _SIX)
    out[at] = 34
    return at + 1


@njit(cache=True, nogil=True)
def base64_room(count: int) -> int:
    """Return the most bytes that ``count`` opaque bytes take, with prefix, quotes and line breaks."""
    return (count + 2) // 3 * 4 + count // _LINE_BYTES * 2 + 24


@njit(cache=True, nogil=True)
def put_opaque(buf: Any, start: int, end: int, kind: int, out: Any, at: int) -> int:
    """Write ``"base64:type15:…"`` of an opaque value of column type ``kind``."""
    for byte in (34, 98, 97, 115, 101, 54, 52, 58, 116, 121, 112, 101):
        out[at] = byte
        at += 1
    at = put_unsigned(out, at, np.uint64(kind), 1)
    out[at] = 58
    at += 1
    for line in range(start, end, _LINE_BYTES):
        if line > start:
            out[at] = 92
            out[at + 1] = 110
            at += 2
        at = put_base64(buf, line, min(line + _LINE_BYTES, end), out, at)
    out[at] = 34
    return at + 1
