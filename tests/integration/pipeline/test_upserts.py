"""Rows that are found by index and taken out by deletion vectors, beside a MERGE of the same batches."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headgate.delta import CommitOutcome, _commit
from headgate.files import is_temporary
from headgate.lake import refusal
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.outside import lake_rows
from tests.integration.pipeline.histories import KEYS, NAME, Copy, History, document, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def first_two(table: FakeTable) -> FakeBatch:
    return FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True).chunk(table, [(1, "a"), (2, "b")])


def foreign(spark: SparkSession, copy: Copy, choice: random.Random) -> None:
    """What other writers do to files and vectors without a change of rows."""
    table = f"delta.`{copy.delta().path}`"
    spark.sql(choice.choice([f"OPTIMIZE {table}", f"REORG TABLE {table} APPLY (PURGE)"]))


HISTORIES = [(8, 1), *(pytest.param(seed, 4, marks=pytest.mark.slow) for seed in range(120))]
"""Seeds, and batches of changes. The first has documents and odd names; ``test_many_histories`` has plain tables."""


@pytest.mark.parametrize(("seed", "batches"), HISTORIES)
@pytest.mark.timeout(600)
def test_the_table_is_the_one_that_a_merge_makes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, batches: int
) -> None:
    """Row by row with ``_seq``, beside replays at other positions, re-reads, TRUNCATE, OPTIMIZE, lost indexes and the
    folding of small files; some batches are written by tasks, whose shares have images of the same keys.
    """
    monkeypatch.setattr("headgate.delta._fold._FILES", 2)
    choice = random.Random(seed)
    kinds, make = list(KEYS.values())[seed % len(KEYS)]
    table = table_of(kinds, wide=seed % 3 == 1, odd=seed % 4 == 0, documents=seed % 3 == 2)
    history = History(choice, table, make)
    ours, merged = (Copy(spark, tmp_path / name, upserts=name == "ours") for name in ("ours", "merged"))
    first = history.first()
    ours.write(first)
    merged.write(first)
    for _ in range(batches):
        batch = history.next()
        monkeypatch.setattr("headgate.apply._expand._DRIVER_BYTES", choice.choice([0, 128 << 20]))
        for copy in (ours, merged):
            if batch.epoch % 3 == 0:
                copy.crash(batch)
            copy.write(batch)
        if choice.random() < 0.3:
            foreign(spark, ours, choice)
        if choice.random() < 0.7:
            ours.fold()
        rows = ours.rows()
        assert rows == merged.rows()
        assert sorted(row[0] for row in rows) == sorted(history.rows.values())
    assert refusal(ours.lake, NAME, spark.conf.get) is None
    if seed % 3 == 2:
        assert [_parsed(row[1]) for row in rows] == [_parsed(document(row[0])) for row in rows]
    assert "STREAMING UPDATE" in ours.operations()
    assert "MERGE" not in ours.operations()
    assert "MERGE" in merged.operations()
    _read_by_others(ours, rows)


def _parsed(text: str | None) -> Any:
    return None if text is None else [json.loads(text)]


def _read_by_others(copy: Copy, rows: list[tuple[Any, ...]]) -> None:
    """By a reader that is neither Spark nor ours."""
    table = DeltaTable(copy.lake.current(NAME))
    first = table.schema().fields[0].name
    result = pa.table(QueryBuilder().register("t", table).execute(f'SELECT "{first}" FROM t').read_all())
    assert sorted(result[first].to_pylist()) == sorted(row[0] for row in rows)


def test_a_replay_from_another_server_takes_out_what_the_first_try_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """There the same changes have other positions, in files with greater or smaller numbers."""
    table = FakeTable(NAME)
    for number, file in enumerate([1, 2, 5]):
        copy = Copy(spark, tmp_path / str(number), upserts=True)
        copy.write(
            FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True).chunk(table, [(1, "a"), (2, "b")])
        )
        images = [("b", 10, 1, "a"), ("u", 10, 1, "A"), ("d", 20, 2, "b"), ("c", 30, 3, "c")]
        copy.crash(FakeBatch(2).images(table, images, file=2))
        copy.write(FakeBatch(2).images(table, images, file=file))
        assert sorted(lake_rows(copy.lake.current(NAME), ["id", "item"])) == [(1, "A"), (3, "c")]


def test_a_commit_in_between_is_a_conflict_and_the_keys_are_looked_up_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = FakeTable(NAME)
    copy = Copy(spark, tmp_path, upserts=True)
    copy.write(first_two(table))
    copy.write(FakeBatch(2).images(table, [("c", 10, 3, "c")]))

    compacted: list[Any] = []

    make = _commit._make

    def overtaken(*args: Any) -> CommitOutcome:
        if not compacted:
            compacted.append(spark.sql(f"OPTIMIZE delta.`{copy.delta().path}`").collect())
        return make(*args)

    monkeypatch.setattr(_commit, "_make", overtaken)
    copy.write(FakeBatch(3).images(table, [("b", 10, 1, "a"), ("u", 10, 1, "A"), ("d", 20, 3, "c")]))
    assert sorted(lake_rows(copy.lake.current(NAME), ["id", "item"])) == [(1, "A"), (2, "b")]
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
        copy.write(FakeBatch(epoch).images(table, [("c", 10, epoch + 1, f"row {epoch}")]))
        copy.fold()
    files = len(copy.delta().read().inputFiles())
    assert files <= 8, "12 batches and a first read, each of which adds a file"
    assert sorted(n for (n,) in lake_rows(copy.lake.current(NAME), ["id"]).elements()) == list(range(1, 15))
    operations = copy.operations()
    assert operations.count("OPTIMIZE") >= 2
    assert operations[0] == "STREAMING UPDATE"
    last = copy.writer.ledger.last
    assert last is not None
    assert last.tables[NAME].version == copy.delta().version() == len(operations) - 1
    assert not [file for file in Path(copy.delta().path, "_delta_log").iterdir() if is_temporary(file.name)]
