"""Avro's binary form of numbers (Avro 1.12 specification, "Binary Encoding"; decimals: "Logical Types")."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import njit

__all__ = ["decimal_bytes", "decimal_text_bytes", "float_blocks", "put_varint", "varint_size", "zigzag"]

_SEVEN: Final = np.uint64(7)
_LOW: Final = np.uint64(127)
_LIMIT: Final = np.uint64(128)


@njit(cache=True, nogil=True)
def zigzag(value: Any) -> Any:
    """Return a signed number as Avro maps it to an unsigned one: 0, -1, 1, -2 are 0, 1, 2, 3."""
    return np.uint64((value << 1) ^ (value >> 63))


@njit(cache=True, nogil=True)
def varint_size(word: Any) -> int:
    """Return the bytes that a varint takes."""
    size = 1
    while word >= _LIMIT:
        word >>= _SEVEN
        size += 1
    return size


@njit(cache=True, nogil=True)
def put_varint(out: Any, at: Any, word: Any) -> Any:
    """Write a varint; return where it ends."""
    while word >= _LIMIT:
        out[at] = np.uint8((word & _LOW) | _LIMIT)
        word >>= _SEVEN
        at += 1
    out[at] = np.uint8(word)
    return at + 1


@njit(cache=True, nogil=True)
def _put_shortest(words: Any, first: int, count: int, out: Any, at: Any) -> Any:
    """Write a number in two's complement in the fewest bytes, the highest first; return where it ends.

    :param words: 32 bits each; the number has ``count`` from ``first`` on, the lowest first.
    """
    last = first + count - 1
    fill = 0xFFFFFFFF if words[last] >> 31 else 0
    while last > first and words[last] == fill and words[last - 1] >> 31 == fill & 1:
        last -= 1
    shift = 24
    while shift > 0 and (words[last] ^ fill) >> shift - 1 == 0:  # a byte, and the first bit of the next, are all sign
        shift -= 8
    for k in range(last, first - 1, -1):
        while shift >= 0:
            out[at] = words[k] >> shift & 255
            at += 1
            shift -= 8
        shift = 24
    return at


@njit(cache=True, nogil=True)
def _put_decimals(words: Any, offsets: Any, out: Any) -> None:
    for i in range(offsets.shape[0] - 1):
        offsets[i + 1] = _put_shortest(words, 4 * i, 4, out, offsets[i])


def decimal_bytes(array: pa.Array) -> pa.Array:
    """Return the unscaled values of decimal128 as the fewest bytes in two's complement: binary, nulls undefined."""
    words = np.zeros(4 * len(array), np.uint32)
    buffer = array.buffers()[1]
    if buffer is not None:
        words = np.frombuffer(buffer, np.uint32)[4 * array.offset : 4 * (array.offset + len(array))].copy()
    offsets, out = np.zeros(len(array) + 1, np.int32), np.empty(16 * len(array), np.uint8)
    _put_decimals(words, offsets, out)
    return pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


_LIMBS: Final = 8
"""32-bit words of a number with 65 digits, MySQL's most, and its sign: 217 bits."""


@njit(cache=True, nogil=True)
def _append_digit(words: Any, digit: Any) -> None:
    carry = digit
    for w in range(_LIMBS):
        carry += words[w] * 10
        words[w] = carry & 0xFFFFFFFF
        carry >>= 32


@njit(cache=True, nogil=True)
def _put_decimal_texts(starts: Any, data: Any, scale: int, offsets: Any, out: Any) -> None:
    words = np.zeros(_LIMBS, np.int64)
    for i in range(starts.shape[0] - 1):
        words[:] = 0
        is_negative = False
        missing = -1  # digits after the point that the text does not have; -1: no point yet
        for k in range(starts[i], starts[i + 1]):
            if data[k] == 45:
                is_negative = True
            elif data[k] == 46:
                missing = scale
            else:
                _append_digit(words, np.int64(data[k]) - 48)
                missing -= int(missing > 0)
        for _ in range(scale if missing < 0 else missing):
            _append_digit(words, np.int64(0))
        if is_negative:
            carry = np.int64(1)
            for w in range(_LIMBS):
                carry += words[w] ^ 0xFFFFFFFF
                words[w] = carry & 0xFFFFFFFF
                carry >>= 32
        offsets[i + 1] = _put_shortest(words, 0, _LIMBS, out, offsets[i])


def decimal_text_bytes(array: pa.Array, scale: int) -> pa.Array:
    """Return decimals that are text, of at most 65 digits, as :func:`decimal_bytes`.

    :param scale: digits after the point; a text may have fewer.
    """
    starts, data = _text_buffers(array)
    offsets, out = np.zeros(len(array) + 1, np.int32), np.empty(4 * _LIMBS * len(array), np.uint8)
    _put_decimal_texts(starts, data, scale, offsets, out)
    return pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _text_buffers(array: pa.Array) -> tuple[Any, Any]:
    """Return the offsets of strings or lists, int64[rows + 1], and a string's bytes."""
    starts: Any = np.zeros(1, np.int64)
    if len(array):
        starts = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    return starts.astype(np.int64), np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


@njit(cache=True, nogil=True)
def _put_float_blocks(starts: Any, data: Any, offsets: Any, out: Any) -> None:
    at = 0
    for i in range(starts.shape[0] - 1):
        offsets[i] = at
        count = starts[i + 1] - starts[i]
        if count:
            at = put_varint(out, at, zigzag(count))
            for k in range(4 * starts[i], 4 * starts[i + 1]):
                out[at] = data[k]
                at += 1
        out[at] = 0
        at += 1
    offsets[starts.shape[0] - 1] = at


def float_blocks(array: pa.Array) -> pa.Array:
    """Return lists of float32 as Avro's arrays: one block, and the empty one that ends them; nulls undefined."""
    starts = np.zeros(1, np.int64)
    if len(array):
        bounds = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        starts = bounds.astype(np.int64)
    values = array.values
    numbers = np.ascontiguousarray(np.asarray(values.fill_null(0) if values.null_count else values), np.float32)
    offsets = np.zeros(len(array) + 1, np.int32)
    out = np.empty(4 * int(starts[-1] - starts[0]) + 11 * len(array), np.uint8)
    _put_float_blocks(starts, numbers.view(np.uint8), offsets, out)
    return pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(out)])
