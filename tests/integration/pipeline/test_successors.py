"""Tables that are made again beside the old ones: what readers see meanwhile, and what is left after a crash.

Batches are made by hand. Readers are not ours: delta-rs, Spark, DuckDB and Polars.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from headgate.decide import Policy
from headgate.delta import TableLog, data_files_in, files_of
from headgate.errors import TargetError
from headgate.lake import Lake, Place, newest_row, read_as_of
from headgate.sinks import BatchReport, BatchWriter
from headgate.upkeep import Maintenance, Upkeep, UpkeepTimes
from tests.fix_carrier import UUID, FakeBatch, FakeTable, crash_before_ledger
from tests.integration.outside import lake_rows
from tests.integration.pipeline.test_readers import READERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "shop.orders"
OLD = FakeTable(NAME)
RETYPED = FakeTable(NAME, (("id", "bigint"), ("item", "int")))
REKEYED = FakeTable(NAME, key=("item",))
KEYLESS = FakeTable(NAME, key=())
SPACED = FakeTable(NAME, (("the id", "bigint"), ("item", "int")), key=("the id",))
OLD_ROWS = [(number, f"old {number}") for number in range(20)]


class Bench:
    """One lake and the pipeline that writes it; ``restart`` forgets everything but the files."""

    def __init__(self, spark: SparkSession, path: Path, **options: Any) -> None:
        self.spark, self.lake, self.options = spark, Lake.at(path), options
        self.folder = self.lake.current(NAME)
        self.restart()
        first = FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True)
        self.write(first.chunk(OLD, OLD_ROWS))

    def restart(self) -> None:
        self.writer = BatchWriter(self.spark, self.lake, "shop", ("current",), **self.options)

    def write(self, batch: FakeBatch) -> BatchReport:
        return self.writer.write(batch.frame(self.spark), batch.epoch)

    def crash(self, batch: FakeBatch) -> None:
        crash_before_ledger(self.writer, lambda: self.write(batch))
        self.restart()

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that delta-rs reads at the table's path."""
        rows = lake_rows(self.folder)
        return sorted(rows.elements())

    def successors(self) -> list[str]:
        """The folders of successors, those with a log first."""
        names = [name for name in files_of(self.folder).folders() if name.startswith("_successor_")]
        return sorted(names, key=lambda name: not any(Path(self.folder, name, "_delta_log").iterdir()))


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path / "lake")


def reading(epoch: int, *, last: bool = False, since: int = 2) -> FakeBatch:
    return FakeBatch(epoch).snapshot(NAME, since, append=False, first=epoch == since, last=last)


def values(table: FakeTable, *numbers: int) -> list[tuple[Any, ...]]:
    return [tuple(f"new {one}" if kind == "string" else one for _, kind in table.columns) for one in numbers]


def changed(table: FakeTable, pos: int, op: str, number: int) -> tuple[Any, ...]:
    return (op, pos, *values(table, number)[0])


def batches(table: FakeTable) -> list[FakeBatch]:
    """A re-read in three batches, with changes of ranges that were read before."""
    changes = [changed(table, 10, "d", number) for number in range(0, 700, 2)]
    moved = [changed(table, 20, "b", 5), changed(table, 20, "u", 4000)]
    return [
        reading(2).chunk(table, values(table, *range(700))),
        reading(3).chunk(table, values(table, *range(700, 1400))).images(table, [*changes, *moved]),
        reading(4, last=True).chunk(table, values(table, 1400, 1401)).images(table, [changed(table, 5, "d", 7)]),
    ]


def result(table: FakeTable) -> list[tuple[Any, ...]]:
    return sorted(values(table, *({*range(1402), 4000} - {*range(0, 700, 2), 5, 7})))


def by_spark(bench: Bench) -> list[tuple[Any, ...]]:
    frame = bench.spark.read.format("delta").load(bench.folder).drop("_seq", "_gtid", "_ts", "_row_hash")
    return sorted(tuple(row) for row in frame.drop("_deleted").collect())


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(RETYPED, id="type"),
        pytest.param(REKEYED, id="key", marks=pytest.mark.long),
        pytest.param(SPACED, id="names", marks=pytest.mark.long),
    ],
)
def test_readers_see_the_old_table_until_the_new_one_is_complete(bench: Bench, table: FakeTable) -> None:
    for number, batch in enumerate(batches(table)):
        assert bench.rows() == OLD_ROWS
        state = bench.write(batch).tables[NAME]
        assert state.state == ("live" if number == 2 else "snapshotting")
        assert (state.successor is None) == (number == 2)
        assert state.version == DeltaTable(bench.folder).version()
    assert bench.rows() == by_spark(bench) == result(table)
    for batch_read in (1, 2, 3) if table is RETYPED else (3,):
        frame = read_as_of(bench.spark, bench.lake.path, batch=batch_read, states=("live", "snapshotting"))[NAME]
        assert sorted(tuple(row) for row in frame.drop("_seq", "_gtid", "_ts").collect()) == OLD_ROWS
    names = [name for name, _ in table.columns]
    for reader, read in READERS.items():
        if reader != "polars" or table is not SPACED:  # docs/reference/compatibility.md
            rows = read(bench.folder).select(names).to_pylist()
            assert sorted(tuple(row.values()) for row in rows) == result(table), reader


