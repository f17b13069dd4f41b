"""What a ``Host`` header names.

Most programs send ``name:port`` or ``[address]:port`` (RFC 9110, "Host"). Databus's Java client sends what Java prints
of an ``InetSocketAddress`` (``AbstractNettyHttpConnection.java``): ``name/address:port``, without the name if it never
had one. An IPv6 address stands there in brackets since Java 14, without them before. No browser sends a slash: what is
behind one in a URL is no part of its host.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.web import is_loopback

__all__ = ["host_and_port", "is_here"]

_NAME: Final = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)


class _Host(NamedTuple):
    names: tuple[str, ...]
    """A name and an address, or one of them; without brackets."""
    port: str


def is_here(host: str) -> bool:
    """Whether all that a header names is this machine."""
    names = _parse(host).names
    return bool(names) and all(map(is_loopback, names))


def host_and_port(host: str, server: tuple[str, int]) -> str:
    """The server in the plain form ``host:port``, by the first name in the header.

    :param server: the address that was connected to, for what the header does not say.
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
