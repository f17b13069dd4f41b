"""Segments: pieces of the event buffer, each a range of consecutive windows and their index.

A segment has one writer, which only appends, and many readers. Written bytes never change, and a reader works with the
content of one moment (:meth:`BufferSegment.view`). So readers need no lock and may keep what they read: the memory of a
segment that the buffer has dropped is freed when its last reader is done.

With a folder, every window is also appended to a file of the segment. After a kill the written windows remain; an
incomplete window is detected by its checksums and dropped. Files are synced before a state names their windows, so that
a crash of the machine loses none that the state counts on. Files hold only windows: a scan rebuilds the index.

A file's name has the segment's first SCN and the last one before it, so files form a chain. A file that is missing or
damaged, by whatever hand, breaks it: what comes before is dropped, and readers never skip a gap unawares.
"""

from __future__ import annotations

import contextlib
import logging
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.errors import ScnNotFoundError, TargetError
from headgate.files import file_errors, open_private, sync, write_all
from headgate.relay.databus import scan_windows

__all__ = ["BufferSegment", "Windows", "newest_stored_scn", "segment_memory", "stored_segments"]

log = logging.getLogger("headgate")

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


class Windows(NamedTuple):
    """Whole windows in order, such as the content of a segment at one moment. Each array is int64[windows], except
    ``data``, which may be longer than they are.
    """

    data: Bytes
    scns: Int64s
    ends: Int64s
    """Where each window ends in ``data``; the first begins at 0."""
    stamps: Int64s
    """Timestamps of the windows' newest events, ns since 1970."""

    def start(self, window: int) -> int:
        """Return the offset of a window."""
        return int(self.ends[window - 1]) if window else 0

    def part(self, begin: int, end: int) -> Windows:
        """Return ``end - begin`` of the windows."""
        start, part = self.start(begin), slice(begin, end)
        return Windows(self.data[start : self.start(end)], self.scns[part], self.ends[part] - start, self.stamps[part])


