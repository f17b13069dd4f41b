"""Reading a kept log: a stretch of it, as the server itself would have sent it.

Before the packets of each segment stands what a sender makes up: a ROTATE event with file and position, and the file's
FORMAT_DESCRIPTION. A bounded answer ends with the place up to which the log has been read, and an EOF packet, so an
answer that was cut off is told from one that is complete. Where another server's log begins every answer ends, bounded
or not: its reader has to begin anew, as it would after a failover of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from headgate.archive._files import LogSegment, Mark
from headgate.errors import BinlogPurgedError
from headgate.replication import END_PACKET, rotate_packet

__all__ = ["LogReader", "Reached"]


class Reached(NamedTuple):
    """Everything that the server has logged before this place is kept, or has been given."""

    server_uuid: str
    file: str
    pos: int


class LogReader:
    """Not for several threads at once.

    :param following: the segment after the one with this number, if there is one; 0: the first of all.
    :param begin: where to begin; None: with the first segment that is written.
    :param limit: number of a segment, and bytes of it, to which to go; None: on and on.
    :param reached: what a bounded answer says at its end.
    """

    def __init__(
        self,
        following: Callable[[int], LogSegment | None],
        begin: tuple[LogSegment, Mark] | None,
        limit: tuple[int, int] | None,
        reached: Reached | None,
    ) -> None:
        self._following, self._limit, self._reached = following, limit, reached
        self._segment: LogSegment | None = None
        self._offset = 0
        self._checksums = True
        self._pending = b""
        self._file = -1
        self.server_uuid = reached.server_uuid if reached is not None else ""
        """Whose log it begins with."""
        self.ended = False
        """Whether everything was given, but for what :meth:`read` still has."""
        if begin is not None:
            self._begin(begin[0], begin[1].offset, begin[1].pos)

    @property
    def place(self) -> tuple[int, int]:
        """Number of the segment and bytes of it that were given."""
        return (self._segment.number if self._segment is not None else 0), self._offset

    def read(self, most: int) -> bytes:
        """The next bytes, at most so many; none: there are no more now.

        :raises BinlogPurgedError: what comes next is not kept any more.
        """
        if not self._pending and not self.ended:
            self._more(most)
        found, self._pending = self._pending[:most], self._pending[most:]
        return found

    def heartbeat(self) -> bytes:
        """What a sender says while there is nothing new: the place where it is. After :meth:`read` gave nothing."""
        segment = self._segment
        if segment is None:
            return b""
        size, pos = segment.whole
        if size != self._offset:  # there is something new by now, and the place is behind it
            return b""
        return rotate_packet(segment.begin.file, pos, checksum=self._checksums)

    def close(self) -> None:
        """Nothing more is read."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _more(self, most: int) -> None:
        while not self._pending:
            number, offset = self.place
            at_limit = self._limit is not None and number >= self._limit[0]
            following = None if at_limit else self._following(number)  # is there one, this segment's size is its last
            segment = self._segment
            size = 0 if segment is None else segment.size
            if at_limit and self._limit is not None:
                size = self._limit[1]
            if offset < size:
                self._pending = os.pread(self._file, min(most, size - offset), offset)
                self._offset += len(self._pending)
                if not self._pending:
                    raise BinlogPurgedError("a part of the relay's log is not there any more")
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
        try:
            self._file = segment.open()
        except FileNotFoundError:
            raise BinlogPurgedError("the relay has let go of a part of its log while it was read") from None
        self._segment, self._offset = segment, offset
        self.server_uuid = segment.begin.server_uuid
        self._pending = segment.begin.prologue(pos, checksum=self._checksums)
        self._checksums = segment.begin.checksums

    def _end(self) -> None:
        self.close()
        self.ended = True
        if self._reached is not None:
            self._pending = rotate_packet(self._reached.file, self._reached.pos, checksum=self._checksums)
        self._pending += END_PACKET
