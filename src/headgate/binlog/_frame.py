"""From the bytes of a dump to whole binlog events with their positions.

A socket delivers after COM_BINLOG_DUMP a series of packets (3 bytes length, 1 byte sequence number), each with a status
byte and one event. :class:`Framer` cuts them, joins events over 16 MiB from their packets, checks every CRC32,
decompresses transactions, and keeps the position in the file. It does no I/O: the caller passes it the unread bytes and
gets back how many were used.

Positions. An event's header holds the low 32 bits of its end position. Files may grow beyond 4 GiB (one transaction
never spans two files), so the framer counts the high bits: a fall of the low bits within one file is a carry. A sender
that skips transactions, perhaps more than 4 GiB, sends a heartbeat before the next event. HEARTBEAT_V2, which readers
request (``replication/_requests.py``), has all 64 bits. Before MySQL 8.0.26 a heartbeat has 32, too.

All events of one :class:`Segment` are in one file. Its arrays index ``buf``, which is valid only until the caller reads
more into the same buffer (events that were joined or decompressed are in a separate array).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import zstandard
from numba import njit

from headgate.binlog import codes as c
from headgate.binlog._crc import CRC_TABLES, crc32
from headgate.binlog._events import parse_format_description, parse_heartbeat, parse_payload, parse_rotate
from headgate.errors import ChecksumError, DecodeError, ProtocolError
from headgate.kernels import Bytes, u8, u16, u32

__all__ = ["EndOfLog", "ErrorPacket", "Framer", "Item", "LogPosition", "Segment", "frame_event_stream"]

EVENTS_PER_SEGMENT: Final = 65536
"""Events cut at a time. It bounds the index arrays (2 MiB) and keeps a segment in the processor's cache."""
_MAX_PACKET: Final = 0xFFFFFF
"""A packet of this length continues in the next one (client/server protocol, "Sending More Than 16Mb")."""
_PACKET_HEADER: Final = 4
_PIECE_BYTES: Final = 1 << 20

_MORE, _CONTROL, _BIG, _EOF, _ERROR, _BAD_CRC, _BAD = range(7)


class Segment(NamedTuple):
    """Whole events of one binlog file, in log order."""

    file: str
    buf: Bytes
    start: Any
    """int64[n]: index of each event's header in ``buf``."""
    end: Any
    """int64[n]: index behind each event's body, without its checksum."""
    pos: Any
    """int64[n]: the event's start position in the file; for an event in a compressed transaction, the payload's."""
    next_pos: Any
    """int64[n]: the position behind the event."""

    def flags(self, index: int) -> int:
        """Return the flags of an event's header (``codes.FLAG_…``)."""
        at = int(self.start[index]) + c.FLAGS_OFFSET
        return int.from_bytes(self.buf[at : at + 2].tobytes(), "little")


class LogPosition(NamedTuple):
    """Position up to which the sender has read its log (a ROTATE or HEARTBEAT event)."""

    file: str
    pos: int


class EndOfLog(NamedTuple):
    """End of a bounded dump."""


class ErrorPacket(NamedTuple):
    """Error packet with which the server ended the dump (its bytes after the 0xff)."""

    data: bytes


Item: TypeAlias = Segment | LogPosition | EndOfLog | ErrorPacket


