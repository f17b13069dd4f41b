"""The log itself, kept by a relay: for readers that need all of it, and not only what Databus's events tell.

What it is
==========

A copy of the packets that the server sent, in files (``_files``), bounded in bytes: the oldest
stretches go first. Readers get from it what a dump of the server would give them, byte for byte, with the places that
events have in the server's own files. So rows, their order ``_seq``, windows of chunks and hints are those that the
server itself would have given, and any number of readers costs the server one dump.

What it guarantees
==================

- **Whole and without gaps.** What can be read are whole transactions: all that follow the set at which the copy begins,
  in the order of the log, up to :attr:`LogSpool.gtid`. Every dump begins at exactly that set, so nothing comes twice.
- **On restart** what was written behind the last whole transaction is cut off, and the next dump begins there. A
  machine that failed may have lost the newest bytes; what is left is sound, and is gone on from.
- **One server at a time.** A copy that went over to another server (a failover) has *series*: stretches of one server's
  log. A series begins with exactly the transactions with which the one before it ended, and each transaction is in one.
  Places in different series cannot be compared, so who needs places (a window up to a position, the rows of a batch)
  asks for one server's log, and gets an error where its stretch is not in one series.
- **The same history.** Before a dump goes on, the newest transaction of the copy must have the commit time that the
  server has for it: after RESET BINARY LOGS AND GTIDS the same numbers name others (``_feeder``).

A relay is a little behind its server. Whoever plans with it takes the smaller of two sets, what the server has executed
and what is kept: both are prefixes of one log, so that is one, too. And whoever reads a window up to a place that the
server named waits until the copy has come to that place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from headgate.archive._files import LogSegment, Mark, stored_log
from headgate.archive._reader import LogReader, Reached
from headgate.archive._wire import LogFile, LogHead, Series
from headgate.errors import BinlogPurgedError, ConnectionLostError, ServerBehindError, TargetError
from headgate.files import read_json, write_json
from headgate.gtid import GtidSet
from headgate.mysql import ByteStream, KeptLog, LogRequest
from headgate.replication import CopiedEvents, CopiedFile, CopiedPlace, LogHint, file_number

__all__ = ["LogSpool"]

_PARTS: Final = 16
"""Segments that the space is divided into: so much goes at a time when it is full."""
_NEWEST: Final = 2
"""Segments that are kept whatever their size: the one that begins, and the last with a transaction. That may be larger
than all of the space, and its readers have to come to it first.
"""
_LARGEST: Final = 64 << 20
_SMALLEST: Final = 64 << 10
_WAIT_SECONDS: Final = 20.0
"""How long a request waits for what the copy does not have yet."""
_HEARTBEAT_SECONDS: Final = 1.0


class LogSpool:
    """The copy. One thread writes (:meth:`take`, :meth:`interrupted`), any number read.

    :param disk_bytes: of files; the newest stretch is kept whatever its size.
    :param begin: asked for the set at which a copy begins that is not there yet.
    :param anew: throw away what is there.
    :raises HeadgateError: the folder cannot be used.
    """

    def __init__(self, folder: Path, disk_bytes: int, begin: Callable[[], GtidSet], *, anew: bool = False) -> None:
        self._folder, self._disk_bytes = folder, disk_bytes
        self._segment_bytes = min(_LARGEST, max(_SMALLEST, disk_bytes // _PARTS))
        self._news = threading.Condition()
        self._segments, self._gtid = stored_log(folder)
        stored = read_json(folder / "begin.json")
        if anew:
            for one in self._segments:
                one.remove()
            self._segments, stored = [], None
        if stored is None:
            self._gtid = begin()
            write_json(folder / "begin.json", {"v": 1, "gtid": str(self._gtid)})
        elif not self._segments:
            self._gtid = GtidSet.parse(str(stored["gtid"]))
        self._here: CopiedFile | None = None
        self._closed = False
        last = self._segments[-1] if self._segments else None
        self._reached = None if last is None else Reached(last.begin.server_uuid, last.begin.file, last.whole[1])

    # --- writing

    def take(self, item: CopiedFile | CopiedEvents | CopiedPlace) -> None:
        """What a dump gave, in order.

        :raises HeadgateError: a file cannot be written.
        """
        with self._news:
            if isinstance(item, CopiedFile):
                self._file(item)
            elif isinstance(item, CopiedEvents):
                self._events(item)
            elif self._here is not None:
                self._reached = Reached(self._here.server_uuid, item.file, item.pos)
            self._news.notify_all()

    def _file(self, here: CopiedFile) -> None:
        last = self._segments[-1].begin if self._segments else None
        if last is None or (last.server_uuid, last.file) != (here.server_uuid, here.file):
            self._new(here, here.pos)
        self._here = here

    def _events(self, item: CopiedEvents) -> None:
        segment = self._segments[-1]
        segment.append(item.data[: item.whole] if item.whole else item.data)
        if not item.whole:
            return
        segment.commit(item.pos)
        self._gtid = item.gtid
        self._reached = Reached(segment.begin.server_uuid, segment.begin.file, item.pos)
        if segment.size >= self._segment_bytes:
            segment = self._new(segment.begin, item.pos)
        elif segment.wants_mark:
            segment.mark(item.gtid)
        if item.whole < len(item.data):
            segment.append(item.data[item.whole :])

    def _new(self, here: CopiedFile, pos: int) -> LogSegment:
        """The next segment, which begins with what comes after the last whole transaction."""
        number = 1
        if self._segments:
            last = self._segments[-1]
            last.drop_open()
            last.close()
            number = last.number + 1
        segment = LogSegment(number, self._folder, replace(here, pos=pos), self._gtid)
        segment.create()
        self._segments.append(segment)
        while len(self._segments) > _NEWEST and sum(one.size for one in self._segments) > self._disk_bytes:
            self._segments.pop(0).remove()
        return segment

    def interrupted(self) -> None:
        """The dump ended; what it gave of a transaction that was open comes again."""
        with self._news:
            if self._segments:
                self._segments[-1].drop_open()
            self._here = None

    def hint(self) -> LogHint | None:
        """Where the next dump may begin."""
        with self._news:
            last = self._segments[-1] if self._segments else None
            return None if last is None else LogHint(last.begin.server_uuid, last.begin.file, last.whole[1])

    def newest(self) -> GtidSet:
        """The newest transaction that is kept, as far as the sets tell; empty: none is."""
        with self._news:
            for segment in reversed(self._segments):
                for uuid, tag, _, last in (self._gtid - segment.before).intervals():
                    return GtidSet({(uuid, tag): [(last, last)]})
        return GtidSet()

    def close(self) -> None:
        """Nothing more is written; whoever waits gets an end."""
        with self._news:
            self._closed = True
            if self._segments:
                self._segments[-1].drop_open()
                self._segments[-1].close()
            self._news.notify_all()

    # --- what there is

    @property
    def gtid(self) -> GtidSet:
        """Everything that is kept, and what came before."""
        return self._gtid

    @property
    def begin(self) -> GtidSet:
        """What came before the oldest transaction that is kept."""
        with self._news:
            return self._begin()

    def _begin(self) -> GtidSet:
        return self._segments[0].before if self._segments else self._gtid

    def head(self) -> LogHead:
        """What there is now."""
        with self._news:
            at = self._reached or Reached("", "", 0)
            return LogHead(at.server_uuid, self._gtid, self._begin(), at.file, at.pos, tuple(self._series()))

    def _series(self) -> list[Series]:
        found: list[Series] = []
        for segment in self._segments:
            uuid = segment.begin.server_uuid
            if found and found[-1].server_uuid == uuid:
                continue
            if found:
                found[-1] = found[-1]._replace(end=segment.before)
            found.append(Series(uuid, segment.before, self._gtid))
        return found

    def files(self) -> list[LogFile]:
        """The servers' files, oldest first."""
        with self._news:
            found: list[LogFile] = []
            for segment in self._segments:
                one = LogFile(segment.begin.server_uuid, segment.begin.file, segment.size, segment.before)
                if found and found[-1][:2] == one[:2]:
                    first = found.pop()
                    one = first._replace(bytes=first.bytes + one.bytes)
                found.append(one)
            return found

    # --- reading

    @property
    def falls_back(self) -> bool:
        """Who reads in this process reads at the server what is not kept any more."""
        return True

    @contextmanager
    def open(self, asked: LogRequest) -> Iterator[KeptLog]:
        """For readers in this process: ``ConnectionSettings.log``.

        :raises BinlogPurgedError: as :meth:`reader`; ServerBehindError likewise.
        """
        with closing(self.reader(asked)) as reader:
            yield KeptLog(ByteStream(_Feed(self, reader)), reader.server_uuid)

    def reader(self, asked: LogRequest) -> LogReader:
        """What was asked for; waits a while for what is not there yet.

        :raises BinlogPurgedError: it is not kept, or not in one series where one server's log was asked for.
        :raises ServerBehindError: it is not there yet.
        """
        needed = (asked.executed or GtidSet()) | (asked.wanted or GtidSet())
        with self._news:
            self._news.wait_for(
                lambda: self._closed or (needed <= self._gtid and self._has_reached(asked)), _WAIT_SECONDS
            )
            if not needed <= self._gtid:
                missing = str(needed - self._gtid)
                raise ServerBehindError("the relay's log does not have transactions yet", missing=missing)
            if not self._has_reached(asked):
                raise ServerBehindError(self._why_not_reached(asked))
            self._check_kept(asked)
            segment = self._first_segment(asked)
            limit = None
            if not asked.endless:
                last = self._segments[-1] if self._segments else None
                limit = (0, 0) if last is None else (last.number, last.size)
            reached = None if asked.endless else self._reached
        begin = None if segment is None else (segment, self._first_mark(segment, asked))
        return LogReader(self._following, begin, limit, reached)

    def _has_reached(self, asked: LogRequest) -> bool:
        if asked.until is None or asked.server_uuid is None:
            return True
        at, (file, pos) = self._reached, asked.until
        if at is None or at.server_uuid != asked.server_uuid:
            return False
        return (file_number(at.file), at.pos) >= (file_number(file), pos)

    def _why_not_reached(self, asked: LogRequest) -> str:
        at = self._reached
        if at is not None and at.server_uuid != asked.server_uuid:
            return f"the relay reads the log of server {at.server_uuid}, not of {asked.server_uuid}"
        return f"the relay has not come to the log's place {asked.until} yet"

    def _check_kept(self, asked: LogRequest) -> None:
        begin, had = self._begin(), asked.had or GtidSet()
        lost = begin - had if asked.wanted is None else begin & asked.wanted
        if lost:
            raise BinlogPurgedError(
                "the relay's log does not reach back so far: give it more disk_bytes, or allow that the server is read"
                " (relay_fallback)",
                needed=str(lost),
                purged=str(begin),
            )
        if asked.server_uuid is not None and not any(_holds(one, asked, self._gtid) for one in self._series()):
            needed = self._gtid - had if asked.wanted is None else asked.wanted
            raise BinlogPurgedError(
                f"the relay does not have this part of the log as server {asked.server_uuid} wrote it: allow"
                " that the server is read (relay_fallback)",
                needed=str(needed),
            )

    def _first_segment(self, asked: LogRequest) -> LogSegment | None:
        """The last one before which there is nothing that was asked for."""
        found = None
        for segment in self._segments:
            if found is not None and not _nothing_of(asked, segment.before):
                break
            found = segment
        return found

    def _first_mark(self, segment: LogSegment, asked: LogRequest) -> Mark:
        marks = segment.marks
        if marks is None:
            size = segment.size
            marks, gtid = segment.find_marks()
            following = self._following(segment.number)
            if following is not None and (gtid != following.before or segment.size != size):
                raise TargetError(f"the relay's log {segment.path} is damaged: remove the folder, and it is kept anew")
        found = marks[0]
        for mark in marks[1:]:
            if not _nothing_of(asked, mark.gtid):
                break
            found = mark
        return found

    def _following(self, number: int) -> LogSegment | None:
        with self._news:
            if not self._segments or number >= self._segments[-1].number:
                return None
            at = number + 1 - self._segments[0].number if number else 0
            if at < 0:
                raise BinlogPurgedError("the relay has let go of a part of its log before it was read")
            return self._segments[at]

    def wait(self, place: tuple[int, int]) -> bool:
        """Wait until there is something behind a reader's place, or for the time of a heartbeat; False: closed."""

        def news() -> bool:
            last = self._segments[-1] if self._segments else None
            return self._closed or (last is not None and (last.number, last.size) > place)

        with self._news:
            self._news.wait_for(news, _HEARTBEAT_SECONDS)
            return not self._closed


