"""Materialize's scenarios for tables that change while they are followed, by their numbers, one at a time.

The same changes through Spark into Delta, many in one batch: ``test_schema_changes.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate_testing import MySQLServer
from tests.integration.streams import Stream, begin


@pytest.fixture
def stream(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Stream:
    """Both tables are live."""
    stream = begin(mysql_server, mysql_db, tmp_path)
    stream.finish()
    return stream


def rows(stream: Stream, table: str = "changes") -> dict[Any, dict[str, Any]]:
    """The copy's rows by their key."""
    return {key: row for (key,), (_, row) in stream.copies[f"{stream.db}.{table}"].rows.items()}


def state(stream: Stream) -> str:
    return stream.states[f"{stream.db}.changes"].state


def test_30_add_a_column_last_and_drop_it(stream: Stream) -> None:
    stream.do("ALTER TABLE changes ADD n INT", "INSERT INTO changes VALUES (50, 'x', 5)")
    stream.batch()
    assert (state(stream), rows(stream)[50]["n"], rows(stream)[1]["n"]) == ("live", 5, None)
    stream.do("ALTER TABLE changes DROP n", "INSERT INTO changes VALUES (51, 'y')")
    stream.batch()
    assert (state(stream), rows(stream)[1]) == ("live", {"id": 1, "v": "v1"}), "nothing is read again"
    stream.finish()
    assert rows(stream)[50] == {"id": 50, "v": "x"}
    assert len(rows(stream, "sibling")) == 12


def test_31_add_a_column_first_and_insert(stream: Stream) -> None:
    stream.do("UPDATE changes SET v = 'u' WHERE id = 1", "ALTER TABLE changes ADD n INT DEFAULT 7 FIRST")
    stream.do("INSERT INTO changes VALUES (1, 50, 'x')")
    stream.batch()
    assert state(stream) == "live", "nothing is read again"
    assert (rows(stream)[1], rows(stream)[50]) == ({"n": 7, "id": 1, "v": "u"}, {"n": 1, "id": 50, "v": "x"})
    stream.finish()


def test_32_drop_a_column(stream: Stream) -> None:
    stream.do("INSERT INTO changes VALUES (50, 'x')", "ALTER TABLE changes DROP v", "INSERT INTO changes VALUES (51)")
    stream.batch()
    assert (state(stream), rows(stream)[1]) == ("live", {"id": 1}), "nothing is read again"
    stream.do("INSERT INTO sibling VALUES (50, 'goes on')")
    stream.finish()
    assert (rows(stream)[51], rows(stream, "sibling")[50]["v"]) == ({"id": 51}, "goes on")


def test_33_three_columns_swap_their_names(stream: Stream) -> None:
    stream.do("CREATE TABLE fs (id INT PRIMARY KEY, f1 INT, f2 INT, f3 INT)", "INSERT INTO fs VALUES (1, 1, 2, 3)")
    stream.finish()
    stream.do(
        "INSERT INTO fs VALUES (2, 1, 2, 3)",
        "ALTER TABLE fs CHANGE f1 f3 INT, CHANGE f2 f1 INT, CHANGE f3 f2 INT",
        "INSERT INTO fs (id, f1, f2, f3) VALUES (3, 1, 2, 3)",
    )
    stream.finish()
    assert rows(stream, "fs") == {
        1: {"id": 1, "f3": 1, "f1": 2, "f2": 3},
        2: {"id": 2, "f3": 1, "f1": 2, "f2": 3},
        3: {"id": 3, "f3": 3, "f1": 1, "f2": 2},
    }


def test_36_dropped_and_created_again_while_nobody_looks(stream: Stream) -> None:
    """The target holds what the new table has, and nothing of the old one."""
    stream.do("UPDATE changes SET v = 'last' WHERE id = 1", "DROP TABLE changes")
    stream.do("CREATE TABLE changes (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO changes VALUES (3, 'new')")
    stream.batch()
    assert state(stream) == "stale"
    stream.finish()
    assert rows(stream) == {3: {"id": 3, "v": "new"}}


@pytest.mark.parametrize("statement", ["TRUNCATE changes", "TRUNCATE TABLE changes"])
def test_37_truncate(stream: Stream, statement: str) -> None:
    stream.do("INSERT INTO changes VALUES (50, 'x')", statement)
    stream.batch()
    assert (state(stream), rows(stream)) == ("live", {})
    stream.do("INSERT INTO changes VALUES (1, 'a')", statement, "INSERT INTO changes VALUES (2, 'b')")
    stream.finish()
    assert rows(stream) == {2: {"id": 2, "v": "b"}}
    assert len(rows(stream, "sibling")) == 12


def test_38_enum_append_and_reorder(stream: Stream) -> None:
    stream.do("CREATE TABLE es (id INT PRIMARY KEY, e ENUM('a', 'b'))", "INSERT INTO es VALUES (1, 'a'), (2, 'b')")
    stream.finish()
    stream.do("ALTER TABLE es MODIFY e ENUM('a', 'b', 'c')", "INSERT INTO es VALUES (3, 'c')")
    stream.finish()
    assert [row["e"] for row in rows(stream, "es").values()] == ["a", "b", "c"]
    stream.do("INSERT INTO es VALUES (4, 'b')", "ALTER TABLE es MODIFY e ENUM('c', 'b', 'a')")
    stream.do("INSERT INTO es VALUES (5, 'c')", "UPDATE es SET e = 'a' WHERE id = 2")
    stream.finish()
    assert {key: row["e"] for key, row in rows(stream, "es").items()} == {1: "a", 2: "a", 3: "c", 4: "b", 5: "c"}
