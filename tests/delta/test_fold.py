"""Files folded beside a writer: whatever happens between the preparation and the commit, no row comes, goes or changes.

A table is written as the sinks do it, without Spark; delta-rs reads it.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.delta import (
    DataFile,
    FoldLayout,
    IndexCache,
    KeyedTable,
    KeyLookup,
    Sequences,
    Snapshot,
    TableLog,
    choose_files,
    creation,
    keys_of,
    prepare_fold,
    write_files,
)
from headgate.delta import _fold as fold_module
from tests.delta.commits import commit

SEQ = pa.struct([(name, pa.int64()) for name in ("epoch", "file", "pos", "ordinal")])
PLAIN, ODD, DOTS = ("k", "v"), ("the k", "v = (k)"), (".k", ".")
"""Names of the key and of the value; the second ones are not those that files have."""


class Written:
    """A table, and what it should hold: key → value."""

    def __init__(self, folder: Path, names: tuple[str, str] = PLAIN) -> None:
        self.path = str(folder / "t")
        self.key, self.value = names
        self.schema = pa.schema([(self.key, pa.string()), (self.value, pa.int64()), ("_seq", SEQ)])
        fields = [
            {"name": self.key, "type": "string", "nullable": True, "metadata": {}},
            {"name": self.value, "type": "long", "nullable": True, "metadata": {}},
        ]
        part = [{"name": field.name, "type": "long", "nullable": True, "metadata": {}} for field in SEQ]
        fields.append({"name": "_seq", "type": {"type": "struct", "fields": part}, "nullable": True, "metadata": {}})
        schema = json.dumps({"type": "struct", "fields": fields})
        actions = creation(schema, {"delta.enableDeletionVectors": "true"})
        assert actions is not None
        commit(self.path, Snapshot(), actions, "CREATE TABLE", {}, blind=True)
        self.log = TableLog(self.path)
        self.table = KeyedTable(self.path, (self.key,), [pa.string()], IndexCache(folder / "keys", 1 << 20))
        self.epoch = 0
        self.rows: dict[str, int] = {}
        self.emptied: set[str] = set()

    def upsert(self, changes: dict[str, int | None]) -> None:
        """Set keys to values; None deletes."""
        self.epoch += 1
        seqs = [{"epoch": self.epoch, "file": 1, "pos": n, "ordinal": 0} for n in range(len(changes))]
        batch = pa.table(
            [pa.array(changes), pa.array(changes.values(), pa.int64()), pa.array(seqs, SEQ)], schema=self.schema
        )
        read = self.log.refresh()
        lookup = self.table.find(read, keys_of([batch[self.key]]), Sequences.of(batch["_seq"]))
        new = batch.filter(batch[self.value].is_valid()).combine_chunks()
        always = (self.key, "_seq")
        added = list(write_files(new.to_batches(), self.path, self.schema, "snappy", always, read.names))
        self.finish(read, lookup, added)
        for key, value in changes.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def finish(self, read: Any, lookup: KeyLookup, added: list[str]) -> None:
        if lookup.deleted_rows or added:
            actions: list[Any] = [*added, *self.table.actions(read, lookup)]
            commit(self.path, read, actions, "STREAMING UPDATE", {}, blind=False)
            self.emptied |= {path for path, left in lookup.deleted_rows.items() if left is None}

    def clear_before(self, epoch: int) -> None:
        read = self.log.refresh()
        self.finish(read, self.table.find_older(read, (epoch, 0, 0, 0)), [])

    def read(self) -> dict[str, int]:
        query = f'SELECT "{self.key}", "{self.value}" FROM t'
        result = pa.table(QueryBuilder().register("t", DeltaTable(self.path)).execute(query).read_all())
        keys, values = (column.to_pylist() for column in result.columns)
        assert result.num_rows == len(set(keys)), "no key twice"
        return dict(zip(keys, values, strict=True))

    def fold(self, sources: Any) -> Any:
        self.emptied.clear()
        return prepare_fold(self.path, sources, FoldLayout(self.schema, "snappy", (self.key,)))

    def commit_fold(self, fold: Any) -> bool:
        return bool(fold.commit(self.log, self.log.refresh, self.emptied))


CHANGES = st.dictionaries(st.sampled_from("abcdefghij"), st.one_of(st.none(), st.integers(0, 99)), min_size=1)


@pytest.mark.parametrize("names", [PLAIN, ODD, DOTS])
@settings(max_examples=25, deadline=None)
@given(st.lists(CHANGES, min_size=2, max_size=6), st.lists(CHANGES, max_size=5), st.integers(1, 6))
def test_rows_that_change_while_a_fold_is_prepared(
    names: tuple[str, str], before: list[dict[str, int | None]], meanwhile: list[dict[str, int | None]], take: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Written(Path(folder), names)
        for changes in before:
            table.upsert(changes)
        sources = [*table.log.refresh().files.values()][:take]
        assume(sources)
        fold = table.fold(sources)
        for changes in meanwhile:
            table.upsert(changes)
        files = len(table.log.refresh().files)
        left = sum(source.path not in table.emptied for source in sources)
        assert table.commit_fold(fold) == bool(left), "nobody else writes, so no fold is void"
        read = table.log.refresh()
        assert table.read() == table.rows
        assert len(read.files) <= files - left + 1
        if fold.added is not None:
            assert (fold.added["path"] in read.files) == Path(table.path, fold.added["path"]).exists()
        table.upsert({"a": 1, "b": None, "k": 2})
        assert table.read() == table.rows
        assert len(table.table.indexes.files._open) <= len(read.files), "nothing is known of files that are gone"


def test_a_fold_keeps_values_order_and_statistics(tmp_path: Path) -> None:
    table = Written(tmp_path)
    for key in "cab":
        table.upsert({key: ord(key)})
    assert table.commit_fold(table.fold([*table.log.refresh().files.values()]))
    (file,) = table.log.refresh().files.values()
    assert file.action["dataChange"] is False
    assert (file.statistics.rows, file.statistics.least["k"], file.statistics.greatest["k"]) == (3, "a", "c")
    rows = pq.read_table(Path(table.path, file.name))
    assert rows["k"].to_pylist() == ["a", "b", "c"]
    assert [row["epoch"] for row in rows["_seq"].to_pylist()] == [2, 3, 1], "each row keeps its place in the stream"


def test_files_that_take_too_much_memory_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow takes no rows from a column of 2 GiB or more, however small its file is."""
    table = Written(tmp_path)
    for keys in ("a", "bcdefghi", "jk"):
        table.upsert(dict.fromkeys(keys, 1))
    files = [*table.log.refresh().files.values()]
    monkeypatch.setattr(fold_module, "_MOST_DECODED", 300)
    assert table.fold(files[:2]) is None
    alone = table.fold(files[1:2])
    assert alone is not None, "a file of which many rows are deleted"
    alone.discard()
    with monkeypatch.context() as patch:
        patch.setattr(fold_module, "_MOST_OF_ONE", 300)
        assert table.fold(files[1:2]) is None
    fold = table.fold(files)
    assert [source.path for source in fold.sources] == [files[0].path, files[2].path]
    assert table.commit_fold(fold)
    assert table.read() == table.rows


