"""A lake and its source as other programs see them: delta-rs reads the tables, PyMySQL asks the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from headgate.testing import MySQLServer

__all__ = ["OWN", "Rows", "lake_rows", "source_rows"]

OWN = ("_seq", "_gtid", "_ts", "_row_hash", "_row_copy")
"""Columns of a current table that its source does not have."""

Rows = Counter[tuple[Any, ...]]


def lake_rows(folder: str, columns: Sequence[str] = (), *, version: int | None = None, where: str = "true") -> Rows:
    """The rows of a Delta table, each with how often it is there.

    :param columns: SQL expressions; without any all columns that the source has.
    """
    table = DeltaTable(folder, version)
    wanted = columns or [f'"{field.name}"' for field in table.schema().fields if field.name not in OWN]
    sql = f"SELECT {', '.join(wanted)} FROM t WHERE {where}"
    found = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
    return Counter(zip(*([_plain(value) for value in column.to_pylist()] for column in found.columns), strict=True))


def source_rows(server: MySQLServer, table: str, columns: str = "*") -> Rows:
    """The rows of a table of the server, each with how often it is there; times are in UTC.

    :param columns: SQL expressions.
    """
    with server.connect(init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table}")
        return Counter(cursor.fetchall())


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
