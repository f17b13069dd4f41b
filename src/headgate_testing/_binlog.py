"""An encoder for binlog events: logs for tests without a server, broken ones included.

Functions and methods return bytes. :class:`BinlogWriter` tracks the position and puts headers and checksums around
bodies. Layouts as in ``headgate.binlog`` (same sources).
"""

from __future__ import annotations

import struct
import uuid as uuids
import zlib
from collections.abc import Sequence

from headgate.binlog import codes as c

__all__ = ["EOF_PACKET", "BinlogWriter", "packed", "packets"]

EOF_PACKET = b"\x05\x00\x00\x01\xfe\x00\x00\x02\x00"
"""The packet that ends a dump, with sequence number 1."""


def packed(value: int) -> bytes:
    """Return a length-encoded integer."""
    if value < 251:
        return bytes([value])
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def packets(events: Sequence[bytes], *, first_sequence: int = 1, largest: int = 0xFFFFFF) -> bytes:
    """Return events as the packets of a dump: status byte 0, split at ``largest`` bytes (real servers: 0xFFFFFF)."""
    out, sequence = [], first_sequence
    for event in events:
        payload = b"\0" + event
        while True:
            piece, payload = payload[:largest], payload[largest:]
            out.append(len(piece).to_bytes(3, "little") + bytes([sequence & 255]) + piece)
            sequence += 1
            if len(piece) < largest:
                break
    return b"".join(out)


