"""Debezium's scenarios for tables that change while a signal has them read, by their numbers; one of Materialize's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.control import parse_signal, submit
from headgate_testing import MySQLServer
from tests.integration.streams import Stream, make_tables

ROWS = 60


@pytest.fixture
def stream(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Stream:
    """Tables ``a`` and ``b`` of 60 rows (pk = i + 1, aa = i), live."""
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS - 1}) SELECT i + 1, i"
    for table in ("a", "b"):
        place = f"`{mysql_db}`.{table}"
        mysql_server.execute(
            f"CREATE TABLE {place} (pk INT PRIMARY KEY, aa INT)", f"INSERT INTO {place} {numbers} FROM n"
        )
    made = Stream(mysql_server, mysql_db, tmp_path)
    made.finish()
    return made


def execute_snapshot(stream: Stream, table: str, **data: str) -> None:
    signal = {"type": "execute-snapshot", "data": {"data-collections": [f"{stream.db}\\.{table}"], **data}}
    submit(stream.inbox, parse_signal(signal))


def rows(stream: Stream, table: str) -> dict[int, dict[str, object]]:
    return {key: row for (key,), (_, row) in stream.copies[f"{stream.db}.{table}"].rows.items()}


def test_26_schema_changes(stream: Stream) -> None:
    """A column comes, changes its type and goes, three times; then another one changes its type."""
    execute_snapshot(stream, "a")
    for n in range(3):
        key = 2000 + 3 * n
        assert stream.batch("ALTER TABLE a ADD c INT", f"INSERT INTO a VALUES ({key}, 1, 1)")
        assert stream.batch("ALTER TABLE a MODIFY c VARCHAR(5)", f"INSERT INTO a VALUES ({key + 1}, 2, 'two')")
        assert stream.batch("ALTER TABLE a DROP c", f"INSERT INTO a VALUES ({key + 2}, 3)")
    assert stream.batch("ALTER TABLE a MODIFY aa VARCHAR(5)", "INSERT INTO a VALUES (3000, 'word')")
    assert stream.redone, "there were chunks whose table was altered while they were read"
    stream.finish()
    by_key = rows(stream, "a")
    assert len(by_key) == ROWS + 10
    assert (by_key[1], by_key[2001]) == ({"pk": 1, "aa": "0"}, {"pk": 2001, "aa": "2"})
    assert by_key[3000]["aa"] == "word"


def test_27_rename_table(stream: Stream) -> None:
    """Midway another table gets the name, with a column more."""
    execute_snapshot(stream, "a")
    assert stream.batch()
    assert stream.batch(
        "CREATE TABLE new_table LIKE a",
        "ALTER TABLE new_table ADD c VARCHAR(5) DEFAULT 'c'",
        "INSERT INTO new_table (pk, aa) SELECT * FROM a",
        "RENAME TABLE a TO old_table, new_table TO a",
        f"UPDATE a SET aa = 99 WHERE pk > {ROWS - 10}",
    )
    while stream.batch():
        pass
    states = {name.partition(".")[2]: state.state for name, state in stream.states.items()}
    assert states == {"a": "live", "b": "live", "old_table": "live", "new_table": "dropped"}
    by_key = rows(stream, "a")
    assert len(by_key) == ROWS
    assert {row["c"] for row in by_key.values()} == {"c"}
    assert [key for key, row in by_key.items() if row["aa"] == 99] == list(range(ROWS - 9, ROWS + 1))
    assert len(rows(stream, "old_table")) == ROWS


def test_40_inserts_beside_chunks(stream: Stream) -> None:
    """Into the table that is being read, and into one that waits for it."""
    for table in ("a", "b"):
        execute_snapshot(stream, table)
    number = 0
    while stream.batch(f"INSERT INTO a VALUES ({5000 + number}, 0)", f"INSERT INTO b VALUES ({5000 + number}, 0)"):
        number += 1
        if number == 20:
            break
    stream.finish()
    for table in ("a", "b"):
        assert len(rows(stream, table)) == ROWS + number


def test_materialize_39_an_alter_in_an_unfinished_snapshot_and_a_restart(stream: Stream) -> None:
    """Under ``strict`` the table stops and says why; the one beside it goes on."""
    table = f"{stream.db}.a"
    stream.strict.add(table)
    execute_snapshot(stream, "a")
    assert stream.batch()
    stream.restart()
    stream.do("ALTER TABLE a MODIFY aa BIGINT", "INSERT INTO b VALUES (500, 4), (501, 5)")
    assert stream.batch()
    while stream.batch():
        pass
    assert stream.states[table].state == "stopped"
    assert "ALTER may have changed rows" in str(stream.states[table].reason)
    assert stream.states[f"{stream.db}.b"].state == "live"
    assert len(rows(stream, "b")) == ROWS + 2


@pytest.mark.parametrize("cut", ["start", "batch"])
def test_changes_do_not_wait_for_a_table_that_is_dropped_before_its_turn(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, cut: str
) -> None:
    """The last one that live changes waited for, by ``snapshot_cut`` or a blocking signal."""
    make_tables(mysql_server, mysql_db)
    mysql_server.execute(f"CREATE TABLE `{mysql_db}`.third AS SELECT * FROM `{mysql_db}`.changes")
    mysql_server.execute(f"ALTER TABLE `{mysql_db}`.third ADD PRIMARY KEY (id)")
    stream = Stream(mysql_server, mysql_db, tmp_path, snapshot_cut=cut)
    if cut == "batch":
        stream.finish()
        execute_snapshot(stream, ".*", type="BLOCKING")
    while stream.batch() and any(read.has_ranges for read in stream.offset.snapshot.tables):
        pass
    (last,) = (read.table for read in stream.offset.snapshot.tables if read.is_queued)
    stream.do(f"DROP TABLE {last}", "INSERT INTO sibling VALUES (99, 'late')")
    while stream.batch():
        pass
    assert (99,) in stream.copies[f"{mysql_db}.sibling"].rows
    assert stream.states.pop(last).state == "dropped"
    assert {state.state for state in stream.states.values()} == {"live"}
