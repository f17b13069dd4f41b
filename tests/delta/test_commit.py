"""Commits to a log, beside delta-rs: one writer a version; and checkpoints."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.delta import (
    RETENTION_PROPERTIES,
    CommitPlan,
    TableLog,
    _commit,
    _log,
    checkpointed_version,
    files_of,
    write_checkpoint,
    write_files,
)
from headgate.delta import commit as commit_plan
from headgate.errors import CommitConflictError, StorageError
from tests.delta.commits import commit

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def add(path: str, log: TableLog) -> int:
    """Append two rows; the version."""
    read = log.refresh()
    added = list(write_files(ROWS.to_batches(), path, ROWS.schema, "snappy"))
    commit(
        path, read, [*added, {"txn": {"appId": "a", "version": read.version}}], "WRITE", {"mode": "Append"}, blind=True
    )
    return read.version + 1


def test_delta_rs_reads_and_names_what_was_committed(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    log = TableLog(path)
    assert add(path, log) == 1
    table = DeltaTable(path)
    assert table.to_pyarrow_table().num_rows == 4
    assert table.transaction_version("a") == log.refresh().transactions["a"] == 0
    entry = table.history(1)[0]
    assert (entry["operation"], entry["operationParameters"], entry["readVersion"]) == ("WRITE", {"mode": "Append"}, 0)


def test_of_many_writers_one_makes_a_version(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    versions = 30

    def work(_number: int) -> list[int]:
        log, made = TableLog(path), list[int]()
        while log.refresh().version < versions:
            with suppress(CommitConflictError):
                made.append(add(path, log))
        return made

    with ThreadPoolExecutor(4) as pool:
        made = sorted(version for numbers in pool.map(work, range(4)) for version in numbers)
    assert made == list(range(1, len(made) + 1)), "each version once"
    assert versions <= len(made) < versions + 4
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2 + 2 * len(made)
    assert not list(Path(path, "_delta_log").glob(".*"))


@pytest.mark.parametrize("files", [True, False])
def test_a_commit_is_known_although_another_thread_read_the_log(tmp_path: Path, files: bool) -> None:
    """The first read with files, by the upkeep, replaces the snapshot on which an append was planned."""
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    log = TableLog(path)
    read = log.refresh(files=False)
    log.refresh(files=files)
    added = [*map(json.loads, write_files(ROWS.to_batches(), path, ROWS.schema, "snappy"))]
    commit_plan(log, lambda: CommitPlan(read, added, "W", {}))
    known = log.known(files=files)
    assert known.version == 1
    assert known == TableLog(path).refresh(files=files)


def test_a_commit_is_known_although_its_identity_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    log = TableLog(path)
    read, identity_of = log.refresh(), _log.commit_identity
    answers: list[Exception | None] = [None, StorageError("403")]

    def identity(folder: str, version: int) -> Any:
        if answers and (error := answers.pop(0)) is not None:
            raise error
        return identity_of(folder, version)

    monkeypatch.setattr(_log, "commit_identity", identity)
    added = [*map(json.loads, write_files(ROWS.to_batches(), path, ROWS.schema, "snappy"))]
    commit_plan(log, lambda: CommitPlan(read, added, "W", {}))
    assert not answers
    assert log.known() == TableLog(path).refresh()


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    log = TableLog(path)
    read = log.refresh()
    assert add(path, log) == 1
    with pytest.raises(CommitConflictError, match="committed version 1"):
        commit(path, read, [], "WRITE", {}, blind=True)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 4
    assert not list(Path(path, "_delta_log").glob(".*"))


def test_a_version_that_is_seen_empty_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS answers that the name exists, because it sent the request twice, and shows the file's content later."""
    path, seen = str(tmp_path / "t"), [list[object]()]
    write_deltalake(path, ROWS)

    def link(aside: Path, file: Path, really: Callable[[Path, Path], None] = os.link) -> None:
        really(aside, file)
        raise FileExistsError(file)

    monkeypatch.setattr(os, "link", link)
    read_commit = vars(_commit)["read_commit"]
    monkeypatch.setattr(_commit, "read_commit", lambda *which: seen.pop() if seen else read_commit(*which))
    assert add(path, TableLog(path)) == 1
    assert not seen
    assert DeltaTable(path).to_pyarrow_table().num_rows == 4


