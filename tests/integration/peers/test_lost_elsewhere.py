"""Faults of other tools, made on a real server: docs/explanation/what-others-lose.md names them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.errors import HeadgateError, Transient
from headgate_testing import MySQLServer, Proxy, replica_pair, wait_until
from tests.integration.streams import ROWS, Stream, begin, make_tables

SOURCE = "aaaaaaaa-eb5b-11f1-814f-02fc00000001"
"""Whose transactions get the numbers that a test chooses."""


def values(stream: Stream, table: str = "changes") -> dict[int, str]:
    """The copy's column ``v`` by key."""
    return {key: row["v"] for (key,), (_, row) in stream.copies[f"{stream.db}.{table}"].rows.items()}


def read_again(stream: Stream) -> None:
    name = f"signals/again-{stream.offset.epoch}.json"
    stream.inbox.write(name, {"type": "resnapshot", "tables": [f"{stream.db}.changes"]})


@contextmanager
def beside(server: MySQLServer, db: str, statement: str) -> Iterator[threading.Thread]:
    """Run a statement in a session that waits for something."""

    def run() -> None:
        with server.connect(database=db, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


@pytest.mark.mysql(plugin="semisync_source")
@pytest.mark.needs_own_server
def test_a_change_is_in_the_log_before_a_select_shows_it(tmp_path: Path) -> None:
    """Semi-synchronous replication waits between the two, here until it is switched off."""
    with MySQLServer.start() as server:
        server.execute(
            "CREATE DATABASE d",
            "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
            "SET GLOBAL rpl_semi_sync_source_timeout = 600000",
        )
        stream = begin(server, "d", tmp_path)
        stream.finish()
        file, before = server.log_status()
        server.execute("SET GLOBAL rpl_semi_sync_source_enabled = ON")
        with beside(server, "d", "UPDATE changes SET v = 'late' WHERE id = 1"):
            try:
                wait_until(lambda: server.log_status()[1] > before)
                events = server.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {before}")
                assert "Update_rows" in {event[2] for event in events}, "a reader of the log has it"
                assert server.query("SELECT v FROM d.changes WHERE id = 1") == [("v1",)], "and a SELECT has not"
                read_again(stream)
                assert stream.batch()
                assert values(stream)[1] == "v1"
            finally:
                server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
        stream.finish()
        assert values(stream)[1] == "late"


def test_a_dump_is_restored_over_the_tables(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """The statements of ``mysqldump --set-gtid-purged=OFF``: new transactions that name rows which are there."""
    stream = begin(mysql_server, mysql_db, tmp_path)
    stream.finish()
    rows = ",".join(f"({number},'v{number}')" for number in range(1, ROWS + 1))
    stream.do("DELETE FROM changes WHERE id = 2", "UPDATE changes SET v = 'after' WHERE id = 3")
    stream.batch()
    stream.do(
        "DROP TABLE IF EXISTS `changes`",
        "CREATE TABLE `changes` (`id` int NOT NULL, `v` varchar(9) DEFAULT NULL, PRIMARY KEY (`id`)) ENGINE=InnoDB",
        "LOCK TABLES `changes` WRITE",
        "/*!40000 ALTER TABLE `changes` DISABLE KEYS */",
        f"INSERT INTO `changes` VALUES {rows}",
        "/*!40000 ALTER TABLE `changes` ENABLE KEYS */",
        "UNLOCK TABLES",
    )
    stream.finish()
    assert values(stream) == {number: f"v{number}" for number in range(1, ROWS + 1)}


@pytest.mark.needs_own_server
def test_transactions_fill_gaps_of_the_position(tmp_path: Path) -> None:
    """Also over restarts: a position is a set, so what it lacks is still to come, whatever its number."""
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d")
        stream = begin(server, "d", tmp_path)
        stream.finish()
        for numbers in ((1, 2, 5), (8,), (4, 7), (3, 6)):
            with server.connect(database="d", autocommit=True) as connection, connection.cursor() as cursor:
                for number in numbers:
                    cursor.execute(f"SET gtid_next = '{SOURCE}:{number}'")
                    cursor.execute(f"INSERT INTO changes VALUES ({100 + number}, 'hole')")
            stream.restart()
            assert stream.batch()
            assert {100 + number for number in numbers} <= values(stream).keys()
            read_again(stream)
            stream.finish()
        assert {number - 100 for number in values(stream) if number > 100} == set(range(1, 9))


@pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
def test_the_select_of_a_chunk_is_killed(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, what: str) -> None:
    """The batch fails and is repeated; it does not end the table's snapshot."""
    make_tables(mysql_server, mysql_db)
    stream = Stream(mysql_server, mysql_db, tmp_path)
    end = stream.planner.latest(stream.offset)
    errors: list[HeadgateError] = []

    def read() -> None:
        try:
            stream.batch(end=end)
        except HeadgateError as error:
            errors.append(error)

    waiting = (
        "SELECT processlist_id FROM performance_schema.threads"
        " WHERE processlist_state = 'Waiting for table metadata lock' AND processlist_info LIKE %s"
    )
    with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES changes WRITE, sibling WRITE")
        reader = threading.Thread(target=read)
        reader.start()
        try:
            waiter = wait_until(lambda: mysql_server.query(waiting, (f"SELECT%{mysql_db}%",)))
            mysql_server.execute(f"KILL {what} {waiter[0][0]}")
        finally:
            wait_until(lambda: bool(errors) or not reader.is_alive())
            cursor.execute("UNLOCK TABLES")
            reader.join()
    assert [isinstance(error, Transient) for error in errors] == [True]
    assert stream.copies == {}
    assert stream.batch(end=end)
    stream.finish()
    assert len(values(stream)) == len(values(stream, "sibling")) == ROWS


@pytest.mark.needs_own_server
def test_the_next_server_counts_its_files_from_one(tmp_path: Path) -> None:
    """After a promotion (a blue/green switch) the newest file has a smaller number than the one of the position."""
    with replica_pair() as (primary, replica), Proxy("127.0.0.1", primary.port) as proxy:
        primary.execute("CREATE DATABASE d", *["FLUSH BINARY LOGS"] * 9)
        make_tables(primary, "d")
        stream = Stream(primary, "d", tmp_path, url=proxy.url)
        stream.finish()
        stream.do("UPDATE changes SET v = 'one' WHERE id = 1")
        assert stream.batch()
        replica.wait_for(primary.gtid_executed)
        replica.execute("STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = OFF")
        assert replica.log_status()[0] < primary.log_status()[0]
        proxy.cut()
        proxy.aim(replica.host, replica.port)
        proxy.restore()
        stream.server = replica
        stream.restart()
        stream.do("UPDATE changes SET v = 'two' WHERE id = 1", "DELETE FROM changes WHERE id = 2")
        assert stream.batch(), "it does not take the smaller number for what it has already"
        assert values(stream)[1] == "two"
        stream.finish()


def test_partitions_are_removed_without_row_events(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.changes (id INT PRIMARY KEY, v VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0"
        " VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN (30))",
        f"INSERT INTO {mysql_db}.changes VALUES (1, 'a'), (11, 'b'), (21, 'c'), (22, 'd')",
        f"CREATE TABLE {mysql_db}.other (id INT PRIMARY KEY, v VARCHAR(9))",
        f"INSERT INTO {mysql_db}.other VALUES (25, 'e')",
    )
    stream = Stream(mysql_server, mysql_db, tmp_path)
    stream.finish()
    for statement, left in (
        ("ALTER TABLE changes EXCHANGE PARTITION p2 WITH TABLE other", {1: "a", 11: "b", 25: "e"}),
        ("ALTER TABLE changes TRUNCATE PARTITION p1", {1: "a", 25: "e"}),
        ("ALTER TABLE changes DROP PARTITION p0", {25: "e"}),
    ):
        stream.do(statement)
        assert stream.batch()
        assert stream.states[f"{mysql_db}.changes"].state == "stale", "until it was read again"
        stream.finish()
        assert values(stream) == left


def test_a_table_is_changed_by_triggers_and_a_rename(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """The statements of pt-online-schema-change, all in one batch."""
    make_tables(mysql_server, mysql_db)
    stream = Stream(mysql_server, mysql_db, tmp_path, tables=json.dumps([f"{mysql_db}.changes"]))
    stream.finish()
    name = f"pt_osc_{mysql_db}_changes"
    stream.do(
        "CREATE TABLE `_changes_new` LIKE `changes`",
        "ALTER TABLE `_changes_new` ADD COLUMN c INT NOT NULL DEFAULT 3",
        f"CREATE TRIGGER {name}_del AFTER DELETE ON changes FOR EACH ROW"
        " DELETE IGNORE FROM `_changes_new` WHERE `_changes_new`.id <=> OLD.id",
        f"CREATE TRIGGER {name}_upd AFTER UPDATE ON changes FOR EACH ROW"
        " REPLACE INTO `_changes_new` (id, v) VALUES (NEW.id, NEW.v)",
        f"CREATE TRIGGER {name}_ins AFTER INSERT ON changes FOR EACH ROW"
        " REPLACE INTO `_changes_new` (id, v) VALUES (NEW.id, NEW.v)",
        "UPDATE changes SET v = 'before' WHERE id = 9",
        "INSERT LOW_PRIORITY IGNORE INTO `_changes_new` (id, v) SELECT id, v FROM changes LOCK IN SHARE MODE",
        "DELETE FROM changes WHERE id = 2",
        "INSERT INTO changes VALUES (50, 'x')",
        "RENAME TABLE changes TO `_changes_old`, `_changes_new` TO changes",
        "DROP TABLE IF EXISTS `_changes_old`",
        "UPDATE changes SET c = 4 WHERE id = 1",
    )
    stream.finish()
    rows = {key: row for (key,), (_, row) in stream.copies[f"{mysql_db}.changes"].rows.items()}
    assert rows[1] == {"id": 1, "v": "v1", "c": 4}
    assert rows[9] == {"id": 9, "v": "before", "c": 3}
    assert rows.keys() == set(range(1, ROWS + 1)) - {2} | {50}
