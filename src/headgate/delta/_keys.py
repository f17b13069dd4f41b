"""Keys in a form that is equal exactly when Spark's keys are equal.

| a column's Arrow type | equal if |
|---|---|
| integers, dates, timestamps (µs) | the numbers are |
| decimals | the values are, at the column's scale |
| floats | the values are; 0.0 is −0.0, and all NaN are one |
| strings, binaries | the bytes are: no collation, no padding |
| booleans | the values are |

A key of one column whose values fit 64 bits in order (all integers, decimals of at most 18 digits, decimal(20,0) for
BIGINT UNSIGNED, dates, timestamps) is *exact*: an int64 that sorts as the values do. Every other key is a byte string
with a 64-bit hash. The hash finds candidates, the bytes decide.

The source may have a DECIMAL(20,0) instead, with values below 0 or above 2^64 - 1. If some keys are such, all of them
are byte strings, and the "hash" of each is the int64 that an exact key with the same low 64 bits is. So both kinds
sort alike, and are compared: an exact key equals a byte string if the high half of that is 0.

| the bytes of a key, column by column in the key's order | |
|---|---|
| fixed width | integers, dates, times and floats 8 bytes, decimals 16, booleans 1; little-endian |
| strings, binaries | length (4 bytes, little-endian), then the value |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import njit

from headgate.errors import DecodeError
from headgate.kernels import copy, u8, u64

__all__ = ["Keys", "bytes_of", "exact_number", "is_exact", "keys_of", "whole"]

_UNSIGNED_DIGITS: Final = 20
_LONG_DIGITS: Final = 18
"""Decimals of up to this many digits fit an int64."""
_SIGN: Final = np.uint64(1 << 63)


@dataclass(frozen=True)
class Keys:
    """The keys of some rows.

    Either ``exact`` (int64[n]), or ``hashes`` (uint64[n]; of decimals int64[n]) with the bytes of key i at
    ``data[offsets[i]:offsets[i+1]]`` (uint8, int64[n+1]).
    """

    count: int
    exact: Any = None
    hashes: Any = None
    data: Any = None
    offsets: Any = None
    first: Any = None
    """The first of several columns."""

    @cached_property
    def leading(self) -> tuple[int, int] | None:
        """The least and greatest number (:func:`exact_number`) of the first of several columns; None: not known."""
        return _leading(self.first) if self.first is not None and self.count else None

    @property
    def is_exact(self) -> bool:
        """Whether the keys are exact numbers."""
        return self.exact is not None

    @cached_property
    def order(self) -> Any:
        """int64[n]: the keys' indexes in the order of :attr:`ascending`."""
        return np.argsort(self.exact if self.is_exact else self.hashes, kind="stable")

    @cached_property
    def ascending(self) -> Any:
        """The exact keys, or the hashes, sorted."""
        return (self.exact if self.is_exact else self.hashes)[self.order]

    @cached_property
    def numbers(self) -> Any:
        """int64[n]: a number for each key, equal for equal keys, from 0 without gaps."""
        if self.is_exact:
            numbers = np.empty(self.count, np.int64)
            numbers[self.order] = np.cumsum(np.diff(self.ascending, prepend=self.ascending[:1]) != 0)
            return numbers
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        encoded = pa.Array.from_buffers(pa.large_binary(), self.count, buffers).dictionary_encode()
        return np.asarray(encoded.indices).astype(np.int64)

    @property
    def are_distinct(self) -> bool:
        """Whether no key occurs twice. May be False for distinct keys with equal hashes."""
        return not bool((self.ascending[1:] == self.ascending[:-1]).any())


def keys_of(columns: Sequence[pa.Array | pa.ChunkedArray], *, all_unsigned: bool = True) -> Keys:
    """Return the keys that these columns form, row by row.

    :param columns: of equal length, without nulls.
    :param all_unsigned: False: these may be some of keys among which a decimal(20,0) is no BIGINT UNSIGNED, so each of
        them is a byte string.
    :raises DecodeError: a null, or an unsupported type.
    """
    arrays = [whole(column) for column in columns]
    if any(array.null_count for array in arrays):
        raise DecodeError("a key column holds NULL")
    count = len(arrays[0])
    if len(arrays) > 1 or not is_exact(arrays[0].type):
        return _bytes(arrays, count)
    if _is_unsigned(arrays[0].type):
        return _unsigned(_words(arrays[0]), all_unsigned)
    return Keys(count, exact=_exact(arrays[0]))


def _leading(array: pa.Array) -> tuple[int, int] | None:
    """Return the bounds of a column that has values."""
    if not is_exact(array.type):
        return None
    numbers = _unsigned(_words(array), all_unsigned=True).exact if _is_unsigned(array.type) else _exact(array)
    return None if numbers is None else (int(numbers.min()), int(numbers.max()))


def is_exact(kind: pa.DataType) -> bool:
    """Whether a key of one column of this type is exact."""
    if pa.types.is_decimal128(kind):
        return bool(kind.precision <= _LONG_DIGITS or _is_unsigned(kind))
    return any(fits(kind) for fits in (pa.types.is_signed_integer, pa.types.is_date32, pa.types.is_timestamp))


def exact_number(value: int, kind: pa.DataType) -> int | None:
    """Return the int64 of one value of an exact type; None: it is no BIGINT UNSIGNED.

    :param value: the integer; a decimal's unscaled integer, a date's days, a timestamp's µs.
    """
    if not _is_unsigned(kind):
        return value
    return value - (1 << 63) if 0 <= value < 1 << 64 else None


