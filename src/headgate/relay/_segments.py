"""Segments: pieces of the event buffer, each a range of consecutive windows and their index.

A segment has one writer, which only appends, and many readers. Written bytes never change, and a reader works with the
content of one moment (:meth:`Segment.view`). So readers need no lock and may keep what they read: the memory of a
segment that the buffer has dropped is freed when its last reader is done.

With a folder, every window is also appended to a file of the segment. After a kill the written windows remain; an
incomplete window is detected by its checksums and dropped. Files hold only windows: a scan rebuilds the index.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.databus import scan_windows
from headgate.errors import ScnNotFoundError, TargetError
from headgate.files import file_errors, write_all

__all__ = ["Segment", "StoredSegment", "View", "Windows", "segment_memory", "stored_segments"]

_INDEX_BYTES: Final = 24
"""Bytes of memory for one window's index."""
_USUAL_WINDOW: Final = 128
"""Bytes of a small window. A segment has index entries for windows of this size; with smaller ones it is full before
its bytes are."""
_SUFFIX: Final = ".events"

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def _most_windows(size: int) -> int:
    return size // _USUAL_WINDOW + 1


def segment_memory(size: int) -> int:
    """Return the most bytes of memory, including the index, of a segment for ``size`` bytes of windows."""
    return size + _INDEX_BYTES * _most_windows(size)


@dataclass(frozen=True)
class Windows:
    """Whole windows in order; each array except ``data`` is int64[windows]."""

    data: Bytes
    scns: Int64s
    ends: Int64s
    """Where each window ends in ``data``; the first begins at 0."""
    stamps: Int64s
    """Timestamps of the windows' newest events, ns since 1970."""
    events: Int64s
    """Data events of each."""


class View(NamedTuple):
    """Content of a segment at one moment."""

    data: Bytes
    scns: Int64s
    ends: Int64s
    stamps: Int64s

    def start(self, window: int) -> int:
        """Return the offset of a window."""
        return int(self.ends[window - 1]) if window else 0


class Segment:
    """A segment in memory, being written.

    :param size: bytes it can hold.
    :param folder: of its file; None: no file.
    """

    def __init__(self, size: int, folder: Path | None, first_scn: int) -> None:
        self._data = np.empty(size, np.uint8)
        self._index = np.empty((3, _most_windows(size)), np.int64)
        self._windows = 0
        self.used = 0
        self._file: Any = None
        self.path: Path | None = None
        if folder is not None:
            self.path = folder / f"{first_scn:019d}{_SUFFIX}"
            with _target(self.path):
                folder.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("wb", buffering=0)

    def fits(self, windows: Windows, first: int) -> int:
        """Return how many of the windows from ``first`` on still fit."""
        begin = int(windows.ends[first - 1]) if first else 0
        last = int(np.searchsorted(windows.ends, begin + len(self._data) - self.used, "right"))
        return min(last - first, self._index.shape[1] - self._windows)

    @property
    def memory(self) -> int:
        """Bytes of memory, including the index."""
        return segment_memory(len(self._data))

    @property
    def first_scn(self) -> int:
        """SCN of the first window; −1: none yet."""
        return int(self._index[0, 0]) if self._windows else -1

    @property
    def last_scn(self) -> int:
        """SCN of the last window; −1: none yet."""
        windows = self._windows
        return int(self._index[0, windows - 1]) if windows else -1

    def append(self, windows: Windows, first: int, last: int) -> None:
        """Append ``windows[first:last]``, which fit.

        :raises TargetError: the file cannot be written.
        """
        begin = int(windows.ends[first - 1]) if first else 0
        data = windows.data[begin : int(windows.ends[last - 1])]
        if self._file is not None and self.path is not None:
            with _target(self.path):
                write_all(self._file, data.data)
        entries = slice(self._windows, self._windows + last - first)
        self._data[self.used : self.used + len(data)] = data
        self._index[0, entries] = windows.scns[first:last]
        self._index[1, entries] = windows.ends[first:last] - begin + self.used
        self._index[2, entries] = windows.stamps[first:last]
        self.used += len(data)
        self._windows += last - first  # published last: a reader sees whole windows

    def view(self) -> View:
        """Return the current content."""
        n = self._windows
        index = self._index
        return View(self._data, index[0, :n], index[1, :n], index[2, :n])

    def close(self) -> None:
        """End writing."""
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True)
class StoredSegment:
    """A segment whose bytes are in its file only."""

    path: Path
    size: int
    first_scn: int
    last_scn: int
    first_stamp: int

    def view(self) -> View:
        """Read the file.

        :raises ScnNotFoundError: the buffer has dropped it meanwhile.
        :raises TargetError: the file cannot be read.
        """
        with _target(self.path):
            try:
                data = np.fromfile(self.path, np.uint8, self.size)
            except FileNotFoundError:
                gone = self.last_scn
                raise ScnNotFoundError(f"the relay dropped SCN {gone} before it was read", scn=gone) from None
        scns, ends, stamps, _ = scan_windows(data)
        return View(data, scns, ends, stamps)


def stored_segments(folder: Path, until_scn: int) -> list[StoredSegment]:
    """Return the segments of an earlier process up to ``until_scn``, oldest first. Remove later windows, and a damaged
    one with all that follow, from the files.

    :raises TargetError: a file cannot be read or written.
    """
    segments: list[StoredSegment] = []
    intact = True
    for path in sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else []:
        with _target(path):
            data = np.fromfile(path, np.uint8)
            scns, ends, stamps, _ = scan_windows(data)
            kept = int(np.searchsorted(scns, until_scn, "right")) if intact else 0
            intact = intact and kept == len(scns) and (not kept or int(ends[-1]) == len(data))
            if not kept:
                path.unlink()
                continue
            size = int(ends[kept - 1])
            if size < len(data):
                with path.open("r+b") as file:
                    file.truncate(size)
        segments.append(StoredSegment(path, size, int(scns[0]), int(scns[kept - 1]), int(stamps[0])))
    return segments


def _target(path: Path) -> AbstractContextManager[None]:
    return file_errors(f"the relay's buffer {path} cannot be used", TargetError)
