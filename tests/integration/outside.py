"""A lake and its source as other programs see them: delta-rs reads the tables, PyMySQL asks the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from headgate_testing import MySQLServer

__all__ = ["HEADGATE_COLUMNS", "Rows", "lake_dicts", "lake_rows", "logged", "operations", "source_rows"]

HEADGATE_COLUMNS = ("_seq", "_gtid", "_ts", "_row_hash")
"""Columns of a current table that its source does not have."""

Rows = Counter[tuple[Any, ...]]


def lake_rows(folder: str, columns: Sequence[str] = (), *, version: int | None = None, where: str = "true") -> Rows:
    """The rows of a Delta table, each with how often it is there.

    :param columns: SQL expressions; without any all columns that the source has.
    """
    table = _read(DeltaTable(folder, version), columns, where)
    return Counter(zip(*([_plain(value) for value in column.to_pylist()] for column in table.columns), strict=True))


def lake_dicts(
    folder: str, columns: Sequence[str] = (), *, version: int | None = None, where: str = "true"
) -> list[dict[str, Any]]:
    """The rows of a Delta table by the names of its columns, as in :func:`lake_rows`."""
    table = _read(DeltaTable(folder, version), columns, where)
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def logged(folder: str, *, version: int | None = None, where: str = "true") -> list[dict[str, Any]]:
    """All columns of a changelog's rows, in the order of their ``_seq``."""
    names = [f'"{field.name}"' for field in DeltaTable(folder, version).schema().fields]
    rows = lake_dicts(folder, names, version=version, where=where)
    return sorted(rows, key=lambda row: tuple(row["_seq"].values()))


def operations(folder: str) -> list[str]:
    """What each commit to a Delta table was, oldest first."""
    return [str(commit["operation"]) for commit in reversed(DeltaTable(folder).history())]


def source_rows(server: MySQLServer, table: str, columns: str = "*") -> Rows:
    """The rows of a table of the server, each with how often it is there; times are in UTC.

    :param columns: SQL expressions.
    """
    with server.connect(init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table}")
        return Counter(cursor.fetchall())


def _read(table: DeltaTable, columns: Sequence[str], where: str) -> pa.Table:
    names = [field.name for field in table.schema().fields if field.name not in HEADGATE_COLUMNS]
    wanted = columns or ['"{}"'.format(name.replace('"', '""')) for name in names]
    sql = f"SELECT {', '.join(wanted)} FROM t WHERE {where}"
    return pa.table(QueryBuilder().register("t", table).execute(sql).read_all())


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
