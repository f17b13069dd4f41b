"""``binlog_row_metadata=MINIMAL``, the server's default: names come from information_schema, or not at all."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.errors import SchemaAmbiguousError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.replication import LogBlock, Stopped
from headgate_testing import MySQLServer
from tests.integration.changes import Log, plain
from tests.integration.outside import lake_dicts
from tests.integration.schema.test_catalog_parity import ALL_TYPES
from tests.integration.schema.test_schema_changes import Follower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.needs_own_server


@pytest.fixture(scope="module")
def mysql_server() -> Iterator[MySQLServer]:
    with MySQLServer.start({"binlog_row_metadata": "MINIMAL"}) as server:
        yield server


def test_every_type_has_the_definition_that_full_metadata_give(log: Log) -> None:
    log.do(f"CREATE TABLE t ({ALL_TYPES})")
    log.mark()
    log.do("INSERT INTO t (a, d) VALUES (1, 2)")
    minimal = [image for item in log.items() if isinstance(item, LogBlock) for image in item.images]
    log.do("SET GLOBAL binlog_row_metadata = FULL")
    log.mark()
    log.do("INSERT INTO t (a, d) VALUES (2, 2)", "SET GLOBAL binlog_row_metadata = MINIMAL")
    full = [image for item in log.items() if isinstance(item, LogBlock) for image in item.images]
    assert minimal[0].table == full[0].table
    assert minimal[0].table.fingerprint == full[0].table.fingerprint
    assert minimal[0].batch.schema == full[0].batch.schema


def test_metadata_switched_in_the_stream(log: Log) -> None:
    log.do("CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, e ENUM('x', 'y'))", "INSERT INTO t VALUES (1, 'x')")
    for number, kind in enumerate(("FULL", "MINIMAL", "FULL", "MINIMAL"), 2):
        log.do(f"SET GLOBAL binlog_row_metadata = {kind}", f"INSERT INTO t VALUES ({number}, 'y')")
    log.do("UPDATE t SET e = 'x' WHERE id = 2")
    assert [(row["_op"], row["id"], row["e"]) for row in log.rows()] == [
        ("c", 1, "x"), ("c", 2, "y"), ("c", 3, "y"), ("c", 4, "y"), ("c", 5, "y"), ("b", 2, "y"), ("u", 2, "x"),
    ]  # fmt: skip


def test_a_stream_that_keeps_up_follows_alters(log: Log) -> None:
    """Columns of one type in another order: the map's bytes never change, only the names behind them do."""
    log.do("CREATE TABLE t (id INT PRIMARY KEY, f1 INT, f2 INT)", "INSERT INTO t VALUES (1, 10, 20)")
    stream = log.following()
    assert stream.rows() == [{"_op": "c", "id": 1, "f1": 10, "f2": 20}]
    log.do("ALTER TABLE t RENAME COLUMN f1 TO f9, RENAME COLUMN f2 TO f1")
    log.do("ALTER TABLE t RENAME COLUMN f9 TO f2", "INSERT INTO t VALUES (2, 10, 20)")
    assert stream.rows() == [{"_op": "c", "id": 2, "f2": 10, "f1": 20}]
    log.do("ALTER TABLE t ADD COLUMN f0 INT FIRST, DROP COLUMN f1", "INSERT INTO t VALUES (7, 3, 30)")
    assert stream.rows() == [{"_op": "c", "f0": 7, "id": 3, "f2": 30}]
    log.do("RENAME TABLE t TO u", "CREATE TABLE t (x INT PRIMARY KEY, y INT, z INT)")
    log.do("INSERT INTO t VALUES (4, 5, 6)", "INSERT INTO u VALUES (8, 4, 40)")
    assert stream.rows() == [{"_op": "c", "x": 4, "y": 5, "z": 6}, {"_op": "c", "f0": 8, "id": 4, "f2": 40}]
    stream.close()


def test_change_f1_f3_f2_f1_f3_f2_same_types(log: Log) -> None:
    """The names are swapped before the log is read: nothing in the events tells, so the table is not decoded."""
    log.do(
        "CREATE TABLE t (id INT PRIMARY KEY, f1 INT, f2 INT, f3 INT)", "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1, 2, 3)",
        "ALTER TABLE t CHANGE f1 f3 INT, CHANGE f2 f1 INT, CHANGE f3 f2 INT",
        "INSERT INTO t VALUES (2, 1, 2, 3)", "INSERT INTO other VALUES (1)",
    )  # fmt: skip
    with pytest.raises(SchemaAmbiguousError, match="SET GLOBAL binlog_row_metadata = 'FULL'") as caught:
        log.rows()
    assert caught.value.table == f"{log.db}.t"
    assert "CHANGE f1 f3" in caught.value.message
    assert f"--resnapshot '{log.db}.t'" in caught.value.message
    items = log.items(ambiguous="stop")
    (stopped,) = [item for item in items if isinstance(item, Stopped)]
    assert (stopped.table, stopped.reason) == (f"{log.db}.t", caught.value.message)
    assert plain(items) == [{"_op": "c", "id": 2, "f3": 1, "f1": 2, "f2": 3}, {"_op": "c", "id": 1}]


