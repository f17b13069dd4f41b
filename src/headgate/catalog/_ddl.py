"""What a statement of the log (a QUERY event) does to tables.

With row-based logging, statements in the log are DDL, transaction control, account administration and the like. The
reader must know which tables a DDL touches; a statement that might touch one and is not understood must stop it. So
the rules *fail closed*: only statements on the lists below are ``ignored``, and a DDL statement whose shape differs
from the grammar (MySQL Reference Manual, "Data Definition Statements") is ``unknown``.

Executable comments (``/*!80013 … */``) run or not, depending on the server. Those that every supported server runs are
read as plain text; if a newer one makes a difference to the answer, the answer is ``unknown``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headgate.catalog._tokens import LexError, Token, tokens

__all__ = ["AddedColumn", "DdlEffect", "Statement", "declares_cascade", "parse_statement"]

Kind: TypeAlias = Literal["ddl", "dml", "transaction", "xa", "ignored", "unknown"]
Action: TypeAlias = Literal["create", "alter", "drop", "truncate", "rename", "drop_database"]


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that an ALTER adds, and what the statement says about its value in the rows there are."""

    name: str
    nullable: bool = True
    default: str | None = None
    """A literal without its quotes; None: no DEFAULT, or DEFAULT NULL."""
    quoted: bool = False
    """The literal is a string."""

    @property
    def is_null(self) -> bool:
        """The rows there are hold NULL."""
        return self.nullable and self.default is None


@dataclass(frozen=True, slots=True)
class DdlEffect:
    """One table (or database) that a DDL statement touches. Names are as written, unquoted."""

    action: Action
    db: str
    table: str
    """Empty for ``drop_database``."""
    new_db: str | None = None
    new_table: str | None = None
    """For ``rename``."""
    partition: bool = False
    """An ALTER that manages partitions or the tablespace."""
    silent_rows: bool = False
    """Rows of this table may come or go without row events (TRUNCATE/DROP/EXCHANGE PARTITION, IMPORT TABLESPACE)."""
    adds: tuple[AddedColumn, ...] | None = None
    """For ``alter``: the columns it adds, where nothing else changes in any row; ``()`` for an ALTER of indexes,
    constraints, comments, options or partitions that keeps all rows as they are. None: rows may have changed."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The meaning of one statement of the log."""

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
"""A statement that can be told by its first word. It may be many megabytes long."""
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
"""Second words of CREATE, ALTER and DROP statements about something else than a table or an index. Views count here:
they have no rows of their own in the log. ALGORITHM, DEFINER and SQL SECURITY begin views and stored programs."""

_SILENT = frozenset([("TRUNCATE", "PARTITION"), ("DROP", "PARTITION"), ("EXCHANGE", "PARTITION")])
_PARTITION_VERBS = _words(
    "TRUNCATE DROP EXCHANGE ADD COALESCE REORGANIZE REBUILD ANALYZE CHECK OPTIMIZE REPAIR DISCARD IMPORT"
)
_NOT_COLUMNS = _words("INDEX KEY FULLTEXT SPATIAL CONSTRAINT PRIMARY UNIQUE FOREIGN CHECK PARTITION")
_HARMLESS = _words(
    "ALGORITHM AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHARACTER CHARSET CHECKSUM COLLATE COMMENT COMPRESSION"
    " CONNECTION DEFAULT DELAY_KEY_WRITE DISABLE ENABLE ENCRYPTION ENGINE_ATTRIBUTE FORCE INSERT_METHOD KEY_BLOCK_SIZE"
    " LOCK MAX_ROWS MIN_ROWS ORDER PACK_KEYS PASSWORD ROW_FORMAT SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE"
    " SECONDARY_LOAD SECONDARY_UNLOAD STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES TABLESPACE WITH WITHOUT"
)
"""First words of ALTER TABLE's actions that leave every row as it is. A new character set or collation of the table is
the default for later columns only (CONVERT TO changes the columns there are)."""
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


class _Unclear(Exception):
    """The statement does not have the shape that the grammar gives it."""


