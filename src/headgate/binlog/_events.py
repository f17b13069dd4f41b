"""Parsers in Python for events that come once per file, table or statement, not once per row.

Each parser takes the event's body (after the 19-byte header, without the checksum) and returns a small value.
Sources: MySQL source ``libs/mysql/binlog/event/{binlog_event,control_events,statement_events,rows_event}.h``; MySQL
internals documentation, "Binlog Event".

The only error of every parser is :class:`DecodeError`, for bytes that do not fit.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from headgate.binlog import codes as c
from headgate.binlog._cursor import Cursor
from headgate.binlog._table_map import decode_text
from headgate.errors import ChecksumError, DecodeError
from headgate.positions import file_number

__all__ = [
    "FormatDescription",
    "Payload",
    "Query",
    "Rotate",
    "parse_format_description",
    "parse_heartbeat",
    "parse_payload",
    "parse_query",
    "parse_rotate",
]


class FormatDescription(NamedTuple):
    """Server version and checksum setting of a binlog file."""

    server_version: str
    checksums: bool
    """Whether the file's events end in a CRC32."""


class Rotate(NamedTuple):
    """Position at which the log continues."""

    file: str
    pos: int


class Query(NamedTuple):
    """A statement in the log."""

    db: str
    statement: bytes
    """In the client's character set, as the client sent it."""
    sql_mode: int
    """Bits of the statement's sql_mode (ANSI_QUOTES is 4)."""
    collation: int
    """Number of a collation of the client's character set; 0 if the event has none."""
    databases: tuple[str, ...] | None
    """For a change: the databases of all tables that the statement opened, to read or to write, directly or in its
    triggers, stored functions and views. None: the event names none, or there are more than 16, or a foreign key refers
    to one of the tables."""
    is_atomic: bool
    """Whether a storage engine committed it as an atomic DDL statement: one about tables that are not temporary (MySQL
    8.0 and later)."""
    connection_id: int
    """Id of the session that wrote it (``CONNECTION_ID()``)."""


class Payload(NamedTuple):
    """A compressed transaction."""

    compression: int
    """0 zstd, 255 none."""
    uncompressed_size: int
    data: bytes


def parse_format_description(event: bytes) -> FormatDescription:
    """Parse a whole FORMAT_DESCRIPTION event, header and checksum included.

    The event always ends in one byte that names the checksum algorithm (0 none, 1 CRC32) and four bytes of CRC32.
    """
    if len(event) < c.HEADER_SIZE + 57 + 5:
        raise DecodeError(f"a FORMAT_DESCRIPTION event has only {len(event)} bytes")
    body = Cursor(event, c.HEADER_SIZE)
    version = body.uint(2)
    if version != 4:
        raise DecodeError(f"the binlog has format version {version}; only version 4 (MySQL 5.0 and later) is known")
    server_version = body.take(50).rstrip(b"\0").decode("ascii", "replace")
    algorithm = event[-5]
    if algorithm not in (0, 1):
        raise DecodeError(f"the binlog uses checksum algorithm {algorithm}; only 0 (none) and 1 (CRC32) are known")
    if algorithm == 1 and zlib.crc32(event[:-4]) != int.from_bytes(event[-4:], "little"):
        raise ChecksumError("the checksum of a FORMAT_DESCRIPTION event does not match its bytes")
    return FormatDescription(server_version, algorithm == 1)


_LAST_FILE: Final = 0x7FFFFFFF
"""``MAX_LOG_UNIQUE_FN_EXT`` in MySQL's ``sql/binlog.h``."""
_LONGEST_NAME: Final = 512
"""Bytes of a path (``FN_REFLEN``)."""


def parse_rotate(body: bytes) -> Rotate:
    """Parse the body of a ROTATE event."""
    cursor = Cursor(body)
    pos = _position(cursor.uint(8), "ROTATE")
    return Rotate(_file_name(cursor.rest().rstrip(b"\0"), "ROTATE"), pos)


def parse_heartbeat(event_type: int, body: bytes, end_pos: int) -> Rotate:
    """Parse a HEARTBEAT (27) or HEARTBEAT_V2 (41) event: the position up to which the sender has read its log.

    :param end_pos: the position that the event's header stands for; version 1 has no other.
    """
    if event_type == c.HEARTBEAT:
        return Rotate(_file_name(body, "HEARTBEAT"), end_pos)
    cursor, name, pos = Cursor(body), "", end_pos
    while cursor.left:
        field = cursor.packed()
        if field == 0:
            break
        value = Cursor(cursor.take(cursor.packed()))
        if field == 1:
            name = _file_name(value.rest(), "HEARTBEAT")
        elif field == 2:
            pos = _position(value.packed(), "HEARTBEAT")
    return Rotate(name, pos)


