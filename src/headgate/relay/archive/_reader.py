"""Reads a range of the binlog archive, as the server would have sent it.

The packets of each segment are preceded by those that a sender generates: a ROTATE event with file and position, and
the file's FORMAT_DESCRIPTION. A bounded answer ends with the position up to which the log was read, and an EOF packet,
so a truncated answer is distinguished from a complete one. Every answer, bounded or not, ends where another server's
log begins: the reader has to reconnect there, as after a failover.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from headgate.errors import BinlogPurgedError
from headgate.offsets import Hint
from headgate.relay.archive._files import LogSegment, Mark
from headgate.replication import END_PACKET, rotate_packet

__all__ = ["LogReader"]


class LogReader:
    """Reads an archive; not thread-safe.

    :param following: returns the segment after the one with this number; None: it is not written yet.
    :param begin: where to begin; a number: at the segment after the one with it.
    :param limit: number of the last segment, and bytes of it to read; None: endless.
    :param reached: position that a bounded answer sends at its end: everything before it is in the archive, or in the
        answer.
    :param open_file: opens the file of a segment.
    :raises BinlogPurgedError: the first segment is no longer archived.
    """

    def __init__(
        self,
        following: Callable[[int], LogSegment | None],
        begin: tuple[LogSegment, Mark] | int,
        limit: tuple[int, int] | None,
        reached: Hint | None,
        open_file: Callable[[LogSegment], int],
    ) -> None:
        self._following, self._limit, self._reached, self._open_file = following, limit, reached, open_file
        self._segment: LogSegment | None = None
        self._number, self._offset = 0, 0
        self._checksums = True
        self._pending = b""
        self._file = -1
        self.server_uuid = reached.server_uuid if reached is not None else ""
        """The server whose log is read."""
        self.ended = False
        """Whether nothing follows, except what :meth:`read` still has buffered."""
        if isinstance(begin, int):
            self._number = begin
        else:
            self._begin(begin[0], begin[1].offset, begin[1].pos)

    @property
    def position(self) -> tuple[int, int]:
        """Number of the segment that was begun last, and how many bytes of it were read."""
        return self._number, self._offset

    def read(self, most: int) -> bytes:
        """Return the next bytes, at most ``most``; empty: nothing more now.

        :raises BinlogPurgedError: what comes next is no longer archived.
        """
        if not self._pending and not self.ended:
            self._fill(most)
        data, self._pending = self._pending[:most], self._pending[most:]
        return data

    def heartbeat(self) -> bytes:
        """Return what a sender sends while there is nothing new: its position. To call when :meth:`read` is empty."""
        segment = self._segment
        if segment is None:
            return b""
        size, pos = segment.whole
        if size != self._offset:  # new packets were appended since, so the position is after them
            return b""
        return rotate_packet(segment.begin.file, pos, checksum=self._checksums)

    def close(self) -> None:
        """Close the file; reading has ended."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _fill(self, most: int) -> None:
        while not self._pending:
            number, offset = self.position
            at_limit = self._limit is not None and number >= self._limit[0]
            following = None if at_limit else self._following(number)  # if it exists, this segment's size is final
            segment = self._segment
            size = 0 if segment is None else segment.size
            if at_limit and self._limit is not None:
                size = self._limit[1]
            if offset < size:
                self._pending = os.pread(self._file, min(most, size - offset), offset)
                self._offset += len(self._pending)
                if not self._pending:
                    raise BinlogPurgedError("a part of the relay's log is missing")
            elif at_limit:
                self._end()
            elif following is not None and segment and following.begin.server_uuid != self.server_uuid:
                self._reached = None
                self._end()
            elif following is not None:
                self._begin(following, 0, following.begin.pos)
            else:
                return

    def _begin(self, segment: LogSegment, offset: int, pos: int) -> None:
        self.close()
        self._file = self._open_file(segment)
        self._segment, self._number, self._offset = segment, segment.number, offset
        self.server_uuid = segment.begin.server_uuid
        self._pending = segment.begin.prologue(pos, checksum=self._checksums)
        self._checksums = segment.begin.checksums

    def _end(self) -> None:
        self.close()
        self.ended = True
        if self._reached is not None:
            self._pending = rotate_packet(self._reached.file, self._reached.pos, checksum=self._checksums)
        self._pending += END_PACKET
