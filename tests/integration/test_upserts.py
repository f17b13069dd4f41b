"""Rows that are found by index and taken out by deletion vectors, beside a MERGE of the same batches."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headgate.delta import commit
from headgate.lake import DeltaPath, Lake, Upserts, Way, merge_reason
from headgate.sinks import BatchReport, BatchWriter
from tests.fix_carrier import FakeBatch, FakeTable, crash_before_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "shop.t"
KEYS: dict[str, tuple[tuple[str, ...], Callable[[int], Any]]] = {
    "number": (("bigint",), lambda n: (n * 3 - 90,)),
    "unsigned": (("decimal(20,0)",), lambda n: (Decimal(n if n % 2 else 2**64 - 1 - n),)),
    "decimal": (("decimal(12,3)",), lambda n: (Decimal(n * 7 - 200) / 1000,)),
    "text": (("string",), lambda n: ("ключ" * (n % 11) + str(n),)),
    "binary": (("binary",), lambda n: ((n * 2654435761 % 2**32).to_bytes(16, "big"),)),
    "day": (("date",), lambda n: (date(1960, 1, 1) + timedelta(days=n * 97),)),
    "moment": (
        ("timestamp_ntz",),
        lambda n: (datetime(1969, 12, 31, 23, 59, 59) + timedelta(microseconds=n * 50_001),),
    ),
    "float": (("double",), lambda n: ((n - 30) / 4 if n != 30 else -0.0,)),
    "composite": (("int", "string", "boolean"), lambda n: (n % 5, f"k{n // 5}", n % 2 == 0)),
    "texts": (("string", "string"), lambda n: ("a" * (n % 4), "a" * (n // 4))),
}


def table_of(kinds: Sequence[str], *, wide: bool) -> FakeTable:
    """With its key at the end, so that with many columns Delta's own statistics leave it out."""
    key = tuple((f"k{i}", kind) for i, kind in enumerate(kinds))
    more = tuple((f"c{i}", "int") for i in range(40)) if wide else ()
    return FakeTable(NAME, (("v", "string"), *more, *key), tuple(name for name, _ in key))


@dataclass
class History:
    """Random batches of one table: each is what the log of one moment to another could hold."""

    choice: random.Random
    table: FakeTable
    make: Callable[[int], Any]
    rows: dict[int, str] = field(default_factory=dict)
    epoch: int = 1
    pos: int = 0

    def values(self, n: int, value: str) -> tuple[Any, ...]:
        middle = [len(value)] * (len(self.table.columns) - 1 - len(self.table.key))
        return (value, *middle, *self.make(n))

    def images(self, count: int) -> list[tuple[Any, ...]]:
        """Changes of the rows there are."""
        found: list[tuple[Any, ...]] = []
        for _ in range(count):
            self.pos += 10
            n, value = self.choice.randrange(60), f"v{self.epoch}.{self.pos}"
            if n not in self.rows:
                found.append(("c", self.pos, *self.values(n, value)))
                self.rows[n] = value
                continue
            old = self.values(n, self.rows[n])
            free = [m for m in range(60) if m not in self.rows]
            kind = self.choice.choice(["update", "update", "delete", "move"])
            if kind == "delete" or not free:
                found.append(("d", self.pos, *old))
                del self.rows[n]
                continue
            to = self.choice.choice(free) if kind == "move" else n
            found += [("b", self.pos, *old), ("u", self.pos, *self.values(to, value))]
            del self.rows[n]
            self.rows[to] = value
        return found

    def next(self) -> FakeBatch:
        self.epoch += 1
        batch = FakeBatch(self.epoch)
        kind = self.choice.choice(["changes"] * 5 + ["reread", "truncate"])
        if kind == "reread":
            batch.snapshot(NAME, self.epoch, append=False, first=True, last=True)
            self.add(batch, self.choice.randrange(1, 8))
            return batch.chunk(self.table, [self.values(n, value) for n, value in sorted(self.rows.items())])
        self.add(batch.live(NAME), self.choice.randrange(1, 25))
        if kind == "truncate":
            self.pos += 10
            self.rows.clear()
            batch.images(self.table, [("t", self.pos)]).ddl(NAME, "TRUNCATE TABLE t", "truncate", self.pos)
            self.add(batch, self.choice.randrange(1, 12))
        return batch

    def add(self, batch: FakeBatch, count: int) -> None:
        """Changes, in several rows of the carrier, which Spark may give to several tasks."""
        images = self.images(count)
        while images:
            size = self.choice.randrange(1, len(images) + 1)
            batch.images(self.table, images[:size])
            images = images[size:]

    def first(self) -> FakeBatch:
        self.rows = {n: f"first {n}" for n in range(60) if self.choice.random() < 0.6}
        batch = FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True)
        return batch.chunk(self.table, [self.values(n, value) for n, value in sorted(self.rows.items())])


