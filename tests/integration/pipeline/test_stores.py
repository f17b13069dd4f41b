"""Files and commits in object stores: MinIO for S3, Azurite for Azure, MinIO behind GCS's XML API. Of two drivers one
makes a version. A store that is busy, slow or cut off is waited for, or says so: what is read is never wrong.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.delta import TableLog, creation, open_parquet, write_files
from headgate.errors import CommitConflictError, CommitUnknownError, StoreUnavailableError, TargetError
from headgate.stores import VARIABLE, Folder, check_bucket, folder_of, share_credentials
from headgate_testing import BlobStore, GcsStore, Loss, LossyStore, ObjectStore, Proxy, wait_until
from tests.delta.commits import commit

COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
SCHEMA = pa.schema([("id", pa.int64())])


@dataclass(frozen=True)
class Store:
    """A store, and what makes this process reach a new bucket of it.

    :param lossy: returns a proxy before it that loses requests.
    :param reach: returns the bucket's URI; its argument is the store's endpoint, or that of a proxy before it.
    """

    endpoint: str
    lossy: Callable[[int], LossyStore]
    reach: Callable[[str], str]


@pytest.fixture(params=["s3", "azure", "gcs"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    monkeypatch.setenv(VARIABLE, "{}")
    name = f"stores-{os.urandom(4).hex()}"
    if request.param == "azure":
        blobs: BlobStore = request.getfixturevalue("blob_store")

        def reach_azure(endpoint: str) -> str:
            for variable, value in blobs.environment(endpoint).items():
                monkeypatch.setenv(variable, value)
            path = blobs.create_container(name)
            share_credentials(path, blobs.hadoop_settings.get)
            return path

        yield Store(blobs.endpoint, partial(LossyStore, blobs.endpoint), reach_azure)
        return
    objects: ObjectStore = request.getfixturevalue("object_store")
    if request.param == "s3":

        def reach_s3(endpoint: str) -> str:
            path = objects.create_bucket(name)
            settings = {**objects.hadoop_settings, "hadoop.fs.s3a.endpoint": endpoint}
            share_credentials(path, lambda key: settings.get(f"hadoop.{key}"))
            return path

        yield Store(objects.endpoint, partial(LossyStore, objects.endpoint), reach_s3)
        return

    def reach_gcs(endpoint: str) -> str:
        keyfile = tmp_path / "key.json"
        account = {"client_email": "", "private_key": "", "private_key_id": ""}
        keyfile.write_text(json.dumps({**account, "gcs_base_url": endpoint, "disable_oauth": True}))
        settings = {"fs.gs.storage.root.url": endpoint, "google.cloud.auth.service.account.json.keyfile": str(keyfile)}
        path = f"gs://{name}"
        objects.create_bucket(name)
        share_credentials(path, settings.get)
        return path

    with GcsStore(objects) as gcs:
        yield Store(gcs.endpoint, partial(GcsStore, objects), reach_gcs)


@pytest.fixture
def bucket(store: Store) -> str:
    """The URI of a new bucket, which this process may reach."""
    return store.reach(store.endpoint)


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


# --- a store that is busy, slow, cut off

REFUSALS = (Loss.BUSY, Loss.THROTTLED)


def until_done(work: Callable[[], Any]) -> tuple[Any, int]:
    """Its result, and how often the store could not be reached before."""
    missed = 0

    def tries() -> Any:
        nonlocal missed
        try:
            return (work(),)
        except StoreUnavailableError:
            missed += 1
            return None

    return wait_until(tries, "the store is never reached")[0], missed


def use_arguments(monkeypatch: pytest.MonkeyPatch, **arguments: int) -> None:
    """Give the clients of all buckets these arguments."""
    known = {bucket: {**others, **arguments} for bucket, others in json.loads(os.environ[VARIABLE]).items()}
    monkeypatch.setenv(VARIABLE, json.dumps(known))


def proxy_before(store: Store) -> Proxy:
    return Proxy("127.0.0.1", urlsplit(store.endpoint).port or 0)


def endpoint_of(proxy: Proxy) -> str:
    return f"http://{proxy.host}:{proxy.port}"


@pytest.mark.parametrize("kinds", [REFUSALS, (Loss.BEFORE, Loss.AFTER)], ids=["refused", "lost"])
def test_a_store_that_refuses_or_loses_requests(
    store: Store, kinds: Sequence[Loss], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is what was written, whatever had to be repeated."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choice, files = random.Random(seed), dict[str, bytes]()
    with store.lossy(seed) as lossy:
        folder = folder_of(f"{store.reach(lossy.endpoint)}/lake")
        use_arguments(monkeypatch, max_retries=1)
        lossy.kinds, lossy.share, missed = kinds, 0.4, 0
        for number in range(40):
            name, data = f"part-{choice.randrange(5)}", f"{number}".encode() * choice.randrange(1, 5000)
            match choice.randrange(4):
                case 0 | 1:
                    again = until_done(partial(folder.put, name, data))[1]
                    files[name] = data
                case 2:
                    again = until_done(partial(folder.delete, name))[1]
                    files.pop(name, None)
                case _:
                    listed, again = until_done(lambda: {one.name for one in folder.below()})
                    assert listed == {*files}
            missed += again
            for name, data in files.items():
                assert until_done(partial(folder.read, name))[0] == data
        assert sum(lossy.lost.values()) > 40
        assert {loss for _, loss in lossy.lost} == {*kinds}
        assert missed, "the client gave up now and then"


def written(batch: pa.RecordBatch, path: str) -> list[str]:
    return list(write_files([batch], path, SCHEMA, "snappy"))


def test_commits_to_a_store_that_refuses_requests(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit that was acknowledged is there once, and none that was not."""
    with store.lossy(7) as lossy:
        path = f"{store.reach(lossy.endpoint)}/lake/t"
        actions = creation(COLUMNS, {})
        assert actions is not None
        commit(path, TableLog(path).refresh(), actions, "CREATE TABLE", {}, blind=True)
        use_arguments(monkeypatch, max_retries=1)
        lossy.kinds, lossy.share, lossy.commit_share = REFUSALS, 0.2, 0.6
        made = []
        for number in range(15):
            read = until_done(TableLog(path).refresh)[0]
            batch = pa.record_batch({"id": [number]}, SCHEMA)
            added, _ = until_done(partial(written, batch, path))
            with suppress(StoreUnavailableError, CommitUnknownError):
                commit(path, read, added, "WRITE", {}, blind=True)
                made.append(number)
        assert {loss for method, loss in lossy.lost if method == "COMMIT"} == {*REFUSALS}
        lossy.share = lossy.commit_share = 0.0
        rows = []
        newest, _ = until_done(TableLog(path).refresh)  # the last commit's requests may still be refused
        for file in newest.files.values():
            with open_parquet(path, file.name) as opened:
                rows += opened.read()["id"].to_pylist()
    assert Counter(rows) == Counter(made)
    assert len(made) > 5


