"""DECIMAL: decimal128 up to 38 digits, MySQL's text above; or text or doubles for all.

| type | log | text |
|---|---|---|
| DECIMAL(p,s) | packed | ``-123.45``, always s digits after the point |

Packed: the digits before and after the point in groups of 9, each 4 bytes, big-endian. The remaining digits (1 to 8 in
1 to 4 bytes) are outermost on either side. The first bit is inverted. In a negative value, all bits are inverted.

``wide_decimals="error"`` refuses tables with a column of more than 38 digits instead. ``decimals="text"`` makes all of
them MySQL's text, without the zeros of ZEROFILL. ``decimals="double"`` makes the nearest double of that text.

Source: MySQL source ``strings/decimal.cc`` (``decimal2bin``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.catalog import Column
from headgate.columns._codec import BaseCodec
from headgate.kernels import Cells, u8

__all__ = ["DecimalCodec", "DecimalTextCodec", "DoubleDecimalCodec", "put_decimal"]

_POWERS = np.array([10**n for n in range(19)], np.uint64)
_MASK32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_TEN = np.uint64(10)


def _groups(precision: int, scale: int) -> tuple[Any, Any]:
    """Return ``(bytes, digits)`` of each group, most significant first (int64 arrays)."""
    whole, rest = divmod(precision - scale, 9)
    part, tail = divmod(scale, 9)
    digits = [rest] * bool(rest) + [9] * (whole + part) + [tail] * bool(tail)
    return np.array([min((n + 1) // 2, 4) for n in digits], np.int64), np.array(digits, np.int64)


@njit(cache=True, nogil=True)
def _group(buf: Any, at: int, size: int, flip: int, mask: int) -> Any:
    """Return the digits of one group; ``flip`` is XORed to its first byte, ``mask`` to all."""
    value = u8(buf, at) ^ flip ^ mask
    for k in range(1, size):
        value = value << 8 | (u8(buf, at + k) ^ mask)
    return value


@njit(cache=True, nogil=True)
def _shift_add(low: Any, high: Any, factor: Any, more: Any) -> tuple[Any, Any]:
    """Return ``(high·2⁶⁴ + low) · factor + more`` modulo 2¹²⁸; factor below 2³², all uint64."""
    first = (low & _MASK32) * factor + more
    second = (low >> _32) * factor + (first >> _32)
    return (second << _32) | (first & _MASK32), high * factor + (second >> _32)


@njit(cache=True, nogil=True)
def _store(out: Any, row: int, low: Any, high: Any, negative: Any) -> None:
    if negative:
        low = ~low + np.uint64(1)
        high = ~high
        if low == 0:
            high += np.uint64(1)
    out[row, 0] = low
    out[row, 1] = high


@njit(cache=True, nogil=True)
def _from_log_short(buf: Any, offset: Any, valid: Any, sizes: Any, digits: Any, out: Any) -> int:
    """Decode up to 18 digits in 64 bits. Return the first row with a group out of range, or -1."""
    for i in range(len(valid)):
        value = np.int64(0)
        if valid[i] == 1:
            at = offset[i]
            mask = 0 if u8(buf, at) & 0x80 else 0xFF
            flip = 0x80
            for g in range(len(sizes)):
                group = _group(buf, at, sizes[g], flip, mask)
                scale = np.int64(_POWERS[digits[g]])
                if group >= scale:
                    return i
                value = value * scale + group
                at += sizes[g]
                flip = 0
            if mask:
                value = -value
        out[i, 0] = np.uint64(value)
        out[i, 1] = np.uint64(value >> 63)
    return -1


@njit(cache=True, nogil=True)
def _from_log_long(buf: Any, offset: Any, valid: Any, sizes: Any, digits: Any, out: Any) -> int:
    """Decode up to 38 digits in 128 bits. Return the first row with a group out of range, or -1."""
    for i in range(len(valid)):
        low = np.uint64(0)
        high = np.uint64(0)
        negative = False
        if valid[i] == 1:
            at = offset[i]
            negative = u8(buf, at) & 0x80 == 0
            mask = 0xFF if negative else 0
            flip = 0x80
            for g in range(len(sizes)):
                group = np.uint64(_group(buf, at, sizes[g], flip, mask))
                if group >= _POWERS[digits[g]]:
                    return i
                low, high = _shift_add(low, high, _POWERS[digits[g]], group)
                at += sizes[g]
                flip = 0
        _store(out, i, low, high, negative)
    return -1


@njit(cache=True, nogil=True)
def _from_text(buf: Any, offset: Any, length: Any, valid: Any, precision: int, scale: int, out: Any) -> int:
    """Parse ``[-]digits[.digits]``, exactly ``scale`` digits after the point. Return the first malformed row or -1."""
    for i in range(len(valid)):
        low = np.uint64(0)
        high = np.uint64(0)
        negative = False
        if valid[i] == 1:
            at = offset[i]
            end = at + length[i]
            if at < end and u8(buf, at) == 45:
                negative = True
                at += 1
            point = end - scale - 1 if scale else end
            if point < at or (scale and u8(buf, point) != 46):
                return i
            while at < point and point - at + scale > precision and u8(buf, at) == 48:
                at += 1
            if point - at + scale > precision or end - at < 1:
                return i
            count = 0
            for k in range(at, end):
                if k == point:
                    continue
                digit = u8(buf, k) - 48
                if digit < 0 or digit > 9:
                    return i
                if count < 18:
                    low = low * _TEN + np.uint64(digit)
                else:
                    low, high = _shift_add(low, high, _TEN, np.uint64(digit))
                count += 1
        _store(out, i, low, high, negative)
    return -1


class DecimalCodec(BaseCodec):
    """DECIMAL of up to 38 digits as decimal128."""

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table)
        self.arrow_type = pa.decimal128(column.precision, column.scale)
        self._sizes, self._digits = _groups(column.precision, column.scale)
        self._kernel = _from_log_short if column.precision <= 18 else _from_log_long

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, int(self._sizes.sum()))
        out = np.empty((len(cells.valid), 2), np.uint64)
        bad = self._kernel(cells.buf, cells.offset, cells.valid, self._sizes, self._digits, out)
        return self._finished(cells, out, bad)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        out = np.empty((len(cells.valid), 2), np.uint64)
        bad = _from_text(
            cells.buf, cells.offset, cells.length, cells.valid, self.column.precision, self.column.scale, out
        )
        return self._finished(cells, out, bad)

    def _finished(self, cells: Cells, out: Any, bad: int) -> pa.Array:
        if bad >= 0:
            raise self.undecodable(cells, bad, f"a {self.column.mysql}")
        return self.array(cells, out)


@njit(cache=True, nogil=True)
def put_decimal(buf: Any, place: int, precision: int, scale: int, out: Any, at: int) -> int:
    """Write a packed decimal as MySQL prints it (at most precision + 3 bytes). Return the index of the next byte, or -1
    if a group is out of range. There must be as many bytes at ``place`` as the type takes.
    """
    whole = precision - scale
    mask = 0 if u8(buf, place) & 0x80 else 0xFF
    flip = 0x80
    if mask:
        out[at] = 45
        at += 1
    if whole == 0:
        out[at] = 48
        at += 1
    started = False
    done = 0
    while done < precision:
        # Whole digits are grouped from the point to the left, the fraction's from the point to the right.
        digits = (whole % 9 or 9) if done == 0 and whole else min(9, precision - done)
        size = min((digits + 1) // 2, 4)
        group = _group(buf, place, size, flip, mask)
        if group >= np.int64(_POWERS[digits]):
            return -1
        for k in range(digits - 1, -1, -1):
            if done == whole:
                out[at] = 46
                at += 1
            digit = group // np.int64(_POWERS[k]) % 10
            started = started or digit != 0 or done + 1 >= whole
            if started:
                out[at] = 48 + digit
                at += 1
            done += 1
        place += size
        flip = 0
    return at


@njit(cache=True, nogil=True)
def _to_text(buf: Any, offset: Any, valid: Any, precision: int, scale: int, offsets: Any, out: Any) -> tuple[int, int]:
    """Write packed decimals as MySQL prints them. Return ``(bytes written, first malformed row or -1)``."""
    at: Any = np.int64(0)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            end = put_decimal(buf, offset[i], precision, scale, out, at)
            if end < 0:
                return at, i
            at = end
        offsets[i + 1] = at
    return at, -1


class DecimalTextCodec(BaseCodec):
    """DECIMAL as MySQL's text. Spark's decimals end at 38 digits."""

    arrow_type = pa.string()

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table)
        self._size = int(_groups(column.precision, column.scale)[0].sum())

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, self._size)
        rows = len(cells.valid)
        offsets = np.empty(rows + 1, np.int32)
        out = np.empty(rows * (self.column.precision + 3), np.uint8)
        self.check_total(len(out))
        size, bad = _to_text(
            cells.buf, cells.offset, cells.valid, self.column.precision, self.column.scale, offsets, out
        )
        if bad >= 0:
            raise self.undecodable(cells, bad, f"a {self.column.mysql}")
        return self.array(cells, offsets, out[:size])

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        texts = self.strings(cells, *self.gathered(cells))
        # Only an unsigned column can be ZEROFILL; the log does not have its zeros.
        return pc.replace_substring_regex(texts, "^0+([0-9])", r"\1") if self.column.unsigned else texts


class DoubleDecimalCodec(BaseCodec):
    """DECIMAL as the nearest double, on both roads by way of MySQL's text."""

    arrow_type = pa.float64()

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table)
        self._texts = DecimalTextCodec(column, table)

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        return pc.cast(self._texts.from_log(cells), self.arrow_type)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        texts = self._texts.from_text(cells)
        try:
            return pc.cast(texts, self.arrow_type)
        except pa.ArrowInvalid as error:
            raise self.error(f"a value is not a {self.column.mysql}: {error}") from None