def test_add_column_first_and_insert(log: Log) -> None:
    """What ALTER only adds can be taken away again, so the rows before it are told exactly, though read later."""
    log.do(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10)",
        "ALTER TABLE t ADD COLUMN z INT FIRST", "INSERT INTO t VALUES (5, 2, 20)",
        "ALTER TABLE t ADD COLUMN y VARCHAR(3) DEFAULT 'k' AFTER z, ADD INDEX (a)",
        "INSERT INTO t VALUES (6, 'q', 3, 30)",
    )  # fmt: skip
    assert log.rows() == [
        {"_op": "c", "id": 1, "a": 10},
        {"_op": "c", "z": 5, "id": 2, "a": 20},
        {"_op": "c", "z": 6, "y": "q", "id": 3, "a": 30},
    ]


def test_add_column_first_under_which_nothing_can_be_told(log: Log) -> None:
    log.do(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10)",
        "ALTER TABLE t ADD COLUMN z INT FIRST, DROP COLUMN a", "INSERT INTO t VALUES (20, 2)",
    )  # fmt: skip
    with pytest.raises(SchemaAmbiguousError, match="ADD COLUMN z INT FIRST, DROP COLUMN a"):
        log.rows()
    assert plain(log.items(ambiguous="stop")) == [{"_op": "c", "z": 20, "id": 2}]


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.do("ALTER TABLE t MODIFY e ENUM('y', 'x')"),
        lambda log: log.do("DROP TABLE t"),
        lambda log: log.do("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('x', 'y'))"),
        lambda log: log.do("RENAME TABLE t TO gone, u TO t"),
        lambda log: log.do("ALTER TABLE u RENAME TO v", "RENAME TABLE t TO u, v TO t"),
        lambda log: log.do("DROP TABLE u", "CREATE TABLE u LIKE t", "ALTER TABLE t RENAME x", "RENAME TABLE u TO t"),
        lambda log: log.do("SET sql_mode = 'ANSI_QUOTES'", f'ALTER TABLE "{log.db}"."t" /* " */ RENAME COLUMN e TO f'),
    ],
)  # fmt: skip
def test_what_makes_a_table_ambiguous(log: Log, change: Callable[[Log], None]) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('x', 'y'))", "CREATE TABLE u LIKE t")
    log.mark()
    log.do("INSERT INTO t VALUES (1, 'x')")
    change(log)
    with pytest.raises(SchemaAmbiguousError, match="later change of the table"):
        log.rows()


def test_columns_swapped_by_a_statement_with_the_table_in_capitals() -> None:
    with MySQLServer.start({"binlog_row_metadata": "MINIMAL", "lower_case_table_names": 1}) as server:
        log = Log(server, "shop")
        log.do("CREATE TABLE `SİPARİŞ` (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO `SİPARİŞ` VALUES (1, 10, 20)")
        log.do("ALTER TABLE `SİPARİŞ` RENAME COLUMN a TO b, RENAME COLUMN b TO a")
        with pytest.raises(SchemaAmbiguousError, match="RENAME COLUMN a TO b"):
            log.rows()


@pytest.mark.parametrize("keyed", [True, False])
def test_create_if_not_exists_changes_no_table_that_exists(log: Log, keyed: bool) -> None:
    """Programs do so when they start. The server logs it, also if it has no effect."""
    columns = "id INT PRIMARY KEY, v INT" if keyed else "id INT, v INT"
    log.do(f"CREATE TABLE t ({columns})")
    log.mark()
    log.do("INSERT INTO t VALUES (1, 2)", f"CREATE TABLE IF NOT EXISTS t ({columns})", "INSERT INTO t VALUES (3, 4)")
    assert [(row["id"], row["v"]) for row in log.rows()] == [(1, 2), (3, 4)]
    log.do("CREATE TABLE u (id INT PRIMARY KEY, v INT)", "INSERT INTO u VALUES (5, 6)", "DROP TABLE u")
    log.do("CREATE TABLE IF NOT EXISTS u (v INT PRIMARY KEY, id INT)")
    with pytest.raises(SchemaAmbiguousError, match="DROP TABLE"):
        log.rows()


