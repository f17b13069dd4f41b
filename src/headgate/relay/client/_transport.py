"""Requests to a relay, or to one of several that give the same SCNs.

The status of an answer decides: 200 is success. If a later answer may differ (:func:`headgate.web.is_retryable`), the
error is a :class:`ConnectError`. Any other status means that the request is wrong and stays wrong, a
:class:`ConfigError`. A relay reports most errors with status 500, as Databus does: there the headers decide.
``Retry-After`` is kept for :meth:`RelayTransport.requested_wait_seconds`.

A relay that is reached over another connection may be another one, or have restarted with other sources and SCNs. So no
request is repeated over a new connection: a lost one is a :class:`ConnectionLostError`, and the client looks the relay
up again. Only a member's report is repeated, because the group's file decides about it.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from headgate.errors import (
    ConfigError,
    ConnectError,
    ConnectionLostError,
    HeadgateError,
    ProtocolError,
    ScnNotFoundError,
)
from headgate.parsing import parse_json
from headgate.relay.databus import ERROR, ERROR_CAUSE, ERROR_MESSAGE, INVALID_PARAMETER, SCN_NOT_FOUND, UNKNOWN_COMMAND
from headgate.web import WebServer, answer_errors, is_retryable, seconds_to_wait

__all__ = ["Access", "RelayTransport", "valid_answer"]

_REFUSALS: Final = (INVALID_PARAMETER, UNKNOWN_COMMAND)


@dataclass(frozen=True)
class Access:
    """Token and trusted certificates for a relay."""

    token: str | None = None
    """Sent as ``Authorization: Bearer …``."""
    ca_file: Path | None = None
    """Certificates to trust; None: the system's."""

    def __repr__(self) -> str:
        return f"Access(token={'…' if self.token else None}, ca_file={self.ca_file})"


class RelayTransport:
    """One persistent connection, for one thread.

    :param urls: ``http://host:port`` or ``https://…``; :meth:`switch` selects the next.
    :raises ConfigError: a URL is not that of a relay, or there is none.
    """

    def __init__(self, urls: Sequence[str], access: Access | None = None) -> None:
        access = access or Access()
        self._token = access.token
        self._relays = [_server(url, access.ca_file) for url in urls]
        if not self._relays:
            raise ConfigError("no relay URL is given")
        self._current = 0
        self._not_before = [0.0] * len(self._relays)
        self._connection: http.client.HTTPConnection | None = None

    def __len__(self) -> int:
        return len(self._relays)

    @property
    def number(self) -> int:
        """Number of the current relay, from 0."""
        return self._current

    @property
    def relay(self) -> str:
        """The current relay, as ``host:port``."""
        server = self._relays[self._current]
        return f"{server.host}:{server.port}"

    def switch(self) -> None:
        """Select the next relay, over a new connection."""
        self.close()
        self._current = (self._current + 1) % len(self._relays)

    def requested_wait_seconds(self) -> float:
        """Return the seconds to wait before the next request to the current relay, as it requested; 0: none."""
        return max(0.0, self._not_before[self._current] - time.monotonic())

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def failure(self, message: str) -> ConnectError:
        """Return an error that names the relay."""
        server = self._relays[self._current]
        return ConnectError(message, host=server.host, port=server.port)

    def get(
        self, path: str, parameters: Mapping[str, str] | None = None, *, scn: int = -1
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Return body and headers of a successful answer.

        :param scn: the requested SCN, for the error.
        :raises ConnectError: there is no answer, or one that may differ later.
        :raises ConnectionLostError: the connection of earlier requests has ended, perhaps because it was idle.
        :raises ScnNotFoundError: the relay no longer holds the requested events.
        :raises ConfigError: the relay refuses the request, or its certificate cannot be verified.
        """
        query = "&".join(f"{name}={quote(value)}" for name, value in (parameters or {}).items())
        return self._read("GET", f"/{path}?{query}" if query else f"/{path}", None, scn)

    def json(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        """Return the parsed body of :meth:`get`."""
        body, _ = self.get(path, parameters)
        return _parsed(path, body)

    def post(self, path: str, value: Any) -> Any:
        """Send a value as JSON and return the parsed answer. It is sent again, over a new connection, if the relay has
        closed the last one.
        """
        content = json.dumps(value).encode()
        try:
            body, _ = self._read("POST", f"/{path}", content, -1)
        except ConnectionLostError:
            body, _ = self._read("POST", f"/{path}", content, -1)
        return _parsed(path, body)

    def _read(self, method: str, target: str, content: bytes | None, scn: int) -> tuple[bytes, http.client.HTTPMessage]:
        try:
            with self._relays[self._current].convert_errors():
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
            try:
                return WebServer.request(self._connection, method, target, content, self._token)
            except (ConnectionError, http.client.NotConnected):
                server = self._relays[self._current]
                raise ConnectionLostError(
                    "the relay has closed the connection", host=server.host, port=server.port
                ) from None
        self._connection = self._open()
        response = WebServer.request(self._connection, method, target, content, self._token)
        self._connection.auto_open = 0  # http.client would replace a closed connection without notice
        return response

    def _open(self) -> http.client.HTTPConnection:
        return self._relays[self._current].connect()

    def _error(self, response: http.client.HTTPResponse, scn: int) -> Exception:
        message = response.headers.get(ERROR_MESSAGE) or f"status {response.status}"
        if response.headers.get(ERROR_CAUSE) == SCN_NOT_FOUND:
            return ScnNotFoundError(message, scn=scn)
        status, error_class = response.status, response.headers.get(ERROR)
        if error_class in _REFUSALS or not is_retryable(status):
            return ConfigError(f"the relay {self.relay} refuses the request: {message}")
        self._not_before[self._current] = time.monotonic() + seconds_to_wait(status, response.headers)
        return self.failure(f"the relay cannot answer: {message}")


def _server(url: str, ca_file: Path | None) -> WebServer:
    try:
        return WebServer.of(url, "the relay", ca_file)
    except ValueError:
        raise ConfigError(f"{url} is not a relay; expected http://host:11115") from None


def valid_answer(path: str) -> AbstractContextManager[None]:
    """Convert errors of reading the parsed answer in this block.

    :raises ProtocolError: it has another form than a relay's.
    """
    return answer_errors(f"/{path} gave another answer than a relay's: is this a relay?")


def _parsed(path: str, body: bytes) -> Any:
    try:
        return parse_json(body)
    except ValueError:
        raise ProtocolError(f"/{path} is not JSON: is this a relay?") from None
