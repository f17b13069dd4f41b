"""Requests to a relay, or to the first that answers of several that give the same SCNs.

What an answer means, by its status: 200 is one; what may be another one later (:func:`headgate.web.may_pass`) is a
:class:`ConnectError`; anything else says that the request is wrong and stays wrong, a :class:`ConfigError`. A relay
says most of what is wrong with status 500, as Databus does: there the headers decide. ``Retry-After`` is kept for
:meth:`Transport.seconds_until_asked`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from headgate.errors import ConfigError, ConnectError, HeadgateError, ProtocolError, ScnNotFoundError
from headgate.web import WebServer, may_pass, seconds_to_wait

__all__ = ["Access", "Transport"]

_REFUSALS: Final = ("InvalidRequestParamValueException", "UnknownCommandException")


@dataclass(frozen=True)
class Access:
    """How a relay is asked."""

    token: str | None = None
    """Sent as ``Authorization: Bearer …``."""
    ca_file: Path | None = None
    """Certificates to trust; None: the system's."""

    def __repr__(self) -> str:
        return f"Access(token={'…' if self.token else None}, ca_file={self.ca_file})"


class Transport:
    """One kept connection, of one thread.

    :param urls: ``http://host:port`` or ``https://…``; :meth:`switch` takes the next.
    :raises ConfigError: a URL is none of a relay.
    """

    def __init__(self, urls: Sequence[str], access: Access | None = None) -> None:
        access = access or Access()
        self._token = access.token
        self._relays = [_server(url, access.ca_file) for url in urls]
        if not self._relays:
            raise ConfigError("no relay is named")
        self._current = 0
        self._not_before = [0.0] * len(self._relays)
        self._connection: http.client.HTTPConnection | None = None

    def __len__(self) -> int:
        return len(self._relays)

    @property
    def relay(self) -> str:
        """The relay that is asked now, as ``host:port``."""
        at = self._relays[self._current]
        return f"{at.host}:{at.port}"

    def switch(self) -> None:
        """The next request goes to the next relay, by a new connection."""
        self.close()
        self._current = (self._current + 1) % len(self._relays)

    def seconds_until_asked(self) -> float:
        """How long the relay that is asked next wants to be left alone; 0: it does not."""
        return max(0.0, self._not_before[self._current] - time.monotonic())

    def close(self) -> None:
        """Requests after it make a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def failure(self, message: str) -> ConnectError:
        """An error that names the relay."""
        at = self._relays[self._current]
        return ConnectError(message, host=at.host, port=at.port)

    def get(
        self, path: str, parameters: Mapping[str, str] | None = None, *, scn: int = -1
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Body and headers of a good answer.

        :param scn: what was asked for, for the error.
        :raises ConnectError: there is none.
        :raises ScnNotFoundError: the relay no longer holds what was asked for.
        :raises ConfigError: the relay refuses the request, or its certificate cannot be verified.
        """
        query = "&".join(f"{name}={quote(value)}" for name, value in (parameters or {}).items())
        return self._read("GET", f"/{path}?{query}" if query else f"/{path}", None, scn)

    def json(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        """The same as a value."""
        body, _ = self.get(path, parameters)
        return _parsed(path, body)

    def post(self, path: str, value: Any) -> Any:
        """Send a value; the answer is one, too. It may arrive twice: a connection that was idle is tried again."""
        body, _ = self._read("POST", f"/{path}", json.dumps(value).encode(), -1)
        return _parsed(path, body)

    def _read(self, method: str, target: str, content: bytes | None, scn: int) -> tuple[bytes, http.client.HTTPMessage]:
        try:
            with self._relays[self._current].answering():
                response = self._answer(method, target, content)
                body = response.read()
        except HeadgateError:
            self.close()
            raise
        if response.status == 200:
            return body, response.headers
        raise self._error(response, scn)

    def _answer(self, method: str, target: str, content: bytes | None) -> http.client.HTTPResponse:
        if self._connection is not None:
            # The relay closes connections that were idle for some seconds; then a new one is as good.
            with contextlib.suppress(ConnectionError):
                return WebServer.ask(self._connection, method, target, content, self._token)
            self.close()
        self._connection = self._open()
        return WebServer.ask(self._connection, method, target, content, self._token)

    def _open(self) -> http.client.HTTPConnection:
        return self._relays[self._current].connect()

    def _error(self, response: http.client.HTTPResponse, scn: int) -> Exception:
        message = response.headers.get("x-dbus-error-message") or f"status {response.status}"
        if (response.headers.get("x-dbus-error-cause") or "").endswith("ScnNotFoundException"):
            return ScnNotFoundError(message, scn=scn)
        status, named = response.status, response.headers.get("x-dbus-error") or ""
        if named.endswith(_REFUSALS) or not may_pass(status):
            return ConfigError(f"the relay {self.relay} refuses the request: {message}")
        self._not_before[self._current] = time.monotonic() + seconds_to_wait(status, response.headers)
        return self.failure(f"the relay cannot answer: {message}")


def _server(url: str, ca_file: Path | None) -> WebServer:
    try:
        return WebServer.of(url, "the relay", ca_file)
    except ValueError:
        raise ConfigError(f"{url} is no relay; it should look like http://host:11115") from None


def _parsed(path: str, body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise ProtocolError(f"/{path} is not JSON: is this a relay?") from None
