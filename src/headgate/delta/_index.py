"""Key index of a data file: built once, because a data file never changes, and mapped from local disk.

It is built from the file's key columns. It ignores deletion vectors, so it is valid for every version of the table.

| a column of the index | of exact keys | of other keys |
|---|---|---|
| ``value`` | the keys, ascending | their hashes (``_keys``), ascending |
| ``row`` | the row of each key | the row of each hash |
| ``key`` | | the keys' bytes, in the order of the rows |

**Memory.** An index is mapped (``_local_tables``), so it uses the system's page cache and no process memory. Building
one (``_index_build``) takes memory for a million rows, however many the data file has.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numba import njit

from headgate.delta._index_build import Scratch, index_of
from headgate.delta._keys import Keys, bytes_of, whole
from headgate.delta._local_tables import LocalTables
from headgate.errors import DecodeError
from headgate.kernels import same_bytes

__all__ = ["IndexCache", "KeyIndex"]

_MERGE_SHARE: Final = 8
"""If there is more than one key per this many rows, both sides are walked instead of searching each key."""


@dataclass(frozen=True)
class KeyIndex:
    """The keys of one data file, and the rows that have them."""

    values: Any
    """int64[rows] or uint64[rows]."""
    row_numbers: Any
    """uint32[rows]."""
    offsets: Any = None
    data: Any = None
    """int64[rows + 1], uint8[n]: the keys' bytes; None: they are exact."""

    @classmethod
    def of(cls, table: pa.Table) -> KeyIndex:
        """Return the index in a table."""
        values, rows, *keys = map(whole, table.columns)
        return cls(values.to_numpy(), rows.to_numpy(), *(bytes_of(keys[0]) if keys else ()))

    def find(self, keys: Keys, key_range: slice = slice(None)) -> tuple[Any, Any]:
        """``(int64[m], int64[m])``: for each row that has one of these keys, the key's number and the row's.

        :param key_range: which of the keys, as a range of ``keys.order``.
        :raises DecodeError: the keys are of another kind than the file's.
        """
        if self.values.dtype != keys.ascending.dtype and len(self.values):
            raise DecodeError("the index has another kind of keys: exact numbers or bytes")
        order = keys.order[key_range]
        key_numbers, row_numbers = _pairs(keys.ascending[key_range], self.values)
        key_numbers, row_numbers = order[key_numbers], self.row_numbers[row_numbers].astype(np.int64)
        same = self._are_equal(keys, key_numbers, row_numbers)
        return (key_numbers, row_numbers) if same is None else (key_numbers[same], row_numbers[same])

    def _are_equal(self, keys: Keys, key_numbers: Any, row_numbers: Any) -> Any:
        """bool[n]: whether keys and rows with equal values are equal; None: all are."""
        if self.data is None:
            return None if keys.is_exact else _high_halves(keys.data)[key_numbers] == 0
        if keys.is_exact:
            return _high_halves(self.data)[row_numbers] == 0
        same = np.empty(len(key_numbers), np.bool_)
        _compare(keys.data, keys.offsets, key_numbers, self.data, self.offsets, row_numbers, same)
        return same


def _high_halves(data: Any) -> Any:
    """uint64[n] of the bytes of n decimals."""
    return data.view(np.uint64)[1::2]


def _pairs(sought: Any, stored: Any) -> tuple[Any, Any]:
    """Every pair of equal values: ``(index in sought, index in stored)``. Both inputs are ascending."""
    if len(sought) * _MERGE_SHARE > len(stored):
        count = _merge(sought, stored, np.empty(0, np.int64), np.empty(0, np.int64))
        sought_indexes, stored_indexes = np.empty(count, np.int64), np.empty(count, np.int64)
        _merge(sought, stored, sought_indexes, stored_indexes)
        return sought_indexes, stored_indexes
    first = np.searchsorted(stored, sought, "left")
    hit = first < len(stored)
    hit[hit] = stored[first[hit]] == sought[hit]
    sought_indexes = np.flatnonzero(hit)
    if not len(sought_indexes):
        return sought_indexes, sought_indexes
    last = np.searchsorted(stored, sought[sought_indexes], "right")
    counts = last - first[sought_indexes]
    ends = np.cumsum(counts)
    steps = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
    return np.repeat(sought_indexes, counts), np.repeat(first[sought_indexes], counts) + steps


@njit(cache=True, nogil=True)
def _merge(sought: Any, stored: Any, sought_indexes: Any, stored_indexes: Any) -> int:
    """Walk both inputs: write as many pairs as there is room for, and return the number of pairs."""
    count = 0
    j = 0
    for i in range(len(sought)):
        while j < len(stored) and stored[j] < sought[i]:
            j += 1
        k = j
        while k < len(stored) and stored[k] == sought[i]:
            if count < len(sought_indexes):
                sought_indexes[count] = i
                stored_indexes[count] = k
            count += 1
            k += 1
    return count


@njit(cache=True, nogil=True)
def _compare(data: Any, offsets: Any, key_numbers: Any, stored: Any, stored_offsets: Any, rows: Any, same: Any) -> None:
    """Set ``same[i]``: whether key ``key_numbers[i]`` has the bytes of row ``rows[i]``."""
    for i in range(len(key_numbers)):
        start, end = offsets[key_numbers[i]], offsets[key_numbers[i] + 1]
        other, rest = stored_offsets[rows[i]], stored_offsets[rows[i] + 1]
        fits = end - start == rest - other and other >= 0 and rest <= len(stored)
        same[i] = fits and same_bytes(data, start, stored, other, end - start)


class IndexCache:
    """Key indexes of data files on this machine, about ``most`` bytes at most."""

    def __init__(self, folder: Path, most: int) -> None:
        self.files = LocalTables(folder, ".keys", most, KeyIndex.of)
        self._scratch = Scratch(folder)
        self._lock = Lock()
        self._building: Counter[str] = Counter()  # by table: indexes that are being built

    @property
    def tables_building(self) -> int:
        """Number of tables for which an index is being built."""
        with self._lock:
            return len(self._building)

    def get(self, table: str, file: str, key: Sequence[str], keys: Callable[[], Iterable[Keys]]) -> KeyIndex:
        """Return the index of a data file; build it if it is missing.

        :param table: the table's path.
        :param file: the data file's path in its log.
        :param key: the key's columns.
        :param keys: returns the keys of the file's rows, in order, part by part.
        """

        def build() -> pa.Table:
            with self._lock:
                self._building[table] += 1
            try:
                return index_of(keys(), self._scratch)
            finally:
                with self._lock:
                    self._building -= Counter({table: 1})  # drops counts of 0

        return self.files.get(self.mark(table, file, key), build)

    def forget(self, table: str, file: str, key: Sequence[str]) -> None:
        """Remove the index of a data file that is no longer part of its table."""
        self.files.forget(self.mark(table, file, key))

    @staticmethod
    def mark(table: str, file: str, key: Sequence[str]) -> str:
        """Return the name of a file's index; the same if the file is of a successor of the table, or was."""
        folder, _, name = f"{table}/{file}".rpartition("/")
        return hashlib.sha256("\0".join([folder, name, *key]).encode()).hexdigest()[:40]
