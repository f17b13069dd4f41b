"""Debezium's scenarios whose point is what happens to the target, through whole pipelines; one of Materialize's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.testing import MySQLServer
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    return Runs(spark, mysql_server, mysql_db, tmp_path)


def test_26_schema_changes(runs: Runs) -> None:
    """A column comes, changes its type and goes, three times, beside a signal's chunks; then another one changes."""
    a = runs.table("a", 1000)
    runs.run("no_data")
    runs.signal("execute-snapshot", "a")
    steps = [
        statement
        for n in range(3)
        for statement in (
            "ALTER TABLE a ADD c INT",
            f"INSERT INTO a (id, v, c) VALUES ({2000 + 3 * n}, 1, 1)",
            "ALTER TABLE a MODIFY c VARCHAR(5)",
            f"INSERT INTO a (id, v, c) VALUES ({2001 + 3 * n}, 2, 'two')",
            "ALTER TABLE a DROP c",
            f"INSERT INTO a (id, v) VALUES ({2002 + 3 * n}, 3)",
        )
    ]
    steps += [
        "ALTER TABLE a MODIFY v VARCHAR(5)",
        "INSERT INTO a (id, v) VALUES (3000, 'word')",
        "DELETE FROM a WHERE id = 3",
    ]

    def meanwhile(number: int) -> None:
        runs.do(*(steps.pop(0) for _ in range(min(6, len(steps)))))

    runs.run(meanwhile=meanwhile)
    assert steps == [], "there were batches enough"
    while runs.run():
        pass
    assert len(runs.source(a)) == 1009
    assert runs.rows(a) == runs.source(a)


def test_27_rename_table(runs: Runs) -> None:
    """Midway another table gets the name, with a column more."""
    a = runs.table("a", 1000)
    runs.run("no_data")
    runs.signal("execute-snapshot", "a")

    def meanwhile(number: int) -> None:
        if number == 1:
            runs.do(
                "CREATE TABLE new_table LIKE a",
                "ALTER TABLE new_table ADD c VARCHAR(5) DEFAULT 'c'",
                "INSERT INTO new_table (id, v, n) SELECT * FROM a",
                "RENAME TABLE a TO old_table, new_table TO a",
                "UPDATE a SET v = 99 WHERE id > 990",
            )

    runs.run(meanwhile=meanwhile)
    while runs.run():
        pass
    assert runs.rows(a) == runs.source(a)
    assert runs.rows(a)[1000] == (99, None, "c")
    assert runs.rows(f"{runs.db}.old_table") == runs.source(f"{runs.db}.old_table")


def test_40_chunks_beside_inserts(runs: Runs) -> None:
    """Inserts into the table that is being read and into one that waits."""
    a, b = runs.table("a", 1000), runs.table("b", 300)

    def meanwhile(number: int) -> None:
        runs.do(f"INSERT INTO a VALUES ({5000 + number}, 0, 0)", f"INSERT INTO b VALUES ({5000 + number}, 0, 0)")

    first = runs.run(meanwhile=meanwhile)
    assert len(first) > 3
    assert sum(report.rows.get(a, 0) for report in first) == 1000
    runs.run()
    for table in (a, b):
        assert runs.state(table) == "live"
        assert runs.rows(table) == runs.source(table)


def test_materialize_39_an_alter_in_an_unfinished_snapshot_and_a_restart(runs: Runs) -> None:
    """Under ``strict`` the table stops and says why; the one beside it goes on."""
    a, b = runs.table("a", 1000), runs.table("b", 3)
    runs.more = f'[tables."{a}"]\nschema_changes = "strict"\n'
    runs.run(meanwhile=lambda _number: False)
    assert runs.state(a) == "snapshotting"
    runs.do("ALTER TABLE a MODIFY v BIGINT", "INSERT INTO b VALUES (4, 4, 4), (5, 5, 5)")
    runs.run()
    runs.run()
    assert runs.state(b) == "live"
    assert runs.rows(b) == runs.source(b)
    assert len(runs.rows(b)) == 5
    found = runs.reports[-1].tables[a] if runs.reports else None
    assert found is None or found.state == "stopped"
