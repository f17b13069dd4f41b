"""Who may read the relay: tenants, known by a token, or addresses, if there are no tenants; and web pages, by their
origins in settings (RFC 6454).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.requests import Request

from headgate.errors import ConfigError
from headgate.web import Token

__all__ = ["ANY_ORIGIN", "Client", "NotAllowedError", "Tenant", "check_origins", "client_of"]

ANY_ORIGIN: Final = "*"
_LONGEST_NAME: Final = 200
"""Most characters of a tenant's name, percent-encoded: its groups have a folder of that name."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


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


def check_origins(origins: Sequence[str]) -> None:
    """:raises ConfigError: an entry is not an origin as a browser sends it, so it would never match."""
    for one in origins:
        if one != ANY_ORIGIN and one != _as_sent(one):
            raise ConfigError(
                f"allow_origins: {one!r} is not an origin as browsers send it, such as https://dash.example or "
                "http://localhost:8000; * allows all pages"
            )


def _as_sent(origin: str) -> str | None:
    """Return scheme, host and port as a browser writes them; None: this is not an origin."""
    try:
        parts = urlsplit(origin)
        port, host = parts.port, parts.hostname
    except ValueError:
        return None
    if not parts.scheme or not host or not host.isascii() or any(one.isspace() or one == "*" for one in host):
        return None
    named = f"[{host}]" if ":" in host else host
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{named}{shown}"
