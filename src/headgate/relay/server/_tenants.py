"""Who may read the relay: tenants, known by a token, or addresses, if there are no tenants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Final
from urllib.parse import quote

from pydantic import AfterValidator, Field, InstanceOf
from pydantic.dataclasses import dataclass as checked_dataclass
from starlette.requests import Request

from headgate.config import SECTION
from headgate.web import Token

__all__ = ["Client", "NotAllowedError", "Tenant", "TenantSettings", "client_of", "is_named"]

_LONGEST_NAME: Final = 200
"""Most characters of a tenant's name, percent-encoded: its groups have a folder of that name."""


def _check_name(name: str) -> str:
    if not name or "/" in name or len(quote(name, safe="")) > _LONGEST_NAME:
        raise ValueError(f"{name!r} is not a tenant name")
    return name


@checked_dataclass(frozen=True, config=SECTION)
class TenantSettings:
    """Settings of a tenant, of the same names in the TOML file."""

    name: Annotated[str, AfterValidator(_check_name)]
    sources: tuple[str, ...] | None = Field(default=None, kw_only=True)
    """Names of logical sources, or patterns of them; None: all, and every command."""
    concurrent: int | None = Field(default=None, kw_only=True, gt=0)
    """Most concurrent requests; None: any number."""
    requests_per_second: float | None = Field(default=None, kw_only=True, gt=0)
    """On average over a second."""
    bytes_per_second: float | None = Field(default=None, kw_only=True, gt=0)
    """Of answers' bodies: above it the next request gets 429 and a body pauses."""


@checked_dataclass(frozen=True, config=SECTION)
class Tenant(TenantSettings):
    """A client with a token."""

    token: InstanceOf[Token]


def is_named(source: str, names: Iterable[str]) -> bool:
    """Return whether a logical source has one of these names, which may be patterns."""
    return any(fnmatchcase(source, name) for name in names)


class NotAllowedError(Exception):
    """A tenant requests what it may not read."""


@dataclass(frozen=True)
class Client:
    """The sender of a request."""

    name: str
    tenant: Tenant | None = None

    @property
    def readable(self) -> tuple[str, ...] | None:
        """Names of the sources that may be read, or patterns of them; None: all."""
        return None if self.tenant is None else self.tenant.sources

    @property
    def is_restricted(self) -> bool:
        """Whether only some sources may be read."""
        return self.readable is not None

    def may_read(self, source: str) -> bool:
        """Whether events of the logical source of this name may be delivered."""
        return self.readable is None or is_named(source, self.readable)

    def check(self, sources: Iterable[str]) -> None:
        """:raises NotAllowedError: one of these logical sources may not be read."""
        for one in sources:
            if not self.may_read(one):
                raise NotAllowedError(f"the tenant {self.name} may not read {one}")


def client_of(request: Request) -> Client:
    """Return the sender of a request."""
    client: Client = request.state.client
    return client
