"""Kernels for character sets other than UTF-8: by tables, or UTF-16, UCS-2 and UTF-32 by rule.

A code that a column can hold but that has no character becomes ``?``, as in ``CONVERT(… USING utf8mb4)`` and so for
every client of the server. (Half a surrogate pair in ``ucs2`` is also such a code, for which MySQL has no result:
CONVERT returns NULL or the text before it, clients get bytes that are not UTF-8.) Bytes that no column of the set can
hold are an error.

**Keys** must be distinct as text. In a key column (``exact``) a code without character, or one whose character MySQL
would write as another code, is also an error: two such keys would be one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate.catalog import ALIAS, MULTI_BYTE, NO_CODE, SINGLE_BYTE, multi_byte_table, single_byte_text
from headgate.columns._kernels import ASCII_MASK, total_length
from headgate.kernels import Cells, put_utf8, store8, u8, u64

__all__ = ["Converter", "converter_for"]

Converter: TypeAlias = Callable[[Cells], tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], npt.NDArray[np.int64]]]
"""cells -> (int32 offsets, UTF-8 bytes, the rows that are not text of the set; their text is empty)."""

_UTF16, _UTF16LE, _UCS2, _UTF32 = 0, 1, 2, 3
_WIDE = {"utf16": _UTF16, "utf16le": _UTF16LE, "ucs2": _UCS2, "utf32": _UTF32}


def converter_for(charset: str, *, exact: bool = False) -> Converter | None:
    """Return the converter of a MySQL character set, None if there is none.

    :param exact: for a key: accept only texts that MySQL would convert back to the same bytes.
    """
    if charset in SINGLE_BYTE:
        return _single_byte(charset, exact)
    if charset in MULTI_BYTE:
        return _multi_byte(charset, exact)
    # A 16-bit unit grows to at most three bytes. Four bytes never grow.
    return _converter(_convert_wide, 2, _WIDE[charset], exact) if charset in _WIDE else None


def _converter(kernel: Callable[..., Any], widest: int, *arguments: Any) -> Converter:
    """Return the converter that a kernel is with these arguments.

    :param widest: most bytes of UTF-8 for one stored byte.
    """

    def convert(cells: Cells) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        offsets, bad = np.empty(len(cells.valid) + 1, np.int32), np.zeros(len(cells.valid), np.bool_)
        out = np.empty(total_length(cells.length, cells.valid) * widest + 8, np.uint8)
        size = kernel(cells.buf, cells.offset, cells.length, cells.valid, *arguments, bad, offsets, out)
        return offsets, out[:size], np.flatnonzero(bad)

    return convert


@njit(cache=True, nogil=True)
def _convert_bytes(buf: Any, offset: Any, length: Any, valid: Any, codes: Any, bad: Any, offsets: Any, out: Any) -> Any:
    """Map bytes through ``codes`` (int64[256], -1: refused). Return the bytes written. Mark bad rows in ``bad``."""
    at: Any = np.int64(0)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            for k in range(offset[i], offset[i] + length[i]):
                byte = u8(buf, k)
                if byte < 0x80 and codes[byte] == byte:
                    out[at] = byte
                    at += 1
                elif codes[byte] < 0:
                    bad[i] = True
                    at = np.int64(offsets[i])
                    break
                else:
                    at = put_utf8(out, at, codes[byte])
        offsets[i + 1] = at
    return at


def _single_byte(charset: str, exact: bool) -> Converter:
    characters = single_byte_text(charset)
    codes = np.array([ord(character) for character in characters], np.int64)
    widest = max(len(character.encode()) for character in characters)
    if exact:
        # Every byte whose character another byte also has, except ASCII's own: MySQL writes that one.
        repeated = [
            byte for byte in range(256) if characters.count(characters[byte]) > 1 and ord(characters[byte]) != byte
        ]
        codes[repeated] = -1

    return _converter(_convert_bytes, widest, codes)


@njit(cache=True, nogil=True)
def _four_bytes(buf: Any, at: int, runs: Any) -> Any:
    """Return the entry of gb18030's four-byte code at ``at``."""
    one, two = u8(buf, at) - 0x81, u8(buf, at + 1) - 0x30
    three, four = u8(buf, at + 2) - 0x81, u8(buf, at + 3) - 0x30
    if not (0 <= one < 126 and 0 <= two < 10 and 0 <= three < 126 and 0 <= four < 10):
        return np.int64(NO_CODE)
    number = ((one * 10 + two) * 126 + three) * 10 + four
    low, high = 0, len(runs)
    while low + 1 < high:
        middle = (low + high) >> 1
        if runs[middle, 0] <= number:
            low = middle
        else:
            high = middle
    if number >= runs[low, 0] + runs[low, 2]:
        return np.int64(ALIAS | 0x3F)
    return runs[low, 1] + number - runs[low, 0]


