"""The fold of a batch to versions, compared with a model that takes one image after another."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest

from headgate.apply import _pieces as pieces_module
from headgate.apply._pieces import pieces
from headgate.apply._version_changes import VersionChanges
from headgate.apply._versions import fold_versions
from headgate.carrier import Images, Part
from headgate.decide.actions import AppendVersions
from headgate.errors import EngineError
from headgate.lake import Marker
from tests.apply import commit_kinds
from tests.apply.commit_kinds import Scene, without_spark
from tests.fix_carrier import SEQ, FakeTable

SCHEMA = pa.schema(
    [
        ("_op", pa.string()), ("_seq", SEQ), ("_gtid", pa.string()), ("_ts", pa.timestamp("us", "UTC")),
        ("k", pa.float64()), ("v", pa.int32()), ("tags", pa.list_(pa.string())),
    ]
)  # fmt: skip
DEFINITION = FakeTable("shop.t", (("k", "double"), ("v", "int")), ("k",)).carried
Image = tuple[str, int, int, Any, Any, Any]
"""Operation, position, time, key, value, list."""


def history(choice: random.Random) -> list[Image]:
    """Images in log order; clocks go back now and then, and zero has two signs."""
    rows: dict[float, Any] = {0.0: 1, 1.0: 2}
    images: list[Image] = []

    def add(op: str, pos: int, key: float | None, value: Any) -> None:
        signed = -0.0 if key == 0 and choice.random() < 0.5 else key
        tags = None if value is None or value % 3 == 0 else ["t"] * (value % 4)
        images.append((op, pos, choice.randrange(50), signed, value, tags))

    for pos in range(1, choice.randrange(2, 20)):
        key, value, to = float(choice.randrange(4)), choice.choice([None, 1, 2, 3]), float(choice.randrange(4))
        if choice.random() < 0.12:
            add("t", pos, None, None)
            rows.clear()
        elif key not in rows:
            add("c", pos, key, value)
            rows[key] = value
        elif choice.random() < 0.3:
            add("d", pos, key, rows.pop(key))
        else:
            to = key if to in rows else to
            add("b", pos, key, rows.pop(key))
            add("u", pos, to, value)
            rows[to] = value
    if choice.random() < 0.5:
        for number, (key, value) in enumerate(rows.items()):
            add("r", 1_000_000 + number, key, value if choice.random() < 0.7 else 9)
    return images


def model(images: list[Image]) -> tuple[list[Any], list[Any]]:
    """The versions, and by key the end of the table's row: ``(key, pos, time, only a read image)``."""
    versions: list[list[Any]] = []
    opened: dict[float, list[Any]] = {}
    clock: dict[float, int] = {}
    ends: dict[float, list[Any]] = {}
    truncates: list[tuple[int, int]] = []
    counted: dict[float, int] = {}
    for op, pos, time, key, value, tags in images:
        if op == "t":
            truncates.append((pos, time))
            for version in opened.values():
                version[4:] = [pos, max(version[2], *(one for _, one in truncates))]
            opened.clear()
            continue
        seen = counted.get(key, 0)
        late = max((one for _, one in truncates), default=0) if len(truncates) > seen else 0
        counted[key] = len(truncates)
        now = clock[key] = max(clock.get(key, 0), time, late)
        if key not in ends:
            pos_first, time_first = truncates[0] if truncates else (pos, time)
            ends[key] = [key, pos_first, time_first, op == "r" and not truncates]
        else:
            ends[key][3] = False
        last = opened.get(key)
        if op == "r" and last is not None and last[3] == (value, tags):
            continue
        if last is not None:
            last[4:] = [pos, now]
            del opened[key]
        if op in "cur":
            opened[key] = [key, pos, now, (value, tags), None, None]
            versions.append(opened[key])
    return sorted(map(tuple, versions)), sorted(map(tuple, ends.values()))


def arrow(images: list[Image]) -> pa.Table:
    lines = [
        {"_op": op, "_seq": {"epoch": 5, "file": 1, "pos": pos, "ordinal": 0}, "_gtid": f"g{pos}", "_ts": time,
         "k": key, "v": value, "tags": tags}
        for op, pos, time, key, value, tags in images
    ]  # fmt: skip
    return pa.Table.from_pylist(lines, schema=SCHEMA)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_versions_are_those_of_the_model(count: int) -> None:
    for seed in range(count):
        choice = random.Random(seed)
        images = history(choice)
        shuffled = list(images)
        choice.shuffle(shuffled)
        folded = fold_versions(arrow(shuffled), ["k"])
        rows = [
            (
                row["k"], row["_seq"]["pos"], _us(row["_valid_from"]), (row["v"], row["tags"]),
                row["_end_seq"] and row["_end_seq"]["pos"], _us(row["_valid_to"]),
            )
            for row in folded.rows.to_pylist()
        ]  # fmt: skip
        ends = [
            (row["k"], row["_end_seq"]["pos"], _us(row["_valid_to"]), row["_only_read"])
            for row in folded.ends.to_pylist()
        ]
        assert (sorted(rows), sorted(ends)) == model(images), f"history {seed}: {images}"
        for row in folded.rows.to_pylist():
            assert row["_is_current"] == (row["_end_seq"] is None) == (row["_valid_to"] is None)
            assert row["_end_gtid"] == (row["_end_seq"] and f"g{row['_end_seq']['pos']}")


