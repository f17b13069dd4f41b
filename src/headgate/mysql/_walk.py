"""Compiled walk over the rows of a text-protocol result set.

A row is one packet: ``u24 length, u8 number``, then per column a length-encoded string: a first byte below 251 is the
length, 251 is NULL, 252, 253 and 254 announce a length of 2, 3 and 8 bytes (MySQL client/server protocol,
"Text Resultset Row"). A packet that begins with 254 and is shorter than 9 bytes ends the result, 255 is an error.

Every read is checked against the packet's end and every packet against the bytes at hand.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from headgate.kernels import u8

__all__ = ["BAD_NUMBER", "BAD_ROW", "BIG", "END", "ERROR", "FULL", "MORE", "walk"]

MORE: Final = 0
"""The next packet has not arrived in full."""
FULL: Final = 1
"""No more rows fit."""
END: Final = 2
"""The next packet ends the result."""
ERROR: Final = 3
"""The next packet is an error."""
BIG: Final = 4
"""The next row is longer than one packet."""
BAD_ROW: Final = 5
"""The next packet is not a row of that many columns."""
BAD_NUMBER: Final = 6
"""The next packet is out of sequence."""

_LARGEST = 0xFFFFFF
_INT32_MAX = 0x7FFFFFFF


@njit(cache=True, nogil=True)
def walk_row(buf: Any, p: Any, end: Any, offset: Any, length: Any, valid: Any, row: int) -> bool:
    """Record the cells of the row in ``buf[p:end]``. Return False if it is not exactly one row."""
    for column in range(offset.shape[0]):
        if p >= end:
            return False
        size = u8(buf, p)
        p += 1
        if size == 251:
            offset[column, row] = 0
            length[column, row] = 0
            valid[column, row] = 0
            continue
        if size > 251:
            width = 2 if size == 252 else 3 if size == 253 else 8
            if size == 255 or p + width > end:
                return False
            size = np.int64(0)
            for i in range(width):
                size |= u8(buf, p + i) << (8 * i)
            p += width
        if size < 0 or size > end - p or size > _INT32_MAX:
            return False
        offset[column, row] = p
        length[column, row] = size
        valid[column, row] = 1
        p += size
    return bool(p == end)


@njit(cache=True, nogil=True)
def walk(
    buf: Any, start: Any, end: int, number: Any, offset: Any, length: Any, valid: Any, row: int
) -> tuple[int, Any, int, Any]:
    """Record the cells of as many rows of ``buf[start:end]`` as are whole and fit.

    :param number: the next packet's sequence number (0-255).
    :param row: where to put the next row; the arrays are ``[columns, rows]``.
    :returns: why it stopped, the index of the first unused byte, the next row, the next sequence number.
    """
    p = start
    while True:
        if p + 4 > end:
            return MORE, p, row, number
        size = u8(buf, p) | u8(buf, p + 1) << 8 | u8(buf, p + 2) << 16
        if u8(buf, p + 3) != number:
            return BAD_NUMBER, p, row, number
        if size == _LARGEST:
            return BIG, p, row, number
        q = p + 4
        if q + size > end:
            return MORE, p, row, number
        if size > 0:
            if u8(buf, q) == 254 and size < 9:
                return END, p, row, number
            if u8(buf, q) == 255:
                return ERROR, p, row, number
        if row >= offset.shape[1]:
            return FULL, p, row, number
        if not walk_row(buf, q, q + size, offset, length, valid, row):
            return BAD_ROW, p, row, number
        row += 1
        p = q + size
        number = (number + 1) & 255
