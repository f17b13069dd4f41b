"""Credentials of object stores: given once, as Spark's settings, and translated for everybody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from headgate import stores
from headgate.carrier import ControlFile, ControlFolder, Waiting
from headgate.delta import TableLog, discard_files, files_of
from headgate.errors import HeadgateError, StorageError, TargetError
from headgate.lake import Lake
from headgate.lake._ledger import find_newest
from headgate.stores import (
    VARIABLE,
    check_bucket,
    grant,
    is_granted,
    is_remote,
    obstacle,
    open_store,
    s3_arguments,
    store_errors,
)

KEYS = {"fs.s3a.access.key": "mine", "fs.s3a.secret.key": "hidden"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (KEYS, {"access_key": "mine", "secret_key": "hidden"}),
        (
            {**KEYS, "fs.s3a.session.token": "t", "fs.s3a.endpoint.region": "eu-west-3"},
            {"access_key": "mine", "secret_key": "hidden", "session_token": "t", "region": "eu-west-3"},
        ),
        ({**KEYS, "fs.s3a.bucket.b.access.key": "its own"}, {"access_key": "its own", "secret_key": "hidden"}),
        ({"fs.s3a.bucket.other.access.key": "x", "fs.s3a.bucket.other.secret.key": "x"}, {}),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"anonymous": True},
        ),
        ({"fs.s3a.assumed.role.arn": "arn:r"}, {"role_arn": "arn:r"}),
    ],
)
def test_credentials_and_region(settings: dict[str, str], expected: dict[str, Any]) -> None:
    assert s3_arguments("b", settings.get) == expected


@pytest.mark.parametrize(
    ("settings", "scheme", "host"),
    [
        ({"fs.s3a.endpoint": "http://127.0.0.1:9000/"}, "http", "127.0.0.1:9000"),
        ({"fs.s3a.endpoint": "store.example"}, "https", "store.example"),
        ({"fs.s3a.endpoint": "store.example", "fs.s3a.connection.ssl.enabled": "false"}, "http", "store.example"),
    ],
)
def test_another_stores_endpoint(settings: dict[str, str], scheme: str, host: str) -> None:
    arguments = s3_arguments("b", settings.get)
    assert (arguments["scheme"], arguments["endpoint_override"], arguments["region"]) == (scheme, host, "us-east-1")
    assert arguments["force_virtual_addressing"] is True
    assert s3_arguments("b", {**settings, "fs.s3a.path.style.access": "true"}.get)["force_virtual_addressing"] is False


@pytest.mark.parametrize(("host", "region"), [("s3.amazonaws.com", None), ("s3.eu-west-3.amazonaws.com", "eu-west-3")])
def test_amazons_endpoints_are_found_by_their_region(host: str, region: str | None) -> None:
    expected = {} if region is None else {"region": region}
    assert s3_arguments("b", {"fs.s3a.endpoint": f"https://{host}"}.get) == expected


def test_what_one_process_is_told_it_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    passed = grant("s3a://b/lake", {**KEYS, "fs.s3a.endpoint": "http://127.0.0.1:9000"}.get)
    grant("s3a://other/lake", dict[str, str]().get)
    assert list(passed) == [VARIABLE]
    assert is_granted("s3a://b/lake/t", passed)
    assert not is_granted("s3a://other/lake", passed)
    monkeypatch.setenv(VARIABLE, passed[VARIABLE])
    system, path = open_store("s3a://b/lake/t")
    assert (system.type_name, path) == ("s3", "b/lake/t")
    assert open_store("s3://b")[0] is system


def test_what_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert not is_remote("/a/lake")
    assert is_remote("file:/a/lake")
    assert obstacle("/a/lake") is None
    assert obstacle("s3a://b/lake") is None
    assert grant("gs://b/lake", KEYS.get) == {}
    assert "neither in a local folder nor on S3" in str(obstacle("gs://b/lake"))
    grant("s3a://b/lake", {"fs.s3a.encryption.algorithm": "SSE-KMS"}.get)
    assert "encryption" in str(obstacle("s3a://b/lake"))
    assert json.loads(grant("s3a://b/lake", KEYS.get)[VARIABLE])["b"] == {"access_key": "mine", "secret_key": "hidden"}
    assert obstacle("s3a://b/lake") is None


def test_a_bucket_that_is_missing_or_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of a local file system as buckets."""

    def opened(path: str) -> tuple[pafs.FileSystem, str]:
        return pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), path

    monkeypatch.setattr(stores, "open_store", opened)
    (tmp_path / "here").mkdir()
    check_bucket("s3a://here/lake")
    check_bucket("s3a://here")
    check_bucket("gs://nowhere/lake")
    check_bucket("/nowhere/lake")
    with pytest.raises(TargetError, match=r"s3a://nowhere/lake: there is no such bucket; create it, or choose another"):
        check_bucket("s3a://nowhere/lake")

    def refused(path: str) -> tuple[pafs.FileSystem, str]:
        raise OSError("AWS Error ACCESS_DENIED\nduring HeadBucket")

    monkeypatch.setattr(stores, "open_store", refused)
    with pytest.raises(TargetError, match="s3a://here/lake cannot be reached: AWS Error ACCESS_DENIED during HeadBuck"):
        check_bucket("s3a://here/lake")


