"""SipHash-2-4 with 128 bits of output, of many messages at once: kernels over one word of every message.

A message is a sequence of 64-bit words (its bytes in little-endian order). The state of message i is ``state[0][i] …
state[3][i]``. A kernel absorbs the next word, or the next words, of all messages. So a table's rows are hashed column
by column, in loops that a compiler turns into vector instructions.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), and the authors' reference code for the
128-bit form. A message of n words has 8n bytes: the last hashed word holds the number of bytes modulo 256 in its
highest byte.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate.kernels import u64

__all__ = ["State", "Words", "absorb", "absorb_texts", "begin", "finish"]

Words: TypeAlias = npt.NDArray[np.uint64]
State: TypeAlias = tuple[Words, Words, Words, Words]

_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
"""``somepseudorandomlygeneratedbytes``"""
_WIDE = 0xEE
"""The 128-bit form mixes this into ``v1`` at the beginning, and into ``v2`` at the end."""
_SECOND_HALF = np.uint64(0xDD)


def begin(key: tuple[int, int], messages: int) -> State:
    """Return the state of ``messages`` messages before their first words.

    :param key: two 64-bit numbers.
    """
    key_words = (key[0], key[1] ^ _WIDE, key[0], key[1])
    v0, v1, v2, v3 = (np.full(messages, a ^ b, np.uint64) for a, b in zip(_INITIAL, key_words, strict=True))
    return v0, v1, v2, v3


@njit(inline="always")
def _round(a: Any, b: Any, c: Any, d: Any) -> Any:
    a = a + b
    b = ((b << np.uint64(13)) | (b >> np.uint64(51))) ^ a
    a = (a << np.uint64(32)) | (a >> np.uint64(32))
    c = c + d
    d = ((d << np.uint64(16)) | (d >> np.uint64(48))) ^ c
    a = a + d
    d = ((d << np.uint64(21)) | (d >> np.uint64(43))) ^ a
    c = c + b
    b = ((b << np.uint64(17)) | (b >> np.uint64(47))) ^ c
    c = (c << np.uint64(32)) | (c >> np.uint64(32))
    return a, b, c, d


@njit(cache=True, nogil=True)
def absorb(v0: Any, v1: Any, v2: Any, v3: Any, words: Any) -> None:
    """Absorb ``words[i]`` as the next word of message i."""
    for i in range(len(v0)):
        word = words[i]
        a, b, c, d = v0[i], v1[i], v2[i], v3[i] ^ word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        v0[i], v1[i], v2[i], v3[i] = a ^ word, b, c, d


@njit(cache=True, nogil=True)
def absorb_texts(v0: Any, v1: Any, v2: Any, v3: Any, data: Any, starts: Any, lengths: Any) -> None:
    """Absorb ``data[starts[i]:starts[i] + lengths[i]]``, zero-padded to whole words, into message i.

    :param data: uint8[n]; the caller has checked that all of these ranges are inside it.
    """
    for i in range(len(v0)):
        at, left = starts[i], lengths[i]
        a, b, c, d = v0[i], v1[i], v2[i], v3[i]
        while left > 0:
            if left >= 8:
                word = u64(data, at)
            elif at + 8 <= len(data):
                word = u64(data, at) & ((np.uint64(1) << np.uint64(8 * left)) - np.uint64(1))
            else:
                word = np.uint64(0)
                for k in range(left):
                    word |= np.uint64(data[at + k]) << np.uint64(8 * k)
            d ^= word
            a, b, c, d = _round(a, b, c, d)
            a, b, c, d = _round(a, b, c, d)
            a ^= word
            at += 8
            left -= 8
        v0[i], v1[i], v2[i], v3[i] = a, b, c, d


def finish(state: State, words: npt.NDArray[np.int64]) -> tuple[Words, Words]:
    """Return the two halves of the messages' digests, the lower one (the first eight bytes) first.

    :param state: overwritten.
    :param words: number of words of each message.
    """
    absorb(*state, ((8 * words) & 0xFF).astype(np.uint64) << np.uint64(56))
    low, high = np.empty(len(words), np.uint64), np.empty(len(words), np.uint64)
    _finish(*state, low, high)
    return low, high


@njit(cache=True, nogil=True)
def _finish(v0: Any, v1: Any, v2: Any, v3: Any, low: Any, high: Any) -> None:
    for i in range(len(v0)):
        a, b, c, d = v0[i], v1[i], v2[i] ^ np.uint64(_WIDE), v3[i]
        for _ in range(4):
            a, b, c, d = _round(a, b, c, d)
        low[i] = a ^ b ^ c ^ d
        b ^= _SECOND_HALF
        for _ in range(4):
            a, b, c, d = _round(a, b, c, d)
        high[i] = a ^ b ^ c ^ d
