"""A table's files behave alike in a folder and in a store, for which obstore's client of local files stands here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headgate.delta import TableLog, VectorFile, _parquet, creation, files_of, open_parquet, positions_of, write_files
from headgate.delta.vectors import read_vector, rows_of
from headgate.errors import CommitConflictError
from headgate.stores import Folder
from tests.delta.commits import commit

SCHEMA = pa.schema([("id", pa.int64())])
COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


@pytest.fixture(params=["folder", "store"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path of a table that is not there yet."""
    return str(tmp_path / "t") if request.param == "folder" else (tmp_path / "t").as_uri()


@pytest.fixture
def files(table: str, tmp_path: Path) -> Folder:
    (tmp_path / "t" / "sub").mkdir(parents=True)
    return files_of(table)


def test_a_file_is_written_read_and_removed(files: Folder) -> None:
    assert files.identity("sub/a") is None
    with files.create("sub/a") as sink:
        sink.write(pa.py_buffer(b"01234"))  # of signed bytes, to Python
        sink.write(b"56789")
        assert sink.tell() == 10
    assert (files.read("sub/a"), files.read("sub/a", 3, 4), files.read("sub/a", 8, 4)) == (
        b"0123456789", b"3456", b"89",
    )  # fmt: skip
    known = files.identity("sub/a")
    assert known is not None
    assert known.size == 10
    assert [(file.name, file.identity()) for file in files.below("sub", wanted=shown)] == [("sub/a", known)]
    files.put("sub/a", b"another")
    assert files.read("sub/a") == b"another"
    assert [file.name for file in files.below("sub")] == ["sub/a"], "and nothing beside it"
    files.delete("sub/a")
    files.delete("sub/a")
    with pytest.raises(FileNotFoundError):
        files.read("sub/a")


def shown(name: str) -> bool:
    return not name.startswith(("_", "."))


def test_what_is_in_a_folder(files: Folder, tmp_path: Path) -> None:
    for name in ("a", "sub/b", "sub/_c", "_hidden/d", "_hidden/.e", "sub/more/f%2E"):
        (tmp_path / "t" / name).parent.mkdir(exist_ok=True)
        files.put(name, b"x")
    assert {file.name for file in files.below(wanted=shown)} == {"a", "sub/b", "sub/more/f%2E"}
    assert {file.name for file in files.below("_hidden")} == {"_hidden/d", "_hidden/.e"}
    every = list(files.below())
    assert {file.name: file.identity() for file in every} == {file.name: files.identity(file.name) for file in every}
    assert len(every) == 6
    assert list(files.below("other")) == []
    assert (files.has_folder("sub"), files.has_folder("a"), files.has_folder("other")) == (True, False, False)
    assert files.each(files.read, (file.name for file in every)) == [b"x"] * 6


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a").write_bytes(b"x")
    assert [file.name for file in files_of(str(tmp_path)).below()] == ["a"]


def test_times_of_other_writers_are_microseconds(table: str, files: Folder) -> None:
    with files.create("old.parquet") as sink:
        times = pa.table({"at": pa.array([0], pa.timestamp("us"))})
        pq.write_table(times, sink, use_deprecated_int96_timestamps=True)
    with open_parquet(table, "old.parquet") as opened:
        assert opened.read()["at"].type == pa.timestamp("us")


def test_a_table_is_written_and_followed(table: str, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    actions = creation(COLUMNS, {})
    assert actions is not None
    log = TableLog(table)
    made = log.refresh()
    commit(table, made, actions, "CREATE TABLE", {}, blind=True)
    rows = pa.record_batch({"id": pa.array(range(5000), pa.int64())})
    (added,) = write_files([rows], table, SCHEMA, "snappy")
    commit(table, log.refresh(), [added], "WRITE", {}, blind=True)
    with pytest.raises(CommitConflictError, match="committed version 0"):
        commit(table, made, [], "WRITE", {}, blind=True)
    (file,) = log.refresh().files.values()
    assert file.size == (tmp_path / "t" / file.name).stat().st_size
    gone = np.arange(0, 5000, 7, dtype=np.uint32)
    vectors = VectorFile()
    descriptor = vectors.add(positions_of(gone))
    vectors.write(table)
    assert rows_of(read_vector(table, descriptor)).tolist() == gone.tolist()
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 5000


def test_nothing_is_left_of_files_that_could_not_be_written(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(_parquet, "_GROUP_BYTES", 1)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array([1], pa.int64())})
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="broke"):
        list(write_files(rows(), table, SCHEMA, "snappy"))
    assert not list((tmp_path / "t").iterdir())
