"""What may be removed from a table's folder: never what a version that is to stay readable has."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delta import RETENTION_PROPERTIES, FileHistory, LogFiles, Snapshot, TableLog, data_files_in
from headgate.delta import _log as log_module
from headgate.delta import vectors as vectors_module
from headgate.files import temporary
from tests.delta.checkpoints import make_checkpoint
from tests.delta.commits import commit
from tests.delta.inline_vectors import store_inline
from tests.delta.test_fold import Written


def follow(history: FileHistory) -> FileHistory:
    for _ in history.follow():
        pass
    return history


def files_in(path: str) -> set[str]:
    return {file.name for file in data_files_in(path)}


def counts_in(path: str) -> tuple[int, int, int]:
    """Data files and deletion vectors in the folder, and the bytes of both."""
    names = files_in(path)
    vectors = sum(name.endswith(".bin") for name in names)
    return len(names) - vectors, vectors, sum(Path(path, name).stat().st_size for name in names)


def at_version(path: str, version: int) -> Snapshot:
    """The version, by a replay from the first commit on."""
    snapshot = Snapshot()
    for number in range(version + 1):
        actions = [json.loads(line) for line in Path(path, f"_delta_log/{number:020d}.json").read_text().splitlines()]
        snapshot = snapshot.after(number, actions, files=True)
    return snapshot


def named_since(path: str, oldest: int) -> set[str]:
    """The files of all versions from ``oldest`` on."""
    names = set()
    for version in range(oldest, DeltaTable(path).version() + 1):
        for file in at_version(path, version).files.values():
            names.add(file.name)
            if file.vector is not None and file.vector["storageType"] == "u":
                names.add(vectors_module.vector_file(file.vector))
    return names


def rows_at(path: str, version: int) -> list[Any]:
    query = QueryBuilder().register("t", DeltaTable(path, version=version))
    return sorted(pa.table(query.execute("SELECT k, v FROM t").read_all()).to_pylist(), key=lambda row: str(row["k"]))


class Restored(Written):
    """With the commits that other programs make."""

    def restore(self, version: int) -> None:
        """Go back to the files of an earlier version, as RESTORE does."""
        read, old = self.log.refresh(), at_version(self.path, version)
        new, back = (
            [file for path, file in mine.items() if path not in others or others[path].vector != file.vector]
            for mine, others in ((read.files, old.files), (old.files, read.files))
        )
        actions = [file.removal(data_change=True) for file in new]
        actions += [{"add": dict(file.action)} for file in back]
        commit(self.path, read, actions, "RESTORE", {}, blind=False)


KEYS = "abcdefghij"
LATER = 4e9
"""A moment before which all checkpoints were written, in seconds since 1970 UTC."""


def random_history(table: Restored, choice: random.Random, commits: int) -> None:
    fold: Any = None
    for _ in range(commits):
        kind = choice.choice(["upsert"] * 6 + ["prepare", "fold", "restore", "checkpoint"])
        newest = table.log.refresh()
        if kind == "upsert":
            keys = choice.sample(KEYS, choice.randrange(1, 6))
            table.upsert({key: choice.choice([None, choice.randrange(99)]) for key in keys})
        elif kind == "prepare" and newest.files and fold is None:
            fold = table.fold([*newest.files.values()][: choice.randrange(1, 5)])
        elif kind == "fold" and fold is not None:
            if not table.commit_fold(fold):
                fold.discard()
            fold = None
        elif kind == "restore":
            table.restore(choice.randrange(newest.version + 1))
        elif kind == "checkpoint":
            make_checkpoint(table.path)
    if fold is not None:
        fold.discard()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_what_stays_readable_reads_the_same_and_nothing_else_is_kept(seed: int, inline: bool, ours: bool) -> None:
    choice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        if inline:
            store_inline(patch)
        table = Restored(Path(folder))
        if ours:  # checkpoints are without tombstones then
            first = Path(table.path, f"_delta_log/{0:020d}.json")
            first.write_text(
                first.read_text().replace(
                    '"configuration": {', f'"configuration": {json.dumps(RETENTION_PROPERTIES)[:-1]}, '
                )
            )
        running = FileHistory(table.path, 0)
        for _ in range(3):
            random_history(table, choice, 6)
            newest = table.log.refresh().version
            kept = choice.randrange(newest + 1)
            expected = {version: rows_at(table.path, version) for version in range(kept, newest + 1)}
            needed = named_since(table.path, kept)
            anew = follow(FileHistory(table.path, kept))
            for history in (anew, follow(running)):
                assert not needed & set(history.unneeded(kept))
                assert all(history.is_live(name) for name in named_since(table.path, newest))
            assert files_in(table.path) - needed <= set(running.unneeded(kept)), "each other file may go"
            assert not [entry for entry in anew.orphans(time.time() + 9) if entry and entry.name in needed]
        assert (running.existing_data_files, running.vectors, running.bytes) == counts_in(table.path)
        removed = 0
        for name in running.unneeded(kept):
            removed += Path(table.path, name).stat().st_size
            Path(table.path, name).unlink()
        running.forget(running.unneeded(kept), removed)
        assert files_in(table.path) == needed
        assert (running.existing_data_files, running.vectors, running.bytes) == counts_in(table.path)
        for name in LogFiles(table.path).old_by_listing(kept, LATER, 0.0):
            Path(table.path, name).unlink()
        assert {version: rows_at(table.path, version) for version in expected} == expected
        anew = follow(FileHistory(table.path, kept))
        assert (anew.version, anew.same_since <= newest) == (newest, True)
        assert not needed & set(anew.unneeded(kept)), "of a log whose beginning is gone"
        table.log, table.rows = TableLog(table.path), {row["k"]: row["v"] for row in expected[newest]}
        table.upsert({"a": 1, "b": None})
        assert table.read() == table.rows


def test_a_file_that_no_commit_names_goes_when_it_is_old(tmp_path: Path) -> None:
    table = Written(tmp_path)
    table.upsert({"a": 1})
    young, old = Path(table.path, "part-1.parquet"), Path(table.path, "deletion_vector_x.bin")
    others = [Path(table.path, "notes.txt"), Path(table.path, "_hidden", "x.parquet")]
    others[1].parent.mkdir()
    for file in (young, old, *others):
        file.write_bytes(b"x")
    for file in (old, *others):
        os.utime(file, (1, 1))
    history = follow(FileHistory(table.path, 0))
    assert [entry.name for entry in history.orphans(time.time() - 3600) if entry] == [old.name]
    aside = temporary(Path(table.path, "_delta_log", f"{0:020d}.json"))
    aside.write_bytes(b"x")
    log = LogFiles(table.path)
    assert log.old_by_listing(1, LATER, time.time() - 3600) == []
    os.utime(aside, (1, 1))
    assert log.old_by_listing(1, LATER, time.time() - 3600) == [f"_delta_log/{aside.name}"]


def test_nothing_goes_if_the_protocol_or_a_path_is_not_known(tmp_path: Path) -> None:
    for number, action in enumerate(
        [
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["v2Checkpoint"]}},
            {"add": {"path": "/elsewhere/x.parquet", "size": 1, "dataChange": True}},
            {"add": {"path": "../x.parquet", "size": 1, "dataChange": True}},
            {"add": {"path": "file:///x.parquet", "size": 1, "dataChange": True}},
        ]
    ):
        table = Written(tmp_path / str(number))
        table.upsert({"a": 1})
        table.upsert({"a": 2})
        newest = table.log.refresh().version
        assert follow(FileHistory(table.path, 0)).unneeded(newest)
        commit(table.path, table.log.refresh(), [action], "WRITE", {}, blind=False)
        history = follow(FileHistory(table.path, 0))
        assert not history.is_removable
        assert (history.unneeded(newest), [*history.orphans(time.time() + 9)]) == ([], [])


def test_versions_with_the_same_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = pa.table({"id": [1]})
    write_deltalake(path, rows)
    write_deltalake(path, rows, mode="append")
    history = follow(FileHistory(path, 1))
    assert (history.version, history.same_since) == (1, 1)
    DeltaTable(path).optimize.compact()
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})
    assert (follow(history).version, history.same_since) == (3, 1)
    assert history.data_files == 1
    write_deltalake(path, pa.table({"id": [1], "v": [2]}), mode="append", schema_mode="merge")
    assert follow(history).same_since == 4


def test_another_table_in_the_folder_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"id": [1]}))
    history = follow(FileHistory(str(path), 0))
    assert history.is_continued()
    path.rename(tmp_path / "old")
    write_deltalake(path, pa.table({"id": [1]}))
    assert not history.is_continued()


@pytest.mark.parametrize("name", ["t", "a%2Eb", "a%20b"])
def test_a_checkpoint_lets_the_log_before_it_go(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    table = Written(tmp_path)
    Path(table.path).rename(path)
    table.path, table.log = path, TableLog(path)
    table.table.folder = path
    for number in range(5):
        table.upsert({"a": number})
    make_checkpoint(path)
    table.upsert({"a": 9})
    log = LogFiles(path)
    assert log.old_by_listing(4, LATER, 0.0) == []
    old = LogFiles(path).old_by_listing(6, LATER, 0.0)
    assert old == [f"_delta_log/{version:020d}.json" for version in range(5)]
    assert log.old_by_name(6, LATER) == old, "as the listing has the checkpoint"
    assert log.old_by_name(6, LATER) == []
    for file in old:
        Path(path, file).unlink()
    assert TableLog(path).refresh().version == 6
    assert log.count(6) == len([*Path(path, "_delta_log").glob("0*")])


def test_a_checkpoint_that_was_written_since_the_listing_lets_the_log_go(tmp_path: Path) -> None:
    table = Written(tmp_path)
    log = LogFiles(table.path)
    for number in range(4):
        table.upsert({"a": number})
    assert log.old_by_name(9, 0.0) == [], "it was not listed yet"
    assert log.old_by_listing(9, LATER, 0.0) == []
    make_checkpoint(table.path)
    assert log.old_by_name(9, 0.0) == []
    newest = table.log.refresh().version
    log.note_checkpoint(newest, 5.0)
    table.upsert({"a": 9})
    assert log.old_by_name(newest - 1, 5.0) == []
    assert log.old_by_name(newest, 4.0) == [], "a reader may have begun before it"
    note = Path(table.path, "_delta_log", "_last_checkpoint")
    newer = note.read_bytes()
    note.write_text('{"version": 1, "size": 1}')
    assert log.old_by_name(newest, 5.0) == [], "a load may begin at the noted checkpoint"
    note.write_bytes(newer)
    assert log.old_by_name(newest, 5.0) == LogFiles(table.path).old_by_listing(newest, LATER, 0.0) != []


def test_a_young_checkpoint_of_any_program_lets_nothing_go(tmp_path: Path) -> None:
    table = Written(tmp_path)
    for number in range(4):
        table.upsert({"a": number})
    make_checkpoint(table.path)
    newest = table.log.refresh().version
    checkpoint = Path(table.path, "_delta_log", f"{newest:020}.checkpoint.parquet")
    os.utime(checkpoint, (5.0, 5.0))
    log = LogFiles(table.path)
    assert log.old_by_listing(newest, 4.0, 0.0) == [], "a reader may have begun before it"
    assert log.old_by_name(newest, 4.0) == []
    old = LogFiles(table.path).old_by_listing(newest, 5.0, 0.0)
    assert old == log.old_by_name(newest, 5.0) == [f"_delta_log/{version:020}.json" for version in range(newest)]


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_checkpoint_that_is_lost_since_lets_nothing_go(tmp_path: Path, *, is_empty: bool) -> None:
    table = Written(tmp_path)
    log = LogFiles(table.path)
    for number in range(4):
        table.upsert({"a": number})
    assert log.old_by_listing(9, LATER, 0.0) == []
    newest = table.log.refresh().version
    make_checkpoint(table.path)
    log.note_checkpoint(newest, 0.0)
    checkpoint = Path(table.path, "_delta_log", f"{newest:020}.checkpoint.parquet")
    checkpoint.unlink()
    if is_empty:
        checkpoint.touch()
    assert log.old_by_name(newest, 0.0) == []


def test_the_newest_checkpoint_is_found_by_its_note_unless_that_is_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Written(tmp_path)
    table.upsert({"a": 1})
    make_checkpoint(table.path)
    note = Path(table.path, "_delta_log", "_last_checkpoint")
    first = note.read_bytes()
    table.upsert({"b": 2})
    table.upsert({"c": 3})
    make_checkpoint(table.path)

    def listed(_folder: str) -> dict[int, list[Path]]:
        raise AssertionError("the log is listed")

    with monkeypatch.context() as patch:
        patch.setattr(log_module, "find_checkpoints", listed)
        assert TableLog(table.path).refresh().version == 3
    old = LogFiles(table.path).old_by_listing(3, LATER, 0.0)
    assert old
    note.write_bytes(first)
    assert LogFiles(table.path).old_by_listing(3, LATER, 0.0) == [], "a load may begin at the noted checkpoint"
    for file in old:
        if not file.endswith(".parquet"):
            Path(table.path, file).unlink()
    assert TableLog(table.path).refresh().version == 3, "the commits after the noted checkpoint are gone"
