"""The values that columns have by default, asked of the server, and proven to be those of an event in the log.

The proof is that of :mod:`headgate.replication._definitions`: the defaults are read after an event was met, and after
that the log's end is noted. If no statement between the event and that end may have changed them, they are the event's.
A statement may, unless all it does is to add columns or indexes and the word DEFAULT is not in it.

``DEFAULT(column)`` gives the stored value itself, in the column's own type, so the codecs of a table read serve here
too. information_schema is no help: it shows defaults as text in utf8mb3, where a character above U+FFFF reads ``?``.

The function needs a row to stand beside. A table without rows gives one all the same when it is asked for COUNT(*)
too: an aggregate without GROUP BY has exactly one row. Around it stands a derived table, because the expressions of
some codecs would see that row's columns as NULL. No literal default is NULL, so should another version of the server
answer NULL, the default counts as not known.

A NOT NULL column without a default has none to ask for. What a session that is not strict stores there is the zero of
the column's type (MySQL Reference Manual, "Data Type Default Values").
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headgate.catalog import Column, TableDef, load_table
from headgate.columns import TableCodec
from headgate.errors import DecodeError
from headgate.kernels import Cells, RowBlock
from headgate.mysql import Connection, ConnectionSettings, select_blocks
from headgate.names import quote_name
from headgate.replication._changes import Change, Place
from headgate.replication._definitions import Definitions
from headgate.replication._partial import unknown_defaults

__all__ = ["Defaults"]

_COLUMNS = (
    "SELECT COLUMN_NAME, COLUMN_DEFAULT IS NOT NULL, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
_ZEROS = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal"), "0"),
    "date": "0000-00-00",
    "datetime": "0000-00-00 00:00:00",
    "timestamp": "0000-00-00 00:00:00",
    "time": "00:00:00",
    "year": "0000",
}
_NO_ZERO = frozenset({"geometry", "vector"})


class Defaults:
    """What columns hold at places of one server's log if an INSERT gives no value.

    :param definitions: of the same log; open while questions are asked.
    """

    def __init__(self, settings: ConnectionSettings, definitions: Definitions) -> None:
        self._settings = settings
        self._definitions = definitions
        self._known: dict[str, tuple[str, Place, dict[str, pa.Array]]] = {}

    def at(self, table: TableDef, codec: TableCodec, file: str, pos: int) -> dict[str, pa.Array]:
        """The literal defaults at an event that is being read; a column that is not in it has none that is known.

        :raises UnsupportedError: they may have changed since.
        """
        here = Place.of(file, pos)
        known = self._known.get(table.full_name)
        if known is not None and known[0] == table.fingerprint:
            _, there, values = known
            if not _relevant(self._definitions.changes(table.db, table.name, *sorted((there, here)))):
                return values
        values = _column_defaults(self._settings, table, codec)
        changes = _relevant(self._definitions.changes(table.db, table.name, here))
        if changes:
            place = changes[0].place
            raise unknown_defaults(
                table.full_name, f"{place.file}:{place.pos} has a later change of the table ({changes[0].statement})"
            )
        self._known[table.full_name] = table.fingerprint, here, values
        return values


def _relevant(changes: Sequence[Change]) -> list[Change]:
    """Those that may have changed a default."""
    return [change for change in changes if change.adds is None or change.names_default]


def _column_defaults(settings: ConnectionSettings, table: TableDef, codec: TableCodec) -> dict[str, pa.Array]:
    """The defaults of a table's columns now: of those columns that are still as the log has them."""
    with Connection.open(settings) as connection:
        now = load_table(connection.query, table.db, table.name)
        same = set(table.columns) & set(now.table.with_members_of(table).columns) if now is not None else set()
        if not same:
            raise unknown_defaults(table.full_name, "the table is gone, or the account may not SELECT from it")
        index_of = {column.name: index for index, column in enumerate(table.columns) if column in same}
        rows = connection.query(_COLUMNS, (table.db, table.name))
        columns = [_AskedColumn(str(row[0]), bool(int(row[1])), row[2] == "YES", str(row[3])) for row in rows]
        columns = [column for column in columns if column.name in index_of]
        values = _literals(connection, table, codec, [index_of[one.name] for one in columns if one.is_literal])
    for column in columns:
        if not column.has_default and not column.is_made:
            index = index_of[column.name]
            zero = pa.nulls(1, codec.codecs[index].arrow_type) if column.nullable else _zero(codec, index)
            if zero is not None:
                values[column.name] = zero
    return values


class _AskedColumn(NamedTuple):
    """A column in information_schema."""

    name: str
    has_default: bool
    nullable: bool
    extra: str

    @property
    def is_literal(self) -> bool:
        """Its default is a literal."""
        return self.has_default and "DEFAULT_GENERATED" not in self.extra

    @property
    def is_made(self) -> bool:
        """The server makes a value itself, so it is in every image."""
        return "GENERATED" in self.extra or "auto_increment" in self.extra


def _literals(
    connection: Connection, table: TableDef, codec: TableCodec, indexes: Sequence[int]
) -> dict[str, pa.Array]:
    """The literal defaults of these columns; none of them is NULL."""
    if not indexes:
        return {}
    names = [table.columns[index].name for index in indexes]
    asked = ", ".join(f"DEFAULT({quote_name(name)}) AS {quote_name(name)}" for name in names)
    shown = ", ".join(codec.codecs[index].select for index in indexes)
    source = f"{quote_name(table.db)}.{quote_name(table.name)}"
    blocks: list[RowBlock] = []
    for one_row in (
        f"SELECT {asked} FROM {source} LIMIT 1",
        f"SELECT {asked}, COUNT(*) AS {_unlike(names)} FROM {source}",
    ):
        blocks = blocks or list(select_blocks(connection, f"SELECT {shown} FROM ({one_row}) AS d"))
    block = blocks[0]
    values = {}
    for k, (name, index) in enumerate(zip(names, indexes, strict=True)):
        with suppress(DecodeError):  # it is an error only where a row left the column to its default
            values[name] = codec.codecs[index].from_text(block.column(k))
    return {name: value for name, value in values.items() if len(value) == 1 and value.null_count == 0}


def _unlike(names: Sequence[str]) -> str:
    """A column name that is none of these."""
    name = "n"
    while name in {known.lower() for known in names}:
        name += "n"
    return name


def _zero(codec: TableCodec, index: int) -> pa.Array | None:
    """The zero of a column's type; None: it has none, or none that Arrow can hold under the column's policy."""
    column = codec.table.columns[index]
    if column.type in _NO_ZERO:
        return None
    if column.type in ("enum", "set"):
        return codec.codecs[index].from_log(_cell(b"\1" if column.type == "enum" else b"\0"))
    if column.type == "json":
        return codec.codecs[index].from_log(_cell(b""))
    with suppress(DecodeError):
        return codec.codecs[index].from_text(_cell(_zero_text(column)))
    return None


def _zero_text(column: Column) -> bytes:
    if column.type in _ZEROS:
        return (_ZEROS[column.type] + ("." + "0" * column.scale if column.scale else "")).encode()
    if column.type == "bit":
        return bytes((column.precision + 7) // 8)
    return bytes(column.length) if column.type == "binary" else b""


def _cell(value: bytes) -> Cells:
    buf = np.frombuffer(value + bytes(8), np.uint8)
    return Cells(buf, np.zeros(1, np.int64), np.array([len(value)], np.int32), np.ones(1, np.uint8))
