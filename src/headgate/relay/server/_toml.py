"""A relay's configuration in TOML, with tables by pattern and passwords by reference::

port = 11115
schemas = "schemas_registry"
state = "relay-state"
[[physical]]
name = "shop"
id = 1
url = "mysql://reader@db1:3306"
password_file = "/run/secrets/db1"
[[physical.sources]]
id = 40
name = "com.example.shop.Order"
table = "shop.orders"
[[physical.sources]]
id = 1000
name = "com.example"
table = "stock.*"          # each of these tables: com.example.stock.<table>, ids from 1000 on
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from headgate.config import Model, explain
from headgate.errors import ConfigError
from headgate.mysql import ConnectionSettings
from headgate.parsing import parse_toml
from headgate.policies import MaskKey, checked_rules, parse_rules
from headgate.relay.server._sources import (
    LARGEST_ID,
    FilePath,
    LogicalSource,
    PhysicalSource,
    RelayConfig,
    Settings,
    check_table,
)
from headgate.relay.server._tenants import Tenant
from headgate.web import Token

__all__ = ["relay_of_toml"]


class _TomlSource(Model):
    id: int = Field(ge=1, le=LARGEST_ID)
    name: str
    table: str
    partition: int = Field(1, ge=0, le=LARGEST_ID)


class _TomlPhysical(Model):
    id: int = Field(ge=1, le=LARGEST_ID)
    name: str
    url: str
    password_env: str | None = None
    password_file: str | None = None
    sources: tuple[_TomlSource, ...] = Field(min_length=1)


class _Buffer(Model):
    memory_bytes: int = Field(256 << 20, ge=256 << 10)
    disk_bytes: int = Field(0, ge=0)


class _TomlTenant(Model):
    name: str
    token_env: str | None = None
    token_file: FilePath | None = None
    sources: tuple[str, ...] | None = None
    concurrent: int | None = None
    requests_per_second: float | None = None
    bytes_per_second: float | None = None


class _Log(Model):
    disk_bytes: int = Field(ge=1 << 20)


class _Toml(Settings):
    buffer: _Buffer = Field(default_factory=lambda: _Buffer.model_validate({}))
    log: _Log | None = None
    columns: dict[str, dict[str, Any]] = Field(default_factory=dict)
    mask_key_env: str | None = None
    mask_key_file: FilePath | None = None
    physical: tuple[_TomlPhysical, ...] = Field(min_length=1)
    tenants: tuple[_TomlTenant, ...] = ()

    _check_rules = field_validator("columns")(checked_rules)

    @model_validator(mode="after")
    def _check_mask_key(self) -> _Toml:
        if self.mask_key_env is not None and self.mask_key_file is not None:
            raise ValueError("mask_key_env and mask_key_file are both set: keep one")
        return self


def relay_of_toml(text: str, file: Path) -> RelayConfig:
    """Return the configuration in the text of a file.

    :raises ConfigError: it is not TOML, or has an invalid setting.
    """
    try:
        value = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    try:
        parsed = _Toml.model_validate(value, context=file.parent)
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(error, _Toml)}") from None
    key_file = None if parsed.mask_key_file is None else str(parsed.mask_key_file)
    has_key = key_file is not None or parsed.mask_key_env is not None
    return RelayConfig(
        **{name: getattr(parsed, name) for name in Settings.model_fields},
        physical=tuple(_toml_physical(one, file) for one in parsed.physical),
        memory_bytes=parsed.buffer.memory_bytes,
        disk_bytes=parsed.buffer.disk_bytes,
        tenants=tuple(_tenant(one, file) for one in parsed.tenants),
        log_disk_bytes=0 if parsed.log is None else parsed.log.disk_bytes,
        columns=parse_rules(parsed.columns),
        mask_key=MaskKey(parsed.mask_key_env, key_file) if has_key else None,
    )


def _tenant(value: _TomlTenant, file: Path) -> Tenant:
    path = value.token_file
    if (path is None) == (value.token_env is None):
        raise ConfigError(f"{file}: the tenant {value.name} needs either token_file or token_env")
    token = Token.from_env(str(value.token_env)) if path is None else Token.from_file(path)
    return Tenant(token=token, **value.model_dump(exclude={"token_env", "token_file"}))


def _toml_physical(value: _TomlPhysical, file: Path) -> PhysicalSource:
    settings = ConnectionSettings.from_url(
        value.url, password_env=value.password_env, password_file=value.password_file
    )
    try:
        sources = tuple(LogicalSource(one.id, one.name, check_table(one.table), one.partition) for one in value.sources)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    listed = [
        {"id": one.id, "name": one.name, "uri": one.table, "partitionFunction": f"constant:{one.partition}"}
        for one in sources
    ]
    shown = {"name": value.name, "id": value.id, "uri": settings.url, "sources": listed}
    return PhysicalSource(value.id, value.name, settings, sources, shown)
