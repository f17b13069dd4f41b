"""Integers, BIT and YEAR.

| type | log | text |
|---|---|---|
| TINYINT … BIGINT | 1, 2, 3, 4 or 8 bytes, little-endian, two's complement if signed | digits, padded if ZEROFILL |
| BIT(n) | (n + 7) / 8 bytes, big-endian | the same |
| YEAR | one byte: years since 1900; 0 = 0000 | four digits |

Unsigned columns get the next wider signed type, because Spark has no unsigned ones. BIGINT UNSIGNED and BIT(64) get
decimal128(20,0). With ``unsigned_bigint="bigint"`` BIGINT UNSIGNED is int64, and larger values are an error. With
``bit="binary"`` a BIT(n) of any n is its (n + 7) / 8 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from headgate.catalog import Column
from headgate.columns._codec import BaseCodec
from headgate.kernels import Cells, u8, u16, u32, u64

__all__ = ["BitBytesCodec", "BitCodec", "IntegerCodec", "YearCodec", "parse_digits"]

_WIDTHS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_BITS = {1: 8, 2: 16, 3: 24, 4: 32, 8: 64}
_ARROW = {
    ("tinyint", False): pa.int8(),
    ("tinyint", True): pa.int16(),
    ("smallint", False): pa.int16(),
    ("smallint", True): pa.int32(),
    ("mediumint", False): pa.int32(),
    ("mediumint", True): pa.int32(),
    ("int", False): pa.int32(),
    ("int", True): pa.int64(),
    ("bigint", False): pa.int64(),
}
_WIDE = pa.decimal128(20, 0)


@njit(cache=True, nogil=True)
def _from_log(buf: Any, offset: Any, valid: Any, width: int, signed: Any, out: Any) -> None:
    """Write ``width`` little-endian bytes of each cell to ``out``; 0 for a missing value."""
    shift = np.int64(64 - 8 * width)
    for i in range(len(valid)):
        value = np.int64(0)
        if valid[i] == 1:
            at = offset[i]
            if width == 8:
                value = np.int64(u64(buf, at))
            elif width == 4:
                value = u32(buf, at)
            elif width == 1:
                value = u8(buf, at)
            elif width == 2:
                value = u16(buf, at)
            else:
                value = u16(buf, at) | u8(buf, at + 2) << 16
            if signed:
                value = (value << shift) >> shift
        out[i] = value


@njit(cache=True, nogil=True)
def parse_digits(buf: Any, at: int, end: int) -> tuple[bool, Any]:
    """Return ``(fine, value)`` of decimal digits ``buf[at:end]`` as uint64. Not fine: empty, another byte, overflow."""
    if end - at < 1:
        return False, np.uint64(0)
    value = np.uint64(0)
    safe = min(end, at + 19)
    for k in range(at, safe):
        digit = u8(buf, k) - 48
        if digit < 0 or digit > 9:
            return False, np.uint64(0)
        value = value * np.uint64(10) + np.uint64(digit)
    for k in range(safe, end):
        digit = u8(buf, k) - 48
        if digit < 0 or digit > 9 or value > np.uint64(1844674407370955161):
            return False, np.uint64(0)
        if value == np.uint64(1844674407370955161) and digit > 5:
            return False, np.uint64(0)
        value = value * np.uint64(10) + np.uint64(digit)
    return True, value


@njit(cache=True, nogil=True)
def _from_text(buf: Any, offset: Any, length: Any, valid: Any, low: Any, high: Any, out: Any) -> int:
    """Write digits to ``out``. Return the first row with a value outside ``-low … high`` (both uint64), or -1."""
    for i in range(len(valid)):
        value = np.uint64(0)
        if valid[i] == 1:
            at = offset[i]
            end = at + length[i]
            negative = end > at and u8(buf, at) == 45
            fine, value = parse_digits(buf, at + negative, end)
            if not fine or value > (low if negative else high):
                return i
            if negative:
                value = np.uint64(0) - value
        out[i] = np.int64(value)
    return -1


@njit(cache=True, nogil=True)
def _bits_from_bytes(buf: Any, offset: Any, length: Any, valid: Any, out: Any) -> None:
    """Write up to 8 big-endian bytes of each cell as a number."""
    for i in range(len(valid)):
        value = np.uint64(0)
        if valid[i] == 1:
            for k in range(length[i]):
                value = value << np.uint64(8) | np.uint64(u8(buf, offset[i] + k))
        out[i] = np.int64(value)


class IntegerCodec(BaseCodec):
    """TINYINT, SMALLINT, MEDIUMINT, INT, BIGINT.

    :param narrow: for BIGINT UNSIGNED: int64, and an error for values that it cannot hold.
    """

    def __init__(self, column: Column, table: str, *, narrow: bool = False) -> None:
        super().__init__(column, table)
        self._width = _WIDTHS[column.type]
        self._signed = not column.unsigned
        self._narrow = narrow
        self._wide = column.type == "bigint" and column.unsigned and not narrow
        self.arrow_type = _WIDE if self._wide else _ARROW[column.type, column.unsigned and not narrow]
        bits = _BITS[self._width]
        self._low = np.uint64(2 ** (bits - 1) if self._signed else 0)
        self._high = np.uint64(2 ** (bits - self._signed) - 1)

    def _target(self, rows: int) -> tuple[Any, Any]:
        """Return the array's buffer and the view of it to which a kernel writes 64-bit (or narrower) numbers."""
        if self._wide:
            pairs = np.zeros((rows, 2), np.int64)
            return pairs, pairs[:, 0]
        numbers = np.empty(rows, self.arrow_type.to_pandas_dtype())
        return numbers, numbers

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, self._width)
        buffer, numbers = self._target(len(cells.valid))
        _from_log(cells.buf, cells.offset, cells.valid, self._width, self._signed, numbers)
        return self._narrowed(cells, buffer)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        buffer, numbers = self._target(len(cells.valid))
        bad = _from_text(cells.buf, cells.offset, cells.length, cells.valid, self._low, self._high, numbers)
        if bad >= 0:
            raise self.undecodable(cells, bad, f"a number of type {self.column.mysql}")
        return self._narrowed(cells, buffer)

    def _narrowed(self, cells: Cells, numbers: Any) -> pa.Array:
        """Return the array; if it is narrow, check that no number became negative."""
        if self._narrow and (negative := numbers < 0).any():
            row = int(np.argmax(negative))
            raise self.error(
                f'the value {int(numbers[row]) + 2**64} is above the largest BIGINT; set unsigned_bigint = "decimal"',
                row=row,
            )
        return self.array(cells, numbers)


