"""The log as the bytes that a server sends, cut at the ends of transactions: for who keeps a copy and hands it on.

A dump is a series of packets with an event in each; a copy of those packets is a log that every reader of dumps can
read, with the places that the events have in the server's own files. What does not belong into a copy are the events
that the sender makes up (ROTATE, HEARTBEAT): they are about this one dump, and whoever hands the copy on makes them
anew (:func:`rotate_packet`, :data:`END_PACKET`). The FORMAT_DESCRIPTION of each file stands apart, because it has to
come first wherever a reader begins.

Where a transaction ends is told by the decoder that reads streams, so a copy ends where every reader says that it
does, and a log that no reader could go on with is not copied beyond that place.

Layouts: MySQL source ``libs/mysql/binlog/event/control_events.h`` (``Rotate_event``), client/server protocol,
"Sending More Than 16Mb" and "EOF_Packet".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from numba import njit

from headgate.binlog import EndOfLog, ErrorPacket, Framer, Segment, codes, parse_format_description
from headgate.catalog import TablePatterns
from headgate.errors import IncompleteReadError, ServerSettingError
from headgate.gtid import GtidSet
from headgate.kernels import Bytes
from headgate.mysql import ConnectionSettings
from headgate.places import end_of
from headgate.replication._decoder import LogDecoder
from headgate.replication._dump import open_dump
from headgate.replication._log_read import LogRead
from headgate.replication._requests import dump_error
from headgate.replication._tables import DecodeOptions
from headgate.replication._types import LogHint

__all__ = ["END_PACKET", "CopiedEvents", "CopiedFile", "CopiedPlace", "LogCopy", "copy_log", "rotate_packet"]

END_PACKET: Final = b"\x05\x00\x00\x00\xfe\x00\x00\x02\x00"
"""The end of a dump: an EOF packet without warnings."""
_PACKET_HEADER: Final = 4
_EVENT: Final = _PACKET_HEADER + 1
"""Where the event begins in its packet: after the packet's header and the status byte."""


def rotate_packet(file: str, pos: int, *, checksum: bool) -> bytes:
    """A packet with a ROTATE event that a sender makes up: what follows is in ``file`` from ``pos`` on.

    :param checksum: whether the event ends in a CRC32, as the reader expects.
    """
    body = struct.pack("<Q", pos) + file.encode()
    size = codes.HEADER_SIZE + len(body) + (codes.CRC_SIZE if checksum else 0)
    event = struct.pack("<IBIIIH", 0, codes.ROTATE, 0, size, 0, codes.FLAG_ARTIFICIAL) + body
    if checksum:
        event += struct.pack("<I", zlib.crc32(event))
    return struct.pack("<I", len(event) + 1)[:3] + b"\x00\x00" + event


@dataclass(frozen=True)
class CopiedFile:
    """A file of the log goes on from here, or begins."""

    server_uuid: str
    file: str
    pos: int
    description: bytes
    """The packet with the FORMAT_DESCRIPTION event."""

    @property
    def checksums(self) -> bool:
        """Whether the events of the file end in a CRC32."""
        return parse_format_description(self.description[_EVENT:]).checksums

    def prologue(self, pos: int, *, checksum: bool) -> bytes:
        """What has to stand before the file's events from ``pos`` on."""
        return rotate_packet(self.file, pos, checksum=checksum) + self.description


@dataclass(frozen=True)
class CopiedEvents:
    """Packets of whole events of the file that was named last."""

    data: Bytes
    """Valid until the next item is asked for."""
    whole: int
    """Bytes up to the end of the last transaction in it; 0: none ends here, and the rest says nothing."""
    pos: int
    """The place in the file behind that transaction."""
    gtid: GtidSet
    """All transactions up to there."""


@dataclass(frozen=True)
class CopiedPlace:
    """Everything before this place has been given, and no transaction is open."""

    file: str
    pos: int


