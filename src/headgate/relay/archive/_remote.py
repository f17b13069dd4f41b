"""Client of a relay's binlog archive (``headgate relay`` with ``log_disk_bytes``), over HTTP.

``POST /log`` requests a range and answers with the bytes that the server would have sent, ending in an EOF packet; see
docs/reference/relay.md, "The log itself". Errors have the form of the relay's other errors; the header
``x-dbus-error-cause`` has the name of a headgate error.
"""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

from headgate import errors
from headgate.config import is_server_url
from headgate.errors import (
    AccessError,
    BinlogPurgedError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    HeadgateError,
    ServerBehindError,
)
from headgate.mysql import ArchivedLog, ByteStream, Connection, LogRequest, Prerequisite, server_identity
from headgate.parsing import parse_json
from headgate.relay.archive._wire import FILES, HEAD, RANGE, SERVER_UUID, LogFile, LogHead, RangeRequest
from headgate.relay.databus import ERROR, ERROR_CAUSE, ERROR_MESSAGE
from headgate.retrying import Failures, RetryPolicy
from headgate.web import LONGEST_SECONDS, WebServer, answer_errors, is_retryable, read_token, seconds_to_wait

__all__ = ["LogOfRelay", "relay_prerequisite"]

_WHILE_BUSY: Final = RetryPolicy(0.0, deadline_seconds=2 * LONGEST_SECONDS, errors=HeadgateError)
_CAUSES: Final[Mapping[str, type[HeadgateError]]] = {
    one.__name__: one for one in (BinlogPurgedError, ConfigError, ServerBehindError)
}
"""Errors that a relay may send; anything else may be retried."""

