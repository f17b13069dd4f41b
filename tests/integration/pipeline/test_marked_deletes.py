"""``deletes = "mark"``: rows deleted in MySQL stay in the current table, with their last values and ``_deleted``."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from headgate.decide import Policy
from headgate.errors import ConfigError
from headgate.lake import Lake, newest_row
from headgate.pipeline import Pipeline
from headgate.sinks import BatchWriter
from headgate_testing import MySQLServer
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.databases import Database, pipeline_config
from tests.integration.outside import Rows, lake_rows
from tests.integration.pipeline.histories import Copy, Modelled, document, histories, write_batches
from tests.integration.pipeline.test_sinks import ORDERS, Bench, first_read, live
from tests.integration.pipeline.verifying import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOODS = FakeTable("shop.goods", (("id", "bigint"), ("item", "string"), ("n", "int")))
MARKS = Policy.of(("current",), marks_deletes=True)


class Marking(Copy):
    def make_writer(self) -> BatchWriter:
        return BatchWriter(self.spark, self.lake, "shop", ("current",), policy=lambda _: MARKS)


@dataclass
class MarkedHistory(Modelled):
    """With the brute-force model: by key the last values of each row that ever was, and whether it is deleted."""

    model: dict[int, tuple[str, bool]] = field(default_factory=dict)

    def changed(self, before: dict[int, str]) -> None:
        self.model |= {n: (value, True) for n, value in before.items() if n not in self.rows}
        self.model |= {n: (value, False) for n, value in self.rows.items()}

    def read(self) -> list[tuple[Any, ...]]:
        self.model = {n: (self.rows.get(n, last), n not in self.rows) for n, (last, _) in self.model.items()}
        self.model |= {n: (value, False) for n, value in self.rows.items()}
        return self.lines()

    def truncate(self) -> None:
        self.model |= {n: (value, True) for n, value in self.rows.items()}

    @property
    def compared(self) -> list[int]:
        """The columns that delta-rs reads: no documents."""
        return [number for number, (_, kind) in enumerate(self.table.columns) if kind != "variant"]

    def expected(self) -> Rows:
        rows = ((self.values(n, value), deleted) for n, (value, deleted) in self.model.items())
        return Counter((True, *(values[number] for number in self.compared), deleted) for values, deleted in rows)


def check_documents(copy: Copy, story: MarkedHistory) -> None:
    """Compare a table's documents, if it has some, by Spark."""
    if len(story.compared) == len(story.table.columns):
        return
    name, *_ = story.table.columns[0]
    rows = copy.spark.read.format("delta").load(copy.lake.current(story.table.name))
    texts = [(value, document(value)) for value, _ in story.model.values()]
    expected = copy.spark.createDataFrame(texts, "value string, text string")
    documents = rows.selectExpr(f"`{name}`", "to_json(doc)").collect()
    assert Counter(map(tuple, documents)) == Counter(
        map(tuple, expected.selectExpr("value", "to_json(parse_json(text))").collect())
    )


FILLED = "_seq IS NOT NULL AND _deleted IS NOT NULL"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "count", "batches"),
    [(20, 8, 4), *(pytest.param(seed, 200, 5, marks=pytest.mark.slow) for seed in range(10))],
)
def test_random_histories(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int, batches: int
) -> None:
    """As a model has them: with re-reads, TRUNCATE, and crashes before the ledger's row, then at other positions."""
    stories = histories(MarkedHistory, seed, count, documents=seed % 2 == 0)
    copy = Marking(spark, tmp_path, upserts=True)
    for epoch in write_batches(copy, stories, random.Random(seed), batches, monkeypatch):
        for story in stories:
            names = [f'"{story.table.columns[number][0]}"' for number in story.compared]
            rows = lake_rows(copy.lake.current(story.table.name), [FILLED, *names, "_deleted"])
            assert rows == story.expected(), f"{story.table.name}, batch {epoch}"
    folders = [copy.lake.current(story.table.name) for story in stories]
    check_documents(copy, stories[0])
    commits = [commit for folder in folders for commit in DeltaTable(folder).history()]
    by_spark = {commit["operation"] for commit in commits if commit.get("engineInfo") != "headgate"}
    assert by_spark.isdisjoint({"MERGE", "UPDATE"})


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return marking(Bench(spark, tmp_path / "lake", ("current",)))


def marking(bench: Bench, *, marks: bool = True) -> Bench:
    policy = Policy.of(bench.modes, marks_deletes=marks)
    bench.writer = BatchWriter(bench.spark, bench.lake, "shop", bench.modes, policy=lambda _: policy)
    return bench


@pytest.mark.long
def test_partial_images_keep_the_last_values(bench: Bench) -> None:
    rows = [(n, f"item {n}", n) for n in range(1, 7)]
    bench.write(FakeBatch(1).snapshot(GOODS.name, 1, append=True, first=True, last=True).chunk(GOODS, rows))
    changes = [
        ("d", 10, 1, ..., ...),
        ("u", 20, 2, ..., 22),  # changes, goes
        ("d", 30, 2, ..., ...),
        ("b", 40, 3, ..., ...),  # moves, goes
        ("u", 40, 33, ..., 34),
        ("d", 50, 33, ..., ...),
        ("c", 60, 7, "new", 7),  # comes and goes
        ("d", 70, 7, ..., ...),
        ("d", 80, 4, ..., ...),  # goes and comes
        ("c", 90, 4, "again", 44),
    ]
    bench.write(live(2, *changes, table=GOODS))
    after = [(1, "item 1", 1, True), (2, "item 2", 22, True), (3, "item 3", 3, True), (4, "again", 44, False)]
    after += [(5, "item 5", 5, False), (6, "item 6", 6, False), (7, "new", 7, True), (33, "item 3", 34, True)]
    assert bench.rows(GOODS.name) == after
    late = FakeBatch(3).images(GOODS, [("u", 10, 5, "five", ...), ("u", 15, 1, ..., 9), ("t", 20)])
    late.ddl(GOODS.name, "TRUNCATE TABLE goods", "truncate", 20)
    bench.write(late.images(GOODS, [("c", 30, 6, "six", 6), ("u", 40, 6, ..., 66)]))
    after[4:6] = [(5, "five", 5, True), (6, "six", 66, False)]
    after[3] = (4, "again", 44, True)
    assert bench.rows(GOODS.name) == after, "an update does not change a row that is gone"


