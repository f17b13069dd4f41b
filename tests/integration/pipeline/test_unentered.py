"""A batch that wrote tables, and whose ledger row and checkpoint are lost: the lake goes on as if it had never been."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decide import Policy
from headgate.lake import DeltaPath, Place, UnenteredBatches
from headgate.sinks import BatchWriter
from tests.fix_carrier import Crash, FakeBatch, FakeTable, crash_before_ledger
from tests.integration.outside import lake_dicts, operations
from tests.integration.pipeline.test_sinks import AFTER, BEFORE, CHANGES, NAME, ORDERS, Bench, first_read, live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYLESS = FakeTable(key=())


@dataclass
class Lost:
    """Two lakes: in one of them a batch is lost."""

    with_loss: Bench
    without: Bench

    def write(self, *batches: Callable[[], FakeBatch]) -> None:
        for batch in batches:
            self.with_loss.write(batch())
            self.without.write(batch())

    def lose(self, batch: FakeBatch, *tables: str) -> None:
        """Write a batch's tables to one lake, and start a new run, which looks at these tables."""
        self.with_loss.crash_before_ledger(batch)
        self.with_loss.writer.check_targets(self.with_loss.spark, tables)

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            for folder in ("current", "changelog"):
                paths = (getattr(bench.lake, folder)(table) for bench in (self.with_loss, self.without))
                one, other = (sorted(map(str, lake_dicts(path, ["*"]))) for path in paths)
                assert one == other, f"{folder} of {table}"


class Marking(Bench):
    """With tables in which deleted rows stay."""

    def restart(self) -> None:
        policy = Policy.of(self.modes, marks_deletes=True)
        self.writer = BatchWriter(self.spark, self.lake, "shop", self.modes, policy=lambda _: policy)


class Sharded(Bench):
    """With tables that are merged into ``shop.all``."""

    def restart(self) -> None:
        self.writer = BatchWriter(self.spark, self.lake, "shop", self.modes, policy=self.policy)

    def policy(self, table: str) -> Policy:
        return replace(Policy.of(self.modes), place=Place("shop.all", table.partition(".")[0], "_shard"))


def make(spark: SparkSession, path: Path, *modes: str, kind: type[Bench] = Bench) -> Lost:
    return Lost(kind(spark, path / "with_loss", modes), kind(spark, path / "without", modes))


def resumed(epoch: int, *images: tuple[Any, ...], after: int, table: FakeTable = ORDERS) -> FakeBatch:
    """A batch of a stream that begins at the ledger's newest row."""
    return FakeBatch(epoch, start_epoch=after).images(table, images)


@pytest.mark.parametrize(
    ("mode", "kind", "table"),
    [
        pytest.param("current", Bench, ORDERS, id="current"),
        pytest.param("current", Bench, KEYLESS, id="keyless"),
        pytest.param("current", Marking, ORDERS, id="marked"),
        pytest.param("history", Bench, ORDERS, id="history"),
    ],
)
def test_a_lost_batch_leaves_nothing(
    spark: SparkSession, tmp_path: Path, mode: str, kind: type[Bench], table: FakeTable
) -> None:
    """The next batch ends before the lost one did."""
    lakes = make(spark, tmp_path, mode, "changelog", kind=kind)
    first, second = ("c", 10, 4, "d"), ("d", 20, 1, "a")
    lakes.write(lambda: first_read((1, "a"), (2, "b"), table=table), lambda: live(2, ("c", 5, 3, "c"), table=table))
    lakes.lose(live(3, first, second, ("b", 30, 2, "b"), ("u", 30, 2, "never"), table=table), NAME)
    lakes.write(lambda: resumed(10, first, after=2, table=table))
    lakes.assert_equal(NAME)
    lakes.write(lambda: resumed(11, second, after=10, table=table))
    lakes.assert_equal(NAME)


def test_without_writes_of_the_next_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The ledger's versions have the rows of before, of tables that only the lost batch wrote, too."""
    lakes = make(spark, tmp_path, "current", "changelog")
    others = FakeTable("shop.others")
    lakes.write(
        lambda: first_read((1, "a")),
        lambda: FakeBatch(2).snapshot(others.name, 2, append=True, first=True, last=True).chunk(others, [(7, "x")]),
    )
    lost = live(3, ("c", 10, 2, "b")).images(others, [("c", 11, 8, "y")])
    lakes.lose(lost, NAME, others.name)
    lakes.write(lambda: resumed(10, ("c", 10, 2, "b"), after=2))
    lakes.assert_equal(NAME, others.name)
    state = lakes.with_loss.writer.ledger.tables()[others.name]
    assert (state.version, state.changelog_version) == (
        lakes.with_loss.version(others.name),
        DeltaPath(spark, lakes.with_loss.lake.changelog(others.name)).version(),
    )