@njit(cache=True, nogil=True)
def _frame_packets(buf: Any, start: int, stop: int, checksums: bool, tables: Any, state: Any, index: Any) -> Any:
    """Cut packets in ``buf[start:stop]`` into events.

    | bytes | field |
    |---|---|
    | 3 | length of what follows the packet's header |
    | 1 | sequence number |
    | 1 | status: 0 an event, 0xfe the end, 0xff an error |
    | 4, 1, 4 | event: seconds since the epoch, type, server id |
    | 4 | event: its size, header and checksum included |
    | 4 | event: the low half of the position behind it, 0 if the server made it up |
    | 2 | event: flags |
    | … | event: its body, and a CRC32 (4 bytes) if the log has checksums |

    ``state`` is int64[2]: the last end position, and a counter of compressed transactions among the events.
    ``index`` is int64[4, n]: a segment's ``start``, ``end``, ``pos`` and ``next_pos``, which this fills.
    Returns (events, index of the first unused byte, why it stopped).

    Sources: MySQL internals documentation, "MySQL Packets"; MySQL source ``libs/mysql/binlog/event/binlog_event.h``,
    ``Log_event_header``.
    """
    n = 0
    p: Any = start
    e_start, e_end, e_pos, e_next = index[0], index[1], index[2], index[3]
    capacity = index.shape[1]
    while n < capacity:
        if stop - p < _PACKET_HEADER + 1:
            return n, p, _MORE
        length = u16(buf, p) | u8(buf, p + 2) << 16
        if length == _MAX_PACKET:
            return n, p, _BIG
        if length == 0:
            return n, p, _BAD
        status = buf[p + 4]
        if stop - p < _PACKET_HEADER + length:
            return n, p, _MORE
        if status == 0xFE and length < 9:
            return n, p, _EOF
        if status == 0xFF:
            return n, p, _ERROR
        if status != 0 or length < 1 + c.HEADER_SIZE:
            return n, p, _BAD
        head = p + _PACKET_HEADER + 1
        end = p + _PACKET_HEADER + length
        kind = buf[head + 4]
        if kind == c.ROTATE or kind == c.FORMAT_DESCRIPTION or kind == c.HEARTBEAT or kind == c.HEARTBEAT_V2:
            return n, p, _CONTROL
        if u32(buf, head + 9) != end - head:
            return n, p, _BAD
        size = end - head
        if checksums:
            end -= c.CRC_SIZE
            if end < head + c.HEADER_SIZE:
                return n, p, _BAD
            if np.int64(crc32(buf, head, end, tables)) != u32(buf, end):
                return n, p, _BAD_CRC
        low = u32(buf, head + 13)
        flags = u16(buf, head + 17)
        if low != 0 and (flags & c.FLAG_ARTIFICIAL) == 0:
            last = state[0]
            position = (last >> 32 << 32) | low
            if position < last:
                position += np.int64(1) << 32
            state[0] = position
            e_pos[n] = position - size
        else:
            e_pos[n] = state[0]
        e_next[n] = state[0]
        e_start[n] = head
        e_end[n] = end
        if kind == c.TRANSACTION_PAYLOAD:
            state[1] += 1
        n += 1
        p += _PACKET_HEADER + length
    return n, p, _MORE


@njit(cache=True, nogil=True)
def frame_event_stream(buf: Any, start: int, stop: int, e_start: Any, e_end: Any) -> Any:
    """Cut events that follow each other without checksums (the inside of a compressed transaction).

    Returns (events, index of the first unused byte, 1 if bytes are not an event, else 0).
    """
    n = 0
    p: Any = start
    while p < stop and n < e_start.shape[0]:
        if stop - p < c.HEADER_SIZE:
            return n, p, 1
        size = u32(buf, p + 9)
        if size < c.HEADER_SIZE or size > stop - p:
            return n, p, 1
        e_start[n] = p
        e_end[n] = p + size
        n += 1
        p += size
    return n, p, 0


def _pieces(reader: Any, most: int) -> Iterator[bytes]:
    """Yield what is read, at most ``most`` bytes and one piece."""
    while most > 0 and (piece := reader.read(min(most, _PIECE_BYTES))):
        most -= len(piece)
        yield piece


