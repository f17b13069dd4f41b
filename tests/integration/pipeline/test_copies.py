"""Whole pipelines against a real server: after each run the copy is what the source committed, and `verify` says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.compare import TableResult
from headgate.lake import Lake
from headgate.pipeline import Pipeline
from headgate_testing import MySQLServer
from tests.integration.databases import pipeline_config
from tests.integration.outside import lake_rows
from tests.integration.pipeline.verifying import newest, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]


class Copy:
    """A pipeline over one database, run up to now again and again."""

    def __init__(self, server: MySQLServer, spark: SparkSession, db: str, folder: Path, window: str = "rewind") -> None:
        self.server, self.spark, self.db = server, spark, db
        self.lake = Lake.at(folder / "lake")
        self.config = pipeline_config(server, [f"{db}.*"], folder, source=f'window = "{window}"')

    def run(self) -> None:
        Pipeline(self.config, self.spark).run(once=True)

    def rows(self, table: str) -> Rows:
        """What the copy holds, headgate's own columns left out."""
        return sorted(lake_rows(self.lake.current(f"{self.db}.{table}")).elements())

    def verify(self) -> dict[str, TableResult]:
        """The comparison behind ``headgate verify``, by table."""
        row, results = newest(self.lake), dict[str, TableResult]()
        for table in sorted(row.tables):
            name = table.removeprefix(f"{self.db}.")
            results[name] = verify(self.config, row, table)
        return results


