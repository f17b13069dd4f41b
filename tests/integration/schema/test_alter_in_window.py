"""An ALTER while a chunk of a first reading is read: the chunk gives a marker, and later batches make up for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.control import parse_signal, submit
from headgate_testing import MySQLServer
from tests.integration.streams import Stream, begin, make_tables


@pytest.fixture
def stream(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Stream:
    return begin(mysql_server, mysql_db, tmp_path)


def test_without_an_alter_every_chunk_is_read_once(stream: Stream) -> None:
    stream.finish()
    assert not stream.redone


def test_an_added_column_reads_the_range_again_and_no_other(stream: Stream) -> None:
    begun = stream.since("changes")
    stream.batch("UPDATE changes SET v = 'x' WHERE id < 5", "ALTER TABLE changes ADD n INT DEFAULT 7 FIRST")
    assert [(name, whole) for name, _, whole in stream.redone] == [(f"{stream.db}.changes", False)]
    stream.do("INSERT INTO changes VALUES (0, 100, 'late')", "UPDATE changes SET n = 1 WHERE id = 9")
    stream.batch()
    assert stream.since("changes") == begun
    stream.finish()
    assert len(stream.redone) == 1


@pytest.mark.parametrize(
    "alter",
    [
        "ALTER TABLE changes MODIFY v CHAR(2)",
        "ALTER TABLE changes DROP PRIMARY KEY, ADD PRIMARY KEY (v)",
        "ALTER TABLE changes RENAME COLUMN v TO w",
    ],
)
def test_39_an_alter_during_an_unfinished_snapshot_reads_the_table_anew_and_its_sibling_goes_on(
    stream: Stream, alter: str
) -> None:
    begun = {table: stream.since(table) for table in ("changes", "sibling")}
    stream.batch("SET SESSION sql_mode = ''", "DELETE FROM changes WHERE id IN (1, 10, 11, 12)", alter)
    assert {name for name, _, _ in stream.redone} == {f"{stream.db}.changes"}
    while stream.progress("changes") is None or stream.since("changes") == begun["changes"]:
        assert stream.batch("INSERT INTO sibling VALUES (100, 'more') ON DUPLICATE KEY UPDATE v = 'again'")
    stream.finish()
    assert stream.copies[f"{stream.db}.sibling"].rows[(100,)][1]["id"] == 100


@pytest.mark.parametrize(
    "change",
    [
        ("ALTER TABLE changes DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",),
        ("ALTER TABLE changes MODIFY id DECIMAL(9,2)", "INSERT INTO changes VALUES (4.5, 'x')"),
        (
            "DROP TABLE changes",
            "CREATE TABLE changes (id BINARY(3) PRIMARY KEY, v INT)",
            "INSERT INTO changes VALUES ('a', 1)",
        ),
    ],
)
@pytest.mark.parametrize("append", ["true", "false"])
def test_another_key_between_the_chunks_of_a_table_begins_its_reading_anew(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, change: tuple[str, ...], append: str
) -> None:
    make_tables(mysql_server, mysql_db)
    stream = Stream(mysql_server, mysql_db, tmp_path, append=append)
    assert stream.batch()
    stream.do(*change)
    stream.restart()
    stream.finish()


def test_another_key_while_no_chunk_is_planned(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """Whether an image lies in a range that is yet to be read is asked of numbers only."""
    make_tables(mysql_server, mysql_db)
    stream = Stream(mysql_server, mysql_db, tmp_path, append="true")
    assert stream.batch()
    submit(stream.inbox, parse_signal({"type": "pause-snapshot"}))
    stream.do("ALTER TABLE changes MODIFY id VARCHAR(9)", "INSERT INTO changes VALUES ('seven', 'x')")
    assert stream.batch()
    assert stream.states[f"{stream.db}.changes"].state == "stale"
    submit(stream.inbox, parse_signal({"type": "resume-snapshot"}))
    stream.finish()


@pytest.mark.parametrize("drop", ["DROP INDEX k ON t", "ALTER TABLE t DROP INDEX k"])
def test_a_unique_key_that_comes_back_within_a_batch(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, drop: str
) -> None:
    """In between two rows had its value, so their images must not be taken for those of one row."""
    create = f"CREATE TABLE {mysql_db}.t (n INT NOT NULL, v VARCHAR(9), UNIQUE k (n))"
    mysql_server.execute(create, f"INSERT INTO {mysql_db}.t VALUES (1, 'old'), (2, 'other')")
    stream = Stream(mysql_server, mysql_db, tmp_path)
    stream.finish()
    stream.do(
        drop, "INSERT INTO t VALUES (1, 'new')", "DELETE FROM t WHERE v = 'old'", "CREATE UNIQUE INDEX k ON t (n)"
    )
    assert stream.batch()
    assert stream.states[f"{mysql_db}.t"].state == "stale"
    stream.finish()


@pytest.mark.parametrize("append", ["true", "false"])
def test_a_table_truncated_while_it_is_read_is_not_live_before_it_is_empty(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, append: str
) -> None:
    """At the batch's end it had its rows, and nothing tells what they were."""
    make_tables(mysql_server, mysql_db)
    stream = Stream(mysql_server, mysql_db, tmp_path, chunk_rows="100", append=append)
    assert stream.batch("TRUNCATE changes")
    states = {name: state.state for name, state in stream.states.items()}
    assert states == {f"{mysql_db}.changes": "snapshotting", f"{mysql_db}.sibling": "live"}
    stream.do("INSERT INTO changes VALUES (5, 'new')")
    stream.finish()
    assert list(stream.copies[f"{mysql_db}.changes"].rows) == [(5,)]