def test_a_merged_table_shows_the_restored_shards(spark: SparkSession, tmp_path: Path) -> None:
    """Although the next batch names all of them, and writes none."""
    lakes, shards = make(spark, tmp_path, "current", kind=Sharded), [FakeTable("a.orders"), FakeTable("b.orders")]

    def first() -> FakeBatch:
        fake = FakeBatch(1)
        for shard in shards:
            fake.snapshot(shard.name, 1, append=True, first=True, last=True).chunk(shard, [(1, "a")])
        return fake

    def statements() -> FakeBatch:
        fake = FakeBatch(10, start_epoch=1)
        for shard in shards:
            fake.ddl(shard.name, "ALTER TABLE orders ADD INDEX (item)", "alter", 10, adds=[])
        return fake

    lakes.write(first)
    lakes.lose(FakeBatch(2).images(shards[0], [("c", 10, 2, "lost")]), *(shard.name for shard in shards))
    lakes.write(statements)
    shown = [
        sorted((row["_shard"], row["id"]) for row in lake_dicts(one.lake.current("shop.all")))
        for one in (lakes.with_loss, lakes.without)
    ]
    assert shown == [[("a", 1), ("b", 1)]] * 2


def test_a_table_that_the_ledger_lacks(spark: SparkSession, tmp_path: Path) -> None:
    lakes, new = make(spark, tmp_path, "current", "changelog"), FakeTable("shop.new")
    lakes.write(lambda: first_read((1, "a")))

    def batch(epoch: int) -> FakeBatch:
        made = FakeBatch(epoch, start_epoch=1).snapshot(new.name, epoch, append=False, first=True, last=True)
        return made.images(new, [("c", 10, 5, "e")]).chunk(new, [(5, "e")])

    lakes.lose(batch(2), NAME, new.name)
    lakes.write(lambda: batch(10))
    lakes.assert_equal(NAME, new.name)


def test_a_first_batch_that_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """The ledger has no row."""
    lakes = make(spark, tmp_path, "current", "changelog")

    def batch(epoch: int, *values: tuple[int, str]) -> FakeBatch:
        made = FakeBatch(epoch, start_epoch=0).snapshot(NAME, epoch, append=False, first=True, last=True)
        return made.images(ORDERS, [("c", epoch, 5, "e")]).chunk(ORDERS, values)

    lakes.lose(batch(2, (1, "a"), (2, "b")), NAME)
    assert lakes.with_loss.writer.newest_epoch(spark) == 2
    lakes.write(lambda: batch(10, (1, "a")))
    lakes.assert_equal(NAME)


def test_a_lost_statement(spark: SparkSession, tmp_path: Path) -> None:
    lakes = make(spark, tmp_path, "current", "changelog")

    def altered(epoch: int) -> FakeBatch:
        fake = resumed(epoch, ("b", 10, 1, 1, "a", "x"), ("u", 10, 1, -1, "a2", "y"), after=1, table=BEFORE)
        fake.images(AFTER, [("c", 30, 3, 1 << 40, "c")])
        return fake.ddl(NAME, "ALTER TABLE orders ...", "alter", 20, adds=CHANGES, schema=AFTER)

    lakes.write(lambda: first_read((1, 1, "a", "x"), (2, None, None, "x"), table=BEFORE))
    lakes.lose(altered(2), NAME)
    lakes.write(lambda: altered(10))
    lakes.assert_equal(NAME)
    statements = lake_dicts(lakes.with_loss.lake.schema_history, ["epoch", "statement"])
    assert statements == lake_dicts(lakes.without.lake.schema_history, ["epoch", "statement"])


def test_killed_while_it_is_undone(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lakes = make(spark, tmp_path, "current", "changelog")
    image = ("c", 10, 4, "d")
    lakes.write(lambda: first_read((1, "a")))
    lakes.lose(live(2, image), NAME)
    restore, restored = UnenteredBatches._restore, list[str]()

    def killed(batches: UnenteredBatches, delta: DeltaPath, version: int, remedy: str) -> int:
        restored.append(delta.path)
        if len(restored) > 1:
            raise Crash
        return restore(batches, delta, version, remedy)

    with monkeypatch.context() as patch:
        patch.setattr(UnenteredBatches, "_restore", killed)
        with pytest.raises(Crash):
            lakes.with_loss.write(resumed(10, image, after=1))
    lakes.with_loss.restart()
    lakes.with_loss.writer.check_targets(spark, [NAME])
    crash_before_ledger(lakes.with_loss.writer, lambda: lakes.with_loss.write(resumed(10, image, after=1)))
    lakes.with_loss.restart()
    lakes.with_loss.writer.check_targets(spark, [NAME])
    before = operations(lakes.with_loss.lake.changelog(NAME))
    lakes.write(lambda: resumed(10, image, after=1))
    assert operations(lakes.with_loss.lake.changelog(NAME)) == before  # a replay restores nothing
    lakes.assert_equal(NAME)