@pytest.fixture(scope="module")
def seen(
    mysql_server: MySQLServer, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """What the copy held after each of three runs, by the run and the table; ``verify``: the comparison at the end.

    Before the first run four transactions are begun and left open. Before the second one the first and the third of
    those over three tables commit, and the other tables are changed; before the last run the others commit.
    """
    db = "copies_of_six"
    mysql_server.execute(
        f"CREATE DATABASE {db}",
        *[f"CREATE TABLE {db}.t{i} (id INT PRIMARY KEY, n INT)" for i in (1, 2, 3)],
        f"CREATE TABLE {db}.unseen (id INT PRIMARY KEY, v VARCHAR(10))",
        f"CREATE TABLE {db}.pairs (a INT, b INT)",
        f"CREATE TABLE {db}.moved (pk INT PRIMARY KEY, v VARCHAR(10))",
        f"INSERT INTO {db}.unseen VALUES (1, 'old'), (2, 'old'), (3, 'old')",
        f"INSERT INTO {db}.pairs VALUES (1, 1), (2, 2), (1, 1), (2, 2)",
        f"INSERT INTO {db}.moved VALUES (1, 'one'), (2, 'two'), (11, 'eleven')",
    )
    copy = Copy(mysql_server, spark, db, tmp_path_factory.mktemp("copies"))
    tables = ("t1", "t2", "t3", "unseen", "pairs", "moved")
    outcomes: dict[str, Any] = {}

    def run(name: str) -> None:
        copy.run()
        outcomes[name] = {table: copy.rows(table) for table in tables}

    writers = [mysql_server.connect(database=db) for _ in range(4)]
    try:
        cursors = [writer.cursor() for writer in writers]
        for cursor in cursors:
            cursor.execute("SET autocommit = 0")
        for step in range(10):
            for i in (1, 2, 3):
                rows = [(100 * i * step + n, i) for n in range(100 * i)]
                cursors[i - 1].executemany(f"INSERT INTO t{i} VALUES (%s, %s)", rows)
        cursors[3].execute("DELETE FROM unseen WHERE id < 3")
        cursors[3].execute("INSERT INTO unseen VALUES (1, 'new'), (4, 'new')")
        run("all open")
        writers[0].commit()
        writers[2].commit()
        mysql_server.execute(
            f"DELETE FROM {db}.pairs WHERE a = 1 LIMIT 1",
            f"UPDATE {db}.pairs SET b = 3 WHERE a = 2 LIMIT 1",
            f"INSERT INTO {db}.pairs VALUES (9, NULL), (9, NULL)",
            f"UPDATE {db}.moved SET pk = pk + 10 ORDER BY pk DESC",
        )
        run("two committed")
        writers[1].commit()
        writers[3].commit()
        cursors[3].execute("DELETE FROM unseen")
        cursors[3].execute("INSERT INTO unseen VALUES (7, 'undone')")
        writers[3].rollback()
        mysql_server.execute(f"DELETE FROM {db}.pairs WHERE a = 9 LIMIT 1")
        run("all committed")
        outcomes["verify"] = copy.verify()
        yield outcomes
    finally:
        for writer in writers:
            writer.close()
        mysql_server.execute(f"DROP DATABASE {db}")


def test_13_autocommit_off_delete_insert_unseen_until_commit(seen: dict[str, Any]) -> None:
    """And what is rolled back leaves no trace."""
    old = [(1, "old"), (2, "old"), (3, "old")]
    assert seen["all open"]["unseen"] == old
    assert seen["two committed"]["unseen"] == old
    assert seen["all committed"]["unseen"] == [(1, "new"), (3, "old"), (4, "new")]


def test_14_interleaved_transactions_over_three_tables(seen: dict[str, Any]) -> None:
    def counts(run: str) -> list[int]:
        return [len(seen[run][table]) for table in ("t1", "t2", "t3")]

    assert counts("all open") == [0, 0, 0]
    assert counts("two committed") == [1000, 0, 3000]
    assert counts("all committed") == [1000, 2000, 3000]


def test_15_keyless_multiset_with_limit_delete(seen: dict[str, Any]) -> None:
    assert seen["all open"]["pairs"] == [(1, 1), (1, 1), (2, 2), (2, 2)]
    assert sorted(seen["two committed"]["pairs"], key=str) == [(1, 1), (2, 2), (2, 3), (9, None), (9, None)]
    assert sorted(seen["all committed"]["pairs"], key=str) == [(1, 1), (2, 2), (2, 3), (9, None)]


def test_16_primary_key_changing_update(seen: dict[str, Any]) -> None:
    """`pk = pk + 10` over rows whose new keys are old keys of others."""
    assert seen["all open"]["moved"] == [(1, "one"), (2, "two"), (11, "eleven")]
    assert seen["two committed"]["moved"] == [(11, "one"), (12, "two"), (21, "eleven")]


def test_verify_finds_them_equal(seen: dict[str, Any]) -> None:
    results = {table: (result.state, result.equal, result.differences) for table, result in seen["verify"].items()}
    assert results == {
        "moved": ("live", 3, 0),
        "pairs": ("live", 4, 0),
        "t1": ("live", 1000, 0),
        "t2": ("live", 2000, 0),
        "t3": ("live", 3000, 0),
        "unseen": ("live", 3, 0),
    }


# --- keys of every kind

KEYS: dict[str, tuple[str, list[str]]] = {
    "tiny": ("TINYINT", ["-128", "-1", "0", "1", "126", "127"]),
    "big": ("BIGINT UNSIGNED", ["0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551614",
                                     "18446744073709551615"]),
    "decimals": ("DECIMAL(30,3)", ["-1e20", "-0.001", "0", "0.001", "1", "999999999999999999999999999.999"]),
    "floats": ("FLOAT", ["-1.5", "-0.5", "0", "0.25", "0.5", "1048576"]),
    "doubles": ("DOUBLE", ["-1e300", "-0.1", "0", "0.1", "0.2", "1e300"]),
    "dates": ("DATE", ["'1000-01-01'", "'1969-12-31'", "'1970-01-01'", "'2024-02-29'", "'2024-03-01'", "'9999-12-31'"]),
    "datetimes": ("DATETIME(6)", ["'1000-01-01'", "'1969-12-31 23:59:59.999999'", "'1970-01-01'",
                                  "'2024-03-31 02:30:00'", "'2024-03-31 02:30:00.000001'", "'9999-12-31 23:59:59'"]),
    "stamps": ("TIMESTAMP(3)", ["'1970-01-02'", "'2000-01-01'", "'2024-03-31 02:30:00'", "'2024-03-31 02:30:00.001'",
                                "'2024-10-27 02:30:00'", "'2038-01-19 03:14:07'"]),
    "times": ("TIME(2)", ["'-838:59:59'", "'-00:00:01'", "'00:00:00'", "'00:00:00.01'", "'10:00:00'", "'838:59:59'"]),
    "years": ("YEAR", ["1901", "1999", "2000", "2001", "2024", "2155"]),
    "members": ("ENUM('z','a','m','é','x y','')", ["'z'", "'a'", "'m'", "'é'", "'x y'", "''"]),
    "sets": ("SET('a','b','c')", ["''", "'a'", "'b'", "'a,b'", "'c'", "'a,c'"]),
    "bits": ("BIT(64)", ["b'0'", "b'1'", "b'10'", "0x7fffffffffffffff", "0x8000000000000000", "0xffffffffffffffff"]),
    "names": ("VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", ["''", "'a'", "'É'", "'z'", "'日本'", "'ß'"]),
    "cased": ("VARCHAR(20) COLLATE utf8mb4_bin", ["'a'", "'A'", "'é'", "'É'", "'b'", "'B'"]),
    "chars": ("CHAR(4) CHARACTER SET latin1", ["''", "'a'", "'ab'", "'é'", "'ÿ'", "'zz'"]),
    "binaries": ("BINARY(3)", ["0x000000", "0x610000", "0x000100", "0x00ff00", "0xffffff", "'abc'"]),
    "varbinaries": ("VARBINARY(5)", ["''", "0x00", "0x0000", "0xff", "'a'", "'A'"]),
}  # fmt: skip
"""Column type and six values, each a key of a table."""

REST = "v INT NOT NULL DEFAULT 7, note TEXT, data BLOB, at TIMESTAMP(3) NULL"


def write(run: Any, table: str, k: list[str]) -> None:
    """Rows change, a key changes to a free one, two rows swap their keys, a row goes and comes back."""
    run(f"UPDATE {table} SET v = v + 1, at = '2024-01-02 03:04:05.678'")
    run(f"UPDATE {table} SET k = {k[4]}, note = 'moved' WHERE k = {k[0]}")
    for old, new in ((k[1], k[5]), (k[2], k[1]), (k[5], k[2])):
        run(f"UPDATE {table} SET k = {new} WHERE k = {old}")
    run(f"DELETE FROM {table} WHERE k = {k[3]}")
    run(f"INSERT INTO {table} (k, note) VALUES ({k[3]}, 'again')")
    run(f"UPDATE {table} SET data = 'x' WHERE k = {k[3]}")
    run(f"UPDATE {table} SET k = {k[0]} WHERE k = {k[4]}")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_keys_of_every_kind(mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path) -> None:
    """Whole images and NOBLOB ones in one batch, MINIMAL ones in another: the copies of all tables are equal then."""
    cascades = mysql_server.logs_cascades  # else they are not in the log, and such tables are refused
    copy = Copy(mysql_server, spark, mysql_db, tmp_path)
    with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
        for table, (kind, k) in KEYS.items():
            cursor.execute(f"CREATE TABLE {table} (k {kind} PRIMARY KEY, {REST})")
            for i in range(4):
                cursor.execute(f"INSERT INTO {table} (k, v, note, data) VALUES ({k[i]}, {i}, 'note {i}', 'blob')")
        others = [
            f"CREATE TABLE composite (a VARCHAR(5), k INT, b BINARY(2), {REST}, PRIMARY KEY (b, k, a))",
            "INSERT INTO composite (a, k, b) VALUES ('é', 0, 1), ('é', 1, 1), ('é', 2, 1), ('é', 3, 1)",
            f"CREATE TABLE uniques (k INT NOT NULL, {REST}, UNIQUE (k))",
            "INSERT INTO uniques (k, note) VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd')",
            f"CREATE TABLE nullable (k INT, {REST}, UNIQUE (k))",
            "INSERT INTO nullable (k, note) VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd'), (NULL, 'e'), (NULL, 'e')",
            "CREATE TABLE audit (n INT, what TEXT, f FLOAT, j JSON)",
            """CREATE TRIGGER watch AFTER UPDATE ON tiny FOR EACH ROW
               INSERT INTO audit VALUES (NEW.v, IFNULL(NEW.note, 'none'), 0.1, '{"a": [1.5, null]}')""",
            "CREATE TABLE hidden (a INT, my_row_id INT INVISIBLE DEFAULT 5)",
            "INSERT INTO hidden (a) VALUES (1), (1), (2)",
        ]
        if cascades:
            others += [
                "CREATE TABLE parent (id INT PRIMARY KEY, v INT)",
                """CREATE TABLE child (id INT PRIMARY KEY, p INT,
                   FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE CASCADE ON DELETE CASCADE)""",
                "INSERT INTO parent VALUES (1, 1), (2, 2), (3, 3)",
                "INSERT INTO child VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
            ]
        for statement in others:
            cursor.execute(statement)
        connection.commit()
        copy.run()
        numbers = [str(i) for i in range(6)]
        for image in ("FULL", "NOBLOB", "MINIMAL"):
            cursor.execute(f"SET SESSION binlog_row_image = {image}")
            for table, (_, k) in KEYS.items():
                write(cursor.execute, table, k)
            write(lambda sql: cursor.execute(sql.replace("(k, note) VALUES (", "(a, b, k, note) VALUES ('é', 1, ")),
                  "composite", numbers)  # fmt: skip
            for table in ("uniques", "nullable"):
                write(cursor.execute, table, numbers)
            cursor.execute("UPDATE nullable SET note = 'one of two' WHERE k IS NULL LIMIT 1")
            cursor.execute("INSERT INTO hidden (a) VALUES (1), (3)")
            cursor.execute("DELETE FROM hidden WHERE a = 1 LIMIT 1")
            if cascades:
                cursor.execute("UPDATE parent SET id = id + 100 WHERE id % 100 = 1")
                cursor.execute("DELETE FROM parent WHERE id = 2")
            connection.commit()
            if image != "FULL":
                copy.run()
    results = copy.verify()
    assert [result for result in results.values() if result.state != "live" or result.differences] == []
    assert all(results[table].equal == 4 for table in (*KEYS, "composite", "uniques"))
    assert results["nullable"].equal == 6
    assert results["audit"].equal > 0
    if cascades:
        assert copy.rows("child") == [(10, 301), (11, 301), (30, 3)]