def _is_unsigned(kind: pa.DataType) -> bool:
    """Whether a BIGINT UNSIGNED has this type."""
    return bool(pa.types.is_decimal128(kind) and kind.precision == _UNSIGNED_DIGITS and kind.scale == 0)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; without a copy, if it is one. Several may have 2 GiB of texts, or more."""
    if isinstance(column, pa.ChunkedArray):
        is_one = column.num_chunks == 1
        column = column.chunk(0) if is_one else column.cast(_large(column.type)).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def _large(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


def _exact(array: pa.Array) -> Any:
    """int64[n] of a column of an exact type that no BIGINT UNSIGNED has."""
    if not pa.types.is_decimal128(array.type):
        return _number(array)
    return np.ascontiguousarray(_words(array)[:, 0]).view(np.int64)


def _unsigned(words: Any, all_unsigned: bool) -> Keys:
    numbers = (words[:, 0] ^ _SIGN).view(np.int64)
    if all_unsigned and not words[:, 1].any():
        return Keys(len(words), exact=numbers)
    data = np.ascontiguousarray(words).view(np.uint8).reshape(-1)
    return Keys(len(words), hashes=numbers, data=data, offsets=np.arange(len(words) + 1) * 16)


def _words(array: pa.Array) -> Any:
    """uint64[n, 2]: the low and the high half of decimals."""
    if not len(array):
        return np.empty((0, 2), np.uint64)
    return np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]


def _number(array: pa.Array) -> Any:
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def _fixed(array: pa.Array) -> Any:
    """uint8[n, width] of a column of fixed width; None: it has none."""
    kind, count = array.type, len(array)
    if pa.types.is_decimal128(kind):
        return np.ascontiguousarray(_words(array)).view(np.uint8).reshape(count, 16)
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).to_numpy(zero_copy_only=False).reshape(count, 1)
    if pa.types.is_floating(kind):
        values = np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False)) + 0.0
        values = np.where(np.isnan(values), np.nan, values)
        return np.ascontiguousarray(values).view(np.uint8).reshape(count, 8)
    if pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return np.ascontiguousarray(_number(array)).view(np.uint8).reshape(count, 8)
    return None


def _bytes(arrays: Sequence[pa.Array], count: int) -> Keys:
    """Encode keys as bytes, column by column."""
    parts = [_part(array) for array in arrays]
    sizes = np.zeros(count, np.int64)
    for starts, values in parts:
        sizes += values.shape[1] if starts is None else 4 + np.diff(starts)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for starts, values in parts:
        if starts is None:
            _put_fixed(data, at, np.ascontiguousarray(values))
        else:
            _put_texts(data, at, starts, values)
    hashes = np.empty(count, np.uint64)
    _hash(data, offsets, hashes)
    first = arrays[0] if len(arrays) > 1 else None
    return Keys(count, hashes=hashes, data=data, offsets=offsets, first=first)


def _part(array: pa.Array) -> tuple[Any, Any]:
    """``(None, uint8[n, width])`` of a column of fixed width; :func:`bytes_of` of strings and binaries."""
    fixed = _fixed(array)
    return bytes_of(array) if fixed is None else (None, fixed)


def bytes_of(array: pa.Array) -> tuple[Any, Any]:
    """``(int64[n+1] offsets, uint8 values)`` of strings or binaries. They cannot be written to."""
    kind = array.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or _is_large(kind)):
        raise DecodeError(f"a key column of type {kind} is not supported")
    array = array.cast(pa.large_binary()) if not pa.types.is_large_binary(kind) else array
    _, offsets, values = array.buffers()
    starts = np.frombuffer(offsets or bytes(8), np.int64)[array.offset : array.offset + len(array) + 1]
    return starts, np.frombuffer(values or b"", np.uint8)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


@njit(cache=True, nogil=True)
def _put_fixed(data: Any, at: Any, part: Any) -> None:
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            data[at[i] + j] = part[i, j]
        at[i] += part.shape[1]


@njit(cache=True, nogil=True)
def _put_texts(data: Any, at: Any, starts: Any, values: Any) -> None:
    """Write lengths and values. The caller has made room; ``starts`` are Arrow's, so they are inside ``values``."""
    for i in range(len(at)):
        start = starts[i]
        size = starts[i + 1] - start
        to = at[i]
        for j in range(4):
            data[to + j] = (size >> (8 * j)) & 255
        copy(data, to + 4, values, start, size)
        at[i] = to + 4 + size


@njit(cache=True, nogil=True)
def _hash(data: Any, offsets: Any, hashes: Any) -> None:
    """Hash each key to 64 bits: words are mixed in by multiplication (constants of SplitMix64)."""
    for i in range(len(hashes)):
        start, end = offsets[i], offsets[i + 1]
        value = np.uint64(end - start) * np.uint64(0x9E3779B97F4A7C15)
        at = start
        while at + 8 <= end:
            value = _mixed(value ^ u64(data, at))
            at += 8
        rest = np.uint64(0)
        shift = np.uint64(0)
        while at < end:
            rest |= np.uint64(u8(data, at)) << shift
            shift += np.uint64(8)
            at += 1
        hashes[i] = _mixed(value ^ rest)


@njit(cache=True, nogil=True, inline="always")
def _mixed(value: Any) -> Any:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
