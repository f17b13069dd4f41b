"""Policies through a whole pipeline: a snapshot, then changes, then the same question that ``headgate verify`` asks."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import expr

from headgate import register
from headgate.errors import UnsupportedError
from headgate.lake import Lake
from headgate.pipeline import Pipeline
from headgate_testing import MySQLServer
from tests.integration.databases import pipeline_config
from tests.integration.outside import lake_rows
from tests.integration.pipeline.verifying import newest, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "d DATE, at DATETIME(3), t TIME(2), b BIT(9), w DECIMAL(65,3), j JSON, price DECIMAL(9,2), big BIGINT UNSIGNED"
)
ROWS = (
    "(1, '2024-00-00', '0000-00-00', '-838:59:59', b'101', 1.5, '{\"a\": [1.50, null]}', -0.5, 7),"
    " (2, '2024-02-29', '2024-02-29 01:02:03.5', '00:00:00.25', b'0', NULL, 'null', 1234567.89, 9223372036854775807),"
    " (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
)


def test_each_table_has_its_policies_on_both_roads_and_in_verify(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    own_table, _ = tables = [f"{mysql_db}.{name}" for name in ("own", "plain")]
    with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for table in tables:
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, {COLUMNS})")
            cursor.execute(f"INSERT INTO {table} VALUES {ROWS}")
    source = 'zero_dates = "null"\njson = "variant"'
    policies = {"zero_dates": "text", "time": "microseconds", "bit": "binary", "decimals": "double"}
    policies["unsigned_bigint"] = "bigint"
    more = "\n".join([f'[tables."{own_table}"]', *(f'{name} = "{value}"' for name, value in policies.items())])
    config = pipeline_config(mysql_server, [f"{mysql_db}.*"], tmp_path, source=source, more=more)
    Pipeline(config, spark).run(once=True)
    with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for table in tables:
            cursor.execute(f"INSERT INTO {table} SELECT id + 10, d, at, t, b, w, j, price, big FROM {table}")
            cursor.execute(f"UPDATE {table} SET d = '2025-12-00', j = '[2]' WHERE id = 2")
    Pipeline(config, spark).run(once=True)

    lake = Lake.at(str(tmp_path / "lake"))
    row = newest(lake)
    for table in tables:
        result = verify(config, row, table)
        assert (result.equal, result.differences) == (6, 0), result
    configured, plain = (
        spark.read.format("delta").load(lake.current(table)).withColumn("j", expr("to_json(j)")).orderBy("id").collect()
        for table in tables
    )
    assert [line["d"] for line in configured] == ["2024-00-00", "2025-12-00", None, "2024-00-00", "2024-02-29", None]
    assert [line["d"] and str(line["d"]) for line in plain] == [None, None, None, None, "2024-02-29", None]
    assert [line["at"] for line in configured][::3] == ["0000-00-00 00:00:00.000"] * 2
    assert [line["t"] for line in configured] == [-3_020_399_000_000, 250_000, None] * 2
    assert [line["t"] for line in plain] == ["-838:59:59.00", "00:00:00.25", None] * 2
    assert [line["b"] and bytes(line["b"]) for line in configured] == [b"\0\5", b"\0\0", None] * 2
    assert [line["w"] for line in configured] == [1.5, None, None] * 2
    assert [line["w"] for line in plain] == ["1.500", None, None] * 2
    assert [line["price"] for line in configured] == [-0.5, 1234567.89, None] * 2
    assert [line["price"] for line in plain] == [Decimal("-0.50"), Decimal("1234567.89"), None] * 2
    assert [type(line["big"]) for line in (configured[0], plain[0])] == [int, Decimal]
    assert [line["big"] for line in configured] == [line["big"] for line in plain] == [7, 2**63 - 1, None] * 2
    for lines in (configured, plain):
        assert [line["j"] for line in lines] == ['{"a":[1.5,null]}', "[2]", None, '{"a":[1.5,null]}', "null", None]


def test_a_refused_type_stops_with_table_column_and_remedy(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, w DECIMAL(39,0))")
    register(spark)
    options = {"url": mysql_server.url, "table": f"{mysql_db}.t", "wide_decimals": "error"}
    with pytest.raises(Exception, match='wide_decimals = "text"') as caught:
        spark.read.format("mysql-cdc").options(**options).load()
    assert UnsupportedError.__name__ in str(caught.value)
    assert f"{mysql_db}.t" in str(caught.value)


@pytest.mark.long
def test_policies_of_keys_and_of_added_columns(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Keys that are text or bigint; a key that stays a decimal; a default that existing rows get."""
    keys = {"texts": "DECIMAL(9,2)", "numbers": "BIGINT UNSIGNED", "doubles": "DECIMAL(9,2)"}
    policies = {"texts": 'decimals = "text"', "numbers": 'unsigned_bigint = "bigint"', "doubles": 'decimals = "double"'}
    for name, kind in keys.items():
        mysql_server.execute(
            f"CREATE TABLE {mysql_db}.{name} (id {kind} PRIMARY KEY, v INT)",
            f"INSERT INTO {mysql_db}.{name} VALUES (10, 1), (9, 1), (100, 1)",
        )
    tables = "".join(f'[tables."{mysql_db}.{name}"]\n{line}\n' for name, line in policies.items())
    config = pipeline_config(mysql_server, [f"{mysql_db}.*"], tmp_path, source="chunk_rows = 1", more=tables)
    Pipeline(config, spark).run(once=True)
    for name in keys:
        mysql_server.execute(
            f"UPDATE {mysql_db}.{name} SET v = 2 WHERE id = 9",
            f"UPDATE {mysql_db}.{name} SET id = 7 WHERE id = 100",
            f"ALTER TABLE {mysql_db}.{name} ADD COLUMN price DECIMAL(9,2) NOT NULL DEFAULT 1.5",
            f"INSERT INTO {mysql_db}.{name} VALUES (1000, 3, 0.25)",
        )
    Pipeline(config, spark).run(once=True)
    lake = Lake.at(str(tmp_path / "lake"))
    row = newest(lake)
    rows = {}
    for name in keys:
        result = verify(config, row, f"{mysql_db}.{name}")
        assert (result.state, result.equal, result.differences) == ("live", 4, 0), result
        rows[name] = sorted(lake_rows(lake.current(f"{mysql_db}.{name}"), ["id", "v", "price"]).elements())
    assert rows["texts"] == [("10.00", 1, "1.50"), ("1000.00", 3, "0.25"), ("7.00", 1, "1.50"), ("9.00", 2, "1.50")]
    assert [key for key, *_ in rows["numbers"]] == [7, 9, 10, 1000]
    assert {type(key) for key, *_ in rows["numbers"]} == {int}
    doubles = ((7, 1, 1.5), (9, 2, 1.5), (10, 1, 1.5), (1000, 3, 0.25))
    assert rows["doubles"] == [(Decimal(key), v, price) for key, v, price in doubles]
