"""Key index of a data file: built once, because a data file never changes, and mapped from local disk.

An index is a cache. It is built from the file's key columns; if it is lost, it is built again. It ignores deletion
vectors, so it is valid for every version of the table.

| an index file | bytes |
|---|---|
| magic, version of the layout | 8 |
| id of the machine's boot | 8 |
| CRC-32 of everything after the head | 8 |
| n: rows | 8 |
| kind: 1 exact keys, 2 bytes | 8 |
| bytes of all keys (kind 2) | 8 |
| kind 1: the keys, ascending | int64[n] |
| kind 2: hashes, ascending | uint64[n] |
| the row of each of these | uint32[n], padded to 8 |
| kind 2: offset of each row's key bytes, and their end | int64[n + 1] |
| kind 2: the keys' bytes | uint8 |

Numbers are little-endian. A file is written under a temporary name and renamed. After a failure of the machine a
renamed file may contain pages that were never written, so a file from an earlier boot is used only if its checksum is
right.

**Memory.** Arrays are mapped, so an index uses the system's page cache and no process memory. Building one takes some
30 bytes per row of the data file, and the bytes of its keys.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from numba import njit

from headgate.delta._keys import Keys
from headgate.delta._local_files import LocalFiles, boot_number
from headgate.errors import DecodeError

__all__ = ["IndexCache", "KeyIndex", "build_index"]

_MAGIC: Final = 0x3130584449474448
"""``HDGIDX01``"""
_HEAD: Final = 6
_EXACT, _BYTES = 1, 2
_ON_DISK_ROWS: Final = 1 << 16
_MERGE_SHARE: Final = 8
"""If there is more than one key per this many rows, both sides are walked instead of searching each key."""


@dataclass(frozen=True)
class KeyIndex:
    """The keys of one data file, and the rows that have them."""

    rows: int
    exact: Any = None
    """int64[rows], ascending."""
    hashes: Any = None
    """uint64[rows], ascending."""
    row_numbers: Any = None
    """uint32[rows]: the row of each key."""
    offsets: Any = None
    data: Any = None

    def find(self, keys: Keys, key_range: slice = slice(None)) -> tuple[Any, Any]:
        """``(int64[m], int64[m])``: for each row that has one of these keys, the key's number and the row's.

        :param key_range: which of the keys, as a range of ``keys.order``.
        :raises DecodeError: the keys are of another kind than the file's.
        """
        if (self.exact is not None) != keys.is_exact:
            raise DecodeError("the index has another kind of keys: exact numbers or bytes")
        order = keys.order[key_range]
        key_numbers, row_numbers = _pairs(keys.ascending[key_range], self.exact if keys.is_exact else self.hashes)
        key_numbers, row_numbers = order[key_numbers], self.row_numbers[row_numbers].astype(np.int64)
        if keys.is_exact:
            return key_numbers, row_numbers
        same = np.empty(len(key_numbers), np.bool_)
        _compare(keys.data, keys.offsets, key_numbers, self.data, self.offsets, row_numbers, same)
        return key_numbers[same], row_numbers[same]


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
        equal = end - start == rest - other and other >= 0 and rest <= len(stored)
        j = 0
        while equal and j < end - start:
            equal = data[start + j] == stored[other + j]
            j += 1
        same[i] = equal


def build_index(keys: Keys) -> KeyIndex:
    """Build the index of a file whose rows have these keys, in memory."""
    values = keys.exact if keys.is_exact else keys.hashes
    order = np.argsort(values, kind="stable")
    row_numbers = order.astype(np.uint32)
    if keys.is_exact:
        return KeyIndex(keys.count, exact=values[order], row_numbers=row_numbers)
    return KeyIndex(keys.count, hashes=values[order], row_numbers=row_numbers, offsets=keys.offsets, data=keys.data)


# --- on disk


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def write_index(out: Any, parts: Sequence[Keys]) -> None:
    """Write the index of a file whose rows have these keys, part by part, into an open file.

    :raises OSError: it cannot be written.
    """
    count = sum(part.count for part in parts)
    exact = all(part.is_exact for part in parts)
    bytes_ = 0 if exact else sum(len(part.data) for part in parts)
    checksum = 0
    out.write(bytes(8 * _HEAD))

    def put(array: Any) -> None:
        nonlocal checksum
        data = np.ascontiguousarray(array).tobytes()
        checksum = zlib.crc32(data, checksum)
        out.write(data)
        rest = bytes(_padded(len(data)) - len(data))
        checksum = zlib.crc32(rest, checksum)
        out.write(rest)

    values, row_numbers = _sorted([part.exact if exact else part.hashes for part in parts])
    put(values)
    put(row_numbers)
    if not exact:
        starts = np.zeros(count + 1, np.int64)
        row = at = 0
        for part in parts:
            starts[row : row + part.count] = part.offsets[:-1] + at
            row += part.count
            at += len(part.data)
        starts[count] = at
        put(starts)
        joined = parts[0].data if len(parts) == 1 else np.concatenate([part.data for part in parts])
        put(joined)
    out.seek(0)
    head = [_MAGIC, boot_number(), checksum, count, _EXACT if exact else _BYTES, bytes_]
    out.write(np.array(head, np.uint64).tobytes())


def _sorted(parts: Sequence[Any]) -> tuple[Any, Any]:
    """Return all values sorted, and the row of each: uint32."""
    values = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if not len(values):
        return values, np.empty(0, np.uint32)
    if bool((values[1:] >= values[:-1]).all()):
        return values, np.arange(len(values), dtype=np.uint32)
    order = np.argsort(values, kind="stable").astype(np.uint32)
    return values[order], order


def read_index(path: Path) -> KeyIndex | None:
    """Map the index in a file; None if the file is missing or damaged."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError):  # ValueError: an empty file
        return None
    if len(data) < 8 * _HEAD:
        return None
    magic, start, checksum, count, kind, bytes_ = (int(word) for word in data[: 8 * _HEAD].view(np.uint64))
    rest = data[8 * _HEAD :]
    size = 8 * count + _padded(4 * count) + (_padded(bytes_) + 8 * (count + 1) if kind == _BYTES else 0)
    if magic != _MAGIC or kind not in (_EXACT, _BYTES) or size != len(rest):
        return None
    if (start != boot_number() or not start) and zlib.crc32(rest.data) != checksum:
        return None
    row_numbers_at = 8 * count
    row_numbers = rest[row_numbers_at : row_numbers_at + 4 * count].view(np.uint32)
    if kind == _EXACT:
        return KeyIndex(count, exact=rest[:row_numbers_at].view(np.int64), row_numbers=row_numbers)
    offsets_at = row_numbers_at + _padded(4 * count)
    data_at = offsets_at + 8 * (count + 1)
    return KeyIndex(
        count,
        hashes=rest[:row_numbers_at].view(np.uint64),
        row_numbers=row_numbers,
        offsets=rest[offsets_at:data_at].view(np.int64),
        data=rest[data_at : data_at + bytes_],
    )


