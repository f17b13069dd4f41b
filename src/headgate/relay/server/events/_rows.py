"""Rows in Avro binary, as in events: compiled loops test predicates on them and leave out columns.

A schema is a table of its fields, int64[fields, 4]: the layout of the value (below), whether it is a union, the number
of the union's null branch, and the field's *slot*: where its value goes when a row is read (-1: nowhere). A predicate
is a program in postfix form, int64[steps, 5]: the operation, the slot, the comparison, and two arguments. The text that
it compares with is in one array of bytes, numbers with a point in one of floats. Truth is SQL's: a comparison with NULL
is neither true nor false.

Layouts (Avro 1.12 specification, "Binary Encoding"): a zigzag varint; 4 or 8 bytes little-endian; a varint and so many
bytes; such bytes that hold a two's-complement big-endian number; a record of a varint and bytes; an array of floats.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from headgate.kernels import copy, u8
from headgate.relay.server.events._decode import varint

__all__ = [
    "ALWAYS", "AND", "ANY", "BYTES", "BYTES_OF", "DECIMAL", "DECIMAL_OF", "DOUBLE", "DOUBLE_OF", "EQ", "FLOAT",
    "FLOATS", "GE", "GT", "LE", "LIKE", "LONG", "LONG_OF", "LT", "MOST_SLOTS", "MOST_STEPS", "NE", "NOT",
    "NULL_OF", "ONE", "OR", "PAIR", "put_row", "row_passes",
]  # fmt: skip

LONG: Final = 0
FLOAT: Final = 1
DOUBLE: Final = 2
BYTES: Final = 3
DECIMAL: Final = 4
PAIR: Final = 5
FLOATS: Final = 6

LONG_OF: Final = 0
"""Compares with the first argument."""
DOUBLE_OF: Final = 1
"""Compares with the float whose index is the first argument."""
BYTES_OF: Final = 2
"""Compares with the bytes from the first argument to the second one, byte by byte."""
DECIMAL_OF: Final = 3
"""Compares with a number of 128 bits, the high ones in the first argument."""
LIKE: Final = 4
"""Whether the text is like the pattern from the first argument to the second one: UTF-8, :data:`ANY`, :data:`ONE`."""
NULL_OF: Final = 5
AND: Final = 6
OR: Final = 7
NOT: Final = 8
ALWAYS: Final = 9
"""Pushes the first argument: 0 false, 1 true, 2 neither."""

EQ, NE, LT, LE, GT, GE = range(6)

ANY: Final = b"\xff"
"""In a pattern: any text (``%``). UTF-8 has no such byte."""
ONE: Final = b"\xfe"
"""In a pattern: one code point (``_``)."""

MOST_STEPS: Final = 200
MOST_SLOTS: Final = 64
_FALSE: Final = 0
_TRUE: Final = 1
_UNKNOWN: Final = 2


@njit(cache=True, nogil=True)
def _end_of(buf: Any, at: Any, layout: Any) -> Any:
    """Return the end of a value."""
    if layout == LONG:
        return varint(buf, at, buf.shape[0])[1]
    if layout == FLOAT:
        return at + 4
    if layout == DOUBLE:
        return at + 8
    if layout == PAIR:
        at = varint(buf, at, buf.shape[0])[1]
    if layout == FLOATS:
        count, at = varint(buf, at, buf.shape[0])
        while count != 0:
            if count < 0:
                size, at = varint(buf, at, buf.shape[0])
                at += size
            else:
                at += 4 * count
            count, at = varint(buf, at, buf.shape[0])
        return at
    size, at = varint(buf, at, buf.shape[0])
    return at + size


@njit(cache=True, nogil=True)
def _is_null(buf: Any, at: Any, field: Any) -> Any:
    """Return ``(is null, where the value begins)``."""
    if field[1] == 0:
        return False, at
    branch, at = varint(buf, at, buf.shape[0])
    return branch == field[2], at


@njit(cache=True, nogil=True)
def _holds(comparison: Any, sign: Any) -> Any:
    if comparison == EQ:
        return sign == 0
    if comparison == NE:
        return sign != 0
    if comparison == LT:
        return sign < 0
    if comparison == LE:
        return sign <= 0
    return sign > 0 if comparison == GT else sign >= 0


@njit(cache=True, nogil=True)
def _sign_of_bytes(buf: Any, at: Any, size: Any, text: Any, begin: Any, end: Any) -> Any:
    for k in range(min(size, end - begin)):
        left, right = u8(buf, at + k), u8(text, begin + k)
        if left != right:
            return -1 if left < right else 1
    return -1 if size < end - begin else 1 if size > end - begin else 0


@njit(cache=True, nogil=True)
def _sign_of_decimal(buf: Any, at: Any, size: Any, high: Any, low: Any) -> Any:
    """Compare a big-endian two's-complement number of at most 16 bytes with one of 128 bits."""
    top = np.int64(-1) if buf[at] & 0x80 else np.int64(0)
    bottom = np.uint64(0) if top == 0 else ~np.uint64(0)
    for k in range(size):
        top = (top << 8) | np.int64(bottom >> np.uint64(56))
        bottom = (bottom << np.uint64(8)) | np.uint64(buf[at + k])
    if top != high:
        return -1 if top < high else 1
    other = np.uint64(low)
    return -1 if bottom < other else 1 if bottom > other else 0


