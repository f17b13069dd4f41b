"""Tables without a key in `current`: the copy is the same multiset as the source, after every batch and replay."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from headgate.catalog import AddedColumn
from headgate.delta import _commit
from headgate.errors import TargetError
from headgate.lake import WriteMethod
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.outside import lake_rows
from tests.integration.pipeline.test_sinks import Bench, live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIRS = FakeTable("shop.pairs", (("a", "int"), ("b", "int")), ())
NAME = PAIRS.name
Row = tuple[Any, ...]


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path / "lake", ("current",))


def rows(bench: Bench) -> list[Row]:
    """The table's own columns; equal rows have one hash, others have others."""
    folder = bench.lake.current(NAME)
    names = [field.name for field in DeltaTable(folder).schema().fields if field.name not in ("_seq", "_gtid", "_ts")]
    stored = [*lake_rows(folder, [f'"{name}"' for name in names]).elements()]
    hashes = {tuple(content): row_hash for *content, row_hash in stored}
    assert len(set(hashes.values())) == len(hashes)
    assert all(row_hash == hashes[tuple(content)] for *content, row_hash in stored)
    return sorted((tuple(row[:-1]) for row in stored), key=repr)


def read(*values: Row) -> FakeBatch:
    fake = FakeBatch(1).snapshot(NAME, 1, append=False, first=True, last=True)
    return fake.chunk(PAIRS, values)


def changes(epoch: int, *images: Row, file: int = 1) -> FakeBatch:
    return live(epoch, *images, table=PAIRS, file=file)


@pytest.mark.long
def test_equal_rows_are_counted_through_replays(bench: Bench) -> None:
    """`DELETE … LIMIT 1` takes one of two equal rows, an update changes one of two; then random changes, against a
    Counter. A batch killed between the table and the ledger row is replayed, with other positions, to the same rows.
    """
    assert bench.write(read((1, 1), (1, 1), (2, 2), (2, 2))).write_methods == {NAME: {WriteMethod.OVERWRITE}}
    assert rows(bench) == [(1, 1), (1, 1), (2, 2), (2, 2)]
    first = [("d", 10, 1, 1), ("b", 20, 2, 2), ("u", 20, 2, 3), ("c", 30, 4, None), ("c", 31, 4, None)]
    assert bench.write(changes(2, *first)).write_methods == {NAME: {WriteMethod.UPSERT}}
    held: Counter[Row] = Counter({(1, 1): 1, (2, 2): 1, (2, 3): 1, (4, None): 2})
    assert rows(bench) == sorted(held.elements(), key=repr)
    choice = random.Random(7)
    images: list[Row] = []
    for pos in range(200):
        new = (choice.randrange(3), choice.choice([None, 1]))
        old = choice.choice(sorted(held.elements(), key=repr)) if held.total() else None
        kind = choice.choice("cdu") if old is not None else "c"
        if kind != "c" and old is not None:
            held[old] -= 1
            images.append(("d" if kind == "d" else "b", pos, *old))
        if kind != "d":
            held[new] += 1
            images.append((kind, pos, *new))
    bench.crash_before_ledger(changes(3, *images))
    assert rows(bench) == sorted(held.elements(), key=repr)
    bench.write(changes(3, *images, file=0))
    assert rows(bench) == sorted(held.elements(), key=repr)
    gone = next(iter(held.elements()))
    with pytest.raises(TargetError, match=r"deletes \d+ rows \(a=.*--resnapshot 'shop\.pairs'"):
        bench.write(changes(4, *[("d", pos, *gone) for pos in range(held[gone] + 1)]))
    assert rows(bench) == sorted(held.elements(), key=repr)


def test_a_column_that_is_added_in_a_batch_without_changes(bench: Bench) -> None:
    wider = FakeTable(NAME, (("added", "string"), ("a", "int"), ("b", "int")), ())
    bench.write(read((1, 1), (1, 1)))
    statement = "ALTER TABLE pairs ADD added TEXT FIRST"
    batch = FakeBatch(2).ddl(NAME, statement, "alter", 20, adds=[AddedColumn("added")], schema=wider)
    bench.crash_before_ledger(batch)
    report = bench.write(batch)
    assert (report.tables[NAME].state, report.tables[NAME].version) == ("live", 2)
    assert rows(bench) == [(None, 1, 1), (None, 1, 1)]


