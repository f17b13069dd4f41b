"""Clients that are slow or send too much, to each route of a web server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence

__all__ = ["Misuse"]

PATIENCE_SECONDS = 60
RouteKey = tuple[str, str]
"""Method and path."""


class Misuse:
    """Misuses of a server on 127.0.0.1.

    :param routes: method and path of each route.
    """

    def __init__(self, port: int, routes: Sequence[RouteKey], headers: str = "") -> None:
        self.port, self.routes = port, routes
        self._head = f"Host: 127.0.0.1:{port}\r\n{headers}"

    def left_open_by_slow_headers(self) -> list[RouteKey]:
        """Routes whose connection stays open although its headers do not end."""
        return self._left_open(lambda method, path: f"{method} {path} HTTP/1.1\r\n{self._head}A: b")

    def left_open_by_slow_bodies(self) -> list[RouteKey]:
        """Routes whose connection stays open although the request's body does not end."""
        return self._left_open(
            lambda method, path: f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: 100000000000\r\n\r\n1"
        )

    def _left_open(self, request: Callable[[str, str], str]) -> list[RouteKey]:
        with contextlib.ExitStack() as stack:
            opened = {route: stack.enter_context(self._connected(request(*route).encode())) for route in self.routes}
            return [route for route, one in opened.items() if not _has_ended(one)]

    def accepting_large_headers(self) -> dict[RouteKey, int]:
        """Routes that answer a request with half a megabyte of headers, and the status of the answer."""
        many = "".join(f"A{number}: {'b' * 1000}\r\n" for number in range(500))
        codes = {}
        for method, path in self.routes:
            with self._connected(f"{method} {path} HTTP/1.1\r\n{self._head}{many}\r\n".encode()) as one:
                codes[method, path] = _code(_received(one))
        return {route: code for route, code in codes.items() if code not in (0, 400)}

    def answers_to_large_bodies(self, size: int) -> dict[RouteKey, int]:
        """The status of the answer to a body of so many bytes, by route; 0: none."""
        codes = {}
        for method, path in self.routes:
            head = f"{method} {path} HTTP/1.1\r\n{self._head}Connection: close\r\nContent-Length: {size}\r\n\r\n"
            with self._connected(head.encode() + bytes(size)) as one:
                codes[method, path] = _code(_received(one))
        return codes

    def _connected(self, data: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)
        with contextlib.suppress(ConnectionError):  # the server need not read to the end
            connection.sendall(data)
        return connection


def _has_ended(connection: socket.socket) -> bool:
    try:
        _received(connection)
    except TimeoutError:
        return False
    return True


def _received(connection: socket.socket) -> bytes:
    """What comes until the connection ends."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            data += part
    return data


def _code(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0
