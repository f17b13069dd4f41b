"""The web server: uvicorn in a thread of its own, for as long as a block runs."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

import uvicorn
from starlette.types import ASGIApp

from headgate.errors import ConfigError

__all__ = ["Serving"]

_LAST_ANSWERS_SECONDS = 2


class Serving:
    """Serves ``app`` within a ``with`` block. The port is taken when the object is made, so that one that is in use
    is told before anything else starts.

    :param port: 0 lets the system choose; :attr:`port` says which it was.
    :param name: of the server's thread.
    :raises ConfigError: the address cannot be listened on.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, *, name: str = "headgate-http") -> None:
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
        config = uvicorn.Config(
            app, http="h11", ws="none", loop="asyncio", lifespan="off", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name=name, daemon=True
        )

    def __enter__(self) -> Serving:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, address = found[0], found[4]
        return socket.create_server(address, family=family)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
