"""The events that are parsed in Python: those that come once per file, table or statement, not once per row.

Each parser takes the event's body (after the 19-byte header, without the checksum) and returns a small value.
Sources: MySQL source ``libs/mysql/binlog/event/{binlog_event,control_events,statement_events,rows_event}.h``; MySQL
internals documentation, "Binlog Event".

Every parser raises :class:`DecodeError` for bytes that do not fit, and nothing else.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from headgate.binlog import codes as c
from headgate.binlog._cursor import Cursor
from headgate.binlog._layout import real_type
from headgate.errors import ChecksumError, DecodeError

__all__ = [
    "FormatDescription",
    "Payload",
    "Query",
    "Rotate",
    "TableMap",
    "TaggedGtid",
    "parse_format_description",
    "parse_heartbeat",
    "parse_payload",
    "parse_query",
    "parse_rotate",
    "parse_table_map",
    "parse_tagged_gtid",
]


class FormatDescription(NamedTuple):
    """What a binlog file says of itself."""

    server_version: str
    checksums: bool
    """Whether the file's events end in a CRC32."""


class Rotate(NamedTuple):
    """Where the log goes on."""

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
    """The number of a collation of the client's character set; 0 if the event does not say."""
    databases: tuple[str, ...] | None
    """Of a change: the databases of all tables that the statement opened, to read or to write, by itself, its triggers,
    its stored functions and its views. None: the event does not say, or there are more than 16, or a foreign key refers
    to one of the tables."""
    connection_id: int
    """Of the session that wrote it (``CONNECTION_ID()``)."""


class TaggedGtid(NamedTuple):
    """The GTID event of a transaction with a tag (MySQL 8.3 and later)."""

    sid: bytes
    tag: str
    number: int
    original_commit_us: int
    """Microseconds since the Unix epoch."""


class Payload(NamedTuple):
    """A compressed transaction."""

    compression: int
    """0 zstd, 255 none."""
    uncompressed_size: int
    data: bytes


class TableMap(NamedTuple):
    """A table definition in the log. Per-column tuples have one entry a column, in table order."""

    table_id: int
    db: str
    table: str
    types: bytes
    metas: tuple[int, ...]
    """The column's metadata bytes as a little-endian number, 0 where it has none."""
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None
    charsets: tuple[int, ...] | None = None
    """Collation ids; 0 for a column that is not text."""
    names: tuple[str, ...] | None = None
    """None with ``binlog_row_metadata=MINIMAL``."""
    members: tuple[tuple[bytes, ...], ...] | None = None
    """Of ENUM and SET columns, in the column's character set; () for the others."""
    geometry_types: tuple[int, ...] | None = None
    primary_key: tuple[int, ...] | None = None
    """Column indexes; None if the table has none (or the metadata is minimal)."""
    visible: tuple[bool, ...] | None = None
    dimensions: tuple[int, ...] | None = None
    """VECTOR columns' dimensions, in the order of the VECTOR columns."""


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


def parse_rotate(body: bytes) -> Rotate:
    """Parse the body of a ROTATE event."""
    cursor = Cursor(body)
    pos = cursor.uint(8)
    if pos >= 1 << 63:
        raise DecodeError(f"a ROTATE event names position {pos}, which no file has")
    return Rotate(_text(cursor.rest().rstrip(b"\0"), "the file name of a ROTATE event"), pos)


def parse_heartbeat(event_type: int, body: bytes, end_pos: int) -> Rotate:
    """Parse a HEARTBEAT (27) or HEARTBEAT_V2 (41) event: the position up to which the sender has read its log.

    :param end_pos: the position in the event's header (what version 1 uses).
    """
    if event_type == c.HEARTBEAT:
        return Rotate(_text(body, "the file name of a HEARTBEAT event"), end_pos)
    cursor, name, pos = Cursor(body), "", end_pos
    while cursor.left:
        field = cursor.packed()
        if field == 0:
            break
        value = Cursor(cursor.take(cursor.packed()))
        if field == 1:
            name = _text(value.rest(), "the file name of a HEARTBEAT event")
        elif field == 2:
            pos = value.packed()
    return Rotate(name, pos)


_LOAD_DATA_HEADER = 13
"""Bytes of an EXECUTE_LOAD_QUERY event before its status variables that a QUERY event lacks: the file's id, where its
name is in the statement, and what to do with duplicates."""


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
    db = _text(cursor.take(db_size), "the database name of a QUERY event")
    cursor.take(1)
    return Query(db, cursor.rest(), *_status(status), connection_id)


