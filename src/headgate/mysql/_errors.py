"""Translate errors of the driver, the socket and the server into headgate's. No other module does.

Numbers: MySQL Error Message Reference, "Server" and "Client". A number that is in neither table is ``Definite``: an
unexpected error is raised at once, not retried endlessly.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pymysql

from headgate.errors import (
    AccessError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    CutValueError,
    DecodeError,
    DefiniteServerError,
    HeadgateError,
    ProtocolError,
    ServerSettingError,
    TransientServerError,
)

__all__ = ["check_warnings", "foreign_errors", "packet_error", "server_error"]

_LOGIN_REMEDY = "check the user and its password (HEADGATE_PASSWORD, password_file or password_command)"

ACCESS: Final = {
    1044: "grant it access to the database",
    1045: _LOGIN_REMEDY,
    1130: "the server accepts no connection from this host: create the user for it",
    1142: "grant it the privilege",
    1143: "grant it the privilege on the column",
    1227: "grant it the privilege",
    1370: "grant it the privilege",
    1410: "grant it the privilege",
    1698: _LOGIN_REMEDY,
    1820: "its password must be changed first: ALTER USER",
    1862: "its password has expired: ALTER USER",
    3118: "the account is locked: ALTER USER … ACCOUNT UNLOCK",
    3159: "the account or server requires TLS: use tls=required",
    3955: "the account is locked after too many wrong passwords",
}
"""Errors for missing permissions, each with its remedy."""

TRANSIENT: Final = frozenset(
    {
        1037,  # out of memory; restart server
        1038,  # out of sort memory
        1040,  # too many connections
        1041,  # out of resources
        1053,  # server shutdown in progress
        1077,  # normal shutdown
        1079,  # shutdown complete
        1080,  # forcing close of a thread
        1135,  # cannot create a new thread
        1152,  # aborted connection
        1158,  # error reading communication packets
        1159,  # timeout reading communication packets
        1160,  # error writing communication packets
        1161,  # timeout writing communication packets
        1184,  # aborting connection
        1203,  # user has max_user_connections active connections
        1205,  # lock wait timeout
        1206,  # the total number of locks exceeds the lock table size
        1213,  # deadlock
        1226,  # user has exceeded a resource
        1236,  # a dump broke off; its reader recognises the definite cases
        1317,  # query execution was interrupted (KILL QUERY)
        1412,  # table definition has changed, please retry transaction
        1615,  # prepared statement needs to be re-prepared
        3024,  # maximum statement execution time exceeded
        3032,  # the server is not able to decrypt / is offline for now
        3168,  # server isn't available
        3169,  # session was killed
        3572,  # lock could not be acquired immediately (NOWAIT)
        4031,  # disconnected because of inactivity
    }
)
"""Errors after which a retry may succeed."""

CUT: Final = {1260: "group_concat_max_len", 1301: "max_allowed_packet"}
"""Warnings for a value that is cut, empty or NULL because it exceeds this setting.