def test_create_if_not_exists_reads_no_range_again(stream: Stream) -> None:
    stream.batch("CREATE TABLE IF NOT EXISTS changes (x INT)", "UPDATE changes SET v = 'x' WHERE id < 5")
    stream.finish()
    assert not stream.redone


def test_a_database_that_is_dropped_and_made_again_while_its_tables_are_read(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    """The SELECT sees the new rows, and the log does not show that the old ones went."""
    make_tables(mysql_server, mysql_db)
    ((_, create),) = mysql_server.query(f"SHOW CREATE TABLE {mysql_db}.changes")
    table = f"{mysql_db}.changes"
    create = create.replace("CREATE TABLE `changes`", f"CREATE TABLE IF NOT EXISTS {table}")
    stream = Stream(mysql_server, mysql_db, tmp_path, chunk_rows="100")
    stream.batch(
        f"DROP DATABASE {mysql_db}", f"CREATE DATABASE {mysql_db}", create, f"INSERT INTO {table} (id) VALUES (5)"
    )
    assert stream.states[table].state != "live"
    assert any(not stream.batch() for _ in range(30))
    assert stream.states[table].state == "live"
    assert list(stream.copies[table].rows) == [(5,)]


@pytest.mark.parametrize(
    "change", ["DROP TABLE changes", "RENAME TABLE changes TO moved", "ALTER TABLE changes RENAME COLUMN id TO n"]
)
def test_a_table_that_changes_while_its_chunks_are_planned(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Between the query for its definition and the one for a chunk's bound, which then fails."""
    make_tables(mysql_server, mysql_db)
    stream, changes = Stream(mysql_server, mysql_db, tmp_path), [change]
    query = stream.view.query

    def racing(sql: str) -> list[tuple[Any, ...]]:
        if "`changes`" in sql and changes:
            stream.do(changes.pop())
        return query(sql)

    monkeypatch.setattr(stream.view, "query", racing)
    for _ in range(20):
        stream.batch()
    assert not changes
    live = {name.partition(".")[2] for name, state in stream.states.items() if state.state == "live"}
    assert live == {name for (name,) in mysql_server.query(f"SHOW TABLES FROM {mysql_db}")}
    for name in live:
        stream.assert_equal(f"{mysql_db}.{name}")


def test_debezium_37_an_alter_that_was_not_logged_is_found_and_the_table_read_again(stream: Stream) -> None:
    stream.finish()
    stream.do(
        "SET SESSION sql_log_bin = 0",
        "ALTER TABLE changes ADD n INT DEFAULT 7 AFTER id",
        "SET SESSION sql_log_bin = 1",
        "INSERT INTO changes VALUES (50, 5, 'x')",
    )
    stream.batch()
    assert stream.states[f"{stream.db}.changes"].state == "stale"
    stream.finish()


def test_debezium_28_a_default_that_changes_counts_from_then_on(stream: Stream) -> None:
    stream.finish()
    stream.do("ALTER TABLE changes ADD n INT DEFAULT 6", "INSERT INTO changes (id) VALUES (50)")
    stream.do("ALTER TABLE changes ALTER n SET DEFAULT 9", "INSERT INTO changes (id) VALUES (51)")
    stream.do("ALTER TABLE changes ALTER n SET DEFAULT NULL", "INSERT INTO changes (id) VALUES (52)")
    stream.finish()
    rows = stream.copies[f"{stream.db}.changes"].rows
    assert [rows[(key,)][1]["n"] for key in (1, 50, 51, 52)] == [6, 6, 9, None]
    assert not stream.redone


def test_debezium_38_keys_that_move_between_chunks(stream: Stream) -> None:
    """Out of a range that was read into one that was not, and back, while chunks are read."""
    moves = ("UPDATE changes SET id = 103 WHERE id = 2", "UPDATE changes SET id = 2 WHERE id = 11")
    while stream.batch("UPDATE sibling SET id = id + 20 WHERE id IN (1, 12)", *moves):
        moves = ("UPDATE changes SET id = 11 WHERE id = 103", "UPDATE changes SET id = 104 WHERE id = 3")
        if not any(read.has_ranges for read in stream.offset.snapshot.tables):
            break
    stream.finish()
    assert not stream.redone
