"""JSON strings and numbers in the binary form of a VARIANT: kernels for :mod:`headgate.delta._variant`.

Sources: Apache Parquet's ``VariantEncoding.md`` ("Value Data for Primitive Type") for the bytes, Spark's
``VariantBuilder`` for the choice among the types of a number:

| a number's text | type |
|---|---|
| an integer within 64 bits with sign | the narrowest integer of 1, 2, 4, 8 bytes |
| no exponent, at most 38 digits, at most 38 of them after the point | a decimal of 4, 8, 16 bytes (9, 18, 38 digits) |
| any other | a double, which the caller writes |

Every function reads inside ``text[at:end]``, and writes at most :data:`SCALAR_ROOM` or the measured size.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from headgate.kernels import copy, put_utf8, u8, u32

__all__ = ["DOUBLE", "SCALAR_ROOM", "measure_string", "measured_number", "put_literal", "put_number", "put_size",
           "put_string", "put_text", "unescape"]  # fmt: skip

SCALAR_ROOM: Final = 18
"""Maximum bytes of a number or a literal."""
DOUBLE: Final = 7 << 2
_TRUE, _FALSE = 1 << 2, 2 << 2
_INT8, _INT16, _INT32, _INT64 = 3 << 2, 4 << 2, 5 << 2, 6 << 2
_DECIMAL4, _DECIMAL8, _DECIMAL16 = 8 << 2, 9 << 2, 10 << 2
_LONG_STRING, _SHORT_STRING = 16 << 2, 1
_SHORT_BYTES = 63
_DIGITS = 38
"""Maximum digits of a decimal, also after its point."""
_LONG_DIGITS = 19
"""Maximum digits of the widest integers."""
_MINUS, _POINT, _ZERO, _QUOTE, _BACKSLASH = 45, 46, 48, 34, 92
_NULL_TEXT, _TRUE_TEXT, _FALS_TEXT = (int.from_bytes(word, "little") for word in (b"null", b"true", b"fals"))
_LOW_WORD = np.uint64(0xFFFFFFFF)
_MOST = np.uint64((1 << 63) - 1)


@njit(cache=True, nogil=True)
def put_size(out: Any, to: int, value: int, width: int) -> int:
    """Write an unsigned number of ``width`` bytes; return the next write index."""
    for i in range(width):
        out[to + i] = (value >> (8 * i)) & 255
    return to + width


# --- strings


@njit(cache=True, nogil=True)
def _hex4(text: Any, at: int, end: int) -> int:
    """Return the number of four hexadecimal digits; -1 if there are none."""
    if end - at < 4:
        return -1
    value = 0
    for i in range(4):
        c = u8(text, at + i)
        if 48 <= c <= 57:
            digit = c - 48
        elif 65 <= c <= 70 or 97 <= c <= 102:
            digit = (c & 7) + 9
        else:
            return -1
        value = value << 4 | digit
    return value


@njit(cache=True, nogil=True)
def _short_escape(c: int) -> int:
    """Return the character that a one-character escape means; -1 if none."""
    if c in (_QUOTE, _BACKSLASH, 47):
        return c
    if c == 98:
        return 8
    if c == 102:
        return 12
    if c == 110:
        return 10
    if c == 114:
        return 13
    return 9 if c == 116 else -1


@njit(cache=True, nogil=True)
def unescape(text: Any, at: int, end: int) -> tuple[int, int]:
    """``(code point, end)`` of an escape after its backslash; code point -1: not a JSON escape."""
    if at >= end:
        return -1, at
    c = u8(text, at)
    if c != 117:
        return _short_escape(c), at + 1
    code = _hex4(text, at + 1, end)
    at += 5
    if code < 0 or 0xDC00 <= code <= 0xDFFF:
        return -1, at
    if code < 0xD800 or code > 0xDBFF:
        return code, at
    if end - at < 6 or u8(text, at) != _BACKSLASH or u8(text, at + 1) != 117:
        return -1, at
    low = _hex4(text, at + 2, end)
    if low < 0xDC00 or low > 0xDFFF:
        return -1, at
    return 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00, at + 6


@njit(cache=True, nogil=True)
def _utf8_bytes(code: int) -> int:
    if code < 0x80:
        return 1
    if code < 0x800:
        return 2
    return 3 if code < 0x10000 else 4


@njit(cache=True, nogil=True)
def measure_string(text: Any, at: int, end: int) -> tuple[int, int]:
    """``(index of the closing quote, bytes of the string)`` after an opening quote; index -1: invalid."""
    size = 0
    while at < end:
        c = u8(text, at)
        if c == _QUOTE:
            return at, size
        if c < 32:
            return -1, 0
        if c == _BACKSLASH:
            code, at = unescape(text, at + 1, end)
            if code < 0:
                return -1, 0
            size += _utf8_bytes(code)
        else:
            at += 1
            size += 1
    return -1, 0


@njit(cache=True, nogil=True)
def put_text(text: Any, at: int, stop: int, out: Any, to: int) -> int:
    """Write the bytes of a measured string, up to its closing quote; return the next write index."""
    while at < stop:
        plain = at
        while at < stop and u8(text, at) != _BACKSLASH:
            at += 1
        copy(out, to, text, plain, at - plain)
        to += at - plain
        if at < stop:
            code, at = unescape(text, at + 1, stop)
            to = put_utf8(out, to, code)
    return to


@njit(cache=True, nogil=True)
def put_string(text: Any, at: int, stop: int, size: int, out: Any, to: int) -> int:
    """Write a measured string value of ``size`` bytes: at most 5 bytes, then the string."""
    if size <= _SHORT_BYTES:
        out[to] = size << 2 | _SHORT_STRING
        to += 1
    else:
        out[to] = _LONG_STRING
        to = put_size(out, to + 1, size, 4)
    return put_text(text, at, stop, out, to)


# --- literals and numbers


@njit(cache=True, nogil=True)
def put_literal(text: Any, at: int, end: int, out: Any, to: int) -> int:
    """Write ``null``, ``true`` or ``false``; return the end of its text, -1 if it is another."""
    if end - at < 4:
        return -1
    word = u32(text, at)
    if word == _NULL_TEXT:
        out[to] = 0
        return at + 4
    if word == _TRUE_TEXT:
        out[to] = _TRUE
        return at + 4
    if word == _FALS_TEXT and end - at > 4 and u8(text, at + 4) == 101:
        out[to] = _FALSE
        return at + 5
    return -1


@njit(cache=True, nogil=True)
def _skip_digits(text: Any, at: int, end: int) -> int:
    while at < end and 48 <= u8(text, at) <= 57:
        at += 1
    return at


@njit(cache=True, nogil=True)
def measured_number(text: Any, at: int, end: int) -> tuple[int, int, bool]:
    """``(end of a number, digits after its point, whether it has an exponent)``; end -1: not a number.

    The digits are -1 without a point.
    """
    if at < end and u8(text, at) == _MINUS:
        at += 1
    first = at
    at = _skip_digits(text, at, end)
    if at == first or (at - first > 1 and u8(text, first) == _ZERO):
        return -1, 0, False
    scale = -1
    if at < end and u8(text, at) == _POINT:
        stop = _skip_digits(text, at + 1, end)
        scale = stop - at - 1
        at = stop
    exponent = at < end and u8(text, at) | 32 == 101
    if exponent:
        at += 1
        if at < end and u8(text, at) in (43, _MINUS):
            at += 1
        stop = _skip_digits(text, at, end)
        scale = 0 if stop == at else scale
        at = stop
    return (-1, 0, False) if scale == 0 else (at, scale, exponent)


@njit(cache=True, nogil=True)
def _significant(text: Any, at: int, stop: int) -> tuple[int, int]:
    """``(start, count)`` of a number's digits without leading zeros; a point is not counted."""
    point = 0
    while at < stop and u8(text, at) in (_MINUS, _ZERO, _POINT):
        at += 1
    for i in range(at, stop):
        if u8(text, i) == _POINT:
            point = 1
    return at, stop - at - point


