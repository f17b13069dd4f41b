"""Files and commits in real object stores: MinIO for S3, Azurite for Azure. Of two drivers one makes a version."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.delta import TableLog, creation, open_parquet, write_files
from headgate.errors import CommitConflictError, TargetError
from headgate.stores import VARIABLE, Folder, check_bucket, folder_of, share_credentials
from headgate_testing import BlobStore, ObjectStore
from tests.delta.commits import commit

COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["s3", "azure"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a new bucket, which this process may reach."""
    monkeypatch.setenv(VARIABLE, "{}")
    name = f"stores-{os.urandom(4).hex()}"
    if request.param == "s3":
        store: ObjectStore = request.getfixturevalue("object_store")
        path, settings = store.create_bucket(name), store.hadoop_settings
        share_credentials(path, lambda key: settings.get(f"hadoop.{key}"))
    else:
        blobs: BlobStore = request.getfixturevalue("blob_store")
        path = blobs.create_container(name)
        for variable, value in blobs.environment.items():
            monkeypatch.setenv(variable, value)
        share_credentials(path, blobs.hadoop_settings.get)
    return path


@pytest.fixture
def folder(bucket: str) -> Folder:
    return folder_of(f"{bucket}/some/lake")


def test_files_in_a_store(folder: Folder) -> None:
    odd = "a b/f%2E=ü#~'(1).json"
    assert (folder.identity(odd), folder.has_folder("a b"), list(folder.below())) == (None, False, [])
    folder.put(odd, b"0123456789")
    assert (folder.read(odd), folder.read(odd, 3, 4), folder.read(odd, 8, 4)) == (b"0123456789", b"3456", b"89")
    (listed,) = folder.below()
    assert (listed.name, listed.identity()) == (odd, folder.identity(odd))
    assert (list(folder.folders()), list(folder.files()), folder.has_folder("a b")) == (["a b"], [], True)
    folder.delete(odd)
    folder.delete(odd)
    with pytest.raises(FileNotFoundError):
        folder.read(odd)


def test_a_large_file_is_written_and_read_in_parts(folder: Folder) -> None:
    data = np.random.default_rng(1).bytes(30 << 20)
    with folder.create("large") as sink:
        for start in range(0, len(data), 1 << 20):
            sink.write(data[start : start + (1 << 20)])
        assert sink.tell() == len(data)
    source = folder.open_input("large")
    source.seek(5)
    assert bytes(source.read(20 << 20)) == data[5 : 5 + (20 << 20)]
    assert bytes(source.read()) == data[5 + (20 << 20) :]
    assert bytes(source.read()) == b""
    rows = pa.table({"id": pa.array(range(1_000_000)), "v": np.random.default_rng(1).random(1_000_000)})
    with folder.create("rows.parquet") as sink:
        pq.write_table(rows, sink, row_group_size=200_000)
    with open_parquet(folder.path, "rows.parquet") as opened:
        assert opened.read(["v"]).equals(rows.select(["v"]))
        assert opened.read_row_group(3).equals(rows.slice(600_000, 200_000))


def test_a_file_that_could_not_be_completed_is_not_there(folder: Folder) -> None:
    def write() -> None:
        with folder.create("partial") as sink:
            sink.write(b"x" * (12 << 20))
            raise ValueError("the source broke")

    with pytest.raises(ValueError, match="broke"):
        write()
    assert list(folder.below()) == []


def test_a_bucket_that_is_missing(bucket: str) -> None:
    check_bucket(f"{bucket}/lake")
    name = bucket.partition("://")[2].partition("@")[0]
    missing = f"{bucket.replace(name, 'no-such-bucket')}/lake"
    os.environ[VARIABLE] = os.environ[VARIABLE].replace(name, "no-such-bucket")
    with pytest.raises(TargetError, match="cannot be reached"):
        check_bucket(missing)
    with pytest.raises(TargetError, match="there is no such bucket; create it, or choose"):
        folder_of(missing).put("a", b"x")


def test_of_two_drivers_one_makes_each_version_and_the_other_learns_it(bucket: str) -> None:
    """Both plan on the same version and commit at the same moment; none overwrites the other's commit."""
    path = f"{bucket}/lake/t"
    actions = creation(COLUMNS, {})
    assert actions is not None
    commit(path, TableLog(path).refresh(), actions, "CREATE TABLE", {}, blind=True)
    versions = 10
    start = threading.Barrier(2)
    made: list[list[int]] = [[], []]

    def drive(number: int) -> int:
        log, conflicts = TableLog(path), 0
        for version in range(versions):
            read = log.refresh()
            added = list(write_files([pa.record_batch({"id": [number]}, SCHEMA)], path, SCHEMA, "snappy"))
            start.wait(60)
            try:
                commit(path, read, added, "WRITE", {}, blind=True)
                made[number].append(version)
            except CommitConflictError:
                conflicts += 1
            start.wait(60)
        return conflicts

    with ThreadPoolExecutor(2) as drivers:
        conflicts = list(drivers.map(drive, range(2)))
    assert sorted(made[0] + made[1]) == list(range(versions)), "one each time"
    assert sum(conflicts) == versions
    table = TableLog(path).refresh()
    assert table.version == versions
    rows = []
    for file in table.files.values():
        with open_parquet(path, file.name) as opened:
            rows += opened.read()["id"].to_pylist()
    assert sorted(rows) == [0] * len(made[0]) + [1] * len(made[1])
