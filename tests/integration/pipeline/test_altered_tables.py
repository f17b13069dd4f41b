"""Tables that another program altered so that headgate cannot write them: refused, until that is undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.control import Notification
from headgate.decide import Policy
from headgate.errors import TargetError
from headgate.lake import Lake, Place, TableChannel, newest_row
from headgate.sinks import BatchReport, BatchWriter
from tests.apply.altered import remove_requirement, require_more
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.outside import lake_dicts, lake_rows
from tests.integration.pipeline.test_sinks import NAME, ORDERS, Bench, first_read, live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYLESS = FakeTable(key=())
CURRENT = Policy.of(("current",))
RETYPED = FakeTable(columns=(("id", "bigint"), ("item", "int")))
REFUSED = (
    "headgate cannot write this table: it requires of its writers what headgate does not support: remove rowTracking"
)


def changes(table: FakeTable = ORDERS) -> FakeBatch:
    return live(2, ("c", 10, 3, "c"), ("d", 11, 1, "a"), table=table)


def re_read(epoch: int, *, last: bool) -> FakeBatch:
    batch = FakeBatch(epoch).snapshot(NAME, 2, append=False, first=epoch == 2, last=last)
    return batch.chunk(RETYPED, [(epoch, 1)])


def statement(epoch: int) -> FakeBatch:
    return FakeBatch(epoch).ddl(NAME, "ALTER TABLE orders COMMENT 'x'", "alter", 20, adds=[], schema=ORDERS)


def successor(lake: Lake) -> str:
    built = newest_row(lake).tables[NAME].successor
    assert built is not None
    return f"{lake.current(NAME)}/{built.folder}"


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    :param batches: those before it is altered, and the one that does not go into it.
    :param rows: how many it has at the end.
    :param policy: of the source table.
    :param folder: the altered table's.
    :param column: one of its columns.
    """

    batches: Callable[[], Sequence[FakeBatch]] = lambda: (first_read((1, "a"), (2, "b")), changes())
    rows: int = 2
    policy: Policy = CURRENT
    folder: Callable[[Lake], str] = lambda lake: lake.current(NAME)
    column: str = "id"

    def writer(self, bench: Bench) -> BatchWriter:
        return BatchWriter(bench.spark, bench.lake, "shop", bench.modes, policy=lambda _: self.policy)


KINDS = {
    "current": Kind(),
    "keyless": Kind(lambda: (first_read((1, "a"), (2, "b"), table=KEYLESS), changes(KEYLESS))),
    "marked": Kind(rows=3, policy=Policy.of(("current",), marks_deletes=True)),
    "history": Kind(rows=3, policy=Policy.of(("history",))),
    "changelog": Kind(rows=4, policy=Policy.of(("changelog",)), folder=lambda lake: lake.changelog(NAME)),
    "replaced": Kind(lambda: (first_read((1, "a"), (2, "b")), re_read(2, last=True)), rows=1),
    "successor": Kind(lambda: (first_read((1, "a")), re_read(2, last=False), re_read(3, last=True)), folder=successor),
    "merged": Kind(
        policy=replace(CURRENT, place=Place("shop.all", "a", "_shard")), folder=lambda lake: lake.current("shop.all")
    ),
    "ledger": Kind(folder=lambda lake: lake.ledger, column="epoch"),
    "schema history": Kind(
        lambda: (first_read((1, "a")), statement(2), statement(3)),
        folder=lambda lake: lake.schema_history,
        column="epoch",
    ),
}
AT_START = ("ledger", "schema history")
"""Tables of the pipeline itself, which a run looks at when it starts."""


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_is_refused_until_nothing_more_is_required(spark: SparkSession, tmp_path: Path, name: str) -> None:
    kind, bench = KINDS[name], Bench(spark, tmp_path / "lake", ("current", "changelog"))
    bench.writer = kind.writer(bench)
    *before, refused = kind.batches()
    bench.write(*before)
    folder = Path(kind.folder(bench.lake))
    require_more(folder)

    def content() -> list[Path]:
        return sorted([*folder.glob("*"), *folder.glob("_delta_log/*")])

    def write(*, is_new_run: bool) -> BatchReport:
        bench.writer = kind.writer(bench) if is_new_run else bench.writer
        return bench.write(refused)

    had = content()
    for is_new_run in (True,) if name in AT_START else (False, True):
        with pytest.raises(TargetError, match=f"{folder}: {REFUSED}"):
            write(is_new_run=is_new_run)
        assert content() == had
    remove_requirement(folder)
    assert write(is_new_run=True).tables[NAME].state == "live"
    shown = bench.lake.current(NAME) if name == "successor" else str(folder)
    assert lake_rows(shown, [kind.column]).total() == kind.rows


def test_a_run_refuses_a_table_before_its_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Also if no batch changes it."""
    bench = Bench(spark, tmp_path / "lake")
    bench.write(first_read((1, "a")))
    require_more(bench.lake.changelog(NAME))
    bench.restart()
    with pytest.raises(TargetError, match=f"{bench.lake.changelog(NAME)}: {REFUSED}"):
        bench.writer.check_targets(bench.spark, [NAME])
    remove_requirement(bench.lake.changelog(NAME))
    bench.writer.check_targets(bench.spark, [NAME])


def test_a_run_refuses_a_merged_table_before_its_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Else its batch's shards are written first, and messages sent."""
    kind, bench = KINDS["merged"], Bench(spark, tmp_path / "lake")
    bench.writer = kind.writer(bench)
    bench.write(first_read((1, "a")))
    merged = kind.folder(bench.lake)
    require_more(merged)
    bench.writer = kind.writer(bench)
    with pytest.raises(TargetError, match=f"{merged}: {REFUSED}"):
        bench.writer.check_targets(bench.spark, [NAME])
    remove_requirement(merged)
    bench.writer.check_targets(bench.spark, [NAME])


def test_a_run_refuses_what_the_session_gives_new_tables(spark: SparkSession, tmp_path: Path) -> None:
    bench, setting = Bench(spark, tmp_path / "lake"), "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
    spark.conf.set(setting, "true")
    try:
        with pytest.raises(TargetError, match=f"does not support: remove {setting}"):
            bench.writer.check_targets(bench.spark, [NAME])
    finally:
        spark.conf.unset(setting)
    bench.writer.check_targets(bench.spark, [NAME])


def test_the_table_of_notifications(spark: SparkSession, tmp_path: Path) -> None:
    """Its map is one that Spark reads."""
    lake = Lake.at(tmp_path / "lake")
    note = Notification("1", "a", "t", "x", {"k": "v"}, 1_700_000_000_000)
    for _ in range(2):
        TableChannel(spark, lake, "shop").send(3, [note])
    require_more(lake.notifications)
    with pytest.raises(TargetError, match=REFUSED):
        TableChannel(spark, lake, "shop").send(4, [note])
    remove_requirement(lake.notifications)
    TableChannel(spark, lake, "shop").send(4, [note])
    assert sorted(row["epoch"] for row in lake_dicts(lake.notifications, ["epoch"])) == [3, 4]
    read = spark.read.format("delta").load(lake.notifications).select("epoch", "additional_data").collect()
    assert sorted(tuple(row) for row in read) == [(3, {"k": "v"}), (4, {"k": "v"})]
