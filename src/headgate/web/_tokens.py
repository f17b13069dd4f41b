"""Tokens of the web servers, and what is a loopback address.

A token is compared in constant time and is in no answer, log or repr.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import os
from pathlib import Path

from starlette.datastructures import Headers

from headgate.errors import ConfigError

__all__ = ["Token", "is_loopback"]

_SHORTEST = 16
"""Characters of a token: what ``openssl rand -hex 16`` gives is twice that; a word would be guessed."""


class Token:
    """A secret that whoever asks has to know.

    :raises ConfigError: it is too short to be one.
    """

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST:
            raise ConfigError(f"the token is shorter than {_SHORTEST} characters; make one: openssl rand -hex 16")
        self._bytes = text.encode()

    @classmethod
    def from_env(cls, name: str) -> Token:
        """The token in an environment variable.

        :raises ConfigError: it is not set, or what it holds is too short.
        """
        if name not in os.environ:
            raise ConfigError(f"the environment variable {name} is not set; it should hold a token")
        return cls(os.environ[name].strip())

    @classmethod
    def from_file(cls, file: Path) -> Token:
        """The token in a file, without the white space around it.

        :raises ConfigError: the file cannot be read, or what it holds is too short.
        """
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"the token file {file} cannot be read: {reason}") from None
        return cls(text.strip())

    def equals(self, given: str) -> bool:
        """Whether this is it; takes as long for any other of the same length."""
        return hmac.compare_digest(given.encode(), self._bytes)

    def __repr__(self) -> str:
        return "Token(…)"

    def bearer(self, headers: Headers) -> bool:
        """Whether the request carries it as Bearer."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.equals(value.strip())

    def basic(self, headers: Headers) -> bool:
        """Whether the request carries it as the password of any user, as browsers ask for it."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            _, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return self.equals(password)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address or name."""
    name = host.strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"