def parse_statement(
    sql: str,
    default_db: str,
    *,
    ansi_quotes: bool = False,
    backslash_escapes: bool = True,
    lower_case_names: bool = False,
) -> Statement:
    """The meaning of ``sql``; never raises.

    :param default_db: the database of the QUERY event, for names without one (``""``: none).
    :param ansi_quotes: the event's SQL mode has ANSI_QUOTES.
    :param backslash_escapes: the event's SQL mode lacks NO_BACKSLASH_ESCAPES.
    :param lower_case_names: the server stores table names in lower case (``lower_case_table_names`` is not 0).
    """
    if _PLAIN_DML.match(sql):
        return Statement("dml")

    def read(run_newer: bool) -> tuple[Statement, bool]:
        found, newer = tokens(sql, ansi_quotes=ansi_quotes, backslash_escapes=backslash_escapes, run_newer=run_newer)
        return _statement(_Cursor(found, default_db, lower_case_names)), newer

    try:
        statement, newer = read(True)
        if newer and statement != read(False)[0]:
            return Statement("unknown")
        return statement
    except (LexError, _Unclear):
        return Statement("unknown")


def declares_cascade(sql: str) -> bool:
    """Whether a statement has a REFERENCES clause that changes rows of its table: ON DELETE or ON UPDATE with CASCADE,
    SET NULL or SET DEFAULT. True rather than False where it cannot be told.

    Only servers from 9.0 on make a foreign key of such a clause inside a column's definition; it counts in any case.
    """
    try:
        words = [token.upper for token in tokens(sql, ansi_quotes=False, backslash_escapes=True, run_newer=True)[0]]
    except LexError:
        words = sql.upper().split()
    return "REFERENCES" in words and any(
        words[i] == "ON" and words[i + 1] in ("DELETE", "UPDATE") and words[i + 2] in ("CASCADE", "SET")
        for i in range(len(words) - 2)
    )