def _nothing_of(asked: LogRequest, gtid: GtidSet) -> bool:
    """Whether nothing that was asked for is among these transactions."""
    return gtid <= (asked.had or GtidSet()) if asked.wanted is None else not gtid & asked.wanted


def _holds(series: Series, asked: LogRequest, gtid: GtidSet) -> bool:
    """Whether all that was asked for, of one server's log, is in this series; ``gtid``: everything that is kept."""
    if series.server_uuid != asked.server_uuid:
        return False
    if asked.wanted is None:
        return series.begin <= (asked.had or GtidSet()) and series.end == gtid
    return asked.wanted <= series.end and not asked.wanted & series.begin


class _Feed:
    """A reader as a socket: gives bytes as they come. When the copy has let go of what it was to read next, that is a
    connection that is lost: who asks again for what he needs hears that it is not kept, and may read it at the server.
    """

    def __init__(self, spool: LogSpool, reader: LogReader) -> None:
        self._spool, self._reader = spool, reader

    def recv_into(self, view: memoryview) -> int:
        """As ``socket.recv_into``.

        :raises ConnectionLostError: the copy was closed, or was quicker than this reader.
        """
        try:
            return self._read_into(view)
        except BinlogPurgedError as error:
            raise ConnectionLostError(error.message) from None

    def _read_into(self, view: memoryview) -> int:
        while True:
            found = self._reader.read(len(view))
            if not found and not self._reader.ended:
                place = self._reader.place
                if not self._spool.wait(place):
                    raise ConnectionLostError("the relay's log was closed")
                found = self._reader.read(len(view)) or self._reader.heartbeat()
            if found or self._reader.ended:
                view[: len(found)] = found
                return len(found)