class BufferSegment:
    """Consecutive windows: in memory, and in a file if the buffer has a folder; after :meth:`evict` only there.

    :param size: bytes it can hold.
    :param folder: of its file; None: no file.
    :param before: SCN after which everything up to the segment's end is in it; −1: everything ever.
    """

    def __init__(self, size: int, folder: Path | None, first_scn: int, before: int = -1) -> None:
        self._memory: Windows | None = Windows(np.empty(size, np.uint8), *np.empty((3, _most_windows(size)), np.int64))
        self._windows = 0
        self.before = before
        self.used = 0
        """Bytes of windows."""
        self.first_scn, self.first_stamp, self.last_scn, self.last_stamp = -1, -1, -1, -1
        """Of the first and the last window; -1: there is none yet."""
        self._file: Any = None
        self._is_torn = False
        """Whether the file may have a part of windows after those of the segment."""
        self._synced = 0
        """Bytes of windows that survive a crash of the machine."""
        self.path: Path | None = None
        if folder is not None:
            self.path = folder / f"{first_scn:019d}.{before}{_SUFFIX}"
            with _target(self.path):
                self._file = open_private(self.path, "wb", buffering=0)

    @classmethod
    def stored(cls, path: Path, size: int, view: Windows) -> BufferSegment:
        """Return the segment of a file, of which the first ``size`` bytes are windows, those of ``view``."""
        segment = cls(0, None, -1, _scns_of(path)[1])
        segment._memory, segment.path, segment.used, segment._synced = None, path, size, size
        segment._note_windows(view.scns, view.stamps)
        return segment

    def fits(self, windows: Windows, first: int) -> int:
        """Return how many of the windows from ``first`` on still fit."""
        memory = self._memory
        if memory is None:
            return 0
        begin = windows.start(first)
        last = int(np.searchsorted(windows.ends, begin + len(memory.data) - self.used, "right"))
        return min(last - first, len(memory.scns) - self._windows)

    @property
    def memory(self) -> int:
        """Bytes of memory, including the index."""
        return 0 if self._memory is None else segment_memory(len(self._memory.data))

    def append(self, windows: Windows, first: int, last: int) -> None:
        """Append ``windows[first:last]``, which fit.

        :raises HeadgateError: the file cannot be written; the segment is as before.
        """
        begin = windows.start(first)
        data = windows.data[begin : int(windows.ends[last - 1])]
        if self._file is not None and self.path is not None:
            with _target(self.path):
                if self._is_torn:
                    self._file.truncate(self.used)
                    self._file.seek(self.used)
                self._is_torn = True
                write_all(self._file, data.data)
                self._is_torn = False
        memory, entries = self._memory, slice(self._windows, self._windows + last - first)
        assert memory is not None
        memory.data[self.used : self.used + len(data)] = data
        memory.scns[entries] = windows.scns[first:last]
        memory.ends[entries] = windows.ends[first:last] - begin + self.used
        memory.stamps[entries] = windows.stamps[first:last]
        self.used += len(data)
        self._windows += last - first  # a reader sees whole windows
        self._note_windows(memory.scns[: self._windows], memory.stamps)

    def _note_windows(self, scns: Int64s, stamps: Int64s) -> None:
        self.first_scn, self.first_stamp = int(scns[0]), int(stamps[0])
        self.last_scn, self.last_stamp = int(scns[-1]), int(stamps[len(scns) - 1])

    def view_of_memory(self) -> Windows | None:
        """Return the current content; None: only the file has it."""
        n, memory = self._windows, self._memory
        return None if memory is None else Windows(memory.data, memory.scns[:n], memory.ends[:n], memory.stamps[:n])

    def view_of_file(self) -> Windows:
        """Read the file.

        :raises ScnNotFoundError: the buffer has dropped it meanwhile, or it is damaged.
        :raises TargetError: the file cannot be read.
        """
        assert self.path is not None
        with _target(self.path):
            try:
                data = np.fromfile(self.path, np.uint8, self.used)
            except FileNotFoundError:
                gone = self.last_scn
                raise ScnNotFoundError(
                    f"the relay dropped SCN {gone} before it was read: {self.path} is gone", scn=gone
                ) from None
        view = Windows(data, *scan_windows(data))
        if view.start(len(view.ends)) != self.used:
            raise ScnNotFoundError(f"the relay's buffer {self.path} is damaged", scn=self.last_scn)
        return view

    @property
    def is_lost(self) -> bool:
        """Whether only the file has the windows, and it is gone."""
        return self._memory is None and self.path is not None and not self.path.exists()

    def sync(self) -> None:
        """Make what was appended survive a crash of the machine, if the segment has a file, and if that is still there.

        :raises HeadgateError: it may not survive.
        """
        used = self.used
        if self.path is None or used == self._synced:
            return
        with _target(self.path), contextlib.suppress(FileNotFoundError):
            sync(self.path)
            if not self._synced:
                sync(self.path.parent)
        self._synced = used

    def close(self) -> None:
        """End writing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def evict(self) -> None:
        """End writing; keep the file only."""
        self.close()
        self._memory = None

    def remove(self) -> None:
        """End writing, and delete the file. Readers keep what is in memory."""
        self.close()
        if self.path is not None:
            with _target(self.path):
                self.path.unlink(missing_ok=True)


def stored_segments(folder: Path, until_scn: int) -> list[BufferSegment]:
    """Return the segments of an earlier process that end with ``until_scn``, oldest first, without a gap. Remove all
    other files, and later windows.

    :param until_scn: −1: remove all.
    :raises TargetError: a file cannot be read or written.
    """
    segments: list[BufferSegment] = []
    expected: int | None = until_scn  # the last SCN of the next older segment; None: there was a gap
    for path in sorted(folder.glob(f"*.*{_SUFFIX}"), reverse=True) if folder.is_dir() else []:
        with _target(path):
            first, before = _scns_of(path)
            segment = None if expected is None or first > until_scn else _stored(path, until_scn, expected)
            if segment is not None:
                segments.append(segment)
                expected = before
                continue
            if expected is not None and first <= until_scn:
                log.warning("the relay's buffer begins after SCN %d: %s, or a file after it, is cut", expected, path)
                expected = None
            path.unlink()
    return segments[::-1]


def newest_stored_scn(folder: Path) -> int:
    """Return the SCN of the newest window in the files of an earlier process; −1 if there is none.

    :raises TargetError: a file cannot be read.
    """
    for path in sorted(folder.glob(f"*.*{_SUFFIX}"), reverse=True):
        with _target(path):
            scns, _, _ = scan_windows(np.fromfile(path, np.uint8))
        if len(scns):
            return int(scns[-1])
    return -1


def _scns_of(path: Path) -> tuple[int, int]:
    """Return the first SCN of a segment's file, and the last one before it."""
    first, before, _ = path.name.split(".")
    return int(first), int(before)


def _stored(path: Path, until_scn: int, last_scn: int) -> BufferSegment | None:
    """Return the segment of a file, up to ``until_scn``; None if ``last_scn`` is not its last window then."""
    data = np.fromfile(path, np.uint8)
    scns, ends, stamps = scan_windows(data)
    kept = int(np.searchsorted(scns, until_scn, "right"))
    if not kept or scns[kept - 1] != last_scn:
        return None
    size = int(ends[kept - 1])
    if size < len(data):
        with path.open("r+b") as file:
            file.truncate(size)
    return BufferSegment.stored(path, size, Windows(data, scns[:kept], ends, stamps))


def _target(path: Path) -> AbstractContextManager[None]:
    return file_errors(f"the relay's buffer {path} cannot be used", TargetError)
