"""DDL statements as messages of Debezium's schema change topic (``include.schema.changes``).

Source: Debezium 3, "MySQL connector", "Schema change topic", and the messages of its engine. One message per statement
of the log that concerns followed tables; a DROP TABLE gives one for each of its tables; TRUNCATE gives none.

A column's entry has what the table's definition holds. The definition is that of the moment when the statement was
read, which may be after later statements. What headgate does not know is null: docs/reference/kafka.md lists it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.carrier import CarriedColumn, DdlRow, Definition
from headgate.kafka.debezium.source import Source, SourceEvent, log_file
from headgate.names import quote_name, split_table

__all__ = ["SchemaChange", "interleaved", "schema_changes"]

_TYPE: Final = re.compile(r"(?P<base>\w+)(?:\((?P<size>.*)\))?(?P<unsigned> unsigned)?$", re.DOTALL)
_JDBC_NAMES: Final = {
    -7: "bit",
    -5: "bigint",
    -3: "varbinary",
    -2: "binary",
    1: "char enum set",
    3: "decimal",
    4: "mediumint int year",
    5: "tinyint smallint",
    6: "float",
    8: "double",
    12: "varchar tinytext text mediumtext longtext",
    91: "date",
    92: "time",
    93: "datetime",
    2004: "tinyblob blob mediumblob longblob",
    2014: "timestamp",
}
_JDBC: Final = {name: number for number, names in _JDBC_NAMES.items() for name in names.split()}
"""Numbers of ``java.sql.Types``, as Debezium's DDL parser chooses them."""
_OTHER: Final = 1111


class SchemaChange(NamedTuple):
    """A message of the schema change topic, and its position in the log."""

    file: int
    pos: int
    key: dict[str, Any]
    value: dict[str, Any]


def schema_changes(ddl: Sequence[DdlRow], source: Source) -> list[SchemaChange]:
    """Return the messages of a batch's statements, in the order of the log."""
    # The log's files are numbered from 1: a row at 0 stands for a table that is missing, not for a statement.
    logged = [row for row in ddl if row.seq[1] and row.action != "truncate"]
    changes = []
    for _, rows in groupby(logged, key=lambda row: row.seq[1:3]):
        statement = [*rows]
        groups = [[row] for row in statement] if _is_drop_table(statement[0]) else [statement]
        changes += [_change(group, source) for group in groups]
    return changes


def _is_drop_table(row: DdlRow) -> bool:
    return row.action == "drop" and not re.match(r"(?i)\s*drop\s+(database|schema)\b", row.statement)


def _change(rows: Sequence[DdlRow], source: Source) -> SchemaChange:
    first = rows[0]
    _, file, pos, _ = first.seq
    names = [split_table(row.new_name or row.table) for row in rows]
    db, table = names[0]
    event = SourceEvent(first.ts or 0, "false", first.gtid, log_file(source.log_base, file), pos, 0)
    text = f"DROP TABLE {quote_name(db)}.{quote_name(table)}" if _is_drop_table(first) else first.statement
    value = {
        "source": source.block(db, ",".join(name for _, name in names), event),
        "ts_ms": time.time_ns() // 1_000_000,
        "databaseName": db,
        "schemaName": None,
        "ddl": text,
        "tableChanges": [one for row in rows for one in _table_changes(row)],
    }
    return SchemaChange(file, pos, {"databaseName": db}, value)


def _table_changes(row: DdlRow) -> Iterator[dict[str, Any]]:
    """Yield what a statement did to a table; nothing if the table's definition was not to be had."""
    db, table = split_table(row.new_name or row.table)
    name = f'"{db}"."{table}"'
    if row.action == "drop":
        yield {"type": "DROP", "id": name, "table": None}
    elif row.schema is not None:
        kind = "CREATE" if row.action == "create" else "ALTER"
        yield {"type": kind, "id": name, "table": _table(Definition.from_json(row.schema))}


def _table(definition: Definition) -> dict[str, Any]:
    return {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": [*definition.key],
        "columns": [_column(column, position) for position, column in enumerate(definition.columns, 1)],
        "comment": None,
    }


def _column(column: CarriedColumn, position: int) -> dict[str, Any]:
    match = _TYPE.match(column.mysql)
    base, size, sign = (
        (match["base"], match["size"] or "", match["unsigned"] or "") if match else (column.mysql, "", "")
    )
    members = re.findall(r"'(?:[^']|'')*'", size) if base in ("enum", "set") else None
    if members is not None:  # as Debezium: a SET's text has all members with commas between them
        length: int | None = 1 if base == "enum" else 2 * len(members) - 1
        scale = None
    else:
        numbers = [int(one) for one in size.split(",") if one]
        length, scale = (*numbers, None, None)[:2]
    name = f"{base}{sign}".upper()
    return {
        "name": column.name,
        "jdbcType": _JDBC.get(base, _OTHER),
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": None,
        "length": length,
        "scale": scale,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": None,
        "generated": None,
        "comment": None,
        "defaultValueExpression": None,
        "enumValues": members,
    }


def interleaved(
    batches: Iterable[pa.RecordBatch], changes: Sequence[SchemaChange]
) -> Iterator[pa.RecordBatch | SchemaChange]:
    """Yield changes of rows and of schemas in the order of the log.

    :param batches: messages in log order, with the columns ``file`` and ``pos``; rows of a snapshot last.
    """
    waiting = [*reversed(changes)]
    for batch in batches:
        files, positions, start = np.asarray(batch["file"]), np.asarray(batch["pos"]), 0
        while waiting and batch.num_rows:
            next_one = waiting[-1]
            is_before = (files < next_one.file) | ((files == next_one.file) & (positions < next_one.pos))
            end = int(is_before.sum())
            if end == batch.num_rows:
                break
            if end > start:
                yield batch.slice(start, end - start)
            yield waiting.pop()
            start = max(start, end)
        if start < batch.num_rows:
            yield batch.slice(start)
    yield from reversed(waiting)
