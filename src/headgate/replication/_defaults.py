"""Default values of columns, queried from the server and proven to be those of an event in the log.

The proof is that of :mod:`headgate.replication._definitions`: the reader meets the event, then reads the defaults, then
notes the log's end. If no statement between the event and that end may have changed the defaults, they are the event's.
A statement about the table may have, unless it only adds columns or indexes and does not contain the word DEFAULT.

``DEFAULT(column)`` returns the stored value in the column's own type, so the codecs of a table read apply. Defaults in
information_schema are unsuitable: they are text in utf8mb3, where a character above U+FFFF reads ``?``.

The function needs a row. If the table has none, COUNT(*) in the same query makes one: an aggregate without GROUP BY has
exactly one row. The query is a derived table, because the expressions of some codecs would see that row's columns as
NULL. No literal default is NULL. If another server version returns NULL, the default counts as unknown.

A NOT NULL column without a default has none to query. A session that is not strict stores the zero of the column's type
there (MySQL Reference Manual, "Data Type Default Values").
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headgate.catalog import Column, load_table
from headgate.columns import TableCodec
from headgate.errors import DecodeError
from headgate.kernels import Cells, RowBlock
from headgate.mysql import Connection, select_blocks
from headgate.names import lower_name, quote_name
from headgate.replication._changes import Change, EventPosition
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
    """Default values of columns at positions of one server's log, for INSERTs that give no value.

    :param definitions: of the same log; open during calls.
    """

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._known: dict[str, tuple[str, EventPosition, dict[str, pa.Array]]] = {}

    def at(self, codec: TableCodec, file: str, pos: int) -> dict[str, pa.Array]:
        """Return the defaults at an event that is being read, by column as it is written. A column without a known
        default is missing.

        :raises UnsupportedError: they may have changed since, or the table is gone.
        :raises ServerBehindError: another server than the log's answered.
        """
        table = codec.original
        current = EventPosition.of(file, pos)
        known = self._known.get(table.full_name)
        if known is not None and known[0] == table.fingerprint:
            _, proven_at, values = known
            if not _relevant(self._definitions.changes(table.db, table.name, *sorted((proven_at, current)))):
                return values
        with self._definitions.connected() as connection:
            values = _column_defaults(connection, codec)
        changes = _relevant(self._definitions.changes(table.db, table.name, current))
        if changes:
            position = changes[0].position
            raise unknown_defaults(
                table.full_name,
                f"{position.file}:{position.pos} has a later change of the table ({changes[0].statement})",
            )
        self._known[table.full_name] = table.fingerprint, current, values
        return values


def _relevant(changes: Sequence[Change]) -> list[Change]:
    """Return the changes that may have changed a default."""
    return [change for change in changes if change.adds is None or change.names_default]


def _column_defaults(connection: Connection, codec: TableCodec) -> dict[str, pa.Array]:
    """Return the current defaults of the columns that are still as the log has them, by column as it is written."""
    table = codec.original
    now = load_table(connection.query, table.db, table.name)
    same = set(table.columns) & set(now.table.with_members_of(table).columns) if now is not None else set()
    if not same:
        raise unknown_defaults(table.full_name, "the table is gone, or the account may not SELECT from it")
    written = [table.columns[place] for place in codec.places]
    index_of = {column.name: index for index, column in enumerate(written) if column in same}
    rows = connection.query(_COLUMNS, (table.db, table.name))
    columns = [_SchemaColumn(str(row[0]), bool(int(row[1])), row[2] == "YES", str(row[3])) for row in rows]
    columns = [column for column in columns if column.name in index_of]
    values = _literals(connection, codec, [index_of[one.name] for one in columns if one.is_literal])
    for column in columns:
        if not column.has_default and not column.is_generated:
            index = index_of[column.name]
            zero = pa.nulls(1, codec.codecs[index].arrow_type) if column.nullable else _zero(codec, index)
            if zero is not None:
                values[codec.table.columns[index].name] = zero
    return values


class _SchemaColumn(NamedTuple):
    """A column as information_schema describes it."""

    name: str
    has_default: bool
    nullable: bool
    extra: str

    @property
    def is_literal(self) -> bool:
        return self.has_default and "DEFAULT_GENERATED" not in self.extra

    @property
    def is_generated(self) -> bool:
        """Whether the server generates the value, so that every image has it."""
        return "GENERATED" in self.extra or "auto_increment" in self.extra


def _literals(connection: Connection, codec: TableCodec, indexes: Sequence[int]) -> dict[str, pa.Array]:
    """Return the literal defaults of these columns. None of them is NULL."""
    if not indexes:
        return {}
    table = codec.table
    names = [table.columns[index].mysql_name for index in indexes]
    default_list = ", ".join(f"DEFAULT({quote_name(name)}) AS {quote_name(name)}" for name in names)
    select_list = ", ".join(codec.codecs[index].select for index in indexes)
    source = f"{quote_name(table.db)}.{quote_name(table.name)}"
    blocks: list[RowBlock] = []
    for one_row in (
        f"SELECT {default_list} FROM {source} LIMIT 1",
        f"SELECT {default_list}, COUNT(*) AS {_unused_name(names)} FROM {source}",
    ):
        blocks = blocks or list(select_blocks(connection, f"SELECT {select_list} FROM ({one_row}) AS d"))
    block = blocks[0]
    values = {}
    for k, index in enumerate(indexes):
        with suppress(DecodeError):  # it is an error only if a row left the column to its default
            values[table.columns[index].name] = codec.codecs[index].from_text(block.column(k))
    return {name: value for name, value in values.items() if len(value) == 1 and value.null_count == 0}


def _unused_name(names: Sequence[str]) -> str:
    """Return a column name that differs from all of these."""
    name = "n"
    while name in {lower_name(known) for known in names}:
        name += "n"
    return name


def _zero(codec: TableCodec, index: int) -> pa.Array | None:
    """Return the zero of a column's type; None if it has none, or none that Arrow can hold under the policy."""
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