class IndexCache:
    """Key indexes of data files on this machine, about ``most`` bytes at most; the least recently used are removed.

    Indexes of small data files are only kept in memory: building one takes no longer than reading it.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.files = LocalFiles(folder, ".keys", most)
        self._open: dict[str, KeyIndex] = {}
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
        mark = self.mark(table, file, key)
        with self._lock:
            known = self._open.get(mark)
        if known is not None:
            return known
        path = self.files.path(mark)
        index = read_index(path)
        if index is None:
            with self._marked(table):
                index = self._make(path, list(keys()))
        else:
            self.files.touch(path)
        with self._lock:
            self._open[mark] = index
        return index

    def forget(self, table: str, file: str, key: Sequence[str]) -> None:
        """Remove the index of a data file that is no longer part of its table."""
        mark = self.mark(table, file, key)
        with self._lock:
            known = self._open.pop(mark, None)
        if known is None or known.rows >= _ON_DISK_ROWS:
            self.files.path(mark).unlink(missing_ok=True)

    def _make(self, path: Path, parts: list[Keys]) -> KeyIndex:
        index = None
        if sum(part.count for part in parts) >= _ON_DISK_ROWS:
            with contextlib.suppress(OSError):  # disk full or not writable: keep it in memory
                with self.files.create(path) as out:
                    write_index(out, parts)
                index = read_index(path)
                for other in self.files.trim(path):
                    with self._lock:
                        self._open.pop(other, None)
        return index if index is not None else build_index(_joined(parts))

    @contextlib.contextmanager
    def _marked(self, table: str) -> Iterator[None]:
        """Count an index of this table as being built."""
        with self._lock:
            self._building[table] += 1
        try:
            yield
        finally:
            with self._lock:
                self._building -= Counter({table: 1})  # drops counts of 0

    @staticmethod
    def mark(table: str, file: str, key: Sequence[str]) -> str:
        """Return the name of a file's index; the same if the file is of a successor of the table, or was."""
        folder, _, name = f"{table}/{file}".rpartition("/")
        return hashlib.sha256("\0".join([folder, name, *key]).encode()).hexdigest()[:40]


def _joined(parts: Sequence[Keys]) -> Keys:
    if len(parts) == 1:
        return parts[0]
    count = sum(part.count for part in parts)
    if all(part.is_exact for part in parts):
        return Keys(count, exact=np.concatenate([np.empty(0, np.int64), *(part.exact for part in parts)]))
    offsets = [np.zeros(1, np.int64)]
    at = 0
    for part in parts:
        offsets.append(part.offsets[1:] + at)
        at += len(part.data)
    return Keys(
        count,
        hashes=np.concatenate([part.hashes for part in parts]),
        data=np.concatenate([part.data for part in parts]),
        offsets=np.concatenate(offsets),
    )
