"""What real statements do to followed tables, whatever they look like in the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.catalog import AddedColumn
from headgate.names import in_utf8mb3, lower_name
from headgate.replication import Ddl, LogBlock
from headgate_testing import MySQLServer
from tests.integration.changes import Log

ODD_NAMES = [
    "a.b", "a b", "a`b", 'a"b', "--", "-- x", "#", ";", "/*", "*/", "таблица", "表", "x" * 64, "select", "TABLE",
    "Mixed", "mIXED", "\\", "'", "1", "%s", "$a", "_gho",
]  # fmt: skip


class Statements(Log):
    """What happened in the tables of one database since the last look."""

    def look(self) -> list[str]:
        """Statements in short, and images as ``op table``."""
        items, self.start = self.items(), self.executed()
        return [text for item in items for text in self._short(item)]

    def _short(self, item: Any) -> Iterator[str]:
        if isinstance(item, Ddl):
            new = f" -> {self._plain(item.new_name)}" if item.new_name else ""
            yield f"{item.action} {self._plain(f'{item.db}.{item.table}')}{new}"
        elif isinstance(item, LogBlock):
            for image in item.images:
                yield from (f"{op} {self._plain(image.table.full_name)}" for op in image.batch.column(0).to_pylist())

    def _plain(self, name: str) -> str:
        return name.removeprefix(f"{self.db}.")


@pytest.fixture
def log(mysql_server: MySQLServer, mysql_db: str) -> Statements:
    return Statements(mysql_server, mysql_db, create=False)


@pytest.fixture
def other(mysql_server: MySQLServer, mysql_db: str) -> Iterator[str]:
    name = f"{mysql_db}_other"
    mysql_server.execute(f"CREATE DATABASE `{name}`")
    yield name
    mysql_server.execute(f"DROP DATABASE IF EXISTS `{name}`")


def quoted(name: str, quote: str = "`") -> str:
    return quote + name.replace(quote, quote * 2) + quote


@pytest.mark.parametrize("ansi", [False, True])
def test_40_odd_names_in_every_statement(log: Statements, ansi: bool) -> None:
    expected = []
    with log.server.connect(database=log.db) as connection, connection.cursor() as cursor:
        if ansi:
            cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")
        for name in ODD_NAMES:
            table = quoted(name, '"' if ansi else "`")
            for statement in (
                f"CREATE TABLE {table} (id INT PRIMARY KEY)",
                f"INSERT INTO {table} VALUES (1)",
                f"ALTER TABLE/**/{table}/* DROP TABLE t */ADD a INT DEFAULT 1 -- , RENAME TO u",
                f"CREATE INDEX i ON {table} (a)",
                f"TRUNCATE {table}",
                f"RENAME TABLE {table} TO renamed, renamed TO {table}",
                f"DROP TABLE IF EXISTS {table}, nowhere",
            ):
                cursor.execute(statement)
            connection.commit()
            renames = [f"rename {name} -> renamed", f"rename renamed -> {name}"]
            seen = [
                f"create {name}",
                f"c {name}",
                f"alter {name}",
                f"alter {name}",
                f"t {name}",
                *renames,
                f"drop {name}",
            ]
            expected.append(seen)
    lines = [line for line in log.look() if line != "drop nowhere"]
    assert lines == [line for seen in expected for line in seen]


def test_34_which_tables_a_drop_drops(log: Statements, other: str) -> None:
    """Several at once, across schemas, with comments anywhere; names without a schema are those of the session's."""
    tables = [f"t{number}" for number in range(12)]
    for db in (log.db, other):
        log.do(*(f"CREATE TABLE {table} (id INT PRIMARY KEY)" for table in tables), db=db)
    log.look()
    log.do("DROP TABLE t0", "DROP TABLE IF EXISTS t1, t2", "DROP TABLES t3 CASCADE", "TRUNCATE t4", db=other)
    log.do("ALTER TABLE t4 RENAME TO t40, ADD a INT", "RENAME TABLE t5 TO t50", db=other)
    assert log.look() == []
    log.do("DROP TABLE /* t9, */ t0 -- , t8", "DROP/**/TABLE t1#, t8", "/* DROP TABLE t8 */ DROP TABLE /*!40000 t2*/")
    log.do(
        "DROP TABLE IF EXISTS t3, `t4` , nowhere RESTRICT", f"DROP TABLE {other}.t6, t5", "/*!50001 DROP */ TABLE t6"
    )
    lines = log.look()
    assert [line for line in lines if "nowhere" not in line] == [f"drop t{number}" for number in range(7)]
    log.do(f"DROP TABLE `{log.db}`.`t7`", f"DROP TABLE {log.db}.t8, {other}.t7", db=other)
    log.do(f"DROP DATABASE `{other}`")
    assert log.look() == ["drop t7", "drop t8"]
    log.do("CREATE TEMPORARY TABLE t9 (id INT)", "INSERT INTO t9 VALUES (1)", "DROP TEMPORARY TABLE t9")
    log.do("CREATE TEMPORARY TABLE t9 (id INT)", "DROP TABLE t9")
    assert log.look() == []
    log.do("DROP VIEW IF EXISTS t9", "CREATE VIEW v AS SELECT * FROM t9", "DROP VIEW v", "DROP TABLE t9, t10")
    assert log.look() == ["drop t9", "drop t10"]


