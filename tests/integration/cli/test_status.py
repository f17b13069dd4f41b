"""The status file of a real run: what it says while a batch is written, at the end, and after a failure; and what the
next run knows by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.carrier import ControlFolder
from headgate.config import parse_config
from headgate.errors import ConfigError
from headgate.lake import Lake, newest_row
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate.status import Activity, Status, activity_text, read_status
from headgate_testing import MySQLServer, Proxy
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_status_of_a_run(mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path) -> None:
    table = f"{mysql_db}.orders"
    mysql_server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, qty INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)"
    )
    text = (
        f'name = "watched"\n[source]\nurl = "{mysql_server.url}"\ntables = ["{mysql_db}.*"]\n'
        f'[target]\npath = "{tmp_path / "lake"}"\n'
    )
    lake = Lake.at(str(tmp_path / "lake"))
    inbox = ControlFolder(lake.inbox)

    def read() -> Status:
        current = read_status(inbox)
        assert current is not None
        return current

    seen: list[Status] = []

    def look(report: BatchReport) -> None:
        status = read()
        assert (status.batch and status.batch.epoch) == report.epoch
        seen.append(status)

    Pipeline(parse_config(text), spark).run(once=True, on_progress=look)

    status = read()
    row = newest_row(lake)
    assert all(one.is_alive(one.updated_us) and one.state == "running" for one in seen)
    assert (status.condition(), status.error, status.pipeline) == ("stopped", None, "watched")
    assert status.batch is not None
    assert (status.batch.epoch, status.batch.gtid) == (row.epoch, row.gtid)
    assert (status.tables[table].state, status.tables[table].version) == ("live", row.tables[table].version)
    assert status.tables[table].rows == sum(one.rows for one in status.recent) == 3
    assert status.recent[0].epoch == row.epoch
    assert status.batches == len(status.recent) == len(seen) > 0

    with pytest.raises(ConfigError):
        Pipeline(parse_config(text.replace(".*", ".nothing")), spark).run(once=True)
    status = read()
    assert status.condition() == "failed"
    assert status.error is not None
    assert "there is no table" in status.error
    assert status.recent


class Large:
    """A run that reads a large table over a slow line, until the status file has said what a test waits for."""

    rows = 150_000

    def __init__(self, spark: SparkSession, server: MySQLServer, db: str, folder: Path) -> None:
        self.runs, self.server, self.folder = Runs(spark, server, db, folder), server, folder
        self.table = f"{db}.large"
        self.seen: list[Status] = []
        self.status_file: dict[str, Any] = {}
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {self.rows})"
        server.execute(
            f"CREATE TABLE {self.table} (id INT PRIMARY KEY, pad CHAR(100))",
            f"SET SESSION cte_max_recursion_depth = {self.rows}",
            f"INSERT INTO {self.table} {numbers} SELECT i, REPEAT('x', 100) FROM n",
            f"ANALYZE TABLE {self.table}",
        )

    def run(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        """Until its end; ``status_file`` is the file when it was ``enough``, before the first batch is done."""
        with Proxy(self.server.host, self.server.port) as proxy:
            proxy.limit(400_000)

            def tell(status: Status) -> None:
                self.seen.append(status)
                file = {} if self.status_file or status.batches else self.runs.inbox.read("status.json") or {}
                if (file.get("activity") or {}).get("phase") == "reading" and enough(file["activity"]):
                    self.status_file = file
                    proxy.restore()

            text = (
                f'name = "large"\n[source]\nurl = "mysql://{self.server.user}@{proxy.host}:{proxy.port}"\n'
                f'password_file = "{self.folder / "secret"}"\nchunk_rows = 50000\ntables = ["{self.runs.db}.*"]\n'
                f'[target]\npath = "{self.runs.lake.path}"\n'
            )
            Pipeline(parse_config(text), self.runs.spark).run(once=True, on_status=tell)

    def first(self) -> list[tuple[str, Activity]]:
        """State and activity before the first batch was done."""
        return [(one.state, one.activity) for one in self.seen if one.activity is not None and not one.batches]


@pytest.fixture
def large(mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path) -> Large:
    return Large(spark, mysql_server, mysql_db, tmp_path)


def test_the_reading_of_a_large_table_is_seen_while_it_is_read(large: Large) -> None:
    large.run(lambda doing: bool(doing["tasks"]))
    file, table = large.status_file, large.table
    doing = file["activity"]
    assert (file["state"], file["batches"], doing["phase"], doing["batch_id"]) == ("running", 0, "reading", 0)
    part = doing["tables"][table]
    assert (part["first"], part["last"], part["chunks_estimate"]) == (1, 3, 4)
    assert 0 < doing["rows_estimate"] == part["rows_estimate"] <= 100_000
    assert 0 <= doing["tasks_done"] < doing["tasks"] == 2
    assert (doing["rows"], doing["changes"]) == (None, None), "they are known when it is read"
    assert file["lag"] == {"seconds": None, "transactions": None}, "nobody knows yet"
    phases = [doing.phase for _, doing in large.first()]
    assert phases[0] == "starting"
    long = [phase for phase in dict.fromkeys(phases) if phase in ("planning", "reading")]
    assert long == ["planning", "reading"]
    assert {state for state, _ in large.first()} == {"running"}, "there was always something to do"
    texts = [activity_text(doing, large.seen[0].updated_us) for _, doing in large.first()]
    assert any(f"reading {table} (chunks 1–3 of 4): " in text for text in texts)  # noqa: RUF001
    status = read_status(large.runs.inbox)
    assert status is not None
    assert (status.tables[table].rows, status.activity, status.snapshot) == (large.rows, None, None)


def test_an_update_is_one_change_also_with_a_changelog(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    runs = Runs(spark, mysql_server, mysql_db, tmp_path)
    table = runs.table("orders", 10)
    runs.modes = '["current", "changelog"]'
    reports: list[BatchReport] = []

    def run() -> Status:
        Pipeline(runs.config(), spark).run(once=True, on_progress=reports.append)
        current = read_status(runs.inbox)
        assert current is not None
        return current

    assert (run().tables[table].changes, run().tables[table].rows) == (0, 0), "the second run had nothing to do"
    begun = time.time()
    runs.do(
        "UPDATE orders SET v = v + 1 WHERE id <= 4",
        "INSERT INTO orders VALUES (11, 1, 1)",
        "DELETE FROM orders LIMIT 1",
    )
    status = run()
    assert status.tables[table].changes == status.recent[0].changes == 6
    assert reports[-1].images == {table: 10}, "each update has two images"
    assert reports[-1].changes == {table: 6}
    taken, longest = status.freshness, time.time() - begun
    assert taken.changes == 6, "what a snapshot reads has no time of a commit"
    assert 0 < taken.seconds <= 6 * longest
    assert [count for limit, count in taken.buckets if limit > longest] == [6] * sum(
        limit > longest for limit, _ in taken.buckets
    )
    assert status.writes == {"upsert": 1}
    assert status.history.at_us[-1] >= begun * 1e6


@pytest.mark.long
def test_tables_that_were_dropped_while_nobody_looked(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that has followed them goes on: what came before the DROP is applied, and what comes after."""
    first, other, lake = f"{mysql_db}.first", f"{mysql_db}.other", Lake.at(str(tmp_path / "lake"))
    for table in (first, other):
        mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2)")
    text = (
        f'name = "dropped"\n[source]\nurl = "{mysql_server.url}"\ntables = ["{first}", "{other}"]\n'
        f'[target]\npath = "{lake.path}"\nmode = ["current", "changelog"]\n'
    )

    def states() -> dict[str, str]:
        Pipeline(parse_config(text), spark).run(once=True)
        return {name: table.state for name, table in newest_row(lake).tables.items()}

    def ids(path: str) -> list[int]:
        return sorted(row.id for row in spark.read.format("delta").load(path).select("id").collect())

    assert states() == {first: "live", other: "live"}
    mysql_server.execute(
        f"INSERT INTO {first} VALUES (3)", f"INSERT INTO {other} VALUES (3)", f"DROP TABLE {first}",
        f"INSERT INTO {other} VALUES (4)",
    )  # fmt: skip
    assert states() == {first: "dropped", other: "live"}
    assert ids(lake.changelog(first)) == [1, 2, 3]
    assert ids(lake.current(other)) == [1, 2, 3, 4]
    assert f"there is no table {first} on the server, or the user has no SELECT on it; the log is still" in caplog.text
    mysql_server.execute(f"INSERT INTO {other} VALUES (5)", f"DROP TABLE {other}")
    assert states() == {first: "dropped", other: "dropped"}
    assert ids(lake.changelog(other)) == [1, 2, 3, 4, 5]
    mysql_server.execute(f"CREATE TABLE {first} (id INT PRIMARY KEY)", f"INSERT INTO {first} VALUES (9)")
    assert states() == {first: "live", other: "dropped"}
    assert ids(lake.current(first)) == [9]
    with pytest.raises(ConfigError, match="there is no table"):
        Pipeline(parse_config(text.replace(first, f"{mysql_db}.fist")), spark).run(once=True)
