"""A server's log out of a relay that keeps it (``headgate relay`` with ``[log]``), over HTTP.

``POST /log`` asks for a stretch and answers with what the server itself would have sent, ending in an EOF packet; see
docs/relay.md, "The log itself". What goes wrong is told as the relay's other errors are, by the header
``x-dbus-error-cause``, which has the name of an error of ours.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from headgate import errors
from headgate.archive._wire import LogFile, LogHead
from headgate.errors import (
    AccessError,
    BinlogPurgedError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    HeadgateError,
    ServerBehindError,
)
from headgate.gtid import GtidSet
from headgate.mysql import ByteStream, Connection, KeptLog, LogRequest, Prerequisite
from headgate.web import LONGEST_SECONDS, WebServer, may_pass, seconds_to_wait

__all__ = ["LogOfRelay", "relay_prerequisite"]

_LONGEST_PAUSES_SECONDS: Final = LONGEST_SECONDS
"""After so much waiting in all for one request, a relay that is still busy is an error. A pause is at most as long, and
a tenth more, so a request waits for some two minutes at most.
"""
_sleep: Final = time.sleep
_CAUSES: Final[Mapping[str, type[HeadgateError]]] = {
    one.__name__: one for one in (BinlogPurgedError, ConfigError, ServerBehindError)
}
"""What a relay may tell; anything else is worth another try."""

_ENDS: Final[Mapping[str, type[HeadgateError]]] = {
    name: one
    for name, one in vars(errors).items()
    if isinstance(one, type) and issubclass(one, HeadgateError) and issubclass(one, errors.Definite)
}
"""What a relay's reader may have ended with."""


@dataclass(frozen=True)
class LogOfRelay:
    """The log of one physical source of a relay.

    :raises ConfigError: the URL is none of a relay.
    """

    url: str
    source: str | None = None
    """The physical source's name; None: the relay has but one."""
    token_file: str | None = None
    """Holds the token that the relay asks for."""
    ca_file: str | None = None
    """PEM file with the certificates to trust; None: the system's."""
    falls_back: bool = False
    """Whether the server itself is read where the relay's log does not reach back."""

    def __post_init__(self) -> None:
        try:
            self._server()
            parts = urlsplit(self.url)
            good = not parts.path.strip("/") and not parts.query
        except ValueError:
            good = False
        if not good:
            raise ConfigError("that is no relay; it should look like http://host:11115")

    def _server(self) -> WebServer:
        return WebServer.of(self.url, f"the relay at {self.url}", self.ca_file, "relay_ca_file")

    @contextmanager
    def open(self, asked: LogRequest) -> Iterator[KeptLog]:
        """The stretch that was asked for.

        :raises HeadgateError: as :class:`headgate.mysql.LogKeeper` says.
        """
        if asked.endless:
            raise ConfigError("a relay's log is read up to its end, again and again")
        body: dict[str, Any] = {
            "source": self.source,
            "server_uuid": asked.server_uuid,
            "until": asked.until,
            **{name: None if one is None else str(one) for name, one in _sets(asked).items()},
        }
        with self._asked("POST", "/log", body) as answer:
            uuid = answer.getheader("x-headgate-server-uuid") or ""
            yield KeptLog(ByteStream(_Body(answer, self)), uuid)

    def head(self) -> LogHead:
        """What is kept now.

        :raises HeadgateError: the relay cannot be asked, or cannot go on reading the log.
        """
        value = self._json("/log/head")
        if value["failed"]:
            raise _stopped(value)
        return LogHead.from_json(value)

    def files(self) -> list[LogFile]:
        """The servers' files that are kept, oldest first.

        :raises HeadgateError: as :meth:`head`.
        """
        return [LogFile.from_json(one) for one in self._json("/log/files")]

    def _json(self, path: str) -> Any:
        query = "" if self.source is None else f"?source={quote(self.source, safe='')}"
        with self._asked("GET", path + query) as answer:
            try:
                return json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._lost(error) from None

    @contextmanager
    def _asked(self, method: str, target: str, body: Any = None) -> Iterator[http.client.HTTPResponse]:
        """A good answer. Where a relay says when to come again, that is when, for some time."""
        server, waited = self._server(), 0.0
        content = None if body is None else json.dumps(body).encode()
        while True:
            with contextlib.closing(server.connect()) as connection:
                with server.answering():
                    answer = server.ask(connection, method, target, content, self._token())
                    problem = None if answer.status == http.HTTPStatus.OK else self._problem(answer)
                if problem is None:
                    yield answer
                    return
            asked = seconds_to_wait(answer.status, answer.headers)
            if not asked or waited > _LONGEST_PAUSES_SECONDS:
                raise problem
            pause = asked * random.uniform(1.0, 1.1)  # tasks that were refused together do not come together again
            _sleep(pause)
            waited += pause

    def _token(self) -> str | None:
        if self.token_file is None:
            return None
        try:
            return Path(self.token_file).expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"cannot read the relay's token in {self.token_file}") from None

    def _problem(self, answer: http.client.HTTPResponse) -> HeadgateError:
        answer.read()
        status, error = answer.status, answer.getheader("x-dbus-error") or ""
        text = f"{answer.getheader('x-dbus-error-message') or f'HTTP status {status}'} (relay {self.url})"
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            return AccessError(f"{text}: relay_token_file names a file with the token")
        if error.endswith("UnknownCommandException"):
            return ConfigError(f"the relay at {self.url} cannot give the log: it is of an older version")
        if not may_pass(status):
            return ConfigError(text)
        kind = _CAUSES.get(answer.getheader("x-dbus-error-cause") or "", ConnectError)
        return kind(text, **_fields(answer.getheader("x-headgate-fields")))

    def _lost(self, error: Exception) -> HeadgateError:
        return ConnectionLostError(f"the answer of the relay at {self.url} broke off: {_text(error)}")


