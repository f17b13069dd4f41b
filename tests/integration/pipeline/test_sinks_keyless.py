"""Tables without a key in `current`: the copy is the same multiset as the source, after every batch and replay."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from headgate.catalog import AddedColumn
from headgate.errors import TargetError
from headgate.lake import NO_KEY, WriteMethod
from headgate.sinks._keyless import _row_hash, plan_copies
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
    """The table's own columns; the copies of each row are numbered from 0 without gaps."""
    folder = bench.lake.current(NAME)
    names = [field.name for field in DeltaTable(folder).schema().fields if field.name not in ("_seq", "_gtid", "_ts")]
    stored = [*lake_rows(folder, [f'"{name}"' for name in names]).elements()]
    copies: dict[str, list[int]] = {}
    contents: dict[str, set[Row]] = {}
    for *content, row_hash, copy in stored:
        copies.setdefault(row_hash, []).append(copy)
        contents.setdefault(row_hash, set()).add(tuple(content))
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in copies.values())
    assert all(len(content) == 1 for content in contents.values())
    return sorted((tuple(row[:-2]) for row in stored), key=repr)


def read(*values: Row) -> FakeBatch:
    fake = FakeBatch(1).snapshot(NAME, 1, append=False, first=True, last=True)
    return fake.chunk(PAIRS, values)


def changes(epoch: int, *images: Row, file: int = 1) -> FakeBatch:
    return live(epoch, *images, table=PAIRS, file=file)


@pytest.mark.long
def test_equal_rows_are_counted_through_replays(bench: Bench) -> None:
    """`DELETE … LIMIT 1` takes one of two equal rows, an update changes one of two; then random changes, against a
    Counter. A batch killed between the merge and the ledger row is replayed, with other positions, to the same rows.
    """
    assert bench.write(read((1, 1), (1, 1), (2, 2), (2, 2))).write_methods == {NAME: {WriteMethod.OVERWRITE: ""}}
    assert rows(bench) == [(1, 1), (1, 1), (2, 2), (2, 2)]
    first = [("d", 10, 1, 1), ("b", 20, 2, 2), ("u", 20, 2, 3), ("c", 30, 4, None), ("c", 31, 4, None)]
    assert bench.write(changes(2, *first)).write_methods == {NAME: {WriteMethod.MERGE: NO_KEY}}
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
    waiting = FakeBatch(4).about(NAME, state="snapshotting", since_epoch=None)
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


def test_the_copies_of_many_contents_against_a_model(spark: SparkSession) -> None:
    choice = random.Random(11)
    cases = {f"h{i}": (choice.randrange(5), choice.randrange(-6, 6)) for i in range(300)}
    net = spark.createDataFrame(
        [(h, net, h) for h, (_, net) in cases.items()], "_row_hash string, _net int, _row string"
    )
    held = spark.createDataFrame([(h,) for h, (before, _) in cases.items() for _ in range(before)], "_row_hash string")
    planned = {row["_row_hash"]: (row["_before"], row["_after"]) for row in plan_copies(net, held).collect()}
    assert planned == {h: (before, before + net) for h, (before, net) in cases.items() if net}


def test_rows_that_differ_have_different_hashes(spark: SparkSession) -> None:
    ddl = (
        "a string, b string, n int, d double, x binary, t timestamp, u timestamp_ntz, day date, m decimal(10,2), "
        "g struct<srid:int,wkb:binary>, v array<float>"
    )
    when = datetime(2024, 3, 31, 0, 30, 0, 5)
    blank: dict[str, Any] = dict.fromkeys(("a", "b", "n", "d", "x", "t", "u", "day", "m", "g", "v"))
    differing: list[Any] = [
        {},
        *[{"a": text} for text in ("", "1", "1:b=1", "a", "é", "e\u0301", " ", "\0")],
        *[{"b": text} for text in ("", "1")],
        *[{"a": "x", "b": "yz"}, {"a": "xy", "b": "z"}, {"a": "1", "n": 1}, {"n": 1}, {"n": -1}, {"n": 11}],
        *[{"d": value} for value in (0.0, -0.0, 0.1, 0.1 + 2**-56, 1e300)],
        *[{"x": value} for value in (b"", b"\0", b"\0\0", b"1")],
        *[{"t": when.replace(tzinfo=UTC)}, {"t": when.replace(hour=1, tzinfo=UTC)}],
        *[{"u": when}, {"u": when.replace(microsecond=6)}, {"day": date(2024, 3, 31)}],
        *[{"m": Decimal("1.10")}, {"m": Decimal("11.00")}],
        *[{"g": (0, b"a")}, {"g": (1, b"a")}, {"g": (0, b"")}, {"v": [1.0, 2.0]}, {"v": [1.0]}, {"v": []}],
    ]
    frame = spark.createDataFrame([tuple({**blank, **row}.values()) for row in differing], ddl)
    hashes = [row[0] for row in frame.select(_row_hash(frame, frame.columns)).collect()]
    assert len(set(hashes)) == len(differing)
    assert all(len(text) == 32 for text in hashes)
    narrow = spark.createDataFrame([("x", "yz")], "b string, a string").select("b", "a").toDF("a", "b")
    assert (
        narrow.select(_row_hash(narrow, ["b", "a"])).collect()[0][0] == hashes[differing.index({"a": "x", "b": "yz"})]
    )