@njit(cache=True, nogil=True)
def _floating(buf: Any, at: Any, layout: Any) -> Any:
    if layout == FLOAT:
        small = np.empty(4, np.uint8)
        copy(small, 0, buf, at, 4)
        return np.float64(small.view(np.float32)[0])
    wide = np.empty(8, np.uint8)
    copy(wide, 0, buf, at, 8)
    return wide.view(np.float64)[0]


@njit(cache=True, nogil=True)
def _is_like(buf: Any, at: Any, end: Any, text: Any, pattern: Any, pattern_end: Any) -> Any:
    """Whether ``buf[at:end]`` is like the pattern. After a failure the last ``ANY`` takes one byte more."""
    any_at, resume = np.int64(-1), at
    while at < end:
        sign = u8(text, pattern) if pattern < pattern_end else np.int64(-1)
        if sign == 0xFF:
            pattern += 1
            any_at, resume = pattern, at
        elif sign == 0xFE:
            pattern += 1
            at += 1
            while at < end and (u8(buf, at) & 0xC0) == 0x80:
                at += 1
        elif sign == u8(buf, at):
            pattern += 1
            at += 1
        elif any_at >= 0:
            resume += 1
            while resume < end and (u8(buf, resume) & 0xC0) == 0x80:
                resume += 1
            pattern, at = any_at, resume
        else:
            return False
    while pattern < pattern_end and u8(text, pattern) == 0xFF:
        pattern += 1
    return pattern == pattern_end


@njit(cache=True, nogil=True)
def _compared(buf: Any, at: Any, layout: Any, step: Any, text: Any, floats: Any) -> Any:
    """Return the result of a comparison with a value that is not null."""
    kind, comparison = step[0], step[2]
    if kind == LONG_OF:
        number = varint(buf, at, buf.shape[0])[0]
        return _holds(comparison, -1 if number < step[3] else 1 if number > step[3] else 0)
    if kind == DOUBLE_OF:
        value, other = _floating(buf, at, layout), floats[step[3]]
        return _holds(comparison, -1 if value < other else 1 if value > other else 0)
    size, start = varint(buf, at, buf.shape[0])
    if kind == DECIMAL_OF:
        return _holds(comparison, _sign_of_decimal(buf, start, size, step[3], step[4]))
    if kind == LIKE:
        return _is_like(buf, start, start + size, text, step[3], step[4])
    return _holds(comparison, _sign_of_bytes(buf, start, size, text, step[3], step[4]))


@njit(cache=True, nogil=True)
def row_passes(buf: Any, start: Any, fields: Any, program: Any, text: Any, floats: Any) -> Any:
    """Whether the predicate is true of the row that begins at ``start``."""
    value_starts = np.full(MOST_SLOTS, -1, np.int64)  # -1: null
    layouts = np.zeros(MOST_SLOTS, np.int64)
    at = start
    for f in range(fields.shape[0]):
        null, at = _is_null(buf, at, fields[f])
        slot = fields[f, 3]
        if slot >= 0 and not null:
            value_starts[slot], layouts[slot] = at, fields[f, 0]
        if not null:
            at = _end_of(buf, at, fields[f, 0])
    stack = np.zeros(MOST_STEPS, np.int64)
    top = -1
    for s in range(program.shape[0]):
        step = program[s]
        kind = step[0]
        if kind == AND or kind == OR:
            stronger = _FALSE if kind == AND else _TRUE
            left, right = stack[top - 1], stack[top]
            top -= 1
            if left == stronger or right == stronger:
                stack[top] = stronger
            else:
                stack[top] = _UNKNOWN if left == _UNKNOWN or right == _UNKNOWN else left
        elif kind == NOT:
            stack[top] = _UNKNOWN if stack[top] == _UNKNOWN else 1 - stack[top]
        else:
            top += 1
            value_at = value_starts[step[1]] if kind != ALWAYS else np.int64(-1)
            if kind == ALWAYS:
                stack[top] = step[3]
            elif kind == NULL_OF:
                stack[top] = _TRUE if value_at < 0 else _FALSE
            elif value_at < 0:
                stack[top] = _UNKNOWN
            else:
                stack[top] = _TRUE if _compared(buf, value_at, layouts[step[1]], step, text, floats) else _FALSE
    return stack[0] == _TRUE


@njit(cache=True, nogil=True)
def put_row(buf: Any, start: Any, fields: Any, kept: Any, out: Any, to: Any) -> Any:
    """Write the row with null for nullable fields that are not kept; return its end in ``out``."""
    at = start
    for f in range(fields.shape[0]):
        begin = at
        null, at = _is_null(buf, at, fields[f])
        if not null:
            at = _end_of(buf, at, fields[f, 0])
        if kept[f] or null or fields[f, 1] == 0 or fields[f, 2] < 0:
            copy(out, to, buf, begin, at - begin)
            to += at - begin
        else:
            out[to] = np.uint8(fields[f, 2] * 2)
            to += 1
    return to