_STATUS_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4}
"""Bytes of the status variables Q_FLAGS2_CODE, Q_SQL_MODE_CODE, Q_AUTO_INCREMENT, Q_CHARSET_CODE, Q_LC_TIME_NAMES_CODE,
Q_CHARSET_DATABASE_CODE, Q_TABLE_MAP_FOR_UPDATE_CODE, Q_MASTER_DATA_WRITTEN_CODE."""
_STATUS_TEXTS = {5: 1, 6: 1, 11: 2}
"""How many texts, each after its length in a byte: Q_TIME_ZONE_CODE, Q_CATALOG_NZ_CODE, Q_INVOKER (user and host)."""
_SQL_MODE, _CHARSET, _DATABASES = 1, 4, 12
_MOST_DATABASES = 16
"""MAX_DBS_IN_EVENT_MTS: a larger number of databases says that they are not named."""


def _status(status: Cursor) -> tuple[int, int, tuple[str, ...] | None]:
    """``(sql_mode, the client's collation, databases)`` out of the status variables, each a code and a value.

    What follows Q_UPDATED_DB_NAMES (12) is not read. An unknown code before it ends the reading: its size is unknown.
    Source: MySQL source ``libs/mysql/binlog/event/statement_events.h`` (``Query_event``).
    """
    sql_mode = collation = 0
    while status.left:
        code = status.uint(1)
        if code in _STATUS_SIZES:
            value = int.from_bytes(status.take(_STATUS_SIZES[code]), "little")
            if code == _SQL_MODE:
                sql_mode = value
            elif code == _CHARSET:
                collation = value & 0xFFFF
        elif code in _STATUS_TEXTS:
            for _ in range(_STATUS_TEXTS[code]):
                status.take(status.uint(1))
        else:
            return sql_mode, collation, _databases(status) if code == _DATABASES else None
    return sql_mode, collation, None


