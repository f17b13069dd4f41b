"""Clients of object stores, their credentials and errors: one owner of access outside the JVM.

Spark reaches a store through Hadoop, by ``fs.*`` settings or by the store's own environment. The driver translates its
session's settings to arguments of obstore's client (``_settings``) and passes them to its own process and to all of
Spark's Python processes (:func:`share_credentials`). So they are set once, and a path alone is enough to open it in any
of these processes.

They travel in an environment variable, as ``AWS_SECRET_ACCESS_KEY`` would: never in options, plans, logs or messages.
If the settings have no credentials, each process uses the store's default chain.

Callers use a client within :func:`store_errors`: if the store does not answer, the error is ``Transient``; if it
refuses, ``Definite``.

**Forks.** obstore's threads do not survive a fork, and a child that used its parent's clients would stop both. So a
fork of a process that has used a client is refused access.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import ConfigError, EngineError, StoreUnavailableError, TargetError
from headgate.stores._requests import Operation, count_requests
from headgate.stores._settings import Bucket, Settings, arguments_of, parse_uri

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = [
    "VARIABLE",
    "check_bucket",
    "check_scheme",
    "has_credentials",
    "is_remote",
    "open_client",
    "share_credentials",
    "store_errors",
]

VARIABLE: Final = "HEADGATE_OBJECT_STORES"
"""Environment variable: JSON, by bucket, arguments of a client."""

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_STATUS: Final = re.compile(r"status code: (\d{3})")
"""obstore's text of a store's answer."""
_PASSING_STATUS: Final = frozenset({408, 409, 425, 429})
"""409: another request changes the same file (Amazon S3, "Error responses", ``OperationAborted``)."""
_PASSING: Final = ("ExpiredToken", "IncompleteBody", "RequestTimeout", "RequestTimeTooSkewed")
"""Other refusals that end: once credentials are renewed, the clock is right, or all of a request arrives."""
_RETRIES: Final = 4
_REQUEST_SECONDS: Final = 60
"""Time after which a request without progress is given up: until its answer begins, so until it is sent, and between
two parts of the answer."""
_ANSWER_SECONDS: Final = 900
"""The same for all of an answer, however steadily it comes. Obstore has no larger requests than a file of a log, or of
images, at once."""
_RETRY_SECONDS: Final = 60
_LOCATION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""Variables by which AWS's environment locates a bucket; without them AWS is queried."""
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
"""Variables by which obstore finds another store than Amazon's or Microsoft's."""
_AWS_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""Variables with which obstore finds credentials of AWS itself."""

_used = _is_forked = False


def _after_fork() -> None:
    global _is_forked  # noqa: PLW0603 - a process is forked or not
    _is_forked = _used


os.register_at_fork(after_in_child=_after_fork)


def is_remote(path: str) -> bool:
    """Return whether a path is a URI, not one of this machine's file system."""
    return _URI.match(path) is not None


def check_scheme(path: str) -> None:
    """Check that headgate can read and write below a path.

    :raises ConfigError: it is a URI of another kind of store.
    """
    if is_remote(path) and not parse_uri(path)[0].kind:
        raise ConfigError(
            f"{path}: there are no tables in such a store; use s3a://, gs:// or abfss://, or a folder of this machine,"
            " mounts included"
        )


