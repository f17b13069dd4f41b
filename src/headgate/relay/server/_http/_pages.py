"""Web pages of other servers, which may not use the relay through a browser.

A browser reaches its machine's loopback addresses, whatever page it shows, and sends requests for a page that may not
read their answers: an image's, a link's, a form's. Databus answers ``Access-Control-Allow-Origin: *`` to everything, so
any page may read it. The relay has requests that take effect (``/startSCN`` begins a bootstrap, ``/bootstrap`` reads
the server, a ``/stream`` moves counters), so it refuses every request that a browser sends for another server's page:

* by ``Sec-Fetch-Site`` (Fetch Metadata Request Headers), which all browsers send to a trustworthy address since 2023;
* by ``Origin`` (RFC 6454), which they send with all requests but plain GETs;
* by ``Host`` on a loopback address without tokens: only names of this machine are answered, so that a page whose name
  resolves to 127.0.0.1 does not count as the relay's (DNS rebinding).

A user who types the address, or the relay's own answers, count as the relay's. Programs send neither of the first two
headers and are not affected.

As ``Host`` most programs send ``name:port`` or ``[address]:port`` (RFC 9110, "Host"). Databus's Java client sends what
Java prints of an ``InetSocketAddress`` (``AbstractNettyHttpConnection.java``): ``name/address:port``, without the name
if it never had one. Since Java 14 an IPv6 address is in brackets there, before without them. No browser sends a slash,
because in a URL it ends the host.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.relay.server._http._commands import failure
from headgate.web import is_foreign_page, is_loopback

__all__ = ["Pages", "host_and_port", "is_here"]

_FOREIGN: Final = (
    "the relay refuses requests of other servers' pages, by Origin and Sec-Fetch-Site: type its address, or let the"
    " page's server read the relay"
)
_NAME: Final = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)


class Pages:
    """ASGI middleware that refuses requests of other servers' pages.

    :param local: also refuse requests for other hosts than this machine.
    """

    def __init__(self, app: ASGIApp, *, local: bool) -> None:
        self._app, self._local = app, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        answer = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._local and host and not is_here(host):
            return failure(
                "Forbidden", "without tokens a relay on a loopback address answers to localhost only", status=421
            )
        if is_foreign_page(headers):
            return failure("Forbidden", _FOREIGN, status=403)
        return None


# --- the header Host --------------------------------------------------------------------------------------------------


class _Host(NamedTuple):
    names: tuple[str, ...]
    """A name, an address or both; without brackets."""
    port: str


def is_here(host: str) -> bool:
    """Return whether all names and addresses of a header are this machine."""
    names = _parse(host).names
    return bool(names) and all(map(is_loopback, names))


def host_and_port(host: str, server: tuple[str, int]) -> str:
    """Return the server as ``host:port``, by the first valid name in the header.

    :param server: the address that the client connected to, for parts missing in the header.
    """
    names, port = _parse(host)
    name = next((one for one in names if _NAME.fullmatch(one)), server[0])
    return f"{f'[{name}]' if ':' in name else name}:{port if port.isdecimal() and port.isascii() else server[1]}"


@lru_cache(maxsize=100)
def _parse(host: str) -> _Host:
    name, slash, rest = host.partition("/")
    if not slash:
        name, rest = "", host
    if rest.startswith("[") and "]" in rest:
        address, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    else:
        address, _, port = rest.rpartition(":") if slash and ":" in rest else rest.partition(":")
    return _Host(tuple(one for one in (name, address) if one), port)
