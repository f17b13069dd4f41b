"""Paths in object stores, and how this process reaches them: one owner of credentials outside the JVM.

Spark reaches S3 through Hadoop's S3A, by ``fs.s3a.*`` settings or by AWS's own environment and files. The driver
translates its session's settings to arguments of Arrow's client (:func:`s3_arguments`) and passes them to its own
process and to all of Spark's Python processes (:func:`grant`). So they are set once, and a path alone is enough to open
it in any of these processes.

They travel in an environment variable, as ``AWS_SECRET_ACCESS_KEY`` would: never in options, plans, logs or messages.
If the settings have no credentials, each process uses AWS's default chain.

Callers read and write a store within :func:`store_errors`: if it does not answer, the error is ``Transient``; if it
refuses, ``Definite``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from headgate.errors import StorageError, TargetError

__all__ = [
    "VARIABLE",
    "check_bucket",
    "grant",
    "is_granted",
    "is_remote",
    "obstacle",
    "open_store",
    "s3_arguments",
    "store_errors",
]

VARIABLE: Final = "HEADGATE_OBJECT_STORES"
"""Environment variable: JSON, by bucket, arguments of ``pyarrow.fs.S3FileSystem``."""

Settings = Callable[[str], "str | None"]
"""Returns a Hadoop setting by its name, such as ``fs.s3a.endpoint``; None: not set."""

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_S3: Final = frozenset({"s3", "s3a", "s3n"})
_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"
_ENCRYPTION: Final = ("encryption.algorithm", "server-side-encryption-algorithm")
_DEFAULT_REGION: Final = "us-east-1"
_AWS_HOST: Final = re.compile(r"s3(?:\.([a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?")
"""Amazon's own endpoints, which Arrow finds by region."""
_AWS_ERROR: Final = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d+)\))?")
"""Arrow's text of an error, with the status of an answer that AWS's library does not know: ``ErrorToStatus`` in Arrow's
s3_internal.h.
"""
_REFUSALS: Final = frozenset(
    {
        "ACCESS_DENIED", "INCOMPLETE_SIGNATURE", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID",
        "INVALID_SIGNATURE", "MISSING_AUTHENTICATION_TOKEN", "NO_SUCH_BUCKET", "OPT_IN_REQUIRED", "RESOURCE_NOT_FOUND",
        "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT", "VALIDATION",
    }
)  # fmt: skip
"""Errors that last: ``S3Errors`` and ``CoreErrors`` in the AWS SDK for C++. Tokens that expire are renewed."""
_NO_BUCKET: Final = re.compile(r"Bucket '.*' not found")
"""Arrow's text if a bucket has no region: ``ResolveS3BucketRegion``."""
_PASSING_STATUS: Final = frozenset({408, 425, 429})
_OBSTACLE: Final = "encrypts"
_ONE_PUT: Final = {"allow_delayed_open": True} if int(pa.__version__.partition(".")[0]) >= 21 else {}
"""Writes a small file in one request instead of three; Arrow supports it since version 21."""
_LOCATION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""Variables by which AWS's environment locates a bucket; without them AWS is queried."""


def is_remote(path: str) -> bool:
    """Return whether a path is a URI, not one of this machine's file system."""
    return _URI.match(path) is not None


def obstacle(path: str) -> str | None:
    """Return why files at this path are left to Spark; None: they can be read and written here."""
    if not is_remote(path):
        return None
    scheme, bucket, _ = _parts(path)
    if scheme not in _S3:
        return "the lake is neither in a local folder nor on S3"
    if _granted(os.environ.get(VARIABLE, "")).get(bucket, {}).get(_OBSTACLE):
        return "the bucket's settings ask for encryption by S3A (fs.s3a.encryption.algorithm)"
    return None


