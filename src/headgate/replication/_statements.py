"""Changes that were logged as statements instead of rows: which of them a stream may skip.

A session with ``binlog_format`` STATEMENT or MIXED logs what it executed, not which rows changed. Rows cannot be
derived from a statement, so a change of a followed table ends the stream. The stream continues only if the event itself
proves that no followed table was changed.

The proof
=========

The event of a change names the databases of the tables that the server opened for it (``Query.databases``). The server
collects them from the list of tables that it locks for the whole statement: tables of the statement, of its views, of
the triggers and stored functions that it may call, of the triggers and functions behind these. Functions and triggers
cannot run dynamic SQL, so the list has every table that they can write. Foreign keys are the exception: if one refers
to a table of the list, the server names no database at all. It names 16 at most. Replicas with
``replica_parallel_type=DATABASE`` apply changes in parallel by this list, so it depends on no setting. (MySQL source
``sql/binlog.cc``, ``THD::decide_logging_format``; ``sql/log_event.cc``, ``Query_log_event::write``.)

So if all databases are named, and no table of any of them can be followed, no followed table was changed. The list also
has databases that were only read, so a harmless statement may be refused.

The statement's text proves nothing. It does not show triggers, functions behind a view, or foreign keys, and the
current ones may differ from those of that time.

CREATE TABLE … SELECT has an easier proof: while the server creates a table, it refuses every write to another one
(ER_CANT_UPDATE_TABLE_IN_CREATE_TABLE_SELECT). So the statement is skipped unless the new table is followed.

Statements that headgate cannot read
====================================

The event of a DDL statement names the databases of its tables, too, if it names any. So the same proof holds for a
statement of unknown grammar: if all databases are named, and no table of any of them can be followed, it is skipped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from headgate.binlog import Query
from headgate.catalog import DdlEffect, Statement, TablePatterns, no_break_space_is_white, parse_statement
from headgate.errors import UnsupportedError

__all__ = [
    "check_change",
    "check_copy",
    "check_rollback",
    "check_unknown",
    "parse",
    "readable",
    "shorten",
    "without_temporary_tables",
]

_ANSI_QUOTES: Final = 4
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
_STRICT: Final = 3 << 21
"""STRICT_TRANS_TABLES, STRICT_ALL_TABLES."""
_STATEMENT_LETTERS: Final = 300
"""Length of a statement in an error: enough to find it in a program."""
_MOST_LETTERS: Final = 10 * _STATEMENT_LETTERS
"""Part of a statement, possibly megabytes long, whose white space is collapsed."""


def parse(text: str, query: Query, *, lower_case_names: bool = False) -> Statement:
    """Parse a statement in the SQL mode and the character set of its session."""
    return parse_statement(
        text,
        query.db,
        ansi_quotes=bool(query.sql_mode & _ANSI_QUOTES),
        backslash_escapes=not query.sql_mode & _NO_BACKSLASH_ESCAPES,
        lower_case_names=lower_case_names,
        strict=bool(query.sql_mode & _STRICT),
        no_break_space=no_break_space_is_white(query.collation),
    )


def check_change(query: Query, text: str, tables: TablePatterns, where: dict[str, Any]) -> None:
    """Skip a statement that changed rows, if it is proven that none of them is of a followed table.

    :param text: the statement, for the error.
    :param where: ``file``, ``pos`` and ``gtid``.
    :raises UnsupportedError: the statement may have changed a followed table.
    """
    if _concerns_no_followed_table(query, tables):
        return
    named = "in databases that the log does not name" if query.databases is None else f"in {_listed(query.databases)}"
    raise _refused(query, text, f"a change {named}", where)


def check_unknown(query: Query, text: str, tables: TablePatterns, where: dict[str, Any]) -> None:
    """Skip a statement that headgate cannot read, if it is proven that it concerns no followed table.

    :param text: the statement, for the error.
    :param where: ``file``, ``pos`` and ``gtid``.
    :raises UnsupportedError: the statement may concern a followed table.
    """
    if not _concerns_no_followed_table(query, tables):
        raise UnsupportedError("the log holds a statement that headgate cannot read", statement=text, **where)


def _concerns_no_followed_table(query: Query, tables: TablePatterns) -> bool:
    return not tables.patterns or (bool(query.databases) and not any(map(tables.may_match, query.databases or ())))


def check_copy(statement: Statement, query: Query, text: str, tables: TablePatterns, where: dict[str, Any]) -> None:
    """Skip a CREATE TABLE … SELECT that was logged as a statement, if its table is not followed.

    :raises UnsupportedError: the table is followed.
    """
    for effect in statement.effects:
        if tables.matches(effect.db, effect.table):
            raise _refused(query, text, f"the rows of a new table {effect.db}.{effect.table}", where)


def check_rollback(changes: int, where: dict[str, Any]) -> None:
    """Skip a ROLLBACK or ROLLBACK TO in the log.

    The server writes one only if a change cannot be undone: of a non-transactional or a temporary table.

    :param changes: rows of the transaction that the log has so far.
    :raises UnsupportedError: there are such rows. Which of them were undone is unknown.
    """
    if changes:
        raise UnsupportedError(
            "the log holds a transaction that was rolled back after a non-transactional table was changed", **where
        )


def without_temporary_tables(statement: Statement, query: Query) -> Statement:
    """Return a statement that is flagged as depending on its session, without its effects on a temporary table.

    With ``binlog_format=STATEMENT`` the server logs TRUNCATE and ALTER of temporary tables, whose names may be those of
    other tables. A statement about another table has the flag, too, if the table has ``DEFAULT (CONNECTION_ID())``. In
    the log of MySQL 9.7 they differ in this: a TRUNCATE names its databases only if the table is temporary, and an
    ALTER is atomic only if it is not. An ALTER of a MyISAM table with that default is not told apart.

    CREATE makes another table, of a temporary one; DROP is logged as DROP TEMPORARY TABLE; RENAME TABLE takes none.
    """

    def is_temporary(effect: DdlEffect) -> bool:
        if effect.action == "truncate":
            return query.databases is not None
        return effect.action in ("alter", "rename") and not query.is_atomic

    return replace(statement, effects=tuple(one for one in statement.effects if not is_temporary(one)))


def readable(text: str) -> str:
    """Return a statement with the bytes that are not text (surrogates) escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def shorten(text: str) -> str:
    """Return a statement on one line, cut, and readable."""
    line = readable(" ".join(text[:_MOST_LETTERS].split()))
    return line if len(line) <= _STATEMENT_LETTERS else f"{line[: _STATEMENT_LETTERS - 1]}…"


def _listed(databases: tuple[str, ...]) -> str:
    return f"database{'s' * (len(databases) > 1)} {', '.join(sorted(databases))}"


def _refused(query: Query, text: str, what: str, where: dict[str, Any]) -> UnsupportedError:
    default = f", default database {query.db}" if query.db else ""
    return UnsupportedError(
        f"the log holds a change as a statement instead of rows ({what}): session {query.connection_id} had "
        f"binlog_format=STATEMENT or MIXED{default}. SET GLOBAL binlog_format = 'ROW', and in the session that wrote "
        "it. Which rows it changed is not in the log: read the tables again from a position after it",
        statement=text,
        **where,
    )
