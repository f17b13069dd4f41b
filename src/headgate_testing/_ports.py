"""Free TCP ports of 127.0.0.1 for private servers."""

from __future__ import annotations

import socket
from collections.abc import Callable

from headgate.errors import ConnectError

__all__ = ["free_port", "try_ports"]

_PORT_TRIES = 5


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1, which the system assigns to no other process for a minute.

    For that time the connection closed here stays in TIME-WAIT (RFC 9293, 3.6.1): a bind to exactly this port with
    SO_REUSEADDR, as servers do, succeeds; a bind to port 0 gets another one.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as client:
            listener.accept()[0].close()  # the side that closes first enters TIME-WAIT
            client.recv(1)
        return int(address[1])


def try_ports(launch: Callable[[], None], error_text: str) -> None:
    """Launch a process on free ports. If another process takes one of them first, retry.

    :param launch: finds free ports and launches.
    :param error_text: part of the error in that case.
    :raises ConnectError: it did not start.
    """
    for attempt in range(_PORT_TRIES):
        try:
            launch()
        except ConnectError as error:
            if attempt == _PORT_TRIES - 1 or error_text not in error.message:
                raise
        else:
            return
