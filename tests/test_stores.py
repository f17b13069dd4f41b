"""Credentials of object stores: given once, as Spark's settings, and translated for everybody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from headgate import stores
from headgate.errors import TargetError
from headgate.stores import VARIABLE, check_bucket, grant, is_granted, is_remote, obstacle, open_store, s3_arguments

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
