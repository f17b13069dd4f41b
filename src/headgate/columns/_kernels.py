"""Kernels that several type families share: lengths, gathering bytes, UTF-8.

A kernel returns the number of the first row with a value that it cannot decode, else -1. The codec raises the error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from headgate.kernels import copy, store8, u8, u64

__all__ = ["ASCII_MASK", "gather", "invalid_utf8", "is_ascii", "other_length", "total_length"]

ASCII_MASK = np.uint64(0x8080808080808080)
"""Bits that are 0 in eight ASCII bytes."""

SLACK = 48
"""Bytes that :func:`gather` may write behind the last value: it copies values of up to so many bytes in whole steps,
whose number does not vary with each length."""


@njit(cache=True, nogil=True)
def other_length(length: Any, valid: Any, size: int) -> int:
    """Return the first row whose value does not have ``size`` bytes, or -1."""
    others = 0
    for i in range(len(valid)):
        others += (valid[i] == 1) & (length[i] != size)
    if others:
        for i in range(len(valid)):
            if valid[i] == 1 and length[i] != size:
                return i
    return -1


@njit(cache=True, nogil=True)
def total_length(length: Any, valid: Any) -> int:
    """Count the bytes of all valid cells."""
    total = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            total += length[i]
    return total


@njit(cache=True, nogil=True)
def gather(buf: Any, offset: Any, length: Any, valid: Any, skip: int, offsets: Any, out: Any) -> None:
    """Concatenate the cells' bytes, without the first ``skip`` bytes of each (every cell has so many).

    :param offsets: int32[rows + 1], filled.
    :param out: uint8, ``SLACK`` bytes longer than what is copied.
    """
    at = 0
    size = len(buf)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            start = offset[i] + skip
            count = length[i] - skip
            if count > SLACK:
                copy(out, at, buf, start, count)
            elif start + SLACK <= size:
                for k in range(0, 16, 8):
                    store8(out, at + k, u64(buf, start + k))
                if count > 16:
                    for k in range(16, SLACK, 8):
                        store8(out, at + k, u64(buf, start + k))
            else:
                for k in range(count):
                    out[at + k] = u8(buf, start + k)
            at += count
        offsets[i + 1] = at


@njit(cache=True, nogil=True)
def is_ascii(data: Any, count: Any) -> Any:
    """Return whether the first ``count`` bytes are all below 0x80."""
    seen = np.uint64(0)
    whole = count & ~7
    for i in range(0, whole, 8):
        seen |= u64(data, i)
    for i in range(whole, count):
        seen |= np.uint64(u8(data, i))
    return (seen & ASCII_MASK) == 0


@njit(cache=True, nogil=True)
def _tail(data: Any, at: int, count: int) -> bool:
    """Return whether the ``count`` bytes at ``at`` are continuation bytes."""
    fine = True
    for k in range(count):
        fine = fine and u8(data, at + k) & 0xC0 == 0x80
    return fine


@njit(cache=True, nogil=True)
def _utf8_span(data: Any, start: Any, end: Any) -> bool:
    """Return whether ``data[start:end]`` is well-formed UTF-8 (The Unicode Standard, table 3-7)."""
    at = start
    while at < end:
        if at + 8 <= end and (u64(data, at) & ASCII_MASK) == 0:
            at += 8
            continue
        first = u8(data, at)
        left = end - at
        if first < 0x80:
            at += 1
        elif first < 0xC2:
            return False
        elif first < 0xE0:
            if left < 2 or not _tail(data, at + 1, 1):
                return False
            at += 2
        elif first < 0xF0:
            if left < 3 or not _tail(data, at + 1, 2):
                return False
            second = u8(data, at + 1)
            if (first == 0xE0 and second < 0xA0) or (first == 0xED and second >= 0xA0):
                return False
            at += 3
        elif first < 0xF5:
            if left < 4 or not _tail(data, at + 1, 3):
                return False
            second = u8(data, at + 1)
            if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90):
                return False
            at += 4
        else:
            return False
    return True


@njit(cache=True, nogil=True)
def invalid_utf8(data: Any, offsets: Any, rows: int) -> int:
    """Return the first row whose bytes ``data[offsets[i]:offsets[i + 1]]`` are not UTF-8, or -1."""
    if is_ascii(data, np.int64(offsets[rows])):
        return -1
    for i in range(rows):
        if not _utf8_span(data, np.int64(offsets[i]), np.int64(offsets[i + 1])):
            return i
    return -1
