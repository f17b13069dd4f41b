"""Routes: other names in the lake, and tables merged from several, which readers of Delta find as one."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import ConfigError, TargetError
from headgate.lake import Lake, epochs_shown, newest_row, read_as_of
from headgate.pipeline import check_config
from headgate.upkeep import Maintenance
from headgate_testing import MySQLServer
from tests.integration.pipeline.test_readers import READERS
from tests.integration.pipeline.verifying import newest, verify
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS = ("orders_1", "orders_2", "orders_3")
META = ("_seq", "_gtid", "_ts")


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    runs = Runs(spark, mysql_server, mysql_db, tmp_path)
    runs.more = f'[routes]\n"{mysql_db}.orders_*" = {{ to = "shop.orders", shard = "{{table}}", column = "origin" }}\n'
    return runs


def merged(runs: Runs, reader: str = "delta-rs") -> set[tuple[Any, ...]]:
    """The merged table's rows, by another program."""
    table = READERS[reader](runs.lake.current("shop.orders"))
    rows = table.drop_columns([name for name in META if name in table.column_names]).to_pylist()
    distinct = {tuple(sorted(row.items(), key=str)) for row in rows}
    assert len(distinct) == len(rows)
    return distinct


def source(runs: Runs, *tables: str) -> set[tuple[Any, ...]]:
    rows = set()
    for table in tables or SHARDS:
        names = [name for (name,) in runs.server.query(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (runs.db, table),
        )]  # fmt: skip
        for values in runs.server.query(f"SELECT {', '.join(names)} FROM {runs.db}.{table}"):
            row = {**dict(zip(names, values, strict=True)), "origin": table}
            rows.add(tuple(sorted(row.items(), key=str)))
    return rows


def maintain(runs: Runs, retention_seconds: float) -> None:
    """Fold all small files, and remove what no batch of the retention needs."""
    tables = [*Maintenance(runs.lake, retention_seconds, "snappy", dry=False).tables()]
    files = [path for path in Path(runs.lake.path).rglob("*") if path.is_file() and "_headgate" not in str(path)]
    assert sum(one.after.files for one in tables if not one.name.startswith("_headgate")) == len(files), "each once"


@pytest.mark.long
def test_a_merged_table_has_the_rows_of_all(runs: Runs) -> None:
    """Beside writers, while it is read, after a TRUNCATE, a re-read, folds and the removal of old files."""
    chosen = random.Random(5)
    for table in SHARDS:
        runs.table(table, rows=120)
    runs.run(meanwhile=lambda number: runs.write(chosen, 10, *SHARDS) if number < 4 else None)
    runs.run()
    for reader in READERS:
        assert merged(runs, reader) == source(runs), reader
    for table in SHARDS:
        result = verify(runs.config(), newest_row(runs.lake), f"{runs.db}.{table}")
        assert (result.differences, result.state) == (0, "live")
    runs.write(chosen, 20, *SHARDS)
    runs.do("TRUNCATE orders_2", "INSERT INTO orders_2 VALUES (1, 1, 1)")
    runs.signal("execute-snapshot", "orders_1", type="incremental")
    runs.run()
    assert merged(runs) == source(runs)
    before = newest_row(runs.lake)
    maintain(runs, 0)
    assert merged(runs) == source(runs), "folds and removals in the shards"
    setting = "spark.databricks.delta.retentionDurationCheck.enabled"
    runs.spark.conf.set(setting, "false")
    runs.spark.sql(f"VACUUM delta.`{runs.lake.current('shop.orders')}` RETAIN 0 HOURS")
    runs.spark.conf.unset(setting)
    assert merged(runs) == source(runs), "another program's VACUUM"
    runs.write(chosen, 20, *SHARDS)
    runs.run()
    assert merged(runs) == source(runs)
    maintain(runs, 3600)
    as_of = read_as_of(runs.spark, runs.lake.path, batch=before.epoch)["shop.orders"]
    assert as_of.groupBy().sum("v").collect()[0][0] is not None
    frame = read_as_of(runs.spark, runs.lake.path)
    assert list(frame) == ["shop.orders"]
    counts = {row["origin"]: row["count"] for row in frame["shop.orders"].groupBy("origin").count().collect()}
    assert counts == Counter(dict(row)["origin"] for row in source(runs))


