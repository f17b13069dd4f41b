"""A pipeline beside sessions with partial row images (``binlog_row_image`` MINIMAL and NOBLOB), from the first chunk to
``verify``: what cannot be turned back is kept, brought up to date, and compared when it can be.
"""

from __future__ import annotations

import random
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.compare import TableResult, verify_table
from headgate.lake import Lake, LedgerRow, newest_row
from headgate.pipeline import Pipeline
from headgate_testing import MySQLServer
from tests.integration.beside import beside
from tests.integration.databases import Database, pipeline_config
from tests.integration.outside import lake_rows, logged
from tests.integration.pipeline.verifying import comparer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("id", "a", "b", "c", "n")
Row = tuple[Any, ...]


class Scene(Database):
    """A table ``t`` of 400 rows in eight chunks, its pipeline, and sessions that write it."""

    def __init__(self, server: MySQLServer, spark: SparkSession, db: str, folder: Path, mode: str) -> None:
        super().__init__(server, db)
        self.spark, self.table = spark, f"{db}.t"
        self.lake = Lake.at(folder / "lake")
        source = 'window = "keep"\nchunk_rows = 50'
        self.config = pipeline_config(server, [f"{db}.*"], folder, source=source, mode=mode)
        self.do(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, c VARCHAR(20) DEFAULT 'c', n INT NOT NULL DEFAULT 4)",
            "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
            " SELECT i * 2, i, REPEAT('b', i), 'x', i FROM n",
        )

    def do(self, *statements: str, image: str = "FULL", **session: Any) -> None:
        settings = f"SET SESSION cte_max_recursion_depth = 10000, binlog_row_image = '{image}'"
        super().do(settings, *statements, **session)

    def run(self) -> LedgerRow:
        Pipeline(self.config, self.spark).run(once=True)
        return newest_row(self.lake)

    def writers(self, number: int) -> AbstractContextManager[None]:
        """Sessions that write at random, each with another row image from statement to statement."""

        def write(choice: random.Random, stop: threading.Event) -> None:
            with self.server.connect(database=self.db, autocommit=True) as one, one.cursor() as cursor:
                while not stop.wait(0.003):  # some hundred changes a second, however long the run takes
                    cursor.execute(f"SET SESSION binlog_row_image = '{choice.choice(['MINIMAL', 'NOBLOB', 'FULL'])}'")
                    cursor.execute(_statement(choice))

        return beside(write, number)

    def source(self) -> list[Row]:
        return sorted(self.server.query(f"SELECT {', '.join(COLUMNS)} FROM {self.table}"))

    def current(self) -> list[Row]:
        return sorted(lake_rows(self.lake.current(self.table), COLUMNS).elements())

    def folded(self) -> list[Row]:
        """The state that the changelog's rows lead to, in their order."""
        rows: dict[int, dict[str, Any]] = {}
        for change in logged(self.lake.changelog(self.table)):
            row = {name: change[name] for name in COLUMNS}
            before = change["_before"] if change["_before"] is not None else row
            old = rows.pop(before["id"], None) if change["_op"] in ("u", "d") else None
            absent = change["_absent"] or ()
            if change["_op"] != "d" and (old is not None or not absent):
                rows[row["id"]] = {**(old or {}), **{name: row[name] for name in COLUMNS if name not in absent}}
        return sorted(tuple(row.values()) for row in rows.values())


def _statement(choice: random.Random) -> str:
    one, n = choice.randrange(900), choice.randrange(1000)
    return choice.choice(
        [
            f"INSERT IGNORE INTO t (id) VALUES ({one})", f"REPLACE INTO t (id, b) VALUES ({one}, 'r{n}')",
            f"UPDATE t SET a = {n} WHERE id = {one}", f"UPDATE t SET b = 'u{n}', n = {n} WHERE id = {one}",
            f"UPDATE t SET c = NULL WHERE id BETWEEN {one} AND {one + 4}", f"DELETE FROM t WHERE id = {one}",
            f"INSERT INTO t (id, a) VALUES ({one}, {n}) ON DUPLICATE KEY UPDATE a = a + {n}",
        ]
    )  # fmt: skip


