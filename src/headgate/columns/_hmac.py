"""HMAC-SHA256 of many values, as hexadecimal text (RFC 2104; FIPS 180-4, "Secure Hash Standard", section 6.2)."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.kernels import u8

__all__ = ["hmac_hex"]

_HEX_LETTERS: Final = 64
_BLOCK: Final = 64
"""Bytes of a block of SHA-256."""


def _fractions(count: int, degree: int) -> npt.NDArray[np.uint64]:
    """Return the first 32 bits of the fractions of the first primes' roots, the constants of SHA-256."""
    primes = [n for n in range(2, 312) if all(n % k for k in range(2, int(n**0.5) + 1))][:count]
    return np.array([_root(prime << 32 * degree, degree) & 0xFFFFFFFF for prime in primes], np.uint64)


def _root(value: int, degree: int) -> int:
    """Return the whole part of a root."""
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low


_START: Final = _fractions(8, 2)
_ROUNDS: Final = _fractions(64, 3)


@njit(cache=True, nogil=True)
def _turned(word: Any, right: Any, left: Any) -> Any:
    """Return a 32-bit word rotated right; ``left`` is 32 - ``right``."""
    return (word >> right | word << left) & np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _compress(state: Any, block: Any, rounds: Any, words: Any) -> None:
    """Add a block of 64 bytes to the state: uint64[8], each below 2**32. ``words`` is room for uint64[64]."""
    mask = np.uint64(0xFFFFFFFF)
    n2, n3, n6, n7 = np.uint64(2), np.uint64(3), np.uint64(6), np.uint64(7)
    n10, n11, n13, n14 = np.uint64(10), np.uint64(11), np.uint64(13), np.uint64(14)
    n15, n17, n18, n19 = np.uint64(15), np.uint64(17), np.uint64(18), np.uint64(19)
    n21, n22, n25, n26, n30 = np.uint64(21), np.uint64(22), np.uint64(25), np.uint64(26), np.uint64(30)
    for t in range(16):
        word = np.uint64(0)
        for k in range(4):
            word = word << np.uint64(8) | np.uint64(block[4 * t + k])
        words[t] = word
    for t in range(16, 64):
        x, y = words[t - 15], words[t - 2]
        low = _turned(x, n7, n25) ^ _turned(x, n18, n14) ^ x >> n3
        high = _turned(y, n17, n15) ^ _turned(y, n19, n13) ^ y >> n10
        words[t] = (words[t - 16] + low + words[t - 7] + high) & mask
    a, b, c, d, e, f, g, h = state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]
    for t in range(64):
        sums = _turned(e, n6, n26) ^ _turned(e, n11, n21) ^ _turned(e, n25, n7)
        first = h + sums + (e & f ^ (e ^ mask) & g) + rounds[t] + words[t]
        sums = _turned(a, n2, n30) ^ _turned(a, n13, n19) ^ _turned(a, n22, n10)
        second = sums + (a & b ^ a & c ^ b & c)
        h, g, f, e = g, f, e, (d + first) & mask
        d, c, b, a = c, b, a, (first + second) & mask
    for k, word in enumerate((a, b, c, d, e, f, g, h)):
        state[k] = (state[k] + word) & mask


@njit(cache=True, nogil=True)
def _finish(state: Any, buf: Any, at: int, length: int, before: int, rounds: Any, block: Any, words: Any) -> None:
    """Add ``buf[at:at + length]`` and the padding to a state that ``before`` bytes (whole blocks) made."""
    whole = length // 64
    for k in range(whole):
        for i in range(64):
            block[i] = u8(buf, at + 64 * k + i)
        _compress(state, block, rounds, words)
    rest = length - 64 * whole
    for i in range(64):
        block[i] = u8(buf, at + 64 * whole + i) if i < rest else (128 if i == rest else 0)
    if rest >= 56:
        _compress(state, block, rounds, words)
        for i in range(64):
            block[i] = 0
    bits = (before + length) * 8
    for i in range(8):
        block[63 - i] = bits >> 8 * i & 255
    _compress(state, block, rounds, words)


@njit(cache=True, nogil=True)
def _hashes(offsets: Any, data: Any, valid: Any, inner: Any, outer: Any, rounds: Any, out: Any) -> None:
    """Write the HMAC of each valid value, 64 hexadecimal letters, to ``out``, one after another."""
    state, words = np.empty(8, np.uint64), np.empty(64, np.uint64)
    block, digest = np.empty(64, np.uint8), np.empty(32, np.uint8)
    q = 0
    for row in range(len(valid)):
        if not valid[row]:
            continue
        state[:] = inner
        _finish(state, data, offsets[row], offsets[row + 1] - offsets[row], 64, rounds, block, words)
        for k in range(32):
            digest[k] = np.int64(state[k >> 2]) >> 8 * (3 - (k & 3)) & 255
        state[:] = outer
        _finish(state, digest, 0, 32, 64, rounds, block, words)
        for k in range(64):
            nibble = np.int64(state[k >> 3]) >> 4 * (7 - (k & 7)) & 15
            out[q + k] = nibble + (48 if nibble < 10 else 87)
        q += 64


def _state_after(block: bytes) -> npt.NDArray[np.uint64]:
    state = _START.copy()
    _compress(state, np.frombuffer(block, np.uint8), _ROUNDS, np.empty(64, np.uint64))
    return state


def hmac_hex(values: pa.Array, key: bytes) -> pa.Array:
    """Return the HMAC-SHA256 of each value's bytes under ``key``, in lower-case hexadecimal; NULL stays NULL.

    :param values: string[n] or binary[n].
    """
    short = key if len(key) <= _BLOCK else hashlib.sha256(key).digest()
    padded = np.frombuffer(short.ljust(_BLOCK, b"\0"), np.uint8)
    inner, outer = (_state_after((padded ^ np.uint8(pad)).tobytes()) for pad in (0x36, 0x5C))
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = (
        np.frombuffer(offsets_buffer, np.int32, len(values) + 1, values.offset * 4) if len(values) else _NO_OFFSETS
    )
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else _NO_BYTES
    valid = np.asarray(values.is_valid())
    out = np.empty(_HEX_LETTERS * int(valid.sum()), np.uint8)
    _hashes(offsets, data, valid, inner, outer, _ROUNDS, out)
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(valid * np.int32(_HEX_LETTERS), out=ends[1:])
    bitmap = values.is_valid().buffers()[1] if values.null_count else None
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(out), bitmap, values.null_count)


_NO_OFFSETS: Final = np.zeros(1, np.int32)
_NO_BYTES: Final = np.zeros(1, np.uint8)