@pytest.mark.long
def test_a_new_column_a_truncate_and_a_reread(bench: Bench) -> None:
    """An old row is found again by its hash when a nullable column is new; a chunk is the whole table."""
    wider = FakeTable(NAME, (("added", "string"), ("a", "int"), ("b", "int")), ())
    bench.write(read((1, 1), (1, 1)))
    batch = changes(2, ("d", 10, 1, 1)).images(wider, [("b", 30, None, 1, 1), ("u", 30, "x", 1, 1)])
    bench.write(batch.ddl(NAME, "ALTER TABLE pairs ADD added TEXT FIRST", "alter", 20, adds=[AddedColumn("added")]))
    assert rows(bench) == [("x", 1, 1)]
    images = [("d", 10, "x", 1, 1), ("c", 15, "x", 5, 5), ("t", 20), *[("c", pos, "x", 1, 1) for pos in (30, 31)]]
    batch = live(3, *images, table=wider).ddl(NAME, "TRUNCATE TABLE pairs", "truncate", 20)
    bench.crash_before_ledger(batch)
    bench.write(batch)
    assert rows(bench) == [("x", 1, 1), ("x", 1, 1)]
    # Rows may have changed unseen: one that the copy never had is no error, and takes nothing.
    waiting = FakeBatch(4).about(NAME, state="queued")
    bench.write(waiting.images(wider, [("d", 5, "x", 9, 9)]))
    assert rows(bench) == [("x", 1, 1), ("x", 1, 1)]
    again = FakeBatch(5).snapshot(NAME, 5, append=False, first=True, last=True)
    again.images(wider, [("d", 10, "x", 2, 2), ("c", 11, "x", 1, 1)])
    again.chunk(wider, [("x", 1, 1), ("y", 3, 3)]).chunk(wider, [("y", 3, 3)], start=2)
    report = bench.write(again)
    assert report.tables[NAME].state == "live"
    assert rows(bench) == [("x", 1, 1), ("y", 3, 3), ("y", 3, 3)]
    bench.write(FakeBatch(6).snapshot(NAME, 6, append=False, first=True, last=True).chunk(wider, []))
    assert rows(bench) == []


def test_a_truncate_that_a_replay_finds_elsewhere(bench: Bench) -> None:
    """The first try has rows of the batch whose positions are below the TRUNCATE's on the other server."""
    bench.write(read((1, 1), (2, 2)))
    for epoch, first, second in [(2, 1, 5), (3, 5, 1)]:
        images = [("c", 10, 3, 3), ("t", 20), ("c", 30, 4, epoch), ("c", 40, 4, epoch)]
        batches = [
            changes(epoch, *images, file=file).ddl(NAME, "TRUNCATE TABLE pairs", "truncate", 20, file=file)
            for file in (first, second)
        ]
        bench.crash_before_ledger(batches[0])
        assert bench.write(batches[1]).tables[NAME].state == "live"
        assert rows(bench) == [(4, epoch), (4, epoch)]


def test_tasks_write_a_whole_table(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of the reading replaces nothing."""
    monkeypatch.setattr("headgate.apply._expand._DRIVER_BYTES", 0)
    values = [(number % 7, None if number % 3 else 1) for number in range(50)]
    batch = FakeBatch(1).snapshot(NAME, 1, append=False, first=True, last=True)
    for start in range(0, 50, 10):
        batch.chunk(PAIRS, values[start : start + 10], start=start)
    bench.crash_before_ledger(batch)
    assert bench.write(batch).write_methods == {NAME: {WriteMethod.OVERWRITE}}
    assert rows(bench) == sorted(values, key=repr)
    bench.write(changes(2, ("d", 10, *values[0]), ("d", 11, *values[7]), ("c", 20, 0, 9)))
    left = Counter(values) - Counter([values[0], values[7]])
    assert rows(bench) == sorted([*left.elements(), (0, 9)], key=repr)


def test_another_program_commits_while_copies_are_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies are counted again, on its version."""
    bench.write(read((1, 1), (1, 1), (2, 2)), changes(2, ("c", 10, 1, 1)))
    overtaken: list[Any] = []
    make = _commit._make

    def overtake(*arguments: Any) -> Any:
        if not overtaken:
            overtaken.append(bench.spark.sql(f"OPTIMIZE delta.`{bench.lake.current(NAME)}`").collect())
        return make(*arguments)

    monkeypatch.setattr(_commit, "_make", overtake)
    bench.write(changes(3, ("d", 10, 1, 1), ("d", 11, 1, 1), ("d", 12, 2, 2), ("c", 13, 2, 3)))
    assert bench.operations(NAME)[-2:] == ["OPTIMIZE", "STREAMING UPDATE"]
    assert rows(bench) == [(1, 1), (2, 3)]
