"""Versions of a key never overlap in time, whatever the clocks of servers do between and within batches."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headgate.delta import read_rows
from tests.apply.commit_kinds import HISTORY, TIME, Scene, ending, version_changes, versions, without_spark
from tests.fix_carrier import SEQ

IMAGES = pa.schema(
    [("_op", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("_seq", SEQ), ("_gtid", pa.string()), ("_ts", TIME)]
)
KEYS = 6


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


@dataclass
class Source:
    """A table, its log, and a clock that goes back now and then: by a few µs, or by seconds."""

    choice: random.Random
    rows: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(0, KEYS, 2), 0))
    now: int = 5_000_000
    pos: int = 100

    def tick(self) -> int:
        step = self.choice.randrange(4000)
        self.now += -1000 * step if self.choice.random() < 0.1 else step - 300
        self.now = max(self.now, 1)
        return self.now

    def images(self, epoch: int, count: int) -> pa.Table:
        lines: list[dict[str, Any]] = []

        def add(op: str, key: int, value: int, at: int) -> None:
            seq = {"epoch": epoch, "file": 1, "pos": self.pos, "ordinal": 0}
            lines.append({"_op": op, "id": key, "v": value, "_seq": seq, "_gtid": "u:1", "_ts": at})

        for _ in range(count):
            self.pos, at = self.pos + 1, self.tick()
            key, to, value = self.choice.randrange(KEYS), self.choice.randrange(KEYS), self.choice.randrange(99)
            if key not in self.rows:
                add("c", key, value, at)
                self.rows[key] = value
            elif self.choice.random() < 0.5:
                add("d", key, self.rows.pop(key), at)
            elif to == key or to not in self.rows:
                add("b", key, self.rows.pop(key), at)
                add("u", to, value, at)
                self.rows[to] = value
        return pa.Table.from_pylist(lines, schema=IMAGES)


def write(scene: Scene, images: pa.Table, epoch: int) -> None:
    scene.upserts.apply_versions(scene.delta(), version_changes(images, epoch))


def read(scene: Scene) -> dict[int, list[dict[str, Any]]]:
    """The versions of each key, in the order of the log."""
    micros = ", ".join(f"arrow_cast({name}, 'Int64') AS {name}" for name in ("_ts", "_valid_from", "_valid_to"))
    query = f"SELECT id, v, {micros}, _seq['epoch'] AS epoch, _seq['pos'] AS pos FROM t ORDER BY epoch, pos"
    result = QueryBuilder().register("t", DeltaTable(scene.path)).execute(query).read_all()
    by_key: dict[int, list[dict[str, Any]]] = {}
    for row in pa.table(result).to_pylist():
        by_key.setdefault(row["id"], []).append(row)
    return by_key


@pytest.mark.parametrize("count", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_versions_of_a_key_never_overlap(tmp_path: Path, count: int) -> None:
    """Each begins at its change, or when the one before it ended, if that is later."""
    raised = 0
    for seed in range(count):
        source, scene = Source(random.Random(seed)), Scene(tmp_path / str(seed), str)
        begun = versions(1, *source.rows.items())
        ended = ending(1, 6_000_000).apply(versions(1, (1, 0)))
        scene.make(pa.concat_tables([begun, ended]), schema=HISTORY)
        for epoch in range(2, 7):
            images = source.images(epoch, source.choice.randrange(1, 12))
            if len(images):
                write(scene, images, epoch)
            if source.choice.random() < 0.2:
                scene.upserts.change_rows(scene.delta(), ending(epoch, source.tick()), ("id",))
                source.rows.clear()
        by_key = read(scene)
        open_rows = {key: rows[-1]["v"] for key, rows in by_key.items() if rows[-1]["_valid_to"] is None}
        assert open_rows == source.rows
        for key, rows in by_key.items():
            for one, following in pairwise(rows):
                expected = max(following["_ts"], one["_valid_to"])
                assert following["_valid_from"] == expected, f"history {seed}, key {key}: {one}, {following}"
                raised += one["epoch"] < following["epoch"] and expected > following["_ts"]
    assert raised > count, "clocks went back between batches"


def test_no_ended_version_is_read_as_long_as_clocks_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, str)
    scene.make(versions(1, (1, 0)), schema=HISTORY)
    read_files: list[str] = []

    def counted(folder: str, file: Any, *about: Any) -> Any:
        read_files.append(file.path)
        return read_rows(folder, file, *about)

    def image(op: str, epoch: int, at: int) -> pa.Table:
        line = {"_op": op, "id": 1, "v": 0, "_seq": {"epoch": epoch, "file": 1, "pos": epoch, "ordinal": 0}, "_ts": at}
        return pa.Table.from_pylist([line], schema=IMAGES)

    write(scene, image("d", 2, 10_000), 2)
    monkeypatch.setattr("headgate.apply._version_changes.read_rows", counted)
    write(scene, image("c", 3, 12_000), 3)
    assert read_files == []
    write(scene, image("d", 4, 20_000), 4)
    read_files.clear()
    write(scene, image("c", 5, 15_000), 5)
    assert len(read_files) == 1, "the file of versions that ended in batch 4"
    (rows,) = read(scene).values()
    assert [(row["_valid_from"], row["_valid_to"]) for row in rows] == [(1, 10_000), (12_000, 20_000), (20_000, None)]
