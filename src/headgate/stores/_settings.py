"""Translate Hadoop's settings of object stores to obstore's.

Sources: Hadoop, "Connecting to an Amazon S3 Bucket through the S3A Connector", "Authenticating with S3", "Per-Bucket
Configuration", "Working with Encrypted Amazon S3 Data"; "Hadoop Azure Support: ABFS", "Authentication"; Google, "Cloud
Storage connector", CONFIGURATION.md. A setting that is missing leaves the choice to the store's environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import ConfigError

__all__ = ["Bucket", "Settings", "arguments_of", "parse_uri"]

Settings = Callable[[str], "str | None"]
"""Returns a Hadoop setting by its name, such as ``fs.s3a.endpoint``; None: not set."""

_KINDS: Final[Mapping[str, str]] = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "azure", "abfss": "azure", "wasb": "azure",
    "wasbs": "azure", "file": "file",
}  # fmt: skip
_PUBLIC_AZURE: Final = ".core.windows.net"
_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"
_DEFAULT_REGION: Final = "us-east-1"
_AWS_HOST: Final = re.compile(r"s3(?:\.([a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?")
"""Amazon's endpoints, which obstore derives from the region."""
_S3_ENCRYPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "AES256": ("AES256", ""),
    "SSE-KMS": ("aws:kms", "sse_kms_key_id"),
    "DSSE-KMS": ("aws:kms:dsse", "sse_kms_key_id"),
    "SSE-C": ("sse-c", "sse_customer_key_base64"),
}
"""Algorithm of S3A → obstore's, and obstore's name of the key."""
_TENANT: Final = re.compile(r"(https://[^/]+)/([^/]+)/")


@dataclass(frozen=True)
class Bucket:
    """A bucket, or a container of an Azure account."""

    kind: str
    """``s3``, ``gs``, ``azure``, or ``file``, which tests use; empty: none that headgate knows."""
    authority: str
    """As in the URI: the bucket, or ``container@host``."""

    @property
    def name(self) -> str:
        """Name of the bucket or container."""
        return self.authority.partition("@")[0]

    @property
    def host(self) -> str:
        """Host of the Azure account."""
        return self.authority.partition("@")[2]

    def __str__(self) -> str:
        return f"{self.kind}://{self.authority}"


def parse_uri(uri: str) -> tuple[Bucket, str]:
    """Split a URI into its bucket and the path in it."""
    scheme, _, rest = uri.partition(":")
    authority, _, path = rest.removeprefix("//").partition("/")
    return Bucket(_KINDS.get(scheme.lower(), ""), authority), path.strip("/")


def arguments_of(bucket: Bucket, settings: Settings) -> dict[str, Any]:
    """Return the arguments of a client: obstore's configuration and ``allow_http``, ``max_retries`` and ``role_arn``.

    :raises ConfigError: a setting names what obstore cannot do.
    """
    translate = {"s3": _s3, "gs": _gs, "azure": _azure}.get(bucket.kind)
    return {} if translate is None else {key: value for key, value in translate(bucket, settings).items() if value}


def _s3(bucket: Bucket, settings: Settings) -> dict[str, Any]:
    def get(name: str) -> str:
        return (settings(f"fs.s3a.bucket.{bucket.name}.{name}") or settings(f"fs.s3a.{name}") or "").strip()

    arguments: dict[str, Any] = {}
    if get("access.key") and get("secret.key"):
        keys = {"access_key_id": "access.key", "secret_access_key": "secret.key", "session_token": "session.token"}
        arguments = {name: get(setting) for name, setting in keys.items()}
    elif get("aws.credentials.provider").endswith(_ANONYMOUS):
        arguments = {"skip_signature": True}
    elif get("assumed.role.arn"):
        arguments = {"role_arn": get("assumed.role.arn")}
    scheme, _, host = get("endpoint").rstrip("/").rpartition("://")
    of_aws = _AWS_HOST.fullmatch(host)
    default_region = "" if not host else _DEFAULT_REGION if of_aws is None else of_aws[1] or ""
    arguments["region"] = get("endpoint.region") or default_region
    if host and not of_aws:
        scheme = scheme or ("http" if get("connection.ssl.enabled").lower() == "false" else "https")
        by_path = get("path.style.access").lower() == "true"
        arguments["endpoint"] = f"{scheme}://{host}" if by_path else f"{scheme}://{bucket.name}.{host}"
        arguments["virtual_hosted_style_request"] = not by_path
        arguments["allow_http"] = scheme == "http"
    if get("attempts.maximum"):
        arguments["max_retries"] = max(1, int(get("attempts.maximum")) - 1)
    return arguments | _s3_encryption(get)


def _s3_encryption(get: Callable[[str], str]) -> dict[str, str]:
    algorithm = get("encryption.algorithm") or get("server-side-encryption-algorithm")
    if not algorithm:
        return {}
    if algorithm not in _S3_ENCRYPTIONS:
        raise ConfigError(
            f"fs.s3a.encryption.algorithm {algorithm} is not supported; use one of {', '.join(_S3_ENCRYPTIONS)}"
        )
    name, key = _S3_ENCRYPTIONS[algorithm]
    value = get("encryption.key") or get("server-side-encryption.key")
    return {"server_side_encryption": name, **({key: value} if key else {})}


def _gs(_: Bucket, settings: Settings) -> dict[str, Any]:
    def get(*names: str) -> str:
        return next((value.strip() for name in names if (value := settings(name))), "")

    url = get("fs.gs.storage.root.url").rstrip("/")
    keyfile = get("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
    is_anonymous = get("fs.gs.auth.type").upper() == "UNAUTHENTICATED" or get("google.cloud.auth.null.enable") == "true"
    return {
        "service_account": keyfile,
        "skip_signature": is_anonymous,
        "base_url": url,
        "allow_http": url.startswith("http://"),
    }


def _azure(bucket: Bucket, settings: Settings) -> dict[str, Any]:
    host = bucket.host.replace(".blob.", ".dfs.")

    def get(name: str) -> str:
        return (settings(f"fs.azure.{name}.{host}") or settings(f"fs.azure.{name}") or "").strip()

    account, _, suffix = host.partition(".dfs")
    arguments: dict[str, Any] = {"account_name": account}
    if suffix and suffix != _PUBLIC_AZURE:
        arguments["endpoint"] = f"https://{account}.blob{suffix}"
    blob_host = host.replace(".dfs.", ".blob.")
    key = get("account.key") or (settings(f"fs.azure.account.key.{blob_host}") or "").strip()
    sas = get("sas.fixed.token") or (settings(f"fs.azure.sas.{bucket.name}.{blob_host}") or "").strip()
    if get("account.auth.type").lower() == "oauth":
        return arguments | _azure_oauth(get)
    if sas:
        return {**arguments, "sas_key": sas.lstrip("?")}
    return {**arguments, "account_key": key}


def _azure_oauth(get: Callable[[str], str]) -> dict[str, Any]:
    tenant = _TENANT.match(get("account.oauth2.client.endpoint"))
    return {
        "client_id": get("account.oauth2.client.id"),
        "client_secret": get("account.oauth2.client.secret"),
        "federated_token_file": get("account.oauth2.token.file"),
        "authority_host": tenant[1] if tenant else "",
        "tenant_id": tenant[2] if tenant else get("account.oauth2.msi.tenant"),
        "msi_endpoint": get("account.oauth2.msi.endpoint"),
    }
