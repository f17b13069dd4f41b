"""The watermark row, which makes a server without GTIDs show everything that it has logged.

A transaction reaches the log before its engine commits it, so what precedes the log's end may not be visible yet. But
with ``binlog_order_commits=ON`` engines commit in the order of the log (MySQL Reference Manual, "Binary Logging Options
and Variables"). So take the log's end, then commit a row. When that commit has returned, everything logged before the
row is committed, and what preceded the end is logged before the row. A commit that is not logged waits for none of
them, so a session that logs nothing is refused (so is a server whose log has filters, ``mysql/_required.py``).

The row is in a signal table as Debezium has it (``id``, ``type``, ``data``), one for all pipelines, and changed each
time. Its type is that of a snapshot window's opening, which readers of signals ignore.
"""

from __future__ import annotations

from typing import Final

from headgate.errors import AccessError, ServerError, ServerSettingError
from headgate.mysql._connection import Connection
from headgate.names import quote_name

__all__ = ["commit_watermark"]

_ID: Final = "headgate-watermark"
_TYPE: Final = "snapshot-window-open"
_REMEDY: Final = "(id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"


def commit_watermark(connection: Connection, table: str, data: str) -> None:
    """Commit a change of the watermark row.

    :param table: ``db.table``
    :param data: a value that no watermark had before; otherwise nothing would be logged.
    :raises AccessError: INSERT or UPDATE on the table is missing.
    :raises ServerSettingError: the table does not exist, or is not a signal table; or the session logs nothing.
    """
    if not connection.query("SELECT @@SESSION.sql_log_bin")[0][0]:
        raise ServerSettingError(
            "a watermark proves nothing, because this session is not logged: remove sql_log_bin=0 from init_connect",
            setting="sql_log_bin",
            expected="ON",
            actual="OFF",
        )
    db, _, name = table.partition(".")
    quoted = f"{quote_name(db)}.{quote_name(name)}"
    escaped = quoted.replace("%", "%%")  # a statement with arguments is a format
    try:
        connection.query(
            f"INSERT INTO {escaped} (id, type, data) VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE type = VALUES(type),"
            " data = VALUES(data)",
            (_ID, _TYPE, data),
        )
    except AccessError as error:
        grant = f"GRANT INSERT, UPDATE ON {quoted} for watermarks"
        raise AccessError(f"{error.message}: {grant}", code=error.code) from error
    except ServerError as error:
        if error.code not in _NO_SIGNAL_TABLE:
            raise
        raise ServerSettingError(
            f"watermarks cannot be written: {error.message}: CREATE TABLE {quoted} {_REMEDY}",
            setting="signal_table",
            expected="a table with the columns id, type, data",
            actual=table,
        ) from error


_NO_SIGNAL_TABLE: Final = frozenset({1049, 1054, 1146})
"""Unknown database, unknown column, no such table."""
