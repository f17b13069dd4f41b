"""Definitions of tables and columns, independent of their source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from headgate.errors import SchemaChangedError
from headgate.names import in_utf8mb3, lower_name

__all__ = ["BINARIES", "GEOMETRIES", "INTEGERS", "NUMBERS", "TEMPORALS", "TEXTS", "Column", "TableDef"]

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
NUMBERS = INTEGERS | {"float", "double", "decimal"}
"""Types that can be UNSIGNED (MySQL Reference Manual, "Numeric Data Type Syntax")."""
TEMPORALS = frozenset({"date", "datetime", "timestamp", "time"})
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
GEOMETRIES = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection"
)  # fmt: skip
"""By their numbers in the log (``Field::geometry_type``)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column, normalised: equal whether it comes from the log or from information_schema."""

    name: str
    type: str
    """MySQL's DATA_TYPE in lower case; every geometry type is ``geometry``."""
    nullable: bool = True
    unsigned: bool = False
    precision: int = 0
    """decimal: digits; bit: bits; else 0."""
    scale: int = 0
    """decimal: digits after the point; datetime, timestamp, time: fraction digits 0 to 6; else 0."""
    length: int = 0
    """char, varchar, binary, varbinary: maximum length in bytes; else 0."""
    charset: str | None = None
    """char, varchar, text types, enum, set: MySQL's character set name; None = bytes."""
    collation: str | None = None
    members: tuple[str, ...] = ()
    """enum, set: values in index order, as text."""
    visible: bool = True
    generated: bool = field(default=False, compare=False)
    """Known only from information_schema, so not part of equality or fingerprint."""
    detail: str = field(default="", compare=False)
    """geometry: the type as declared (``point``); vector: its dimension; else ``""``. Not part of equality either."""
    source_name: str = field(default="", compare=False)
    """Of a table as it is written (``headgate.columns.TableCodec.table``): a renamed column's name in MySQL; else
    ``""``."""
    rule: str = field(default="", compare=False)
    """Of a table as it is written: a mark of the rule that changes the column's values; ``""``: none does."""
    comment: str = field(default="", compare=False)
    """Known only from information_schema: see :attr:`TableDef.comment`."""

    @property
    def mysql_name(self) -> str:
        """The column's name in MySQL, also of a table as it is written."""
        return self.source_name or self.name

    @property
    def mysql(self) -> str:
        """Column type as MySQL writes it, with lengths in characters as in DDL."""
        return _type_text(self)


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table: its columns in table order (as the log numbers them), and the key that identifies a row."""

    db: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...] = ()
    """Column indexes of the primary key, or of the chosen unique NOT NULL key; () = keyless."""
    has_chosen_key: bool = field(default=False, compare=False)
    """Whether the user chose the key (``Policies.key``), so that MySQL does not enforce it."""
    comment: str | None = field(default=None, compare=False)
    """The table's COMMENT; None: the definition is from the log, which has no comments, of columns neither."""

    @property
    def full_name(self) -> str:
        """``db.name``"""
        return f"{self.db}.{self.name}"

    @property
    def key_names(self) -> tuple[str, ...]:
        """Column names of the key, in key order."""
        return tuple(self.columns[index].name for index in self.key)

    @property
    def fingerprint(self) -> str:
        """32 hex digits over everything that equality compares; the same in every process and version of Python."""
        text = json.dumps([self.db, self.name, [_canonical(column) for column in self.columns], list(self.key)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def index(self, name: str) -> int:
        """Return the index of a column, by MySQL's rule that column names differ by more than letter case.

        :raises SchemaChangedError: the table has no such column.
        """
        wanted = lower_name(name)
        for index, column in enumerate(self.columns):
            if lower_name(column.name) == wanted:
                return index
        raise SchemaChangedError(f"the table has no column {name!r}", table=self.full_name, column=name)

    def with_key(self, names: Sequence[str]) -> TableDef:
        """Return the same table with another key than the log's (``()`` = keyless).

        :raises SchemaChangedError: the table has no column of that name.
        """
        return replace(self, key=tuple(self.index(name) for name in names))

    def with_members_of(self, logged: TableDef) -> TableDef:
        """Return the same table with the log's ENUM and SET members if information_schema shows them with ``?``.

        It is in utf8mb3, so every character above U+FFFF reads ``?`` there, and two members may read alike.

        :param logged: the definition from a TABLE_MAP event with column names.
        """
        real = {column.name: column for column in logged.columns if column.type in ("enum", "set")}
        columns = [
            replace(column, members=real[column.name].members)
            if column.name in real and column.members == tuple(map(in_utf8mb3, real[column.name].members))
            else column
            for column in self.columns
        ]
        return replace(self, columns=tuple(columns))

    def without(self, names: Collection[str]) -> TableDef:
        """Return the same table without some columns. Key columns always stay. Unknown names are ignored."""
        gone = set(map(lower_name, names)) - set(map(lower_name, self.key_names))
        rest = tuple(column for column in self.columns if lower_name(column.name) not in gone)
        return replace(self, columns=rest, key=()).with_key(self.key_names)


def _canonical(column: Column) -> list[object]:
    return [
        column.name,
        column.type,
        column.nullable,
        column.unsigned,
        column.precision,
        column.scale,
        column.length,
        column.charset,
        column.collation,
        list(column.members),
        column.visible,
    ]


def _type_text(column: Column) -> str:
    kind = column.type
    if kind == "decimal":
        text = f"decimal({column.precision},{column.scale})"
    elif kind == "bit":
        text = f"bit({column.precision})"
    elif kind in ("datetime", "timestamp", "time"):
        text = f"{kind}({column.scale})" if column.scale else kind
    elif kind in ("binary", "varbinary"):
        text = f"{kind}({column.length})"
    elif kind in ("char", "varchar"):
        text = f"{kind}({column.length // max_bytes(column.charset)})"
    elif kind in ("enum", "set"):
        text = f"{kind}({','.join(_quoted(member) for member in column.members)})"
    else:
        text = kind
    return f"{text} unsigned" if column.unsigned else text


def _quoted(member: str) -> str:
    return "'" + member.replace("\\", "\\\\").replace("'", "''") + "'"


_MAX_BYTES = {
    "utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "ujis": 3, "eucjpms": 3,
    "ucs2": 2, "big5": 2, "cp932": 2, "euckr": 2, "gb2312": 2, "gbk": 2, "sjis": 2,
}  # fmt: skip


def max_bytes(charset: str | None) -> int:
    """Return the bytes of a character set's longest character (information_schema.CHARACTER_SETS.MAXLEN)."""
    return _MAX_BYTES.get(charset or "", 1)
