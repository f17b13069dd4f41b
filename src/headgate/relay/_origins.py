"""Origins of web pages in settings (RFC 6454)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from headgate.errors import ConfigError

__all__ = ["ANY", "check_origins"]

ANY: Final = "*"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def check_origins(origins: Sequence[str]) -> None:
    """:raises ConfigError: an entry is not an origin as a browser sends it, so it would never match."""
    for one in origins:
        if one != ANY and one != _as_sent(one):
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