class Framer:
    """Splitter of one dump into segments. Make a new one for each dump.

    :param checksums: whether events end in a CRC32 until the first FORMAT_DESCRIPTION event settles it (a sender adds
        one to artificial events if the client requested CRC32).
    """

    def __init__(self, *, checksums: bool = True) -> None:
        self.file = ""
        self.created_s: dict[str, int] = {}
        """File → when its server created it, seconds since the Unix epoch, for each file met: the time in the header of
        its FORMAT_DESCRIPTION event, also of one that is sent when a dump begins inside the file."""
        self.needed = _PACKET_HEADER + 1
        """Unread bytes that the next call needs at least."""
        self._checksums = checksums
        self._state = np.zeros(2, np.int64)
        self._index = np.empty((4, EVENTS_PER_SEGMENT), np.int64)
        self._zstd = zstandard.ZstdDecompressor()

    @property
    def pos(self) -> int:
        """End position of the last event cut."""
        return int(self._state[0])

    def next(self, buf: Bytes, start: int, end: int) -> tuple[Item | None, int]:
        """Return the next item in ``buf[start:end]`` (None: more bytes are needed), and where the unused bytes begin.

        :raises ChecksumError: an event's CRC32 does not match.
        :raises DecodeError: bytes are not a binlog event.
        """
        index = self._index
        self._state[1] = 0
        count, used, status = _frame_packets(buf, start, end, self._checksums, CRC_TABLES, self._state, index)
        if count:
            return self._segment(buf, start, used, count), used
        if status == _MORE:
            self.needed = self._packet_size(buf, start, end)
            return None, used
        if status == _EOF:
            return EndOfLog(), used + _PACKET_HEADER + int(buf[used])
        if status == _CONTROL:
            return self._control(buf, used)
        if status == _BIG:
            return self._big(buf, used, end)
        if status == _ERROR:
            length = int.from_bytes(buf[used : used + 3].tobytes(), "little")
            return ErrorPacket(buf[used + 5 : used + 4 + length].tobytes()), used + 4 + length
        if status == _BAD_CRC:
            raise ChecksumError("a binlog event's checksum does not match its bytes", file=self.file, pos=self.pos)
        raise DecodeError("the log stream holds bytes that are not a binlog event", file=self.file, pos=self.pos)

    def _packet_size(self, buf: Bytes, start: int, end: int) -> int:
        if end - start < _PACKET_HEADER:
            return _PACKET_HEADER + 1
        return _PACKET_HEADER + max(1, int.from_bytes(buf[start : start + 3].tobytes(), "little"))

    def _segment(self, buf: Bytes, start: int, stop: int, count: int) -> Segment:
        index = self._index[:, :count]
        segment = Segment(self.file, buf, index[0], index[1], index[2], index[3])
        return self._expand(segment, start, stop) if self._state[1] else segment

    # --- events that change the framer's own state ----------------------------------------------------------------

    def _control(self, buf: Bytes, p: int) -> tuple[Item | None, int]:
        length = int.from_bytes(buf[p : p + 3].tobytes(), "little")
        event = buf[p + 5 : p + 4 + length].tobytes()
        return self._control_event(event), p + 4 + length

    def _control_event(self, event: bytes) -> LogPosition:
        kind = event[c.TYPE_OFFSET]
        if kind == c.FORMAT_DESCRIPTION:
            self._checksums = parse_format_description(event).checksums
            self.created_s[self.file] = int.from_bytes(event[:4], "little")
            end_pos = int.from_bytes(event[13:17], "little")
            if end_pos and not event[c.FLAGS_OFFSET] & c.FLAG_ARTIFICIAL:
                self._state[0] = max(int(self._state[0]), end_pos)
            return LogPosition(self.file, self.pos)
        body = self._checked_body(event)
        if kind == c.ROTATE:
            rotate = parse_rotate(body)
            self.file = rotate.file
            self._state[0] = rotate.pos
            return LogPosition(*rotate)
        heartbeat = parse_heartbeat(kind, body, self._position(int.from_bytes(event[13:17], "little")))
        if heartbeat.file == self.file:
            self._state[0] = max(int(self._state[0]), heartbeat.pos)
        return LogPosition(*heartbeat)

    def _position(self, low: int) -> int:
        """Return the next position in the file whose low 32 bits these are."""
        last = int(self._state[0])
        position = last >> 32 << 32 | low
        return position if position >= last else position + (1 << 32)

    def _checked_body(self, event: bytes) -> bytes:
        if not self._checksums:
            return event[c.HEADER_SIZE :]
        if len(event) < c.HEADER_SIZE + c.CRC_SIZE or zlib.crc32(event[:-4]) != int.from_bytes(event[-4:], "little"):
            raise ChecksumError("a binlog event's checksum does not match its bytes", file=self.file, pos=self.pos)
        return event[c.HEADER_SIZE : -4]

    # --- events over 16 MiB ---------------------------------------------------------------------------------------

    def _big(self, buf: Bytes, start: int, end: int) -> tuple[Item | None, int]:
        """Join an event from its packets, when all of them have arrived."""
        pieces, p, length = [], start, _MAX_PACKET
        while length == _MAX_PACKET:
            if end - p < _PACKET_HEADER:
                self.needed = p - start + _PACKET_HEADER
                return None, start
            length = int.from_bytes(buf[p : p + 3].tobytes(), "little")
            if end - p < _PACKET_HEADER + length:
                self.needed = p - start + _PACKET_HEADER + length
                return None, start
            pieces.append(buf[p + _PACKET_HEADER : p + _PACKET_HEADER + length])
            p += _PACKET_HEADER + length
        return self._joined(np.concatenate(pieces)), p

    def _joined(self, packet: Bytes) -> Segment:
        if len(packet) < 1 + c.HEADER_SIZE or packet[0] != 0:
            raise ProtocolError("a long packet in the log stream holds no event", file=self.file, pos=self.pos)
        size = len(packet) - 1
        stop = len(packet)
        if self._checksums:
            stop -= c.CRC_SIZE
            if zlib.crc32(packet[1:stop].tobytes()) != int.from_bytes(packet[stop:].tobytes(), "little"):
                raise ChecksumError("a binlog event's checksum does not match its bytes", file=self.file, pos=self.pos)
        position = self._position(int.from_bytes(packet[14:18].tobytes(), "little"))
        self._state[0] = position
        fields = [np.array([value], np.int64) for value in (1, stop, position - size, position)]
        segment = Segment(self.file, packet, *fields)
        return self._expand(segment, 0, stop) if packet[1 + c.TYPE_OFFSET] == c.TRANSACTION_PAYLOAD else segment

    # --- compressed transactions ----------------------------------------------------------------------------------

    def _expand(self, segment: Segment, start: int, stop: int) -> Segment:
        """Replace every TRANSACTION_PAYLOAD by the events in it, at the payload's position."""
        kinds = segment.buf[segment.start + c.TYPE_OFFSET]
        parts: list[Bytes] = [segment.buf[start:stop]]
        index: list[Any] = []
        base = stop - start
        previous = 0
        whole = np.stack([segment.start - start, segment.end - start, segment.pos, segment.next_pos])
        for i in np.flatnonzero(kinds == c.TRANSACTION_PAYLOAD):
            index.append(whole[:, previous:i])
            inner = self._decompress(segment, int(i))
            index.append(self._inner_index(inner, base, int(segment.pos[i]), int(segment.next_pos[i])))
            parts.append(inner)
            base += len(inner)
            previous = int(i) + 1
        index.append(whole[:, previous:])
        merged = np.concatenate(index, axis=1)
        return Segment(segment.file, np.concatenate(parts), merged[0], merged[1], merged[2], merged[3])

    def _decompress(self, segment: Segment, i: int) -> Bytes:
        body = segment.buf[int(segment.start[i]) + c.HEADER_SIZE : int(segment.end[i])].tobytes()
        payload = parse_payload(body)
        where = {"file": segment.file, "pos": int(segment.pos[i])}
        if payload.compression == 255:
            return np.frombuffer(payload.data, np.uint8)
        if payload.compression != 0:
            raise DecodeError(f"a transaction has an unknown compression type ({payload.compression})", **where)
        try:
            with self._zstd.stream_reader(payload.data, read_across_frames=True) as reader:
                # Piece by piece: the size is the event's, and only what arrives takes memory.
                data = b"".join(_pieces(reader, payload.uncompressed_size + 1))
        except zstandard.ZstdError as error:
            raise DecodeError(f"a transaction cannot be decompressed: {error}", **where) from None
        if len(data) != payload.uncompressed_size:
            raise DecodeError(
                f"a compressed transaction holds {len(data)} bytes, its header says {payload.uncompressed_size}",
                **where,
            )
        return np.frombuffer(data, np.uint8)

    def _inner_index(self, inner: Bytes, base: int, pos: int, next_pos: int) -> Any:
        capacity = len(inner) // c.HEADER_SIZE + 1
        starts, ends = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        count, _, bad = frame_event_stream(inner, 0, len(inner), starts, ends)
        if bad:
            raise DecodeError("a compressed transaction holds bytes that are not an event", file=self.file, pos=pos)
        full = np.full((2, count), pos, np.int64)
        full[1] = next_pos
        return np.concatenate([np.stack([starts[:count] + base, ends[:count] + base]), full])