def open_store(path: str) -> tuple[pafs.FileSystem, str]:
    """Return Arrow's file system for a URI, and the path in it.

    :raises OSError: the store cannot be reached.
    :raises pyarrow.ArrowException: Arrow has no file system for this kind of URI.
    """
    scheme, bucket, rest = _parts(path)
    if scheme not in _S3:
        store: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(path)
        return store
    arguments = _granted(os.environ.get(VARIABLE, "")).get(bucket)
    return _s3(bucket, json.dumps(arguments, sort_keys=True)), f"{bucket}/{rest}".rstrip("/")


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Convert Arrow's errors of a store in the block; a file that is missing stays a FileNotFoundError. Errors of local
    files stay as they are, if ``path`` is local.

    :raises StorageError: the store does not answer, or not now.
    :raises TargetError: it refuses: no such bucket, access denied, wrong credentials.
    """
    try:
        yield
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        if not is_remote(path):
            raise
        text = " ".join(str(error).split())
        raise (TargetError if _is_refusal(text) else StorageError)(f"{path} cannot be reached: {text}") from None


def _is_refusal(text: str) -> bool:
    aws = _AWS_ERROR.search(text)
    if aws is None:
        return _NO_BUCKET.search(text) is not None
    status = int(aws[2] or 0)
    return aws[1] in _REFUSALS or (400 <= status < 500 and status not in _PASSING_STATUS)


def check_bucket(path: str) -> None:
    """Check that the bucket of a path on S3 can be reached; nothing else is checked.

    :raises TargetError: the bucket does not exist, or the credentials are refused.
    :raises StorageError: it cannot be reached.
    """
    if not is_remote(path) or _parts(path)[0] not in _S3:
        return
    with store_errors(path):
        store, _ = open_store(path)
        exists = store.get_file_info(_parts(path)[1]).type is not pafs.FileType.NotFound
    if not exists:
        raise TargetError(f"{path}: there is no such bucket; create it, or choose another target.path")


def is_granted(path: str, environment: Mapping[str, str]) -> bool:
    """Return whether a process with this environment has settings for the bucket of a path."""
    return _parts(path)[1] in _granted(environment.get(VARIABLE, ""))


def grant(path: str, settings: Settings) -> dict[str, str]:
    """Make this process reach the bucket of a path with these settings.

    :return: the environment that lets other processes do so; empty if the path is not on S3.
    """
    if not is_remote(path):
        return {}
    scheme, bucket, _ = _parts(path)
    if scheme not in _S3:
        return {}
    known = {**_granted(os.environ.get(VARIABLE, "")), bucket: s3_arguments(bucket, settings)}
    os.environ[VARIABLE] = json.dumps(known)
    return {VARIABLE: os.environ[VARIABLE]}


def s3_arguments(bucket: str, settings: Settings) -> dict[str, Any]:
    """Translate S3A's settings to arguments of ``pyarrow.fs.S3FileSystem``; a bucket's settings override general ones.

    Source: Hadoop, "Connecting to an Amazon S3 Bucket through the S3A Connector", "Authenticating with S3", "Per-Bucket
    Configuration".
    """

    def get(name: str) -> str:
        return (settings(f"fs.s3a.bucket.{bucket}.{name}") or settings(f"fs.s3a.{name}") or "").strip()

    arguments: dict[str, Any] = {}
    if get("access.key") and get("secret.key"):
        arguments = {"access_key": get("access.key"), "secret_key": get("secret.key")}
        if get("session.token"):
            arguments["session_token"] = get("session.token")
    elif get("aws.credentials.provider").endswith(_ANONYMOUS):
        arguments = {"anonymous": True}
    elif get("assumed.role.arn"):
        arguments = {"role_arn": get("assumed.role.arn")}
    scheme, _, host = get("endpoint").rstrip("/").rpartition("://")
    of_aws = _AWS_HOST.fullmatch(host)
    region = get("endpoint.region") or (of_aws[1] or "" if of_aws else _DEFAULT_REGION if host else "")
    if host and not of_aws:
        arguments["scheme"] = scheme or ("http" if get("connection.ssl.enabled").lower() == "false" else "https")
        arguments["endpoint_override"] = host
        arguments["force_virtual_addressing"] = get("path.style.access").lower() != "true"
    if region:
        arguments["region"] = region
    if any(get(name) for name in _ENCRYPTION):
        arguments[_OBSTACLE] = True
    return arguments


def _parts(path: str) -> tuple[str, str, str]:
    """Split a URI into scheme, bucket and the path in it."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    return scheme.lower(), bucket, key


@lru_cache(maxsize=16)
def _granted(text: str) -> Mapping[str, Mapping[str, Any]]:
    arguments_by_bucket: Mapping[str, Mapping[str, Any]] = json.loads(text or "{}")
    return arguments_by_bucket


@lru_cache(maxsize=64)
def _s3(bucket: str, arguments_json: str) -> pafs.FileSystem:
    """Return a client, cached: making one takes longer than a request."""
    arguments = json.loads(arguments_json)
    if arguments is None:  # no settings: AWS's environment decides
        return pafs.FileSystem.from_uri(f"s3://{bucket}")[0]
    arguments.pop(_OBSTACLE, None)
    if "region" not in arguments and not any(os.environ.get(name) for name in _LOCATION_VARIABLES):
        arguments["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(**arguments, **_ONE_PUT)