def test_the_setting_changes(bench: Bench) -> None:
    """The table is read again, and replaced."""
    bench.write(first_read((1, "a"), (2, "b")), live(2, ("d", 10, 1, "a")))
    assert bench.rows() == [(1, "a", True), (2, "b", False)]
    for epoch, marks, rows in (3, False, [(2, "b")]), (6, True, [(2, "b", False)]):
        marking(bench, marks=marks)
        report = bench.write(live(epoch, ("c", 10, 9, "x")))
        assert report.tables[ORDERS.name].state == "stale"
        assert 'is set, and the target was written with deletes = "' in (report.tables[ORDERS.name].reason or "")
        fake = FakeBatch(epoch + 1).snapshot(ORDERS.name, epoch + 1, append=False, first=True, last=True)
        bench.write(fake.chunk(ORDERS, [(2, "b")]))
        assert bench.rows() == rows
        bench.write(live(epoch + 2, ("c", 20, 5, "e"), ("d", 30, 5, "e")))
    assert bench.rows() == [(2, "b", False), (5, "e", True)]


def test_rows_of_an_attempt_that_did_not_count(bench: Bench) -> None:
    """Its chunks, read again, gave none, and the table stayed suspended: they are marked until they are read again."""
    bench.write(first_read((1, "a"), (2, "b"), (3, "c")))
    bench.write(live(2, ("d", 10, 3, "c")).ddl(ORDERS.name, "ALTER TABLE orders FORCE", "alter", 20))

    def reading(epoch: int, *, last: bool = False) -> FakeBatch:
        return FakeBatch(epoch).snapshot(ORDERS.name, 3, append=False, first=epoch == 3, last=last)

    bench.crash_before_ledger(reading(3).chunk(ORDERS, [(1, "a3"), (4, "stray")]))
    marking(bench).write(reading(3).redo(ORDERS.name))
    bench.write(reading(4, last=True).chunk(ORDERS, [(1, "a4")]))
    assert bench.rows() == [(1, "a4", False), (2, "b", True), (3, "c", True), (4, "stray", True)]
    assert "MERGE" not in bench.operations()


@pytest.mark.long
def test_a_pipeline(mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path) -> None:
    def do(*statements: str, image: str = "FULL") -> None:
        Database(mysql_server, mysql_db).do(f"SET SESSION binlog_row_image = '{image}'", *statements)

    source, more = (
        'window = "keep"\nchunk_rows = 3',
        f'deletes = "mark"\n[tables."{mysql_db}.plain"]\ndeletes = "remove"',
    )
    config = pipeline_config(mysql_server, [f"{mysql_db}.*"], tmp_path, source=source, more=more)
    table, plain = f"{mysql_db}.t", f"{mysql_db}.plain"
    do(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), n INT)",
        "CREATE TABLE plain (id INT PRIMARY KEY, _deleted INT)",
        "INSERT INTO t VALUES (1,'a',1), (2,'b',2), (3,'c',3), (4,'d',4), (5,'e',5), (6,'f',6), (7,'g',7)",
        "INSERT INTO plain VALUES (1, 1), (2, NULL)",
    )

    def run(*again: str) -> set[tuple[Any, ...]]:
        Pipeline(config, spark).run(once=True, resnapshot=again)
        row = newest_row(Lake.at(tmp_path / "lake"))
        for name in (table, plain):
            result = verify(config, row, name)
            assert (result.only_source, result.only_target, result.different, result.undecided) == (0, 0, 0, 0)
        return set(lake_rows(Lake.at(tmp_path / "lake").current(table), ["id", "a", "n"], where="_deleted"))

    assert run() == set()
    do("DELETE FROM t WHERE id = 1", "UPDATE t SET id = 22, n = 20 WHERE id = 2", "DELETE FROM plain WHERE id = 1")
    do("UPDATE t SET n = 30 WHERE id = 3", "DELETE FROM t WHERE id = 3", image="MINIMAL")
    assert run() == {(1, "a", 1), (2, "b", 2), (3, "c", 30)}
    do("INSERT INTO t VALUES (1, 'back', 10)")
    assert run() == {(2, "b", 2), (3, "c", 30)}
    do("SET SESSION sql_log_bin = 0", "DELETE FROM t WHERE id IN (4, 5)")
    assert run(table) == {(2, "b", 2), (3, "c", 30), (4, "d", 4), (5, "e", 5)}
    do("TRUNCATE TABLE t", "INSERT INTO t VALUES (7, 'last', 70)")
    assert len(run()) == 7
    do("CREATE TABLE keyless (a INT)", "INSERT INTO keyless VALUES (1)")
    with pytest.raises(ConfigError, match=r'deletes = "mark" cannot mark rows of .*keyless: there is no primary key'):
        Pipeline(config, spark).run(once=True)
