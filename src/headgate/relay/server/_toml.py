"""A relay's configuration in TOML, with tables by pattern and passwords by reference::

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

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass

from headgate.config import SECTION, Conflict, LocalPath, Mistakes, RelaySettings, ServerLogin, VariableName, checked
from headgate.errors import ConfigError
from headgate.mysql import ConnectionSettings
from headgate.parsing import parse_toml
from headgate.relay.server._sources import Id, LogicalSources, PhysicalSource, RelayConfig, repeated_names
from headgate.relay.server._tenants import Tenant, TenantSettings
from headgate.web import Token

__all__ = ["relay_of_toml"]


class _Physical(ServerLogin):
    id: Id
    name: str
    sources: LogicalSources

    @field_validator("url")
    @classmethod
    def _check_parameters(cls, url: str) -> str:
        try:
            ConnectionSettings.from_url(url)
        except ConfigError as error:
            raise ValueError(error.message) from None
        return url

    def source(self) -> PhysicalSource:
        settings = ConnectionSettings.from_url(self.url, **self.passwords)
        listed = [
            {"id": one.id, "name": one.name, "uri": one.table, "partitionFunction": f"constant:{one.partition}"}
            for one in self.sources
        ]
        shown = {"name": self.name, "id": self.id, "uri": settings.url, "sources": listed}
        return PhysicalSource(self.id, self.name, settings, self.sources, shown)


@checked_dataclass(frozen=True, config=SECTION)
class _Tenant(TenantSettings):
    token_env: VariableName | None = Field(default=None, kw_only=True)
    token_file: LocalPath | None = Field(default=None, kw_only=True)

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if (self.token_file is None) == (self.token_env is None):
            raise ValueError(f"the tenant {self.name} needs either token_file or token_env")
        return self

    def tenant(self) -> Tenant:
        token = Token.from_env(str(self.token_env)) if self.token_file is None else Token.from_file(self.token_file)
        return Tenant(token=token, **{one.name: getattr(self, one.name) for one in fields(TenantSettings)})


class _Toml(RelaySettings):
    physical: tuple[_Physical, ...] = Field(min_length=1)
    tenants: tuple[_Tenant, ...] = ()

    def _conflicts(self) -> Iterator[Conflict]:
        yield from super()._conflicts()
        yield from repeated_names(self.physical, self.tenants)


def relay_of_toml(text: str, file: Path) -> RelayConfig:
    """Return the configuration in the text of a file.

    :raises ConfigError: it is not TOML; all invalid settings; passwords and tokens that cannot be read.
    """
    try:
        value = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    parsed = checked(_Toml, value, where=f"{file}: ", folder=file.absolute().parent)
    mistakes, physical, tenants = Mistakes(f"{file}: "), list[PhysicalSource](), list[Tenant]()
    for each in parsed.physical:
        with mistakes:
            physical.append(each.source())
    for one in parsed.tenants:
        with mistakes:
            tenants.append(one.tenant())
    mistakes.check()
    return checked(RelayConfig, {**dict(parsed), "physical": physical, "tenants": tenants}, where=f"{file}: ")
