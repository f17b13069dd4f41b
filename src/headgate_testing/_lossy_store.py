"""An object store that loses or refuses requests and answers, at random: an HTTP proxy in front of one.

A request that is chosen is lost before the store has it, or answered by a closed connection after the store has carried
it out, or carried out late, when the client no longer waits; or it is refused for now, as by a store that is too busy.
Clients repeat requests, so some are chosen together with all that follow for the same object, until so many are lost.

A slow network to a store, or one that is cut, is :class:`headgate_testing.Proxy`'s.
"""

from __future__ import annotations

import enum
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

__all__ = ["Answer", "Loss", "LossyStore"]

Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body."""

_LATE_SECONDS: Final = 0.3
_MOST_TOGETHER: Final = 16
"""Of one object. A commit is settled by some twelve requests, so a client sometimes never learns the outcome."""
_NOT_FORWARDED: Final = frozenset({"connection", "expect", "transfer-encoding"})
"""Headers of one connection (RFC 9110, 7.6.1). Clients do not sign them."""


class Loss(enum.Enum):
    """What is lost of a request."""

    BEFORE = enum.auto()
    """The request: the store never has it."""
    AFTER = enum.auto()
    """The answer: the store has carried the request out."""
    LATE = enum.auto()
    """The answer; and the store carries the request out some time later."""
    BUSY = enum.auto()
    """The request, by an answer: 503, as S3's ``SlowDown`` and Azure's ``ServerBusy``."""
    THROTTLED = enum.auto()
    """The same by 429, GCS's answer to too many requests."""


_REFUSALS: Final = {Loss.BUSY: 503, Loss.THROTTLED: 429}
_REFUSAL: Final = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"
)


class LossyStore:
    """A proxy from :attr:`endpoint` to an object store. A context manager; opened when created.

    :param endpoint: of the store: ``http://HOST:PORT``.
    :param seed: of the choice.
    :param spared: paths that contain this are never chosen; None: none is spared.
    """

    def __init__(self, endpoint: str, seed: int, spared: str | None = None) -> None:
        self._target = urlsplit(endpoint).netloc
        self._choice, self._spared, self._lock = random.Random(seed), spared, threading.Lock()
        self._rest: dict[str, int] = {}
        self.share = self.commit_share = 0.0
        """Shares of the requests that are chosen: of all, and of those that put a commit into a table's log."""
        self.kinds: Sequence[Loss] = tuple(Loss)
        """What may be lost of a request that is chosen; ``LATE`` of commits only."""
        self.lost: Counter[tuple[str, Loss]] = Counter()
        """Number of lost requests, by method and loss; those that put a commit have the method ``COMMIT``."""
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="headgate-lossy-store", daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def choose(self, method: str, path: str) -> Loss | None:
        """Choose what is lost of a request; None: nothing."""
        is_commit = method == "PUT" and "/_delta_log/" in path and path.endswith(".json")
        with self._lock:
            if self._spared is not None and self._spared in path:
                return None
            rest = self._rest.pop(path, 0)
            if rest:
                self._rest[path] = rest - 1
            elif self._choice.random() >= (self.commit_share if is_commit else self.share):
                return None
            elif is_commit and self._choice.random() < 0.5:
                self._rest[path] = self._choice.randrange(1, _MOST_TOGETHER)
            loss: Loss = self._choice.choice([one for one in self.kinds if is_commit or one is not Loss.LATE])
            self.lost["COMMIT" if is_commit else method, loss] += 1
            return loss

    def forward(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Have the store carry a request out; return status, headers and body of its answer."""
        host, _, port = self._target.partition(":")
        connection = HTTPConnection(host, int(port), timeout=60)
        try:
            connection.request(method, path, body or None, {**headers})
            answer: HTTPResponse = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, store: LossyStore) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = store

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing if a client closes its connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _Server

    def _serve(self) -> None:
        store, body = self.server.store, self._body()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_FORWARDED}
        request = self.command, self.path, headers, body
        loss = store.choose(self.command, unquote(urlsplit(self.path).path))
        self.close_connection = loss is not None
        if loss in _REFUSALS:
            self._answer(_REFUSALS[loss], [("Content-Type", "application/xml"), ("Retry-After", "0")], _REFUSAL)
        elif loss is Loss.LATE:
            timer = threading.Timer(_LATE_SECONDS, _forward_late, (store, *request))
            timer.daemon = True
            timer.start()
        elif loss is not Loss.BEFORE:
            answer = store.forward(*request)
            if loss is None:
                self._answer(*answer)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        has_body = self.command != "HEAD"
        for name, value in headers:
            if name.lower() not in _NOT_FORWARDED and not (has_body and name.lower() == "content-length"):
                self.send_header(name, value)
        if has_body:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


for _method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler._serve)


def _forward_late(store: LossyStore, *request: Any) -> None:
    with suppress(OSError, HTTPException):
        store.forward(*request)
