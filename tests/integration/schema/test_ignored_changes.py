"""``[schema_changes]`` with ``ignore``: the lake's tables stay as they are, and what they have from MySQL is exact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.lake import IgnoredChanges, newest_row
from tests.integration.outside import lake_dicts, lake_rows
from tests.integration.pipeline.verifying import newest, verify
from tests.integration.runs import killed_before_the_ledger
from tests.integration.schema.test_schema_changes import Follower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate_testing import MySQLServer

IGNORE = """
[schema_changes]
add_column = "ignore"
drop_column = "ignore"
rename_column = "ignore"
[tables."{db}.marked"]
deletes = "mark"
[tables."{db}.strict"]
schema_changes = "strict"
"""
ADDING = IGNORE.replace('add_column = "ignore"', 'add_column = "evolve"')
TABLES = ("plain", "marked", "strict", "keyless")


def writes(*columns: str, first: int) -> list[str]:
    """An INSERT, an UPDATE and a DELETE in each table, by its columns of now.

    :param first: of the ids of the two new rows.
    """
    names = ", ".join(("id", *columns))
    rows = ", ".join(f"({n}, {', '.join(repr(f'{one}{n}') for one in columns)})" for n in (first, first + 1))
    return [
        statement
        for table in TABLES
        for statement in (
            f"INSERT INTO {table} ({names}) VALUES {rows}",
            f"UPDATE {table} SET {columns[0]} = CONCAT({columns[0]}, '!') WHERE id IN (2, {first})",
            f"DELETE FROM {table} WHERE id = {first - 1}",
        )
    ]


def altered(statement: str) -> list[str]:
    return [f"ALTER TABLE {table} {statement}" for table in TABLES]


class Ignoring(Follower):
    """Tables of ``id, a, c`` that ignore what happens to their columns."""

    def assert_as(self, columns: Mapping[str, str], *tables: str) -> None:
        """The lake's columns have the values of MySQL's, and verify finds nothing else.

        :param columns: of the lake → an expression over MySQL's columns.
        """
        for table in tables or TABLES:
            added = ("_deleted",) if table == "marked" else ()
            where = "NOT _deleted" if added else "true"
            with self.server.connect(database=self.db) as connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT {', '.join(columns.values())} FROM {table}")
                expected = sorted(cursor.fetchall())
            folder = self.lake.current(f"{self.db}.{table}")
            names = {name for name in lake_dicts(folder)[0] if name not in added}
            assert names == {"id", "a", "c"}, table
            assert sorted(lake_rows(folder, list(columns), where=where).elements()) == expected, table
        row = newest(self.lake)
        for table in tables or TABLES:
            result = verify(self.config, row, f"{self.db}.{table}")
            assert (result.differences, result.undecided, result.remark) == (0, 0, None), table

    def ignored(self, table: str = "plain") -> IgnoredChanges:
        return newest_row(self.lake).tables[f"{self.db}.{table}"].ignored

    def rereads(self) -> list[str]:
        """Tables that were read again."""
        return sorted({row["table"] for row in lake_dicts(self.lake.schema_history) if row["outcome"] == "re-read"})


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_lakes_columns_stay_as_they_are(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Ignoring(spark, mysql_server, mysql_db, tmp_path, more=IGNORE, mode='["current", "changelog"]')
    live = dict.fromkeys(TABLES, "live")
    follower.do(*(f"CREATE TABLE {t} (id INT PRIMARY KEY, a VARCHAR(20), c VARCHAR(20))" for t in TABLES[:-1]))
    follower.do("CREATE TABLE keyless (id INT, a VARCHAR(20), c VARCHAR(20))")
    follower.do(*(f"INSERT INTO {table} VALUES (1, 'a1', 'c1'), (2, 'a2', 'c2')" for table in TABLES))
    assert follower.run() == live
    versions = {name: state.version for name, state in newest_row(follower.lake).tables.items()}

    # Added columns, of each kind, with rows before and after the statements in one batch.
    follower.do(*writes("a", "c", first=10), *altered("ADD n INT, ADD m VARCHAR(9) NOT NULL DEFAULT 'x'"))
    follower.do(*writes("a", "c", "m", first=20), *altered("ADD u VARCHAR(40) NOT NULL DEFAULT (CONCAT('y', id))"))
    follower.do(*writes("a", "c", "u", first=30))
    with killed_before_the_ledger(monkeypatch):
        follower.run()
    assert follower.run() == live, "the batch is applied again"
    follower.assert_as({"id": "id", "a": "a", "c": "c"})
    assert follower.ignored() == IgnoredChanges(dict.fromkeys("nmu"))

    # A renamed column, one of the ignored ones, and another one of the old name.
    follower.do(*writes("a", "c", first=40), *altered("RENAME COLUMN a TO b, RENAME COLUMN n TO k"))
    follower.do(*writes("b", "c", first=50))
    assert follower.run() == live
    follower.do(*altered("ADD a VARCHAR(20) DEFAULT 'other'"), *writes("b", "c", "a", first=60))
    follower.do(*(f"ALTER TABLE {table} DROP m, RENAME COLUMN b TO d" for table in TABLES), *writes("d", "c", first=70))
    with killed_before_the_ledger(monkeypatch):
        follower.run()
    assert follower.run() == live
    follower.assert_as({"id": "id", "a": "d", "c": "c"})
    assert follower.ignored() == IgnoredChanges({"d": "a", "k": None, "u": None, "a": None})
    assert follower.outcomes() == {table: {"ignored"} for table in TABLES}
    for name, state in newest_row(follower.lake).tables.items():
        assert (state.state, state.successor, state.version != versions[name]) == ("live", None, True)

    # A dropped column keeps its values in rows that do not change.
    follower.do(*altered("DROP c"))
    assert follower.run()["plain"] == "live"
    follower.do(*writes("d", first=80))
    assert follower.run() == live
    follower.assert_as({"id": "id", "a": "d"})
    kept = {row["id"]: row["c"] for row in lake_dicts(follower.lake.current(f"{mysql_db}.plain"))}
    assert (kept[1], kept[71], kept[2], kept[80]) == ("c1", "c71", None, None)
    assert follower.rereads() == ["keyless"], "its rows are identified by all columns"
    follower.do(*altered("ADD c VARCHAR(9) DEFAULT 'z'"), *writes("d", "c", first=90))
    assert follower.run() == live
    follower.assert_as({"id": "id", "a": "d"})
    changes = lake_dicts(follower.lake.changelog(f"{mysql_db}.plain"))
    assert {"a", "b", "c", "d", "k", "m", "n", "u"} < {*changes[0]}, "the changelog has every column"

    # A re-read keeps that, until the setting is another one.
    assert follower.run(*TABLES) == live
    follower.assert_as({"id": "id", "a": "d"})
    assert follower.ignored().names == {"d": "a", "k": None, "u": None, "a": None, "c": None}
    follower.configure(ADDING)
    follower.do(*writes("d", "a", first=100))
    assert follower.run() == live
    follower.assert_as({"id": "id", "a": "d"}, "plain")
    assert follower.run("plain")["plain"] == "live"
    follower.assert_equal("plain")
    assert follower.ignored() == IgnoredChanges(), "a is another column now, so it cannot show d any more"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_history_keeps_its_columns(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    follower = Ignoring(spark, mysql_server, mysql_db, tmp_path, more=IGNORE.partition("[tables")[0], mode='"history"')
    follower.do("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), c VARCHAR(20))")
    follower.do("INSERT INTO t VALUES (1, 'a1', 'c1'), (2, 'a2', 'c2')")
    assert follower.run() == {"t": "live"}
    follower.do("ALTER TABLE t ADD n VARCHAR(9) DEFAULT (CONCAT('n', id)), RENAME COLUMN a TO b, DROP c")
    follower.do("UPDATE t SET b = 'b2', n = 'x' WHERE id = 2", "INSERT INTO t VALUES (3, 'b3', 'y')")
    assert follower.run() == {"t": "live"}
    assert follower.run("t") == {"t": "live"}
    folder, columns = follower.lake.current(f"{mysql_db}.t"), ["id", "a", "c"]
    open_rows = [*lake_rows(folder, columns, where="_valid_to IS NULL").elements()]
    assert sorted(open_rows) == [(1, "a1", "c1"), (2, "b2", None), (3, "b3", None)]
    assert [*lake_rows(folder, columns, where="_valid_to IS NOT NULL").elements()] == [(2, "a2", "c2")]
    assert "n" not in lake_dicts(folder)[0]
    result = verify(follower.config, newest(follower.lake), f"{mysql_db}.t")
    assert (result.equal, result.differences) == (3, 0)
    assert follower.outcomes() == {"t": {"ignored"}}