def test_a_table_is_made_again_twice(bench: Bench) -> None:
    """From names that files do not have to plain ones; the files of the first successor go."""
    for batch in batches(SPACED):
        bench.write(batch)
    version = DeltaTable(bench.folder).version()
    bench.write(reading(5, since=5).chunk(RETYPED, values(RETYPED, *range(600))))
    assert bench.rows() == result(SPACED)
    changes = [changed(RETYPED, 9, "d", number) for number in range(0, 600, 2)]
    bench.write(reading(6, last=True, since=5).images(RETYPED, changes))
    assert bench.rows() == by_spark(bench) == values(RETYPED, *range(1, 600, 2))
    assert sorted(lake_rows(bench.folder, version=version).elements()) == result(SPACED)
    for reader, read in READERS.items():
        if reader != "polars":  # the log still requires support of mapped names
            assert read(bench.folder).num_rows == 300, reader
    assert all(name.startswith("_successor_5_") for name in TableLog(bench.folder).refresh().files)


@pytest.mark.parametrize(
    "crashes", [{2, 3, 4}, *(pytest.param({epoch}, marks=pytest.mark.slow) for epoch in (2, 3, 4))], ids=str
)
def test_a_repeated_batch_goes_on_with_the_same_rows(bench: Bench, crashes: set[int]) -> None:
    for batch in batches(REKEYED):
        if batch.epoch in crashes:
            bench.crash(batch)
            assert bench.rows() == (OLD_ROWS if batch.epoch < 4 else result(REKEYED))
        assert bench.rows() == (result(REKEYED) if 4 in crashes and batch.epoch == 4 else OLD_ROWS)
        state = bench.write(batch).tables[NAME]
    assert bench.rows() == result(REKEYED)
    assert (state.state, state.version) == ("live", DeltaTable(bench.folder).version())


@pytest.mark.parametrize("table", [RETYPED, KEYLESS], ids=["type", "without a key"])
def test_a_re_read_in_one_batch_is_repeated(bench: Bench, table: FakeTable) -> None:
    batch = reading(2, last=True).chunk(table, values(table, *range(300)))
    bench.crash(batch)
    assert bench.rows() == sorted(values(table, *range(300)))
    state = bench.write(batch).tables[NAME]
    assert bench.rows() == by_spark(bench) == sorted(values(table, *range(300)))
    assert (state.state, state.successor) == ("live", None)


def test_a_batch_whose_last_chunk_is_not_the_last_when_repeated(bench: Bench) -> None:
    first, second, third = batches(RETYPED)
    for batch in (first, second):
        bench.write(batch)
    bench.crash(third)
    bench.write(reading(4, last=True).redo(NAME).images(RETYPED, [changed(RETYPED, 5, "d", 7)]))
    last = reading(5, last=True).chunk(RETYPED, values(RETYPED, 1400, 1401))
    assert bench.write(last).tables[NAME].state == "live"
    assert bench.rows() == by_spark(bench) == result(RETYPED)


def test_rows_that_settle_are_shown_when_they_are_exact(bench: Bench) -> None:
    batch = reading(2, last=True).chunk(RETYPED, values(RETYPED, 1, 2)).watermark(NAME, f"{UUID}:1-4")
    assert bench.write(batch).tables[NAME].state == "settling"
    assert bench.rows() == OLD_ROWS
    bench.write(FakeBatch(3).images(RETYPED, [changed(RETYPED, 5, "d", 1)]))
    assert bench.rows() == OLD_ROWS
    other = FakeBatch(4).images(FakeTable("shop.others"), [("c", 1, 1, "x")])
    assert bench.write(other).tables[NAME].state == "live"
    assert bench.rows() == values(RETYPED, 2)


def test_a_further_alter_gives_the_new_table_up(bench: Bench) -> None:
    first, _, _ = batches(RETYPED)
    bench.write(first)
    alter = FakeBatch(3).ddl(NAME, "ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (item)", "alter", 5)
    state = bench.write(alter).tables[NAME]
    assert (state.state, state.successor) == ("stale", None)
    again = reading(4, since=4).chunk(REKEYED, values(REKEYED, 1, 2))
    successor = bench.write(again).tables[NAME].successor
    assert successor is not None
    assert len(bench.successors()) == 2
    assert bench.rows() == OLD_ROWS
    upkeep(bench)
    assert bench.successors()[0] == successor.folder
    assert not any(Path(bench.folder, bench.successors()[1], "_delta_log").iterdir())
    bench.write(reading(5, last=True, since=4).chunk(REKEYED, values(REKEYED, 3)))
    assert bench.rows() == values(REKEYED, 1, 2, 3)


