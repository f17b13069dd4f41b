"""``live`` in the ledger means exactly the source, beside writers, with every window, in each batch."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.compare import verify_table
from headgate.lake import Lake, LedgerRow, newest_row, read_as_of
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate_testing import MySQLServer
from tests.integration.beside import beside
from tests.integration.databases import Database, pipeline_config
from tests.integration.pipeline.verifying import comparer, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = ("rewind", "keep", "drop")
ROWS = 200


class Scene(Database):
    """A table for each window, and a pipeline that reads them in chunks of 100 rows."""

    def __init__(self, server: MySQLServer, spark: SparkSession, db: str, folder: Path) -> None:
        super().__init__(server, db)
        self.spark = spark
        self.lake = Lake.at(folder / "lake")
        names = [f"copied_{window}" for window in WINDOWS]
        tables = "\n".join(f'[tables."{db}.copied_{window}"]\nwindow = "{window}"' for window in WINDOWS)
        source = "chunk_rows = 100\npoll_ms = 20"
        self.config = pipeline_config(server, [f"{db}.*"], folder, source=source, more=tables)
        self.states: dict[str, list[str]] = {f"{db}.{name}": [] for name in names}
        for name in names:
            self.do(
                f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT)",
                f"INSERT INTO {name} WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})"
                " SELECT i * 2, i FROM n",
            )

    def run(self, resnapshot: list[str]) -> None:
        """One run; what the ledger said of each table after each batch is in ``states``."""
        for states in self.states.values():
            states.clear()

        def progress(report: BatchReport) -> None:
            for table, state in report.tables.items():
                self.states[table].append(state.state)

        Pipeline(self.config, self.spark).run(once=True, resnapshot=resnapshot, on_progress=progress)

    @contextmanager
    def writers(self, number: int, windows: Sequence[str] = WINDOWS) -> Iterator[None]:
        """Change the tables that are read with these windows."""

        def write(choice: random.Random, stop: threading.Event) -> None:
            with self.server.connect(database=self.db, autocommit=True) as one, one.cursor() as cursor:
                while not stop.wait(0.02):  # some changes while each chunk is read, and few in all
                    cursor.execute(_statement(choice, choice.choice(windows)))

        with beside(write, number):
            yield

    def check(self) -> int:
        """Compare all tables that the newest ledger row calls live; how many there were."""
        row = newest_row(self.lake)
        live = sorted(table for table, state in row.tables.items() if state.state == "live")
        assert sorted(read_as_of(self.spark, self.lake.path, batch=row.epoch)) == live
        with comparer(self.config) as compared:
            for table in live:
                result = verify_table(compared, row, table)
                assert not result.differences, (table, result)
                assert not result.undecided
        return len(live)


def _statement(choice: random.Random, window: str) -> str:
    name, one, n = f"copied_{window}", choice.randrange(2 * ROWS + 50), choice.randrange(1000)
    return choice.choice(
        [
            f"INSERT IGNORE INTO {name} VALUES ({one}, {n})", f"REPLACE INTO {name} VALUES ({one}, {n})",
            f"UPDATE {name} SET a = a + 1 WHERE id BETWEEN {one} AND {one + 20}",
            f"DELETE FROM {name} WHERE id = {one}",
            f"UPDATE IGNORE {name} SET id = {choice.randrange(2 * ROWS)} WHERE id = {one}",
        ]
    )  # fmt: skip


LONG = pytest.mark.timeout(9000)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=[pytest.mark.slow, LONG])])
def test_live_tables_equal_the_source_beside_writers(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path, rounds: int
) -> None:
    """The first run reads all tables, each round one of them again. A run that ends with what was there at its
    beginning ends with tables that can be read, although rows of the last chunks were as of later moments.
    """
    scene = Scene(mysql_server, spark, mysql_db, tmp_path)
    with scene.writers(2):
        scene.run([])
        assert scene.check() == len(WINDOWS)
    settled = dict.fromkeys(WINDOWS, 0)
    for number in range(rounds):
        window = ("keep", "drop")[number % 2]
        with scene.writers(2, [window]):
            scene.run([f"*.copied_{window}"])
            assert scene.check() == len(WINDOWS)
        for name in WINDOWS:
            settled[name] += "settling" in scene.states[f"{mysql_db}.copied_{name}"]
    assert settled["keep"] + settled["drop"] > rounds // 4, "rows are written while they are read"
    assert not settled["rewind"]


def test_a_table_is_not_live_in_the_batch_that_brings_its_last_rows(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Readers as of that batch, and ``verify``, leave it out; a run that is stopped about there is gone on with."""
    scene = Scene(mysql_server, spark, mysql_db, tmp_path)
    pipeline = Pipeline(scene.config, spark)
    rows: list[LedgerRow] = []

    def progress(report: BatchReport) -> None:
        if any(state.state == "settling" for state in report.tables.values()):
            rows.append(newest_row(scene.lake))
            assert rows[-1].epoch == report.epoch
            pipeline.stop()

    with scene.writers(2):
        pipeline.run(on_progress=progress)
        row = rows[0]
        settling = {table: state for table, state in row.tables.items() if state.state == "settling"}
        assert all(str(state.settles_at) in str(state.reason) for state in settling.values())
        assert not settling.keys() & read_as_of(spark, scene.lake.path, batch=row.epoch).keys()
        results = [verify(scene.config, row, table) for table in settling]
        assert [(result.state, result.equal) for result in results] == [("settling", 0)] * len(settling)
        scene.check()
        scene.run([])
        assert scene.check() == len(WINDOWS)
