"""Layout of a lake's tables by other programs: comments, columns that are never null, properties, clustering."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate_testing import MySQLServer
from tests.integration.outside import lake_rows, operations, source_rows
from tests.integration.pipeline.test_readers import READERS
from tests.integration.pipeline.verifying import newest, verify
from tests.integration.runs import Runs
from tests.logged import logged_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 60
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT {0} UNION ALL SELECT i + 1 FROM n WHERE i < {1}) SELECT"


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    return Runs(spark, mysql_server, mysql_db, tmp_path)


def check(runs: Runs, name: str) -> None:
    result = verify(runs.config(), newest(runs.lake), f"{runs.db}.{name}")
    assert (result.differences, result.equal > 0) == (0, True), result


def comments(spark: SparkSession, folder: str) -> dict[str, str]:
    rows = spark.sql(f"DESCRIBE TABLE delta.`{folder}`").collect()
    return {row.col_name: row.comment for row in rows if row.comment and not row.col_name.startswith("#")}


def detail(spark: SparkSession, folder: str) -> Any:
    (row,) = spark.sql(f"DESCRIBE DETAIL delta.`{folder}`").collect()
    return row


def test_spark_shows_comments_and_which_columns_are_never_null(runs: Runs) -> None:
    runs.do(
        "CREATE TABLE orders (id INT PRIMARY KEY COMMENT 'the number', note VARCHAR(20) NOT NULL COMMENT 'what it''s',"
        " day DATE) COMMENT 'All orders'",
        "INSERT INTO orders VALUES (1, 'a', NULL), (2, 'b', '2026-01-02')",
    )
    runs.modes = '["current", "changelog"]'
    runs.run()
    table = f"{runs.db}.orders"
    current, changelog = runs.lake.current(table), runs.lake.changelog(table)
    assert DeltaTable(current, version=0).metadata().description == "All orders", "from the first version on"
    first = {"id": "the number", "note": "what it's"}
    assert comments(runs.spark, current) == comments(runs.spark, changelog) == first
    assert detail(runs.spark, current).description == detail(runs.spark, changelog).description == "All orders"
    nulls = {one.name: one.nullable for one in runs.spark.read.format("delta").load(current).schema}
    assert {name: nulls[name] for name in ("id", "note", "day")} == {"id": False, "note": True, "day": True}
    assert all(field.nullable for field in DeltaTable(changelog).schema().fields), "a truncation has no values"

    runs.do(
        "ALTER TABLE orders COMMENT = 'Orders', MODIFY note VARCHAR(30) NOT NULL, MODIFY id INT COMMENT 'n'",
        "INSERT INTO orders VALUES (3, 'c', NULL)",
        "UPDATE orders SET id = 4 WHERE id = 1",
    )
    runs.run()
    assert runs.state(table) == "live"
    assert comments(runs.spark, current) == comments(runs.spark, changelog) == {"id": "n"}
    assert detail(runs.spark, current).description == detail(runs.spark, changelog).description == "Orders"
    runs.do("ALTER TABLE orders COMMENT = ''", "DELETE FROM orders WHERE id = 2")
    runs.run()
    assert detail(runs.spark, current).description is None
    assert "CHANGE COLUMNS" in operations(current)
    check(runs, "orders")


def bounds(folder: str, column: str) -> list[tuple[Any, Any]]:
    """The least and greatest value of a column in each file."""
    files = pa.table(DeltaTable(folder).get_add_actions(flatten=True))
    return [*zip(files[f"min.{column}"].to_pylist(), files[f"max.{column}"].to_pylist(), strict=True)]


def opened_for_a_day(folder: str) -> tuple[float, int]:
    """How many files a reader opens for one day, on average; and how many there are."""
    values = bounds(folder, "day")
    least, greatest = min(low for low, _ in values), max(high for _, high in values)
    wanted = [least + (greatest - least) * part / DAYS for part in range(DAYS)]
    return sum(low <= day <= high for day in wanted for low, high in values) / DAYS, len(values)


@contextmanager
def small_files(spark: SparkSession, size: int) -> Iterator[None]:
    """OPTIMIZE makes files of this size."""
    names = [f"spark.databricks.delta.optimize.{name}FileSize" for name in ("min", "max")]
    for name in names:
        spark.conf.set(name, str(size))
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def test_optimize_clusters_a_table_and_other_readers_read_it(runs: Runs) -> None:
    values = f"'2026-01-01' + INTERVAL (i * 37) % {DAYS} DAY, (i * 7919) % 1000, SHA2(i, 256) FROM n"
    runs.do(
        "CREATE TABLE orders (id INT PRIMARY KEY, day DATE, customer INT, note VARCHAR(64))",
        f"INSERT INTO orders {NUMBERS.format(1, 1000)} i, {values}",
        "CREATE TABLE other (id INT PRIMARY KEY)",
    )
    table = f"{runs.db}.orders"
    section = f'[tables."{table}"]\ncluster_by = '
    runs.more = f'properties = {{ team = "sales" }}\n{section}["day"]'
    runs.run()
    folder = runs.lake.current(table)
    for part in range(3):
        first = 1000 + 200 * part
        runs.do(
            f"INSERT INTO orders {NUMBERS.format(first + 1, first + 200)} i, {values}",
            f"UPDATE orders SET customer = customer + 1 WHERE id % 40 = {part}",
        )
        runs.run()
    about = detail(runs.spark, folder)
    assert (about.clusteringColumns, about.properties["team"]) == (["day"], "sales")
    opened, files = opened_for_a_day(folder)
    assert files > 3
    assert opened > 0.9 * files, "each has rows of nearly all days"
    with small_files(runs.spark, 10_000):
        runs.spark.sql(f"OPTIMIZE delta.`{folder}`").collect()
    opened, files = opened_for_a_day(folder)
    assert files > 3
    assert opened < 0.5 * files, "OPTIMIZE has clustered them"

    runs.do("UPDATE orders SET note = 'x' WHERE id % 50 = 0", "DELETE FROM orders WHERE id % 60 = 1")
    runs.run()
    check(runs, "orders")
    rows = source_rows(runs.server, f"{runs.db}.orders")
    assert lake_rows(folder) == rows
    for read in READERS.values():
        assert read(folder).num_rows == rows.total()

    runs.more = f'{section}["customer", "day"]'
    before = {*DeltaTable(folder).file_uris()}
    runs.do("INSERT INTO other VALUES (1)")
    runs.run()
    about = detail(runs.spark, folder)
    assert (about.clusteringColumns, "team" in about.properties) == (["customer", "day"], False)
    assert {*DeltaTable(folder).file_uris()} == before, "no file was rewritten"
    assert newest(runs.lake).tables[table].version == DeltaTable(folder).version()
    runs.do("ALTER TABLE orders DROP COLUMN customer", "INSERT INTO orders VALUES (5000, '2026-01-05', 'new')")
    runs.run()
    assert detail(runs.spark, folder).clusteringColumns == ["day"]
    with small_files(runs.spark, 10_000):
        runs.spark.sql(f"OPTIMIZE delta.`{folder}` FULL").collect()
    check(runs, "orders")


def test_columns_that_no_table_is_clustered_by_are_named(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    runs.do("CREATE TABLE orders (id INT PRIMARY KEY, data VARBINARY(9))", "INSERT INTO orders VALUES (1, 'x')")
    runs.more = f'[tables."{runs.db}.orders"]\ncluster_by = ["gone", "data", "id"]'
    with caplog.at_level(logging.WARNING, "headgate"):
        runs.run()
    warnings = [record.getMessage() for record in logged_here(caplog)]
    where = f'cluster_by in [tables."{runs.db}.orders"]: column'
    assert f"{where} gone is not in the table: check the spelling (case counts)" in warnings
    assert f"{where} data has no order" in warnings
    assert detail(runs.spark, runs.lake.current(f"{runs.db}.orders")).clusteringColumns == ["id"]
