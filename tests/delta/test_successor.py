"""A table that takes the place of another: the actions of that commit, as delta-rs reads them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delta import (
    FileHistory,
    IndexCache,
    KeyedTable,
    Snapshot,
    TableLog,
    creation,
    data_files_in,
    new_successor,
    restoration,
    successor_log,
    successors,
    take_over,
    write_files,
)
from tests.delta.checkpoints import make_checkpoint
from tests.delta.commits import commit
from tests.delta.inline_vectors import store_inline
from tests.delta.test_fold import CHANGES, ODD, PLAIN, Written

IDENTITY = ("storageType", "pathOrInlineDv", "offset")
Batches = list[dict[str, "int | None"]]


@pytest.fixture(params=[False, True], ids=["vectors in files", "vectors in the log"])
def vector_places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        store_inline(monkeypatch)


class Beside(Written):
    """The successor of a table."""

    def __init__(self, table: Written, names: tuple[str, str]) -> None:
        self.name = f"{new_successor(5)}/t"
        super().__init__(Path(table.path, self.name).parent, names)

    def take_over(self, table: Written) -> list[dict[str, Any]]:
        """Let it take the place of a table, which goes on with its rows."""
        read = table.log.refresh()
        actions = take_over(read, self.log.refresh(), self.name, {"other": "kept", "headgate.key": "no"})
        if actions:
            commit(table.path, read, actions, "REPLACE TABLE", {}, blind=False)
        table.key, table.value, table.schema, table.epoch = self.key, self.value, self.schema, self.epoch
        table.rows = dict(self.rows)
        table.table = KeyedTable(table.path, (self.key,), [pa.string()], self.table.indexes)
        return actions


def identities(actions: list[dict[str, Any]], kind: str) -> set[tuple[Any, ...]]:
    vectors = [(action[kind]["path"], action[kind].get("deletionVector") or {}) for action in actions if kind in action]
    return {(path, *map(vector.get, IDENTITY)) for path, vector in vectors}


@pytest.mark.usefixtures("vector_places")
@pytest.mark.parametrize("names", [PLAIN, ODD])
@settings(max_examples=15, deadline=None)
@given(*[st.lists(CHANGES, max_size=4)] * 4, st.booleans())
def test_the_table_has_the_rows_of_its_successor(
    names: tuple[str, str], old: Batches, new: Batches, more: Batches, later: Batches, checkpoint: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Written(Path(folder))
        for changes in old:
            table.upsert(changes)
        before, version = dict(table.rows), table.log.refresh().version
        beside = Beside(table, names)
        for changes in new:
            beside.upsert(changes)
        assert table.read() == before
        beside.take_over(table)
        assert table.read() == beside.rows
        assert beside.take_over(table) == [], "it has taken over already"
        if checkpoint:
            make_checkpoint(table.path)
        for changes in more:  # a replay of its last batch
            beside.upsert(changes)
        actions = beside.take_over(table)
        assert not identities(actions, "add") & identities(actions, "remove")
        assert table.read() == beside.rows
        for changes in later:
            table.upsert(changes)
        assert table.read() == table.rows
        history = FileHistory(table.path, version)
        assert list(history.follow()) is not None
        named = {file.name for file in table.log.refresh().files.values()}
        assert named <= {name for name in all_files(table.path) if history.is_live(name)}


def all_files(folder: str) -> Iterator[str]:
    return (str(path.relative_to(folder)) for path in Path(folder).rglob("*.parquet"))


def test_what_the_table_keeps_and_what_it_gets(tmp_path: Path) -> None:
    table = Written(tmp_path)
    beside = Beside(table, ODD)
    read = beside.log.refresh()
    metadata = {**read.metadata, "configuration": {**read.properties, "headgate.key": '["the k"]'}}
    marker = {"txn": {"appId": "app", "version": 7}}
    commit(beside.path, read, [{"metaData": metadata}, marker], "SET", {}, blind=False)
    actions = beside.take_over(table)
    after = table.log.refresh()
    assert [next(iter(action)) for action in actions] == ["protocol", "metaData", "txn"]
    assert after.metadata["id"] != metadata["id"]
    assert after.schema_json == beside.log.refresh().schema_json
    assert after.properties == {**metadata["configuration"], "other": "kept"}
    assert after.transactions == {"app": 7}
    assert after.features is not None
    assert after.features == {"appendOnly", "invariants", "deletionVectors", "columnMapping"}


def test_files_of_a_successor_belong_to_the_table_once_it_is_retired(tmp_path: Path) -> None:
    folder, name = str(tmp_path / "t"), new_successor(5)
    schema = json.dumps({"type": "struct", "fields": []})
    for path in (folder, f"{folder}/{name}"):
        commit(path, Snapshot(), creation(schema, {}), "CREATE TABLE", {}, blind=True)
    Path(folder, name, "a.parquet").touch()
    Path(folder, "_other").mkdir()
    Path(folder, "_other", "b.parquet").touch()
    assert [file.name for file in data_files_in(folder)] == []
    assert successors(folder, 4) == []
    assert successors(folder, 5) == successors(folder, 6) == [name]
    for file in successor_log(folder, name):
        Path(folder, file).unlink()
    assert [file.name for file in data_files_in(folder)] == [f"{name}/a.parquet"]


def test_files_of_a_successor_stay_while_it_is_being_built_although_the_table_had_them(tmp_path: Path) -> None:
    """Its take-over was undone, because the ledger lacks the batch."""
    folder, name = str(tmp_path / "t"), new_successor(5)
    rows = pa.table({"id": pa.array([1], pa.int64())})
    schema = json.dumps(
        {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    )
    for path in (folder, f"{folder}/{name}"):
        commit(path, Snapshot(), creation(schema, {}), "CREATE TABLE", {}, blind=True)
    log, built = TableLog(folder), TableLog(f"{folder}/{name}")
    added = [*write_files(rows.to_batches(), built.folder, rows.schema, "snappy")]
    commit(built.folder, built.refresh(), added, "WRITE", {}, blind=True)
    before = log.refresh()
    commit(folder, before, take_over(before, built.refresh(), name, {}), "REPLACE TABLE", {}, blind=False)
    commit(folder, log.refresh(), restoration(log.refresh(), before), "RESTORE", {}, blind=False)
    history = FileHistory(folder, 0)
    for _ in history.follow():
        pass
    (file,) = built.refresh().files.values()
    assert history.version == 2
    assert history.unneeded(2) == []
    for of_log in successor_log(folder, name):
        Path(folder, of_log).unlink()
    assert history.unneeded(2) == [f"{name}/{file.name}"]


def test_an_index_serves_the_successor_and_the_table() -> None:
    assert IndexCache.mark("/lake/t", "_successor_5_0/x/a.parquet", ["k"]) == IndexCache.mark(
        "/lake/t/_successor_5_0", "x/a.parquet", ["k"]
    )
    assert IndexCache.mark("/lake/t", "a.parquet", ["k"]) != IndexCache.mark("/lake/t", "b.parquet", ["k"])