class BitCodec(BaseCodec):
    """BIT(n) as a number: int64, for 64 bits decimal128(20,0)."""

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table)
        self._wide = column.precision == 64
        self._size = (column.precision + 7) // 8
        self.arrow_type = _WIDE if self._wide else pa.int64()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, self._size)
        numbers = np.zeros((len(cells.valid), 2 if self._wide else 1), np.int64)
        _bits_from_bytes(cells.buf, cells.offset, cells.length, cells.valid, numbers[:, 0])
        return self.array(cells, numbers)

    from_text = from_log


class BitBytesCodec(BaseCodec):
    """BIT(n) as binary: (n + 7) // 8 bytes, big-endian."""

    arrow_type = pa.binary()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, (self.column.precision + 7) // 8)
        offsets, data = self.gathered(cells)
        return self.array(cells, offsets, data[: offsets[-1]])

    from_text = from_log


class YearCodec(BaseCodec):
    """YEAR as int16."""

    arrow_type = pa.int16()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, 1)
        years = np.empty(len(cells.valid), np.int16)
        _from_log(cells.buf, cells.offset, cells.valid, 1, False, years)
        years[years != 0] += 1900
        return self.array(cells, years)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        years = np.empty(len(cells.valid), np.int16)
        bad = _from_text(cells.buf, cells.offset, cells.length, cells.valid, np.uint64(0), np.uint64(9999), years)
        if bad >= 0:
            raise self.undecodable(cells, bad, "a year")
        return self.array(cells, years)