class Copy:
    """One lake; ``upserts`` as they are, or MERGE for all batches."""

    def __init__(self, spark: SparkSession, path: Path, *, upserts: bool) -> None:
        self.spark, self.lake, self.upserts, self.path = spark, Lake.at(path / "lake"), upserts, path
        self.runs = 0
        self.restart()

    def restart(self) -> None:
        """Begin again with the files alone; without key indexes every other time."""
        self.runs += 1
        self.writer = BatchWriter(self.spark, self.lake, "shop", ("current",))
        self.writer._upserts = Upserts(self.path / f"keys{self.runs // 2}") if self.upserts else None

    def write(self, batch: FakeBatch) -> BatchReport:
        return self.writer.write(batch.frame(self.spark), batch.epoch)

    def fold(self) -> None:
        """Wait until a fold that is being prepared can be committed, and let the next one begin at any time."""
        if self.writer._upserts is not None:
            folds = self.writer._upserts._folds
            folds.background.free_at = 0.0
            wait([one.fold for one in folds._prepared.values()])

    def crash(self, batch: FakeBatch) -> None:
        crash_before_ledger(self.writer, lambda: self.write(batch))
        self.restart()

    def delta(self) -> DeltaPath:
        return DeltaPath(self.spark, self.lake.current(NAME))

    def log(self) -> list[str]:
        """The actions of all commits."""
        return [
            line
            for path in sorted(Path(self.delta().path, "_delta_log").glob("*.json"))
            for line in path.read_text().splitlines()
        ]

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.delta().read().collect()), key=repr)

    def operations(self) -> list[str]:
        return [row["operation"] for row in self.spark.sql(f"DESCRIBE HISTORY {self.delta().sql}").collect()]


def first_two(table: FakeTable) -> FakeBatch:
    return FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True).chunk(table, [(1, "a"), (2, "b")])


def foreign(spark: SparkSession, copy: Copy, choice: random.Random) -> None:
    """What other writers do to files and vectors without a change of rows."""
    table = copy.delta().sql
    spark.sql(choice.choice([f"OPTIMIZE {table}", f"REORG TABLE {table} APPLY (PURGE)"]))