Other warnings are not about values of columns: conditions of users and expressions of virtual columns give them, too,
and their result is the value all the same."""

UNVERIFIED: Final = {
    3: "give the list of revoked certificates of the authority that signed it in tls_crl",
    9: "check the clocks of both machines",
    10: "renew the server's certificate",
    12: "renew the list of revoked certificates in tls_crl",
    23: "the authority has revoked it: give the server another one",
    62: "connect by the name in the certificate, or use tls=verify_ca",
    64: "connect by the name in the certificate, or use tls=verify_ca",
}
"""Why a certificate cannot be verified (OpenSSL's X509_V_ERR numbers, x509_vfy.h), with the remedy. Others: another
authority has signed it."""

LOST: Final = frozenset({2006, 2013, 2055, 1927})
"""Client errors: the connection ended."""

UNREACHED: Final = frozenset({2001, 2002, 2003, 2004, 2005, 2009})
"""Client errors: the connection could not be opened."""

_TLS_ERROR: Final = 2026

_CLIENT_CODES: Final = (2000, 3000)
"""Range of the clients' numbers. All others are the server's."""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def server_error(code: int, sqlstate: str, message: str) -> HeadgateError:
    """Return the error for an error packet of the server.

    :param code: MySQL's error number.
    :param sqlstate: five characters, or ``""``.
    """
    message = _one_line(message)
    if code in ACCESS:
        return AccessError(f"{message}: {ACCESS[code]}", code=code)
    kind = TransientServerError if code in TRANSIENT else DefiniteServerError
    return kind(f"MySQL error {code}: {message}", code=code, sqlstate=sqlstate or None)


def packet_error(payload: bytes) -> HeadgateError:
    """Return the error for an error packet's payload: ``ff``, code (2 bytes), ``#`` and SQLSTATE (6 bytes), message."""
    if len(payload) < 3 or payload[0] != 0xFF:
        return ProtocolError("the server sent a truncated error packet")
    code = int.from_bytes(payload[1:3], "little")
    has_state = payload[3:4] == b"#"
    sqlstate = payload[4:9].decode("ascii", "replace") if has_state else ""
    return server_error(code, sqlstate, payload[9 if has_state else 3 :].decode("utf-8", "replace"))


def check_warnings(rows: Iterable[tuple[Any, ...]]) -> None:
    """Check that no value of a result was cut.

    :param rows: of SHOW WARNINGS, which shows the first ``max_error_count`` of a statement's warnings. Only privileged
        accounts may change that number, so a codec does not rely on this check alone if it knows the cut form.
    :raises CutValueError: one was.
    """
    for _, code, message in rows:
        setting = CUT.get(int(code))
        if setting is not None:
            raise CutValueError(f"MySQL returned a cut value: {_one_line(str(message))}", setting=setting)


@contextmanager
def foreign_errors(host: str, port: int, *, opening: bool = False) -> Iterator[None]:
    """Translate errors of PyMySQL, ssl and the socket that leave this block into headgate errors.

    :param opening: the connection is being opened, so a failure is ConnectError rather than ConnectionLostError.
    """
    try:
        yield
    except HeadgateError:
        raise
    except (pymysql.err.MySQLError, OSError) as error:
        raise _translated(error, host, port, opening=opening) from error
    except UnicodeDecodeError as error:
        raise DecodeError(
            "a text of a small result is not UTF-8: select it as CONVERT(… USING utf8mb4)", host=host, port=port
        ) from error
    except RuntimeError as error:  # raised by PyMySQL for a missing package
        if not opening:
            raise
        raise ConfigError(f"cannot log in to {host}:{port}: {_one_line(str(error))}") from error
    except (AssertionError, IndexError, NotImplementedError, ValueError, struct.error) as error:
        if not opening:
            raise
        message = f"the service on {host}:{port} does not speak MySQL's protocol"
        raise ProtocolError(message, host=host, port=port) from error


def _translated(error: BaseException, host: str, port: int, *, opening: bool) -> HeadgateError:
    cause = getattr(error, "original_exception", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        remedy = UNVERIFIED.get(cause.verify_code, "give the authority that signed it in tls_ca")
        return ConfigError(
            f"TLS: the certificate of {host}:{port} cannot be verified ({_one_line(cause.verify_message)}): {remedy}"
        )
    if isinstance(cause, ssl.SSLError) and opening:
        return ConnectError(f"TLS with {host}:{port} failed: {_one_line(str(cause))}", host=host, port=port)
    if isinstance(error, pymysql.err.MySQLError):
        code, message = _code_and_message(error)
        if code == _TLS_ERROR:
            return ServerSettingError(
                f"the server at {host}:{port} offers no TLS: set it up there, or use tls=disabled",
                setting="TLS",
                expected="offered",
                actual="not offered",
            )
        if code and not _CLIENT_CODES[0] <= code < _CLIENT_CODES[1]:
            return server_error(code, "", message)
        if code not in LOST | UNREACHED and not isinstance(
            error, pymysql.err.OperationalError | pymysql.err.InterfaceError
        ):
            return ProtocolError(f"{host}:{port}: {_one_line(message) or type(error).__name__}", host=host, port=port)
    reason = _reason(cause)
    if opening:
        return ConnectError(f"cannot connect to MySQL at {host}:{port}: {reason}", host=host, port=port)
    return ConnectionLostError(f"the connection to MySQL at {host}:{port} ended: {reason}", host=host, port=port)


def _code_and_message(error: pymysql.err.MySQLError) -> tuple[int, str]:
    args: tuple[Any, ...] = error.args
    if args and isinstance(args[0], int):
        return args[0], str(args[1]) if len(args) > 1 else ""
    return 0, str(error)


def _reason(cause: BaseException) -> str:
    if isinstance(cause, socket.gaierror):
        return "the host name is unknown"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, pymysql.err.MySQLError):
        return _one_line(_code_and_message(cause)[1]) or type(cause).__name__
    if isinstance(cause, OSError):
        return _one_line(cause.strerror or str(cause)) or type(cause).__name__
    return _one_line(str(cause)) or type(cause).__name__