def open_client(path: str) -> tuple[ObjectStore, str]:
    """Return obstore's client for a URI, and the path in its bucket.

    :raises ConfigError: there is none for this URI, or a package is missing.
    :raises EngineError: this process is a fork of one that has used a client.
    """
    global _used  # noqa: PLW0603 - as above
    if _is_forked:
        raise EngineError(f"{path}: a forked process cannot reach object stores: start a new one")
    _used = True
    bucket, key = parse_uri(path)
    arguments = _shared(os.environ.get(VARIABLE, "")).get(str(bucket))
    return _client(bucket, json.dumps(arguments, sort_keys=True)), key


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Convert obstore's errors in the block; FileNotFoundError and FileExistsError stay. Errors of local files stay as
    they are, if ``path`` is local.

    :raises StoreUnavailableError: the store does not answer, or not now.
    :raises TargetError: it refuses: no such bucket, access denied, wrong credentials.
    """
    if not is_remote(path):
        yield
        return
    from obstore import exceptions

    try:
        yield
    except (FileExistsError, FileNotFoundError):
        raise
    except (exceptions.BaseError, OSError) as error:
        text = " ".join(str(error).partition("\n\nDebug source")[0].split())
        refusals = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, exceptions.NotSupportedError)
        is_refusal = not any(one in text for one in _PASSING) and (isinstance(error, refusals) or _is_refusal(text))
        raise (TargetError if is_refusal else StoreUnavailableError)(f"{path} cannot be reached: {text}") from None


def _is_refusal(text: str) -> bool:
    status = _STATUS.search(text)
    return status is not None and 400 <= int(status[1]) < 500 and int(status[1]) not in _PASSING_STATUS


def check_bucket(path: str) -> None:
    """Check that the bucket of a URI can be reached; nothing else is checked.

    :raises TargetError: the bucket does not exist, or the credentials are refused.
    :raises StoreUnavailableError: it cannot be reached.
    """
    with store_errors(path):
        client, key = open_client(path)
        count_requests(Operation.LIST)
        next(iter(client.list(f"{key}/_headgate", chunk_size=1)), None)


def has_credentials(path: str, environment: Mapping[str, str]) -> bool:
    """Return whether a process with this environment has settings for the bucket of a path."""
    return str(parse_uri(path)[0]) in _shared(environment.get(VARIABLE, ""))


def share_credentials(path: str, settings: Settings) -> dict[str, str]:
    """Make this process reach the bucket of a path with these settings.

    :return: the environment that lets other processes do so; empty if the path is not in an object store.
    :raises ConfigError: a setting names what obstore cannot do.
    """
    bucket, _ = parse_uri(path)
    if not is_remote(path) or bucket.kind in ("", "file"):
        return {}
    known = {**_shared(os.environ.get(VARIABLE, "")), str(bucket): arguments_of(bucket, settings)}
    os.environ[VARIABLE] = json.dumps(known)
    return {VARIABLE: os.environ[VARIABLE]}


@lru_cache(maxsize=16)
def _shared(text: str) -> Mapping[str, Mapping[str, Any]]:
    arguments_by_bucket: Mapping[str, Mapping[str, Any]] = json.loads(text or "{}")
    return arguments_by_bucket


@lru_cache(maxsize=64)
def _client(bucket: Bucket, arguments_json: str) -> ObjectStore:
    """Return a client, cached: it has the connections."""
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store

    arguments = json.loads(arguments_json)
    config: dict[str, Any] = arguments_of(bucket, lambda _: None) if arguments is None else arguments
    options: dict[str, Any] = {
        "client_options": {
            "read_timeout": f"{config.pop('request_seconds', _REQUEST_SECONDS)}s",
            "timeout": f"{_ANSWER_SECONDS}s",
        },
        "retry_config": {
            "max_retries": config.pop("max_retries", _RETRIES),
            "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
        },
    }
    if config.pop("allow_http", False) or any(os.environ.get(name, "").startswith("http:") for name in _ENDPOINTS):
        options["client_options"]["allow_http"] = True
    if bucket.kind == "s3":
        return S3Store(bucket.name, **_s3_config(bucket, config), **options)
    if bucket.kind == "gs":
        return GCSStore(bucket.name, **config, **options)
    if bucket.kind == "azure":
        return AzureStore(bucket.name, **config, **options)
    return LocalStore("/", mkdir=True)


def _s3_config(bucket: Bucket, config: dict[str, Any]) -> dict[str, Any]:
    """Add what depends on this process: region and credentials.

    :raises ConfigError: boto3 is missing.
    """
    has_location = "region" in config or any(os.environ.get(name) for name in _LOCATION_VARIABLES)
    if not has_location and (region := _region_of(bucket.name)):
        config["region"] = region
    config["disable_bulk_delete"] = True  # not all compatible stores have it
    if "endpoint" not in config:  # over TLS; else each byte is hashed for the signature
        config["unsigned_payload"] = True
    role = config.pop("role_arn", None)
    has_keys = config.get("skip_signature") or "access_key_id" in config or any(map(os.environ.get, _AWS_VARIABLES))
    profile = os.environ.get("AWS_PROFILE") or Path("~/.aws/credentials").expanduser().exists()
    if role is None and (has_keys or not profile):
        return config
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ModuleNotFoundError:
        raise ConfigError("AWS's profiles and assumed roles need boto3: pip install boto3") from None
    named = {"RoleArn": role, "RoleSessionName": "headgate"}
    config["credential_provider"] = StsCredentialProvider(**named) if role else Boto3CredentialProvider()
    return config


def _region_of(bucket: str) -> str | None:
    """Return the region that Amazon names for a bucket.

    :raises OSError: Amazon does not answer.
    """
    connection = HTTPSConnection("s3.amazonaws.com", timeout=_REQUEST_SECONDS)
    try:
        connection.request("HEAD", f"/{bucket}")
        return connection.getresponse().getheader("x-amz-bucket-region")
    except HTTPException as error:
        raise OSError(f"no answer: {error!r}") from None
    finally:
        connection.close()
