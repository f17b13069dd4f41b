"""The binlog archive of a relay: for readers that need the whole log, and not only Databus's events.

What it is
==========

A copy of the packets that the server sent, in files (``_files``), bounded in bytes: the oldest segments are deleted
first. Readers get from it what a dump of the server would send, byte for byte, with the events' positions in the
server's files. So rows, their order ``_seq``, windows of chunks and hints are the same as from the server, and any
number of readers costs the server one dump.

What it guarantees
==================

- **Whole and without gaps.** The readable content is whole transactions: all that follow the set at which the archive
  begins, in the order of the log, up to :attr:`LogSpool.gtid`. Every dump begins at exactly that set, so nothing is
  stored twice.
- **On restart** the bytes after the last whole transaction are cut off, and the next dump begins there. A machine
  failure may lose the newest bytes; the rest is sound, and the archive continues from it.
- **One server at a time.** After a failover the archive has several *series*: ranges of one server's log each. A
  series begins with exactly the transactions with which the previous one ended; each transaction is in one series.
  Positions in different series cannot be compared. So a reader that needs positions (a window up to a position, the
  rows of a batch) requests one server's log, and gets an error if its range is not in one series.
- **A gap is never skipped.** If a file of the archive is missing or damaged, its segment and all before it are dropped,
  so the archive begins later. If it is the newest one, the dump begins again after it: the archive then holds nothing
  until more has come. One that has no segment when it is opened begins where the relay's row reader is. Readers that
  need what was dropped get a BinlogPurgedError, and may read at the server.
- **The same history.** Before a dump resumes, the last transaction of the archive must have the same commit time on the
  server: after RESET BINARY LOGS AND GTIDS the same numbers name other transactions (``_feeder``). It is noted as the
  log is copied. The header of each segment has the one before it, so it is also known after a restart.

A relay is slightly behind its server. A planner that uses it takes the smaller of two sets, the executed GTIDs and the
archived ones: both are prefixes of one log, so the smaller is one, too. A reader of a window up to a position that the
server reported waits until the archive has reached that position.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final, TypeVar

from headgate.errors import BinlogPurgedError, ConnectionLostError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql import ArchivedLog, ByteStream, LogRequest
from headgate.offsets import Hint
from headgate.relay.archive._files import LogSegment, Mark, SegmentSizes, stored_log
from headgate.relay.archive._reader import LogReader
from headgate.relay.archive._wire import LogFile, LogHead, Series
from headgate.replication import CopiedEvents, CopiedFile, CopiedPosition, file_number

__all__ = ["LogSpool"]

log = logging.getLogger("headgate")

_PARTS: Final = 16
"""Segments that the space is divided into: a full archive deletes one at a time."""
_NEWEST: Final = 2
"""Segments that are never deleted: the newest one, and the last one with a transaction. That one may exceed
``disk_bytes``, and readers have to reach it first.
"""
_HEARTBEAT_SECONDS: Final = 1.0
_T = TypeVar("_T")


class LogSpool:
    """The archive. One thread writes (:meth:`store`, :meth:`interrupted`), any number of threads read.

    :param disk_bytes: limit of the files' size, except the newest segments.
    :param reset: delete the existing archive.
    :param wait_seconds: how long a request waits for content that the archive does not have yet.
    :param sizes: of its segments.
    :raises HeadgateError: the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        disk_bytes: int,
        *,
        wait_seconds: float,
        reset: bool = False,
        sizes: SegmentSizes | None = None,
    ) -> None:
        self._sizes = sizes = sizes or SegmentSizes()
        self._folder, self._disk_bytes, self._wait_seconds = folder, disk_bytes, wait_seconds
        self._segment_bytes = min(sizes.largest, max(sizes.smallest, disk_bytes // _PARTS))
        self._changed = threading.Condition()
        self._segments, self._gtid, self.last = stored_log(folder, sizes)
        """The last archived transaction; None: none is."""
        self._number = self._segments[-1].number if self._segments else 0
        """Of the newest segment ever; readers know where they are by it."""
        if reset:
            for one in self._segments:
                one.remove()
            self._segments, self._gtid, self.last = [], GtidSet(), None
        self.has_begun = bool(self._segments)
        """Whether it is known where the archive begins; before that it is empty."""
        self._current_file: CopiedFile | None = None
        self._listeners: list[Callable[[], None]] = []
        self._closed = False
        self._reached = self.hint()
        """Everything logged before this position is archived."""

    # --- writing

    def begin(self, gtid: GtidSet) -> None:
        """Begin an archive without segments after these transactions: a new one, or one that lost all of its files."""
        with self._changed:
            self._gtid, self.has_begun = gtid, True
            self._changed.notify_all()
        self._notify()

    def store(self, item: CopiedFile | CopiedEvents | CopiedPosition) -> None:
        """Store an item of a dump, in order.

        :raises HeadgateError: a file cannot be written.
        """
        with self._changed:
            if isinstance(item, CopiedFile):
                self._begin_file(item)
            elif isinstance(item, CopiedEvents):
                self._store_events(item)
            elif self._current_file is not None:
                self._reached = Hint(self._current_file.server_uuid, item.file, item.pos)
            self._changed.notify_all()
        self._notify()
        last = self._last
        if last is not None:
            last.sync_parts()  # not under the lock, which readers need

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def on_append(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` in the writer's thread after each append."""
        self._listeners.append(listener)

    def _begin_file(self, file: CopiedFile) -> None:
        last = self._last
        if last is None or _identity(last.begin) != _identity(file):
            self._new_segment(file, file.pos)
        else:
            last.drop_open()
        self._current_file = file

    def _store_events(self, item: CopiedEvents) -> None:
        segment = self._last
        if segment is None:
            raise ConnectionLostError("the newest file of the relay's log is gone; the dump begins again after it")
        segment.append(item.data[: item.whole] if item.whole else item.data)
        if not item.whole:
            return
        segment.commit(item.pos)
        self._gtid, self.last = item.gtid, item.last or self.last
        self._reached = Hint(segment.begin.server_uuid, segment.begin.file, item.pos)
        if segment.size >= self._segment_bytes:
            segment = self._new_segment(segment.begin, item.pos)
        elif segment.wants_mark:
            segment.mark(item.gtid)
        if item.whole < len(item.data):
            segment.append(item.data[item.whole :])

    def _new_segment(self, file: CopiedFile, pos: int) -> LogSegment:
        """Create the next segment, which begins after the last whole transaction."""
        last = self._last
        if last is not None:
            last.complete()
        number, previous = self._number + 1, 0 if last is None else last.size
        begin, sizes = replace(file, pos=pos), self._sizes
        segment = LogSegment(number, self._folder, begin, self._gtid, self.last, sizes.between_marks, previous)
        segment.create()
        self._number = number
        if last is not None:
            last.close()  # only now: if the next file cannot be created, another try needs this one
        self._segments.append(segment)
        while len(self._segments) > _NEWEST and sum(one.size for one in self._segments) > self._disk_bytes:
            self._segments.pop(0).remove()
        return segment

    def interrupted(self) -> None:
        """End a dump; drop its incomplete transaction, which the next dump sends again."""
        with self._changed:
            if self._last is not None:
                self._last.drop_open()
            self._current_file = None

    def hint(self) -> Hint | None:
        """Return the position where the next dump may begin."""
        with self._changed:
            last = self._last
            return None if last is None else Hint(*_identity(last.begin)[:2], last.whole[1], last.begin.created_s)

    def close(self) -> None:
        """Close the archive for writing; waiting readers stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._last is not None:
                self._last.close()

    # --- state

    @property
    def gtid(self) -> GtidSet:
        """All archived transactions, and those before them."""
        return self._gtid

    @property
    def _last(self) -> LogSegment | None:
        return next(iter(self._segments[-1:]), None)  # another thread may drop it meanwhile

    def _begin(self) -> GtidSet:
        return self._segments[0].before if self._segments else self._gtid

    def head(self) -> LogHead:
        """Return what is archived now."""
        with self._changed:
            at = self._reached or Hint("", "", 0)
            return LogHead(at.server_uuid, self._gtid, self._begin(), at.file, at.pos, tuple(self._series()))

    def _series(self) -> list[Series]:
        series: list[Series] = []
        for segment in self._segments:
            uuid = segment.begin.server_uuid
            if series and series[-1].server_uuid == uuid:
                continue
            if series:
                series[-1] = replace(series[-1], end=segment.before)
            series.append(Series(uuid, segment.before, self._gtid))
        return series

    def files(self) -> list[LogFile]:
        """Return the servers' binlog files, oldest first."""
        with self._changed:
            files: list[LogFile] = []
            for segment in self._segments:
                one = LogFile(segment.begin.server_uuid, segment.begin.file, segment.size, segment.before)
                if files and (files[-1].server_uuid, files[-1].name) == (one.server_uuid, one.name):
                    first = files.pop()
                    one = replace(first, bytes=first.bytes + one.bytes)
                files.append(one)
            return files

    # --- reading

    @property
    def falls_back(self) -> bool:
        """Always true: readers in this process read at the server what is no longer archived."""
        return True

    @contextmanager
    def open(self, request: LogRequest) -> Iterator[ArchivedLog]:
        """Open a range for a reader in this process: ``ConnectionSettings.log``.

        :raises BinlogPurgedError: as :meth:`reader`; ServerBehindError likewise.
        """
        with closing(self.reader(request)) as reader:
            yield ArchivedLog(ByteStream(_Feed(self, reader)), reader.server_uuid)

    def reader(self, request: LogRequest, *, wait_seconds: float | None = None) -> LogReader:
        """Return a reader of the requested range; wait for what is not archived yet.

        :param wait_seconds: how long; None: the archive's ``wait_seconds``.
        :raises BinlogPurgedError: it is not archived, or not in one series of the requested server's log.
        :raises ServerBehindError: it is not archived yet, or the relay reads another server's log.
        """
        needed = (request.executed or GtidSet()) | (request.wanted or GtidSet())
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (self.has_begun and needed <= self._gtid and self._reaches_until(request)),
                self._wait_seconds if wait_seconds is None else wait_seconds,
            )
            if not self.has_begun:
                raise ServerBehindError("the relay's log has not begun yet")
            if not needed <= self._gtid:
                missing = str(needed - self._gtid)
                raise ServerBehindError("the relay's log does not have transactions yet", missing=missing)
            if not self._reaches_until(request):
                raise ServerBehindError(self._describe_unreached(request))
            self._check_archived(request)
            segment = _last_usable(self._segments, lambda one: one.before, request) if self._segments else None
            newest = self._number
            limit = None if request.endless else (newest, 0 if segment is None else self._segments[-1].size)
            reached = None if request.endless else self._reached
        begin = newest if segment is None else (segment, self._first_mark(segment, request))
        return LogReader(self._following, begin, limit, reached, self._open_file)

    def _reaches_until(self, request: LogRequest) -> bool:
        if request.until is None or request.server_uuid is None:
            return True
        at, (file, pos) = self._reached, request.until
        if at is None or at.server_uuid != request.server_uuid:
            return False
        return (file_number(at.file), at.pos) >= (file_number(file), pos)

    def _describe_unreached(self, request: LogRequest) -> str:
        at = self._reached
        if at is not None and at.server_uuid != request.server_uuid:
            return f"the relay reads the log of server {at.server_uuid}, not of {request.server_uuid}"
        return f"the relay has not reached position {request.until} of the log yet"

    def _check_archived(self, request: LogRequest) -> None:
        begin, executed_before = self._begin(), request.executed_before or GtidSet()
        lost = begin - executed_before if request.wanted is None else begin & request.wanted
        if lost:
            raise BinlogPurgedError(
                "the relay no longer has this part of the binlog: give it more disk_bytes, or let the server be read"
                " (relay_fallback)",
                needed=str(lost),
                purged=str(begin),
            )
        if request.server_uuid is not None and not any(_holds(one, request, self._gtid) for one in self._series()):
            needed = self._gtid - executed_before if request.wanted is None else request.wanted
            raise BinlogPurgedError(
                f"the relay does not have this part of the log as server {request.server_uuid} wrote it: let"
                " the server be read (relay_fallback)",
                needed=str(needed),
            )

    def _first_mark(self, segment: LogSegment, request: LogRequest) -> Mark:
        marks = segment.marks
        if marks is None:
            with self._dropping_lost(segment):
                parsed = segment.parse()
                following = self._following(segment.number)
                if following is not None and (parsed.gtid != following.before or parsed.whole[0] != segment.size):
                    raise BinlogPurgedError(f"the relay's log {segment.path} is damaged")
            segment.accept(parsed)
            marks = parsed.marks
        return _last_usable(marks, lambda one: one.gtid, request)

    def _open_file(self, segment: LogSegment) -> int:
        with self._dropping_lost(segment):
            return segment.open()

    @contextmanager
    def _dropping_lost(self, segment: LogSegment) -> Iterator[None]:
        """Drop a segment that the block cannot read, and all before it, unless that was done meanwhile."""
        try:
            yield
        except BinlogPurgedError as error:
            with self._changed:
                count = next((n for n, one in enumerate(self._segments, 1) if one is segment), 0)
                if count:
                    log.warning("%s; the archive begins after it", error.message)
                lost, self._segments[:count] = self._segments[:count], []
                for one in lost:
                    one.remove()
            raise

    def _following(self, number: int) -> LogSegment | None:
        with self._changed:
            if number >= self._number:
                return None
            first = self._segments[0].number if self._segments else self._number + 1
            at = number + 1 - first
            if at < 0:
                raise BinlogPurgedError("the relay deleted a part of its log before it was read")
            return self._segments[at]

    def wait(self, position: tuple[int, int]) -> bool:
        """Wait until there is content after a reader's position, at most for a heartbeat (1 s); False: closed."""

        def has_more() -> bool:
            last = self._last
            return self._closed or (last is not None and (last.number, last.size) > position)

        with self._changed:
            self._changed.wait_for(has_more, _HEARTBEAT_SECONDS)
            return not self._closed


def _identity(file: CopiedFile) -> tuple[str, str, int]:
    """Return what distinguishes a server's file from others, also from those that use its name again."""
    return file.server_uuid, file.file, file.created_s


def _last_usable(candidates: Sequence[_T], before: Callable[[_T], GtidSet], request: LogRequest) -> _T:
    """Return the last of these beginnings that has no requested transactions before it; at least the first."""

    def is_usable(candidate: _T) -> bool:
        gtid = before(candidate)
        return gtid <= (request.executed_before or GtidSet()) if request.wanted is None else not gtid & request.wanted

    return [candidates[0], *takewhile(is_usable, candidates[1:])][-1]


def _holds(series: Series, request: LogRequest, gtid: GtidSet) -> bool:
    """Return whether a series has the whole requested range of one server's log; ``gtid``: everything archived."""
    if series.server_uuid != request.server_uuid:
        return False
    if request.wanted is None:
        return series.begin <= (request.executed_before or GtidSet()) and series.end == gtid
    return request.wanted <= series.end and not request.wanted & series.begin


class _Feed:
    """A reader with a socket's interface: returns bytes as they arrive. If the archive deleted what comes next, the
    connection is lost. A new request raises BinlogPurgedError, and its caller may read at the server.
    """

    def __init__(self, spool: LogSpool, reader: LogReader) -> None:
        self._spool, self._reader = spool, reader

    def recv_into(self, view: memoryview) -> int:
        """As ``socket.recv_into``.

        :raises ConnectionLostError: the archive was closed, or has deleted what this reader needs next.
        """
        try:
            return self._read_into(view)
        except BinlogPurgedError as error:
            raise ConnectionLostError(error.message) from None

    def _read_into(self, view: memoryview) -> int:
        while True:
            data = self._reader.read(len(view))
            if not data and not self._reader.ended:
                position = self._reader.position
                if not self._spool.wait(position):
                    raise ConnectionLostError("the relay's log was closed")
                data = self._reader.read(len(view)) or self._reader.heartbeat()
            if data or self._reader.ended:
                view[: len(data)] = data
                return len(data)
