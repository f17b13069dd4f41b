"""What a statement of the log (a QUERY event) does to tables.

With row-based logging, statements in the log are DDL, transaction control, account administration and the like. The
reader must know which tables a DDL touches; a statement that might touch one and is not understood must stop it. So
the rules *fail closed*: only statements on the lists below are ``ignored``, and a DDL statement whose shape differs
from the grammar (MySQL Reference Manual, "Data Definition Statements") is ``unknown``.

Executable comments (``/*!80013 … */``) run or not, depending on the server. Those that every supported server runs are
read as plain text; if a newer one makes a difference to the answer, the answer is ``unknown``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headgate.catalog._tokens import LexError, Token, tokens

__all__ = ["DdlEffect", "Statement", "parse_statement"]

Kind: TypeAlias = Literal["ddl", "dml", "transaction", "xa", "ignored", "unknown"]
Action: TypeAlias = Literal["create", "alter", "drop", "truncate", "rename", "drop_database"]


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
    only_adds_nullable: bool = False
    """It only adds columns which are NULL in every existing row, or plain indexes: rows stay known from the log."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The meaning of one statement of the log."""

    kind: Kind
    effects: tuple[DdlEffect, ...] = ()
    """For ``ddl``, in the order in which they happen."""
    starts_transaction: bool = False
    """CREATE TABLE … SELECT: the rows follow in the same transaction (8.0.21 and later)."""

    @property
    def only_adds_nullable(self) -> bool:
        """The statement is one ALTER of which its effect says so."""
        return len(self.effects) == 1 and self.effects[0].only_adds_nullable


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DML = _words("INSERT UPDATE DELETE REPLACE LOAD CALL DO WITH SELECT TABLE VALUES HANDLER (")
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
_PLAIN_INDEXES = _words("INDEX KEY FULLTEXT SPATIAL")
_NOT_COLUMNS = _words("INDEX KEY FULLTEXT SPATIAL CONSTRAINT PRIMARY UNIQUE FOREIGN CHECK PARTITION")


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


class _Cursor:
    """The tokens of one statement, and the small vocabulary in which the grammar below is written."""

    def __init__(self, found: list[Token], default_db: str, lower_case: bool) -> None:
        while found and found[-1] == Token("symbol", ";"):
            found = found[:-1]
        # Bodies of stored programs hold semicolons too, but those statements are told by their first words.
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
        rest = [token.upper for token in at.rest()]
        return Statement(
            "ddl", (DdlEffect("create", db, table),), starts_transaction=rest[-2:] == ["START", "TRANSACTION"]
        )
    unique = at.skip("UNIQUE")
    at.skip_any("FULLTEXT", "SPATIAL")
    at.expect("INDEX")
    return _index(at, harmless=not unique)


def _index(at: _Cursor, *, harmless: bool) -> Statement:
    """After CREATE INDEX or DROP INDEX: ``name [USING …] ON table …``.

    :param harmless: the table's key stays what it is; a unique index may be what stands for a primary key.
    """
    at.name()
    if at.skip_any("USING", "TYPE"):
        at.name()
    at.expect("ON")
    db, table = at.table()
    return Statement("ddl", (DdlEffect("alter", db, table, only_adds_nullable=harmless),))


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
        return _index(at, harmless=False)
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
    actions = [_Cursor(part, at.default_db, at.lower_case) for part in _split(at.rest())]
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
        only_adds = renamed is None and _only_adds_nullable(others)
        effects.append(
            DdlEffect("alter", db, table, partition=partition, silent_rows=silent, only_adds_nullable=only_adds)
        )
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


def _only_adds_nullable(actions: list[_Cursor]) -> bool:
    added = 0
    for action in actions:
        if action.peek() in ("ALGORITHM", "LOCK"):
            continue
        if not action.skip("ADD"):
            return False
        if action.peek() in _PLAIN_INDEXES:
            added += 1
            continue
        if action.peek() in _NOT_COLUMNS:
            return False
        action.skip("COLUMN")
        definitions = [action.rest()]
        if definitions[0] and definitions[0][0] == Token("symbol", "("):
            definitions = _split(definitions[0][1:-1])
        if not definitions or not all(_is_null_everywhere(definition) for definition in definitions):
            return False
        added += len(definitions)
    return added > 0


def _is_null_everywhere(definition: list[Token]) -> bool:
    """Whether the column of this definition is NULL in rows that were there before."""
    words = [token.upper for token in definition]
    if len(words) < 2 or {"AUTO_INCREMENT", "AS", "PRIMARY", "KEY", "SERIAL", "PARTITION"} & set(words[1:]):
        return False
    if words[0] in _NOT_COLUMNS:
        return False
    pairs = list(zip(words, [*words[1:], ""], strict=True))
    if ("NOT", "NULL") in pairs or any(word == "DEFAULT" and after != "NULL" for word, after in pairs):
        return False
    # A TIMESTAMP without NULL is NOT NULL on servers with explicit_defaults_for_timestamp=OFF.
    return words[1] != "TIMESTAMP" or "NULL" in words


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