def _file_name(data: bytes, event: str) -> str:
    name = decode_text(data[:_LONGEST_NAME], f"the file name of a {event} event")
    if len(data) > _LONGEST_NAME or file_number(name) > _LAST_FILE:
        raise DecodeError(f"a {event} event names the file {name[:80]!r}, which no server has")
    return name


def _position(pos: int, event: str) -> int:
    if pos >= 1 << 63:
        raise DecodeError(f"a {event} event names position {pos}, which no file has")
    return pos


_LOAD_DATA_HEADER = 13
"""Bytes of an EXECUTE_LOAD_QUERY event before its status variables that a QUERY event lacks: the file's id, the place
of its name in the statement, and the rule for duplicates."""


def parse_query(body: bytes, *, load_data: bool = False) -> Query:
    """Parse the body of a QUERY event, or of an EXECUTE_LOAD_QUERY event (``load_data``)."""
    cursor = Cursor(body)
    connection_id = cursor.uint(4)
    cursor.take(4)
    db_size = cursor.uint(1)
    cursor.take(2)
    status_size = cursor.uint(2)
    cursor.take(_LOAD_DATA_HEADER if load_data else 0)
    status = Cursor(cursor.take(status_size))
    db = decode_text(cursor.take(db_size), "the database name of a QUERY event")
    cursor.take(1)
    return Query(db, cursor.rest(), *_status(status), connection_id)


_STATUS_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8}
"""Bytes of the status variables Q_FLAGS2_CODE, Q_SQL_MODE_CODE, Q_AUTO_INCREMENT, Q_CHARSET_CODE, Q_LC_TIME_NAMES_CODE,
Q_CHARSET_DATABASE_CODE, Q_TABLE_MAP_FOR_UPDATE_CODE, Q_MASTER_DATA_WRITTEN_CODE, Q_MICROSECONDS,
Q_EXPLICIT_DEFAULTS_FOR_TIMESTAMP, Q_DDL_LOGGED_WITH_XID."""
_STATUS_TEXTS = {5: 1, 6: 1, 11: 2}
"""Number of texts, each after its length in a byte: Q_TIME_ZONE_CODE, Q_CATALOG_NZ_CODE, Q_INVOKER (user and host)."""
_SQL_MODE, _CHARSET, _DATABASES, _XID = 1, 4, 12, 17
_MOST_DATABASES = 16
"""MAX_DBS_IN_EVENT_MTS: a larger number of databases means that they are not named."""


def _status(status: Cursor) -> tuple[int, int, tuple[str, ...] | None, bool]:
    """Parse ``(sql_mode, the client's collation, databases, is_atomic)`` from the status variables, each a code and a
    value.

    Q_DDL_LOGGED_WITH_XID (17) is the last one that is read. An unknown code ends the parse: its size is unknown.
    Source: MySQL source ``libs/mysql/binlog/event/statement_events.h`` (``Query_event``) and ``sql/log_event.cc``
    (``Query_log_event::write``, their order).
    """
    sql_mode = collation = 0
    databases = None
    while status.left:
        code = status.uint(1)
        if code in _STATUS_SIZES:
            value = int.from_bytes(status.take(_STATUS_SIZES[code]), "little")
            if code == _SQL_MODE:
                sql_mode = value
            elif code == _CHARSET:
                collation = value & 0xFFFF
            elif code == _XID:
                return sql_mode, collation, databases, True
        elif code in _STATUS_TEXTS:
            for _ in range(_STATUS_TEXTS[code]):
                status.take(status.uint(1))
        elif code == _DATABASES:
            databases = _databases(status)
        else:
            break
    return sql_mode, collation, databases, False


def _databases(status: Cursor) -> tuple[str, ...] | None:
    """Parse the value of Q_UPDATED_DB_NAMES: a number and so many names, each followed by a zero byte.

    An empty name means that the server does not know the databases. (MySQL source ``sql/binlog.cc``,
    ``THD::decide_logging_format``, and ``sql/log_event.cc``, ``Query_log_event::write``.)
    """
    count = status.uint(1)
    if count > _MOST_DATABASES:
        return None
    names = []
    for _ in range(count):
        name = bytearray()
        while byte := status.uint(1):
            name.append(byte)
        names.append(decode_text(bytes(name), "a database name of a QUERY event"))
    return tuple(names) if names and all(names) else None


def parse_payload(body: bytes) -> Payload:
    """Parse the body of a TRANSACTION_PAYLOAD event: type-length-value fields, an end mark (0), the payload."""
    cursor = Cursor(body)
    size = uncompressed = None
    compression = 255
    while True:
        field = cursor.packed()
        if field == 0:
            break
        value = Cursor(cursor.take(cursor.packed()))
        if field == 1:
            size = value.packed()
        elif field == 2:
            compression = value.packed()
        elif field == 3:
            uncompressed = value.packed()
    data = cursor.take(cursor.left if size is None else size)
    return Payload(compression, len(data) if uncompressed is None else uncompressed, data)
