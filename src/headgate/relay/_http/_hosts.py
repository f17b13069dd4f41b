"""Parser of ``Host`` headers.

Most programs send ``name:port`` or ``[address]:port`` (RFC 9110, "Host"). Databus's Java client sends what Java prints
of an ``InetSocketAddress`` (``AbstractNettyHttpConnection.java``): ``name/address:port``, without the name if it never
had one. Since Java 14 an IPv6 address is in brackets there, before without them. No browser sends a slash, because in a
URL it ends the host.
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
