"""The proxy forwards every byte, and breaks exactly when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from headgate_testing import Proxy


@contextlib.contextmanager
def echo_server() -> Iterator[tuple[str, int]]:
    """Sends back what it gets, to each client in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while data := client.recv(65536):
                client.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield listener.getsockname()[:2]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with echo_server() as (host, port), Proxy(host, port) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=60)


def echo(client: socket.socket, data: bytes) -> bytes:
    """What comes back of ``data`` until all did or the connection ended."""
    sender = threading.Thread(target=send, args=(client, data))
    sender.start()
    back = bytearray()
    try:
        while len(back) < len(data) and (piece := client.recv(65536)):
            back += piece
    except ConnectionError:
        pass
    sender.join()
    return bytes(back)


def send(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        client.sendall(data)


def ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def refused(proxy: Proxy) -> bool:
    """A reset may come while we connect or when we read."""
    try:
        client = connect(proxy)
    except ConnectionError:
        return True
    with client:
        return ended(client)


DATA = bytes(range(256)) * 4096


def test_every_byte_is_forwarded_both_ways(proxy: Proxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        assert echo(first, DATA) == DATA
        assert echo(second, b"x") == b"x"
    assert proxy.accepted == 2


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_ends_open_and_new_connections_until_restored(proxy: Proxy, reset: bool) -> None:
    with connect(proxy) as client:
        assert echo(client, b"x") == b"x"
        proxy.cut(reset=reset)
        assert ended(client)
    assert refused(proxy)
    proxy.restore()
    with connect(proxy) as client:
        assert echo(client, b"y") == b"y"


def test_a_drop_ends_only_what_is_open(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert echo(client, b"x") == b"x"
        proxy.drop()
        assert ended(client)
    with connect(proxy) as client:
        assert echo(client, b"y") == b"y"


def test_it_counts_the_connections_that_faults_break(proxy: Proxy) -> None:
    proxy.drop()
    assert proxy.broken == 0
    with connect(proxy) as first, connect(proxy) as second:
        assert (echo(first, b"x"), echo(second, b"x")) == (b"x", b"x")
        assert proxy.open_connections == 2
        proxy.cut()
        assert (proxy.open_connections, proxy.broken) == (0, 2)
    assert refused(proxy)
    assert proxy.broken == 3
    proxy.restore()
    proxy.cut_after(5)
    with connect(proxy) as client:
        assert echo(client, DATA) == DATA[:5]
        assert proxy.broken == 4


@pytest.mark.parametrize("count", [1, 1000, 65536, 300_001])
def test_it_cuts_once_after_so_many_bytes(proxy: Proxy, count: int) -> None:
    proxy.cut_after(count)
    with connect(proxy) as client:
        assert echo(client, DATA) == DATA[:count]
    with connect(proxy) as client:
        assert echo(client, DATA) == DATA


def test_limit_and_delay_take_time(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert echo(client, b"x") == b"x"
        proxy.limit(100_000)
        start = time.monotonic()
        assert echo(client, b"x" * 20_000) == b"x" * 20_000
        assert time.monotonic() - start > 0.2
        proxy.restore()
        proxy.delay(0.1)
        start = time.monotonic()
        assert echo(client, b"y") == b"y"
        assert time.monotonic() - start >= 0.2
        proxy.restore()
        assert echo(client, DATA) == DATA


def test_a_dead_server_ends_the_connection_and_closing_twice_is_fine() -> None:
    with socket.socket() as nobody:  # bound, so that the port is no other's, and not listening
        nobody.bind(("127.0.0.1", 0))
        proxy = Proxy("127.0.0.1", nobody.getsockname()[1])
        assert refused(proxy)
        proxy.close()
        proxy.close()