class BinlogWriter:
    """Creates events one after another, as a server would write them to one file.

    :param checksums: append a CRC32 to every event.
    :param pos: the position of the next event.
    """

    def __init__(self, file: str = "binlog.000001", *, checksums: bool = True, pos: int = 4) -> None:
        self.file = file
        self.checksums = checksums
        self.pos = pos
        self.timestamp = 1_700_000_000

    def event(
        self, kind: int, body: bytes, *, flags: int = 0, end_pos: int | None = None, advance: bool = True
    ) -> bytes:
        """Return an event: header, body, checksum."""
        size = c.HEADER_SIZE + len(body) + (c.CRC_SIZE if self.checksums else 0)
        if advance:
            self.pos += size
        position = (self.pos if end_pos is None else end_pos) & 0xFFFFFFFF
        data = struct.pack("<IBIIIH", self.timestamp, kind, 1, size, position, flags) + body
        return data + struct.pack("<I", zlib.crc32(data)) if self.checksums else data

    def format_description(self, version: str = "9.7.4") -> bytes:
        """Return FORMAT_DESCRIPTION; it always has room for a checksum and states whether the others have one."""
        body = struct.pack("<H50sIB", 4, version.encode(), self.timestamp, c.HEADER_SIZE) + bytes(42)
        body += bytes([1 if self.checksums else 0])
        checksums, self.checksums = self.checksums, True
        try:
            return self.event(c.FORMAT_DESCRIPTION, body)
        finally:
            self.checksums = checksums

    def rotate(self, file: str, pos: int = 4, *, artificial: bool = True) -> bytes:
        """Return ROTATE; an artificial one begins a dump and has position 0."""
        event = self.event(
            c.ROTATE,
            struct.pack("<Q", pos) + file.encode(),
            flags=c.FLAG_ARTIFICIAL if artificial else 0,
            end_pos=0 if artificial else None,
            advance=not artificial,
        )
        self.file, self.pos = file, pos
        return event

    def heartbeat(self, pos: int) -> bytes:
        """Return HEARTBEAT: the server has read up to ``pos``, of which it holds the low 32 bits."""
        return self.event(c.HEARTBEAT, self.file.encode(), end_pos=pos, advance=False)

    def heartbeat_v2(self, pos: int) -> bytes:
        """Return HEARTBEAT_V2, which holds all of ``pos``; the next event begins there."""
        fields = ((1, self.file.encode()), (2, packed(pos)))
        body = b"".join(packed(number) + packed(len(value)) + value for number, value in fields) + b"\0"
        self.pos = pos
        return self.event(c.HEARTBEAT_V2, body, advance=False)

    def gtid(
        self, uuid: str, number: int, *, commit_us: int = 1_700_000_000_000_000, original_us: int | None = None
    ) -> bytes:
        """Return GTID."""
        times = (commit_us | (1 << 55 if original_us is not None else 0)).to_bytes(7, "little")
        if original_us is not None:
            times += original_us.to_bytes(7, "little")
        body = (
            b"\0"
            + uuids.UUID(uuid).bytes
            + struct.pack("<qBqq", number, 2, 0, 1)
            + times
            + packed(0)
            + struct.pack("<I", 90704)
        )
        return self.event(c.GTID, body)

    def query(
        self,
        statement: str | bytes,
        db: str = "",
        *,
        sql_mode: int = 0,
        collation: int = 255,
        databases: Sequence[str] | int | None = None,
        load_data: bool = False,
        flags: int = 0,
        is_atomic: bool = False,
    ) -> bytes:
        """Return QUERY; a statement of bytes is in the character set of ``collation``, a text becomes UTF-8.

        :param databases: those of the tables that it opened; a number: this count without names, 254 for "unknown";
            None: no such status variable.
        :param load_data: EXECUTE_LOAD_QUERY instead, of a file with number 1.
        :param is_atomic: an atomic DDL statement.
        """
        status = b"\0" + bytes(4) + b"\1" + struct.pack("<Q", sql_mode) + b"\6\3std"
        status += b"\4" + struct.pack("<HHH", collation, collation, 255)
        if isinstance(databases, int):
            status += bytes([12, databases])
        elif databases is not None:
            status += bytes([12, len(databases)]) + b"".join(name.encode() + b"\0" for name in databases)
        if is_atomic:
            status += b"\x11" + struct.pack("<Q", 7)
        status += b"\x12" + struct.pack("<H", 255)
        head = struct.pack("<IIBHH", 1, 0, len(db.encode()), 0, len(status))
        text = statement.encode() if isinstance(statement, str) else statement
        if load_data:
            head += struct.pack("<IIIB", 1, 0, 0, 0)
        body = head + status + db.encode() + b"\0" + text
        return self.event(c.EXECUTE_LOAD_QUERY if load_data else c.QUERY, body, flags=flags)

    def file_piece(self, kind: int, data: bytes = b"") -> bytes:
        """Return BEGIN_LOAD_QUERY or APPEND_BLOCK with a piece of file number 1, or DELETE_FILE, which has none."""
        return self.event(kind, struct.pack("<I", 1) + data)

    def xid(self, number: int = 1) -> bytes:
        """Return XID: commit."""
        return self.event(c.XID, struct.pack("<Q", number))

    def table_map(
        self,
        table_id: int,
        db: str,
        table: str,
        types: Sequence[int],
        metas: bytes,
        *,
        nullable: bytes | None = None,
        optional: bytes = b"",
    ) -> bytes:
        """Return TABLE_MAP; ``metas`` are the raw metadata bytes, ``optional`` the raw optional metadata."""
        body = table_id.to_bytes(6, "little") + b"\1\0"
        for name in (db.encode(), table.encode()):
            body += bytes([len(name)]) + name + b"\0"
        body += packed(len(types)) + bytes(types) + packed(len(metas)) + metas
        body += nullable if nullable is not None else b"\xff" * ((len(types) + 7) // 8)
        return self.event(c.TABLE_MAP, body + optional)

    def rows(
        self,
        kind: int,
        table_id: int,
        columns: int,
        images: bytes,
        *,
        bitmap: bytes | None = None,
        bitmap2: bytes | None = None,
    ) -> bytes:
        """Return WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS (version 1 or 2 by ``kind``) or PARTIAL_UPDATE_ROWS."""
        full = b"\xff" * ((columns + 7) // 8)
        body = table_id.to_bytes(6, "little") + b"\1\0" + (b"\2\0" if kind >= c.WRITE_ROWS else b"") + packed(columns)
        body += full if bitmap is None else bitmap
        if kind in (c.UPDATE_ROWS, c.UPDATE_ROWS_V1, c.PARTIAL_UPDATE_ROWS):
            body += full if bitmap2 is None else bitmap2
        return self.event(kind, body + images)

    def payload(
        self, events: Sequence[bytes], compressed: bytes, *, compression: int = 0, size: int | None = None
    ) -> bytes:
        """Return TRANSACTION_PAYLOAD of ``compressed``; ``events`` (without checksums) give the uncompressed size."""
        whole = sum(len(event) for event in events) if size is None else size

        def field(number: int, value: int) -> bytes:
            encoded = packed(value)
            return packed(number) + packed(len(encoded)) + encoded

        head = field(2, compression) + field(3, whole) + field(1, len(compressed)) + b"\0"
        return self.event(c.TRANSACTION_PAYLOAD, head + compressed)
