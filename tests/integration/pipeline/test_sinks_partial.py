"""Images that leave columns out (`binlog_row_image` MINIMAL or NOBLOB), made by hand, into real Delta tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import DecodeError
from headgate.lake import DeltaPath, WriteMethod
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.outside import logged
from tests.integration.pipeline.test_sinks import Bench, live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOODS = FakeTable("shop.goods", (("id", "bigint"), ("item", "string"), ("n", "int")))
NAME = GOODS.name


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path / "lake", ("current",))


def read(*rows: tuple[Any, ...], epoch: int = 1, **place: bool) -> FakeBatch:
    fake = FakeBatch(epoch).snapshot(NAME, 1, append=False, **place)
    return fake.chunk(GOODS, rows)


@pytest.mark.long
def test_partial_updates_through_replays(spark: SparkSession, tmp_path: Path) -> None:
    """Of one row twice, of rows that swap their keys, of a key that changes twice; a batch killed between the table and
    the ledger row is replayed, with other positions, to the same rows.
    """
    bench = Bench(spark, tmp_path / "lake")
    bench.write(read((1, "a", 10), (2, "b", 20), (3, "c", 30), (4, "d", 40), first=True, last=True))
    images = [
        *[("u", 10, 1, "A", ...), ("u", 11, 1, "AA", ...)],
        *[("b", 20, 2, ..., ...), ("u", 20, 9, ..., ...), ("b", 21, 3, ..., ...), ("u", 21, 2, ..., ...)],
        *[("b", 22, 9, ..., ...), ("u", 22, 3, ..., ...)],
        *[("b", 30, 4, ..., ...), ("u", 30, 5, "E", ...), ("b", 31, 5, ..., ...), ("u", 31, 6, ..., None)],
        *[("c", 50, 7, "g", 0), ("u", 51, 7, ..., 70)],
    ]
    bench.crash_before_ledger(live(2, *images, table=GOODS))
    expected = [(1, "AA", 10), (2, "c", 30), (3, "b", 20), (6, "E", None), (7, "g", 70)]
    assert bench.rows(NAME) == expected
    report = bench.write(live(2, *images, table=GOODS, file=0))
    assert report.write_methods == {NAME: {WriteMethod.UPSERT}}
    assert bench.rows(NAME) == expected
    rows = logged(bench.lake.changelog(NAME), where="_seq['epoch'] = 2")
    assert [*rows[0]][-2:] == ["_before", "_absent"]
    log = [(row["_op"], row["id"], row["_before"] and row["_before"]["id"], row["_absent"]) for row in rows]
    both = ["item", "n"]
    assert log == [
        *[("u", 1, None, ["n"]), ("u", 1, None, ["n"]), ("u", 9, 2, both), ("u", 2, 3, both), ("u", 3, 9, both)],
        *[("u", 5, 4, ["n"]), ("u", 6, 5, ["item"])],
        *[("c", 7, None, None), ("u", 7, None, ["item"])],
    ]


def test_partial_images_come_to_a_changelog_of_whole_ones(spark: SparkSession, tmp_path: Path) -> None:
    """A killed batch is replayed to the same rows."""
    bench = Bench(spark, tmp_path / "lake", ("changelog",))
    bench.write(read((1, "a", 10), (2, "b", 20), first=True, last=True))
    bench.write(live(2, ("b", 10, 1, "a", 10), ("u", 10, 1, "A", 10), ("c", 20, 3, "c", 30), table=GOODS))
    images = [
        *[("u", 10, 1, ..., 11), ("b", 20, 2, ..., ...), ("u", 20, 9, ..., ...), ("c", 30, 4, "d", 40)],
        *[("d", 40, 3, ..., ...), ("b", 50, 4, "d", 40), ("u", 50, 4, "D", 40)],
    ]
    bench.crash_before_ledger(live(3, *images, table=GOODS))
    bench.write(live(3, *images, table=GOODS))
    bench.write(live(4, ("d", 10, 4, "D", 40), table=GOODS))
    rows = logged(bench.lake.changelog(NAME))
    assert [*rows[0]] == ["_op", "_seq", "_gtid", "_ts", "id", "item", "n", "_before", "_absent"]
    log = [(row["_op"], row["id"], row["item"], row["n"], row["_absent"]) for row in rows]
    assert log == [
        *[("r", 1, "a", 10, None), ("r", 2, "b", 20, None), ("u", 1, "A", 10, None), ("c", 3, "c", 30, None)],
        *[("u", 1, None, 11, ["item"]), ("u", 9, None, None, ["item", "n"]), ("c", 4, "d", 40, None)],
        *[("d", 3, None, None, ["item", "n"]), ("u", 4, "D", 40, None), ("d", 4, "D", 40, None)],
    ]
    befores = [tuple(row["_before"].values()) for row in rows if row["_before"] is not None]
    assert befores == [(1, "a", 10), (2, None, None), (4, "d", 40)]
    version = bench.writer.ledger.tables()[NAME].changelog_version
    assert version == DeltaPath(spark, bench.lake.changelog(NAME)).version()


def test_a_truncate_leaves_nothing_to_keep_and_a_row_that_was_read_wins(bench: Bench) -> None:
    bench.write(read((1, "a", 10), (2, "b", 20), first=True, last=True))
    images = [("u", 5, 1, "x", ...), ("t", 10), ("c", 30, 3, "c", 3), ("u", 40, 3, ..., 33)]
    batch = live(2, *images, table=GOODS).ddl(NAME, "TRUNCATE TABLE goods", "truncate", 10)
    bench.write(batch)
    assert bench.rows(NAME) == [(3, "c", 33)]
    again = FakeBatch(3).snapshot(NAME, 2, append=False, last=True).images(GOODS, [("u", 5, 3, "z", ...)])
    bench.write(again.chunk(GOODS, [(3, "read", 1)]))
    assert bench.rows(NAME) == [(3, "read", 1)]


def test_a_key_that_comes_out_of_an_unread_range_has_the_table_read_again(bench: Bench) -> None:
    """Its other columns are nowhere: not in the log, and no later chunk holds the old key."""
    bench.write(read((1, "a", 10), first=True))
    report = bench.write(FakeBatch(2).snapshot(NAME, 1, append=False).images(GOODS, [("u", 10, 70, "unread", ...)]))
    assert report.tables[NAME].state == "snapshotting"  # its range is read later
    moved = [("b", 10, 50, ..., ...), ("u", 10, 0, "moved", ...)]
    report = bench.write(FakeBatch(3).snapshot(NAME, 1, append=False).images(GOODS, moved))
    assert (report.tables[NAME].state, report.tables[NAME].held_epoch) == ("stale", 3)
    signal = bench.writer.inbox.read("signals/ddl-3-shop-002egoods.json")
    assert signal is not None
    assert (signal["type"], signal["tables"]) == ("resnapshot", [NAME])
    assert bench.rows(NAME) == [(1, "a", 10)]


def test_a_key_out_of_an_unread_range_of_a_suspended_table_brings_no_outdated_values(bench: Bench) -> None:
    """The lake has a row at the old key, from before the suspension: it lacks the changes that were left out."""
    bench.write(read((1, "a", 10), (900, "b", 20), first=True, last=True))
    altered = live(2, ("u", 1, 900, "left out", 21), table=GOODS)
    assert bench.write(altered.ddl(NAME, "ALTER TABLE goods FORCE", "alter", 5)).tables[NAME].state == "stale"
    begun = FakeBatch(3).snapshot(NAME, 3, append=False, first=True).chunk(GOODS, [(1, "a", 10)])
    assert bench.write(begun).tables[NAME].state == "snapshotting"
    moved = [("b", 10, 900, ..., ...), ("u", 10, 5, ..., 22)]
    report = bench.write(FakeBatch(4).snapshot(NAME, 3, append=False).images(GOODS, moved))
    assert (report.tables[NAME].state, report.tables[NAME].held_epoch) == ("stale", 4)
    assert 5 not in {row[0] for row in bench.rows(NAME)}


def test_a_live_table_that_lacks_a_row_is_read_again(bench: Bench) -> None:
    """The log changes a row that the table, which promises to have all of them, does not have."""
    bench.write(read((1, "a", 10), first=True, last=True))
    report = bench.write(live(2, ("u", 10, 77, ..., 0), table=GOODS))
    assert (report.tables[NAME].state, report.tables[NAME].held_epoch) == ("stale", 2)
    assert bench.writer.inbox.read("signals/ddl-2-shop-002egoods.json") is not None


def test_a_row_that_changes_its_range_of_a_surrogate_key_is_read(bench: Bench) -> None:
    """It comes from an unread range into one that was read: no later chunk has it, though its key is the same."""
    snapshot = {"state": "reading", "since_epoch": 1, "surrogate": True}
    bench.write(FakeBatch(1).about(NAME, **snapshot, first=True).chunk(GOODS, [(1, "a", 10)]))
    images = [("u", 10, 900, ..., 5)]
    report = bench.write(FakeBatch(2).about(NAME, **snapshot).images(GOODS, images))
    assert (report.tables[NAME].state, report.tables[NAME].held_epoch) == ("stale", 2)


def test_a_table_without_a_key_has_whole_images(bench: Bench) -> None:
    keyless = FakeTable(NAME, GOODS.columns, ())
    bench.write(FakeBatch(1).create(NAME).images(keyless, [("c", 1, 1, "a", 1)]))
    with pytest.raises(DecodeError, match="partial"):
        bench.write(live(2, ("b", 1, 1, "a", 1), ("u", 1, 1, "b", ...), table=keyless))
