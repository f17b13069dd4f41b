"""The status file of a real run: what it says while a batch is written, at the end, and after a failure; and what the
next run knows by it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.config import parse_config
from headgate.errors import ConfigError
from headgate.lake import Inbox, Lake, Status, ledger_rows, read_status
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate.testing import MySQLServer

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
    inbox = Inbox(lake.inbox)

    def read() -> Status:
        found = read_status(inbox)
        assert found is not None
        return found

    seen: list[Status] = []

    def look(report: BatchReport) -> None:
        status = read()
        assert (status.batch and status.batch.epoch) == report.epoch
        seen.append(status)

    Pipeline(parse_config(text), spark).run(once=True, on_progress=look)

    status = read()
    row = ledger_rows(spark.read.format("delta").load(lake.ledger), limit=1)[0]
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
        newest = ledger_rows(spark.read.format("delta").load(lake.ledger), limit=1)[0]
        return {name: table.state for name, table in newest.tables.items()}

    def ids(path: str) -> list[int]:
        return sorted(row.id for row in spark.read.format("delta").load(path).select("id").collect())

    assert states() == {first: "live", other: "live"}
    mysql_server.execute(
        f"INSERT INTO {first} VALUES (3)", f"INSERT INTO {other} VALUES (3)", f"DROP TABLE {first}",
        f"INSERT INTO {other} VALUES (4)",
    )  # fmt: skip
    assert states() == {first: "stopped", other: "live"}
    assert ids(lake.changelog(first)) == [1, 2, 3]
    assert ids(lake.current(other)) == [1, 2, 3, 4]
    assert (
        f"there is no table {first} on the server, or the user has no SELECT on it; the log is followed" in caplog.text
    )
    mysql_server.execute(f"INSERT INTO {other} VALUES (5)", f"DROP TABLE {other}")
    assert states() == {first: "stopped", other: "stopped"}
    assert ids(lake.changelog(other)) == [1, 2, 3, 4, 5]
    mysql_server.execute(f"CREATE TABLE {first} (id INT PRIMARY KEY)", f"INSERT INTO {first} VALUES (9)")
    assert states() == {first: "live", other: "stopped"}
    assert ids(lake.current(first)) == [9]
    with pytest.raises(ConfigError, match="there is no table"):
        Pipeline(parse_config(text.replace(first, f"{mysql_db}.fist")), spark).run(once=True)