_FEEDER_ERRORS: Final[Mapping[str, type[HeadgateError]]] = {
    name: one
    for name, one in vars(errors).items()
    if isinstance(one, type) and issubclass(one, HeadgateError) and issubclass(one, errors.Definite)
}
"""Errors with which a relay's log feeder may have failed."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class LogOfRelay:
    """The binlog archive of one physical source of a relay.

    :raises ConfigError: the URL is not a relay's.
    """

    url: str
    source: str | None = None
    """The physical source's name; None: the relay has only one."""
    token_file: str | None = None
    """File with the token for the relay."""
    ca_file: str | None = None
    """PEM file with the certificates to trust; None: the system's."""
    falls_back: bool = False
    """Whether to read at the server what the relay's log no longer has."""
    retry: RetryPolicy = field(default=_WHILE_BUSY, repr=False, compare=False)
    """Waits while a relay is busy. The relay requests each pause."""

    def __post_init__(self) -> None:
        if not is_server_url(self.url):
            raise ConfigError("not the URL of a relay; use the form http://host:11115")

    def _server(self) -> WebServer:
        return WebServer.of(self.url, f"the relay at {self.url}", self.ca_file, "relay_ca_file")

    @contextmanager
    def open(self, request: LogRequest) -> Iterator[ArchivedLog]:
        """Request a range of the log.

        :raises HeadgateError: as :class:`headgate.mysql.BinlogArchive` says.
        """
        if request.endless:
            raise ConfigError("an endless read of a relay's log is not possible: read up to its end repeatedly")
        content = RANGE.dump_json(RangeRequest(**{**vars(request), "source": self.source}))
        with self._response("POST", "/log", content) as answer:
            uuid = answer.getheader(SERVER_UUID) or ""
            yield ArchivedLog(ByteStream(_Body(answer, self)), uuid)

    def head(self) -> LogHead:
        """Return what is archived now.

        :raises HeadgateError: the relay cannot be reached, or its log feeder has failed.
        """
        return self._get("/log/head", _head)

    def files(self) -> list[LogFile]:
        """Return the servers' files in the archive, oldest first.

        :raises HeadgateError: as :meth:`head`.
        """
        return self._get("/log/files", FILES.validate_python)

    def _get(self, path: str, parse: Callable[[Any], _T]) -> _T:
        """Return the description of the archive in an answer.

        :raises ProtocolError: it has another form.
        """
        query = "" if self.source is None else f"?source={quote(self.source, safe='')}"
        with self._response("GET", path + query) as answer:
            try:
                value = parse_json(answer.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._lost(error) from None
        with answer_errors(f"{self.url}{path} does not describe a log: is this a relay?"):
            return parse(value)

    @contextmanager
    def _response(self, method: str, target: str, content: bytes | None = None) -> Iterator[http.client.HTTPResponse]:
        """Yield a successful response; while the relay requests to wait, retry for up to about two minutes."""
        server, failures = self._server(), Failures(self.retry)
        while True:
            with contextlib.closing(server.connect()) as connection:
                with server.convert_errors():
                    answer = server.request(connection, method, target, content, self._token())
                    problem = None if answer.status == http.HTTPStatus.OK else self._problem(answer)
                if problem is None:
                    yield answer
                    return
            delay = seconds_to_wait(answer.status, answer.headers)
            if not delay:
                raise problem
            failures.add(problem)
            failures.wait(delay)

    def _token(self) -> str | None:
        file = self.token_file
        return None if file is None else read_token(file, f"the file {file} with the relay's token")

    def _problem(self, answer: http.client.HTTPResponse) -> HeadgateError:
        status, error, body = answer.status, answer.getheader(ERROR) or "", _object(answer.read())
        message = body.get("message") or answer.getheader(ERROR_MESSAGE) or f"HTTP status {status}"
        text = f"{message} (relay {self.url})"
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            return AccessError(f"{text}: relay_token_file names a file with the token")
        if error.endswith("UnknownCommandException"):
            return ConfigError(f"the relay at {self.url} cannot give the log: it is not headgate's")
        if not is_retryable(status):
            return ConfigError(text)
        kind = _CAUSES.get(answer.getheader(ERROR_CAUSE) or "", ConnectError)
        fields = body.get("fields")
        return kind(text, **(fields if isinstance(fields, dict) else {}))

    def _lost(self, error: Exception) -> HeadgateError:
        return ConnectionLostError(f"the answer of the relay at {self.url} broke off: {_text(error)}")


def _head(value: Any) -> LogHead:
    if value["failed"]:
        raise _stopped(value)
    return HEAD.validate_python(value)


def _stopped(head: Mapping[str, Any]) -> HeadgateError:
    """Return why a relay stopped reading its server's log: the error of its feeder, if this version knows it."""
    error = head.get("error") or {}
    kind = _FEEDER_ERRORS.get(str(error.get("name")), ConfigError)
    about = error.get("message") or head["problem"]
    return kind(f"the relay does not read the log any more: {about}", **error.get("fields", {}))


def _object(body: bytes) -> dict[str, Any]:
    """Return a JSON object; empty: it is something else."""
    try:
        value = parse_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def relay_prerequisite(connection: Connection, relay: LogOfRelay) -> Prerequisite:
    """Return whether a relay archives the log of the connected server, as a row of the prerequisites report."""
    uuid = server_identity(connection)
    expected = f"keeps the log of server {uuid}"
    try:
        head = relay.head()
    except HeadgateError as error:
        remedy = "start it with log_disk_bytes, and configure its address and, if required, its token"
        return Prerequisite("relay", expected, error.message, "fail", remedy)
    if not head.server_uuid:
        return Prerequisite("relay", expected, "has read nothing yet", "warn", "wait until it has")
    if head.server_uuid != uuid:
        actual = f"reads the log of server {head.server_uuid}"
        return Prerequisite("relay", expected, actual, "fail", "configure both with addresses of the same server")
    return Prerequisite("relay", expected, expected, "ok")


class _Body:
    """A response body with a socket's interface."""

    def __init__(self, answer: http.client.HTTPResponse, relay: LogOfRelay) -> None:
        self._answer, self._relay = answer, relay

    def recv_into(self, view: memoryview) -> int:
        """As ``socket.recv_into``.

        :raises ConnectionLostError: the answer ended before its EOF packet.
        """
        try:
            count = self._answer.readinto(view)
        except (OSError, http.client.HTTPException) as error:
            raise self._relay._lost(error) from None
        if not count:
            raise self._relay._lost(EOFError("no EOF packet"))
        return count
