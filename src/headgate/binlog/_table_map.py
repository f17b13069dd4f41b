"""TABLE_MAP events: a table as the log describes it before its rows.

The body of the event:

| bytes | field |
|---|---|
| 6 | table id |
| 2 | flags |
| 1 + n + 1 | database: length, name, a zero byte |
| 1 + n + 1 | table: the same |
| length-encoded | number of columns |
| columns | type code of each |
| length-encoded + n | metadata of the types that have some: 1 or 2 bytes each |
| (columns + 7) / 8 | bitmap: may be NULL |
| the rest | optional metadata (``_Field``) |

Sources: MySQL source ``libs/mysql/binlog/event/rows_event.h``, ``Table_map_event``.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Any, Final, NamedTuple

from headgate.binlog import codes as c
from headgate.binlog._cursor import Cursor
from headgate.binlog._layout import real_type
from headgate.errors import DecodeError

__all__ = ["TableMap", "decode_text", "parse_table_map"]

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
)
"""Types with an entry in the character set fields: also VECTOR, but not GEOMETRY and JSON."""
_MEMBERS = frozenset({c.T_ENUM, c.T_SET})


class TableMap(NamedTuple):
    """A table definition in the log. Per-column tuples have one entry per column, in table order."""

    table_id: int
    db: str
    table: str
    types: bytes
    metas: tuple[int, ...]
    """The column's metadata bytes as a little-endian number, 0 if it has none."""
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None
    charsets: tuple[int, ...] | None = None
    """Collation ids; 0 for a column that is not text."""
    names: tuple[str, ...] | None = None
    """None with ``binlog_row_metadata=MINIMAL``."""
    members: tuple[tuple[bytes, ...], ...] | None = None
    """Members of ENUM and SET columns, in the column's character set; () for the others."""
    geometry_types: tuple[int, ...] | None = None
    primary_key: tuple[int, ...] | None = None
    """Column indexes; None if the table has none (or the metadata is minimal)."""
    visible: tuple[bool, ...] | None = None
    dimensions: tuple[int, ...] | None = None
    """Dimensions of the VECTOR columns, in their order."""


class _Field(IntEnum):
    """The fields of a TABLE_MAP's optional metadata.

    Source: MySQL source ``libs/mysql/binlog/event/rows_event.h``, ``Optional_metadata_field_type``.
    """

    SIGNEDNESS = 1
    """A bit for each numeric column: 1 if unsigned."""
    DEFAULT_CHARSET = 2
    """Collation ids of text columns: a default, then pairs of index and id for the others."""
    COLUMN_CHARSET = 3
    """The same as an id for each column."""
    COLUMN_NAME = 4
    SET_STR_VALUE = 5
    """Members of each SET column: a count, then so many texts."""
    ENUM_STR_VALUE = 6
    GEOMETRY_TYPE = 7
    """A number for each geometry column."""
    SIMPLE_PRIMARY_KEY = 8
    """Column indexes."""
    PRIMARY_KEY_WITH_PREFIX = 9
    """Pairs: column index, and length of the prefix."""
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12
    """A bit for each column."""
    VECTOR_DIMENSIONALITY = 13
    """A number for each VECTOR column."""


_NUMBERS: Final = {
    _Field.GEOMETRY_TYPE: "geometry_types",
    _Field.SIMPLE_PRIMARY_KEY: "primary_key",
    _Field.VECTOR_DIMENSIONALITY: "dimensions",
}
"""Fields that are a list of length-encoded integers, and their names in :class:`TableMap`."""


def parse_table_map(body: bytes) -> TableMap:
    """Parse the body of a TABLE_MAP event with all optional metadata that it carries."""
    cursor = Cursor(body)
    table_id = cursor.uint(6)
    cursor.take(2)
    db = decode_text(cursor.take(cursor.uint(1)), "a database name")
    cursor.take(1)
    table = decode_text(cursor.take(cursor.uint(1)), "a table name")
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
    """Read type-length-value fields: a :class:`_Field` (1 byte), a length-encoded integer, and so many bytes."""
    metadata = _Metadata(table)
    while cursor.left:
        field = cursor.uint(1)
        metadata.read(field, Cursor(cursor.take(cursor.packed())))
    return _check_key(metadata.described())