class LogCopy:
    """Cuts the packets of one dump.

    :param had: transactions that do not come.
    """

    def __init__(self, server_uuid: str, had: GtidSet) -> None:
        self._uuid = server_uuid
        self._had = had
        self._framer = Framer()
        self._decoder = LogDecoder(had, DecodeOptions(TablePatterns([])), lambda _db, _table: (), inside=False)

    @property
    def needed(self) -> int:
        """How many unread bytes the next call wants to see at least."""
        return self._framer.needed

    def gtid(self) -> GtidSet:
        """``had`` and the transactions that were given whole."""
        return self._had | self._decoder.received()

    def next(self, buf: Bytes, start: int, end: int) -> tuple[CopiedFile | CopiedEvents | CopiedPlace | None, int]:
        """The next item in ``buf[start:end]`` and where the unused bytes begin; None where more are needed, or where
        nothing came that a copy needs (then bytes were used).

        :raises DecodeError: the log holds what no reader can go on with.
        :raises HeadgateError: the server ended the dump.
        """
        item, used = self._framer.next(buf, start, end)
        if item is None:
            return None, used
        if isinstance(item, EndOfLog):
            raise IncompleteReadError("the server ended the dump")
        if isinstance(item, ErrorPacket):
            raise dump_error(item.data, self._had)
        if isinstance(item, Segment):
            return self._events(item, buf, start, used), used
        kind = int(buf[start + _EVENT + codes.TYPE_OFFSET])
        if kind == codes.FORMAT_DESCRIPTION:
            return CopiedFile(self._uuid, item.file, item.pos, bytes(buf[start:used])), used
        self._decoder.passed(item.file, item.pos)
        return (CopiedPlace(item.file, item.pos) if self._decoder.unfinished() is None else None), used

    def _events(self, segment: Segment, buf: Bytes, start: int, used: int) -> CopiedEvents:
        before = self._decoder.received_count
        last = int(segment.next_pos[-1])
        for _ in self._decoder.decode(segment):
            pass  # no table is followed: only where transactions end is of interest
        data = buf[start:used]
        if self._decoder.unfinished() is None:
            return CopiedEvents(data, len(data), last, self.gtid())
        if self._decoder.received_count == before or self._decoder.end is None:
            return CopiedEvents(data, 0, 0, self._had)
        pos = self._decoder.end[1]
        return CopiedEvents(data, int(_behind(data, pos & 0xFFFFFFFF)), pos, self.gtid())


@njit(cache=True, nogil=True)
def _behind(buf: Any, low: Any) -> Any:
    """Where the packets of the event end whose end position's lower 32 bits are ``low``; 0: there is none."""
    p = 0
    while p + 4 < len(buf):
        at = p + 5 + 13
        here = (int(buf[at]) | int(buf[at + 1]) << 8 | int(buf[at + 2]) << 16 | int(buf[at + 3]) << 24) == low
        size = 0xFFFFFF
        while size == 0xFFFFFF:  # an event of 16 MiB and more goes on in the next packet
            size = int(buf[p]) | int(buf[p + 1]) << 8 | int(buf[p + 2]) << 16
            p += 4 + size
        if here:
            return p
    return 0


def copy_log(
    settings: ConnectionSettings, had: GtidSet, *, tables: TablePatterns, hint: LogHint | None = None
) -> Iterator[CopiedFile | CopiedEvents | CopiedPlace]:
    """One dump of everything after ``had``, as it is committed; it ends with an error.

    A heartbeat comes each second, as a :class:`CopiedPlace`.

    :param tables: those whose changes the log must have.
    :param hint: where a reader stood when its set was exactly ``had``.
    :raises ServerSettingError: the log has no GTIDs, or does not have all changes of the tables as rows.
    :raises ServerBehindError: the server lacks part of ``had``.
    :raises BinlogPurgedError: the log no longer holds what comes after it.
    """
    if end_of(had) is not None:
        raise ServerSettingError(
            "a log without GTIDs cannot be kept: SET GLOBAL gtid_mode = ON, step by step",
            setting="gtid_mode",
            expected="ON",
            actual="OFF",
        )
    with open_dump(LogRead.endless(settings, had, tables, hint=hint)) as dump:
        copy, stream = LogCopy(dump.server_uuid, had), dump.stream
        while True:
            item, used = copy.next(stream.buf, stream.start, stream.end)
            if item is not None:
                yield item
            elif used == stream.start:
                stream.fill(copy.needed)
                continue
            stream.consume(used - stream.start)