def test_29_four_forms_of_create_table_select(log: Statements, other: str) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    log.look()
    for db in (other, log.db):
        log.do(
            f"CREATE TABLE m1 (PRIMARY KEY (id)) SELECT * FROM {log.db}.t",
            f"CREATE TABLE m2 TABLE {log.db}.t",
            "CREATE TABLE m3 VALUES ROW(1, 'a'), ROW(2, 'b')",
            f"CREATE TABLE m4 (PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 3 SELECT * FROM {log.db}.t",
            f"CREATE TABLE m5 LIKE {log.db}.t",
            f"CREATE TABLE IF NOT EXISTS m5 SELECT * FROM {log.db}.t",
            db=db,
        )
        log.do(f"INSERT INTO {log.db}.t SELECT id + 10, v FROM {log.db}.t WHERE id < 3", db=db)
        log.do("DELETE FROM t WHERE id > 10")
        lines = log.look()
        made = [line for line in lines if not line.endswith(" t")]
        assert [line for line in lines if line.endswith(" t")] == ["c t", "c t", "d t", "d t"]
        if db == other:
            assert made == []
    assert made == [line for m in ("m1", "m2", "m3", "m4") for line in (f"create {m}", f"c {m}", f"c {m}")] + [
        "create m5"
    ]


def test_executable_comments_are_what_the_server_ran(log: Statements, other: str) -> None:
    """A server makes plain comments of those that it does not run."""
    log.do("CREATE TABLE t (id INT PRIMARY KEY)", f"CREATE TABLE {other}.t LIKE t", "CREATE TABLE u (id INT)")
    log.look()
    log.do(
        "/*!80020 ALTER TABLE t ADD a INT */", "ALTER TABLE t /*!99999 RENAME TO v, */ /*!080021 ADD b INT */",
        "/*!99999 DROP TABLE t */ TRUNCATE /*!80022 TABLE */ t", "/*!80000 DROP TABLE /*!80001 IF EXISTS */ u",
        "ALTER TABLE t /*!99999 (* /* x */ *) DROP COLUMN a, */ COMMENT '/*!80023 '", f"USE {other}",
        "/*!80024 ALTER TABLE t ADD a INT */", "DROP /*!80025 TABLE */ /*!99999 IF EXISTS */ t",
    )  # fmt: skip
    assert log.look() == ["alter t", "alter t", "t t", "drop u", "alter t"]


def test_a_no_break_space_divides_words_of_a_latin1_session(log: Statements) -> None:
    """A session with UTF-8 has it as a letter."""
    log.do("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.look()
    statements = "TRUNCATE TABLE\u00a0t", "ALTER TABLE t\u00a0ADD a INT", "DROP\u00a0TABLE t --\u00a0, u"
    log.do(*statements, charset="latin1")
    log.do("CREATE TABLE a\u00a0b (id INT)")
    assert log.look() == ["t t", "alter t", "drop t", "create a\u00a0b"]


def test_an_engine_among_the_options_of_an_alter_may_drop_every_row(log: Statements) -> None:
    """Options need no comma between them."""
    log.do("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.mark()
    log.do("ALTER TABLE t COMMENT='x' ENGINE=InnoDB", "ALTER TABLE t COMMENT='x' ENGINE=BLACKHOLE")
    assert log.server.query(f"SELECT * FROM {log.db}.t") == []
    assert [item.changes for item in log.items() if isinstance(item, Ddl)] == [(), None]


def test_a_word_directly_behind_a_number_is_a_word(log: Statements) -> None:
    log.do("CREATE TABLE `1e5` (id INT PRIMARY KEY)", "INSERT INTO `1e5` VALUES (1)")
    log.mark()
    log.do(f"ALTER TABLE {log.db}.1e5 ADD c DECIMAL(5, 2) DEFAULT 1.5NOT NULL", f"DROP TABLE {log.db}.1e5")
    altered, dropped = log.items()[:2]
    assert altered.changes == (AddedColumn("c", nullable=False, default="1.5"),)
    assert (dropped.action, dropped.table) == ("drop", "1e5")


@pytest.mark.needs_own_server
def test_names_of_every_letter_where_the_server_has_them_in_lower_case() -> None:
    letters = [chr(code) for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000]
    differing = [one for one in letters if one != lower_name(one) or one != one.lower()]
    names = ["SİPARİŞ", "ΟΔΟΣ", "ẞ", "ᎣᏏᏲ", "K", "a😀"]
    names += ["".join(differing[start : start + 40]) for start in range(0, len(differing), 40)]
    with MySQLServer.start({"lower_case_table_names": 1}) as server:
        log = Statements(server, "shop")
        for name in names:
            stored = lower_name(in_utf8mb3(name))
            log.do(f"CREATE TABLE `{name}` (id INT PRIMARY KEY)", f"INSERT INTO `{name}` VALUES (1)")
            log.do(f"ALTER TABLE `{name}` ADD a INT", f"TRUNCATE `{name}`", f"DROP TABLE `{name}`")
            assert log.look() == [f"{one} {stored}" for one in ("create", "c", "alter", "t", "drop")]


@pytest.mark.needs_own_server
def test_names_in_any_case_where_the_server_has_them_in_lower_case() -> None:
    with MySQLServer.start({"lower_case_table_names": 1}) as server:
        log = Statements(server, "Shop")
        log.db = "shop"
        log.do("CREATE TABLE Orders (id INT PRIMARY KEY)", "INSERT INTO ORDERS VALUES (1)")
        log.do("ALTER TABLE oRDERS ADD a INT", "RENAME TABLE SHOP.orders TO Shop.OLD", "TRUNCATE Old", "DROP TABLE OLD")
        seen = ["create orders", "c orders", "alter orders", "rename orders -> old", "t old", "drop old"]
        assert log.look() == seen
