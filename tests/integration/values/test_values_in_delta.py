"""Boundary values of every type family through whole pipelines: what the Delta tables hold, what ``verify`` says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate_testing import MySQLServer
from tests.integration.pipeline.test_copies import Copy
from tests.integration.values.test_columns_boundaries import FAMILIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_boundary_values_by_both_roads(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Rows that a snapshot read, and the same rows that the log brought: both are what the family says."""
    copy = Copy(mysql_server, spark, mysql_db, tmp_path)
    names: dict[str, str] = {}
    with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        for table, family in FAMILIES.items():
            cursor.execute(f"CREATE TABLE `{table}` (id INT PRIMARY KEY AUTO_INCREMENT, {family.ddl})")
            cursor.execute(f"SHOW COLUMNS FROM `{table}`")
            columns = [f"`{row[0]}`" for row in cursor.fetchall() if row[0] != "id"]
            names[table] = ", ".join(columns)
            nothing = ", ".join(["NULL"] * len(columns))
            rows = "), (".join([*family.rows, nothing])
            cursor.execute(f"INSERT INTO `{table}` ({names[table]}) VALUES ({rows})")
        copy.run()
        for table in FAMILIES:
            cursor.execute(f"INSERT INTO `{table}` ({names[table]}) SELECT {names[table]} FROM `{table}` ORDER BY id")
        copy.run()
    for table, family in FAMILIES.items():
        copied: Any = spark.read.format("delta").load(copy.lake.current(f"{mysql_db}.{table}")).orderBy("id").toArrow()
        assert copied["_gtid"].null_count == len(family.rows) + 1, "half of the rows came with the snapshot"
        for name, values in family.arrow.items():
            assert copied[name].to_pylist() == [*values, None] * 2, f"{table}.{name}"
    assert {table: (result.state, result.equal, result.differences) for table, result in copy.verify().items()} == {
        table: ("live", 2 * len(family.rows) + 2, 0) for table, family in FAMILIES.items()
    }
