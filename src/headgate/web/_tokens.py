"""Tokens of the web servers; detection of loopback addresses and of pages of other servers.

A token is compared in constant time and never appears in a response, log, repr or error.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.errors import ConfigError
from headgate.files import file_errors

if TYPE_CHECKING:
    from starlette.datastructures import Headers

__all__ = ["Token", "check_token", "is_foreign_page", "is_loopback", "read_token"]

_SHORTEST = 16
"""Minimum characters of a token, so that words are refused. ``openssl rand -hex 16`` gives twice as many."""
_TOKEN: Final = re.compile("[!-~]+")
"""What a header carries unchanged, and what the receiver of ``Authorization: Bearer`` reads as one word."""


def read_token(file: str | os.PathLike[str], name: str) -> str:
    """Return the token in a file, without surrounding white space.

    :param name: what errors call the file.
    :raises ConfigError: the file cannot be read, or its text is no token.
    """
    with file_errors(f"{name} cannot be read"):
        text = Path(file).expanduser().read_text(encoding="utf-8")
    return check_token(text.strip(), name)


def check_token(text: str, name: str) -> str:
    """Return the text of a token.

    :param name: what the error calls it; the text itself is not shown.
    :raises ConfigError: it is not one line of printable ASCII characters without blanks.
    """
    if not _TOKEN.fullmatch(text):
        raise ConfigError(f"{name} is not one line of printable ASCII characters without blanks, as a token must be")
    return text


class Token:
    """A secret that a request must carry.

    :raises ConfigError: it has fewer than 16 characters, or others than :func:`check_token` allows.
    """

    def __init__(self, text: str) -> None:
        check_token(text, "the token")
        if len(text) < _SHORTEST:
            raise ConfigError(f"the token is shorter than {_SHORTEST} characters; make one: openssl rand -hex 16")
        self._bytes = text.encode()

    @classmethod
    def from_env(cls, name: str) -> Token:
        """Read the token from an environment variable.

        :raises ConfigError: the variable is not set, or has no token.
        """
        if name not in os.environ:
            raise ConfigError(f"the environment variable {name} is not set; it should hold a token")
        return cls(check_token(os.environ[name].strip(), f"the environment variable {name}"))

    @classmethod
    def from_file(cls, file: Path) -> Token:
        """Read the token from a file.

        :raises ConfigError: as :func:`read_token`, or its token is too short.
        """
        return cls(read_token(file, f"the token file {file}"))

    def equals(self, text: str) -> bool:
        """Compare in a time that does not depend on the text, for texts of the same length."""
        return hmac.compare_digest(text.encode(), self._bytes)

    def __repr__(self) -> str:
        return "Token(…)"

    def bearer(self, headers: Headers) -> bool:
        """Return whether the request carries the token as Bearer."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.equals(value.strip())

    def basic(self, headers: Headers) -> bool:
        """Return whether the request carries the token as the password of any user, as browsers prompt for it."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            _, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except ValueError:
            return False
        return self.equals(password)


def is_loopback(host: str) -> bool:
    """Return whether an address or name is reachable only from this machine."""
    name = host.strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


def is_foreign_page(headers: Headers) -> bool:
    """Return whether a browser sends a request for a page of another server, by ``Sec-Fetch-Site`` and ``Origin``."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    try:
        return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True
