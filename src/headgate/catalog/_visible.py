"""Whether an account may SELECT all columns of a table, only some, or none.

information_schema shows an account the columns that it has a privilege on. If SELECT is granted on columns and not on
the table, the others do not seem to exist, while the log has them.

MySQL checks privileges before names: for a column that does not exist, the answer is "unknown column" if SELECT is
granted on the table, its database or globally, and "denied" if it is granted on some columns only. So one statement
decides, whether the columns that were not granted exist or not, and whichever roles or wildcards grant the others.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any, Final, Protocol

from headgate.errors import AccessError, DefiniteServerError
from headgate.names import quote_name

__all__ = [
    "QueryFunction",
    "SelectAccess",
    "check_visible",
    "denied_reason",
    "hidden_reason",
    "hides_columns",
    "table_access",
]

_NO_COLUMN: Final = "headgate: no such column"
_TABLE_DENIED: Final = 1142
"""ER_TABLEACCESS_DENIED_ERROR"""
_COLUMN_DENIED: Final = 1143
"""ER_COLUMNACCESS_DENIED_ERROR"""
_MISSING: Final = (
    "SELECT MAX(ORDINAL_POSITION) - COUNT(*) AS missing FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
"""Columns before the last visible one that are not visible. Positions have no gaps."""


class QueryFunction(Protocol):
    """Function that runs a statement and returns its rows as Python values. ``args`` are values for ``%s``."""

    def __call__(self, sql: str, args: tuple[Any, ...] = (), /) -> list[tuple[Any, ...]]:
        """Run the statement."""


def hides_columns(query: QueryFunction, db: str, table: str) -> bool:
    """Return whether SELECT is granted on some columns of a table only. False if it is not granted at all."""
    try:
        query(f"SELECT {quote_name(_NO_COLUMN)} FROM {_quoted(db, table)} LIMIT 0")
    except AccessError as error:
        return bool(error.code == _COLUMN_DENIED)
    except DefiniteServerError:
        return False
    return False


class SelectAccess(Enum):
    """Whether the account may read a table."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """SELECT is granted on no column. The table need not exist then."""
    UNKNOWN = "unknown"
    """There is no such table, or the server refuses the query for another reason."""


def table_access(query: QueryFunction, db: str, table: str) -> SelectAccess:
    """Ask the server whether the account may read a table."""
    try:
        query(f"SELECT 1 FROM {_quoted(db, table)} LIMIT 0")
    except AccessError as error:
        return SelectAccess.DENIED if error.code == _TABLE_DENIED else SelectAccess.UNKNOWN
    except DefiniteServerError:
        return SelectAccess.UNKNOWN
    return SelectAccess.ALLOWED


def denied_reason(db: str, table: str) -> str:
    """Return why a table on which SELECT is not granted cannot be followed, and the remedy."""
    return (
        f"the account may not SELECT from {db}.{table}, so its earlier rows are missing: GRANT SELECT ON"
        f" {_quoted(db, table)} to the account"
    )


def check_visible(query: QueryFunction, db: str, table: str, excluded: Collection[str]) -> None:
    """Check that the account sees all columns of a table, or that the hidden ones are excluded.

    ``SELECT *`` of a natural join has the common columns from the left side. So if the left side has the excluded
    names, MySQL checks the privileges on all others. ``*`` does not include INVISIBLE columns: of these, only those
    before the last visible one are counted. The log shows the others (``pipeline/divergence/_hidden_columns.py``).

    :param excluded: columns that rules exclude by their names, and that the account does not see.
    :raises AccessError: it does not; names the GRANT.
    """
    if not hides_columns(query, db, table):
        return
    missing = int(query(_MISSING, (db, table))[0][0] or 0)
    if excluded and missing <= len(excluded) and _sees_all_but(query, _quoted(db, table), excluded):
        return
    raise AccessError(hidden_reason(db, table), code=_COLUMN_DENIED, table=f"{db}.{table}")


def hidden_reason(db: str, table: str, column: str | None = None) -> str:
    """Return why a table with hidden columns cannot be followed, and the remedy.

    :param column: one of them, if its name is known.
    """
    named = "the others" if column is None else f"others, such as {column},"
    return (
        f"SELECT on {db}.{table} is granted on some of its columns only, so {named} cannot be read: GRANT SELECT ON"
        f" {_quoted(db, table)} to the account, or exclude each of the others by its name in [columns]"
    )


def _quoted(db: str, table: str) -> str:
    return f"{quote_name(db)}.{quote_name(table)}"


def _sees_all_but(query: QueryFunction, quoted: str, excluded: Collection[str]) -> bool:
    names = ", ".join(f"NULL AS {quote_name(name)}" for name in sorted(excluded))
    try:
        query(f"SELECT * FROM (SELECT {names}) AS excluded NATURAL LEFT JOIN {quoted} LIMIT 0")
    except AccessError:
        return False
    return True
