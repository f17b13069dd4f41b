"""Effects of a statement in the log (a QUERY event) on tables.

With row-based logging, statements in the log are DDL, transaction control, account administration and the like. The
reader must know which tables a DDL changes. A statement that might change one and is not understood must stop it. So
the rules *fail closed*: only statements on the lists below are ``ignored``, and a DDL statement whose shape differs
from the grammar (MySQL Reference Manual, "Data Definition Statements") is ``unknown``.

Executable comments (``/*!80013 … */``) are read as plain text: the server that logged them ran them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headgate.catalog._column_changes import (
    NOT_COLUMNS,
    AddedColumn,
    ColumnChange,
    DroppedColumn,
    RedefinedColumn,
    added_column,
    added_columns,
)
from headgate.catalog._cursor import TokenCursor, Unclear
from headgate.catalog._redefinitions import redefined_column
from headgate.catalog._tokens import LexError, SqlToken, tokens
from headgate.names import lower_name

__all__ = ["DdlEffect", "Statement", "declares_cascade", "parse_statement"]

Kind: TypeAlias = Literal["ddl", "dml", "transaction", "xa", "ignored", "unknown"]
Action: TypeAlias = Literal["create", "alter", "drop", "truncate", "rename", "drop_database"]


@dataclass(frozen=True, slots=True)
class DdlEffect:
    """One table (or database) that a DDL statement changes. Names are as written, unquoted."""

    action: Action
    db: str
    table: str
    """Empty for ``drop_database``."""
    new_db: str | None = None
    new_table: str | None = None
    """For ``rename``."""
    changes: tuple[ColumnChange, ...] | None = None
    """For ``alter``: the columns it changes, if nothing else changes in any row; ``()`` for an ALTER of indexes,
    constraints, comments, options or partitions that keeps all rows unchanged. None: rows may have changed. Whether a
    redefinition keeps every value depends on the type before it.

    For ``create``: see :func:`creates_if_absent`."""
    renames: tuple[tuple[str, str], ...] = ()
    """For ``alter``: columns that it renames, whatever else it does: their names before and after."""

    @property
    def adds(self) -> tuple[AddedColumn, ...] | None:
        """The columns it adds, if nothing else changes in any row, and it tells their values."""
        return added_columns(self.changes)


@dataclass(frozen=True, slots=True)
class Statement:
    """Parsed meaning of one statement in the log."""

    kind: Kind
    effects: tuple[DdlEffect, ...] = ()
    """For ``ddl``, in the order in which they happen."""
    starts_transaction: bool = False
    """CREATE TABLE … SELECT logged as rows: they follow in the same transaction (8.0.21 and later)."""
    copies_rows: bool = False
    """CREATE TABLE … SELECT logged as a statement: no rows follow."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DML = _words("INSERT UPDATE DELETE REPLACE LOAD CALL DO WITH SELECT TABLE VALUES HANDLER (")
_PLAIN_DML = re.compile(rf"\s*({'|'.join(_DML - {'('})})\b", re.IGNORECASE)
"""A statement whose first word identifies it. It may be many megabytes long."""
_TRANSACTION = _words("BEGIN COMMIT ROLLBACK SAVEPOINT RELEASE")
_IGNORED = _words(
    "ANALYZE BINLOG CACHE CHANGE CHECK CHECKSUM CLONE DEALLOCATE DESC DESCRIBE EXECUTE EXPLAIN FLUSH GET GRANT HELP"
    " INSTALL KILL LOCK OPTIMIZE PREPARE PURGE REPAIR RESET RESIGNAL RESTART REVOKE SET SHOW SHUTDOWN SIGNAL STOP"
    " UNINSTALL UNLOCK USE"
)
_NOT_TABLES = _words(
    "AGGREGATE ALGORITHM DEFINER EVENT FUNCTION INSTANCE JSON LIBRARY LOGFILE MATERIALIZED PREPARE PROCEDURE RESOURCE"
    " ROLE SERVER SQL TABLESPACE TRIGGER UNDO USER VIEW"
)
"""Second words of CREATE, ALTER and DROP statements about objects other than tables and indexes. Views are among them:
no log event has rows of a view. ALGORITHM, DEFINER and SQL SECURITY begin views and stored programs."""

_SILENT = frozenset([("TRUNCATE", "PARTITION"), ("DROP", "PARTITION"), ("EXCHANGE", "PARTITION")])
_PARTITIONING = frozenset([("PARTITION", "BY"), ("REMOVE", "PARTITIONING")])
_PARTITION_VERBS = _words(
    "TRUNCATE DROP EXCHANGE ADD COALESCE REORGANIZE REBUILD ANALYZE CHECK OPTIMIZE REPAIR DISCARD IMPORT"
)
_HARMLESS = _words(
    "ALGORITHM AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHARACTER CHARSET CHECKSUM COLLATE COMMENT COMPRESSION"
    " CONNECTION DEFAULT DELAY_KEY_WRITE DISABLE ENABLE ENCRYPTION ENGINE ENGINE_ATTRIBUTE FORCE INSERT_METHOD"
    " KEY_BLOCK_SIZE LOCK MAX_ROWS MIN_ROWS ORDER PACK_KEYS PASSWORD ROW_FORMAT SECONDARY_ENGINE"
    " SECONDARY_ENGINE_ATTRIBUTE SECONDARY_LOAD SECONDARY_UNLOAD STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES"
    " TABLESPACE WITH WITHOUT"
)
"""First words of ALTER TABLE's actions that keep every row unchanged, if :func:`_keeps_engine`. A new character set or
collation of the table is the default only for later columns (CONVERT TO changes existing columns)."""


def parse_statement(
    sql: str,
    default_db: str,
    *,
    ansi_quotes: bool = False,
    backslash_escapes: bool = True,
    lower_case_names: bool = False,
    strict: bool = False,
    no_break_space: bool = False,
) -> Statement:
    """Return the meaning of ``sql``; never raises.

    :param default_db: the database of the QUERY event, for names without one (``""``: none).
    :param ansi_quotes: the event's SQL mode has ANSI_QUOTES.
    :param backslash_escapes: the event's SQL mode lacks NO_BACKSLASH_ESCAPES.
    :param lower_case_names: the server stores table names in lower case (``lower_case_table_names`` is 1).
    :param strict: the event's SQL mode has STRICT_TRANS_TABLES or STRICT_ALL_TABLES: an ALTER to NOT NULL failed if
        there was a NULL.
    :param no_break_space: a no-break space outside quotes is white space: :func:`no_break_space_is_white`.
    """
    if _PLAIN_DML.match(sql):
        return Statement("dml")
    try:
        token_list = tokens(
            sql, ansi_quotes=ansi_quotes, backslash_escapes=backslash_escapes, no_break_space=no_break_space
        )
        return _statement(TokenCursor(token_list, default_db, lower_case_names, strict))
    except (LexError, Unclear):
        return Statement("unknown")


def declares_cascade(sql: str) -> bool:
    """Return whether a statement has a REFERENCES clause that changes rows of its table: ON DELETE or ON UPDATE with
    CASCADE, SET NULL or SET DEFAULT. In doubt, return True.

    Only servers from 9.0 on make a foreign key of such a clause inside a column's definition; it always counts here.
    """
    try:
        token_list = tokens(sql, ansi_quotes=False, backslash_escapes=True, no_break_space=True)
        words = [token.upper for token in token_list]
    except LexError:
        words = sql.upper().split()
    return "REFERENCES" in words and any(
        words[i] == "ON" and words[i + 1] in ("DELETE", "UPDATE") and words[i + 2] in ("CASCADE", "SET")
        for i in range(len(words) - 2)
    )


def _statement(cursor: TokenCursor) -> Statement:
    first, second = cursor.peek(), cursor.peek(1)
    if not cursor.tokens:
        return Statement("ignored")
    if first in _DML:
        return Statement("dml")
    if first in _TRANSACTION or (first, second) == ("START", "TRANSACTION"):
        return Statement("transaction")
    if first == "XA":
        return Statement("xa")
    if first in _IGNORED or first == "START":
        return Statement("ignored")
    read = _DDL.get(first)
    if read is None:
        return Statement("unknown")
    cursor.at += 1
    statement = read(cursor)
    return Statement("unknown") if cursor.many and statement.kind == "ddl" else statement


def _create(cursor: TokenCursor) -> Statement:
    if cursor.skip("OR", "REPLACE"):
        return Statement("ignored" if cursor.peek() in _NOT_TABLES or cursor.peek() == "SPATIAL" else "unknown")
    if cursor.skip("TEMPORARY", "TABLE"):
        return Statement("ignored")
    if cursor.peek() in ("DATABASE", "SCHEMA") or cursor.peek() in _NOT_TABLES:
        return Statement("ignored")
    if cursor.skip("SPATIAL", "REFERENCE", "SYSTEM"):
        return Statement("ignored")
    cursor.skip("EXTERNAL")
    if cursor.skip("TABLE"):
        if_absent = cursor.skip("IF", "NOT", "EXISTS")
        db, table = cursor.table()
        rest = cursor.rest()
        starts = [token.upper for token in rest[-2:]] == ["START", "TRANSACTION"]
        effects = (DdlEffect("create", db, table, changes=() if if_absent else None),)
        return Statement("ddl", effects, starts_transaction=starts, copies_rows=_has_query(rest))
    cursor.skip_any("UNIQUE", "FULLTEXT", "SPATIAL")
    cursor.expect("INDEX")
    return _index(cursor)


def _has_query(clauses: list[SqlToken]) -> bool:
    """Return whether a CREATE TABLE has a query behind the table's name.

    A query is a SELECT anywhere (no other clause takes one), or TABLE, VALUES or WITH outside parentheses or as the
    first word inside.
    """
    words = [token.upper for token in clauses]
    depth = 0
    for before, word in zip(["", *words], words, strict=False):
        if word == "SELECT" or (word in ("TABLE", "VALUES", "WITH") and (depth == 0 or before == "(")):
            return True
        depth += (word == "(") - (word == ")")
    return False


def _index(cursor: TokenCursor) -> Statement:
    """Parse what follows CREATE INDEX or DROP INDEX: ``name [USING …] ON table …``.

    A unique index may serve as the primary key. It changes no row; the images then show the other key.
    """
    primary = lower_name(cursor.name()) == "primary"
    if cursor.skip_any("USING", "TYPE"):
        cursor.name()
    cursor.expect("ON")
    db, table = cursor.table()
    return Statement("ddl", (DdlEffect("alter", db, table, changes=None if primary else ()),))


def _drop(cursor: TokenCursor) -> Statement:
    if cursor.skip("TEMPORARY"):
        return Statement("ignored")
    if cursor.skip_any("DATABASE", "SCHEMA"):
        cursor.skip("IF", "EXISTS")
        db = cursor.database()
        cursor.end()
        return Statement("ddl", (DdlEffect("drop_database", db, ""),))
    if cursor.skip_any("TABLE", "TABLES"):
        cursor.skip("IF", "EXISTS")
        tables = [cursor.table()]
        while cursor.skip(","):
            tables.append(cursor.table())
        cursor.skip_any("RESTRICT", "CASCADE")
        cursor.end()
        return Statement("ddl", tuple(DdlEffect("drop", db, table) for db, table in tables))
    if cursor.skip("INDEX"):
        return _index(cursor)
    if cursor.peek() in _NOT_TABLES or cursor.skip("SPATIAL", "REFERENCE", "SYSTEM"):
        return Statement("ignored")
    return Statement("unknown")


def _rename(cursor: TokenCursor) -> Statement:
    if cursor.skip("USER"):
        return Statement("ignored")
    if not cursor.skip_any("TABLE", "TABLES"):
        return Statement("unknown")
    effects: list[DdlEffect] = []
    while True:
        db, table = cursor.table()
        cursor.expect("TO")
        effects.append(DdlEffect("rename", db, table, *cursor.table()))
        if not cursor.skip(","):
            break
    cursor.end()
    return Statement("ddl", tuple(effects))


def _truncate(cursor: TokenCursor) -> Statement:
    cursor.skip("TABLE")
    db, table = cursor.table()
    cursor.end()
    return Statement("ddl", (DdlEffect("truncate", db, table),))


def _alter(cursor: TokenCursor) -> Statement:
    if cursor.peek() in ("DATABASE", "SCHEMA") or cursor.peek() in _NOT_TABLES:
        return Statement("ignored")
    cursor.skip_any("ONLINE", "OFFLINE", "IGNORE")
    cursor.expect("TABLE")
    db, table = cursor.table()
    # An action on partitions is alone in its statement. Its commas divide partition names.
    alone = cursor.peek() in _PARTITION_VERBS and cursor.peek(1) == "PARTITION"
    parts = [cursor.rest()] if alone else _split(cursor.rest())
    actions = [TokenCursor(part, cursor.default_db, cursor.lower_case, cursor.strict) for part in parts]
    renamed: tuple[str, str] | None = None
    others: list[TokenCursor] = []
    exchanged: list[DdlEffect] = []
    for action in actions:
        if action.peek() == "RENAME" and action.peek(1) not in ("COLUMN", "INDEX", "KEY"):
            action.expect("RENAME")
            action.skip_any("TO", "AS", "=")
            renamed = action.table()
            action.end()
        else:
            others.append(action)
            exchanged.extend(_exchange(action))
    effects: list[DdlEffect] = []
    if others or renamed is None:
        renames = tuple(pair for action in others for pair in _renames(action))
        effects.append(DdlEffect("alter", db, table, changes=_changes(others), renames=renames))
    effects.extend(exchanged)
    if renamed is not None:
        effects.append(DdlEffect("rename", db, table, *renamed))
    return Statement("ddl", tuple(effects))


def _exchange(action: TokenCursor) -> list[DdlEffect]:
    """Return the effect of EXCHANGE PARTITION p WITH TABLE t on the rows of t."""
    if (action.peek(), action.peek(1)) != ("EXCHANGE", "PARTITION"):
        return []
    action.at += 2
    action.name()
    action.expect("WITH", "TABLE")
    db, table = action.table()
    action.at = 0
    return [DdlEffect("alter", db, table)]


def _renames(action: TokenCursor) -> list[tuple[str, str]]:
    """Return the names of a column before and after RENAME COLUMN or CHANGE."""
    try:
        if action.skip("RENAME", "COLUMN"):
            name = action.name()
            action.expect("TO")
        elif action.skip("CHANGE"):
            action.skip("COLUMN")
            name = action.name()
        else:
            return []
        new_name = action.name()
    except Unclear:  # no server runs it
        return []
    finally:
        action.at = 0
    return [(name, new_name)] if lower_name(name) != lower_name(new_name) else []


def _is_partition(action: TokenCursor) -> bool:
    first, second = action.peek(), action.peek(1)
    is_of_partitions = first in _PARTITION_VERBS and second == "PARTITION"
    return is_of_partitions or (first, second) in _PARTITIONING or _is_of_tablespace(action)


def _is_silent(action: TokenCursor) -> bool:
    """Return whether rows may come or go without row events."""
    return (action.peek(), action.peek(1)) in _SILENT or _is_of_tablespace(action)


def _is_of_tablespace(action: TokenCursor) -> bool:
    """Return whether this is DISCARD or IMPORT. The word alone may be a column's name."""
    return action.peek() in ("DISCARD", "IMPORT") and action.peek(len(action.tokens) - 1) == "TABLESPACE"


def _changes(actions: list[TokenCursor]) -> tuple[ColumnChange, ...] | None:
    """Return the columns that these actions change, or None if they may change rows in any other way."""
    changes: list[ColumnChange] = []
    for action in actions:
        if _leaves_rows(action):
            continue
        read = _COLUMN_ACTIONS.get(action.peek())
        try:
            changed = read(action) if read is not None else None
        except Unclear:  # a definition: at worst it changes rows of this table
            return None
        if not changed:
            return None
        changes.extend(changed)
    # A column that is named twice depends on the order in which the server applies the actions.
    names = [lower_name(change.name) for change in changes if not isinstance(change, AddedColumn)]
    return tuple(changes) if len(names) == len(set(names)) else None


def _add(action: TokenCursor) -> list[ColumnChange] | None:
    action.expect("ADD")
    action.skip("COLUMN")
    definitions = [action.rest()]
    if definitions[0] and definitions[0][0] == SqlToken("symbol", "("):
        definitions = _split(definitions[0][1:-1])
    columns = [added_column(definition) for definition in definitions]
    known: list[ColumnChange] = [column for column in columns if column is not None]
    return known if len(known) == len(columns) else None


def _drop_column(action: TokenCursor) -> list[ColumnChange] | None:
    action.expect("DROP")
    if not action.skip("COLUMN") and action.peek() in NOT_COLUMNS:
        return None
    name = action.name()
    action.skip_any("RESTRICT", "CASCADE")
    action.end()
    return [DroppedColumn(name)]


def _rename_column(action: TokenCursor) -> list[ColumnChange] | None:
    action.expect("RENAME", "COLUMN")
    name = action.name()
    action.expect("TO")
    new_name = action.name()
    action.end()
    return [RedefinedColumn(name, new_name)]


def _leaves_rows(action: TokenCursor) -> bool:
    """Return whether this action of an ALTER TABLE changes no value, no column and no row."""
    first, second = action.peek(), action.peek(1)
    if _is_partition(action):
        return not _is_silent(action)
    if first == "ADD":
        primary = "PRIMARY" in (second, action.peek(2), action.peek(3))
        return second in NOT_COLUMNS and not (primary and second in ("PRIMARY", "CONSTRAINT"))
    if first == "DROP":
        if second not in ("INDEX", "KEY", "CHECK", "FOREIGN", "CONSTRAINT"):
            return False
        return lower_name(action.tokens[-1].text) != "primary"
    if first == "RENAME":
        return second in ("INDEX", "KEY")
    return (first in _HARMLESS and _keeps_engine(action)) or first == "ALTER"


def _keeps_engine(options: TokenCursor) -> bool:
    """Return whether options of a table, which need no comma between them, name no other engine and no UNION. Other
    engines may keep no rows.
    """
    words = [*(token.upper for token in options.tokens), "", ""]
    engines = (words[at + (2 if words[at + 1] == "=" else 1)] for at, word in enumerate(words) if word == "ENGINE")
    return "UNION" not in words and all(engine == "INNODB" for engine in engines)


def _split(token_list: list[SqlToken]) -> list[list[SqlToken]]:
    """Split at the commas outside parentheses, and before a table's partitioning, which no comma precedes."""
    parts: list[list[SqlToken]] = [[]]
    depth = 0
    words = [token.upper for token in token_list]
    for token, word, following in zip(token_list, words, [*words[1:], ""], strict=False):
        depth += (word == "(") - (word == ")")
        if depth < 0:
            raise Unclear
        if depth == 0 and (word, following) in _PARTITIONING:
            parts.append([])
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    if depth:
        raise Unclear
    return [part for part in parts if part]


_COLUMN_ACTIONS: dict[str, Callable[[TokenCursor], list[ColumnChange] | None]] = {
    "ADD": _add,
    "CHANGE": redefined_column,
    "DROP": _drop_column,
    "MODIFY": redefined_column,
    "RENAME": _rename_column,
}
_DDL: dict[str, Callable[[TokenCursor], Statement]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
