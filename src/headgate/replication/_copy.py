"""The log as the bytes that a server sends, cut at the ends of transactions, for a process that keeps a copy.

A dump is a series of packets with an event in each. A copy of those packets is a log that every reader of dumps can
read, with the events' positions in the server's own files. Events that the sender makes up (ROTATE, HEARTBEAT) do not
belong in a copy: the process that serves it makes its own (:func:`rotate_packet`, :data:`END_PACKET`). The
FORMAT_DESCRIPTION of each file is separate, because it must come first wherever a reader begins.

The decoder of streams finds the ends of transactions, so a copy ends where it does for every reader. A log that no
reader could continue with is not copied beyond that position.

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
from headgate.errors import IncompleteReadError
from headgate.gtid import GtidSet
from headgate.kernels import Bytes
from headgate.mysql import ConnectionSettings
from headgate.offsets import Hint, Last
from headgate.positions import gtids_of
from headgate.replication._decoder import LogDecoder
from headgate.replication._dump import open_dump
from headgate.replication._log_read import LogRead
from headgate.replication._requests import dump_error
from headgate.replication._tables import DecodeOptions

__all__ = ["END_PACKET", "CopiedEvents", "CopiedFile", "CopiedPosition", "LogCopy", "copy_log", "rotate_packet"]

END_PACKET: Final = b"\x05\x00\x00\x00\xfe\x00\x00\x02\x00"
"""The end of a dump: an EOF packet without warnings."""
_PACKET_HEADER: Final = 4
_EVENT: Final = _PACKET_HEADER + 1
"""Offset of the event in its packet, behind the packet's header and the status byte."""


def rotate_packet(file: str, pos: int, *, checksum: bool) -> bytes:
    """Return a packet with an artificial ROTATE event: what follows is in ``file`` from ``pos`` on.

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
    """A file of the log continues from here, or begins."""

    server_uuid: str
    file: str
    pos: int
    description: bytes
    """Packet with the FORMAT_DESCRIPTION event."""

    @property
    def checksums(self) -> bool:
        """Whether the events of the file end in a CRC32."""
        return parse_format_description(self.description[_EVENT:]).checksums

    @property
    def created_s(self) -> int:
        """When the server created the file, seconds since the Unix epoch."""
        return int.from_bytes(self.description[_EVENT : _EVENT + 4], "little")

    def prologue(self, pos: int, *, checksum: bool) -> bytes:
        """Return the packets that must precede the file's events from ``pos`` on."""
        return rotate_packet(self.file, pos, checksum=checksum) + self.description


@dataclass(frozen=True)
class CopiedEvents:
    """Packets of whole events of the file that was named last."""

    data: Bytes
    """Valid until the next item is requested."""
    whole: int
    """Bytes up to the end of the last transaction in ``data``. 0: none ends here; ignore ``pos`` and ``gtid``."""
    pos: int
    """Position in the file behind that transaction."""
    gtid: GtidSet
    """All transactions up to there."""
    last: Last | None = None
    """The last transaction that ends in ``data``."""


@dataclass(frozen=True)
class CopiedPosition:
    """Position before which everything was delivered. No transaction is open."""

    file: str
    pos: int


class LogCopy:
    """Splitter of one dump's packets.

    :param executed_before: transactions that the dump leaves out.
    """

    def __init__(self, server_uuid: str, executed_before: GtidSet) -> None:
        self._uuid = server_uuid
        self._executed_before = executed_before
        self._framer = Framer()
        self._decoder = LogDecoder(executed_before, DecodeOptions(TablePatterns([])), inside=False)

    @property
    def needed(self) -> int:
        """Unread bytes that the next call needs at least."""
        return self._framer.needed

    def gtid(self) -> GtidSet:
        """Return ``executed_before`` and the transactions that were delivered whole."""
        return self._executed_before | gtids_of(self._decoder.received(), "a binlog archive")

    @property
    def last(self) -> Last | None:
        """The last transaction that was delivered whole."""
        return self._decoder.last

    def next(self, buf: Bytes, start: int, end: int) -> tuple[CopiedFile | CopiedEvents | CopiedPosition | None, int]:
        """Return the next item in ``buf[start:end]`` and where the unused bytes begin. The item is None if more bytes
        are needed, or if a copy needs nothing of the bytes used.

        :raises DecodeError: the log holds something that no reader can continue with.
        :raises HeadgateError: the server ended the dump.
        """
        item, used = self._framer.next(buf, start, end)
        if item is None:
            return None, used
        if isinstance(item, EndOfLog):
            raise IncompleteReadError("the server ended the dump")
        if isinstance(item, ErrorPacket):
            raise dump_error(item.data, self._executed_before)
        if isinstance(item, Segment):
            return self._events(item, buf, start, used), used
        kind = int(buf[start + _EVENT + codes.TYPE_OFFSET])
        if kind == codes.FORMAT_DESCRIPTION:
            return CopiedFile(self._uuid, item.file, item.pos, bytes(buf[start:used])), used
        self._decoder.advance_to(item.file, item.pos)
        return (CopiedPosition(item.file, item.pos) if self._decoder.unfinished() is None else None), used

    def _events(self, segment: Segment, buf: Bytes, start: int, used: int) -> CopiedEvents:
        before = self._decoder.received_count
        last = int(segment.next_pos[-1])
        for _ in self._decoder.decode(segment):
            pass  # no table is followed: only the ends of transactions matter
        data = buf[start:used]
        if self._decoder.unfinished() is None:
            return CopiedEvents(data, len(data), last, self.gtid(), self.last)
        if self._decoder.received_count == before or self._decoder.end is None:
            return CopiedEvents(data, 0, 0, self._executed_before)
        pos = self._decoder.end[1]
        return CopiedEvents(data, int(_behind(data, pos & 0xFFFFFFFF)), pos, self.gtid(), self.last)


@njit(cache=True, nogil=True)
def _behind(buf: Any, low: Any) -> Any:
    """Return where the packets of the event end whose end position's lower 32 bits are ``low``; 0: no such event."""
    p = 0
    while p + 4 < len(buf):
        at = p + 5 + 13
        matches = (int(buf[at]) | int(buf[at + 1]) << 8 | int(buf[at + 2]) << 16 | int(buf[at + 3]) << 24) == low
        size = 0xFFFFFF
        while size == 0xFFFFFF:  # an event of 16 MiB and more continues in the next packet
            size = int(buf[p]) | int(buf[p + 1]) << 8 | int(buf[p + 2]) << 16
            p += 4 + size
        if matches:
            return p
    return 0


def copy_log(
    settings: ConnectionSettings, executed_before: GtidSet, *, hint: Hint | None = None
) -> Iterator[CopiedFile | CopiedEvents | CopiedPosition]:
    """Yield one dump of everything after ``executed_before``, as it is committed. It ends with an error.

    A heartbeat comes each second, as a :class:`CopiedPosition`.

    :param hint: position of a reader that had exactly ``executed_before``.
    :raises ServerSettingError: the log does not have all changes as rows.
    :raises ServerBehindError: the server lacks part of ``executed_before``.
    :raises BinlogPurgedError: the log no longer holds what comes after ``executed_before``.
    """
    with open_dump(LogRead.endless(settings, executed_before, hint=hint)) as dump:
        copy, stream = LogCopy(dump.server_uuid, executed_before), dump.stream
        while True:
            item, used = copy.next(stream.buf, stream.start, stream.end)
            if item is not None:
                yield item
            elif used == stream.start:
                stream.fill(copy.needed)
                continue
            stream.consume(used - stream.start)
