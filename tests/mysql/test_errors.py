"""The boundary: whatever the driver, the socket or the server says, a headgate error comes out."""

from __future__ import annotations

import inspect
import socket
import ssl
from collections.abc import Iterator

import pymysql
import pytest

from headgate.errors import (
    AccessError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    DecodeError,
    DefiniteServerError,
    HeadgateError,
    ProtocolError,
    ServerSettingError,
    TransientServerError,
)
from headgate.mysql import server_error
from headgate.mysql._errors import foreign_errors, packet_error


def translated(error: BaseException, *, opening: bool = False) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught, foreign_errors("db", 3306, opening=opening):
        raise error
    assert caught.value.__cause__ is error
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *[(code, AccessError) for code in (1044, 1045, 1142, 1143, 1227, 3118)],
        *[(code, TransientServerError) for code in (1040, 1053, 1158, 1159, 1160, 1161, 1205, 1213, 1317, 3024)],
        *[(code, DefiniteServerError) for code in (1049, 1054, 1064, 1146, 1290, 9999)],
    ],
)
def test_numbers_of_the_server(code: int, kind: type[HeadgateError]) -> None:
    for error in (
        server_error(code, "HY000", "bad\nthing"),
        packet_error(b"\xff" + code.to_bytes(2, "little") + b"#HY000bad\nthing"),
        translated(pymysql.err.OperationalError(code, "bad\nthing")),
        translated(pymysql.err.ProgrammingError(code, "bad\nthing"), opening=True),
    ):
        assert type(error) is kind
        assert "bad thing" in str(error)
        assert error.code == code


def driver_errors() -> Iterator[type[pymysql.err.MySQLError]]:
    for _, kind in inspect.getmembers(pymysql.err, inspect.isclass):
        if issubclass(kind, pymysql.err.MySQLError):
            yield kind


@pytest.mark.parametrize("opening", [False, True])
@pytest.mark.parametrize(
    "args", [(), ("odd",), (0, ""), (2013, "lost"), (2027, "malformed"), (1064, "syntax")], ids=str
)
@pytest.mark.parametrize("kind", list(driver_errors()), ids=lambda kind: kind.__name__)
def test_no_driver_error_gets_through(kind: type[Exception], args: tuple[object, ...], opening: bool) -> None:
    translated(kind(*args), opening=opening)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "no answer in time"),
        (socket.gaierror(-2, "Name or service not known"), "host name is unknown"),
        (OSError("odd"), "odd"),
    ],
)
def test_sockets(error: OSError, text: str) -> None:
    assert type(translated(error, opening=True)) is ConnectError
    assert type(translated(error)) is ConnectionLostError
    wrapped = pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'db' (…)")
    wrapped.original_exception = error  # type: ignore[attr-defined]
    assert text in str(translated(wrapped, opening=True))
    assert type(translated(wrapped, opening=True)) is ConnectError


def test_tls() -> None:
    unverified = ssl.SSLCertVerificationError(1, "certificate verify failed")
    unverified.verify_code, unverified.verify_message = 18, "self-signed certificate"
    wrapped = pymysql.err.OperationalError(2003, "Can't connect")
    wrapped.original_exception = unverified  # type: ignore[attr-defined]
    assert isinstance(translated(wrapped, opening=True), ConfigError)
    refused = pymysql.err.OperationalError(2026, "SSL is required but the server doesn't support it")
    assert isinstance(translated(refused, opening=True), ServerSettingError)
    assert isinstance(translated(ssl.SSLError(1, "wrong version"), opening=True), ConnectError)


@pytest.mark.parametrize("error", [AssertionError("x"), IndexError("x"), ValueError("x")])
def test_who_does_not_speak_the_protocol(error: Exception) -> None:
    assert isinstance(translated(error, opening=True), ProtocolError)
    with pytest.raises(type(error)), foreign_errors("db", 3306):  # elsewhere it is a mistake of ours, and stays visible
        raise error


def test_text_that_is_not_utf8() -> None:
    assert isinstance(translated(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")), DecodeError)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\xff\x01", b"\x00\x01\x02"])
def test_error_packets_cut_short(payload: bytes) -> None:
    assert isinstance(packet_error(payload), ProtocolError)


def test_an_error_packet_before_the_handshake_has_no_sqlstate() -> None:
    error = packet_error(b"\xff\x10\x04Too many connections")
    assert type(error) is TransientServerError
    assert error.code == 1040
    assert error.sqlstate is None