SEEDS = [3, 8, *(pytest.param(n, marks=pytest.mark.slow) for n in range(120) if n not in (3, 8))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(600)
def test_the_table_is_the_one_that_a_merge_makes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Row by row with ``_seq``, beside replays at other positions, re-reads, TRUNCATE, OPTIMIZE, lost indexes and the
    folding of small files; some batches are written by tasks, whose shares have images of the same keys.
    """
    monkeypatch.setattr("headgate.delta._fold._FILES", 2)
    choice = random.Random(seed)
    kinds, make = list(KEYS.values())[seed % len(KEYS)]
    history = History(choice, table_of(kinds, wide=seed % 3 == 1), make)
    ours, merged = (Copy(spark, tmp_path / name, upserts=name == "ours") for name in ("ours", "merged"))
    first = history.first()
    ours.write(first)
    merged.write(first)
    for _ in range(4):
        batch = history.next()
        monkeypatch.setattr("headgate.sinks._carrier._SENT_BYTES", choice.choice([0, 128 << 20]))
        for copy in (ours, merged):
            if batch.epoch % 3 == 0:
                copy.crash(batch)
            copy.write(batch)
        if choice.random() < 0.3:
            foreign(spark, ours, choice)
        if choice.random() < 0.7:
            ours.fold()
        found = ours.rows()
        assert found == merged.rows()
        assert sorted(row[0] for row in found) == sorted(history.rows.values())
    assert "STREAMING UPDATE" in ours.operations()
    assert "MERGE" not in ours.operations()
    assert "MERGE" in merged.operations()
    _read_by_others(ours, found)


def _read_by_others(copy: Copy, rows: list[tuple[Any, ...]]) -> None:
    """By a reader that is neither Spark nor ours."""
    table = DeltaTable(copy.lake.current(NAME))
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT v FROM t").read_all())
    assert sorted(found["v"].to_pylist()) == sorted(row[0] for row in rows)


def test_a_replay_from_another_server_takes_out_what_the_first_try_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """There the same changes have other positions, in files with greater or smaller numbers."""
    table = FakeTable(NAME)
    for number, file in enumerate([1, 2, 5]):
        copy = Copy(spark, tmp_path / str(number), upserts=True)
        copy.write(
            FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True).chunk(table, [(1, "a"), (2, "b")])
        )
        images = [("b", 10, 1, "a"), ("u", 10, 1, "A"), ("d", 20, 2, "b"), ("c", 30, 3, "c")]
        copy.crash(FakeBatch(2).live(NAME).images(table, images, file=2))
        copy.write(FakeBatch(2).live(NAME).images(table, images, file=file))
        assert [(row["id"], row["item"]) for row in copy.delta().read().orderBy("id").collect()] == [(1, "A"), (3, "c")]


def test_a_commit_in_between_is_a_conflict_and_the_keys_are_looked_up_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = FakeTable(NAME)
    copy = Copy(spark, tmp_path, upserts=True)
    copy.write(first_two(table))
    copy.write(FakeBatch(2).live(NAME).images(table, [("c", 10, 3, "c")]))

    compacted: list[Any] = []

    def overtaken(*args: Any, **options: Any) -> None:
        if not compacted:
            compacted.append(spark.sql(f"OPTIMIZE {copy.delta().sql}").collect())
        commit(*args, **options)

    monkeypatch.setattr("headgate.lake._upsert.commit", overtaken)
    copy.write(FakeBatch(3).live(NAME).images(table, [("b", 10, 1, "a"), ("u", 10, 1, "A"), ("d", 20, 3, "c")]))
    assert [(row["id"], row["item"]) for row in copy.delta().read().orderBy("id").collect()] == [(1, "A"), (2, "b")]
    assert copy.operations()[:2] == ["STREAMING UPDATE", "OPTIMIZE"]
    files = {Path(file).name for file in copy.delta().read().inputFiles()}
    known = {json.loads(line)["add"]["path"] for line in copy.log() if line.startswith('{"add"')}
    assert {file.name for file in Path(copy.delta().path).glob("*.parquet")} <= known, (
        "nothing of the first try is left"
    )
    assert files <= known


def test_small_files_are_folded_beside_the_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fold is a commit before a batch's, and the ledger's version has it."""
    monkeypatch.setattr("headgate.delta._fold._FILES", 4)
    table = FakeTable(NAME)
    copy = Copy(spark, tmp_path, upserts=True)
    copy.write(first_two(table))
    for epoch in range(2, 14):
        copy.write(FakeBatch(epoch).live(NAME).images(table, [("c", 10, epoch + 1, f"row {epoch}")]))
        copy.fold()
    files = len(copy.delta().read().inputFiles())
    assert files <= 8, "12 batches and a first read, each of which adds a file"
    assert sorted(row["id"] for row in copy.delta().read().collect()) == list(range(1, 15))
    operations = copy.operations()
    assert operations.count("OPTIMIZE") >= 2
    assert operations[0] == "STREAMING UPDATE"
    last = copy.writer.ledger.last
    assert last is not None
    assert last.tables[NAME].version == copy.delta().version() == len(operations) - 1
    assert not list(Path(copy.delta().path, "_delta_log").glob(".*.tmp"))


def test_what_is_left_to_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    """Tables that ask more of a writer than rows; the report says why."""
    table = FakeTable(NAME)
    copy = Copy(spark, tmp_path, upserts=True)
    assert copy.write(first_two(table)).ways == {NAME: {Way.APPEND: ""}}
    assert copy.write(FakeBatch(2).live(NAME).images(table, [("u", 10, 2, "c")])).ways == {NAME: {Way.UPSERT: ""}}
    assert copy.write(FakeBatch(3).live(NAME)).ways == {}, "nothing came into a table"
    spark.sql(f"ALTER TABLE {copy.delta().sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    reason = "the table has no deletion vectors (delta.enableDeletionVectors)"
    for epoch in (4, 5):
        report = copy.write(FakeBatch(epoch).live(NAME).images(table, [("c", 10, epoch - 1, "d")]))
        assert (copy.operations()[0], report.ways) == ("MERGE", {NAME: {Way.MERGE: reason}})
    spark.sql(f"ALTER TABLE {copy.delta().sql} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    report = copy.write(FakeBatch(6).live(NAME).images(table, [("c", 10, 5, "e")]))
    reason = "the table asks more of its writers than rows (delta.enableChangeDataFeed, changeDataFeed)"
    assert (copy.operations()[0], report.ways) == ("MERGE", {NAME: {Way.MERGE: reason}})
    assert merge_reason(copy.lake, NAME, spark.conf.get) == reason, "a dry run says the same"
    assert [row["id"] for row in copy.delta().read().orderBy("id").collect()] == [1, 2, 3, 4, 5]
