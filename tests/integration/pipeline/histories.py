"""Random histories of a table, as batches of the carrier, and lakes that they are written into."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from deltalake import DeltaTable

from headgate.apply import Upserts
from headgate.lake import DeltaPath, Lake
from headgate.names import quote_name
from headgate.sinks import BatchReport, BatchWriter
from tests.fix_carrier import FakeBatch, FakeTable, crash_before_ledger
from tests.integration.outside import lake_dicts, operations
from tests.integration.pipeline.merging import MergingUpserts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KEYS", "NAME", "Copy", "History", "Modelled", "document", "histories", "table_of", "write_batches"]

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
    "digits": (("decimal(20,0)",), lambda n: (Decimal(n // 4 + (0, 2**64, -(2**64), 2**63)[n % 4]),)),
}


def table_of(kinds: Sequence[str], *, wide: bool, odd: bool, documents: bool = False) -> FakeTable:
    """With its key at the end, so that with many columns Delta's own statistics leave it out.

    :param odd: with names that files do not have.
    :param documents: with a column of VARIANTs, if it is not wide.
    """
    key = tuple((f"k {i}" if odd else f"k{i}", kind) for i, kind in enumerate(kinds))
    more = tuple((f"c{i}", "int") for i in range(40)) if wide else (("doc", "variant"),) if documents else ()
    return FakeTable(NAME, (("v=" if odd else "v", "string"), *more, *key), tuple(name for name, _ in key))


def document(value: str) -> str | None:
    """A JSON document that goes with a row's value: NULL, ``null``, or one that has the value in it."""
    choice = random.Random(value)
    kind = choice.randrange(8)
    if kind < 2:
        return "null" if kind else None
    numbers = [choice.randrange(-(10 ** choice.randrange(1, 25)), 10**20), choice.random(), choice.random() * 1e30]
    more: dict[str, Any] = {"a": [], "": None, "ü\U0001f600": choice.random() < 0.5}
    content = {"value": value, "n": numbers, choice.choice("abc"): more}
    return json.dumps(content, ensure_ascii=choice.random() < 0.5)


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
        kinds = [kind for _, kind in self.table.columns[1 : -len(self.table.key)]]
        middle = (document(value) if kind == "variant" else len(value) for kind in kinds)
        return (value, *middle, *self.make(n))

    def images(self, count: int) -> list[tuple[Any, ...]]:
        """Changes of the rows there are."""
        images: list[tuple[Any, ...]] = []
        for _ in range(count):
            self.pos += 10
            n, value = self.choice.randrange(60), f"v{self.epoch}.{self.pos}"
            if n not in self.rows:
                images.append(("c", self.pos, *self.values(n, value)))
                self.rows[n] = value
                continue
            old = self.values(n, self.rows[n])
            free = [m for m in range(60) if m not in self.rows]
            kind = self.choice.choice(["update", "update", "delete", "move"])
            if kind == "delete" or not free:
                images.append(("d", self.pos, *old))
                del self.rows[n]
                continue
            to = self.choice.choice(free) if kind == "move" else n
            images += [("b", self.pos, *old), ("u", self.pos, *self.values(to, value))]
            del self.rows[n]
            self.rows[to] = value
        return images

    def next(self) -> FakeBatch:
        self.epoch += 1
        batch = FakeBatch(self.epoch)
        kind = self.choice.choice(["changes"] * 5 + ["reread", "truncate"])
        if kind == "reread":
            batch.snapshot(NAME, self.epoch, append=False, first=True, last=True)
            self.add(batch, self.choice.randrange(1, 8))
            return batch.chunk(self.table, self.lines())
        self.add(batch, self.choice.randrange(1, 25))
        if kind == "truncate":
            self.pos += 10
            self.rows.clear()
            batch.images(self.table, [("t", self.pos)]).ddl(NAME, "TRUNCATE TABLE t", "truncate", self.pos)
            self.add(batch, self.choice.randrange(1, 12))
        return batch

    def add(self, batch: FakeBatch, count: int) -> None:
        for images in self.pieces(count):
            batch.images(self.table, images)

    def pieces(self, count: int) -> Iterator[list[tuple[Any, ...]]]:
        """Changes, in several rows of the carrier, which Spark may give to several tasks."""
        images = self.images(count)
        while images:
            size = self.choice.randrange(1, len(images) + 1)
            yield images[:size]
            images = images[size:]

    def begin(self) -> None:
        self.rows = {n: f"first {n}" for n in range(60) if self.choice.random() < 0.6}

    def lines(self) -> list[tuple[Any, ...]]:
        """All rows, as a reading of the table has them."""
        return [self.values(n, value) for n, value in sorted(self.rows.items())]

    def first(self) -> FakeBatch:
        self.begin()
        batch = FakeBatch(1).snapshot(NAME, 1, append=True, first=True, last=True)
        return batch.chunk(self.table, self.lines())