@njit(cache=True, nogil=True)
def _digits_value(text: Any, at: int, stop: int) -> tuple[Any, Any]:
    """``(low, high)`` 64 bits of the number that at most 38 digits form; a point is skipped."""
    low, high = np.uint64(0), np.uint64(0)
    ten = np.uint64(10)
    half = np.uint64(32)
    for i in range(at, stop):
        c = u8(text, i)
        if c != _POINT:
            small = (low & _LOW_WORD) * ten + np.uint64(c - _ZERO)
            large = (low >> half) * ten + (small >> half)
            high = high * ten + (large >> half)
            low = (large << half) | (small & _LOW_WORD)
    return low, high


@njit(cache=True, nogil=True)
def _put_word(out: Any, to: int, word: Any, width: int) -> int:
    for i in range(width):
        out[to + i] = (word >> np.uint64(8 * i)) & np.uint64(255)
    return to + width


@njit(cache=True, nogil=True)
def _put_integer(word: Any, out: Any, to: int) -> int:
    value = np.int64(word)
    if -(1 << 7) <= value < 1 << 7:
        out[to], width = _INT8, 1
    elif -(1 << 15) <= value < 1 << 15:
        out[to], width = _INT16, 2
    elif -(1 << 31) <= value < 1 << 31:
        out[to], width = _INT32, 4
    else:
        out[to], width = _INT64, 8
    return _put_word(out, to + 1, word, width)


@njit(cache=True, nogil=True)
def put_number(text: Any, at: int, stop: int, scale: int, out: Any, to: int) -> int:
    """Write a number without an exponent; return the next write index, -1 if it can only be a double.

    :param scale: as measured.
    """
    first, digits = _significant(text, at, stop)
    if digits > _DIGITS or scale > _DIGITS:
        return -1
    low, high = _digits_value(text, first, stop)
    negative = u8(text, at) == _MINUS
    is_long = scale < 0 and digits <= _LONG_DIGITS and low <= _MOST + np.uint64(negative)
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(low == 0)
    if is_long:
        return _put_integer(low, out, to)
    scale = max(scale, 0)
    width = max(digits, scale)
    out[to] = _DECIMAL4 if width <= 9 else _DECIMAL8 if width <= 18 else _DECIMAL16
    out[to + 1] = scale
    if width <= 9:
        return _put_word(out, to + 2, low, 4)
    to = _put_word(out, to + 2, low, 8)
    return to if width <= 18 else _put_word(out, to, high, 8)
