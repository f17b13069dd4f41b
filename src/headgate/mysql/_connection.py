"""A logged-in connection. PyMySQL logs in and runs small statements; large answers are read from its raw socket.

This is safe because PyMySQL reads through a buffered file. Between commands the server sends nothing, so that buffer is
empty, and after a command every byte of the answer is still in the socket. A connection has one answer at a time. An
answer not read to its end makes the connection unusable, so it is closed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import pymysql

from headgate.errors import ConfigError, ConnectionLostError, ProtocolError, ServerSettingError
from headgate.mysql._errors import check_warnings, foreign_errors
from headgate.mysql._login import log_in
from headgate.mysql._plugins import PLUGINS
from headgate.mysql._settings import ConnectionSettings
from headgate.mysql._stream import ByteStream
from headgate.mysql._versions import LOG_STATUS, Version, check_version, parse_version
from headgate.tls import client_context

__all__ = ["COM_QUERY", "Connection"]

COM_QUERY: Final = 0x03

_SESSION: Final = (
    "SET SESSION time_zone = '+00:00'"
    ", sql_mode = ''"  # neither ANSI_QUOTES nor NO_BACKSLASH_ESCAPES nor PAD_CHAR_TO_FULL_LENGTH
    ", character_set_results = NULL"  # character columns arrive in their stored bytes, as the log has them
    ", autocommit = ON"
    ", transaction_isolation = 'REPEATABLE-READ'"
    ", transaction_read_only = OFF"  # else the watermark row is refused
    ", completion_type = 'NO_CHAIN'"
    ", net_write_timeout = 3600"  # seconds the server waits for us while we process what it sent
    ", wait_timeout = 86400"  # seconds a connection may idle between two batches
    ", max_execution_time = 0"
    ", sql_select_limit = 18446744073709551615"  # a server-wide limit would silently cut tables short
    ", sql_big_selects = ON"  # else max_join_size refuses to read tables with more rows
    ", sql_safe_updates = OFF"
    ", sql_auto_is_null = OFF"  # else `id IS NULL` finds the last row that this session inserted
    ", sql_buffer_result = OFF"  # else the server copies each result before it sends the first row
    ", max_sort_length = 1024"
    ", range_optimizer_max_mem_size = 8388608"  # with less, a chunk's SELECT scans the whole table
    " /*!80013 , use_secondary_engine = OFF */"  # a secondary engine has its own, later state of the rows
    " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"  # the log has these columns too
)
"""Session settings that make answers independent of the server's defaults and its ``init_connect``.

The integration test of sessions lists the settings that were tried. These are left as the server has them:
``default_week_format``, ``lc_time_names``, ``div_precision_increment`` and similar ones change only what expressions
return: conditions of users, which are written for that server, and virtual columns, whose values in the log were
computed with them.
"""

_IN_TRANSACTION: Final = 1
"""SERVER_STATUS_IN_TRANS, a flag of the server's answers."""

_PEER_LIMITS: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 30_000}
"""Seconds, seconds, count, milliseconds: if a peer vanished, a query fails after 30 seconds, a wait for data after 40
(on systems without the last option after 90), long before the read timeout. Keepalive alone does not act while a query
is sent and not acknowledged."""


