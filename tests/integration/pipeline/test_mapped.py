"""Tables with column mapping: written by headgate and by Spark in turns, and read by both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn
from headgate.lake import Lake, WriteMethod, refusal
from headgate.sinks import BatchReport, BatchWriter
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.outside import lake_rows, logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "shop.odd"
HEADGATE_COLUMNS = ("_seq", "_gtid", "_ts")


class Turns:
    """A lake that a pipeline writes to, and Spark between its batches."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.lake = spark, Lake.at(folder / "lake")
        self.writer = BatchWriter(spark, self.lake, "shop", ("current", "changelog"))

    def write(self, batch: FakeBatch) -> BatchReport:
        return self.writer.write(batch.frame(self.spark), batch.epoch)

    def rows(self, columns: list[str], *, by_spark: bool = True) -> list[tuple[Any, ...]]:
        """Of the current table, as delta-rs and Spark, which takes seconds, have them."""
        folder = self.lake.current(NAME)
        rows = sorted(lake_rows(folder).elements())
        if by_spark:
            frame = self.spark.read.format("delta").load(folder)
            assert frame.columns == [*columns, *HEADGATE_COLUMNS]
            assert sorted(tuple(row) for row in frame.drop(*HEADGATE_COLUMNS).collect()) == rows
        return rows

    def engines(self, folder: str) -> dict[str, set[str]]:
        """Who has made which kinds of commits."""
        operations: dict[str, set[str]] = {}
        for commit in sorted(Path(folder, "_delta_log").glob("*.json")):
            about = json.loads(commit.read_text().splitlines()[0])["commitInfo"]
            operations.setdefault(about["engineInfo"].split("/")[0], set()).add(about["operation"])
        return operations


@pytest.mark.long
@pytest.mark.parametrize("key", ["the id", "id"])
@pytest.mark.timeout(600)
def test_a_table_with_odd_names(spark: SparkSession, tmp_path: Path, key: str) -> None:
    """From the beginning, or since a column was added that has one; with rows that Spark has rewritten in between."""
    turns = Turns(spark, tmp_path)
    table = FakeTable(NAME, ((key, "bigint"), ("item", "string")), (key,))
    first = FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True)
    turns.write(first.chunk(table, [(n, f"first {n}") for n in range(6)]))
    assert turns.rows([key, "item"], by_spark=False) == [(n, f"first {n}") for n in range(6)]
    current, changelog = (f"delta.`{folder(NAME)}`" for folder in (turns.lake.current, turns.lake.changelog))

    wider = FakeTable(NAME, (*table.columns, ("price, each", "int")), (key,))
    changes = FakeBatch(2).images(table, [("b", 10, 1, "first 1"), ("u", 10, 1, "second"), ("d", 11, 2, "")])
    five = AddedColumn("price, each", nullable=False, default="5")
    changes.ddl(NAME, "ALTER TABLE odd ADD `price, each` INT NOT NULL DEFAULT 5", "alter", 20, adds=[five])
    changes.images(wider, [("c", 30, 7, "new", 70)])
    assert turns.write(changes).write_methods == {NAME: {WriteMethod.UPSERT}}
    expected = [(0, "first 0", 5), (1, "second", 5), *((n, f"first {n}", 5) for n in (3, 4, 5)), (7, "new", 70)]
    assert turns.rows([key, "item", "price, each"]) == expected

    for epoch, statement in ((3, f"OPTIMIZE {current}"), (4, f"REORG TABLE {current} APPLY (PURGE)")):
        spark.sql(statement).collect()
        more = FakeBatch(epoch)
        last = (7, "new", 70) if epoch == 3 else (8, "newer", 30)
        more.images(wider, [("b", 10, *last), ("u", 10, 8, "newer", 10 * epoch), ("d", 20, epoch, f"first {epoch}", 5)])
        assert turns.write(more).write_methods == {NAME: {WriteMethod.UPSERT}}
        expected = [row for row in expected if row[0] not in (7, 8, epoch)] + [(8, "newer", 10 * epoch)]
        assert turns.rows([key, "item", "price, each"], by_spark=epoch == 4) == expected
    spark.sql(f"OPTIMIZE {changelog}").collect()
    turns.write(FakeBatch(5).images(wider, [("d", 10, 5, "first 5", 5)]))
    images = logged(turns.lake.changelog(NAME), where="_op IN ('u', 'd')")
    assert [(row["_op"], row[key], row["_before"]) for row in images] == [
        ("u", 1, {key: 1, "item": "first 1", "price, each": None}),
        ("d", 2, None),
        ("u", 8, {key: 7, "item": "new", "price, each": 70}),
        ("d", 3, None),
        ("u", 8, {key: 8, "item": "newer", "price, each": 30}),
        ("d", 4, None),
        ("d", 5, None),
    ]
    assert refusal(turns.lake, NAME, spark.conf.get) is None
    for folder in (turns.lake.current(NAME), turns.lake.changelog(NAME)):
        engines = turns.engines(folder)
        assert engines["Apache-Spark"] <= {"OPTIMIZE", "REORG"}
    assert turns.engines(turns.lake.current(NAME))["headgate"] >= {"WRITE", "STREAMING UPDATE", "UPDATE"}


@pytest.mark.timeout(600)
def test_columns_are_dropped_and_renamed_without_a_write_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    turns = Turns(spark, tmp_path)
    table = FakeTable(NAME, (("id", "bigint"), ("an item", "string"), ("old", "int")))
    after = FakeTable(NAME, (("id", "bigint"), ("name", "string")))
    again = FakeTable(NAME, (*after.columns, ("old", "int")))
    turns.write(
        FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True).chunk(table, [(1, "a", 1), (2, "b", 2)])
    )
    files = {*Path(turns.lake.current(NAME)).glob("*.parquet")}
    changes = FakeBatch(2)
    dropped: list[ColumnChange] = [DroppedColumn("old"), RedefinedColumn("an item", "name")]
    changes.ddl(
        NAME, "ALTER TABLE odd DROP old, RENAME COLUMN `an item` TO name", "alter", 5, adds=dropped, schema=after
    )
    assert turns.write(changes).tables[NAME].state == "live"
    assert turns.rows(["id", "name"]) == [(1, "a"), (2, "b")]
    assert {*Path(turns.lake.current(NAME)).glob("*.parquet")} == files
    back = FakeBatch(3).images(after, [("b", 10, 1, "a"), ("u", 10, 1, "c")])
    back.ddl(NAME, "ALTER TABLE odd ADD old INT", "alter", 20, adds=[AddedColumn("old")])
    assert turns.write(back.images(again, [("c", 30, 3, "d", 3)])).tables[NAME].state == "live"
    assert turns.rows(["id", "name", "old"]) == [(1, "c", None), (2, "b", None), (3, "d", 3)]
    wider = FakeTable(NAME, (("id", "bigint"), ("item", "string"), ("old", "bigint")))
    both = [RedefinedColumn("old", "old", "bigint"), RedefinedColumn("name", "item")]
    last = FakeBatch(4).ddl(NAME, "ALTER TABLE odd ...", "alter", 5, adds=both, schema=wider)
    assert turns.write(last.images(wider, [("c", 30, 4, "e", 1 << 40)])).tables[NAME].state == "live"
    assert turns.rows(["id", "item", "old"]) == [(1, "c", None), (2, "b", None), (3, "d", 3), (4, "e", 1 << 40)]
