"""HTTP client by Python's standard library: connections, tokens, and headgate errors for failed connections.

The caller interprets the responses; ``_answers`` decides on retries.
"""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from headgate.errors import ConfigError, ConnectError
from headgate.tls import client_context
from headgate.web._tokens import check_token

__all__ = ["WebServer"]

_TIMEOUT_SECONDS: Final = 60.0
"""Longer than a relay keeps a request waiting."""


@dataclass(frozen=True)
class WebServer:
    """The address of a web server, and how to connect.

    :param name: for error messages.
    :param ca_file: certificates to trust; None: the system's.
    :param ca_setting: the name of that setting, for error messages.
    """

    name: str
    tls: bool
    host: str
    port: int
    ca_file: str | os.PathLike[str] | None = None
    ca_setting: str = "ca_file"

    @classmethod
    def of(cls, url: str, name: str, ca_file: str | os.PathLike[str] | None, ca_setting: str = "ca_file") -> WebServer:
        """Parse ``http://host:port`` or ``https://…``; ignore the path and what follows.

        :raises ValueError: not such a URL, it has a user name, or no host can have its name.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("not the URL of a server")
        parts.hostname.encode("idna")  # labels of 1 to 63 characters; a lookup of another name raises no OSError
        tls = parts.scheme == "https"
        return cls(name, tls, parts.hostname, parts.port or (443 if tls else 80), ca_file, ca_setting)

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection; the first request opens it, the caller closes it.

        :raises ConfigError: the CA file holds no certificates.
        """
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_SECONDS)
        try:
            context = client_context(self.ca_file)
        except OSError as error:
            raise ConfigError(f"{self.ca_file} holds no certificates: {error}") from None
        return http.client.HTTPSConnection(self.host, self.port, timeout=_TIMEOUT_SECONDS, context=context)

    @staticmethod
    def request(
        connection: http.client.HTTPConnection, method: str, target: str, content: bytes | None, token: str | None
    ) -> http.client.HTTPResponse:
        """Send a request and return the response, with its body unread.

        :param content: JSON.
        :raises ConfigError: the token cannot be sent in a header.
        """
        headers = {} if content is None else {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {check_token(token, 'the token')}"
        connection.request(method, target, content, headers)
        return connection.getresponse()

    @contextmanager
    def convert_errors(self) -> Iterator[None]:
        """Convert errors of requests in this block.

        :raises ConnectError: the server does not answer.
        :raises ConfigError: its certificate cannot be verified.
        """
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"the certificate of {self.name} ({self.host}:{self.port}) cannot be verified ({error.verify_message}):"
                f" {self.ca_setting} names the certificates to trust"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            text = str(error) or type(error).__name__
            raise ConnectError(f"{self.name} does not answer: {text}", host=self.host, port=self.port) from None