@njit(cache=True, nogil=True)
def _entry(buf: Any, at: int, end: int, codes: Any, triples: Any, runs: Any) -> tuple[Any, int]:
    """Return ``(entry, bytes)`` of the code at ``at``, as in ``MultiByteTable``; it ends before ``end``."""
    first = u8(buf, at)
    entry = np.int64(codes[first])
    if entry != NO_CODE or end - at < 2:
        return entry, 1
    entry = np.int64(codes[first << 8 | u8(buf, at + 1)])
    if entry != NO_CODE or end - at < 3:
        return entry, 2
    if first == 0x8F and len(triples) == 65536:
        return np.int64(triples[u8(buf, at + 1) << 8 | u8(buf, at + 2)]), 3
    if len(runs) and end - at >= 4:
        return _four_bytes(buf, at, runs), 4
    return entry, 1


@njit(cache=True, nogil=True)
def _convert_codes(
    buf: Any,
    offset: Any,
    length: Any,
    valid: Any,
    codes: Any,
    triples: Any,
    runs: Any,
    exact: Any,
    bad: Any,
    offsets: Any,
    out: Any,
) -> Any:
    """Return the bytes written; ``out`` is 8 bytes longer than the text. Mark bad rows in ``bad``."""
    at: Any = np.int64(0)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            place = offset[i]
            end = place + length[i]
            while place < end:
                if place + 8 <= end and u64(buf, place) & ASCII_MASK == 0 and not exact:
                    store8(out, at, u64(buf, place))
                    at += 8
                    place += 8
                    continue
                entry, size = _entry(buf, place, end, codes, triples, runs)
                if entry == NO_CODE or (exact and entry & ALIAS):
                    bad[i] = True
                    at = np.int64(offsets[i])
                    break
                at = put_utf8(out, at, entry & 0x1FFFFF)
                place += size
        offsets[i + 1] = at
    return at


def _multi_byte(charset: str, exact: bool) -> Converter:
    table = multi_byte_table(charset)
    singles = table.codes[0x80:256]
    widest = 3 if np.any(singles != NO_CODE) else 2  # half-width katakana: three bytes of UTF-8 for one
    return _converter(_convert_codes, widest, *table, exact)


@njit(cache=True, nogil=True)
def _unit(buf: Any, at: int, little: Any) -> Any:
    """Return one 16-bit unit."""
    return u8(buf, at) | u8(buf, at + 1) << 8 if little else u8(buf, at) << 8 | u8(buf, at + 1)


@njit(cache=True, nogil=True)
def _next(buf: Any, at: int, end: int, kind: int, exact: Any) -> tuple[int, int]:
    """Return ``(character, bytes it takes)`` at ``at``; character -1 if there is none."""
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
    if kind == _UCS2:
        return (-1 if exact else 0x3F), 2
    if code > 0xDBFF or end - at < 4:
        return -1, 0
    low = _unit(buf, at + 2, kind == _UTF16LE)
    if low < 0xDC00 or low > 0xDFFF:
        return -1, 0
    return 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00)), 4


@njit(cache=True, nogil=True)
def _convert_wide(
    buf: Any, offset: Any, length: Any, valid: Any, kind: int, exact: Any, bad: Any, offsets: Any, out: Any
) -> Any:
    """Return the bytes written. Mark bad rows in ``bad``."""
    at: Any = np.int64(0)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            place = offset[i]
            end = place + length[i]
            while place < end:
                code, size = _next(buf, place, end, kind, exact)
                if code < 0:
                    bad[i] = True
                    at = np.int64(offsets[i])
                    break
                at = put_utf8(out, at, code)
                place += size
        offsets[i + 1] = at
    return at
