"""Random transactions on tables whose columns, keys and names change all the while.

Statements are made from ``information_schema``, so they fit whatever the earlier ones left. MySQL refuses some all the
same (a key that exists, a value that a narrower type cannot hold); these do nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pymysql

if TYPE_CHECKING:
    from headgate_testing import MySQLServer

__all__ = ["Column", "RandomWriter", "as_text"]

TYPES: Final = (
    "TINYINT", "SMALLINT UNSIGNED", "INT", "BIGINT", "BIGINT UNSIGNED", "DECIMAL(6,2)", "DECIMAL(20,4)", "DOUBLE",
    "VARCHAR(9)", "VARCHAR(30)", "CHAR(5)", "TEXT", "VARCHAR(9) CHARACTER SET latin1", "VARBINARY(6)", "BLOB", "DATE",
    "DATETIME(3)", "TIMESTAMP(6) NULL", "TIME(2)", "YEAR", "ENUM('a','b','c')", "SET('a','b','c')", "JSON", "BIT(9)",
)  # fmt: skip
NAMES: Final = "abcdef"
"""Few names, so that names come back."""
KEYS: Final = 40
"""So many values of key columns."""
WORDS: Final = ("", "x", "x ", "é", "日本", "it's", "A", "a", "y" * 9, "\\n")
BITS: Final = {"tinyint": 7, "smallint": 15, "mediumint": 23, "int": 31, "bigint": 63}
MOMENTS: Final = ("'2024-02-29 12:00:00.123456'", "'1999-12-31 23:59:59'")
BYTES: Final = ("x''", "x'00ff'", "'ab'")
VALUES: Final[Mapping[str, Sequence[str]]] = {
    "float": ("0.5", "-1.25"),
    "double": ("0.5", "-1.25", "1e10"),
    "varbinary": BYTES,
    "blob": BYTES,
    "date": ("'2024-02-29'", "'1000-01-01'"),
    "datetime": MOMENTS,
    "timestamp": MOMENTS,
    "time": ("'-838:59:59'", "'12:00:00.25'"),
    "year": ("1901", "2155"),
    "json": ("""'{"a": [1, 2.50, "x"]}'""", "'null'", "'[]'"),
}
"""SQL of values by the name of a type."""


@dataclass(frozen=True)
class Column:
    """A column as information_schema has it; its type in lower case."""

    name: str
    type: str
    is_nullable: bool
    is_generated: bool
    is_key: bool

    @property
    def sql(self) -> str:
        """SQL that gives its values as Arrow has them."""
        casts = {"time": "CAST({} AS CHAR)", "json": "CAST({} AS CHAR)", "bit": "{} + 0"}
        return casts.get(self.type.partition("(")[0], "{}").format(self.name)

    def values(self) -> Sequence[str]:
        """Values of its type, as SQL."""
        name = re.split(r"[ (]", self.type)[0]
        sizes = [int(size) for size in re.findall(r"\d+", self.type)]
        if name in BITS:
            is_unsigned = "unsigned" in self.type
            top = 2 ** (BITS[name] + is_unsigned) - 1
            return ("0", "1", str(top), str(0 if is_unsigned else -top - 1))
        if name == "decimal":
            whole, scale = sizes
            return ("0", f"{'9' * (whole - scale)}.{'3' * scale}", f"-0.{'5' * scale}")
        if name in ("enum", "set"):
            return [f"'{member}'" for member in re.findall("'([^']*)'", self.type)]
        if name == "bit":
            return ("0", "1", str(2 ** sizes[0] - 1))
        if "char" in name or "text" in name:
            return [quoted(word[: sizes[0]] if sizes else word) for word in WORDS]
        return VALUES[name]


def as_text(value: Any) -> str:
    """A cell as text, the same from Arrow and, with :attr:`Column.sql`, from PyMySQL."""
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None))
    return repr(bytes(value)) if isinstance(value, bytes | bytearray) else str(value)


def quoted(text: str) -> str:
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "''"))


@dataclass
class RandomWriter:
    """Sessions that change some tables of a database: their rows, columns, keys and names.

    :param tables: each has the columns ``id`` and, at first, ``v`` and ``n`` of small numbers.
    :param alters: how much of the transactions begin with a statement on columns, keys or names.
    """

    server: MySQLServer
    db: str
    chosen: Random
    tables: Sequence[str]
    alters: float = 0.3
    statements: list[str] = field(default_factory=list)
    """All that were executed, in order; those that MySQL refused are comments with its number."""
    created: dict[str, str] = field(default_factory=dict)
    """By table: the statement that made it first, and makes it again after a DROP."""

    def create(self, table: str, key: str = "id INT PRIMARY KEY") -> None:
        """Create a table and insert rows."""
        columns = ", ".join(f"{name} {self.chosen.choice(TYPES)}" for name in self.chosen.sample(NAMES, 3))
        self.created[table] = f"CREATE TABLE {table} ({key}, v INT, n INT, {columns})"
        with self.server.connect(database=self.db) as connection, connection.cursor() as session:
            self._execute(session, self.created[table])
            for _ in range(20):
                self._execute(session, self._insert(table))

    def write(self, transactions: int) -> None:
        """Commit so many transactions, or roll them back."""
        with self.server.connect(database=self.db, autocommit=False) as connection, connection.cursor() as session:
            for _ in range(transactions):
                table = self.chosen.choice(self.tables)
                if self.chosen.random() < self.alters:
                    self._execute(session, self._alter(table))
                for _ in range(self.chosen.choice((1, 1, 3, 6))):
                    self._execute(session, self._change(self.chosen.choice((table, table, *self.tables))))
                self._execute(session, "ROLLBACK" if self.chosen.random() < 0.1 else "COMMIT")

    def restore(self) -> None:
        """Create the tables again that were dropped."""
        with self.server.connect(database=self.db) as connection, connection.cursor() as session:
            for table in self.tables:
                if not self.columns(table):
                    self._execute(session, self.created[table])

    def _execute(self, session: Any, statement: str) -> None:
        try:
            session.execute(statement)
        except pymysql.MySQLError as error:
            statement = f"-- {error.args[0]} {statement}"
        self.statements.append(statement)

    def columns(self, table: str) -> list[Column]:
        """The columns of a table; none if it does not exist."""
        rows = self.server.query(
            "SELECT column_name, column_type, is_nullable, generation_expression, column_key"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (self.db, table),
        )
        return [
            Column(name, kind.lower(), nullable == "YES", bool(expression), key == "PRI")
            for name, kind, nullable, expression, key in rows
        ]

    def rows(self, table: str, columns: Collection[str], where: str = "TRUE") -> Counter[tuple[str, ...]]:
        """The rows of a table as text, each with how often it is there.

        :param columns: SQL expressions.
        """
        settings = {"database": self.db, "init_command": "SET time_zone = '+00:00'"}
        with self.server.connect(**settings) as connection, connection.cursor() as session:
            session.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}")
            return Counter(tuple(map(as_text, row)) for row in session.fetchall())

    # --- rows

    def _insert(self, table: str, verb: str = "") -> str:
        columns = [one for one in self.columns(table) if not one.is_generated]
        if len(columns) > 3 and self.chosen.random() < 0.2:  # its default, if it has one
            columns.remove(self.chosen.choice(columns[1:]))
        count = self.chosen.choice((1, 1, 4))
        rows = ", ".join(f"({', '.join(self._value(one) for one in columns)})" for _ in range(count))
        verb = verb or self.chosen.choice(("INSERT", "INSERT IGNORE", "REPLACE"))
        return f"{verb} INTO {table} ({', '.join(one.name for one in columns)}) VALUES {rows}"

    def _change(self, table: str) -> str:
        columns = [one for one in self.columns(table) if not one.is_generated]
        if not columns:
            return self.created[table]
        one, key, other = self.chosen.choice(columns), self.chosen.randrange(KEYS), self.chosen.randrange(KEYS)
        where = self.chosen.choice((f"id = {key}", f"id BETWEEN {key} AND {key + 6}", f"id % 5 = {key % 5}", "v < 3"))
        insert = self._insert(table)
        return self.chosen.choice(
            [
                insert,
                insert,
                f"{self._insert(table, 'INSERT')} ON DUPLICATE KEY UPDATE {one.name} = {self._value(one)}",
                f"UPDATE {table} SET {one.name} = {self._value(one)} WHERE {where}",
                f"UPDATE {table} SET v = (v + 3) % 10, n = IF(n = 7, NULL, 7) WHERE {where}",
                f"UPDATE IGNORE {table} SET id = {other} WHERE id = {key}",
                f"DELETE FROM {table} WHERE {where}",
                f"DELETE FROM {table} WHERE id = {key}",
            ]
        )

    def _value(self, column: Column) -> str:
        if column.name in ("id", "k"):
            return str(self.chosen.randrange(KEYS))
        if column.is_nullable and self.chosen.random() < 0.15:
            return "NULL"
        if column.name in ("v", "n"):
            return str(self.chosen.randrange(10))
        return self.chosen.choice(column.values())

    # --- columns, keys, names

    def _alter(self, table: str) -> str:
        columns = self.columns(table)
        changeable = [one for one in columns if one.name in NAMES]
        free = [name for name in NAMES if name not in {one.name for one in changeable}]
        if not columns:
            return self.created[table]
        kinds = [
            "upheaval",
            "none",
            *(["add"] * 4 if len(changeable) < 5 else []),
            *(["change"] * 6 if changeable and free else []),
        ]
        match self.chosen.choice(kinds):
            case "upheaval":
                return self._upheaval(table, columns)
            case "add":
                return self._add(table, self.chosen.choice(free), columns)
            case "change":
                return self._redefine(table, changeable, self.chosen.choice(free))
        charset = self.chosen.choice(("utf8mb4", "utf8mb4 COLLATE utf8mb4_bin"))
        some = ("COMMENT 'x'", "ENGINE=InnoDB", f"CONVERT TO CHARACTER SET {charset}", "ADD INDEX (v)")
        return f"ALTER TABLE {table} {self.chosen.choice(some)}"

    def _place(self, columns: Collection[Column]) -> str:
        return self.chosen.choice(("", "", " FIRST", f" AFTER {self.chosen.choice([*columns]).name}"))

    def _add(self, table: str, name: str, columns: Collection[Column]) -> str:
        definition = self.chosen.choice(
            [
                self.chosen.choice(TYPES),
                self.chosen.choice(TYPES),
                "INT NOT NULL DEFAULT 7",
                "VARCHAR(9) NOT NULL DEFAULT 'x y'",
                "DECIMAL(6,2) DEFAULT 1.5",
                "DATETIME(3) DEFAULT '2020-02-02 02:02:02.5'",
                "INT DEFAULT (1 + 1)",
                "INT AS (v * 2) VIRTUAL",
                "INT AS (v * 2) STORED",
                "INT DEFAULT 3 INVISIBLE",
                "TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
            ]
        )
        return f"ALTER TABLE {table} ADD {name} {definition}{self._place(columns)}"

    def _redefine(self, table: str, changeable: Sequence[Column], free: str) -> str:
        one, other = self.chosen.choice(changeable), self.chosen.choice(changeable)
        action = self.chosen.choice(
            [
                f"DROP COLUMN {one.name}",
                f"DROP {one.name}, ADD {one.name} {self.chosen.choice(TYPES)}",
                f"MODIFY {one.name} {self.chosen.choice(TYPES)}{self._place(changeable)}",
                f"MODIFY {one.name} {one.type} COMMENT 'moved' FIRST",
                f"ALTER COLUMN {one.name} SET DEFAULT NULL",
                f"RENAME COLUMN {one.name} TO {other.name}, RENAME COLUMN {other.name} TO {one.name}",
                f"RENAME COLUMN {one.name} TO {free}",
                f"CHANGE {one.name} {free} {one.type}",
                f"DROP COLUMN {one.name}, RENAME COLUMN {other.name} TO {free}",
            ]
        )
        return f"ALTER TABLE {table} {action}"

    def _upheaval(self, table: str, columns: Collection[Column]) -> str:
        """Another key, another table of the name, or no rows."""
        keys, other = [one.name for one in columns if one.is_key], self.chosen.choice(self.tables)
        alter = f"ALTER TABLE {table}"
        return self.chosen.choice(
            [
                f"TRUNCATE {table}",
                f"DROP TABLE {table}",
                f"RENAME TABLE {table} TO away, {other} TO {table}, away TO {other}",
                f"RENAME TABLE {table} TO away, away TO {table}",
                f"DROP INDEX uk ON {table}",
                f"CREATE UNIQUE INDEX uk ON {table} (id)",
                f"{alter} DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
                f"{alter} DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
                f"{alter} MODIFY id {self.chosen.choice(('BIGINT', 'INT', 'SMALLINT', 'DECIMAL(9,1)'))} NOT NULL",
                f"{alter} MODIFY v INT NOT NULL DEFAULT 4",
                f"{alter} RENAME COLUMN {keys[-1] if keys else 'v'} TO k",
                f"{alter} RENAME COLUMN v TO n, RENAME COLUMN n TO v",
            ]
        )