def test_a_dropped_table_keeps_its_rows(bench: Bench) -> None:
    bench.write(batches(RETYPED)[0])
    state = bench.write(FakeBatch(3).ddl(NAME, "DROP TABLE orders", "drop", 5)).tables[NAME]
    assert (state.state, state.successor) == ("dropped", None)
    assert bench.rows() == OLD_ROWS


def test_a_truncate_empties_the_new_table(bench: Bench) -> None:
    bench.write(batches(RETYPED)[0])
    truncate = reading(3).ddl(NAME, "TRUNCATE TABLE orders", "truncate", 5)
    bench.write(truncate.images(RETYPED, [changed(RETYPED, 9, "c", 5000)]))
    assert bench.rows() == OLD_ROWS
    bench.write(reading(4, last=True))
    assert bench.rows() == values(RETYPED, 5000)


def test_rows_that_are_lost_are_read_again(bench: Bench) -> None:
    state = bench.write(batches(RETYPED)[0]).tables[NAME]
    assert state.successor is not None
    Path(bench.folder, state.successor.folder).rename(bench.lake.path + "-lost")
    bench.restart()
    state = bench.write(reading(3).images(RETYPED, [changed(RETYPED, 5, "d", 1)])).tables[NAME]
    assert (state.state, state.successor) == ("stale", None)
    assert bench.rows() == OLD_ROWS
    bench.write(reading(4, last=True, since=4).chunk(RETYPED, values(RETYPED, 1)))
    assert bench.rows() == values(RETYPED, 1)


@pytest.mark.long
def test_a_table_that_only_spark_may_write_is_refused(bench: Bench) -> None:
    bench.spark.sql(f"ALTER TABLE delta.`{bench.folder}` SET TBLPROPERTIES ('delta.feature.rowTracking' = 'supported')")

    def write() -> None:
        for batch in batches(RETYPED):
            bench.write(batch)

    with pytest.raises(TargetError, match="requires of its writers what headgate does not support: remove"):
        write()
    assert bench.rows() == by_spark(bench) == OLD_ROWS


def test_a_shard_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    """The merged table has its old rows, too, until the shard is complete."""
    place = Place("shop.all", "a", "_shard")
    bench = Bench(spark, tmp_path / "lake", policy=lambda _table: replace(Policy.of(("current",)), place=place))
    bench.folder, merged = bench.lake.current(NAME, place), bench.lake.current("shop.all")
    for batch in batches(RETYPED):
        assert sorted(lake_rows(merged, ["id", "item"]).elements()) == OLD_ROWS
        bench.write(batch)
    assert bench.rows() == sorted(lake_rows(merged, ["id", "item"]).elements()) == result(RETYPED)
    bench.write(FakeBatch(5).images(RETYPED, [changed(RETYPED, 1, "d", 9)]))
    upkeep(bench)
    for reader, read in READERS.items():
        rows = read(merged).select(["id", "item"]).to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == bench.rows(), reader


@pytest.mark.long
@pytest.mark.parametrize("program", ["run", pytest.param("maintain", marks=pytest.mark.slow)])
def test_the_table_is_changed_and_maintained_afterwards(bench: Bench, program: str) -> None:
    """Upserts, other programs' OPTIMIZE and VACUUM, and the upkeep, which removes what is left of the old table."""
    for batch in batches(RETYPED):
        bench.write(batch)
    bench.write(FakeBatch(5).images(RETYPED, [changed(RETYPED, 1, "d", 9), changed(RETYPED, 2, "c", 6000)]))
    rows = sorted({*result(RETYPED), *values(RETYPED, 6000)} - {*values(RETYPED, 9)})
    assert bench.rows() == rows
    bench.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        bench.spark.sql(f"OPTIMIZE delta.`{bench.folder}`")
        bench.spark.sql(f"VACUUM delta.`{bench.folder}` RETAIN 0 HOURS")
    finally:
        bench.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert bench.rows() == by_spark(bench) == rows
    bench.restart()
    for epoch, number in ((6, 6001), (7, 6002)):
        bench.write(FakeBatch(epoch).images(RETYPED, [changed(RETYPED, 1, "c", number)]))
    rows = sorted([*rows, *values(RETYPED, 6001, 6002)])
    if program == "run":
        upkeep(bench)
    else:
        for _ in Maintenance(bench.lake, 0.0, "snappy", UpkeepTimes(0, 0, 0, 0), dry=False).tables():
            pass
    assert bench.rows() == by_spark(bench) == rows
    assert len(bench.successors()) == 1
    newest = DeltaTable(bench.folder)
    needed = {path.rpartition("/")[2] for path in newest.file_uris()}
    left = {file.name.rpartition("/")[2] for file in data_files_in(bench.folder) if file.name.endswith(".parquet")}
    assert left == needed, "what no version needs is removed, also in the folder of the successor"


def upkeep(bench: Bench) -> None:
    """Two rounds, in which everything is old."""
    row = newest_row(bench.lake)
    work = Upkeep(bench.lake, 0.0, times=UpkeepTimes(listing=0, orphan=0, idle=0, rest=0))
    work.note(row, 10)
    for _ in range(2):
        for _ in work.round():
            pass
    work.close()
