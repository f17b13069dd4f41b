"""Build of a key index, with memory for one part of the file's rows at a time.

The keys of a part are sorted: a *run*. If each run begins where the one before ends, as in a file in the key's order,
they are put one after the other. Else they are merged, two at a time, until one is left. Keys, or hashes, that are
equal keep the order of their rows.

All arrays of more than one part are mapped from nameless files on local disk, so their pages are the system's, which
writes them to disk if memory is short. A process that ends, in whatever way, leaves no such file. If the disk is full
or cannot be written, the arrays are in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from mmap import mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from headgate.delta._keys import Keys
from headgate.errors import DecodeError
from headgate.files import make_private_folder

__all__ = ["Scratch", "index_of"]


class Scratch:
    """Arrays in nameless files of a folder; in memory if it takes no more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def empty(self, count: int, kind: Any) -> Any:
        """Return an array of ``count`` values of the type ``kind``."""
        size = count * np.dtype(kind).itemsize
        if not size:
            return np.empty(0, kind)
        try:
            make_private_folder(self._folder)
            with TemporaryFile(dir=self._folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error now, not a signal when it is used
                return np.frombuffer(mmap(file.fileno(), size), kind)
        except OSError:
            return np.empty(count, kind)

    def join(self, arrays: Sequence[Any]) -> Any:
        """Return the values of one or more arrays of one type, one array after the other."""
        return np.concatenate(arrays, out=self.empty(sum(map(len, arrays)), arrays[0].dtype))


class _Run(NamedTuple):
    values: Any
    """int64[n] or uint64[n], ascending: the keys, or their hashes."""
    rows: Any
    """uint32[n]."""


def index_of(parts: Iterable[Keys], scratch: Scratch) -> pa.Table:
    """Return the index (``_index``) of a file whose rows have these keys, in their order.

    :raises DecodeError: some parts are exact, and others are not.
    """
    following = iter(parts)
    first, second = next(following, None), next(following, None)
    if first is None:
        return _table(_Run(np.empty(0, np.int64), np.empty(0, np.uint32)))
    if second is None:
        return _table(_run(first, 0), first.offsets, first.data)
    return _joined(chain([first, second], following), scratch)


def _joined(parts: Iterable[Keys], scratch: Scratch) -> pa.Table:
    runs, data, offsets = list[_Run](), list[Any](), [np.zeros(1, np.int64)]
    count = size = 0
    for part in parts:
        runs.append(_Run(*(scratch.join([array]) for array in _run(part, count))))
        count += part.count
        if not part.is_exact:
            data.append(scratch.join([part.data]))
            offsets.append(scratch.join([part.offsets[1:] + size]))
            size += len(part.data)
    if data and len(data) < len(runs):
        raise DecodeError("some of the keys are exact numbers, and others bytes")
    run = _merged([run for run in runs if len(run.rows)] or runs[:1], scratch)
    return _table(run, scratch.join(offsets), scratch.join(data)) if data else _table(run)


def _table(run: _Run, offsets: Any = None, data: Any = None) -> pa.Table:
    columns = {"value": pa.array(run.values), "row": pa.array(run.rows)}
    if offsets is not None:
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        columns["key"] = pa.Array.from_buffers(pa.large_binary(), len(run.rows), buffers)
    return pa.table(columns)


def _run(part: Keys, first_row: int) -> _Run:
    return _Run(part.ascending, (part.order + first_row).astype(np.uint32))


def _merged(runs: Sequence[_Run], scratch: Scratch) -> _Run:
    """Merge one or more runs into one. If there are more, none is empty."""
    if all(before.values[-1] <= after.values[0] for before, after in pairwise(runs)):
        return _Run(*(scratch.join(arrays) for arrays in zip(*runs, strict=True)))
    while len(runs) > 1:
        pairs = [runs[at : at + 2] for at in range(0, len(runs), 2)]
        runs = [_merge(pair[0], pair[1], scratch) if len(pair) == 2 else pair[0] for pair in pairs]
    return runs[0]


def _merge(first: _Run, second: _Run, scratch: Scratch) -> _Run:
    """Merge two runs. Rows of ``first`` come before those of ``second`` with an equal value."""
    count = len(first.rows) + len(second.rows)
    merged = _Run(scratch.empty(count, first.values.dtype), scratch.empty(count, np.uint32))
    _merge_loop(first, second, merged)
    return merged


@njit(cache=True, nogil=True)
def _merge_loop(first: Any, second: Any, merged: Any) -> None:
    """``merged`` has room for the rows of both."""
    i = j = 0
    for at in range(len(merged.rows)):
        if i < len(first.rows) and (j == len(second.rows) or first.values[i] <= second.values[j]):
            merged.values[at] = first.values[i]
            merged.rows[at] = first.rows[i]
            i += 1
        elif j < len(second.rows):
            merged.values[at] = second.values[j]
            merged.rows[at] = second.rows[j]
            j += 1