@pytest.mark.long
def test_kept_rows_through_a_pipeline_beside_writers(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """A first snapshot and the changes after it; then keys that swap and move in partial images."""
    scene = Scene(mysql_server, spark, mysql_db, tmp_path, '["current", "changelog"]')
    with scene.writers(2):
        scene.run()
    scene.do(
        "UPDATE t SET id = 1001 WHERE id = 800", "UPDATE t SET id = 800 WHERE id = 798",
        "UPDATE t SET id = 798, a = -1 WHERE id = 1001", "REPLACE INTO t (id, a) VALUES (1003, 1)",
        "UPDATE t SET id = 1005 WHERE id = 1003", image="MINIMAL",
    )  # fmt: skip
    row = scene.run()
    assert row.tables[scene.table].state == "live"
    assert scene.current() == scene.source()
    assert scene.folded() == scene.source()


@pytest.mark.long
def test_verify_beside_partial_images(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Rows that changed since with partial images are compared at later moments, wherever their keys have gone; no
    difference is missed, none is made up, and what cannot be decided is said.

    What was done past the log (``sql_log_bin``) is what differs: columns of rows that rest, that change with each kind
    of image and that move, a row that is not there, one that nobody has heard of.
    """
    scene = Scene(mysql_server, spark, mysql_db, tmp_path, '"current"')
    first = scene.run()
    hidden = ["UPDATE t SET c = 'hidden' WHERE id IN (2, 8, 10, 20, 26)", "DELETE FROM t WHERE id = 14"]
    scene.do("SET SESSION sql_log_bin = 0", *hidden, "INSERT INTO t (id) VALUES (15)")
    scene.do(
        "UPDATE t SET a = a + 1 WHERE id IN (2, 4, 16)", "DELETE FROM t WHERE id IN (6, 26)",
        "UPDATE t SET id = 1001 WHERE id = 8", "UPDATE t SET id = 1003 WHERE id = 12", image="MINIMAL",
    )  # fmt: skip
    scene.do("UPDATE t SET b = 'new' WHERE id IN (10, 18)", image="NOBLOB")
    scene.do("UPDATE t SET a = a + 1 WHERE id = 20", "INSERT INTO t (id) VALUES (1005)")

    with comparer(scene.config) as one:
        result = verify_table(one, first, scene.table)
    assert differences(result) == {("different", 10), ("different", 20), ("only in target", 14), ("only in source", 15)}
    assert {key["id"] for key in result.undecided_keys} == {2, 4, 6, 8, 12, 16, 18, 26}
    assert (result.undecided, result.equal + result.undecided + 3) == (8, 400)
    assert {sample.key["id"]: sample.columns for sample in result.samples}[10] == {"c": ("hidden", "x")}

    rows: list[LedgerRow] = []

    def newer(row: LedgerRow) -> LedgerRow | None:
        """Row 16 never rests; the moved row 12 moves on once; then the table is altered."""
        assert row == ([first, *rows])[-1]
        if len(rows) == 2:
            scene.do("ALTER TABLE t ADD COLUMN z INT")
            return replace(row, epoch=row.epoch + 1, gtid=scene.server.gtid_executed)
        rows.append(scene.run())
        scene.do("UPDATE t SET a = a + 1 WHERE id = 16", image="MINIMAL")
        if len(rows) == 1:
            moves = "UPDATE t SET id = 1007, a = 7 WHERE id = 1003", "UPDATE t SET id = 12 WHERE id = 22"
            scene.do(*moves, image="MINIMAL")
        return rows[-1]

    with comparer(scene.config) as one:
        result = verify_table(one, first, scene.table, newer=newer)
    assert differences(result) == {
        ("different", 10), ("different", 20), ("only in target", 14), ("only in source", 15),
        ("different", 2), ("different", 1001),
    }  # fmt: skip
    assert (result.undecided, result.undecided_keys, result.later) == (1, ({"id": 16},), 7)
    assert result.later_gtid == rows[-1].gtid
    assert result.remark == "the table was altered meanwhile"


def differences(result: TableResult) -> set[tuple[str, int]]:
    assert len(result.samples) == result.differences
    return {(sample.kind, sample.key["id"]) for sample in result.samples}
