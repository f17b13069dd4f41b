"""Table definitions from information_schema: three queries for any number of tables.

Columns are numbered as in the log, so invisible columns and the generated invisible primary key are included (sessions
of ``headgate.mysql`` have information_schema show it). The hidden columns of functional indexes are in neither.

The key is the one that the log has, too: the PRIMARY KEY or, without one, the first UNIQUE key of the table whose
columns are all NOT NULL and neither functional, virtual nor prefixes. MySQL uses it as primary, and shows its columns
with COLUMN_KEY = 'PRI'. If several have the same columns in different orders, SHOW INDEX tells which is the first,
which STATISTICS does not. No other key is chosen: the log would not show whether a table had it at the moment of an
image, so two rows with equal values could be taken for one.

information_schema is text in utf8mb3, so an ENUM or SET member with a character above U+FFFF reads ``?`` here. The log
has the character. Comments are only here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from headgate.catalog._charsets import normalise
from headgate.catalog._patterns import SYSTEM_SCHEMAS, TablePatterns
from headgate.catalog._table import BINARIES, GEOMETRIES, NUMBERS, TEMPORALS, TEXTS, Column, TableDef
from headgate.catalog._visible import QueryFunction, check_visible
from headgate.errors import DefiniteServerError, UnsupportedError
from headgate.names import quote_name

__all__ = [
    "NamedTable",
    "QueryFunction",
    "TableStats",
    "databases_with_dots",
    "load_stats",
    "load_table",
    "load_tables",
]


@dataclass(frozen=True, slots=True)
class TableStats:
    """Storage engine and size of a table, from the server."""

    engine: str
    """``InnoDB``, ``MyISAM``, …; ``""`` if unknown."""
    rows: int
    """The engine's estimate, 0 if it has none. InnoDB's may be far off."""
    data_bytes: int
    """Bytes of the clustered index or data file, 0 if unknown."""


class NamedTable(NamedTuple):
    """One table as information_schema shows it."""

    table: TableDef
    has_primary_key: bool
    """Whether the key is the PRIMARY KEY, which no change of other indexes can replace."""


_COLUMNS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_OCTET_LENGTH,"
    " NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME, EXTRA,"
    " COLUMN_COMMENT, COLUMN_KEY"
    " FROM information_schema.COLUMNS WHERE {where} ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
)
_KEYS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS"
    " WHERE {where} AND NON_UNIQUE = 0"
    " ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
)
_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, TABLE_ROWS, DATA_LENGTH, TABLE_COMMENT FROM information_schema.TABLES"
    " WHERE {where} AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_SCHEMA, TABLE_NAME"
)


def load_tables(query: QueryFunction, patterns: TablePatterns) -> list[TableDef]:
    """Return the definitions of all base tables that match, sorted by database and name.

    :raises UnsupportedError: a column's type is unknown.
    :raises AccessError: the account may not SELECT a column of the primary key.
    """
    comments = {name: comment for name, (_, comment) in _base_tables(query, patterns).items()}
    where, args = _where(patterns)
    return [named.table for named in _load(query, comments, where, args)]


def load_table(query: QueryFunction, db: str, name: str) -> NamedTable | None:
    """Return one base table's definition; None if it does not exist or the account may not see it.

    :raises UnsupportedError: a column's type is unknown.
    """
    where, args = "TABLE_SCHEMA = %s AND TABLE_NAME = %s", (db, name)
    rows = query(_TABLES.format(where=where), args)
    tables = _load(query, {(str(row[0]), str(row[1])): str(row[-1] or "") for row in rows}, where, args)
    return next((one for one in tables if (one.table.db, one.table.name) == (db, name)), None)


def _load(
    query: QueryFunction, comments: Mapping[tuple[str, str], str], where: str, args: tuple[str, ...]
) -> list[NamedTable]:
    """Load the tables of these comments, which are among those that ``where`` selects."""
    columns: dict[tuple[str, str], list[Column]] = defaultdict(list)
    primary: dict[tuple[str, str], set[str]] = defaultdict(set)
    for db, table, *rest, key in query(_COLUMNS.format(where=where), args):
        if (db, table) in comments:
            columns[db, table].append(_column(f"{db}.{table}", rest))
            if key == "PRI":
                primary[db, table].add(rest[0])
    keys: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for db, table, index, column in query(_KEYS.format(where=where), args):
        keys[db, table][index].append(column)
    for name in comments:
        if columns[name] and not {*keys[name].get("PRIMARY", ())} <= {column.name for column in columns[name]}:
            check_visible(query, *name, ())  # else a statement changed the table between the queries
    return [
        NamedTable(
            TableDef(*name, tuple(columns[name]), comment=comment).with_key(
                _choose_key(keys[name], primary[name], partial(_index_names, query, *name))
            ),
            "PRIMARY" in keys[name],
        )
        for name, comment in comments.items()
        if columns[name]  # else it was dropped since its name was read
    ]


def load_stats(query: QueryFunction, patterns: TablePatterns) -> dict[str, TableStats]:
    """Return ``db.table`` -> engine and size of every base table that matches."""
    return {f"{db}.{table}": stats for (db, table), (stats, _) in _base_tables(query, patterns).items()}


def databases_with_dots(query: QueryFunction, patterns: TablePatterns) -> list[str]:
    """Return the databases that these patterns name, and whose tables they never match: see :class:`TablePatterns`."""
    rows = query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE '%.%' ORDER BY 1")
    return [str(name) for (name,) in rows if patterns.names_database(str(name))]


def _base_tables(query: QueryFunction, patterns: TablePatterns) -> dict[tuple[str, str], tuple[TableStats, str]]:
    """Return the engine and size of each base table that matches, and its comment."""
    where, args = _where(patterns)
    return {
        (db, table): (TableStats(engine or "", int(rows or 0), int(size or 0)), str(comment or ""))
        for db, table, engine, rows, size, comment in query(_TABLES.format(where=where), args)
        if patterns.matches(db, table)
    }


def _where(patterns: TablePatterns) -> tuple[str, tuple[str, ...]]:
    databases = patterns.literal_databases()
    if databases is None:
        return f"TABLE_SCHEMA NOT IN ({', '.join(['%s'] * len(SYSTEM_SCHEMAS))})", SYSTEM_SCHEMAS
    if not databases:
        return "FALSE", ()
    return f"TABLE_SCHEMA IN ({', '.join(['%s'] * len(databases))})", tuple(databases)


def _choose_key(
    unique: Mapping[str, Sequence[str]], primary: set[str], index_names: Callable[[], Sequence[str]]
) -> tuple[str, ...]:
    """Return the key's column names.

    :param unique: the columns of each unique index.
    :param primary: the columns that MySQL marks as primary.
    :param index_names: returns the names of the table's indexes in MySQL's order, in which prefixes come last.
    """
    if "PRIMARY" in unique:
        return tuple(unique["PRIMARY"])
    keys = {index: tuple(columns) for index, columns in unique.items() if {*columns} == primary}
    if len({*keys.values()}) > 1:
        return next((keys[name] for name in index_names() if name in keys), ())
    return next(iter(keys.values()), ())


def _index_names(query: QueryFunction, db: str, table: str) -> list[str]:
    """Return the names of a table's indexes in MySQL's order; no names if the table was dropped meanwhile."""
    try:
        rows = query(f"SHOW INDEX FROM {quote_name(db)}.{quote_name(table)}")
    except DefiniteServerError:
        return []
    return [str(row[2]) for row in rows]


_BYTE_LENGTHS = frozenset({"char", "varchar", "binary", "varbinary"})
_WITH_CHARSET = TEXTS | {"enum", "set"}
_GEOMETRIES = {*GEOMETRIES, "geomcollection"}
_ALL = NUMBERS | TEMPORALS | _WITH_CHARSET | BINARIES | {"bit", "year", "json", "vector"} | _GEOMETRIES


def _column(table: str, row: list[Any]) -> Column:
    name, kind, text, nullable, octets, precision, scale, fraction, charset, collation, extra, comment = row
    kind = kind.lower()
    if kind not in _ALL:
        raise UnsupportedError(f"column type {text} is not known", table=table, column=name)
    charset, collation = normalise(charset, collation) if kind in _WITH_CHARSET else (None, None)
    return Column(
        name=name,
        type="geometry" if kind in _GEOMETRIES else kind,
        nullable=nullable == "YES",
        unsigned=kind in NUMBERS and " unsigned" in text,
        precision=int(precision) if kind in ("decimal", "bit") else 0,
        scale=int(scale) if kind == "decimal" else int(fraction or 0) if kind in TEMPORALS else 0,
        length=int(octets or 0) if kind in _BYTE_LENGTHS else 0,
        charset=charset,
        collation=collation,
        members=_members(text) if kind in ("enum", "set") else (),
        visible="INVISIBLE" not in extra,
        generated="VIRTUAL GENERATED" in extra or "STORED GENERATED" in extra,
        detail=_detail(kind, text),
        comment=comment,
    )


def _detail(kind: str, text: str) -> str:
    if kind in _GEOMETRIES:
        return "geometrycollection" if kind == "geomcollection" else kind
    return text.removeprefix("vector(").removesuffix(")") if kind == "vector" else ""


_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "0": "\0"}


def _members(text: str) -> tuple[str, ...]:
    """Parse the values of ``enum('a','b''c')``; quotes are doubled, NUL, newline, return and backslash escaped."""
    return tuple(_ESCAPE.sub(_unescape, member) for member in _MEMBER.findall(text))


def _unescape(match: re.Match[str]) -> str:
    character = match.group(1)
    return "'" if character is None else _ESCAPES.get(character, character)
