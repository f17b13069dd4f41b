"""A table of other tables' files, as delta-rs reads it, whatever its parts went through."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from headgate.delta import (
    DifferentColumnsError,
    TableLog,
    UnionLayout,
    UnionPart,
    VectorFile,
    changed_files,
    positions_of,
    union_actions,
)
from tests.delta.checkpoints import make_checkpoint
from tests.delta.commits import commit

NAMES = ("a", "b", "c")


class Union:
    """A union, its parts, and what each row of them is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, list[int]] = {}
        self.shown: dict[str, int] = {}

    def path(self, name: str) -> Path:
        return self.folder / "_parts" / f"part={name}"

    def append(self, name: str, rows: Sequence[int], more: Sequence[str] = ()) -> None:
        columns = {"n": pa.array(rows, pa.int64()), **{one: pa.array(rows, pa.int32()) for one in more}}
        columns["_seq"] = pa.array(rows, pa.int64())
        write_deltalake(self.path(name), pa.table(columns), mode="append", schema_mode="merge")
        self.rows[name] = [*self.rows.get(name, []), *rows]

    def delete(self, name: str, choice: random.Random) -> None:
        """Delete rows of a file by a deletion vector, or all that are left in a file that has one."""
        folder = str(self.path(name))
        table = TableLog(folder).refresh()
        file = choice.choice([*table.files.values()])
        values = pq.ParquetFile(self.path(name) / file.name).read()["n"].to_pylist()
        features = table.features or frozenset()
        needed = {"readerFeatures": ["deletionVectors"], "writerFeatures": sorted({*features, "deletionVectors"})}
        protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **needed}}
        actions: list[Any] = [] if "deletionVectors" in features else [protocol]
        actions.append(file.removal(data_change=True))
        gone = {*values}
        if file.vector is None and len(values) > 1:
            rows = sorted(choice.sample(range(len(values)), len(values) // 2))
            vectors = VectorFile()
            descriptor = vectors.add(positions_of(np.array(rows, np.uint32)))
            vectors.write(folder)
            actions.append({"add": {**file.action, "deletionVector": descriptor, "dataChange": True}})
            gone = {values[row] for row in rows}
        commit(folder, table, actions, "DELETE", {}, blind=False)
        self.rows[name] = [n for n in self.rows[name] if n not in gone]

    def show(self, *names: str, gone: Sequence[str] = ()) -> list[dict[str, Any]]:
        parts = []
        for name in names or sorted(self.rows):
            folder = str(self.path(name))
            table = TableLog(folder).refresh()
            changed = changed_files(folder, self.shown[name], table.version) if name in self.shown else {}
            parts.append(UnionPart(name, f"_parts/part={name}", table, changed))
            self.shown[name] = table.version
        union = TableLog(str(self.folder)).refresh()
        actions = union_actions(union, UnionLayout("part", "_seq", {"origin": "test"}), parts, gone)
        if actions:
            commit(str(self.folder), union, actions, "WRITE", {}, blind=False)
        return actions

    def read(self) -> list[tuple[str, int]]:
        result = QueryBuilder().register("t", DeltaTable(self.folder)).execute("SELECT part, n FROM t").read_all()
        return sorted((row["part"], row["n"]) for row in pa.table(result).to_pylist())

    def expected(self, *names: str) -> list[tuple[str, int]]:
        return sorted((name, n) for name in names or self.rows for n in self.rows[name])


@pytest.fixture
def union(tmp_path: Path) -> Union:
    return Union(tmp_path / "union")


@pytest.mark.parametrize("seed", range(8))
def test_the_union_is_its_parts(union: Union, seed: int) -> None:
    choice, number = random.Random(seed), 0
    for _ in range(12):
        for _ in range(choice.randrange(1, 4)):
            name = choice.choice(NAMES)
            if len(union.rows.get(name, ())) > 3 and choice.random() < 0.5:
                union.delete(name, choice)
            else:
                union.append(name, range(number, number := number + choice.choice((1, 3, 900))))
        if choice.random() < 0.2:
            (*_, path) = sorted((union.folder / "_parts").iterdir())
            DeltaTable(path).create_checkpoint()
        union.show()
        if choice.random() < 0.2:
            make_checkpoint(str(union.folder))
        assert union.read() == union.expected()
        assert union.show() == [], "it shows them already"
    kinds = {file.vector["storageType"] for file in TableLog(str(union.folder)).refresh().files.values() if file.vector}
    assert kinds <= {"i", "u"}


def test_rows_of_other_writers_stay(union: Union) -> None:
    union.append("a", [1, 2])
    union.append("b", [3])
    union.show("a")
    union.show("b")
    assert union.read() == union.expected()
    union.append("a", [4], more=["x"])
    union.show("a")
    assert union.read() == union.expected()
    union.append("b", [5])
    union.show("b")
    assert union.read() == union.expected()
    assert [field.name for field in DeltaTable(union.folder).schema().fields] == ["n", "part", "_seq", "x"]


def test_folded_files_are_no_changes(union: Union) -> None:
    """A program that streams the union gets each row once, and no deletion."""
    for n in range(6):
        union.append("a", [n])
    assert all(action["add"]["dataChange"] for action in union.show() if "add" in action)
    union.append("a", [6])
    union.show()
    DeltaTable(union.path("a")).optimize.compact()
    actions = union.show()
    assert {kind: [one[kind]["dataChange"] for one in actions if kind in one] for kind in ("remove", "add")} == {
        "remove": [False] * 7,
        "add": [False],
    }
    assert union.read() == union.expected()


def test_what_another_program_did_lasts_until_the_next_commit(union: Union) -> None:
    union.append("a", [1, 2])
    union.append("b", [3])
    union.show()
    DeltaTable(union.folder).delete()
    assert union.read() == []
    union.append("a", [4])
    union.show()
    assert union.read() == union.expected()


def test_parts_that_are_the_same_are_not_compared(union: Union) -> None:
    union.append("a", [1, 2])
    union.append("b", [3], more=["x"])
    union.show()
    union.append("a", [4])
    read = TableLog(str(union.folder)).refresh()
    tables = {name: TableLog(str(union.path(name))).refresh() for name in "ab"}
    parts = [UnionPart(name, f"_parts/part={name}", table) for name, table in tables.items()]
    layout = UnionLayout("part", "_seq", {"origin": "test"})
    assert union_actions(read, layout, parts, same=["b"]) == union_actions(read, layout, parts)
    without = replace(read, files={path: file for path, file in read.files.items() if "part=b" not in path})
    assert len(union_actions(without, layout, parts)) == 2
    (added,) = union_actions(without, layout, parts, same=["b"])
    assert added["add"]["partitionValues"] == {"part": "a"}


def test_parts_that_are_gone_leave_and_the_column_stays(union: Union) -> None:
    union.append("a", [1])
    union.append("b", [2])
    union.show()
    union.show("a", gone=["b"])
    assert union.read() == union.expected("a")
    layout, read = UnionLayout("other", "_seq"), TableLog(str(union.folder)).refresh()
    part = UnionPart("a", "_parts/part=a", TableLog(str(union.path("a"))).refresh())
    with pytest.raises(DifferentColumnsError, match="it has another shard column than other: set the column back"):
        union_actions(read, layout, [part])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": "x"}, "n is string in b and long in another"),
        ({"N": 1}, "N in b is n in another: rename one"),
        ({"s": {"X": 1}}, "s.X in b is s.x in another: rename one"),
        ({"part": "x"}, "b has a column part itself: set another column"),
    ],
)
def test_parts_that_differ_are_refused(union: Union, columns: dict[str, str], message: str) -> None:
    union.append("a", [1])
    write_deltalake(union.path("a"), pa.table({"n": [2], "s": [{"x": 2}]}), mode="append", schema_mode="merge")
    union.show()
    before = union.read()
    write_deltalake(union.path("b"), pa.table({name: [value] for name, value in columns.items()}))
    union.rows["b"] = []
    with pytest.raises(DifferentColumnsError, match=message):
        union.show()
    assert union.read() == before


def test_structs_have_the_fields_of_both(union: Union) -> None:
    for name, value in (("a", {"x": 1}), ("b", {"y": "2"})):
        write_deltalake(union.path(name), pa.table({"before": [value]}))
        union.rows[name] = []
    union.show()
    schema = json.loads(DeltaTable(union.folder).schema().to_json())
    (before, _) = schema["fields"]
    assert [(field["name"], field["type"]) for field in before["type"]["fields"]] == [("x", "long"), ("y", "string")]