def test_a_large_file_is_read_by_several_requests(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(2).bytes(40 << 20)
    with store.lossy(1) as lossy:
        folder = folder_of(f"{store.reach(lossy.endpoint)}/lake")
        folder.put("large", data)
        source, methods = folder.open_input("large"), list[str]()
        monkeypatch.setattr(lossy, "choose", lambda method, _path: methods.append(method))
        assert bytes(source.read()) == data
        assert methods == ["GET"] * 5


def test_a_slow_store_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may take longer than the time after which an answer that stands still is given up."""
    data = np.random.default_rng(3).bytes(20 << 20)
    with proxy_before(store) as proxy:
        folder = folder_of(f"{store.reach(endpoint_of(proxy))}/lake")
        use_arguments(monkeypatch, request_seconds=2)
        folder.put("large", data)
        proxy.limit(2 << 20)
        source = folder.open_input("large")
        assert bytes(source.read()) == data
        assert folder.read("large", 0, 6 << 20) == data[: 6 << 20]


@pytest.mark.parametrize("cut_mb", [0.1, 1, 5, 9, 13])
def test_an_answer_that_is_cut(store: Store, cut_mb: float) -> None:
    data = np.random.default_rng(4).bytes(15 << 20)
    with proxy_before(store) as proxy:
        folder = folder_of(f"{store.reach(endpoint_of(proxy))}/lake")
        folder.put("large", data)
        proxy.cut_after(int(cut_mb * (1 << 20)))
        assert until_done(lambda: bytes(folder.open_input("large").read()))[0] == data
        proxy.cut_after(int(cut_mb * (1 << 20)))
        assert until_done(lambda: folder.read("large"))[0] == data
        assert proxy.broken


def drop_during(proxy: Proxy, write: Callable[[], None], sent: int) -> None:
    """Drop the connections of a write when so many bytes are sent, and have it done again."""
    enough = proxy.forwarded[0] + sent
    proxy.limit(20 << 20)
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(until_done, write)
        wait_until(lambda: proxy.forwarded[0] > enough)
        proxy.drop(reset=True)
        proxy.limit(None)
        writing.result(120)


def test_an_upload_that_is_cut(store: Store) -> None:
    """The file is there whole, or not at all."""
    data = np.random.default_rng(5).bytes(30 << 20)
    with proxy_before(store) as proxy:
        folder = folder_of(f"{store.reach(endpoint_of(proxy))}/lake")

        def write() -> None:
            with folder.create("large") as sink:
                for start in range(0, len(data), 1 << 20):
                    sink.write(data[start : start + (1 << 20)])

        for share in (0.1, 0.5, 0.9):
            drop_during(proxy, write, int(share * len(data)))
            assert folder.read("large") == data
            folder.delete("large")
        proxy.cut()
        with pytest.raises(StoreUnavailableError):
            write()
        proxy.restore()
        assert [one.name for one in folder.below()] == []