class _Cursor:
    """The tokens of one statement, and the small vocabulary in which the grammar below is written."""

    def __init__(self, found: list[Token], default_db: str, lower_case: bool) -> None:
        while found and found[-1] == Token("symbol", ";"):
            found = found[:-1]
        # Bodies of stored programs hold semicolons too, but their first words identify those statements.
        self.many = any(token == Token("symbol", ";") for token in found)
        self.found = found
        self.at = 0
        self.default_db = default_db
        self.lower_case = lower_case

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.found[at].upper if at < len(self.found) else ""

    def ended(self) -> bool:
        return self.at >= len(self.found)

    def skip(self, *words: str) -> bool:
        """Steps over exactly this sequence of keywords, if it comes next."""
        if all(self.peek(i) == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def skip_any(self, *words: str) -> bool:
        return any(self.skip(word) for word in words)

    def expect(self, *words: str) -> None:
        if not self.skip(*words):
            raise _Unclear

    def end(self) -> None:
        if not self.ended():
            raise _Unclear

    def name(self) -> str:
        """A bare or quoted name."""
        if self.ended() or self.found[self.at].kind not in ("word", "name") or not self.found[self.at].text:
            raise _Unclear
        self.at += 1
        return self.found[self.at - 1].text

    def database(self) -> str:
        name = self.name()
        return name.lower() if self.lower_case else name

    def table(self) -> tuple[str, str]:
        """``[db.]table``; a leading dot means the default database."""
        if self.skip("."):
            db, table = self.default_db, self.name()
        else:
            db, table = self.default_db, self.name()
            if self.skip("."):
                db, table = table, self.name()
        if not db:
            raise _Unclear
        return (db.lower(), table.lower()) if self.lower_case else (db, table)

    def rest(self) -> list[Token]:
        remaining = self.found[self.at :]
        self.at = len(self.found)
        return remaining


def _statement(at: _Cursor) -> Statement:
    first, second = at.peek(), at.peek(1)
    if not at.found:
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
    at.at += 1
    statement = read(at)
    return Statement("unknown") if at.many and statement.kind == "ddl" else statement


def _create(at: _Cursor) -> Statement:
    if at.skip("OR", "REPLACE"):
        return Statement("ignored" if at.peek() in _NOT_TABLES or at.peek() == "SPATIAL" else "unknown")
    if at.skip("TEMPORARY", "TABLE"):
        return Statement("ignored")
    if at.peek() in ("DATABASE", "SCHEMA") or at.peek() in _NOT_TABLES:
        return Statement("ignored")
    if at.skip("SPATIAL", "REFERENCE", "SYSTEM"):
        return Statement("ignored")
    at.skip("EXTERNAL")
    if at.skip("TABLE"):
        at.skip("IF", "NOT", "EXISTS")
        db, table = at.table()
        rest = at.rest()
        starts = [token.upper for token in rest[-2:]] == ["START", "TRANSACTION"]
        effects = (DdlEffect("create", db, table),)
        return Statement("ddl", effects, starts_transaction=starts, copies_rows=_has_query(rest))
    at.skip_any("UNIQUE", "FULLTEXT", "SPATIAL")
    at.expect("INDEX")
    return _index(at)


def _has_query(found: list[Token]) -> bool:
    """Whether a CREATE TABLE has a query behind the table's name.

    That is a SELECT anywhere (no other clause takes one), or TABLE, VALUES or WITH, which begin queries outside
    parentheses, or as the first words inside.
    """
    words = [token.upper for token in found]
    depth = 0
    for before, word in zip(["", *words], words, strict=False):
        if word == "SELECT" or (word in ("TABLE", "VALUES", "WITH") and (depth == 0 or before == "(")):
            return True
        depth += (word == "(") - (word == ")")
    return False


def _index(at: _Cursor) -> Statement:
    """After CREATE INDEX or DROP INDEX: ``name [USING …] ON table …``.

    A unique index may be what stands for a primary key. No row changes with it; that the key is another one then shows
    in the images.
    """
    primary = at.name().upper() == "PRIMARY"
    if at.skip_any("USING", "TYPE"):
        at.name()
    at.expect("ON")
    db, table = at.table()
    return Statement("ddl", (DdlEffect("alter", db, table, adds=None if primary else ()),))


def _drop(at: _Cursor) -> Statement:
    if at.skip("TEMPORARY"):
        return Statement("ignored")
    if at.skip_any("DATABASE", "SCHEMA"):
        at.skip("IF", "EXISTS")
        db = at.database()
        at.end()
        return Statement("ddl", (DdlEffect("drop_database", db, ""),))
    if at.skip_any("TABLE", "TABLES"):
        at.skip("IF", "EXISTS")
        found = [at.table()]
        while at.skip(","):
            found.append(at.table())
        at.skip_any("RESTRICT", "CASCADE")
        at.end()
        return Statement("ddl", tuple(DdlEffect("drop", db, table) for db, table in found))
    if at.skip("INDEX"):
        return _index(at)
    if at.peek() in _NOT_TABLES or at.skip("SPATIAL", "REFERENCE", "SYSTEM"):
        return Statement("ignored")
    return Statement("unknown")


def _rename(at: _Cursor) -> Statement:
    if at.skip("USER"):
        return Statement("ignored")
    if not at.skip_any("TABLE", "TABLES"):
        return Statement("unknown")
    effects: list[DdlEffect] = []
    while True:
        db, table = at.table()
        at.expect("TO")
        effects.append(DdlEffect("rename", db, table, *at.table()))
        if not at.skip(","):
            break
    at.end()
    return Statement("ddl", tuple(effects))


def _truncate(at: _Cursor) -> Statement:
    at.skip("TABLE")
    db, table = at.table()
    at.end()
    return Statement("ddl", (DdlEffect("truncate", db, table),))


def _alter(at: _Cursor) -> Statement:
    if at.peek() in ("DATABASE", "SCHEMA") or at.peek() in _NOT_TABLES:
        return Statement("ignored")
    at.skip_any("ONLINE", "OFFLINE", "IGNORE")
    at.expect("TABLE")
    db, table = at.table()
    # What is done to partitions is done alone, and the commas divide their names.
    alone = at.peek() in _PARTITION_VERBS and at.peek(1) == "PARTITION"
    parts = [at.rest()] if alone else _split(at.rest())
    actions = [_Cursor(part, at.default_db, at.lower_case) for part in parts]
    renamed: tuple[str, str] | None = None
    others: list[_Cursor] = []
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
        partition = any(_is_partition(action) for action in others)
        silent = any(_is_silent(action) for action in others)
        effects.append(DdlEffect("alter", db, table, partition=partition, silent_rows=silent, adds=_adds(others)))
    effects.extend(exchanged)
    if renamed is not None:
        effects.append(DdlEffect("rename", db, table, *renamed))
    return Statement("ddl", tuple(effects))


def _exchange(action: _Cursor) -> list[DdlEffect]:
    """EXCHANGE PARTITION p WITH TABLE t changes the rows of t too."""
    if (action.peek(), action.peek(1)) != ("EXCHANGE", "PARTITION"):
        return []
    action.at += 2
    action.name()
    action.expect("WITH", "TABLE")
    db, table = action.table()
    action.at = 0
    return [DdlEffect("alter", db, table, partition=True, silent_rows=True)]


def _is_partition(action: _Cursor) -> bool:
    words = {action.peek(i) for i in range(1, len(action.found))}
    if action.peek() in _PARTITION_VERBS and (action.peek(1) == "PARTITION" or "TABLESPACE" in words):
        return True
    first = action.peek()
    return (first == "PARTITION" and action.peek(1) == "BY") or (first == "REMOVE" and action.peek(1) == "PARTITIONING")


def _is_silent(action: _Cursor) -> bool:
    first, last = action.peek(), action.peek(len(action.found) - 1)
    return (first, action.peek(1)) in _SILENT or (first in ("DISCARD", "IMPORT") and last == "TABLESPACE")


def _adds(actions: list[_Cursor]) -> tuple[AddedColumn, ...] | None:
    """The columns that these actions add, or None if they may do anything else to rows."""
    added: list[AddedColumn] = []
    for action in actions:
        if _leaves_rows(action):
            continue
        if not action.skip("ADD"):
            return None
        action.skip("COLUMN")
        definitions = [action.rest()]
        if definitions[0] and definitions[0][0] == Token("symbol", "("):
            definitions = _split(definitions[0][1:-1])
        columns = [_added(definition) for definition in definitions]
        known = [column for column in columns if column is not None]
        if not known or len(known) < len(columns):
            return None
        added.extend(known)
    return tuple(added)


def _leaves_rows(action: _Cursor) -> bool:
    """Whether this action of an ALTER TABLE changes no value, no column and no row."""
    first, second = action.peek(), action.peek(1)
    if _is_partition(action):
        return not _is_silent(action)
    if first == "ENGINE":  # others may keep no rows at all
        return action.peek(2 if second == "=" else 1) == "INNODB"
    if first == "ADD":
        primary = "PRIMARY" in (second, action.peek(2), action.peek(3))
        return second in _NOT_COLUMNS and not (primary and second in ("PRIMARY", "CONSTRAINT"))
    if first == "DROP":
        if second not in ("INDEX", "KEY", "CHECK", "FOREIGN", "CONSTRAINT"):
            return False
        return action.found[-1].text.upper() != "PRIMARY"
    if first == "RENAME":
        return second in ("INDEX", "KEY")
    return first in _HARMLESS or first == "ALTER"


def _added(definition: list[Token]) -> AddedColumn | None:
    """The column of this definition; None where its value in rows that were there before is not a literal."""
    outer = _outer(definition)
    words = [token.upper for token in outer]
    if len(words) < 2 or words[0] in _NOT_COLUMNS or not outer[0].text:
        return None
    later = set(words[1:])
    if {"AUTO_INCREMENT", "AS", "PRIMARY", "KEY", "SERIAL", "PARTITION"} & later:
        return None
    # A TIMESTAMP without NULL is NOT NULL on servers with explicit_defaults_for_timestamp=OFF.
    nulls = [words[place - 1] != "NOT" for place in range(1, len(words)) if words[place] == "NULL"]
    if words[1] == "TIMESTAMP" and not any(nulls):
        return None
    nullable = all(nulls)
    if "DEFAULT" not in words[1:]:
        literal: tuple[str | None, bool] | None = (None, False)
    else:
        literal = _literal(outer[words.index("DEFAULT", 1) + 1 :])
    if literal is None:
        return None
    # DOUBLE(10,2) rounds, and the column's type as the log describes it does not say so.
    rounds = words[1] in ("FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8") and "(" in words
    if (rounds or "UNIQUE" in later) and not (nullable and literal[0] is None):
        return None
    return AddedColumn(outer[0].text, nullable, *literal)


def _outer(definition: list[Token]) -> list[Token]:
    """The tokens outside parentheses; of each pair of those, the opening one."""
    found, depth = [], 0
    for token in definition:
        depth -= token.upper == ")"
        if depth == 0 and token.upper != ")":
            found.append(token)
        depth += token.upper == "("
    return found


def _literal(found: list[Token]) -> tuple[str | None, bool] | None:
    """The literal after DEFAULT, and whether it is a string; None: it is something else."""
    if not found or (len(found) > 1 and found[1].kind == "string"):
        return None
    if found[0].kind == "string":
        text = found[0].text
        return None if set(text) & set("'\"\\") else (text, True)
    if found[0].upper in ("NULL", "TRUE", "FALSE"):
        return {"NULL": None, "TRUE": "1", "FALSE": "0"}[found[0].upper], False
    number = ""
    for token in found:
        if token.upper not in ("+", "-", ".") and not token.text.isdecimal():
            break
        number += token.text
    return (number, False) if _NUMBER.fullmatch(number) else None


def _split(found: list[Token]) -> list[list[Token]]:
    """At the commas outside parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        word = token.upper
        depth += (word == "(") - (word == ")")
        if depth < 0:
            raise _Unclear
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    if depth:
        raise _Unclear
    return [part for part in parts if part]


_DDL: dict[str, Callable[[_Cursor], Statement]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