def _stopped(head: Mapping[str, Any]) -> HeadgateError:
    """Why a relay does not read its server's log any more: the error that it ended with, if it is one of ours."""
    told = head.get("error") or {}
    kind = _ENDS.get(str(told.get("name")), ConfigError)
    about = told.get("message") or head["problem"]
    return kind(f"the relay does not read the log any more: {about}", **told.get("fields", {}))


def _fields(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def relay_prerequisite(connection: Connection, relay: LogOfRelay) -> Prerequisite:
    """Whether a relay keeps the log of the server that is connected, as a row of the report on it."""
    (uuid,) = connection.query("SELECT @@global.server_uuid")[0]
    expected = f"keeps the log of server {uuid}"
    try:
        head = relay.head()
    except HeadgateError as error:
        remedy = "start it with [log] disk_bytes, and give its address and, if it asks for one, its token"
        return Prerequisite("relay", expected, error.message, "fail", remedy)
    if not head.server_uuid:
        return Prerequisite("relay", expected, "has read nothing yet", "warn", "wait until it has")
    if head.server_uuid != uuid:
        actual = f"reads the log of server {head.server_uuid}"
        return Prerequisite("relay", expected, actual, "fail", "let both addresses lead to one server")
    return Prerequisite("relay", expected, expected, "ok")


def _sets(asked: LogRequest) -> dict[str, GtidSet | None]:
    return {"had": asked.had, "wanted": asked.wanted, "executed": asked.executed}


class _Body:
    """An answer's body as a socket."""

    def __init__(self, answer: http.client.HTTPResponse, relay: LogOfRelay) -> None:
        self._answer, self._relay = answer, relay

    def recv_into(self, view: memoryview) -> int:
        """As ``socket.recv_into``.

        :raises ConnectionLostError: the answer ended before its end.
        """
        try:
            count = self._answer.readinto(view)
        except (OSError, http.client.HTTPException) as error:
            raise self._relay._lost(error) from None
        if not count:
            raise self._relay._lost(EOFError("it has no end"))
        return count