def test_files_that_another_program_took_out_make_a_fold_void(tmp_path: Path) -> None:
    table = Written(tmp_path)
    for key in "abc":
        table.upsert({key: 1})
    read = table.log.refresh()
    fold = table.fold([*read.files.values()])
    theirs = table.fold([*read.files.values()][:2])
    assert table.commit_fold(theirs), "stands for another writer's OPTIMIZE"
    assert not table.commit_fold(fold)
    fold.discard()
    assert table.read() == table.rows
    named = {file.name for file in table.log.refresh().files.values()}
    assert not Path(table.path, fold.added["path"]).exists()
    assert fold.added["path"] not in named


def test_rows_that_somebody_restored_make_a_fold_void(tmp_path: Path) -> None:
    table = Written(tmp_path)
    table.upsert({"a": 1, "b": 2, "c": 3})
    (whole,) = table.log.refresh().files.values()
    table.upsert({"a": None})
    read = table.log.refresh()
    (file,) = read.files.values()
    fold = table.fold([file])
    commit(table.path, read, [file.removal(data_change=True), {"add": dict(whole.action)}], "RESTORE", {}, blind=False)
    assert not table.commit_fold(fold)
    assert table.read() == {"a": 1, "b": 2, "c": 3}


def test_what_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "_FILES", 3)
    table = Written(tmp_path)
    table.upsert({"a": 1})
    table.upsert({"b": 1})
    assert choose_files(table.log.refresh()) == []
    table.upsert({"c": 1})
    assert len(choose_files(table.log.refresh())) == 3
    monkeypatch.setattr(fold_module, "_MOST_ROWS", 2)
    assert len(choose_files(table.log.refresh())) == 2
    monkeypatch.setattr(fold_module, "_MOST_ROWS", 1)
    assert choose_files(table.log.refresh()) == [], "one file alone gains nothing"
    monkeypatch.setattr(fold_module, "_MOST_ROWS", 100)
    monkeypatch.setattr(fold_module, "_CLASSES", (1, 1 << 20))
    monkeypatch.setattr(fold_module, "_FILES", 100)
    table.upsert(dict.fromkeys("defghij", 1))
    table.upsert(dict.fromkeys("defg"))
    (file,) = choose_files(table.log.refresh())
    assert (file.deleted, file.statistics.rows) == (4, 7), "many of its rows are deleted"