@dataclass
class Modelled(History):
    """Random batches of one of many tables, with a brute-force model that a subclass keeps."""

    def images(self, count: int) -> list[tuple[Any, ...]]:
        images: list[tuple[Any, ...]] = []
        for _ in range(count):
            before = dict(self.rows)
            images += super().images(1)
            self.changed(before)
        return images

    def changed(self, before: dict[int, str]) -> None:
        """Note one change, at ``pos``; the rows before it."""
        raise NotImplementedError

    def read(self) -> list[tuple[Any, ...]]:
        """All rows, as a reading of the table has them; note what it finds changed."""
        raise NotImplementedError

    def truncate(self) -> None:
        """Note a TRUNCATE, at ``pos``."""
        raise NotImplementedError

    def start(self, batch: FakeBatch) -> None:
        self.begin()
        batch.snapshot(self.table.name, 1, append=True, first=True, last=True).chunk(self.table, self.read())

    def step(self, epoch: int, batches: dict[int, FakeBatch]) -> None:
        """Add what comes next to equal batches, by the file of the log that has their changes."""
        self.epoch = epoch
        kind = self.choice.choice(["changes"] * 4 + ["reread", "truncate"])
        pieces, lines, after = list(self.pieces(self.choice.randrange(25))), [], list[list[tuple[Any, ...]]]()
        truncated = 0
        if kind == "reread":  # and changes went unseen, which the log of this batch does not have
            unnamed = [n for n, value in sorted(self.rows.items()) if not value.startswith(f"v{epoch}.")]
            for n in self.choice.sample(unnamed, len(unnamed) // 2):
                self.rows.pop(n)
                if self.choice.random() < 0.5:
                    self.rows[n] = f"unseen {epoch}"
            lines = self.read()
        if kind == "truncate":
            self.pos += 10
            truncated = self.pos
            self.truncate()
            self.rows.clear()
            after = list(self.pieces(self.choice.randrange(12)))
        for file, batch in batches.items():
            if kind == "reread":
                batch.snapshot(self.table.name, epoch, append=False, first=True, last=True)
            for images in pieces:
                batch.images(self.table, images, file=file)
            if truncated:
                batch.images(self.table, [("t", truncated)], file=file)
                batch.ddl(self.table.name, "TRUNCATE TABLE t", "truncate", truncated, file=file)
            for images in after:
                batch.images(self.table, images, file=file)
            if lines:
                batch.chunk(self.table, lines)


_Kind = TypeVar("_Kind", bound=Modelled)


def histories(kind: type[_Kind], seed: int, count: int, *, documents: bool = False) -> list[_Kind]:
    """So many histories; the seed also chooses what their tables are like."""
    kinds, make = list(KEYS.values())[seed % len(KEYS)]
    table = table_of(kinds, wide=seed % 3 == 1, odd=seed % 4 == 0, documents=documents)
    tables = (replace(table, name=f"shop.h{number}") for number in range(count))
    return [kind(random.Random(f"{seed} {number}"), table, make) for number, table in enumerate(tables)]


def write_batches(
    copy: Copy, stories: Sequence[Modelled], choice: random.Random, batches: int, patch: pytest.MonkeyPatch
) -> Iterator[int]:
    """Write the first rows, and so many batches: with replays at other positions of the log, folds and another writer's
    OPTIMIZE. Yield each batch's epoch.
    """
    patch.setattr("headgate.delta._fold._FILES", 2)
    first = FakeBatch(1)
    for story in stories:
        story.start(first)
    copy.write(first)
    for epoch in range(2, batches + 2):
        files = sorted(choice.sample([1, 2, 3], choice.choice([1, 1, 2])))
        attempts = {file: FakeBatch(epoch) for file in files}
        for story in stories:
            story.step(epoch, attempts)
        patch.setattr("headgate.apply._expand._DRIVER_BYTES", 0 if choice.random() < 0.2 else 128 << 20)
        for batch in list(attempts.values())[:-1]:
            copy.crash(batch)
        copy.write(attempts[files[-1]])
        if choice.random() < 0.7:
            copy.fold()
        if choice.random() < 0.3:
            name = choice.choice(stories).table.name
            copy.spark.sql(f"OPTIMIZE delta.`{copy.lake.current(name)}`").collect()
        yield epoch


class Copy:
    """One lake; ``upserts`` as they are, or MERGE for all batches."""

    def __init__(self, spark: SparkSession, path: Path, *, upserts: bool) -> None:
        self.spark, self.lake, self.upserts, self.path = spark, Lake.at(path / "lake"), upserts, path
        self.runs = 0
        self.restart()

    def restart(self) -> None:
        """Begin again with the files alone; without key indexes every other time."""
        self.runs += 1
        self.writer = self.make_writer()
        upserts = Upserts if self.upserts else MergingUpserts
        self.writer._upserts = upserts(self.path / f"keys{self.runs // 2}")

    def make_writer(self) -> BatchWriter:
        return BatchWriter(self.spark, self.lake, "shop", ("current",))

    def write(self, batch: FakeBatch) -> BatchReport:
        return self.writer.write(batch.frame(self.spark), batch.epoch)

    def fold(self) -> None:
        """Wait until a fold that is being prepared can be committed, and let the next one begin at any time."""
        if self.writer._upserts is not None:
            folds = self.writer._upserts._folds
            folds.background.tasks_pace.free_at = 0.0
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
        """All rows; a VARIANT as JSON, by Spark."""
        folder = self.lake.current(NAME)
        names = [field.name for field in DeltaTable(folder).schema().fields]
        if "doc" not in names:
            rows = lake_dicts(folder, [f'"{name}"' for name in names])
            return sorted((tuple(row.values()) for row in rows), key=repr)
        table = self.delta().read()
        kinds = dict(table.dtypes)
        quoted = {name: quote_name(name) for name in names}
        columns = [f"to_json({sql}) AS {sql}" if kinds[name] == "variant" else sql for name, sql in quoted.items()]
        return sorted((tuple(row) for row in table.selectExpr(*columns).collect()), key=repr)

    def operations(self) -> list[str]:
        """What each commit was, newest first."""
        return operations(self.lake.current(NAME))[::-1]
