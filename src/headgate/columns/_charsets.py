"""Character sets other than UTF-8, in kernels: single-byte sets by table, UTF-16, UCS-2 and UTF-32 by rule.

Each converter makes two passes over the cells, one for the lengths and one for the bytes, with one stepping function
that both share. The tables are MySQL's own (``headgate.catalog.SINGLE_BYTE``); a byte that its set leaves undefined
becomes ``?``, as in ``CONVERT(… USING utf8mb4)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate._cells import Cells
from headgate._memory import u8
from headgate.catalog import SINGLE_BYTE
from headgate.columns._kernels import total_length

__all__ = ["Converter", "converter_for"]

Converter: TypeAlias = Callable[[Cells], tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], int]]
"""cells -> (int32 offsets, UTF-8 bytes, the first row that is not text of the set or -1)."""

_UTF16, _UTF16LE, _UCS2, _UTF32 = 0, 1, 2, 3
_WIDE = {"utf16": _UTF16, "utf16le": _UTF16LE, "ucs2": _UCS2, "utf32": _UTF32}


def converter_for(charset: str) -> Converter | None:
    """The converter of a MySQL character set, None if there is none."""
    if charset in SINGLE_BYTE:
        return _single_byte(charset)
    return _wide(_WIDE[charset]) if charset in _WIDE else None


@njit(cache=True, nogil=True)
def _put(out: Any, at: int, code: int) -> int:
    """Write one character as UTF-8; where the next one goes."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        out[at + 2] = 0x80 | code & 0x3F
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 0x3F
    out[at + 2] = 0x80 | code >> 6 & 0x3F
    out[at + 3] = 0x80 | code & 0x3F
    return at + 4


@njit(cache=True, nogil=True)
def _convert_bytes(buf: Any, offset: Any, length: Any, valid: Any, codes: Any, offsets: Any, out: Any) -> Any:
    """Every byte through ``codes`` (int64[256]); the bytes written."""
    at: Any = np.int64(0)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            for k in range(offset[i], offset[i] + length[i]):
                byte = u8(buf, k)
                if byte < 0x80 and codes[byte] == byte:
                    out[at] = byte
                    at += 1
                else:
                    at = _put(out, at, codes[byte])
        offsets[i + 1] = at
    return at


def _single_byte(charset: str) -> Converter:
    codes = np.array([ord(character) for character in SINGLE_BYTE[charset]], np.int64)
    widest = max(len(character.encode()) for character in SINGLE_BYTE[charset])

    def convert(cells: Cells) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], int]:
        offsets = np.empty(len(cells.valid) + 1, np.int32)
        out = np.empty(total_length(cells.length, cells.valid) * widest, np.uint8)
        size = _convert_bytes(cells.buf, cells.offset, cells.length, cells.valid, codes, offsets, out)
        return offsets, out[:size], -1

    return convert


@njit(cache=True, nogil=True)
def _unit(buf: Any, at: int, little: Any) -> Any:
    """One 16-bit unit."""
    return u8(buf, at) | u8(buf, at + 1) << 8 if little else u8(buf, at) << 8 | u8(buf, at + 1)


@njit(cache=True, nogil=True)
def _next(buf: Any, at: int, end: int, kind: int) -> tuple[int, int]:
    """``(character, bytes it takes)`` at ``at``; character -1 if there is none."""
    if kind == _UTF32:
        if end - at < 4:
            return -1, 0
        code = u8(buf, at) << 24 | u8(buf, at + 1) << 16 | u8(buf, at + 2) << 8 | u8(buf, at + 3)
        return (code if code < 0xD800 or 0xDFFF < code < 0x110000 else -1), 4
    if end - at < 2:
        return -1, 0
    code = _unit(buf, at, kind == _UTF16LE)
    if code < 0xD800 or code > 0xDFFF:
        return code, 2
    if kind == _UCS2 or code > 0xDBFF or end - at < 4:
        return -1, 0
    low = _unit(buf, at + 2, kind == _UTF16LE)
    if low < 0xDC00 or low > 0xDFFF:
        return -1, 0
    return 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00)), 4


@njit(cache=True, nogil=True)
def _convert_wide(buf: Any, offset: Any, length: Any, valid: Any, kind: int, offsets: Any, out: Any) -> tuple[int, int]:
    """``(bytes written, first bad row or -1)``"""
    at: Any = np.int64(0)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            place = offset[i]
            end = place + length[i]
            while place < end:
                code, size = _next(buf, place, end, kind)
                if code < 0:
                    return at, i
                at = _put(out, at, code)
                place += size
        offsets[i + 1] = at
    return at, -1


def _wide(kind: int) -> Converter:
    def convert(cells: Cells) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], int]:
        offsets = np.empty(len(cells.valid) + 1, np.int32)
        # A 16-bit unit grows to at most three bytes, four bytes never grow.
        out = np.empty(total_length(cells.length, cells.valid) * 3 // 2 + 3, np.uint8)
        size, bad = _convert_wide(cells.buf, cells.offset, cells.length, cells.valid, kind, offsets, out)
        return offsets, out[:size], bad

    return convert
