"""``import headgate`` with MySQL and Spark: the examples of the docstrings, and what ``expand`` makes of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headgate
from headgate.config import load_config
from headgate.errors import ConfigError, SchemaChangedError
from headgate.pipeline import Pipeline
from tests.examples import ON_A_SERVER, PIPELINE, placed, run_examples
from tests.fix_spark import once_its_source_starts
from tests.integration.databases import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate_testing import MySQLServer


class Shop(Database):
    """The database of the examples, and a lake of it."""

    def __init__(self, spark: SparkSession, server: MySQLServer, db: str, folder: Path) -> None:
        super().__init__(server, db)
        self.spark, self.before = spark, server.gtid_executed
        host = server.url.partition("://")[2]
        (folder / "secret").write_text(server._password, "utf-8")
        self.places = {
            "headgate@db:3306": host, "/run/secrets/mysql": str(folder / "secret"), "shop.": f"{db}.",
            "/data": str(folder / "data"), '"earliest"': f'"{self.before}"',
        }  # fmt: skip
        (folder / "pipeline.toml").write_text(placed(PIPELINE, self.places), "utf-8")
        self.do(
            "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(20), total DECIMAL(10,2))",
            "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))",
            "INSERT INTO orders VALUES (1, 'Ada', 12.50), (2, 'Ben', 7), (3, 'Cy', 0)",
            "INSERT INTO items VALUES (1, 'pen'), (2, 'ink')",
        )

    def read(self, **options: str) -> DataFrame:
        """What the source gives of the log since the database was made."""
        source_options = {"url": self.server.url, "start": self.before, **options}
        return self.spark.read.format("mysql-cdc").options(**source_options).load()


@pytest.fixture
def shop(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_PASSWORD", mysql_server._password)
    headgate.register(spark)
    yield Shop(spark, mysql_server, mysql_db, tmp_path)
    assert Path.cwd() == tmp_path, "a context manager of the fixture was undone too early"


@pytest.mark.parametrize("name", sorted(ON_A_SERVER))
def test_examples(name: str, shop: Shop) -> None:
    if name in {"read_as_of", "verify"}:
        Pipeline(load_config("pipeline.toml"), shop.spark).run(once=True)
    once_its_source_starts(lambda: run_examples(name, shop.places, spark=shop.spark))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """In the order of the log; the batch's epoch is of the reading, not of the rows."""
    records: list[dict[str, Any]] = frame.toArrow().to_pylist()
    for row in records:
        row["_seq"].pop("epoch")
    return sorted(records, key=lambda row: (*row["_seq"].values(), row["_op"] != "b"))


CHANGES = (
    "UPDATE orders SET total = 8 WHERE id = 2", "UPDATE orders SET id = 4 WHERE id = 1",
    "DELETE FROM orders WHERE id = 3", "INSERT INTO items VALUES (3, NULL)", "TRUNCATE TABLE orders",
    "INSERT INTO orders VALUES (9, 'Di', 1)",
)  # fmt: skip


def test_the_rows_are_those_of_the_typed_source(shop: Shop) -> None:
    shop.do(*CHANGES)
    for images in ("all", "keys"):
        carried = shop.read(tables=f"{shop.db}.*", images=images)
        for table in ("orders", "items"):
            typed = shop.read(table=f"{shop.db}.{table}", images=images)
            expanded = headgate.expand(carried, f"{shop.db}.{table}")
            assert expanded.dtypes == typed.dtypes
            expected = rows(typed)
            if images == "keys":  # expand cannot know that this `b` row stands for a delete, and leaves it as it is
                expected = [row | {"_op": "b"} if row["_op"] == "d" and row["id"] == 1 else row for row in expected]
            assert rows(expanded) == expected
            assert rows(headgate.expand(carried, f"{shop.db}.{table}", typed.schema)) == rows(expanded)


