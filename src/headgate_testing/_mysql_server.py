"""A private MySQL server: started in a second, and ends with the process that started it.

Each server gets a folder under the system's temporary folder with its data, socket and log, and a free port on
127.0.0.1. Its data starts as a copy of a template, created once per version in the user's cache folder, so that no
start pays for ``--initialize``. The copy has no ``auto.cnf``, so every server creates its server_uuid and keeps it
across restarts.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import pymysql

from headgate.errors import ConfigError, ConnectError
from headgate.files import cache_folder, make_once
from headgate.mysql import LOG_STATUS, Version, parse_version
from headgate_testing._mysql_program import URL_VARIABLE, MySQLProgram, find_program
from headgate_testing._owned import OwnedServer, last_line
from headgate_testing._ports import free_port, try_ports
from headgate_testing._process import start_child
from headgate_testing._waiting import wait_until

__all__ = ["UNLOGGED_CASCADES", "Flag", "MySQLServer", "prepare_mysql", "replica_pair"]

Flag = str | int | bool | None
"""A server setting's value: a bool is written ON or OFF; None removes one of our defaults."""

DEFAULT_FLAGS: Mapping[str, Flag] = {
    "server_id": 1,
    "log_bin": "binlog",
    "gtid_mode": True,
    "enforce_gtid_consistency": True,
    "binlog_row_metadata": "FULL",
    "mysqlx": False,
    "secure_file_priv": "",
    # The data has to survive the server's death, not the machine's: a killed process loses no write(2).
    "sync_binlog": 0,
    "innodb_flush_log_at_trx_commit": 2,
    # Small, so that several servers fit on a small machine.
    "innodb_buffer_pool_size": 128 << 20,
    "loose_innodb_redo_log_capacity": 64 << 20,  # since 8.0.30
    "innodb_log_buffer_size": 4 << 20,
    "table_open_cache": 400,
    "table_definition_cache": 400,
}

UNLOGGED_CASCADES: Mapping[str, Flag] = {"loose_innodb_native_foreign_keys": True}
"""Flags of a server that does not log what foreign keys change. None did before MySQL 9.6, which has the setting."""

INIT_FLAGS = ("innodb_data_file_path", "innodb_page_size", "innodb_undo_directory", "lower_case_table_names")
"""Settings that hold for a data folder's whole life, so they select the template."""

FOLDER_PREFIX = "headgate-mysql-"
PORT_SECONDS = 60
"""Seconds that a restarted server waits for its port, which may have been assigned to another process meanwhile."""
PURGE_SECONDS = 60.0


