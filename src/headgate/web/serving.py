"""The web server: uvicorn in a separate thread, while a ``with`` block runs."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headgate.errors import ConfigError

__all__ = ["Connections", "Serving"]

_LAST_ANSWERS_SECONDS = 2
_HEAD = b"HTTP/1.1 "
_JOINED_BYTES = 1 << 16
"""Larger bodies are not copied just to be sent together with a head."""
_HEAD_BYTES = 256 << 10
"""Most bytes of a request's line and headers, in about. A longer one than 64 KiB has a line that is refused anyway."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connections(Protocol):
    """Receives notifications of connections, in the server's thread."""

    def opened(self, key: int, client: str, /) -> None:
        """Handle a new connection from an address; ``key`` is unique among open connections."""

    def lost(self, key: int, client: str, error: Exception | None, /) -> None:
        """Handle the end of a connection, perhaps with an error."""


class Serving:
    """Serves ``app`` within a ``with`` block. The constructor opens the port, so that a port in use is an error before
    anything else starts. An application may store data of a connection in the dict ``connection`` of requests' state.

    :param port: 0 lets the system choose; :attr:`port` is the port in use.
    :param name: name of the server's thread.
    :param tls: the files of the certificate and of its key (None: the same file), PEM; None: no TLS.
    :param connections: notified of each connection.
    :param idle_seconds: how long a connection stays open without a request after an answer.
    :param request_seconds: how long a request may take to arrive, and a new connection's first one to begin.
    :param most_connections: open connections; one more is answered with 503 and closed.
    :raises ConfigError: the address cannot be listened on, or the certificate cannot be used.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        name: str = "headgate-http",
        tls: tuple[Path, Path | None] | None = None,
        connections: Connections | None = None,
        idle_seconds: int = 5,
        request_seconds: float = 30.0,
        most_connections: int = 1000,
    ) -> None:
        if tls is not None:
            _check_certificate(*tls)
        certificate, key = tls or (None, None)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}/"
        limits = {"notified": connections, "request_seconds": request_seconds, "most_connections": most_connections}
        protocol = type("_Configured", (_Protocol,), limits)
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=idle_seconds,
            timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name=name, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, extended: sends short answers at once, keeps a state per connection, notifies of connections
    and limits them.
    """

    notified: ClassVar[Connections | None]
    request_seconds: ClassVar[float]
    most_connections: ClassVar[int]
    _arrival: asyncio.TimerHandle | None = None
    """Ends the connection, unless the request has arrived before."""
    _head_bytes = 0
    """Received since the last request's end; -1: the headers are complete."""

    def connection_made(self, transport: Any) -> None:
        self.app_state = {**self.app_state, "connection": {}}
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type]
        self._peer = self.client[0] if self.client else "unknown"
        if self.notified is not None:
            self.notified.opened(id(self), self._peer)
        if len(self.connections) > self.most_connections:
            self.transport.write(_FULL)
            self.transport.close()
        else:
            self._arrival = self.loop.call_later(self.request_seconds, self._give_up)

    def data_received(self, data: bytes) -> None:
        if self._head_bytes > _HEAD_BYTES:
            self.send_400_response("The request's headers are too large.")
            return
        if self._head_bytes >= 0:
            self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        if self._arrival is None:
            self._arrival = self.loop.call_later(self.request_seconds, self._give_up)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = -1
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._unset_arrival()
        super().on_message_complete()

    def _give_up(self) -> None:
        self._arrival = None
        if self.flow.read_paused:  # this server does not read, so the client is not late
            self._arrival = self.loop.call_later(self.request_seconds, self._give_up)
        else:
            self.transport.close()

    def _unset_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_arrival()
        if self.notified is not None:
            self.notified.lost(id(self), self._peer, exc)
        super().connection_lost(exc)


class _Joining:
    """A transport that delays the head of an answer until the next write, at most until the loop's next turn, and sends
    both together. uvicorn writes them one by one, each a system call here and a wakeup for the client.
    """

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes | memoryview) -> None:
        """Write like a transport, but delay what looks like a head."""
        if self._head and len(data) <= _JOINED_BYTES:
            data, self._head = self._head + data, b""
        else:
            self._flush()
            if bytes(data[: len(_HEAD)]) == _HEAD:
                self._head = bytes(data)
                self._loop.call_soon(self._flush)
                return
        self._transport.write(data)

    def close(self) -> None:
        """Close after everything is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


def _check_certificate(certificate: Path, key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:  # an encrypted key is refused: there is no prompt for its password
        reason = error.strerror or str(error)
        raise ConfigError(f"the certificate {certificate} cannot be used: {reason}") from None


def _listen(host: str, port: int) -> socket.socket:
    try:
        address_info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, address = address_info[0], address_info[4]
        listening = socket.create_server(address, family=family)
        # Connections inherit it. asyncio does not set it on sockets created this way. Without it the body of an answer
        # waits some 40 ms until the client acknowledges the headers.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        # create_server's text repeats the address.
        reason = (error.strerror or str(error)).partition(" (while attempting to bind")[0]
        raise ConfigError(f"cannot listen on {host}, port {port}: {reason}") from None
