"""The event buffer: a ring of whole windows in SCN order, bounded in bytes, read from any SCN.

What it guarantees:

- A reader gets events in the order of their windows, without a gap, or a :class:`ScnNotFoundError`: an SCN from which
  something may be missing is never served. ``prev_scn`` is the SCN of the last window that is gone (or the number
  before the first one that was ever put in): reading may go on after ``prev_scn`` or later.
- A window becomes visible whole or not at all.
- Memory stays below ``memory_bytes`` and, with a folder, files below ``disk_bytes``: the oldest *segment* goes first
  (``_segments``). A window that is larger is there alone, until the next one comes. Responses under way keep what they
  read, so what readers hold comes on top.
- With a folder, a restart finds every window up to the SCN of the state that was saved last; what came later is dropped
  and comes again from the log, under the same SCNs.

Policies as in Databus: ``overwrite`` lets the oldest go, so a reader that is too slow gets a ScnNotFoundError;
``block`` makes the writer wait until :meth:`EventBuffer.release` says that the oldest are no longer needed.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from headgate.databus import EOP_SIZE, FIRST, Place, fit, seal, skip
from headgate.errors import ConfigError, ScnNotFoundError, TargetError
from headgate.relay._events._choice import Choice, digest_of, first_window_of, gather, gather_smaller, select
from headgate.relay._segments import Segment, StoredSegment, View, Windows, segment_memory, stored_segments

__all__ = ["Batch", "BufferInfo", "EventBuffer", "KeyIsNoNumberError", "Policy", "Stops", "Stretch"]

Policy: TypeAlias = Literal["overwrite", "block"]

_LARGEST_SEGMENT: Final = 4 << 20
_SMALLEST_BUFFER: Final = 256 << 10
_SEGMENTS: Final = 16
"""A full buffer has at least so many, so what one eviction takes is a small part of it."""
_VIEWS_KEPT: Final = 4
"""Stored segments that stay in memory after a read: slow readers follow each other through them."""
_VIEWS_BYTES: Final = 128 << 20
"""More than one of them only up to here: those of large windows are large."""
_WAIT_SECONDS: Final = 0.25
_CHOSEN_AT_ONCE: Final = 65_536
_STOPS_KEPT: Final = 1024


class KeyIsNoNumberError(Exception):
    """A filter cannot be asked about an event."""


class Stretch(NamedTuple):
    """Some windows of one segment: ``data[begin:end]``, of which a reader has had the first ``done`` events."""

    data: Any
    begin: int
    end: int
    done: int
    scn: int = -1
    """Of the window in the middle of which the reader is; then it is the only one. Otherwise -1."""

    def before(self, schemas: Sequence[bytes]) -> Stretch:
        """Without the first window that has an event by one of these schemas (their ids), and what comes after it. A
        window that the reader has begun stays.
        """
        if not schemas or self.done:
            return self
        ids = np.frombuffer(b"".join(schemas), np.uint8).reshape(len(schemas), -1)
        return self._replace(end=int(first_window_of(self.data, self.begin, self.end, ids)))


class Stops:
    """Where readers stopped in the middle of windows, so that they go on there: to count events from the window's
    beginning takes longer the more of it they have had, and large windows take many reads. For any number of threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, int, bytes], int] = OrderedDict()

    def find(self, scn: int, done: int, chosen: bytes) -> int | None:
        """Where the event is that follows the first ``done`` ones of a window; None: nobody stopped there."""
        with self._lock:
            return self._known.get((scn, done, chosen))

    def keep(self, scn: int, done: int, chosen: bytes, at: int) -> None:
        """A reader with this choice stopped there."""
        with self._lock:
            self._known[scn, done, chosen] = at
            while len(self._known) > _STOPS_KEPT:
                self._known.popitem(last=False)