class MySQLServer:
    """A running server and an administrator's connection to it.

    Created by :meth:`start` or :meth:`attach`; a context manager that stops it. The methods may be called from any
    thread; :meth:`execute` and :meth:`query` share one connection, one statement at a time.
    """

    def __init__(self, host: str, port: int, user: str, password: str, process_owner: _PrivateServer | None) -> None:
        self.host = host
        self.port = port
        self.user = user
        self._password = password
        self._process_owner = process_owner
        self._connection: pymysql.Connection[Any] | None = None
        self._lock = threading.RLock()

    @classmethod
    def start(cls, flags: Mapping[str, Flag] | None = None, *, keyring: bool = False) -> MySQLServer:
        """Start a server with our default flags and these over them, or attach to the one that is named for tests.

        :param keyring: with a keyring, so that logs and tables can be encrypted.
        :raises ConfigError: no server program is available, or flags are given for a named server.
        :raises ConnectError: the server did not start; the message ends with the errors of its log.
        """
        url = os.environ.get(URL_VARIABLE)
        if url:
            if flags or keyring:
                raise ConfigError(f"{URL_VARIABLE} names a server, so none can be started with flags: unset it")
            return cls.attach(url)
        server = _PrivateServer(flags or {}, keyring=keyring)
        return cls("127.0.0.1", server.port, "root", "", server)

    @classmethod
    def attach(cls, url: str) -> MySQLServer:
        """Use a running server; it is never stopped or restarted.

        :raises ConfigError: the URL is not ``mysql://user:password@host:port``.
        """
        parts = urlsplit(url)
        if parts.scheme != "mysql" or not parts.hostname:
            raise ConfigError(f"the URL of a server ({URL_VARIABLE}) must look like mysql://root@127.0.0.1:3306")
        password = unquote(parts.password or "")
        return cls(parts.hostname, parts.port or 3306, unquote(parts.username or "root"), password, None)

    @property
    def url(self) -> str:
        """``mysql://root@127.0.0.1:PORT``; without the password, if there is one."""
        return f"mysql://{self.user}@{self.host}:{self.port}"

    @property
    def owned(self) -> bool:
        """Whether this process started it, so that it may be restarted, stopped and killed."""
        return self._process_owner is not None

    @property
    def folder(self) -> Path:
        """The server's folder: ``data/`` (with its TLS files, ``ca.pem``, …), ``mysql.sock``, ``mysqld.log``."""
        return self._require_owner().folder

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._require_owner().pid

    @property
    def version(self) -> str:
        """``SELECT VERSION()``."""
        return str(self.query("SELECT VERSION()")[0][0])

    @property
    def version_numbers(self) -> Version:
        """The version as (major, minor, patch)."""
        return parse_version(self.version)

    @property
    def server_uuid(self) -> str:
        """``@@server_uuid``."""
        return str(self.query("SELECT @@server_uuid")[0][0])

    @property
    def gtid_executed(self) -> str:
        """``@@global.gtid_executed`` on one line."""
        return str(self.query("SELECT @@global.gtid_executed")[0][0]).replace("\n", "")

    def connect(self, **kwargs: Any) -> pymysql.Connection[Any]:
        """Return a new connection as the administrator: autocommit, utf8mb4; ``kwargs`` as ``pymysql.connect``."""
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self._password,
            "autocommit": True,
            "charset": "utf8mb4",
            "connect_timeout": 10,
        }
        return _connect(**{**settings, **kwargs})

    def execute(self, *statements: str) -> None:
        """Run statements one after another, each committed separately."""
        with self._lock, self._shared().cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def query(self, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one statement."""
        with self._lock, self._shared().cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def restart(self, flags: Mapping[str, Flag] | None = None, *, kill: bool = False) -> None:
        """Stop the server (``kill``: with SIGKILL) and start it on the same data and port.

        :param flags: override the present ones, also for later restarts.
        """
        owner = self._require_owner()
        self._disconnect()
        owner.end_server(signal.SIGKILL if kill else signal.SIGTERM)
        owner.flags.update(_flags(flags or {}))
        owner.launch_mysqld(port_seconds=PORT_SECONDS)

    def stop(self) -> None:
        """Kill the server and remove its folder; an attached server keeps running. May be called twice."""
        self._disconnect()
        if self._process_owner is not None:
            self._process_owner.stop()

    def shutdown(self) -> None:
        """Shut the server down cleanly but keep its data; :meth:`restart` starts it again."""
        self._disconnect()
        self._require_owner().end_server(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server (SIGKILL): the data stays as it is; :meth:`restart` starts the server again on it."""
        self._disconnect()
        self._require_owner().end_server(signal.SIGKILL)

    def wait_for(self, gtids: str, seconds: float = 60.0) -> None:
        """Wait until the server has executed all of a GTID set (on a replica: applied it).

        :raises TimeoutError: it has not in time; the message has replication's errors.
        """
        if self.query("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (gtids, seconds))[0][0]:
            rows = self.query(
                "SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker"
                " WHERE LAST_ERROR_NUMBER UNION ALL SELECT LAST_ERROR_MESSAGE"
                " FROM performance_schema.replication_connection_status WHERE LAST_ERROR_NUMBER"
            )
            errors = "; ".join(str(row[0]) for row in rows) or "replication reports no error"
            raise TimeoutError(f"{self.url} has not executed {gtids} after {seconds} s ({errors})")

    @property
    def logs_cascades(self) -> bool:
        """Whether rows that foreign keys change are in the log: see :data:`UNLOGGED_CASCADES`."""
        return ("innodb_native_foreign_keys", "OFF") in self.query("SHOW VARIABLES LIKE 'innodb_native_foreign_keys'")

    def tagging(self, tag: str) -> str:
        """Return a statement after which a session's GTIDs have a tag; before MySQL 8.3, which has no tags, none."""
        return f"SET gtid_next = 'AUTOMATIC{f':{tag}' if self.version_numbers >= (8, 3) else ''}'"

    def log_status(self) -> tuple[str, int]:
        """Return the file and position of the binary log's end."""
        file, position, *_ = self.query(LOG_STATUS.on(self.version_numbers))[0]
        return str(file), int(position)

    @property
    def reset_statement(self) -> str:
        """The statement of :meth:`reset_log`, which was renamed in MySQL 8.2."""
        return "RESET BINARY LOGS AND GTIDS" if self.version_numbers >= (8, 2) else "RESET MASTER"

    def reset_log(self, *, at_s: int = 0) -> None:
        """Remove the binary log and forget all GTIDs.

        :param at_s: creation time of the new file, seconds since the Unix epoch; 0: now.
        """
        reset = self.reset_statement
        self.execute(*([f"SET timestamp = {at_s}", reset, "SET timestamp = DEFAULT"] if at_s else [reset]))

    def purge_log(self, to: str | None = None) -> None:
        """Remove the binary log's files before ``to``, by default all but a new one.

        The server leaves a file that a dump reads, and detects only at its next event that a reader has gone. So the
        purge is repeated until the files are gone.

        :raises TimeoutError: a dump still reads them.
        """
        if to is None:
            self.execute("FLUSH BINARY LOGS")
            to = str(self.query("SHOW BINARY LOGS")[-1][0])

        def is_purged() -> bool:
            self.execute(f"PURGE BINARY LOGS TO '{to}'")
            return bool(self.query("SHOW BINARY LOGS")[0][0] == to)

        wait_until(is_purged, f"{self.url} still has log before {to}", seconds=PURGE_SECONDS, every=0.02)

    def new_log_file(self) -> str:
        """Begin a new file of the binary log, and return its name."""
        self.execute("FLUSH BINARY LOGS")
        return self.log_status()[0]

    def printed_log(self, first: str) -> Iterator[str]:
        """Yield the lines that ``mysqlbinlog -v`` prints of the log's files from ``first`` on, rows as statements.

        :raises ConfigError: that program is not installed, or another process started the server.
        :raises CalledProcessError: it failed.
        """
        owner = self._require_owner()
        names = [str(row[0]) for row in self.query("SHOW BINARY LOGS")]
        files = [str(owner.folder / "data" / name) for name in names[names.index(first) :]]
        command = [*owner.program.client("mysqlbinlog"), "-v", "--base64-output=DECODE-ROWS", *files]
        with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", errors="replace") as process:
            yield from process.stdout or ()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)

    def follow(self, source: MySQLServer) -> None:
        """Make this server a replica of ``source``, with automatic positions."""
        self.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{source.host}', SOURCE_PORT={source.port},"
            f" SOURCE_USER='{source.user}', SOURCE_PASSWORD='{source._password}', SOURCE_AUTO_POSITION=1,"
            " SOURCE_CONNECT_RETRY=1, GET_SOURCE_PUBLIC_KEY=1",
            "START REPLICA",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<MySQLServer {self.url}>"

    def _require_owner(self) -> _PrivateServer:
        if self._process_owner is None:
            raise ConfigError(f"the server at {self.url} was not started by this process: unset {URL_VARIABLE}")
        return self._process_owner

    def _shared(self) -> pymysql.Connection[Any]:
        if self._connection is None:
            self._connection = self.connect()
        return self._connection

    def _disconnect(self) -> None:
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(pymysql.Error, OSError):
                    self._connection.close()
                self._connection = None


class _PrivateServer(OwnedServer):
    """The server's process and its folder."""

    def __init__(self, flags: Mapping[str, Flag], *, keyring: bool = False) -> None:
        self.program = find_program()
        self.flags = {**_flags(DEFAULT_FLAGS), **_flags(flags)}
        template = _template(self.program, self.flags)
        super().__init__(FOLDER_PREFIX, _logged_errors)
        self.port = 0
        with self.stop_on_failure():
            shutil.copytree(template, self.folder / "data")
            if keyring:
                (self.folder / "keyring").mkdir()
                self.program = self.program.with_keyring(self.folder / "keyring")
            try_ports(self._launch_on_free_port, "TCP/IP port")

    def launch_mysqld(self, *, port_seconds: int = 0) -> None:
        """Start the process on the folder's data, and wait until it accepts connections.

        :param port_seconds: how long it waits while another process has the port.
        """
        command = [
            *self.program.command,
            f"--datadir={self.folder / 'data'}",
            f"--socket={self._socket}",
            f"--pid-file={self.folder / 'mysqld.pid'}",
            f"--port={self.port}",
            f"--port-open-timeout={port_seconds}",
            "--bind-address=127.0.0.1",
            *_as_root(),
            *_arguments(self.flags),
        ]
        self.launch_server("mysqld", command, self._answers)

    def _launch_on_free_port(self) -> None:
        self.port = free_port()
        self.launch_mysqld()

    @property
    def _socket(self) -> str:
        return str(self.folder / "mysql.sock")

    def _answers(self) -> bool:
        """Whether it accepts connections, on its socket: on its port another process may answer. It opens both."""
        with socket.socket(socket.AF_UNIX) as opened:  # PyMySQL does not close its socket if the file has no listener
            opened.settimeout(10)
            try:
                opened.connect(self._socket)
                connection = _connect(opened, user="root", read_timeout=10)
            except (OSError, pymysql.err.OperationalError):
                return False
            connection.close()
        return True


@contextlib.contextmanager
def replica_pair(
    *, flags: Mapping[str, Flag] | None = None, replica_flags: Mapping[str, Flag] | None = None
) -> Iterator[tuple[MySQLServer, MySQLServer]]:
    """Start a primary (server_id 1) and a replica (server_id 2) that follows it; both stop with the block."""
    with (
        MySQLServer.start({"server_id": 1, **(flags or {})}) as primary,
        MySQLServer.start({"server_id": 2, "log_replica_updates": True, **(replica_flags or {})}) as replica,
    ):
        replica.follow(primary)
        yield primary, replica


def prepare_mysql() -> str:
    """Do what the first start would do: find or fetch the program, create its template. Return the version.

    :raises ConfigError: no server program is available.
    """
    program = find_program()
    _template(program, _flags(DEFAULT_FLAGS))
    return program.version_text


@functools.cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _connect(opened: socket.socket | None = None, **settings: Any) -> pymysql.Connection[Any]:
    """Connect, with TLS if the server offers it.

    PyMySQL makes a context for each connection and reads the system's certificates for it, which takes 50 ms.
    """
    connection: Any = pymysql.connect(defer_connect=True, ssl_disabled=True, **settings)
    connection.ssl, connection.ctx = True, _tls_context()
    connection.connect(opened)
    driver: pymysql.Connection[Any] = connection
    return driver


def _flags(flags: Mapping[str, Flag]) -> dict[str, Flag]:
    """Return flags with one spelling: ``log-bin`` and ``log_bin`` are the same."""
    return {name.lstrip("-").replace("-", "_"): value for name, value in flags.items()}


def _arguments(flags: Mapping[str, Flag]) -> list[str]:
    arguments = []
    for name, value in flags.items():
        if value is None:
            continue
        text = ("ON" if value else "OFF") if isinstance(value, bool) else str(value)
        if name == "log_bin" and text in ("OFF", "ON"):
            arguments.append("--skip-log-bin" if text == "OFF" else "--log-bin")
        else:
            arguments.append(f"--{name}={text}")
    return arguments


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _template(program: MySQLProgram, flags: Mapping[str, Flag]) -> Path:
    """Return an initialised data folder of this version without identity, created at its first use (3 s)."""
    special = {name: flags[name] for name in INIT_FLAGS if flags.get(name) is not None}
    mark = hashlib.sha256(repr((program.command, sorted(special.items()))).encode()).hexdigest()[:8]
    target = cache_folder("mysql", f"data-{program.version_text}-{mark}")
    with make_once(target) as folder:
        if folder is not None:
            command = [
                *program.command,
                "--initialize-insecure",
                f"--datadir={folder}",
                "--skip-log-bin",
                "--loose-innodb-redo-log-capacity=8M",
                *_as_root(),
                *_arguments(special),
            ]
            log = folder.with_name(folder.name + ".log")
            if start_child(command, output=log).wait():
                reason = _logged_errors(log.read_text(errors="replace"))
                raise ConnectError(f"mysqld {program.version_text} could not initialise its data: {reason}")
            log.unlink()
            (folder / "auto.cnf").unlink(missing_ok=True)
    return target


def _logged_errors(log: str) -> str:
    """Return the errors that a server wrote to its log, on one line."""
    errors = [line.split("] ", 3)[-1] for line in log.splitlines() if "[ERROR]" in line]
    return "; ".join(errors[:4]) or last_line(log)
