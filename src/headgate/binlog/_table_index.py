"""The table maps that a scan has met: table id → slot, with the map's bytes, so that a repeated one costs a comparison.

TABLE_MAP and row events begin with a table id (6 bytes) and flags (2 bytes). A table id belongs to one run of a server;
each statement brings the maps of its tables again.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from headgate._memory import u64

__all__ = ["TABLE_HEADER", "TableIndex", "Tables", "find_table", "is_known", "uint_le"]

TABLE_HEADER: Final = 8
"""Bytes of a table id and the flags behind it."""


class Tables(NamedTuple):
    """What a :class:`TableIndex` holds, for the kernels."""

    key: Any
    """int64[2^k]: an open-addressing hash of table ids; -1: free."""
    value: Any
    """int64[2^k]: which entry of the following arrays a table id has."""
    slot: Any
    """int64[m]: the number that the caller has given the table."""
    at: Any
    """int64[m]: where the map's bytes begin in ``pool``."""
    size: Any
    """int64[m]: how many they are."""
    pool: Any
    """uint8"""


@njit(cache=True, nogil=True)
def uint_le(buf: Any, p: int, size: int) -> Any:
    """The little-endian number in ``size`` bytes at ``p``."""
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(buf[p + i]) << (8 * i)
    return value


@njit(cache=True, nogil=True)
def _same(a: Any, p: int, b: Any, q: int, size: int) -> bool:
    """Whether ``size`` bytes are equal; eight at a time."""
    i = 0
    while i + 8 <= size:
        if u64(a, p + i) != u64(b, q + i):
            return False
        i += 8
    while i < size:
        if a[p + i] != b[q + i]:
            return False
        i += 1
    return True


@njit(cache=True, nogil=True)
def find_table(tables: Tables, table_id: int) -> Any:
    """The entry of a table id, -1 if there is none. The hash's size is a power of two."""
    mask = tables.key.shape[0] - 1
    i = (table_id * 0x9E3779B1) & mask
    while tables.key[i] >= 0:
        if tables.key[i] == table_id:
            return tables.value[i]
        i = (i + 1) & mask
    return -1


@njit(cache=True, nogil=True)
def is_known(tables: Tables, buf: Any, p: int, end: int) -> bool:
    """Whether the TABLE_MAP event whose body is ``buf[p:end]`` was met before, byte for byte."""
    size = end - p - TABLE_HEADER
    at = find_table(tables, uint_le(buf, p, 6))
    return bool(at >= 0 and tables.size[at] == size and _same(buf, p + TABLE_HEADER, tables.pool, tables.at[at], size))


class TableIndex:
    """The index of one dump."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start over: every table has to be put again."""
        self.key = np.full(256, -1, np.int64)
        self.value = np.zeros(256, np.int64)
        self.slot = np.zeros(64, np.int64)
        self.at = np.zeros(64, np.int64)
        self.size = np.zeros(64, np.int64)
        self.pool = np.zeros(1 << 16, np.uint8)
        self._count = 0
        self._used = 0

    def put(self, table_id: int, body: bytes, slot: int) -> None:
        """Map ``table_id`` to ``slot``; ``body`` is the event's body behind id and flags."""
        if self._count >= 1 << 14:
            # Table ids are never used again once a table was flushed: start over rather than grow for ever. What is
            # still in use comes back with its next table map (each statement brings its own).
            self.forget()
        while self._used + len(body) + 8 > len(self.pool):
            self.pool = np.concatenate([self.pool, np.zeros_like(self.pool)])
        if self._count == len(self.slot):
            self.slot, self.at, self.size = (np.concatenate([a, a]) for a in (self.slot, self.at, self.size))
        if 2 * self._count >= len(self.key):
            self._rehash()
        entry = self._count
        self.pool[self._used : self._used + len(body)] = np.frombuffer(body, np.uint8)
        self.slot[entry], self.at[entry], self.size[entry] = slot, self._used, len(body)
        self._insert(table_id, entry)
        self._used += len(body)
        self._count += 1

    def for_kernel(self) -> Tables:
        """The arrays as they are now; :meth:`put` and :meth:`forget` may replace them."""
        return Tables(self.key, self.value, self.slot, self.at, self.size, self.pool)

    def _insert(self, table_id: int, entry: int) -> None:
        mask = len(self.key) - 1
        i = table_id * 0x9E3779B1 & mask
        while self.key[i] >= 0 and self.key[i] != table_id:
            i = i + 1 & mask
        self.key[i], self.value[i] = table_id, entry

    def _rehash(self) -> None:
        old = [(int(k), int(v)) for k, v in zip(self.key, self.value, strict=True) if k >= 0]
        self.key = np.full(2 * len(self.key), -1, np.int64)
        self.value = np.zeros(len(self.key), np.int64)
        for table_id, entry in old:
            self._insert(table_id, entry)
