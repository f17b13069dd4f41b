"""The examples of the pages for those who come from elsewhere, run as they stand there; only places are others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headgate
from headgate.config import load_config
from headgate.pipeline import Pipeline
from tests.examples import placed
from tests.fix_spark import once_its_source_starts
from tests.integration.databases import Database
from tests.test_documents import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate_testing import KafkaBroker, MySQLServer


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "how-to" / page).read_text("utf-8"), re.DOTALL)


class Place(Database):
    """A database ``shop`` under another name, and a lake."""

    def __init__(self, server: MySQLServer, db: str, folder: Path) -> None:
        super().__init__(server, db)
        self.lake = folder / "lake"
        secret = folder / "secret"
        secret.write_text(server._password, "utf-8")
        self.names = {
            "cdc@db1:3306": server.url.partition("://")[2], "/run/secrets/mysql": str(secret), "shop.": f"{db}.",
            "/data": str(folder),
        }  # fmt: skip
        self.do(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, qty INT)",
            "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))",
            "CREATE TABLE tmp_1 (id INT PRIMARY KEY)",
            "INSERT INTO orders VALUES (1, 5), (2, 6)",
            "INSERT INTO items VALUES (1, 'pen')",
        )

    def run(self, file: str, spark: SparkSession, **names: str) -> None:
        config = self.lake.parent / "pipeline.toml"
        config.write_text(placed(file, {**self.names, **names}), "utf-8")
        Pipeline(load_config(config), spark).run(once=True)


@pytest.fixture
def place(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("HEADGATE_PASSWORD", mysql_server._password)
    return Place(mysql_server, mysql_db, tmp_path)


def rows(spark: SparkSession, place: Place) -> dict[str, set[tuple[Any, ...]]]:
    tables = headgate.read_as_of(spark, str(place.lake))
    return {
        name.removeprefix(f"{place.db}."): {tuple(row) for row in table.drop("_seq", "_gtid", "_ts").collect()}
        for name, table in tables.items()
    }


@pytest.mark.long
def test_from_debezium(place: Place, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    (file,) = blocks("from-debezium.md", "toml")
    kafka = {"kafka:9092": kafka_broker.bootstrap, 'topic_prefix = "shop"': f'topic_prefix = "{place.db}"'}
    place.run(file, spark, **kafka)
    place.do("UPDATE orders SET qty = 7 WHERE id = 1")
    place.run(file, spark, **kafka)
    assert rows(spark, place) == {"orders": {(1, 7), (2, 6)}, "items": {(1, "pen")}}


@pytest.mark.long
def test_from_flink_cdc(place: Place, spark: SparkSession) -> None:
    mirror, _ = blocks("from-flink-cdc.md", "toml")
    place.run(mirror, spark)
    place.do(
        "CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (3)", "DELETE FROM orders WHERE id = 2"
    )
    place.run(mirror, spark)
    assert rows(spark, place) == {"orders": {(1, 5)}, "items": {(1, "pen")}, "later": {(3,)}}


def test_a_start_at_a_time(place: Place, spark: SparkSession) -> None:
    _, log = blocks("from-flink-cdc.md", "toml")
    place.run(log, spark)
    changelog = spark.read.format("delta").load(str(place.lake / "_changelog" / place.db / "orders"))
    assert {(row["_op"], row["id"]) for row in changelog.collect()} == {("c", 1), ("c", 2)}


def test_a_stream_in_place_of_flink_sql(place: Place, spark: SparkSession) -> None:
    (code,) = blocks("from-flink-cdc.md", "python")
    seen: list[tuple[Any, ...]] = []

    def apply(frame: DataFrame, _batch_id: int) -> None:
        seen.extend((row["_op"], row["id"], row["qty"]) for row in frame.orderBy("_seq", "id").collect())

    def run() -> None:
        names: dict[str, Any] = {"spark": spark, "apply": apply}
        exec(placed(code, place.names), names)
        try:
            names["query"].processAllAvailable()
        finally:
            names["query"].stop()

    once_its_source_starts(run)
    assert seen == [("r", 1, 5), ("r", 2, 6)]
    place.do("UPDATE orders SET qty = 9 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    run()
    assert seen[2:] == [("u", 1, 9), ("d", 2, 6)]
