"""Hadoop's settings of each kind of store, as obstore takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.stores import VARIABLE, has_credentials, share_credentials

KEYS = {"fs.s3a.access.key": "mine", "fs.s3a.secret.key": "hidden"}
OURS = {"access_key_id": "mine", "secret_access_key": "hidden"}
HOST = "acc.dfs.core.windows.net"
AZURE = f"abfss://c@{HOST}/lake"
ACCOUNT = {"account_name": "acc"}
LOGIN = "https://login.microsoftonline.com/the-tenant/oauth2/token"


@pytest.fixture(autouse=True)
def nothing_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


def arguments_of(uri: str, settings: dict[str, str]) -> dict[str, Any]:
    """The arguments of the client for a URI's bucket, with these settings of Spark."""
    (arguments,) = json.loads(share_credentials(uri, settings.get)[VARIABLE]).values()
    return dict(arguments)


@pytest.mark.parametrize(
    ("uri", "others", "name"),
    [
        ("s3a://b/some/lake", ["S3://b", "s3://b/", "s3n://b/x"], "s3://b"),
        ("gs://b/lake/", ["gs://b"], "gs://b"),
        (AZURE, [f"abfs://c@{HOST}"], f"azure://c@{HOST}"),
    ],
)
def test_buckets_of_uris(uri: str, others: list[str], name: str) -> None:
    granted = share_credentials(uri, dict[str, str]().get)
    assert list(json.loads(granted[VARIABLE])) == [name]
    assert all(has_credentials(other, granted) for other in [uri, *others])
    assert not any(has_credentials(other, granted) for other in ("s3://c", "gs://c", f"abfss://d@{HOST}", "/b"))


@pytest.mark.parametrize("uri", ["file:/a/b", "file:///a/b", "hdfs://n:8020/lake", "/a/b"])
def test_other_paths_have_no_client(uri: str) -> None:
    assert share_credentials(uri, KEYS.get) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        (KEYS, OURS),
        (
            {**KEYS, "fs.s3a.session.token": "t", "fs.s3a.endpoint.region": "eu-west-3"},
            {**OURS, "session_token": "t", "region": "eu-west-3"},
        ),
        ({**KEYS, "fs.s3a.bucket.b.access.key": "its own"}, {**OURS, "access_key_id": "its own"}),
        ({"fs.s3a.bucket.other.access.key": "x", "fs.s3a.bucket.other.secret.key": "x"}, {}),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"skip_signature": True},
        ),
        ({"fs.s3a.assumed.role.arn": "arn:r"}, {"role_arn": "arn:r"}),
        ({"fs.s3a.attempts.maximum": "2"}, {"max_retries": 1}),
        ({"fs.s3a.endpoint": "https://s3.amazonaws.com"}, {}),
        ({"fs.s3a.endpoint": "s3.eu-west-3.amazonaws.com"}, {"region": "eu-west-3"}),
        ({"fs.s3a.encryption.algorithm": "AES256"}, {"server_side_encryption": "AES256"}),
        (
            {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn:k"},
            {"server_side_encryption": "aws:kms", "sse_kms_key_id": "arn:k"},
        ),
        (
            {"fs.s3a.encryption.algorithm": "SSE-C", "fs.s3a.encryption.key": "YQ=="},
            {"server_side_encryption": "sse-c", "sse_customer_key_base64": "YQ=="},
        ),
    ],
)
def test_s3(settings: dict[str, str], expected: dict[str, Any]) -> None:
    assert arguments_of("s3://b", settings) == expected


@pytest.mark.parametrize(
    ("settings", "endpoint", "is_http"),
    [
        ({"fs.s3a.endpoint": "http://127.0.0.1:9000/"}, "http://{}127.0.0.1:9000", True),
        ({"fs.s3a.endpoint": "store.example"}, "https://{}store.example", False),
        (
            {"fs.s3a.endpoint": "store.example", "fs.s3a.connection.ssl.enabled": "false"},
            "http://{}store.example",
            True,
        ),
    ],
)
def test_another_stores_endpoint(settings: dict[str, str], endpoint: str, is_http: bool) -> None:
    http = {"allow_http": True} if is_http else {}
    by_host = arguments_of("s3://b", settings)
    assert by_host == {
        "endpoint": endpoint.format("b."), "region": "us-east-1", "virtual_hosted_style_request": True, **http,
    }  # fmt: skip
    by_path = arguments_of("s3://b", {**settings, "fs.s3a.path.style.access": "true"})
    assert by_path == {"endpoint": endpoint.format(""), "region": "us-east-1", **http}


def test_an_encryption_that_only_s3a_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fs\.s3a\.encryption\.algorithm CSE-KMS is not supported; use one of AES"):
        arguments_of("s3://b", {"fs.s3a.encryption.algorithm": "CSE-KMS"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"google.cloud.auth.service.account.json.keyfile": "/k.json"}, {"service_account": "/k.json"}),
        ({"fs.gs.auth.service.account.json.keyfile": "/k.json"}, {"service_account": "/k.json"}),
        ({"fs.gs.auth.type": "UNAUTHENTICATED"}, {"skip_signature": True}),
        (
            {"fs.gs.storage.root.url": "http://127.0.0.1:4443/"},
            {"base_url": "http://127.0.0.1:4443", "allow_http": True},
        ),
    ],
)
def test_gcs(settings: dict[str, str], expected: dict[str, Any]) -> None:
    assert arguments_of("gs://b", settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ACCOUNT),
        ({f"fs.azure.account.key.{HOST}": "k"}, {**ACCOUNT, "account_key": "k"}),
        ({"fs.azure.account.key.acc.blob.core.windows.net": "k"}, {**ACCOUNT, "account_key": "k"}),
        ({f"fs.azure.sas.fixed.token.{HOST}": "?sv=1"}, {**ACCOUNT, "sas_key": "sv=1"}),
        ({"fs.azure.sas.c.acc.blob.core.windows.net": "sv=1"}, {**ACCOUNT, "sas_key": "sv=1"}),
        (
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth2.client.id": "i",
                f"fs.azure.account.oauth2.client.secret.{HOST}": "s",
                "fs.azure.account.oauth2.client.endpoint": LOGIN,
            },
            {
                **ACCOUNT, "client_id": "i", "client_secret": "s", "tenant_id": "the-tenant",
                "authority_host": "https://login.microsoftonline.com",
            },
        ),
        (
            {
                "fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth2.msi.tenant": "t",
                "fs.azure.account.oauth2.client.id": "i",
            },
            {**ACCOUNT, "client_id": "i", "tenant_id": "t"},
        ),
    ],
)  # fmt: skip
def test_azure(settings: dict[str, str], expected: dict[str, Any]) -> None:
    assert arguments_of(AZURE, settings) == expected


def test_azure_in_another_cloud() -> None:
    expected = {"account_name": "acc", "endpoint": "https://acc.blob.core.chinacloudapi.cn"}
    assert arguments_of("abfss://c@acc.dfs.core.chinacloudapi.cn/lake", {}) == expected