class Connection:
    """One session with a server, made by :meth:`open`. Not for concurrent use by several threads."""

    def __init__(self, settings: ConnectionSettings, driver: Any) -> None:
        self.settings = settings
        self._driver = driver
        self._busy = False

    @classmethod
    def open(cls, settings: ConnectionSettings) -> Connection:
        """Connect, log in and set the session up. If the password is being rotated, wait for it (``mysql/_login.py``).

        :raises ConnectError: the server cannot be reached.
        :raises AccessError: the server refuses the login.
        :raises ConfigError: the password or a TLS file cannot be read, or the certificate cannot be verified.
        :raises ServerSettingError: the server is older than MySQL 8.0, or MariaDB, or offers no TLS.
        """
        driver = log_in(settings, partial(_connected, settings))
        connection = cls(settings, driver)
        try:
            check_version(str(driver.server_version), str(settings))
            connection._check_encryption()
            connection.query(_SESSION)
            if driver.server_status & _IN_TRANSACTION:  # init_connect began it: its read view and locks would stay
                connection.query("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def version(self) -> Version:
        """The server's version, as it was told when the connection opened."""
        return parse_version(str(self._driver.server_version))

    @property
    def encrypted(self) -> bool:
        """Whether TLS is in use."""
        return isinstance(self._socket(), ssl.SSLSocket)

    def query(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a small result as Python values; an empty list for a statement without a result.

        Text is decoded as UTF-8. Select columns of other character sets as ``CONVERT(… USING utf8mb4)``. Select binary
        values as ``HEX(…)``: a value without a character set also becomes text if it is UTF-8.

        :param args: values for ``%s`` in ``sql``; without any, ``%`` is literal.
        :raises CutValueError: a value exceeds a limit of the server.
        """
        self._check_free()
        with foreign_errors(self.settings.host, self.settings.port), self._driver.cursor() as cursor:
            cursor.execute(sql, tuple(args) or None)
            rows = [tuple(map(_as_text, row)) for row in cursor.fetchall()]
            warnings = cursor.warning_count
        self._check_warnings(warnings)
        return rows

    def log_status(self) -> tuple[str, int]:
        """Return the file and position of the log's current end.

        :raises ServerSettingError: the server writes no log.
        :raises AccessError: REPLICATION CLIENT is missing.
        """
        rows = self.query(LOG_STATUS.on(self.version))
        if not rows:
            raise ServerSettingError(
                "the server writes no binary log: start it with log_bin", setting="log_bin", expected="ON", actual="OFF"
            )
        return str(rows[0][0]), int(rows[0][1])

    def log_files(self) -> list[tuple[str, int]]:
        """Return names and sizes (bytes) of the log's files, oldest first. To list them, the server opens each."""
        return [(str(row[0]), int(row[1])) for row in self.query("SHOW BINARY LOGS")]

    def command(self, code: int, payload: bytes) -> ByteStream:
        """Send a command and return its answer's stream. The connection is busy until :meth:`finished`."""
        self._check_free()
        self._busy = True
        with foreign_errors(self.settings.host, self.settings.port):
            # PyMySQL sends it, so that its packet numbers and timeouts stay right for later statements.
            self._driver._execute_command(code, payload)
        return ByteStream(self._socket(), self.settings.host, self.settings.port)

    def finished(self, warnings: int = 0) -> None:
        """Free the connection: the answer to :meth:`command` has been read to its end.

        :param warnings: their number, from the packet that ended the answer.
        :raises CutValueError: a value of the answer was cut, because it exceeds a limit of the server.
        """
        self._busy = False
        self._check_warnings(warnings)

    def close(self) -> None:
        """Close the connection, even during an answer. May be called twice."""
        with contextlib.suppress(pymysql.err.MySQLError, OSError):
            if self._busy:
                self._busy = False
                self._driver._force_close()
            elif self._driver.open:
                self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {self.settings}>"

    def _check_encryption(self) -> None:
        """Check TLS: not all versions of PyMySQL do."""
        if self.settings.tls not in ("disabled", "preferred") and not self.encrypted:
            raise ServerSettingError(
                f"the server at {self.settings.host}:{self.settings.port} offers no TLS, but tls={self.settings.tls}",
                setting="TLS",
                expected="offered",
                actual="not offered",
            )

    def _check_warnings(self, warnings: int) -> None:
        if warnings:
            check_warnings(self.query("SHOW WARNINGS"))  # itself without warnings

    def _check_free(self) -> None:
        if self._busy:
            raise ProtocolError("the connection is busy: an answer has not been read to its end")

    def _socket(self) -> socket.socket:
        sock: socket.socket | None = self._driver._sock
        if sock is None:
            raise ConnectionLostError(
                f"the connection to MySQL at {self.settings.host}:{self.settings.port} is closed",
                host=self.settings.host,
                port=self.settings.port,
            )
        return sock


def _as_text(value: Any) -> Any:
    """Decode UTF-8 bytes: some server texts have no character set (``SHOW`` statements, JSON functions)."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _connected(settings: ConnectionSettings, password: str) -> Any:
    with foreign_errors(settings.host, settings.port, opening=True):
        driver = _driver(settings, password)
        driver.connect()
        _set_socket_up(driver, settings)
    return driver


def _driver(settings: ConnectionSettings, password: str) -> Any:
    context = None if settings.tls == "disabled" else _tls_context(settings)
    driver: Any = pymysql.connect(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=password.encode(),  # bytes are taken as they are, a str as latin-1
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=settings.connect_timeout_seconds,
        read_timeout=settings.connect_timeout_seconds,
        write_timeout=settings.connect_timeout_seconds,
        program_name="headgate",
        auth_plugin_map=dict(PLUGINS),
        defer_connect=True,
        ssl_disabled=settings.tls in ("disabled", "preferred"),
        ssl=None if settings.tls in ("disabled", "preferred") else context,
    )
    if settings.tls == "preferred":  # PyMySQL's context has no client certificate, and takes 50 ms to make
        driver.ssl, driver.ctx = True, context
    return driver


def _tls_context(settings: ConnectionSettings) -> ssl.SSLContext:
    try:
        if settings.tls_ca is None and not settings.tls.startswith("verify_"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading the system's certificates takes 50 ms
        else:
            context = client_context(settings.tls_ca)
        if settings.tls_crl is not None:
            context.load_verify_locations(settings.tls_crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if settings.tls_cert is not None:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(f) for f in (settings.tls_ca, settings.tls_crl, settings.tls_cert, settings.tls_key) if f)
        raise ConfigError(f"cannot use the TLS files {files}: {error.strerror or error}") from None
    context.check_hostname = settings.tls == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if settings.tls.startswith("verify_") else ssl.CERT_NONE
    return context


def _set_socket_up(driver: Any, settings: ConnectionSettings) -> None:
    """Set when a vanished peer is noticed, and the longer timeouts that hold from now on (one value, so that PyMySQL
    never switches).
    """
    sock: socket.socket = driver._sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PEER_LIMITS.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    timeout = settings.read_timeout_seconds
    driver._read_timeout = driver._write_timeout = timeout
    driver._current_timeout = timeout
    sock.settimeout(timeout)
