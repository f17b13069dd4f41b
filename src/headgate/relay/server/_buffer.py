"""The event buffer: a ring of whole windows in SCN order, bounded in bytes, readable from any SCN.

Guarantees:

- A reader gets events in window order without a gap, or a :class:`ScnNotFoundError`: the buffer never serves an SCN
  after which something may be missing. ``oldest_resumable_scn`` is the SCN of the last window that was dropped (or the
  number before the first window ever appended): a reader may continue after ``oldest_resumable_scn`` or later.
- A window becomes visible whole or not at all.
- Memory stays below ``memory_bytes`` and, with a folder, files below ``disk_bytes``: the oldest *segment* is dropped
  first (``_segments``). A larger window is alone in the buffer until the next one comes. Responses in progress keep
  what they read; their memory comes on top.
- With a folder, a restart finds every window up to the SCN of the state that was saved last. Later windows are dropped
  and come again from the binlog, under the same SCNs. If a file is missing or damaged, at the start or later, its
  windows and all before them are dropped.

The writer never waits for a reader: one that is too slow gets a ScnNotFoundError, and bootstraps.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from headgate.errors import ScnNotFoundError
from headgate.relay.databus import FIRST, StreamPosition
from headgate.relay.server._cursor import EventBatch, SegmentCursor, Stops
from headgate.relay.server._recent import Recent
from headgate.relay.server._segments import BufferSegment, Windows, segment_memory, stored_segments
from headgate.relay.server.events import Choice

__all__ = ["BufferInfo", "BufferLimits", "EventBuffer"]

log = logging.getLogger("headgate")

_LARGEST_SEGMENT: Final = 4 << 20
_SEGMENTS: Final = 16
"""``memory_bytes`` divided by the usual segment size: one eviction drops a small part of a full buffer."""
_VIEWS_KEPT: Final = 4
"""Stored segments that stay in memory after a read: slow readers follow each other through them."""
_STOPS_KEPT: Final = 1024


@dataclass(frozen=True)
class BufferInfo:
    """SCNs, timestamps and sizes; −1 if there is none."""

    min_scn: int
    max_scn: int
    oldest_resumable_scn: int
    first_stamp: int
    """ns since 1970 of the oldest window's newest event."""
    last_stamp: int
    used: int
    """Bytes of memory."""
    stored: int
    """Bytes of files."""


@dataclass(frozen=True)
class BufferLimits:
    """Limits of a buffer, in bytes."""

    views: int = 128 << 20
    """Bytes of stored segments that stay in memory after a read, except for a single one: segments of large windows are
    large."""


