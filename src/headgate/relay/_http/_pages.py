"""Which web pages may read the relay through a browser.

A browser reaches its machine's loopback addresses, whatever page it shows. Databus answers
``Access-Control-Allow-Origin: *`` to everything, so any page may read it. Here only pages of the listed origins may
(Fetch Standard, "CORS protocol"; RFC 6454). The others are blocked:

* no answer names an unlisted origin, so a browser does not show it to the page;
* a relay on a loopback address without tokens answers only to ``Host``s of this machine, so that a page whose name
  resolves to 127.0.0.1 does not count as the relay's (DNS rebinding);
* requests that change something are refused from other origins: they do harm even without a readable answer.

Programs send no ``Origin`` and are not affected. The origin ``*`` gives Databus's behaviour, without these checks.

As ``Host`` most programs send ``name:port`` or ``[address]:port`` (RFC 9110, "Host"). Databus's Java client sends what
Java prints of an ``InetSocketAddress`` (``AbstractNettyHttpConnection.java``): ``name/address:port``, without the name
if it never had one. Since Java 14 an IPv6 address is in brackets there, before without them. No browser sends a slash,
because in a URL it ends the host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.relay._http._commands import failure
from headgate.relay._tenants import ANY_ORIGIN
from headgate.web import is_loopback, is_same_origin

__all__ = ["Origins", "host_and_port", "is_here"]

_PREFLIGHT: Final = {
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "authorization, last-event-id",
    "access-control-max-age": "3600",
}
_EXPOSED: Final = (
    "retry-after, x-dbus-error, x-dbus-error-message, x-dbus-error-cause, x-dbus-error-cause-message, "
    "x-dbus-pending-event-size, x-dbus-protocol-version, x-headgate-checkpoint"
)
"""Headers that a page may read in addition to the body."""
_NAME: Final = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)


class Origins:
    """ASGI middleware that checks web pages' origins.

    :param allowed: origins, or ``*``.
    :param local: refuse requests for other hosts than this machine.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str], *, local: bool) -> None:
        self._app, self._allowed, self._any = app, frozenset(allowed), ANY_ORIGIN in allowed
        self._local = local and not self._any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        answer, cors_headers = self._refusal(scope["method"], host, origin), self._headers(origin)
        if answer is None and scope["method"] == "OPTIONS":  # a preflight carries no token
            answer = Response(
                status_code=204, headers=_PREFLIGHT if "access-control-allow-origin" in cors_headers else None
            )
        await (answer or self._app)(scope, receive, _with(cors_headers, send) if cors_headers else send)

    def _headers(self, origin: str | None) -> dict[str, str]:
        if self._any:
            return {"access-control-allow-origin": ANY_ORIGIN, "access-control-expose-headers": _EXPOSED}
        if not self._allowed:
            return {}
        if origin not in self._allowed:
            return {"vary": "Origin"}
        return {"access-control-allow-origin": origin, "access-control-expose-headers": _EXPOSED, "vary": "Origin"}

    def _refusal(self, method: str, host: str, origin: str | None) -> Response | None:
        if self._local and host and not is_here(host):
            return failure(
                "Forbidden", "without tokens a relay on a loopback address answers to localhost only", status=421
            )
        if origin is None or method in ("GET", "HEAD", "OPTIONS") or self._any or origin in self._allowed:
            return None
        if is_same_origin(origin, host):
            return None
        return failure("Forbidden", f"pages of {origin} may not send such requests: see allow_origins", status=403)


def _with(headers: dict[str, str], send: Send) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_more


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
