"""Who may read the relay: tenants, known by a token, or addresses, if there are no tenants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import quote

from starlette.requests import Request

from headgate.errors import ConfigError
from headgate.web import Token

__all__ = ["Client", "NotAllowedError", "Tenant", "client_of"]

_LONGEST_NAME: Final = 200
"""Most characters of a tenant's name, percent-encoded: its groups have a folder of that name."""


@dataclass(frozen=True)
class Tenant:
    """A client with a token.

    :raises ConfigError: a limit that is not positive, or a name that is empty, too long, or has ``/``.
    """

    name: str
    token: Token
    sources: tuple[str, ...] | None = None
    """Names of logical sources, or patterns of them; None: all, and every command."""
    concurrent: int | None = None
    """Most concurrent requests; None: any number."""
    requests_per_second: float | None = None
    """On average over a second."""
    bytes_per_second: float | None = None
    """Of answers' bodies: above it the next request gets 429 and a body pauses."""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or len(quote(self.name, safe="")) > _LONGEST_NAME:
            raise ConfigError(f"{self.name!r} is not a tenant name")
        for limit in (self.concurrent, self.requests_per_second, self.bytes_per_second):
            if limit is not None and limit <= 0:
                raise ConfigError(f"a limit of the tenant {self.name} is {limit}, not above 0")


class NotAllowedError(Exception):
    """A tenant requests what it may not read."""


@dataclass(frozen=True)
class Client:
    """The sender of a request."""

    name: str
    tenant: Tenant | None = None

    @property
    def is_restricted(self) -> bool:
        """Whether only some sources may be read."""
        return self.tenant is not None and self.tenant.sources is not None

    def may_read(self, source: str) -> bool:
        """Whether events of the logical source of this name may be delivered."""
        if self.tenant is None or self.tenant.sources is None:
            return True
        return any(fnmatchcase(source, pattern) for pattern in self.tenant.sources)

    def check(self, sources: Iterable[str]) -> None:
        """:raises NotAllowedError: one of these logical sources may not be read."""
        for one in sources:
            if not self.may_read(one):
                raise NotAllowedError(f"the tenant {self.name} may not read {one}")


def client_of(request: Request) -> Client:
    """Return the sender of a request."""
    client: Client = request.state.client
    return client
