"""What a connection does when it is taken, closed, or not what was asked for."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from headgate.errors import ConnectionLostError, ProtocolError, ServerSettingError
from headgate.mysql import Connection, ConnectionSettings, TlsMode


class FakeDriver:
    """As much of PyMySQL's connection as is used, over one end of a socket pair."""

    server_version = "8.0.36-28"

    def __init__(self, sock: socket.socket) -> None:
        self._sock: socket.socket | None = sock
        self.calls: list[object] = []

    @property
    def open(self) -> bool:
        return self._sock is not None

    def _execute_command(self, code: int, payload: bytes) -> None:
        if self._sock is None:
            raise pymysql.err.InterfaceError(0, "")
        self.calls.append((code, payload))

    def _force_close(self) -> None:
        self.calls.append("force_close")
        self._sock = None

    def close(self) -> None:
        if self._sock is None:
            raise pymysql.err.Error("Already closed")
        self.calls.append("close")
        self._sock = None

    def cursor(self) -> Any:
        raise pymysql.err.InterfaceError(0, "")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_an_answer_takes_the_connection_until_it_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    driver = FakeDriver(pair[0])
    connection = Connection(ConnectionSettings("h"), driver)
    stream = connection.command(3, b"SELECT")
    pair[1].sendall(b"abc")
    stream.fill(3)
    assert stream.buf[:3].tobytes() == b"abc"
    with pytest.raises(ProtocolError, match="busy"):
        connection.command(3, b"SELECT")
    with pytest.raises(ProtocolError, match="busy"):
        connection.query("SELECT")
    connection.finished()
    connection.command(3, b"SELECT 2")
    assert driver.calls == [(3, b"SELECT"), (3, b"SELECT 2")]


@pytest.mark.parametrize("busy", [False, True])
def test_closing_says_goodbye_only_when_somebody_listens(pair: tuple[socket.socket, socket.socket], busy: bool) -> None:
    driver = FakeDriver(pair[0])
    with Connection(ConnectionSettings("h"), driver) as connection:
        if busy:
            connection.command(0x12, b"")
    connection.close()
    assert driver.calls[-1] == ("force_close" if busy else "close")
    with pytest.raises(ConnectionLostError):
        connection.query("SELECT 1")
    with pytest.raises(ConnectionLostError):
        connection.command(3, b"SELECT 1")


@pytest.mark.parametrize("tls", ["required", "verify_ca", "verify_identity"])
def test_a_bare_connection_is_refused_where_tls_is_a_must(
    pair: tuple[socket.socket, socket.socket], tls: TlsMode
) -> None:
    with pytest.raises(ServerSettingError, match=f"offers no TLS, but tls={tls}"):
        Connection(ConnectionSettings("h", tls=tls), FakeDriver(pair[0]))._check_encryption()
    Connection(ConnectionSettings("h"), FakeDriver(pair[0]))._check_encryption()


@pytest.mark.parametrize("version", ["5.7.44-log", "5.5.5-10.6.12-MariaDB", "11.4.2-MariaDB-log", "odd"])
def test_an_unsupported_server_is_named_before_a_statement_fails_there(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """MySQL 5.6 and MariaDB do not know all settings of a session."""
    driver = FakeDriver(pair[0])
    driver.server_version = version
    monkeypatch.setattr(driver, "connect", lambda: None, raising=False)
    monkeypatch.setattr("headgate.mysql._connection._driver", lambda *_: driver)
    monkeypatch.setattr("headgate.mysql._connection._set_socket_up", lambda *_: None)
    with pytest.raises(
        ServerSettingError, match=rf"^version is {version} on .*h:3306, but MySQL 8\.0 or newer"
    ) as caught:
        Connection.open(ConnectionSettings("h"))
    assert caught.value.setting == "version"
    assert driver.calls == ["close"]


def test_the_version_is_three_numbers(pair: tuple[socket.socket, socket.socket]) -> None:
    driver = FakeDriver(pair[0])
    connection = Connection(ConnectionSettings("h"), driver)
    for text, numbers in (("8.0.36-28", (8, 0, 36)), ("9.7.4", (9, 7, 4)), ("8.4", (8, 4, 0)), ("odd", (0, 0, 0))):
        driver.server_version = text
        assert connection.version == numbers