class EventBuffer:
    """A ring of windows in memory and files.

    :param memory_bytes: bound of memory.
    :param folder: where segments are also written; None: memory only.
    :param disk_bytes: bound of the files, at least ``memory_bytes`` if there is a folder.
    :param until_scn: windows in the folder are kept up to this SCN (−1: none).
    :param keeps_files: whether they are kept at all; False: they have another mark (``_mark``), or the relay begins
        elsewhere in the log.
    :raises TargetError: the folder cannot be used.
    """

    def __init__(
        self,
        memory_bytes: int,
        *,
        folder: Path | None = None,
        disk_bytes: int = 0,
        until_scn: int = -1,
        keeps_files: bool = True,
        limits: BufferLimits | None = None,
    ) -> None:
        self._limits = limits or BufferLimits()
        self._bound, self._disk_bound = memory_bytes, disk_bytes
        self._folder = folder
        self._segment_size = min(_LARGEST_SEGMENT, memory_bytes // _SEGMENTS)
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._segments: deque[BufferSegment] = deque()
        views = self._limits.views
        self._views = Recent[Path | None, Windows](views, lambda view: max(len(view.data), views // _VIEWS_KEPT))
        self._listeners: list[Callable[[], None]] = []
        self._stops: Stops = Recent(_STOPS_KEPT)
        self.oldest_resumable_scn = until_scn
        self._has_first = until_scn < 0  # the first window ever is in the buffer, or still to come
        if folder is not None:
            self._segments.extend(stored_segments(folder, until_scn if keeps_files else -1))
        if self._segments:
            first = self._segments[0]
            self._has_first = first.before < 0
            self.oldest_resumable_scn = first.first_scn - 1 if self._has_first else first.before
        self.reached_scn = self._segments[-1].last_scn if self._segments else self.oldest_resumable_scn
        """The SCN of the newest window that was ever in the buffer, or before it; -1: there was none."""

    # --- writing

    def append(self, windows: Windows) -> None:
        """Append windows in order, all with greater SCNs than :attr:`reached_scn`. After an error the first ones may be
        there.

        :raises HeadgateError: a file cannot be written.
        """
        first = 0
        while first < len(windows.scns):
            segment = self._segment_for(windows, first)
            last = first + segment.fits(windows, first)
            with self._lock:
                if self.oldest_resumable_scn < 0:
                    self.oldest_resumable_scn = int(windows.scns[first]) - 1
            with self._writing:  # not under the lock: a large window takes seconds, and readers need none
                segment.append(windows, first, last)
            self.reached_scn = int(windows.scns[last - 1])
            first = last
        for listener in list(self._listeners):
            listener()

    def _segment_for(self, windows: Windows, first: int) -> BufferSegment:
        """Return a segment in which at least one window fits."""
        with self._lock:
            newest = self._segments[-1] if self._segments else None
        if newest is not None and newest.fits(windows, first):
            return newest
        segment_size = max(self._segment_size, int(windows.ends[first]) - windows.start(first))
        self._make_room(segment_size)
        segment = BufferSegment(segment_size, self._folder, int(windows.scns[first]), self.reached_scn)
        with self._lock:
            if self._segments:
                self._segments[-1].close()
            self._segments.append(segment)
        return segment

    def _make_room(self, size: int) -> None:
        with self._lock:
            while (live := self._in_memory()) and sum(one.memory for one in live) + segment_memory(size) > self._bound:
                if self._folder is not None:
                    live[0].evict()
                else:
                    self._drop_oldest()
            while self._folder is not None and self._files() + size > self._disk_bound and self._is_evicted():
                self._drop_oldest()

    def _in_memory(self) -> list[BufferSegment]:
        return [one for one in self._segments if one.memory]

    def _is_evicted(self) -> bool:
        return bool(self._segments) and not self._segments[0].memory

    def _drop_oldest(self) -> None:
        oldest = self._segments.popleft()
        self._has_first = False
        self._views.forget(oldest.path)
        self.oldest_resumable_scn = oldest.last_scn
        oldest.remove()

    def _files(self) -> int:
        return sum(one.used for one in self._segments if one.path is not None)

    @property
    def most_bytes(self) -> int:
        """Bytes that it may hold; a larger window is alone in it."""
        return max(self._bound, self._disk_bound)

    def sync(self) -> None:
        """Make the windows in files survive a crash of the machine.

        :raises HeadgateError: they may not survive.
        """
        with self._lock:
            segments = list(self._segments)
        for segment in segments:
            segment.sync()

    def close(self) -> None:
        """End writing; the content stays readable."""
        with self._writing, self._lock:
            for segment in self._segments:
                segment.close()

    def on_append(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` in the writer's thread after each append; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- reading

    def info(self) -> BufferInfo:
        """Return SCNs, timestamps and sizes."""
        with self._lock:
            filled = [one for one in self._segments if one.last_scn >= 0]
            used, files = sum(one.memory for one in self._segments), self._files()
            oldest_resumable = self.oldest_resumable_scn
        if not filled:
            return BufferInfo(-1, -1, oldest_resumable, -1, -1, used, files)
        first, last = filled[0], filled[-1]
        return BufferInfo(
            first.first_scn, last.last_scn, oldest_resumable, first.first_stamp, last.last_stamp, used, files
        )

    def holds(self, scn: int) -> bool:
        """Whether all windows after ``scn`` (0: all windows ever) are in the buffer or still to come."""
        with self._lock:
            return scn >= self.oldest_resumable_scn or (scn == 0 and self._has_first)

    def newest_position(self) -> StreamPosition:
        """Return the position from which the newest window and all later ones follow."""
        newest = self.info().max_scn
        return StreamPosition(newest, 0) if newest >= 0 else StreamPosition(-1)

    def bytes_in_memory(self, position: StreamPosition) -> int | None:
        """Estimate the bytes in memory from ``position`` on; None: a read touches a file."""
        with self._lock:
            segments = self._segments
            if segments and segments[-1].memory and 0 <= segments[-1].first_scn <= position.scn:
                return segments[-1].used
            later = [one for one in segments if one.last_scn >= position.scn]
            return sum(one.used for one in later) if all(one.memory for one in later) else None

    def cursors(self, position: StreamPosition, *, each: bool = False) -> Iterator[SegmentCursor]:
        """Yield the current content from ``position`` on: a cursor per segment, or per window if ``each``.

        :raises ScnNotFoundError: something after ``position`` may be missing.
        :raises TargetError: a file cannot be read.
        """
        with self._lock:
            segments = list(self._segments)
            oldest_resumable = self.oldest_resumable_scn
            if position == FIRST:
                if not self._has_first:
                    raise ScnNotFoundError(
                        "the relay no longer holds its first windows", scn=0, oldest=oldest_resumable
                    )
                position = StreamPosition(-1)
        _check(position, oldest_resumable, segments[0].first_scn if segments else -1)
        begin = bisect_left(segments, position.scn, hi=max(len(segments) - 1, 0), key=lambda one: one.last_scn)
        for segment in segments[begin:]:
            yield from _cursors_of(self._view(segment), position, each, self._stops)
            position = StreamPosition(-1)

    def _view(self, segment: BufferSegment) -> Windows:
        view = segment.view_of_memory() or self._views.find(segment.path)
        if view is not None:
            return view
        try:
            return self._views.keep(segment.path, segment.view_of_file())
        except ScnNotFoundError as error:
            self._forget_lost(segment, error)
            raise

    def _forget_lost(self, segment: BufferSegment, error: ScnNotFoundError) -> None:
        """Drop the segments whose files are lost, and all before them, unless that was done meanwhile."""
        with self._lock:
            if segment in self._segments:
                lost = [one for one in self._segments if one is segment or one.is_lost]
                while lost[-1] in self._segments:
                    self._drop_oldest()
                log.warning("%s; the buffer begins after SCN %d", error.message, self.oldest_resumable_scn)

    def read(self, position: StreamPosition, size: int, choice: Choice | None = None) -> EventBatch:
        """Read events from ``position`` on, at most ``size`` bytes of them.

        :param choice: only these events, and control events; None: all. An offset inside a window counts only those.
        :raises ScnNotFoundError: something after ``position`` may be missing.
        :raises KeyIsNoNumberError: a RANGE filter met a key that is not a number.
        """
        batch = EventBatch([])
        for cursor in self.cursors(position):
            if not cursor.take(batch, size, choice):
                break
        return batch


def _check(position: StreamPosition, oldest_resumable: int, first_scn: int) -> None:
    if position.scn < 0 or (first_scn >= 0 and position.scn >= first_scn):
        return
    if position.scn < oldest_resumable or (position.scn == oldest_resumable and position.offset >= 0):
        raise ScnNotFoundError(
            f"the relay holds what came after SCN {oldest_resumable}, not what came after {position.scn}",
            scn=position.scn,
            oldest=oldest_resumable,
        )


def _cursors_of(view: Windows, position: StreamPosition, each: bool, stops: Stops) -> Iterator[SegmentCursor]:
    window, had = 0, 0
    if position.scn >= 0:
        window = int(np.searchsorted(view.scns, position.scn, "left"))
        if window < len(view.scns) and int(view.scns[window]) == position.scn:
            window, had = (window + 1, 0) if position.offset < 0 else (window, position.offset)
        elif window < len(view.scns) and position.offset > 0:
            raise ScnNotFoundError(
                f"the checkpoint is inside SCN {position.scn}, which the relay does not have", scn=position.scn
            )
    last = len(view.scns)
    if had and window < last:
        yield SegmentCursor(view.data, view.start(window), int(view.ends[window]), had, position.scn, stops)
        window += 1
    while window < last:
        following = window + 1 if each else last
        yield SegmentCursor(view.data, view.start(window), int(view.ends[following - 1]))
        window = following
