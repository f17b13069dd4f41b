"""The values that columns have by default, asked of the server.

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
from typing import Any

import numpy as np
import pyarrow as pa

from headgate._cells import Cells, RowBlock
from headgate.catalog import Column, TableDef, TablePatterns, load_tables
from headgate.columns import TableCodec
from headgate.errors import UnsupportedError
from headgate.mysql import Connection, ConnectionSettings, select_blocks
from headgate.replication._partial import REMEDY, ColumnDefaults

__all__ = ["column_defaults"]

_COLUMNS = (
    "SELECT COLUMN_NAME, COLUMN_DEFAULT IS NOT NULL, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
_CREATED = (
    "SELECT UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_ZEROS = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal"), "0"),
    "date": "0000-00-00", "datetime": "0000-00-00 00:00:00", "timestamp": "0000-00-00 00:00:00", "time": "00:00:00",
    "year": "0000",
}  # fmt: skip
_NO_ZERO = frozenset({"geometry", "vector"})


def column_defaults(settings: ConnectionSettings, table: TableDef, codec: TableCodec) -> ColumnDefaults:
    """The defaults of a table's columns now.

    :raises UnsupportedError: the table is gone, cannot be seen, or has other columns than ``table``.
    """
    with Connection.open(settings) as connection:
        created = _created(connection, table)
        rows = connection.query(_COLUMNS, (table.db, table.name))
        literal = [_index(table, row[0]) for row in rows if int(row[1]) and "DEFAULT_GENERATED" not in str(row[3])]
        values = _literals(connection, table, codec, literal)
        for name, has_default, nullable, extra in rows:
            if int(has_default) or "GENERATED" in str(extra) or "auto_increment" in str(extra):
                continue
            index = _index(table, name)
            kind = codec.codecs[index].arrow_type
            zero = None if nullable == "YES" else _zero(codec, index)
            if nullable == "YES":
                values[str(name)] = pa.nulls(1, kind)
            elif zero is not None:
                values[str(name)] = zero
        if _created(connection, table) != created:
            raise _gone(table)
    return ColumnDefaults(created, values)


def _created(connection: Connection, table: TableDef) -> int:
    """When the table's definition was made; it must be the one that the log has."""
    found = [
        one for one in load_tables(connection.query, _exactly(table)) if (one.db, one.name) == (table.db, table.name)
    ]
    if not found or found[0].columns != table.columns:
        raise _gone(table)
    rows = connection.query(_CREATED, (table.db, table.name))
    if not rows or rows[0][0] is None:
        raise _gone(table)
    return int(rows[0][0])


def _exactly(table: TableDef) -> TablePatterns:
    """A pattern that matches at least this table."""
    return TablePatterns([".".join("".join("?" if ch in "*?[]!." else ch for ch in part)
                                   for part in (table.db, table.name))])  # fmt: skip


def _gone(table: TableDef) -> UnsupportedError:
    return UnsupportedError(
        "an INSERT was logged without the columns it left to their defaults, and the table has another definition by "
        f"now (or may not be read), so these are not known: {REMEDY}, then read the table again",
        table=table.full_name,
    )


def _index(table: TableDef, name: Any) -> int:
    return table.index(str(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literals(
    connection: Connection, table: TableDef, codec: TableCodec, indexes: Sequence[int]
) -> dict[str, pa.Array]:
    """The literal defaults of these columns; none of them is NULL."""
    if not indexes:
        return {}
    names = [table.columns[index].name for index in indexes]
    asked = ", ".join(f"DEFAULT({_quoted(name)}) AS {_quoted(name)}" for name in names)
    shown = ", ".join(codec.codecs[index].select for index in indexes)
    source = f"{_quoted(table.db)}.{_quoted(table.name)}"
    blocks: list[RowBlock] = []
    for one_row in (
        f"SELECT {asked} FROM {source} LIMIT 1",
        f"SELECT {asked}, COUNT(*) AS {_unlike(names)} FROM {source}",
    ):
        blocks = blocks or list(select_blocks(connection, f"SELECT {shown} FROM ({one_row}) AS d"))
    block = blocks[0]
    values = {name: codec.codecs[index].from_text(block.column(k)) for k, (name, index) in
              enumerate(zip(names, indexes, strict=True))}  # fmt: skip
    return {name: value for name, value in values.items() if len(value) == 1 and value.null_count == 0}


def _unlike(names: Sequence[str]) -> str:
    """A column name that is none of these."""
    name = "n"
    while name in {known.lower() for known in names}:
        name += "n"
    return name


def _zero(codec: TableCodec, index: int) -> pa.Array | None:
    """The zero of a column's type; None: it has none."""
    column = codec.table.columns[index]
    if column.type in _NO_ZERO:
        return None
    if column.type in ("enum", "set"):
        return codec.codecs[index].from_log(_cell(b"\1" if column.type == "enum" else b"\0"))
    if column.type == "json":
        return codec.codecs[index].from_log(_cell(b""))
    return codec.codecs[index].from_text(_cell(_zero_text(column)))


def _zero_text(column: Column) -> bytes:
    if column.type in _ZEROS:
        return (_ZEROS[column.type] + ("." + "0" * column.scale if column.scale else "")).encode()
    if column.type == "bit":
        return bytes((column.precision + 7) // 8)
    return bytes(column.length) if column.type == "binary" else b""


def _cell(value: bytes) -> Cells:
    buf = np.frombuffer(value + bytes(8), np.uint8)
    return Cells(buf, np.zeros(1, np.int64), np.array([len(value)], np.int32), np.ones(1, np.uint8))
