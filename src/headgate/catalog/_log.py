"""Table definitions from the log: a TABLE_MAP event with ``binlog_row_metadata=FULL`` describes its table completely.

With ``MINIMAL``, the server's default, it has of each column the type with its lengths, whether it may be NULL, the
sign of numbers, the collation of text, the kind of geometries and the dimension of vectors. It lacks names, ENUM and
SET members with their character set, visibility, and the key. :func:`fit_table` checks a definition from another source
against everything that it has. The caller must prove that the rest is right, too.

The key in the event is the PRIMARY KEY or, without one, the UNIQUE NOT NULL key that MySQL uses in its place; an event
without a key is of a table that had none. The log does not say whether a column is generated (not part of equality).

Sources: MySQL source ``sql/log_event.cc`` (``Table_map_log_event``), ``include/field_types.h``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.catalog._charsets import COLLATIONS, decode_text, normalise
from headgate.catalog._table import GEOMETRIES, NUMBERS, Column, TableDef
from headgate.errors import SchemaAmbiguousError, UnsupportedError

if TYPE_CHECKING:
    from headgate.binlog import TableMap

__all__ = ["ambiguous", "fit_table", "table_from_table_map"]

_BINARY_COLLATION = 63

_PLAIN_TYPES = {
    1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 8: "bigint", 9: "mediumint", 10: "date",
    13: "year", 14: "date", 16: "bit", 17: "timestamp", 18: "datetime", 19: "time", 242: "vector", 245: "json",
    246: "decimal", 247: "enum", 248: "set", 255: "geometry",
}  # fmt: skip
"""Type codes that alone determine the name."""
_TEXT_TYPES = {15: ("varchar", "varbinary"), 253: ("varchar", "varbinary"), 254: ("char", "binary")}
_BLOB_TYPES = {
    1: ("tinytext", "tinyblob"),
    2: ("text", "blob"),
    3: ("mediumtext", "mediumblob"),
    4: ("longtext", "longblob"),
}
"""Names by the number of bytes of the length prefix."""
_BLOB = 252
_OLD_TEMPORALS = {7: "timestamp", 11: "time", 12: "datetime"}
"""Column formats from before MySQL 5.6.4; MySQL 8.0 and later cannot hold them."""


def table_from_table_map(table_map: TableMap) -> TableDef:
    """Return the table that a TABLE_MAP event describes. Its key is what MySQL uses as primary, or ().

    :raises SchemaAmbiguousError: the event has no column names (``binlog_row_metadata=MINIMAL``).
    :raises UnsupportedError: a column type or collation is unknown.
    """
    if table_map.names is None:
        raise ambiguous(_name(table_map), "no server can be queried")
    columns = tuple(_column(table_map, index, name) for index, name in enumerate(table_map.names))
    key = tuple(table_map.primary_key or ())
    if any(index >= len(columns) for index in key):
        key = ()  # on a hidden column of a functional index: no row image holds it
    return TableDef(table_map.db, table_map.table, columns, key)


def fit_table(table_map: TableMap, known: TableDef) -> TableDef:
    """Return ``known``, if nothing in a TABLE_MAP event without names contradicts it.

    :raises SchemaAmbiguousError: the event contradicts it.
    :raises UnsupportedError: a column type or collation is unknown.
    """
    table = _name(table_map)
    if len(known.columns) != len(table_map.types):
        counts = f"the log has {len(table_map.types)} columns, information_schema has {len(known.columns)}"
        raise ambiguous(table, counts)
    for index, column in enumerate(known.columns):
        logged = _column(table_map, index, column.name)
        listed = column.type in ("enum", "set")
        if listed:
            logged = replace(logged, charset=column.charset, collation=column.collation, members=column.members)
        logged = replace(logged, visible=column.visible)
        if logged != column or (logged.detail and column.detail and logged.detail != column.detail):
            logged_type, known_type = _described(logged), _described(column)
            raise ambiguous(
                table, f"column {index + 1} is {logged_type} in the log, {known_type} in information_schema"
            )
        if listed:
            _check_members(table_map, index, column)
    return known


def ambiguous(table: str, reason: str) -> SchemaAmbiguousError:
    """Return the error for a table whose columns the log does not name, if no other source knows them.

    :param reason: why they are unknown, as half a sentence.
    """
    return SchemaAmbiguousError(
        f"the log does not name the columns of {table} (binlog_row_metadata=MINIMAL), and they are unknown: {reason}"
        f"; run SET GLOBAL binlog_row_metadata = 'FULL'; and then headgate run --resnapshot '{table}'",
        table=table,
        reason=reason,
    )


def _described(column: Column) -> str:
    null = "" if column.nullable else " NOT NULL"
    collation = f" COLLATE {column.collation}" if column.collation else ""
    detail = f" ({column.detail})" if column.detail else ""
    return f"{column.mysql}{detail}{collation}{null}"


_WIDE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
"""Character sets with characters above U+FFFF, which information_schema shows as ``?``."""


def _check_members(table_map: TableMap, index: int, column: Column) -> None:
    """Check the number of members: the log stores an ENUM in 1 or 2 bytes and a SET in 1, 2, 3, 4 or 8, by it."""
    from headgate.binlog import real_type

    count = len(column.members)
    enum_size, set_size = 1 if count < 256 else 2, (count + 7) // 8 if count <= 32 else 8
    size = enum_size if column.type == "enum" else set_size
    table = _name(table_map)
    if real_type(table_map.types[index], table_map.metas[index])[1] != size:
        raise ambiguous(table, f"column {column.name} has another number of members in the log")
    if column.charset in _WIDE and any("?" in member for member in column.members):
        raise ambiguous(table, f"information_schema may show a member of column {column.name} with ? for a character")


def _name(table_map: TableMap) -> str:
    return f"{table_map.db}.{table_map.table}"


def _column(table_map: TableMap, index: int, name: str) -> Column:
    from headgate.binlog import real_type  # here, because headgate.binlog loads its compiled kernels

    code, meta = real_type(table_map.types[index], table_map.metas[index])
    where = _name(table_map)
    charset, collation = _charset(table_map, index, name)
    kind = _kind(code, meta, charset, where, name)
    if kind not in ("enum", "set") and code not in _TEXT_TYPES and code != _BLOB:
        charset = collation = None
    return Column(
        name=name,
        type=kind,
        nullable=table_map.nullable[index],
        unsigned=kind in NUMBERS and table_map.unsigned is not None and table_map.unsigned[index],
        precision=_precision(kind, meta),
        scale=_scale(kind, meta),
        length=meta if code in _TEXT_TYPES else 0,
        charset=charset,
        collation=collation,
        members=tuple(
            decode_text(member, charset, table=where, column=name)
            for member in (table_map.members[index] if table_map.members is not None else ())
        ),
        visible=table_map.visible is None or table_map.visible[index],
        detail=_detail(table_map, index, kind),
    )


def _detail(table_map: TableMap, index: int, kind: str) -> str:
    """Return a geometry type or dimension, listed in the order of the columns that have one."""
    numbers = {"geometry": table_map.geometry_types, "vector": table_map.dimensions}.get(kind)
    ordinal = table_map.types[:index].count(table_map.types[index])
    if numbers is None or ordinal >= len(numbers):
        return ""
    number = numbers[ordinal]
    if kind == "vector":
        return str(number)
    return GEOMETRIES[number] if number < len(GEOMETRIES) else ""


def _charset(table_map: TableMap, index: int, name: str) -> tuple[str | None, str | None]:
    number = table_map.charsets[index] if table_map.charsets is not None else 0
    if number in (0, _BINARY_COLLATION):
        return None, None
    if number not in COLLATIONS:
        raise UnsupportedError(f"collation number {number} is not known", table=_name(table_map), column=name)
    collation, charset = COLLATIONS[number]
    return normalise(charset, collation)


def _kind(code: int, meta: int, charset: str | None, table: str, column: str) -> str:
    is_bytes = charset is None
    if code in _PLAIN_TYPES:
        return _PLAIN_TYPES[code]
    if code in _TEXT_TYPES:
        return _TEXT_TYPES[code][is_bytes]
    if code == _BLOB and meta in _BLOB_TYPES:
        return _BLOB_TYPES[meta][is_bytes]
    if code in _OLD_TEMPORALS:
        raise UnsupportedError(
            f"a {_OLD_TEMPORALS[code]} column in the format from before MySQL 5.6.4; run ALTER TABLE … FORCE",
            table=table,
            column=column,
        )
    raise UnsupportedError(f"column type code {code} is not known", table=table, column=column)


def _precision(kind: str, meta: int) -> int:
    if kind == "decimal":
        return meta & 0xFF
    if kind == "bit":
        return (meta >> 8) * 8 + (meta & 0xFF)
    return 0


def _scale(kind: str, meta: int) -> int:
    if kind == "decimal":
        return meta >> 8
    return meta if kind in ("datetime", "timestamp", "time") else 0