def test_rows_from_before_and_after_schema_changes(shop: Shop) -> None:
    shop.do(
        "ALTER TABLE orders ADD COLUMN note VARCHAR(10) DEFAULT 'x' AFTER id, MODIFY total DECIMAL(12,4)",
        "INSERT INTO orders VALUES (4, 'new', 'Di', 1.2345)",
        "ALTER TABLE orders DROP COLUMN customer, MODIFY id BIGINT UNSIGNED",
        "INSERT INTO orders VALUES (18446744073709551615, 'wide', 99999999.9999)",
    )
    carried = shop.read(tables=f"{shop.db}.*")
    expanded = headgate.expand(carried, f"{shop.db}.orders")
    assert expanded.dtypes[5:] == [
        ("id", "decimal(20,0)"), ("note", "string"), ("total", "decimal(12,4)"), ("customer", "string"),
    ]  # fmt: skip
    assert [[str(row[name]) for name in ("id", "note", "total", "customer")] for row in rows(expanded)] == [
        ["1", "None", "12.5000", "Ada"], ["2", "None", "7.0000", "Ben"], ["3", "None", "0.0000", "Cy"],
        ["4", "new", "1.2345", "Di"], ["18446744073709551615", "wide", "99999999.9999", "None"],
    ]  # fmt: skip
    with pytest.raises(Exception, match=r"SchemaChangedError.*column customer"):
        headgate.expand(carried, f"{shop.db}.orders", "id DECIMAL(20,0), note STRING, total DECIMAL(12,4)").toArrow()


def test_a_column_that_became_something_else_needs_a_schema(shop: Shop) -> None:
    shop.do("ALTER TABLE items MODIFY id VARCHAR(5)", "INSERT INTO items VALUES ('k', 'key')")
    carried = shop.read(tables=f"{shop.db}.items")
    with pytest.raises(SchemaChangedError, match="column id was int and became string"):
        headgate.expand(carried, f"{shop.db}.items")
    expanded = headgate.expand(carried, f"{shop.db}.items", "id STRING, name STRING")
    assert [row["id"] for row in rows(expanded)] == ["1", "2", "k"]


def test_a_table_without_images_has_the_columns_of_all_tables(shop: Shop) -> None:
    carried = shop.read(tables=f"{shop.db}.*")
    assert headgate.expand(carried, f"{shop.db}.none").columns == ["_op", "_seq", "_gtid", "_ts", "_table"]
    typed = headgate.expand(carried, f"{shop.db}.none", "id INT")
    assert (typed.columns[5:], typed.count()) == (["id"], 0)


def test_partial_images_say_what_is_not_known(shop: Shop) -> None:
    shop.do("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE orders SET total = 1 WHERE id = 1")
    carried = shop.read(tables=f"{shop.db}.*")
    expanded = headgate.expand(carried, f"{shop.db}.orders")
    assert expanded.columns[-1] == "_absent"
    assert [row["_absent"] for row in rows(expanded)] == [None] * 3 + ['["customer", "total"]', '["customer"]']
    schema = "id INT, customer STRING, total DECIMAL(10,2)"
    with pytest.raises(Exception, match=r"UnsupportedError.*_absent"):
        headgate.expand(carried, f"{shop.db}.orders", schema).toArrow()
    assert rows(headgate.expand(carried, f"{shop.db}.orders", f"_absent STRING, {schema}")) == rows(expanded)


def test_a_stream_with_a_schema(shop: Shop, tmp_path: Path) -> None:
    options = {"url": shop.server.url, "tables": f"{shop.db}.*"}
    stream = shop.spark.readStream.format("mysql-cdc").options(**options).load()
    table = f"{shop.db}.orders"
    with pytest.raises(ConfigError, match=r"give expand a schema.*option\(\"table\""):
        headgate.expand(stream, table)
    typed = headgate.expand(stream, table, shop.read(table=table).schema)
    seen: list[pa.Table] = []
    writer = typed.writeStream.foreachBatch(lambda frame, _: seen.append(frame.toArrow()))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    once_its_source_starts(lambda: writer.start().awaitTermination(300))
    assert sorted(pa.concat_tables(seen)["customer"].to_pylist()) == ["Ada", "Ben", "Cy"]


def test_only_the_many_table_stream_can_be_expanded(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="this frame has id"):
        headgate.expand(shop.spark.range(1), f"{shop.db}.orders")
    with pytest.raises(ConfigError, match=r"db\.table"):
        headgate.expand(shop.read(tables=f"{shop.db}.*"), "orders")
