"""Upkeep beside batches into real tables: folds of all kinds of tables, removal of all but the newest, and crashes."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.delta import RETENTION_PROPERTIES, TableLog, write_checkpoint
from headgate.lake import Lake, newest_row, read_as_of
from headgate.sinks import BatchWriter
from headgate.upkeep import UpkeepTimes
from headgate.upkeep import _upkeep as upkeep_module
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.outside import lake_rows, logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYED, KEYLESS, STILL = FakeTable("shop.orders"), FakeTable("shop.notes", key=()), FakeTable("shop.still")
TABLES = (KEYED, KEYLESS, STILL)


class Upkept:
    """A pipeline whose upkeep is done when the test says so."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.lake = spark, Lake.at(path)
        self.epoch = 0
        self.restart()

    def restart(self) -> None:
        self.writer = BatchWriter(self.spark, self.lake, "shop", ("current", "changelog"))
        self.writer.upkeep.times = UpkeepTimes(idle=0.0)

    def write(self, *tables: FakeTable) -> None:
        """A batch with a new row in each of these."""
        self.epoch += 1
        self.writer.write(self.batch(*tables).frame(self.spark), self.epoch)

    def batch(self, *tables: FakeTable) -> FakeBatch:
        batch = FakeBatch(self.epoch)
        for table in tables:
            if self.epoch == 1:
                batch.snapshot(table.name, 1, append=True, first=True, last=True).chunk(table, [(1, "row")])
            else:
                batch.images(table, [("c", 10, self.epoch, "row")])
        return batch

    def upkeep(self) -> None:
        upkeep = self.writer.upkeep
        assert upkeep is not None
        for _ in upkeep.round():
            pass
        while pending := [one.fold for one in upkeep.folds._prepared.values() if not one.fold.done()]:
            upkeep.background.tasks_pace.free_at = 0.0
            upkeep.background.submit(lambda: None)
            wait(pending, timeout=1)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """All current tables by the newest ledger row."""
        tables = newest_row(self.lake).tables
        return {
            name: sorted(lake_rows(self.lake.current(name), ["id", "item"], version=tables[name].version))
            for name in sorted(tables)
        }

    def logged(self, table: FakeTable) -> list[int]:
        version = newest_row(self.lake).tables[table.name].changelog_version
        return [row["id"] for row in logged(self.lake.changelog(table.name), version=version)]

    def files(self, folder: str) -> int:
        return len(TableLog(folder).refresh().files)


@pytest.mark.long
def test_folds_and_removal_beside_batches(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_FILES", 3), ("IDLE_FILES", 3)):
        monkeypatch.setattr(upkeep_module, name, value)
    made = Upkept(spark, tmp_path / "lake")
    for tables in (TABLES, TABLES, TABLES, (KEYED, KEYLESS)):
        made.write(*tables)
    folders = [made.lake.current(STILL.name), made.lake.current(KEYLESS.name), made.lake.changelog(KEYED.name)]
    assert min(made.files(folder) for folder in folders) >= 3
    made.upkeep()
    ready = {folder for folder, _ in made.writer.upkeep.folds.ready()}
    assert {*folders, made.lake.ledger} <= ready

    def crash(_row: object) -> None:
        raise InterruptedError("killed")

    monkeypatch.setattr(made.writer.ledger, "append", crash)
    with pytest.raises(InterruptedError):
        made.write(KEYED, KEYLESS)
    made.restart()
    made.epoch -= 1  # Spark does the batch again
    made.write(KEYED, KEYLESS)
    made.upkeep()
    made.write(KEYED)
    made.upkeep()
    made.write(KEYED)

    assert [made.files(folder) for folder in folders[:2]] == [1, 2], "four rows in one file, and one after the crash"
    newest = newest_row(made.lake)
    assert newest.tables[STILL.name].version == TableLog(folders[0]).refresh().version, "the fold was adopted"
    expected = {
        KEYLESS.name: [(n, "row") for n in range(1, 6)],
        KEYED.name: [(n, "row") for n in range(1, 8)],
        STILL.name: [(n, "row") for n in range(1, 4)],
    }
    assert made.rows() == expected
    assert sorted(lake_rows(made.lake.ledger, ["epoch"]).elements()) == [(epoch,) for epoch in range(1, 8)]

    for table in TABLES:
        write_checkpoint(made.lake.current(table.name))
    made.restart()
    assert made.writer.upkeep is not None
    made.writer.upkeep.times = UpkeepTimes(idle=0.0, orphan=-1.0)
    made.writer.upkeep._retention = -1.0  # everything is older than in a second
    made.upkeep()
    assert made.writer.upkeep.removed.files > 0
    for table in TABLES:
        folder = Path(made.lake.current(table.name))
        live = TableLog(str(folder)).refresh()
        assert {file.name for file in folder.glob("*.parquet")} == {file.name for file in live.files.values()}
        assert RETENTION_PROPERTIES.items() <= live.properties.items()
    spark.catalog.clearCache()
    assert made.rows() == expected
    by_spark = read_as_of(spark, made.lake.path)
    assert {name: sorted((row.id, row.item) for row in frame.collect()) for name, frame in by_spark.items()} == expected
    assert made.logged(KEYED) == list(range(1, 8))
    made.write(*TABLES)
    assert made.rows() == {name: [*values, (8, "row")] for name, values in expected.items()}
    assert made.logged(KEYLESS) == [1, 2, 3, 4, 5, 8]
    made.writer.close()