def test_what_does_not(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE k (a INT NOT NULL, b INT NOT NULL, UNIQUE (b))")
    log.mark()
    log.do("INSERT INTO t VALUES (1, 2)", "INSERT INTO k VALUES (3, 4)", "TRUNCATE TABLE t", "TRUNCATE TABLE k")
    log.do("CREATE TABLE u LIKE t", "ALTER TABLE u RENAME COLUMN v TO w", "DROP TABLE u", "CREATE INDEX i ON t (v)")
    log.do("CREATE VIEW w AS SELECT * FROM t", "ANALYZE TABLE t", "FLUSH TABLES", "INSERT INTO t VALUES (5, 6)")
    rows = [row for row in log.rows() if row["_op"] == "c"]
    assert rows == [{"_op": "c", "id": 1, "v": 2}, {"_op": "c", "a": 3, "b": 4}, {"_op": "c", "id": 5, "v": 6}]


def test_an_alter_that_was_not_logged_is_seen_by_its_types(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE p (id INT PRIMARY KEY, v POINT)")
    log.do("INSERT INTO t VALUES (1, 2)", "INSERT INTO p VALUES (1, NULL)")
    log.do("SET sql_log_bin = 0", "ALTER TABLE t MODIFY v INT UNSIGNED", "ALTER TABLE p MODIFY v POLYGON")
    reasons = sorted(item.reason for item in log.items(ambiguous="stop") if isinstance(item, Stopped))
    assert "column 2 is geometry (point) in the log, geometry (polygon) in information_schema" in reasons[0]
    assert "column 2 is int in the log, int unsigned in information_schema" in reasons[1]


def test_an_account_that_may_not_see_the_table(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.do("CREATE USER IF NOT EXISTS reader", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    log.settings = ConnectionSettings.from_url(log.server.url.replace("root@", "reader@"))
    with pytest.raises(SchemaAmbiguousError, match="the account may not SELECT from it"):
        log.rows()
    log.do(f"GRANT SELECT ON {log.db}.* TO reader")
    assert log.rows() == [{"_op": "c", "id": 1}]


def test_members_that_information_schema_cannot_show(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a', '\U0001f600') CHARACTER SET utf8mb4)")
    log.do("CREATE TABLE u (id INT PRIMARY KEY, e ENUM('a', '?') CHARACTER SET latin1)")
    log.do("INSERT INTO t VALUES (1, 2)", "INSERT INTO u VALUES (1, 2)")
    items = log.items(ambiguous="stop")
    (stopped,) = [item for item in items if isinstance(item, Stopped)]
    assert "may show a member of column e with ?" in stopped.reason
    assert plain(items) == [{"_op": "c", "id": 1, "e": "?"}]


def test_tail_tells_rows_by_name_or_ends_with_the_remedy(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "CREATE TABLE u LIKE t")
    log.mark()
    log.do("INSERT INTO t VALUES (1, 2)")
    arguments = ["tail", log.server.url, "--from", str(log.start), "--until-current", "-t"]
    result = CliRunner().invoke(app, [*arguments, f"{log.db}.t"])
    assert (result.exit_code, json.loads(result.stdout)["after"]) == (0, {"id": 1, "a": 2})
    log.do("INSERT INTO u VALUES (3, 4)", "ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE u RENAME COLUMN a TO b")
    result = CliRunner().invoke(app, [*arguments, f"{log.db}.t"])
    first = json.loads(result.stdout.splitlines()[0])
    assert first["after"] == {"id": 1, "a": 2}, "this process has seen it when it could be proven"
    result = CliRunner().invoke(app, [*arguments, f"{log.db}.u"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert "SET GLOBAL binlog_row_metadata = 'FULL'" in result.stderr


def test_a_log_that_was_begun_anew(log: Log) -> None:
    """Equal places, GTIDs and table ids name other things after RESET, with a process that knows the old ones."""
    reset = log.server.reset_statement
    log.do(reset, "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    log.start = GtidSet()
    log.do("INSERT INTO t VALUES (1, 10, 20)", "INSERT INTO t VALUES (2, 10, 20)")
    assert log.rows()[1] == {"_op": "c", "id": 2, "a": 10, "b": 20}
    log.do("DROP TABLE t", "SET timestamp = 1234567890", reset)
    log.do("CREATE TABLE t (id INT PRIMARY KEY, b INT, a INT)", "INSERT INTO t VALUES (1, 20, 10)")
    log.do("INSERT INTO t VALUES (3, 20, 10)", "INSERT INTO t VALUES (4, 20, 10)")
    assert log.rows()[1] == {"_op": "c", "id": 3, "b": 20, "a": 10}


def test_a_chunk_is_turned_back(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 10, 20), (2, 11, 21)")
    before, rows = log.executed(), log.chunk("t")
    log.do("UPDATE t SET a = 5 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3, 0, 0)")
    assert log.chunk("t", before) == rows
    log.do("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    with pytest.raises(AssertionError, match="DDL while the chunk was read"):
        log.chunk("t", before)


class Target(Follower):
    """A pipeline of all the database's tables that is run up to now; each time a new one, from the checkpoint."""

    def reasons(self) -> dict[str, str]:
        """Why tables have their states."""
        return {name.partition(".")[2]: str(state.reason) for name, state in self.reports[-1].tables.items()}

    def rows(self, table: str) -> list[dict[str, Any]]:
        return sorted(lake_dicts(self.lake.current(f"{self.db}.{table}")), key=lambda row: row["id"])


def source(log: Log, table: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "_op"} for row in log.chunk(table)]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_35_tables_that_stop_stay_so_over_restarts_beside_those_that_go_on(
    spark: SparkSession, log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What an ALTER made ambiguous is read again with it; what nobody can name stops until it is, and what ``strict``
    stops waits for its user, also where the table was made again. Each run says so, and none of them loses anything.
    """
    log.do("CREATE TABLE swapped (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO swapped VALUES (1, 10, 20)")
    log.do("CREATE TABLE faces (id INT PRIMARY KEY, e ENUM('a', '\U0001f600') CHARACTER SET utf8mb4)")
    log.do("CREATE TABLE altered (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO altered VALUES (1, 'a')")
    log.do("CREATE TABLE remade (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO remade VALUES (1, 'a'), (2, 'b')")
    strict = (f'[tables."{log.db}.{name}"]\nschema_changes = "strict"' for name in ("altered", "remade"))
    target = Target(spark, log.server, log.db, tmp_path, more="\n".join(strict))
    assert set(target.run().values()) == {"live"}
    before = {table: target.rows(table) for table in ("faces", "altered", "remade")}
    log.do("INSERT INTO faces VALUES (2, 'a')", "INSERT INTO swapped VALUES (2, 10, 20)")
    log.do("ALTER TABLE swapped RENAME COLUMN a TO b, RENAME COLUMN b TO a", "INSERT INTO swapped VALUES (3, 20, 10)")
    log.do("ALTER TABLE altered MODIFY v CHAR(9)", "INSERT INTO altered VALUES (2, 'b')")
    log.do(
        "DROP TABLE remade",
        "CREATE TABLE remade (id INT PRIMARY KEY, v VARCHAR(9))",
        "INSERT INTO remade VALUES (3, 'c')",
    )
    states = target.run()
    reasons = {table: reason for table, reason in target.reasons().items() if table in before}
    expected = {"swapped": "live", "faces": "stopped", "altered": "stopped", "remade": "stopped"}
    assert states == expected
    assert target.rows("swapped") == source(log, "swapped")
    assert target.rows("swapped")[1] == {"id": 2, "b": 10, "a": 20}
    assert "SET GLOBAL binlog_row_metadata = 'FULL'" in reasons["faces"]

    log.do(
        "INSERT INTO faces VALUES (3, 2)", "INSERT INTO swapped VALUES (4, 1, 2)", "INSERT INTO remade VALUES (4, 'd')"
    )
    log.do("ALTER TABLE altered MODIFY v CHAR(8)", "DELETE FROM altered WHERE id = 1")
    caplog.clear()
    assert target.run() == expected
    assert target.reasons().items() >= reasons.items()
    warned = {record.getMessage() for record in caplog.records if record.levelno == logging.WARNING}
    messages = {text for text in warned if text.startswith(f"{log.db}.")}  # not what Spark had to try again
    assert messages == {f"{log.db}.{table} is stopped: {reason}" for table, reason in reasons.items()}
    assert {table: target.rows(table) for table in before} == before
    assert target.rows("swapped") == source(log, "swapped")

    log.do("SET GLOBAL binlog_row_metadata = FULL", "INSERT INTO faces VALUES (4, 2)")
    log.do("SET GLOBAL binlog_row_metadata = MINIMAL", "INSERT INTO swapped VALUES (5, 1, 2)")
    assert set(target.run(*before).values()) == {"live"}
    assert {table: target.rows(table) for table in expected} == {table: source(log, table) for table in expected}
    assert [row["id"] for row in target.rows("remade")] == [3, 4]
