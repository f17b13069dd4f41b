"""Ports of private servers."""

from __future__ import annotations

import socket
import struct

import pytest

from headgate_testing._ports import free_port

PORT_RANGE = 51
"""IP_LOCAL_PORT_RANGE (ip(7), Linux 6.3): from which ports the system chooses one."""


def chosen_among(port: int) -> int:
    """What the system gives to who asks for any port, but may give this one alone."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.IPPROTO_IP, PORT_RANGE, struct.pack("I", port | port << 16))
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_free_port_is_for_who_names_it() -> None:
    port = free_port()
    with socket.socket() as released:
        released.bind(("127.0.0.1", 0))
        other = int(released.getsockname()[1])
    try:
        assert chosen_among(other) == other
    except OSError as error:
        pytest.skip(f"this system chooses ports from one range only: {error}")
    with pytest.raises(OSError, match="in use"):
        chosen_among(port)
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port