SILENT = "When reading information for key 'l' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{SILENT}: curlCode: 7, Couldn't connect", StorageError),
        ("AWS Error SLOW_DOWN during PutObject operation: Reduce your request rate.", StorageError),
        ("AWS Error INTERNAL_FAILURE during GetObject operation: We encountered an error", StorageError),
        ("AWS Error UNKNOWN (HTTP status 502) during GetObject operation: Bad gateway", StorageError),
        ("AWS Error UNKNOWN (HTTP status 429) during GetObject operation: Too many", StorageError),
        ("Connection reset by peer", StorageError),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", TargetError),
        ("AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: The key does not exist", TargetError),
        ("AWS Error SIGNATURE_DOES_NOT_MATCH during GetObject operation: …", TargetError),
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: The bucket does not exist", TargetError),
        ("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body.", TargetError),
        ("Bucket 'b' not found", TargetError),
    ],
)
def test_a_store_that_does_not_answer_may_later_and_one_that_refuses_will_not(
    text: str, kind: type[HeadgateError]
) -> None:
    with pytest.raises(kind, match=r"^s3a://b/l cannot be reached: ") as raised, store_errors("s3a://b/l"):
        raise OSError(text.replace(": ", ":\n  "))
    assert "\n" not in str(raised.value)
    assert type(raised.value) is kind


def test_missing_files_and_local_errors_stay_what_they_are() -> None:
    for path, error in (("s3a://b/l", FileNotFoundError("x")), ("/l", PermissionError(13, "denied", "/l/x"))):
        with pytest.raises(OSError) as raised, store_errors(path):
            raise error
        assert raised.value is error


def test_whatever_is_asked_of_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __getattr__(self, name: str) -> Any:
            def fails(*_: Any, **__: Any) -> Any:
                raise OSError(SILENT)

            return fails

    def opened(path: str) -> tuple[Any, str]:
        return Silent(), path

    for module in ("headgate.stores", "headgate.delta._files", "headgate.carrier._folder"):
        monkeypatch.setattr(f"{module}.open_store", opened)
    files, control, lake = files_of("s3a://b/l/t"), ControlFolder("s3a://b/l/inbox"), Lake("s3a://b/l")
    for ask in (
        lambda: files.read("a"), lambda: files.identity("a"), lambda: files.has_folder("a"),
        lambda: list(files.below()), lambda: list(files.folders()), lambda: files.put("a", b"x"),
        lambda: files.delete("a"), lambda: TableLog("s3a://b/l/t").refresh(),
        lambda: find_newest(lake), lake.check_root, control.signals, control.requests, control.hint, control.finished,
        lambda: control.write("a", {}), lambda: control.delete("a"),
    ):  # fmt: skip
        with pytest.raises(StorageError, match=r"^s3a://b/l.* cannot be reached: .*NETWORK_CONNECTION"):
            ask()
    monkeypatch.setattr("headgate.delta._files.open_store", Silent().opened)
    with pytest.raises(StorageError), files.open_parquet("a"):
        pass
    discard_files("s3a://b/l/t", ["a"])
    control.record_state(Waiting(1, 1, False))
    control.forget(ControlFile.TROUBLE)
    assert control.trouble() is None
    assert control.waiting() is None