class _Metadata:
    """Optional metadata of one TABLE_MAP. Unknown fields are skipped."""

    def __init__(self, table: TableMap) -> None:
        self._table = table
        self._kinds = [real_type(code, meta)[0] for code, meta in zip(table.types, table.metas, strict=True)]
        self._fields: dict[str, Any] = {}

    def read(self, field: int, value: Cursor) -> None:
        if field in _NUMBERS:
            self._fields[_NUMBERS[_Field(field)]] = _packed_list(value)
        elif field == _Field.PRIMARY_KEY_WITH_PREFIX:
            self._fields["primary_key"] = _packed_list(value)[::2]
        elif field == _Field.SIGNEDNESS:
            self._fields["unsigned"] = _bits(value, self._of(_NUMERIC), len(self._kinds))
        elif field == _Field.COLUMN_VISIBILITY:
            self._fields["visible"] = _bits(value, list(range(len(self._kinds))), len(self._kinds))
        elif field == _Field.COLUMN_NAME:
            names = (decode_text(value.take(value.packed()), "a column name") for _ in self._kinds)
            self._fields["names"] = tuple(names)
        elif field in (_Field.SET_STR_VALUE, _Field.ENUM_STR_VALUE):
            members = self._for_each_column("members", ())
            for i in self._of({c.T_SET if field == _Field.SET_STR_VALUE else c.T_ENUM}):
                members[i] = tuple(value.take(value.packed()) for _ in range(value.packed()))
        else:
            self._read_charsets(field, value)

    def _read_charsets(self, field: int, value: Cursor) -> None:
        if field == _Field.DEFAULT_CHARSET:
            _default_charsets(value, self._of(_TEXT), self._for_each_column("charsets", 0))
        elif field == _Field.ENUM_AND_SET_DEFAULT_CHARSET:
            _default_charsets(value, self._of(_MEMBERS), self._for_each_column("charsets", 0))
        elif field in (_Field.COLUMN_CHARSET, _Field.ENUM_AND_SET_COLUMN_CHARSET):
            charsets = self._for_each_column("charsets", 0)
            for i in self._of(_TEXT if field == _Field.COLUMN_CHARSET else _MEMBERS):
                charsets[i] = value.packed()

    def _of(self, kinds: Collection[int]) -> list[int]:
        """Return the indexes of the columns of these types."""
        return [i for i, kind in enumerate(self._kinds) if kind in kinds]

    def _for_each_column(self, name: str, default: Any) -> list[Any]:
        """Return a list with an entry per column, filled by several fields."""
        entries: list[Any] = self._fields.setdefault(name, [default] * len(self._kinds))
        return entries

    def described(self) -> TableMap:
        """Return the table with everything that was read."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in self._fields.items()
        }
        return TableMap(**{**self._table._asdict(), **fields})


def _check_key(table: TableMap) -> TableMap:
    if table.primary_key is not None and any(i >= len(table.types) for i in table.primary_key):
        raise DecodeError("a TABLE_MAP event names a key column that does not exist", table=f"{table.db}.{table.table}")
    return table


def _bits(value: Cursor, columns: list[int], count: int) -> tuple[bool, ...]:
    """Read a bitmap over ``columns``, most significant bit first, spread over all ``count`` columns."""
    data = value.rest()
    if len(data) * 8 < len(columns):
        raise DecodeError("a bitmap in a TABLE_MAP event is too short")
    spread = [False] * count
    for k, i in enumerate(columns):
        spread[i] = bool(data[k >> 3] >> (7 - (k & 7)) & 1)
    return tuple(spread)


def _default_charsets(value: Cursor, columns: list[int], charsets: list[int]) -> None:
    """Read a default collation id, then pairs (index among ``columns``, collation id) for those that differ."""
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


def decode_text(data: bytes, what: str) -> str:
    """Decode UTF-8.

    :param what: name of the text, for the message.
    :raises DecodeError: the bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise DecodeError(f"{what} is not UTF-8: {data[:80]!r}") from None
