"""``receiver``: an HTTP server that keeps what is posted to it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Receiver(ThreadingHTTPServer):
    """Keeps what it is sent; answers with ``code``.

    :param tls: the server's certificate and key.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.posts: list[tuple[str, dict[str, str], Any]] = []
        self.code = 200
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_address[1]}/hook"

    @contextmanager
    def serving(self) -> Iterator[Receiver]:
        """Answers in a thread."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        with self:
            thread.start()
            try:
                yield self
            finally:
                self.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        receiver.posts.append((self.path, dict(self.headers), body))
        self.send_response(receiver.code)
        self.send_header("Content-Length", "0")
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as server:
        yield server