def test_shards_may_get_columns_one_after_the_other(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    for table in SHARDS[:2]:
        runs.table(table, rows=5)
    runs.run()
    runs.do("ALTER TABLE orders_1 ADD note VARCHAR(10) DEFAULT 'x'", "INSERT INTO orders_2 VALUES (77, 1, 1)")
    runs.run()
    rows = {
        tuple(sorted({**dict(row), "note": dict(row).get("note")}.items(), key=str))
        for row in source(runs, *SHARDS[:2])
    }
    assert merged(runs) == rows
    before = merged(runs)
    runs.do("ALTER TABLE orders_1 MODIFY v BIGINT", "INSERT INTO orders_2 VALUES (78, 1, 1)")
    (*_, report) = runs.run()
    (state,) = report.merged
    assert (
        state.reason
        == "is as of an earlier batch, because its tables differ: v is integer in orders_2 and long in another"
    )
    assert "shop.orders in the lake is as of an earlier batch" in caplog.text
    assert merged(runs) == before, "no mixture"
    assert "shop.orders" not in read_as_of(runs.spark, runs.lake.path)
    maintain(runs, 0)
    assert merged(runs) == before, "its files are kept meanwhile"
    runs.do("ALTER TABLE orders_2 MODIFY v BIGINT", "ALTER TABLE orders_2 ADD note VARCHAR(10) DEFAULT 'y'")
    (*_, report) = runs.run()
    assert [one.reason for one in report.merged] == [None]
    assert merged(runs) == source(runs, *SHARDS[:2])
    assert read_as_of(runs.spark, runs.lake.path)["shop.orders"].count() == len(source(runs, *SHARDS[:2]))
    maintain(runs, 0)
    assert merged(runs) == source(runs, *SHARDS[:2])


@pytest.mark.long
def test_a_stream_of_a_merged_changelog_has_each_change_once(runs: Runs, tmp_path: Path) -> None:
    runs.modes = '["changelog"]'
    for table in SHARDS:
        runs.do(f"CREATE TABLE {table} (v INT)", f"INSERT INTO {table} VALUES (1), (1)")
    runs.run()
    changes = runs.lake.changelog("shop.orders")

    def stream() -> list[Any]:
        frame = runs.spark.readStream.format("delta").load(changes).select("origin", "_op", "v")
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer.option("checkpointLocation", str(tmp_path / "stream")).trigger(
            availableNow=True
        ).start().awaitTermination()
        return sorted(tuple(row) for row in runs.spark.read.parquet(str(tmp_path / "out")).collect())

    expected = [(table, "r", 1) for table in SHARDS for _ in range(2)]
    assert stream() == sorted(expected)
    for number in range(4):
        table = SHARDS[number % 2]
        runs.do(f"INSERT INTO {table} VALUES ({number})")
        expected.append((table, "c", number))
        runs.run()
        if number % 2:
            maintain(runs, 3600)
    assert stream() == sorted(expected)


def test_a_mode_that_was_left_out_for_some_batches_begins_again(runs: Runs) -> None:
    for table in SHARDS:
        runs.table(table, rows=20)
    runs.modes = '["current", "changelog"]'
    runs.run()
    assert read_as_of(runs.spark, runs.lake.path)["shop.orders"].count() == 60
    runs.modes = '["changelog"]'
    for statement in ("DELETE FROM orders_1 WHERE id < 5", "UPDATE orders_2 SET v = 7"):
        runs.do(statement)
        runs.run()
        assert "shop.orders" not in read_as_of(runs.spark, runs.lake.path), "it has the deleted rows"
    runs.modes = '["current", "changelog"]'
    runs.run()
    assert merged(runs) == source(runs)
    assert read_as_of(runs.spark, runs.lake.path)["shop.orders"].count() == 56


def test_another_name(runs: Runs) -> None:
    runs.more = f'[routes]\n"{runs.db}.*" = "sales.{{table}}s"\n'
    table = runs.table("item", rows=20)
    runs.run()
    folder = runs.lake.current("sales.items")
    assert READERS["delta-rs"](folder).num_rows == 20
    assert not Path(runs.lake.current(table)).exists()
    assert list(read_as_of(runs.spark, runs.lake.path)) == ["sales.items"]
    assert verify(runs.config(), newest(runs.lake), table).differences == 0
    runs.more = f'[routes]\n"{runs.db}.*" = "sales.articles"\n'
    with pytest.raises(
        TargetError, match=r"its route has changed, and .*/sales/articles does not exist: move .*/items"
    ):
        runs.run()
    Path(folder).rename(Path(runs.lake.current("sales.articles")))
    runs.do("DELETE FROM item WHERE id > 3")
    (*_, report) = runs.run()
    assert report.rows == {}, "nothing is read again"
    assert READERS["delta-rs"](runs.lake.current("sales.articles")).num_rows == 3
    assert list(read_as_of(runs.spark, runs.lake.path)) == ["sales.articles"]


def test_a_shard_may_get_another_value(runs: Runs) -> None:
    for table in SHARDS[:2]:
        runs.table(table, rows=5)
    runs.run()
    runs.more = runs.more.replace("{table}", "x-{table}")
    with pytest.raises(TargetError, match="its route has changed"):
        runs.run()
    for table in SHARDS[:2]:
        folder = Path(runs.lake.current("shop.orders"), "_shards")
        (folder / f"origin={table}").rename(folder / f"origin=x-{table}")
    runs.do("INSERT INTO orders_1 VALUES (99, 9, 9)")
    runs.run()
    table = READERS["delta-rs"](runs.lake.current("shop.orders"))
    assert sorted(zip(table["origin"].to_pylist(), table["id"].to_pylist(), strict=True)) == [
        *(("x-orders_1", n) for n in (1, 2, 3, 4, 5, 99)),
        *(("x-orders_2", n) for n in (1, 2, 3, 4, 5)),
    ]


def test_two_pipelines_share_a_merged_table(
    runs: Runs, spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    other = Runs(spark, mysql_server, mysql_db, tmp_path / "other")
    for one, name, table in ((runs, "east", "orders_1"), (other, "west", "orders_2")):
        one.tables = f'["{mysql_db}.{table}"]'
        one.more = f'[routes]\n"{mysql_db}.*" = {{ to = "shop.orders", shard = "{name}", path = "{folder}" }}\n'
        one.name = name
    runs.table("orders_1", rows=10)
    runs.do("CREATE TABLE orders_2 (a INT)", f"INSERT INTO orders_2 VALUES {', '.join(['(7)'] * 20)}")
    runs.run()
    other.run()
    path = Lake.at(folder).current("shop.orders")

    def counts() -> dict[str, int]:
        shards = READERS["delta-rs"](path)["_shard"].to_pylist()
        return {name: shards.count(name) for name in sorted(set(shards))}

    assert counts() == {"east": 10, "west": 20}
    runs.do("DELETE FROM orders_1 WHERE id > 4", "INSERT INTO orders_2 VALUES (7)")
    runs.run()
    assert counts() == {"east": 4, "west": 20}
    other.run()
    assert counts() == {"east": 4, "west": 21}
    assert epochs_shown(path) == {one.name: newest_row(one.lake).epoch for one in (runs, other)}
    (state,) = newest_row(other.lake).merged
    assert epochs_shown(path, state.version) == epochs_shown(path)
    assert epochs_shown(path, (state.version or 0) - 1)["west"] < newest_row(other.lake).epoch


def test_names_that_meet_are_refused(runs: Runs) -> None:
    for table in SHARDS[:2]:
        runs.table(table, rows=1)
    runs.table("orders", rows=1)
    for route, message in {
        '"shop.orders"': r"orders_1 and .*orders_2 would both be shop\.orders in the lake: to merge them",
        '{ to = "shop.orders", shard = "{db}" }': r"would both be shop\.orders in the lake",
        f'{{ to = "{runs.db}.orders", shard = "{{table}}" }}': r"orders would be at .* merges other tables",
        '{ to = "shop.orders", shard = "{table}", path = "s3a://bucket/shared" }': "must both be local folders",
    }.items():
        runs.more = f'[routes]\n"{runs.db}.orders_*" = {route}\n'
        with pytest.raises(ConfigError, match=message):
            check_config(runs.config())
