"""Thousands of random histories, written by upserts and by MERGE: after each batch equal rows with equal ``_seq``.

A MERGE takes seconds, for many rows as for few, and joins them by their keys. So the histories that are tables of their
own for the upserts are one table for MERGE, with the history's number in the key.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.outside import lake_rows
from tests.integration.pipeline.histories import KEYS, Copy, History, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEQ = [f"_seq['{part}']" for part in ("epoch", "file", "pos", "ordinal")]

Images = list[tuple[Any, ...]]


@dataclass
class Step:
    """What one batch brings to one history; ``after`` a TRUNCATE, if it brings one."""

    before: list[Images] = field(default_factory=list)
    after: list[Images] = field(default_factory=list)
    lines: Images = field(default_factory=list)


class Histories:
    """Some histories of equal tables. A batch brings the same kind of thing to all of them."""

    def __init__(self, seed: int, count: int) -> None:
        self.choice = random.Random(seed)
        kinds, make = list(KEYS.values())[seed % len(KEYS)]
        table = table_of(kinds, wide=seed % 3 == 1, odd=seed % 4 == 0)
        self.tables = [replace(table, name=f"shop.h{number}") for number in range(count)]
        self.each = [History(random.Random(f"{seed} {number}"), table, make) for number in range(count)]
        self.together = FakeTable("shop.together", (*table.columns, ("h", "int")), ("h", *table.key))
        self.epoch, self.kind, self.truncated = 1, "first", 0
        self.steps: list[Step] = []

    def next(self) -> None:
        """Find what the next batch brings."""
        if self.steps:
            self.epoch += 1
            self.kind = self.choice.choice(["changes"] * 5 + ["reread", "truncate"])
        self.truncated = max(history.pos for history in self.each) + 1000
        self.steps = [self._step(history) for history in self.each]

    def _step(self, history: History) -> Step:
        history.epoch = self.epoch
        if self.kind == "first":
            history.begin()
            return Step(lines=history.lines())
        step = Step(before=list(history.pieces(history.choice.randrange(25))))
        if self.kind == "reread":
            step.lines = history.lines()
        if self.kind == "truncate":
            history.pos = self.truncated
            history.rows.clear()
            step.after = list(history.pieces(history.choice.randrange(12)))
        return step

    def batches(self, file: int) -> tuple[FakeBatch, FakeBatch]:
        """The batch for tables of their own, and for the one; its changes are in this file of the log."""
        ours, merged = FakeBatch(self.epoch), FakeBatch(self.epoch)
        self._announce(merged, self.together, file)
        for number, (table, step) in enumerate(zip(self.tables, self.steps, strict=True)):
            self._announce(ours, table, file)
            for images in (*step.before, *step.after):
                ours.images(table, images, file=file)
                merged.images(self.together, [(*image, number) for image in images], file=file)
            if step.lines:
                ours.chunk(table, step.lines)
                merged.chunk(self.together, [(*line, number) for line in step.lines])
        return ours, merged

    def _announce(self, batch: FakeBatch, table: FakeTable, file: int) -> None:
        if self.kind in ("first", "reread"):
            batch.snapshot(table.name, self.epoch, append=self.kind == "first", first=True, last=True)
            return
        if self.kind == "truncate":
            batch.images(table, [("t", self.truncated)], file=file)
            batch.ddl(table.name, "TRUNCATE TABLE t", "truncate", self.truncated, file=file)

    def check(self, ours: Copy, merged: Copy) -> None:
        columns = [*(f'"{name}"' for name, _ in self.tables[0].columns), *SEQ]
        all_rows: Counter[tuple[Any, ...]] = Counter()
        for number, (table, history) in enumerate(zip(self.tables, self.each, strict=True)):
            rows = lake_rows(ours.lake.current(table.name), [*columns, str(number)])
            assert sorted(row[0] for row in rows.elements()) == sorted(history.rows.values())
            all_rows += rows
        assert all_rows == lake_rows(merged.lake.current(self.together.name), [*columns, '"h"'])


def operations(folder: str) -> set[str]:
    return {commit["operation"] for commit in DeltaTable(folder).history()}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "count", "batches"),
    [(20, 12, 3), *(pytest.param(seed, 200, 5, marks=pytest.mark.slow) for seed in range(10))],
)
def test_many_histories(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int, batches: int
) -> None:
    """With replays at other positions of the log, lost indexes, folds of small files and another writer's OPTIMIZE."""
    monkeypatch.setattr("headgate.delta._fold._FILES", 2)
    histories = Histories(seed, count)
    choice = histories.choice
    ours, merged = (Copy(spark, tmp_path / name, upserts=name == "ours") for name in ("ours", "merged"))
    for _ in range(batches + 1):
        histories.next()
        by_tasks = choice.random() < 0.05
        monkeypatch.setattr("headgate.apply._expand._DRIVER_BYTES", 0 if by_tasks else 128 << 20)
        files = [choice.choice([1, 2, 3]) for _ in range(choice.choice([1, 1, 2]))]
        for tries, file in enumerate(files, start=1):
            for copy, batch in zip((ours, merged), histories.batches(file), strict=True):
                (copy.write if tries == len(files) else copy.crash)(batch)
        if choice.random() < 0.7:
            ours.fold()
        if choice.random() < 0.3:
            spark.sql(f"OPTIMIZE delta.`{ours.lake.current(choice.choice(histories.tables).name)}`").collect()
        histories.check(ours, merged)
    written = {operation for table in histories.tables for operation in operations(ours.lake.current(table.name))}
    assert "STREAMING UPDATE" in written
    assert "MERGE" not in written
    assert "MERGE" in operations(merged.lake.current(histories.together.name))