def new_file(path: str, age_hours: float = 0.0) -> dict[str, Any]:
    """A file of two rows that was written so long ago."""
    (text,) = write_files(ROWS.to_batches(), path, ROWS.schema, "snappy")
    action: dict[str, Any] = json.loads(text)
    action["add"]["modificationTime"] = int((time.time() - age_hours * 3600) * 1000)
    return action


def test_files_that_may_have_been_removed_as_orphans_are_not_committed(tmp_path: Path) -> None:
    """The upkeep of another machine does not know how long this one slept."""
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    log = TableLog(path)
    for age, kind in ((21.0, "staged"), (21.0, "written")):
        action = new_file(path, age)
        name = action["add"]["path"]
        staged, written = ([name], []) if kind == "staged" else ([], [name])
        planned = CommitPlan(log.refresh(), [action], "WRITE", {}, written=written)
        with pytest.raises(CommitConflictError, match=f"{name} was written 21 hours ago"):
            commit_plan(log, lambda planned=planned: planned, staged=staged)  # type: ignore[misc]
        assert not Path(path, name).exists()
        assert TableLog(path).refresh().version == log.known().version
        young = new_file(path, 19.0)
        planned = CommitPlan(log.refresh(), [young], "WRITE", {})
        assert commit_plan(log, lambda planned=planned: planned, staged=[young["add"]["path"]]) == planned  # type: ignore[misc]
    old = new_file(path, 100.0)
    planned = CommitPlan(log.refresh(), [old], "WRITE", {})
    assert commit_plan(log, lambda: planned) == planned, "a file that a version had before, with another vector"


def test_a_commit_that_was_not_tried_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    log = TableLog(path)
    full = OSError(errno.ENOSPC, "No space left on device")

    def refuse(*_which: object, **_more: object) -> Any:
        raise full

    staged = new_file(path)["add"]["path"]
    with pytest.raises(OSError, match="No space"):
        commit_plan(log, refuse, staged=[staged])
    assert not Path(path, staged).exists(), "the plan failed"
    actions = [new_file(path), new_file(path)]
    names = [action["add"]["path"] for action in actions]
    planned = CommitPlan(log.refresh(), actions, "WRITE", {}, written=names[1:])
    with monkeypatch.context() as patch:
        patch.setattr(type(files_of(path)), "new_file", refuse)
        with pytest.raises(OSError, match="No space"):
            commit_plan(log, lambda: planned, staged=names[:1])
    assert not [name for name in names if Path(path, name).exists()], "the commit's file could not be prepared"
    assert log.refresh().version == 0


def test_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS, configuration=dict(RETENTION_PROPERTIES))
    log = TableLog(path)
    for _ in range(12):
        add(path, log)
    assert checkpointed_version(path) == -1
    write_checkpoint(path)
    assert checkpointed_version(path) == 12
    add(path, log)
    folder = Path(path, "_delta_log")
    assert sorted(int(file.name[:20]) for file in folder.glob("*.checkpoint.parquet")) == [12]
    anew = TableLog(path).refresh()
    assert (anew.version, len(anew.files)) == (13, 14)
    for name in ("schema_json", "features", "transactions"):
        assert getattr(anew, name) == getattr(log.refresh(), name)
    for version in range(12):
        Path(folder, f"{version:020d}.json").unlink()
    theirs = DeltaTable(path)
    assert (theirs.version(), theirs.to_pyarrow_table().num_rows) == (13, 28)
    assert theirs.transaction_version("a") == 12
    assert dict(theirs.metadata().configuration) == RETENTION_PROPERTIES
    theirs.optimize.compact()
    assert len(log.refresh().files) == 1


@pytest.mark.parametrize(("properties", "protocol"), [({}, 1), (RETENTION_PROPERTIES, 99)])
def test_the_log_of_a_table_of_others_gets_no_checkpoint(
    tmp_path: Path, properties: dict[str, str], protocol: int
) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS, configuration=dict(properties))
    first = Path(path, "_delta_log", f"{0:020d}.json")
    first.write_text(first.read_text().replace('"minReaderVersion":1', f'"minReaderVersion":{protocol}'))
    write_checkpoint(path)
    assert checkpointed_version(path) == -1


def test_a_checkpoint_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, ROWS)
    Path(path, "_delta_log", f"{1:020d}.json").write_text("{")
    write_checkpoint(path)
    assert "no checkpoint of the log" in caplog.text