@dataclass
class Batch:
    """What one read gave: events as they are in the buffer."""

    parts: list[Any]
    """uint8 arrays; valid as long as they are kept."""
    size: int = 0
    events: int = 0
    """Data events."""
    control: int = 0
    """Control events."""
    pending: int = 0
    """Bytes of the next event, if nothing was given because it does not fit; else 0."""
    cut: bool = False
    """Whether it ends before a window with an event by a schema that its reader does not know."""

    def add(self, stretch: Stretch, size: int, choice: Choice | None = None, stops: Stops | None = None) -> bool:
        """Take what fits in ``size`` bytes altogether; False: there was more.

        :param stops: of the buffer that the stretch is of.
        """
        chosen, had, before = b"", stretch.done, self.events + self.control
        stops = stops if stretch.scn >= 0 else None
        if stops is not None:
            chosen = b"" if choice is None else digest_of(choice)
            at = stops.find(stretch.scn, had, chosen)
            stretch = stretch if at is None else stretch._replace(begin=at, done=0)
        stop, next_size = self._take(stretch, size) if choice is None else self._choose(stretch, size, choice)
        if next_size and not self.size:
            self.pending = next_size
        if next_size and stops is not None:
            stops.keep(stretch.scn, had + self.events + self.control - before, chosen, stop)
        return not next_size

    def _take(self, stretch: Stretch, size: int) -> tuple[int, int]:
        begin = int(skip(stretch.data, stretch.begin, stretch.end, stretch.done))
        stop, events, control, next_size = fit(stretch.data, begin, stretch.end, size - self.size)
        if stop > begin:
            self._add(stretch.data[begin:stop], events, control)
        return int(stop), int(next_size)

    def _choose(self, stretch: Stretch, size: int, choice: Choice) -> tuple[int, int]:
        data, at, drop = stretch.data, stretch.begin, stretch.done
        starts = np.empty(min(_CHOSEN_AT_ONCE, (stretch.end - at) // EOP_SIZE[2] + 1), np.int64)
        while at < stretch.end:
            chosen, used, events, stop, next_size = select(
                data, at, stretch.end, size - self.size, *choice, drop, starts
            )
            if chosen < 0:
                raise KeyIsNoNumberError("a key is no number, so no range holds it or not: use MOD for its source")
            if chosen:
                part = np.empty(int(used), np.uint8)
                if choice.rows.smaller:
                    part = part[: int(gather_smaller(data, starts, chosen, choice.rows, part))]
                    seal(part, 0, len(part))
                else:
                    gather(data, starts, chosen, part)
                self._add(part, events, chosen - events)
            at, drop = int(stop), 0
            if next_size:
                return at, int(next_size)
        return at, 0

    def _add(self, part: Any, events: int, control: int) -> None:
        self.parts.append(part)
        self.size += len(part)
        self.events += int(events)
        self.control += int(control)


@dataclass(frozen=True)
class BufferInfo:
    """SCNs and ages; −1 where there is nothing."""

    min_scn: int
    max_scn: int
    prev_scn: int
    first_stamp: int
    """ns since 1970 of the oldest window's newest event."""
    last_stamp: int
    used: int
    """Bytes of memory taken."""
    stored: int
    """Bytes of files."""


class EventBuffer:
    """The ring.

    :param memory_bytes: bound of memory, at least 256 KiB.
    :param folder: where segments are also written; None: memory only.
    :param disk_bytes: bound of the files.
    :param until_scn: of what is found in the folder, what came up to here is kept (−1: nothing).
    :raises ConfigError: bounds that are too small.
    :raises TargetError: the folder cannot be used.
    """

    def __init__(
        self,
        memory_bytes: int,
        *,
        policy: Policy = "overwrite",
        folder: Path | None = None,
        disk_bytes: int = 0,
        until_scn: int = -1,
    ) -> None:
        if memory_bytes < _SMALLEST_BUFFER:
            raise ConfigError(f"a buffer takes at least {_SMALLEST_BUFFER} bytes, not {memory_bytes}")
        if folder is not None and disk_bytes < memory_bytes:
            raise ConfigError(f"what the buffer keeps on disk ({disk_bytes} bytes) is less than its memory")
        self._bound, self._disk_bound = memory_bytes, disk_bytes
        self._policy, self._folder = policy, folder
        self._segment_size = min(_LARGEST_SEGMENT, memory_bytes // _SEGMENTS)
        self._lock = threading.Condition()
        self._writing = threading.Lock()
        self._stored: deque[StoredSegment] = deque()
        self._live: deque[Segment] = deque()
        self._views: OrderedDict[Path, View] = OrderedDict()
        self._released = -1
        self._listeners: list[Callable[[], None]] = []
        self.stops = Stops()
        self.prev_scn = until_scn
        self._whole = until_scn < 0  # the first window that there ever was is still here, or still to come
        self._mark = None if folder is None else folder.with_name(f"{folder.name}.whole")  # says so to the next start
        if folder is not None:
            self._stored.extend(stored_segments(folder, until_scn))
            if self._stored and self._stored[-1].last_scn == until_scn:
                self.prev_scn = self._stored[0].first_scn - 1
                self._whole = self._mark is not None and self._mark.exists()
            else:  # the machine lost what the state counts on: nothing may be served across that
                self._drop_stored()
            if not self._whole and self._mark is not None:
                self._mark.unlink(missing_ok=True)

    def _drop_stored(self) -> None:
        for segment in self._stored:
            segment.path.unlink(missing_ok=True)
        self._stored.clear()

    # --- writing

    def append(self, windows: Windows, *, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Put windows in, in order, all with greater SCNs than those before.

        :param give_up: asked while a ``block`` buffer waits; True ends the wait.
        :return: whether they are all in it (False only after ``give_up``).
        :raises TargetError: a file cannot be written.
        """
        first = 0
        while first < len(windows.scns):
            segment = self._segment_for(windows, first, give_up)
            if segment is None:
                return False
            last = first + segment.fits(windows, first)
            with self._lock:
                if self.prev_scn < 0:
                    self.prev_scn = int(windows.scns[first]) - 1
                    self._note_first()
            with self._writing:  # not under the lock: a large window takes seconds, and readers need none
                segment.append(windows, first, last)
            first = last
        for tell in list(self._listeners):
            tell()
        return True

    def _segment_for(self, windows: Windows, first: int, give_up: Callable[[], bool]) -> Segment | None:
        """A segment in which at least one window fits."""
        if self._live and self._live[-1].fits(windows, first):
            return self._live[-1]
        begin = int(windows.ends[first - 1]) if first else 0
        segment_size = max(self._segment_size, int(windows.ends[first]) - begin)
        if not self._make_room(segment_size, give_up):
            return None
        segment = Segment(segment_size, self._folder, int(windows.scns[first]))
        with self._lock:
            if self._live:
                self._live[-1].close()
            self._live.append(segment)
        return segment

    def _make_room(self, size: int, give_up: Callable[[], bool]) -> bool:
        with self._lock:
            while self._live and sum(one.memory for one in self._live) + segment_memory(size) > self._bound:
                if self._folder is None and self._policy == "block" and not self._await_release(self._live[0], give_up):
                    return False
                self._let_go(self._live.popleft())
            while self._stored and self._files() + size > self._disk_bound:
                if self._policy == "block" and not self._await_release(self._stored[0], give_up):
                    return False
                self._lose_first()
                gone = self._stored.popleft()
                self._views.pop(gone.path, None)
                gone.path.unlink(missing_ok=True)
                self.prev_scn = gone.last_scn
        return True

    def _await_release(self, segment: Segment | StoredSegment, give_up: Callable[[], bool]) -> bool:
        last = segment.last_scn if isinstance(segment, StoredSegment) else int(segment.view().scns[-1])
        while self._released < last:
            if give_up():
                return False
            self._lock.wait(_WAIT_SECONDS)
        return True

    def _let_go(self, segment: Segment) -> None:
        """Out of memory: into the files, if there are any."""
        segment.close()
        view = segment.view()
        if segment.path is None:
            self._lose_first()
            self.prev_scn = int(view.scns[-1])
            return
        self._stored.append(
            StoredSegment(segment.path, segment.used, int(view.scns[0]), int(view.scns[-1]), int(view.stamps[0]))
        )

    def _note_first(self) -> None:
        """The first window that there ever was is there now."""
        try:
            if self._mark is not None:
                self._mark.touch()
        except OSError as error:
            raise TargetError(f"{self._mark} cannot be written: {error.strerror or error}") from None

    def _lose_first(self) -> None:
        """The first window goes, if it is still there."""
        if self._whole and self._mark is not None:
            self._mark.unlink(missing_ok=True)
        self._whole = False

    def _files(self) -> int:
        live = sum(one.used for one in self._live if one.path is not None)
        return live + sum(one.size for one in self._stored)

    def release(self, scn: int) -> None:
        """Windows up to ``scn`` are needed by nobody; a writer that waits may replace them."""
        with self._lock:
            self._released = max(self._released, scn)
            self._lock.notify_all()

    @property
    def overwrites(self) -> bool:
        """Whether what readers still need may go."""
        return self._policy == "overwrite"

    @property
    def most_bytes(self) -> int:
        """How much it is to hold; one window that is larger is all that it holds."""
        return max(self._bound, self._disk_bound)

    def close(self) -> None:
        """Nothing more is written; what is there may be read on."""
        with self._writing, self._lock:
            for segment in self._live:
                segment.close()

    def on_append(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` in the writer's thread after each append; calling what comes back ends that."""
        self._listeners.append(tell)
        return lambda: self._listeners.remove(tell)

    # --- reading

    def info(self) -> BufferInfo:
        """How things stand."""
        with self._lock:
            stored, live = list(self._stored), [one.view() for one in self._live]
            used = sum(one.memory for one in self._live)
            files = self._files() if self._folder is not None else 0
            prev = self.prev_scn
        views = [view for view in live if len(view.scns)]
        if stored:
            first, first_stamp = stored[0].first_scn, stored[0].first_stamp
        elif views:
            first, first_stamp = int(views[0].scns[0]), int(views[0].stamps[0])
        else:
            return BufferInfo(-1, -1, prev, -1, -1, used, files)
        if views:
            last, last_stamp = int(views[-1].scns[-1]), int(views[-1].stamps[-1])
        else:
            view = self._view(stored[-1])
            last, last_stamp = int(view.scns[-1]), int(view.stamps[-1])
        return BufferInfo(first, last, prev, first_stamp, last_stamp, used, files)

    def holds(self, scn: int) -> bool:
        """Whether everything that came after a window (0: before the first one) is here, or still to come."""
        with self._lock:
            return scn >= self.prev_scn or (scn == 0 and self._whole)

    def last_place(self) -> Place:
        """From where the newest window is read, and what comes after it."""
        newest = self.info().max_scn
        return Place(newest, 0) if newest >= 0 else Place(-1)

    def bytes_in_memory(self, place: Place) -> int | None:
        """Bytes in memory from about there on; None: reading from there touches a file."""
        with self._lock:
            if self._stored and place.scn <= self._stored[-1].last_scn:
                return None
            if self._live and 0 <= self._live[-1].first_scn <= place.scn:
                return self._live[-1].used
            return sum(one.used for one in self._live if one.last_scn >= place.scn)

    def stretches(self, place: Place, *, each: bool = False) -> Iterator[Stretch]:
        """What is there from ``place`` on, as it is now: a segment's part at a time, or each window.

        :raises ScnNotFoundError: something after ``place`` may be gone.
        :raises TargetError: a file cannot be read.
        """
        with self._lock:
            segments: list[Segment | StoredSegment] = [*self._stored, *self._live]
            prev = self.prev_scn
            if place == FIRST:
                if not self._whole:
                    raise ScnNotFoundError("the relay no longer holds its first windows", scn=0, oldest=prev)
                place = Place(-1)
        _check(place, prev, segments[0].first_scn if segments else -1)
        begin = bisect_left(segments, place.scn, hi=max(len(segments) - 1, 0), key=lambda one: one.last_scn)
        for segment in segments[begin:]:
            yield from _stretches(self._view(segment), place, each)
            place = Place(-1)

    def _view(self, segment: Segment | StoredSegment) -> View:
        if isinstance(segment, Segment):
            return segment.view()
        with self._lock:
            view = self._views.get(segment.path)
            if view is not None:
                self._views.move_to_end(segment.path)
        if view is None:
            view = segment.view()
            with self._lock:
                self._views[segment.path] = view
                while len(self._views) > 1 and (
                    len(self._views) > _VIEWS_KEPT or sum(len(one.data) for one in self._views.values()) > _VIEWS_BYTES
                ):
                    self._views.popitem(last=False)
        return view

    def read(self, place: Place, size: int, choice: Choice | None = None) -> Batch:
        """Events from ``place`` on, at most ``size`` bytes of them.

        :param choice: only these events, and control events; None: all. A place inside a window counts only those.
        :raises ScnNotFoundError: something after ``place`` may be gone.
        :raises KeyIsNoNumberError: a filter cannot be asked about an event.
        """
        batch = Batch([])
        for stretch in self.stretches(place):
            if not batch.add(stretch, size, choice, self.stops):
                break
        return batch


def _check(place: Place, prev: int, first_scn: int) -> None:
    if place.scn < 0 or (first_scn >= 0 and place.scn >= first_scn):
        return
    if place.scn < prev or (place.scn == prev and place.offset >= 0):
        raise ScnNotFoundError(
            f"the relay holds what came after SCN {prev}, not what came after {place.scn}", scn=place.scn, oldest=prev
        )


def _stretches(view: View, place: Place, each: bool) -> Iterator[Stretch]:
    window, done = 0, 0
    if place.scn >= 0:
        window = int(np.searchsorted(view.scns, place.scn, "left"))
        if window < len(view.scns) and int(view.scns[window]) == place.scn:
            window, done = (window + 1, 0) if place.offset < 0 else (window, place.offset)
        elif window < len(view.scns) and place.offset > 0:
            raise ScnNotFoundError(
                f"the relay has no SCN {place.scn}, in the middle of which the reader is", scn=place.scn
            )
    last = len(view.scns)
    while window < last:
        to = window + 1 if each or done else last
        yield Stretch(view.data, view.start(window), int(view.ends[to - 1]), done, place.scn if done else -1)
        window, done = to, 0
