"""Changes that sessions log as statements: never passed over where they changed a followed table; told in one error.

Whether a table was changed is told by its rows, before and after: the server's own list of databases is what is tested.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from typer.testing import CliRunner

from headgate.catalog import TablePatterns
from headgate.cli import app
from headgate.errors import UnsupportedError
from headgate.gtid import GtidSet
from headgate.mysql import Connection
from headgate.replication import Ddl, LogBlock, WindowReader, cut_in_order
from headgate_testing import MySQLServer
from tests.integration.changes import Log, plain
from tests.integration.relay.test_binlog_archive import keeping
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start({"local_infile": True}) as server:
        yield server


class World:
    """Databases whose tables, triggers, functions, views, procedures and foreign keys reach into one another."""

    def __init__(self, server: MySQLServer, db: str, databases: int = 5) -> None:
        self.server = server
        self.databases = [f"{db}_{letter}" for letter in "abcdefgh"[:databases]]
        self.log = Log(server, self.databases[0], create=False)
        self.settings = self.log.settings
        for name in self.databases:
            server.execute(
                f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)",
                f"CREATE TABLE {name}.u (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
                f"CREATE TABLE {name}.parent (id INT PRIMARY KEY)",
            )  # fmt: skip

    def drop(self) -> None:
        self.server.execute("SET foreign_key_checks = 0", *(f"DROP DATABASE {name}" for name in self.databases))
        self.server.execute("SET foreign_key_checks = 1")

    @contextlib.contextmanager
    def session(self, kind: str) -> Iterator[pymysql.cursors.Cursor]:
        """One that logs statements."""
        with (
            contextlib.closing(
                self.server.connect(database=self.databases[0], autocommit=True, local_infile=True)
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SET SESSION binlog_format = {kind}")
            yield cursor

    def contents(self) -> dict[str, Any]:
        """Of each database the rows of all its tables."""
        contents: dict[str, Any] = {}
        for name in self.databases:
            tables = [
                row[0]
                for row in self.server.query(
                    "SELECT TABLE_NAME FROM information_schema.TABLES"
                    f" WHERE TABLE_SCHEMA = '{name}' AND TABLE_TYPE = 'BASE TABLE'"
                )
            ]
            contents[name] = {table: self.server.query(f"SELECT * FROM {name}.{table}") for table in sorted(tables)}
        return contents

    def read(self, start: GtidSet, *patterns: str) -> list[Any]:
        return self.log.items(*patterns, start=start)

    def refused(self, start: GtidSet) -> set[str]:
        """The databases whose followers cannot go on from here."""
        refused = set()
        for name in self.databases:
            try:
                self.read(start, f"{name}.*")
            except UnsupportedError:
                refused.add(name)
        return refused

    def now(self) -> GtidSet:
        return GtidSet.parse(self.server.gtid_executed)


@pytest.fixture
def world(server: MySQLServer) -> Iterator[World]:
    world = World(server, f"w{next(_numbers)}")
    yield world
    world.drop()


def entangle(world: World, rng: random.Random) -> list[str]:
    """Makes functions, triggers, views, procedures and foreign keys; the functions."""
    server, databases = world.server, world.databases
    functions: list[str] = []

    def write(number: int) -> str:
        name = rng.choice(databases)
        return rng.choice(
            [
                f"INSERT INTO {name}.u (v) VALUES ({number})",
                f"UPDATE {name}.t SET v = v + 1",
                f"REPLACE INTO {name}.t VALUES ({number % 7}, {number})",
                f"DELETE FROM {name}.parent WHERE id = {number % 5}",
            ]
        )

    for number in range(6):
        deeper = f"{rng.choice(functions)}(x)" if functions and rng.random() < 0.6 else "x"
        body = f"IF x > {number} THEN {write(number)}; END IF; {write(number + 10)};" if number % 3 else ""
        functions.append(f"{rng.choice(databases)}.f{number}")
        server.execute(
            f"CREATE FUNCTION {functions[-1]}(x INT) RETURNS INT DETERMINISTIC BEGIN {body} RETURN {deeper} + 1; END"
        )
    for number in range(5):
        table = f"{databases[number]}.{rng.choice(('t', 'u'))}"
        moment = rng.choice(("BEFORE INSERT", "AFTER INSERT", "AFTER UPDATE", "BEFORE DELETE"))
        what = rng.choice([write(number + 20), f"SET @ignored = {rng.choice(functions)}({number})"])
        server.execute(f"CREATE TRIGGER {databases[number]}.tr{number} {moment} ON {table} FOR EACH ROW {what}")
    for number in range(3):
        parent, child = rng.sample(databases, 2)
        server.execute(
            f"INSERT INTO {parent}.parent VALUES ({number}), ({number + 10})",
            f"CREATE TABLE IF NOT EXISTS {child}.child (id INT PRIMARY KEY, p INT,"
            f" FOREIGN KEY (p) REFERENCES {parent}.parent (id) ON DELETE CASCADE ON UPDATE CASCADE)",
            f"INSERT IGNORE INTO {child}.child VALUES ({number}, {number}), ({number + 10}, {number + 10})",
        )
        where = rng.choice(databases)
        server.execute(
            f"CREATE VIEW {where}.v{number} AS SELECT id, v FROM {rng.choice(databases)}.t",
            f"CREATE VIEW {where}.w{number} AS SELECT {rng.choice(functions)}(id) AS k FROM {rng.choice(databases)}.t",
            f"CREATE PROCEDURE {where}.p{number}(x INT) BEGIN {write(number + 30)};"
            f" SET @y = {rng.choice(functions)}(x); {write(number + 40)}; END",
        )
    return functions


def statement(world: World, rng: random.Random, functions: list[str], number: int, file: Path) -> str:
    one, other = (rng.choice(world.databases) for _ in range(2))
    called = f"{rng.choice(functions)}({number})"
    view = rng.choice([str(row[0]) for row in world.server.query(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.VIEWS"
        f" WHERE TABLE_SCHEMA LIKE '{world.databases[0][:-1]}%' ORDER BY 1"
    )])  # fmt: skip
    procedure = rng.choice([str(row[0]) for row in world.server.query(
        "SELECT CONCAT(ROUTINE_SCHEMA, '.', ROUTINE_NAME) FROM information_schema.ROUTINES WHERE ROUTINE_TYPE ="
        f" 'PROCEDURE' AND ROUTINE_SCHEMA LIKE '{world.databases[0][:-1]}%' ORDER BY 1"
    )])  # fmt: skip
    return rng.choice(
        [
            f"INSERT INTO {one}.t VALUES ({number}, 1)",
            f"INSERT INTO {one}.u (v) VALUES ({number})",
            f"INSERT INTO {one}.t VALUES ({number}, {called})",
            f"INSERT INTO {one}.u (v) SELECT v FROM {other}.t",
            f"REPLACE INTO {one}.t SELECT id, v + 1 FROM {other}.u",
            f"UPDATE {one}.t SET v = {called}",
            f"UPDATE {one}.t JOIN {other}.u USING (id) SET {one}.t.v = 7, {other}.u.v = {number}",
            f"DELETE {one}.t FROM {one}.t JOIN {other}.t USING (id) WHERE {one}.t.id > 3",
            f"DELETE FROM {one}.parent WHERE id = {number % 11}",
            f"UPDATE {one}.parent SET id = id + 100 WHERE id < 3",
            f"SELECT {called}",
            f"SELECT COUNT({rng.choice(functions)}(id)) FROM {one}.t",
            f"SELECT * FROM {view}",
            f"INSERT INTO {view} (id, v) VALUES ({number}, 2)",
            f"DO {called}",
            f"SET @x = {called}",
            f"CALL {procedure}({number})",
            f"CREATE TABLE {one}.c{number} (PRIMARY KEY (id)) SELECT id FROM {other}.t",
            f"CREATE TEMPORARY TABLE {one}.temp{number} SELECT * FROM {other}.t",
            f"LOAD DATA INFILE '{file}' REPLACE INTO TABLE {one}.t",
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {one}.u (@x) SET v = @x",
            f"EXPLAIN ANALYZE SELECT {called}",
            f"WITH q AS (SELECT 5 AS k) UPDATE {one}.t, q SET v = k",
            f"SHOW TABLES WHERE {called} > 0",
        ]
    )


SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4)]


@pytest.mark.parametrize("seed", [1, 2, *SLOW])
def test_no_change_of_a_followed_table_is_passed_over(world: World, tmp_path: Path, seed: int) -> None:
    """Whatever triggers, functions, views, procedures and foreign keys do: who follows a database whose rows changed is
    told. Who follows one that was not even opened goes on.
    """
    rng = random.Random(seed)
    functions = entangle(world, rng)
    file = tmp_path / "rows.txt"
    file.write_text("1\t2\n2\t3\n8\t9\n")
    passed = changes = 0
    with world.session("STATEMENT") as cursor:
        for number in range(100, 170):
            before, start = world.contents(), world.now()
            text = statement(world, rng, functions, number, file)
            with contextlib.suppress(pymysql.MySQLError):
                cursor.execute(text)
                cursor.fetchall()
            after = world.contents()
            changed = {name for name in world.databases if after[name] != before[name]}
            if world.now() == start:
                assert not changed, text
                continue
            refused = world.refused(start)
            assert changed <= refused, text
            changes += len(changed)
            passed += len(world.databases) - len(refused)
    assert changes > 40
    assert passed > 40


@pytest.mark.parametrize("kind", ["STATEMENT", "MIXED"])
def test_plain_changes_elsewhere_are_passed_over(world: World, tmp_path: Path, kind: str) -> None:
    """By all readers, beside rows in the same transaction and after it."""
    here, there = world.databases[:2]
    file = tmp_path / "rows.txt"
    file.write_text("".join(f"{number}\t{'9' * 9}\n" for number in range(1000, 30_000)))  # more than a piece of a file
    world.server.execute(f"INSERT INTO {here}.t VALUES (1, 1)")
    start, begun = world.now(), world.server.log_status()[1]
    with world.session(kind) as cursor:
        for text in (
            "BEGIN", f"INSERT INTO {there}.t VALUES (1, 1)", f"UPDATE {there}.t SET v = 5", "SAVEPOINT a",
            f"DELETE FROM {there}.t", "COMMIT", f"LOAD DATA INFILE '{file}' INTO TABLE {there}.t",
            f"LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE {there}.t",
            f"CREATE TABLE {there}.copy SELECT * FROM {here}.t", f"CREATE TEMPORARY TABLE {there}.temp (id INT)",
            f"INSERT INTO {there}.temp VALUES (1)", f"DROP TEMPORARY TABLE {there}.temp",
            f"REPLACE INTO {there}.u (v) VALUES (3)",
        ):  # fmt: skip
            cursor.execute(text)
    events = {row[2] for row in binlog_events(world.server) if row[1] >= begun}
    loads = {"Begin_load_query", "Append_block", "Execute_load_query"}
    if kind == "STATEMENT":
        assert loads <= events
    else:
        assert "Write_rows" in events, "MIXED logs the rows of a LOAD DATA, and other changes as statements"
        assert not loads & events
    assert "Query" in events
    world.server.execute(f"INSERT INTO {here}.t VALUES (2, 2)", f"DELETE FROM {here}.t WHERE id = 1")
    end, expected = world.now(), [("c", 2), ("d", 1)]

    def operations(items: list[Any]) -> list[tuple[str, int]]:
        return [(row["_op"], row["id"]) for row in plain(items)]

    assert operations(world.read(start, f"{here}.*")) == expected
    with Connection.open(world.settings) as connection:
        place = connection.log_status()
    window = WindowReader(world.settings, start, server_uuid=None, tables=TablePatterns([f"{here}.t"]))
    assert operations(list(window.read_to(*place))) == expected
    world.log.start = start
    stream = world.log.following()
    assert operations(stream.items()) == expected
    stream.close()
    assert cut_in_order(world.settings, start, end, limit_rows=1) > start
    chunk = [(row["_op"], row["id"]) for row in world.log.chunk("t", start)]
    assert chunk == [("r", 1)], "the window from the set on is read over these changes"


def binlog_events(server: MySQLServer) -> list[tuple[Any, ...]]:
    """Of the newest file."""
    file, _ = server.log_status()
    return server.query(f"SHOW BINLOG EVENTS IN '{file}'")


@pytest.mark.parametrize("local", ["", "LOCAL "])
def test_load_data_into_a_followed_table_is_one_error(world: World, tmp_path: Path, local: str) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("1\t2\n2\t3\n")
    db, start = world.databases[0], world.now()
    with world.session("STATEMENT") as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        session = cursor.fetchall()[0][0]
        cursor.execute(f"LOAD DATA {local}INFILE '{file}' REPLACE INTO TABLE t FIELDS TERMINATED BY '\t'")
    with pytest.raises(UnsupportedError, match="a change as a statement instead of rows") as caught:
        world.read(start, f"{db}.*")
    error = caught.value
    assert f"(a change in database {db})" in error.message
    assert f"session {session} had binlog_format=STATEMENT or MIXED, default database {db}." in error.message
    assert "SET GLOBAL binlog_format = 'ROW'" in error.message
    assert error.gtid == str(world.now() - start)
    (event,) = [row for row in binlog_events(world.server) if (row[0], row[1]) == (error.file, error.pos)]
    assert event[2] == "Execute_load_query"
    assert error.statement.startswith(f"LOAD DATA {local}INFILE")
    assert "\n" not in str(error)


@pytest.mark.parametrize("kind", ["STATEMENT", "MIXED", "ROW"])
def test_statements_about_a_temporary_table_change_none_of_its_name(world: World, kind: str) -> None:
    db = world.databases[0]
    start = world.now()
    with world.session(kind) as session:
        session.execute("CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)")
        for statement in ("TRUNCATE t", "ALTER TABLE t ADD x INT", "CREATE INDEX i ON t (x)"):
            session.execute(statement)
        session.execute("ALTER TABLE t RENAME TO t2")
        session.execute("DROP TABLE t2")
        session.execute("CREATE TABLE made LIKE t")
        session.execute("TRUNCATE t")
    items = world.read(start, f"{db}.*")
    ddl = [f"{item.action} {item.table}" for item in items if isinstance(item, Ddl)]
    assert ddl == ["create made"]
    truncates = [image for item in items if isinstance(item, LogBlock) for image in item.images]
    assert [image.table.name for image in truncates] == ["t"], "the last one, of the table itself"


def test_statements_about_a_table_with_values_of_its_sessions_change_it(world: World) -> None:
    """Their events are flagged as those about temporary tables are."""
    db, start = world.databases[0], world.now()
    world.server.execute(
        f"ALTER TABLE {db}.t ADD by_session BIGINT DEFAULT (CONNECTION_ID())",
        f"TRUNCATE {db}.t",
        f"ALTER TABLE {db}.t ADD x INT",
        f"ALTER TABLE {db}.t RENAME TO {db}.moved",
        f"ALTER TABLE {db}.moved RENAME TO {db}.t",
    )
    items = world.read(start, f"{db}.*")
    ddl = [f"{item.action} {item.table}" for item in items if isinstance(item, Ddl)]
    assert ddl == ["alter t", "alter t", "rename t", "rename moved"]
    truncates = [image for item in items if isinstance(item, LogBlock) for image in item.images]
    assert [image.table.name for image in truncates] == ["t"]


def test_names_of_databases_where_the_server_has_them_in_lower_case(own_server: Callable[..., MySQLServer]) -> None:
    server = own_server(lower_case_table_names=1)
    server.execute("CREATE DATABASE Shop", "CREATE TABLE Shop.T (id INT PRIMARY KEY)", "CREATE DATABASE Logs")
    server.execute("CREATE TABLE LOGS.Lines (id INT PRIMARY KEY)")
    log = Log(server, "shop", create=False)
    with contextlib.closing(server.connect(autocommit=True)) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute("INSERT INTO LoGs.LINES VALUES (1)")
        middle = GtidSet.parse(server.gtid_executed)
        cursor.execute("INSERT INTO SHOP.t VALUES (1)")
    assert len(log.items(end=middle)) == 1
    with pytest.raises(UnsupportedError, match=r"\(a change in database shop\)"):
        log.items(start=middle)


@pytest.fixture
def own_server() -> Iterator[Callable[..., MySQLServer]]:
    with contextlib.ExitStack() as stack:
        yield lambda **flags: stack.enter_context(MySQLServer.start(flags))


def test_a_log_without_gtids(own_server: Callable[..., MySQLServer]) -> None:
    """There a transaction may be rolled back that changed a table without transactions, and is logged all the same."""
    server = own_server(gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute("CREATE DATABASE shop", "CREATE DATABASE logs", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    server.execute("CREATE TABLE logs.t (id INT PRIMARY KEY)", "CREATE TABLE logs.notes (id INT) ENGINE = MyISAM")
    server.execute("CREATE TRIGGER logs.note AFTER INSERT ON logs.t FOR EACH ROW INSERT INTO notes VALUES (NEW.id)")
    place = "{}:{}".format(*server.log_status())
    connection = server.connect(database="logs", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        for number, end in enumerate(("COMMIT", "ROLLBACK", "ROLLBACK TO a"), 1):
            for text in (
                "BEGIN", f"INSERT INTO t VALUES ({number})", "SAVEPOINT a", f"INSERT INTO t VALUES ({number + 10})",
                end, "COMMIT",
            ):  # fmt: skip
                cursor.execute(text)
    server.execute("INSERT INTO shop.t VALUES (1)")
    undone = {str(row[5]).rpartition("; ")[2] for row in binlog_events(server)}
    assert {"ROLLBACK", "ROLLBACK TO `a`"} <= undone
    arguments = ["tail", server.url, "--from", place, "--until-current", "-t"]
    result = CliRunner().invoke(app, [*arguments, "shop.*"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert [json.loads(line)["after"] for line in result.stdout.splitlines()] == [{"id": 1}]
    result = CliRunner().invoke(app, [*arguments, "logs.*"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert "a change in database logs" in result.stderr


def test_a_relay_keeps_a_log_with_statements_for_those_who_can_read_on(
    server: MySQLServer, world: World, tmp_path: Path
) -> None:
    here, there = world.databases[:2]
    start = world.now()
    with keeping(server, tmp_path) as kept:
        with world.session("STATEMENT") as cursor:
            cursor.execute(f"INSERT INTO {there}.t VALUES (1, 1)")
        server.execute(f"INSERT INTO {here}.t VALUES (7, 1)")
        kept.wait_for(server.gtid_executed)
        world.log.settings = replace(world.settings, log=kept.log)
        read = partial(world.log.rows, start=start, uuid=server.server_uuid)
        assert [row["id"] for row in read(f"{here}.*")] == [7]
        with pytest.raises(UnsupportedError, match="a change as a statement"):
            read(f"{there}.*")


@pytest.mark.timeout(600)
def test_a_pipeline_goes_on_beside_statements_elsewhere_and_names_those_that_it_cannot_follow(
    spark: SparkSession, server: MySQLServer, world: World, tmp_path: Path
) -> None:
    here, there = world.databases[:2]
    runs = Runs(spark, server, here, tmp_path)
    runs.do("INSERT INTO t VALUES (1, 1)")

    def meanwhile(batch: int) -> None:
        if batch == 1:
            with world.session("STATEMENT") as cursor:
                cursor.execute(f"INSERT INTO {there}.t VALUES (1, 1)")
            runs.do("INSERT INTO t VALUES (2, 2)")
        elif runs.reports[-1].tables[f"{here}.t"].images:
            with world.session("MIXED") as cursor:
                cursor.execute("INSERT INTO t VALUES (3, 3)")

    with pytest.raises(UnsupportedError, match="binlog_format=STATEMENT or MIXED") as caught:
        runs.run(once=False, meanwhile=meanwhile)
    assert "statement=INSERT INTO t VALUES (3, 3)" in str(caught.value)
    assert runs.rows(f"{here}.t") == {1: (1,), 2: (2,)}