def _databases(status: Cursor) -> tuple[str, ...] | None:
    """The value of Q_UPDATED_DB_NAMES: a number and so many names, each with a zero byte behind it.

    An empty name stands for databases that the server does not know. (MySQL source ``sql/binlog.cc``,
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
        names.append(_text(bytes(name), "a database name of a QUERY event"))
    return tuple(names) if names and all(names) else None


def parse_tagged_gtid(body: bytes) -> TaggedGtid:
    """Parse the body of a GTID_TAGGED (42) event.

    It is a message of the server's serialization library: a format version, the message's size and the last field that
    a reader must know, then fields, each preceded by its number; all numbers variable-length.
    Source: MySQL source ``libs/mysql/binlog/event/control_events.h`` (``Gtid_event::define_fields``).
    """
    cursor = Cursor(body)
    cursor.varint()
    cursor.varint()
    cursor.varint()
    sid, tag, number, immediate, original = b"", "", 0, 0, None
    while cursor.left:
        field = cursor.varint()
        if field == 0:
            cursor.varint()
        elif field == 1:
            sid = bytes(cursor.varint() & 0xFF for _ in range(16))
        elif field == 2:
            number = cursor.signed_varint()
        elif field == 3:
            tag = _text(cursor.take(cursor.varint()), "the tag of a GTID")
        elif field in (4, 5):
            cursor.signed_varint()
        elif field == 6:
            immediate = cursor.varint()
        elif field == 7:
            original = cursor.varint()
        else:
            break
    if len(sid) != 16 or number <= 0:
        raise DecodeError("a GTID_TAGGED event names no GTID")
    return TaggedGtid(sid, tag, number, immediate if original is None else original)


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


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise DecodeError(f"{what} is not UTF-8: {data[:80]!r}") from None


# --- TABLE_MAP ----------------------------------------------------------------------------------------------------

_META_TWO = frozenset({c.T_VARCHAR, c.T_BIT, c.T_NEWDECIMAL, c.T_STRING, c.T_VAR_STRING, c.T_ENUM, c.T_SET})
_META_ONE = frozenset(
    {c.T_FLOAT, c.T_DOUBLE, c.T_BLOB, c.T_GEOMETRY, c.T_JSON, c.T_VECTOR, c.T_TIME2, c.T_DATETIME2, c.T_TIMESTAMP2}
)
_NUMERIC = frozenset(
    {c.T_TINY, c.T_SHORT, c.T_INT24, c.T_LONG, c.T_LONGLONG, c.T_FLOAT, c.T_DOUBLE, c.T_NEWDECIMAL, c.T_DECIMAL,
     c.T_YEAR}
)  # fmt: skip
_TEXT = frozenset(
    {c.T_STRING, c.T_VAR_STRING, c.T_VARCHAR, c.T_BLOB, c.T_TINY_BLOB, c.T_MEDIUM_BLOB, c.T_LONG_BLOB, c.T_VECTOR}
)  # fmt: skip
"""Types with an entry in the character set fields: VECTOR too (GEOMETRY and JSON not)."""
_MEMBERS = frozenset({c.T_ENUM, c.T_SET})


def parse_table_map(body: bytes) -> TableMap:
    """Parse the body of a TABLE_MAP event with whatever optional metadata it carries."""
    cursor = Cursor(body)
    table_id = cursor.uint(6)
    cursor.take(2)
    db = _text(cursor.take(cursor.uint(1)), "a database name")
    cursor.take(1)
    table = _text(cursor.take(cursor.uint(1)), "a table name")
    cursor.take(1)
    count = cursor.packed()
    types = cursor.take(count)
    metas = _column_metadata(types, Cursor(cursor.take(cursor.packed())))
    null_bits = cursor.take((count + 7) // 8)
    nullable = tuple(bool(null_bits[i >> 3] >> (i & 7) & 1) for i in range(count))
    return _optional_metadata(TableMap(table_id, db, table, types, metas, nullable), cursor)


def _column_metadata(types: bytes, cursor: Cursor) -> tuple[int, ...]:
    metas = []
    for code in types:
        size = 2 if code in _META_TWO else 1 if code in _META_ONE else 0
        metas.append(cursor.uint(size) if size else 0)
    if cursor.left:
        raise DecodeError(f"a TABLE_MAP event has {cursor.left} bytes of column metadata too many")
    return tuple(metas)


def _optional_metadata(table: TableMap, cursor: Cursor) -> TableMap:
    """Type-length-value fields of ``Table_map_event::Optional_metadata_fields``."""
    kinds = [real_type(code, meta)[0] for code, meta in zip(table.types, table.metas, strict=True)]
    text = [i for i, kind in enumerate(kinds) if kind in _TEXT]
    listed = [i for i, kind in enumerate(kinds) if kind in _MEMBERS]
    charsets = [0] * len(kinds)
    members: list[tuple[bytes, ...]] = [()] * len(kinds)
    found: dict[str, object] = {}
    while cursor.left:
        field = cursor.uint(1)
        value = Cursor(cursor.take(cursor.packed()))
        if field == 1:
            found["unsigned"] = _bits(value, [i for i, kind in enumerate(kinds) if kind in _NUMERIC], len(kinds))
        elif field in (2, 10):
            _default_charsets(value, text if field == 2 else listed, charsets)
            found["charsets"] = ()
        elif field in (3, 11):
            for i in text if field == 3 else listed:
                charsets[i] = value.packed()
            found["charsets"] = ()
        elif field == 4:
            found["names"] = tuple(_text(value.take(value.packed()), "a column name") for _ in kinds)
        elif field in (5, 6):
            wanted = c.T_SET if field == 5 else c.T_ENUM
            for i in (i for i in listed if kinds[i] == wanted):
                members[i] = tuple(value.take(value.packed()) for _ in range(value.packed()))
            found["members"] = ()
        elif field == 7:
            found["geometry_types"] = _packed_list(value)
        elif field == 8:
            found["primary_key"] = _packed_list(value)
        elif field == 9:
            found["primary_key"] = _packed_list(value)[::2]
        elif field == 12:
            found["visible"] = _bits(value, list(range(len(kinds))), len(kinds))
        elif field == 13:
            found["dimensions"] = _packed_list(value)
    if "charsets" in found:
        found["charsets"] = tuple(charsets)
    if "members" in found:
        found["members"] = tuple(members)
    return _check_key(table._replace(**found))  # type: ignore[arg-type]


def _check_key(table: TableMap) -> TableMap:
    if table.primary_key is not None and any(i >= len(table.types) for i in table.primary_key):
        raise DecodeError("a TABLE_MAP event names a key column that does not exist", table=f"{table.db}.{table.table}")
    return table


def _bits(value: Cursor, columns: list[int], count: int) -> tuple[bool, ...]:
    """A bitmap over ``columns``, most significant bit first, spread over all ``count`` columns."""
    data = value.rest()
    if len(data) * 8 < len(columns):
        raise DecodeError("a bitmap in a TABLE_MAP event is too short")
    spread = [False] * count
    for k, i in enumerate(columns):
        spread[i] = bool(data[k >> 3] >> (7 - (k & 7)) & 1)
    return tuple(spread)


def _default_charsets(value: Cursor, columns: list[int], charsets: list[int]) -> None:
    """A default collation id, then pairs (index among ``columns``, collation id) for those that differ."""
    default = value.packed()
    for i in columns:
        charsets[i] = default
    while value.left:
        index = value.packed()
        if index >= len(columns):
            raise DecodeError("a TABLE_MAP event gives a character set to a column that does not exist")
        charsets[columns[index]] = value.packed()


def _packed_list(value: Cursor) -> tuple[int, ...]:
    numbers = []
    while value.left:
        numbers.append(value.packed())
    return tuple(numbers)
