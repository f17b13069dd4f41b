"""A lake that was moved, as docs/runbook.md says: nothing is read again, and no path leads back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headgate.config import PipelineConfig, parse_config
from headgate.lake import Lake
from headgate.pipeline import Pipeline
from headgate_testing import MySQLServer
from tests.integration.outside import lake_rows, source_rows
from tests.integration.pipeline.verifying import newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_moved_lake_continues(mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path) -> None:
    table = f"{mysql_db}.orders"
    mysql_server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, qty INT)", f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)"
    )

    def config(folder: Path) -> PipelineConfig:
        return parse_config(
            f'name = "moved"\n[source]\nurl = "{mysql_server.url}"\ntables = ["{mysql_db}.*"]\n'
            f'[target]\npath = "{folder}"\nmode = ["current", "changelog"]\n'
        )

    before, after = tmp_path / "before", tmp_path / "elsewhere" / "after"
    Pipeline(config(before), spark).run(once=True)
    after.parent.mkdir()
    before.rename(after)
    mysql_server.execute(
        f"UPDATE {table} SET qty = 20 WHERE id = 2",
        f"DELETE FROM {table} WHERE id = 3",
        f"INSERT INTO {table} VALUES (4, 4)",
    )
    Pipeline(config(after), spark).run(once=True)
    lake = Lake.at(after)
    assert lake_rows(lake.current(table), ["id", "qty"]) == source_rows(mysql_server, table)
    assert sorted(lake_rows(lake.changelog(table), ["_op", "id"])) == [
        ("c", 4), ("d", 3), ("r", 1), ("r", 2), ("r", 3), ("u", 2),
    ]  # fmt: skip
    assert newest(lake).tables[table].state == "live"
    assert not before.exists()