def test_files_that_do_not_fit_do_not_keep_others_from_being_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "_FILES", 3)
    monkeypatch.setattr(fold_module, "_MOST_ROWS", 4)
    table = Written(tmp_path)
    for keys in ("abc", "defg", "h", "ijkl"):
        table.upsert(dict.fromkeys(keys, 1))
    chosen = choose_files(table.log.refresh())
    assert [file.statistics.rows for file in chosen] == [3, 1]
    table.upsert({"m": 1})
    large = {file.path for file in table.log.refresh().files.values() if (file.statistics.rows or 0) > 2}
    monkeypatch.setattr(fold_module, "_FILES", 2)
    monkeypatch.setattr(fold_module, "_MOST_ROWS", 5)
    table.upsert({"n": 1})
    monkeypatch.setattr(DataFile, "is_whole", lambda file, _: file.path not in large)
    assert {file.statistics.rows for file in choose_files(table.log.refresh(), divides="_to")} == {1}


def test_a_file_is_copied_when_a_reader_passes_over_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "_CLASSES", (1, 1 << 20))
    table = Written(tmp_path)
    table.upsert(dict.fromkeys("abcdefghijklmnopqrst", 1))
    table.upsert(dict.fromkeys("ab"))
    assert choose_files(table.log.refresh()) == [], "2 of 20 rows"
    table.upsert({"c": None})
    assert len(choose_files(table.log.refresh())) == 1


@pytest.mark.parametrize("names", [PLAIN, ODD, DOTS])
def test_rows_below_a_place_in_the_stream_go(tmp_path: Path, names: tuple[str, str]) -> None:
    choice = random.Random(5)
    table = Written(tmp_path, names)
    since: dict[str, int] = {}
    for epoch in range(1, 8):
        changes: dict[str, int | None] = {choice.choice("abcdefgh"): epoch for _ in range(3)}
        table.upsert(changes)
        since |= dict.fromkeys(changes, epoch)
    table.commit_fold(table.fold([*table.log.refresh().files.values()][:3]))  # a file with rows of several epochs
    table.clear_before(5)
    kept = {key: table.rows[key] for key, epoch in since.items() if epoch >= 5}
    assert table.read() == kept
    version = table.log.refresh().version
    table.clear_before(5)
    assert table.log.refresh().version == version, "there is nothing left to do"
    table.clear_before(99)
    assert (table.read(), table.log.refresh().files) == ({}, {})