def test_pieces_have_the_versions_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece also has the TRUNCATEs."""
    several = 0
    for seed in range(60):
        choice = random.Random(seed)
        images = history(choice)
        inner = [n for n in range(1, len(images)) if images[n - 1][0] != "b" and choice.random() < 0.3]
        part = Part("shop.t", "rows", "")
        for first, end in pairwise([0, *inner, len(images)]):
            if first < end:
                (batch,) = arrow(images[first:end]).combine_chunks().to_batches()
                part.add(Images.of("rows", DEFINITION, batch))
        monkeypatch.setattr(pieces_module, "PIECE_BYTES", max(1, part.size // choice.randrange(1, 6)))
        folded = [fold_versions(piece, ["k"]) for piece in pieces(AppendVersions(DEFINITION, [part]), SCHEMA)]
        several += sum(len(one.ends) > 0 for one in folded) > 1
        whole = fold_versions(arrow(images), ["k"])
        for name, order in (("rows", ["k", "_seq"]), ("ends", ["k"])):
            joined = pa.concat_tables([getattr(one, name) for one in folded])
            assert by(order, joined) == by(order, getattr(whole, name)), f"history {seed}: {images}"
    assert several > 30


def test_images_are_read_once_however_many_pieces_they_make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = arrow([("c", key, 0, float(key), key, None) for key in range(4000)])
    read = 0

    def counted(part: Part) -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in stored(part):
            read += batch.num_rows
            yield batch

    stored = Part.record_batches
    monkeypatch.setattr(Part, "record_batches", counted)
    part = Part("shop.t", "rows", "")
    for batch in images.to_batches(max_chunksize=100):
        part.add(Images.of("rows", DEFINITION, batch))
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", part.size // 20)
    divided = [*pieces(AppendVersions(DEFINITION, [part]), SCHEMA, tmp_path)]
    assert len(divided) > 20
    assert read == 4000
    assert sorted(key for piece in divided for key in piece["k"].to_pylist()) == [*range(4000)]
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part = Part("shop.t", "rows", "")
    for batch in arrow([("c", key, 0, float(key), key, None) for key in range(100)]).to_batches():
        part.add(Images.of("rows", DEFINITION, batch))
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", part.size // 4)

    def full(*_args: object, **_more: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(EngineError, match=f"images cannot be divided by key: {tmp_path}: No space left on device"):
        list(pieces(AppendVersions(DEFINITION, [part]), SCHEMA, tmp_path))


def by(names: list[str], table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: [str(row[name]) for name in names])


def _us(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000_000)


def test_keys_of_several_columns_and_variants() -> None:
    document = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    schema = pa.schema([*list(SCHEMA)[:4], ("a", pa.string()), ("n", pa.int32()), ("doc", document)])

    def image(op: str, pos: int, a: str, n: int, doc: bytes | None) -> dict[str, Any]:
        value = None if doc is None else {"value": doc, "metadata": b""}
        seq = {"epoch": 5, "file": 1, "pos": pos, "ordinal": 0}
        return {"_op": op, "_seq": seq, "_gtid": None, "_ts": pos, "a": a, "n": n, "doc": value}

    images = [
        image("c", 1, "x", 1, None),
        image("c", 2, "x", 2, b"1"),
        image("r", 90, "x", 1, None),  # repeats its version
        image("r", 91, "x", 2, b"2"),  # differs
        image("r", 92, "y", 1, b"1"),  # alone
    ]
    folded = fold_versions(pa.Table.from_pylist(images, schema=schema), ["a", "n"])
    lines = [(row["a"], row["n"], row["_seq"]["pos"], row["_is_current"]) for row in folded.rows.to_pylist()]
    assert sorted(lines) == [("x", 1, 1, True), ("x", 2, 2, False), ("x", 2, 91, True), ("y", 1, 92, True)]
    assert {(row["a"], row["n"]): row["_only_read"] for row in folded.ends.to_pylist()} == {
        ("x", 1): False, ("x", 2): False, ("y", 1): True,
    }  # fmt: skip


def test_a_batch_without_images() -> None:
    folded = fold_versions(SCHEMA.empty_table(), ["k"])
    assert (len(folded.rows), len(folded.ends)) == (0, 0)
    only = fold_versions(arrow([("t", 1, 1, None, None, None)]), ["k"])
    assert (len(only.rows), len(only.ends)) == (0, 0)


TABLE = pa.schema(
    [
        *list(SCHEMA)[4:], *list(SCHEMA)[1:4], ("dropped", pa.string()),
        ("_valid_from", pa.timestamp("us", "UTC")), ("_valid_to", pa.timestamp("us", "UTC")),
        ("_is_current", pa.bool_()), ("_end_seq", SEQ), ("_end_gtid", pa.string()), ("_seen", pa.int64()),
    ]
)  # fmt: skip


def opened(key: float, value: int | None, begun: int, seen: int = 4) -> dict[str, Any]:
    """An open row of the table."""
    seq = {"epoch": 3, "file": 1, "pos": 1, "ordinal": 0}
    return {"k": key, "v": value, "_seq": seq, "_gtid": "g", "_ts": begun, "dropped": "kept", "_valid_from": begun,
            "_is_current": True, "_seen": seen}  # fmt: skip


def settled(images: list[Image], rows: list[dict[str, Any]], exact_since: int = 0) -> list[tuple[Any, ...]]:
    """Key, value, times and last epoch of the rows that are written in place of these."""
    folded = fold_versions(arrow(images), ["k"])
    keys = folded.ends["k"].to_pylist()
    numbers = np.array([keys.index(row["k"]) for row in rows], np.int64)
    opened_rows, names = pa.Table.from_pylist(rows, schema=TABLE), ["k", "v", "tags"]
    table = folded.settle(opened_rows, numbers, names, 5, exact_since=exact_since)
    assert table.schema == TABLE
    return [
        (row["k"], row["v"], _us(row["_valid_from"]), _us(row["_valid_to"]), row["_seen"], row["dropped"])
        for row in table.to_pylist()
    ]


def test_an_open_row_ends_at_its_first_image() -> None:
    images: list[Image] = [("b", 7, 40, 1.0, 1, None), ("u", 7, 40, 1.0, 2, None), ("d", 9, 50, 1.0, 2, None)]
    assert settled(images, [opened(1.0, None, 10)]) == [(1.0, 1, 10, 40, 4, "kept"), (1.0, 2, 40, 50, 5, None)]
    images = [("c", 7, 40, 1.0, 2, None)]
    assert settled(images, [opened(1.0, 1, 10)]) == [(1.0, 1, 10, 40, 4, "kept"), (1.0, 2, 40, None, 5, None)]


def test_an_open_row_that_the_snapshot_has_not_seen_keeps_its_values() -> None:
    """Changes between it and the first image are missing: the before-image has the values of a later version."""
    images: list[Image] = [("d", 7, 40, 1.0, 2, None), ("d", 8, 40, 2.0, 2, None)]
    assert settled(images, [opened(1.0, 1, 10, seen=3), opened(2.0, 1, 10, seen=4)], exact_since=4) == [
        (1.0, 1, 10, 40, 3, "kept"),
        (2.0, 2, 10, 40, 4, "kept"),
    ]


@pytest.mark.parametrize("seen", [(3, 3), (3, 4), (4, 4)])
def test_values_of_open_rows_are_read_unless_the_images_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: tuple[int, int]
) -> None:
    """Two rows in one file; the running snapshot began in epoch 4."""
    without_spark(monkeypatch)
    scene = Scene(tmp_path, str)
    both = pa.concat_tables([commit_kinds.versions(epoch, (key, 1)) for key, epoch in enumerate(seen)])
    scene.make(both, schema=commit_kinds.HISTORY)
    image = commit_kinds.rows(5, (0, 2), (1, 2)).append_column("_op", pa.array(["d", "d"]))
    image = image.append_column("_gtid", pa.array(["u:1"] * 2)).append_column(
        "_ts", pa.array([7] * 2, commit_kinds.TIME)
    )
    changes = VersionChanges(
        "", commit_kinds.HISTORY.names, ("id",), ("id", "v"), lambda: [fold_versions(image, ["id"])],
        Marker("p/t/history", 5), exact_since=4,
    )  # fmt: skip
    scene.upserts.apply_versions(scene.delta(), changes)
    assert scene.read() == [(key, 1 if epoch < 4 else 2) for key, epoch in enumerate(seen)]


def test_a_row_that_is_only_read_again_has_no_new_version() -> None:
    images: list[Image] = [("r", 7, 40, 1.0, 1, None), ("r", 8, 40, 2.0, 3, None)]
    assert settled(images, [opened(1.0, 1, 10), opened(2.0, 2, 10)]) == [
        (1.0, 1, 10, None, 5, "kept"),
        (2.0, 2, 10, 40, 4, "kept"),
        (2.0, 3, 40, None, 5, None),
    ]


def test_no_version_begins_before_the_one_that_it_follows() -> None:
    """The clock of the server that has the change is late."""
    images: list[Image] = [("u", 7, 20, 1.0, 2, None), ("u", 8, 25, 1.0, 3, None), ("u", 9, 90, 1.0, 4, None)]
    assert settled(images, [opened(1.0, 1, 60)]) == [
        (1.0, 1, 60, 60, 4, "kept"), (1.0, 2, 60, 60, 5, None), (1.0, 3, 60, 90, 5, None), (1.0, 4, 90, None, 5, None),
    ]  # fmt: skip


def test_changes_of_keys_without_an_open_row() -> None:
    images: list[Image] = [("d", 7, 20, 1.0, 2, None), ("c", 8, 25, 2.0, 3, None)]
    assert settled(images, []) == [(2.0, 3, 25, None, 5, None)]
