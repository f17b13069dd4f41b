"""The MySQL room against a real server: logins, TLS, sessions, result sets, ends of connections."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import (
    AccessError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    DefiniteServerError,
    ProtocolError,
    ServerSettingError,
    Transient,
    TransientServerError,
)
from headgate.kernels import Cells
from headgate.mysql import Connection, ConnectionSettings, Secret, gtid_executed, read_facts, select_blocks
from headgate_testing import MySQLServer
from tests.certificates import make_certificates

WORD = "pä$$ w:rd"


def settings_for(server: MySQLServer, **settings: Any) -> ConnectionSettings:
    return ConnectionSettings.from_url(server.url, **settings)


@pytest.fixture
def connection(mysql_server: MySQLServer) -> Iterator[Connection]:
    with Connection.open(settings_for(mysql_server)) as connection:
        yield connection


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
def test_a_socket_waits_half_a_minute_at_most_for_acknowledgements(connection: Connection) -> None:
    """Keepalive does not act while a query is not acknowledged, and the read timeout is minutes away."""
    assert connection._socket().getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


@pytest.fixture
def account(mysql_server: MySQLServer, mysql_db: str) -> Iterator[str]:
    """A fresh user, so that the server's password cache does not know it yet."""
    name = f"u_{mysql_db}"
    mysql_server.query("SELECT 1")
    with mysql_server.connect() as admin, admin.cursor() as cursor:
        cursor.execute("CREATE USER %s IDENTIFIED WITH caching_sha2_password BY %s", (name, WORD))
    yield name
    mysql_server.execute(f"DROP USER {name}")


def login(server: MySQLServer, account: str, word: str = WORD, **settings: Any) -> Connection:
    return Connection.open(ConnectionSettings(server.host, server.port, account, Secret(value=word), **settings))


# -- logins


@pytest.mark.parametrize("tls", ["disabled", "preferred", "required"])
def test_a_password_is_proven_with_and_without_tls(mysql_server: MySQLServer, account: str, tls: str) -> None:
    for _ in range(2):  # the first login is the full one (RSA on a bare connection), the second the fast one
        with login(mysql_server, account, tls=tls) as connection:
            assert connection.encrypted == (tls != "disabled")
            assert connection.query("SELECT USER()")[0][0].startswith(f"{account}@")


def test_a_wrong_password_is_refused_in_one_line(mysql_server: MySQLServer, account: str) -> None:
    with pytest.raises(AccessError, match="check the user and its password") as caught:
        login(mysql_server, account, "wrong-word")
    assert caught.value.code == 1045
    assert "wrong-word" not in f"{caught.value!r} {caught.value.__cause__!r}"
    with pytest.raises(AccessError):
        login(mysql_server, "nobody_here")


@pytest.mark.parametrize("where", ["file", "command"])
def test_a_rotated_password_may_come_late(
    mysql_server: MySQLServer, account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(WORD)
    secret = Secret(file=str(file)) if where == "file" else Secret(command=f"cat {file}")
    settings = ConnectionSettings(mysql_server.host, mysql_server.port, account, secret)
    Connection.open(settings).close()
    mysql_server.execute(f"ALTER USER {account} IDENTIFIED BY 'new' FAILED_LOGIN_ATTEMPTS 2 PASSWORD_LOCK_TIME 1")
    monkeypatch.setattr("headgate.mysql._login.time.sleep", lambda _: file.write_text("new"))
    with Connection.open(settings) as connection:
        assert connection.query("SELECT 1") == [(1,)]


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ConnectError, match=f"cannot connect to MySQL at 127.0.0.1:{port}: Connection refused"):
            Connection.open(ConnectionSettings("127.0.0.1", port))
    with pytest.raises(ConnectError, match="host name is unknown"):
        Connection.open(ConnectionSettings("no-such-host.invalid"))


def test_a_listener_that_says_nothing_or_nonsense() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConnectError, match=r"no answer in time|timed out"):
            Connection.open(ConnectionSettings("127.0.0.1", port, connect_timeout_seconds=0.2))

        def babble() -> None:
            listener.accept()[0].close()  # the connection of the first try
            peer, _ = listener.accept()
            with peer, contextlib.suppress(ConnectionError):  # the client need not read to the end
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 3_000_000)

        thread = threading.Thread(target=babble)
        thread.start()
        with pytest.raises((ProtocolError, ConnectError)):
            Connection.open(ConnectionSettings("127.0.0.1", port, connect_timeout_seconds=5))
        thread.join()


# -- TLS


@pytest.mark.needs_own_server
def test_the_servers_own_certificates(mysql_server: MySQLServer) -> None:
    data = mysql_server.folder / "data"
    ca, cert, key = (str(data / name) for name in ("ca.pem", "client-cert.pem", "client-key.pem"))
    with Connection.open(settings_for(mysql_server, tls="verify_ca", tls_ca=ca)) as connection:
        assert connection.encrypted
    with Connection.open(
        settings_for(mysql_server, tls="verify_ca", tls_ca=ca, tls_cert=cert, tls_key=key)
    ) as connection:
        assert connection.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
    # They name no host, and no system trusts them.
    with pytest.raises(ConfigError, match=r"certificate of 127.0.0.1:.* cannot be verified"):
        Connection.open(settings_for(mysql_server, tls="verify_identity", tls_ca=ca))
    with pytest.raises(ConfigError, match="cannot be verified"):
        Connection.open(settings_for(mysql_server, tls="verify_ca"))
    with pytest.raises(ConfigError, match=r"cannot use the TLS files /no/such\.pem"):
        Connection.open(settings_for(mysql_server, tls="verify_ca", tls_ca="/no/such.pem"))


@pytest.mark.needs_own_server
def test_certificates_of_ones_own(tmp_path: Path) -> None:
    ca, cert, key = make_certificates(tmp_path)
    flags: dict[str, str | bool] = {"ssl_ca": ca, "ssl_cert": cert, "ssl_key": key, "require_secure_transport": True}
    with MySQLServer.start(dict(flags)) as server:
        with Connection.open(settings_for(server, tls="verify_identity", tls_ca=ca)) as connection:
            assert connection.encrypted
        with Connection.open(settings_for(server)) as connection:
            assert connection.encrypted
        server.execute("CREATE USER x REQUIRE X509", "CREATE USER plain IDENTIFIED BY 'w'")
        with pytest.raises(AccessError):
            login(server, "x", "")
        with login(server, "x", "", tls="preferred", tls_cert=cert, tls_key=key) as connection:
            assert connection.query("SELECT 1") == [(1,)]
        with pytest.raises(AccessError, match="use tls=required"):
            login(server, "plain", "w", tls="disabled")


@pytest.mark.needs_own_server
def test_a_server_without_tls() -> None:
    with MySQLServer.start({"tls_version": "", "admin_tls_version": ""}) as server:
        with Connection.open(settings_for(server)) as connection:
            assert not connection.encrypted
        server.execute(f"CREATE USER bare IDENTIFIED BY '{WORD}'")
        with login(server, "bare") as connection:
            assert connection.query("SELECT 1") == [(1,)]
        with pytest.raises(ServerSettingError, match="offers no TLS"):
            Connection.open(settings_for(server, tls="required"))


# -- sessions and small results


@pytest.mark.needs_own_server
def test_a_session_does_not_depend_on_the_servers_defaults() -> None:
    flags: dict[str, str | int] = {
        "default_time_zone": "+05:00",
        "sql_mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
        "max_execution_time": 1,
    }
    with MySQLServer.start(dict(flags)) as server:
        server.execute("SET GLOBAL sql_select_limit = 1", "SET GLOBAL net_write_timeout = 1")
        with Connection.open(settings_for(server)) as connection:
            assert connection.query(
                "SELECT @@time_zone, @@sql_mode, @@character_set_results, @@max_execution_time, @@autocommit,"
                " @@net_write_timeout, @@transaction_isolation"
            ) == [("+00:00", "", None, 0, 1, 3600, "REPEATABLE-READ")]
            assert len(connection.query("SELECT 1 UNION ALL SELECT 2")) == 2
            assert connection.query("SELECT %s", ["a'b\\c\"d"]) == [("a'b\\c\"d",)]


def test_values_of_small_results(connection: Connection) -> None:
    assert connection.query("SELECT 1, -2.50, 'ä€😀', NULL, x'ff', 1.5e0") == [
        (1, Decimal("-2.50"), "ä€😀", None, b"\xff", 1.5)
    ]
    assert connection.query("SELECT '100%%', %s", ["5%"]) == [("100%", "5%")]
    assert connection.query("SELECT '100%'") == [("100%",)]
    assert connection.query("SET @a = 1") == []
    with pytest.raises(DefiniteServerError, match="error in your SQL syntax") as caught:
        connection.query("SELEC 1")
    assert caught.value.code == 1064
    assert connection.query("SELECT 1") == [(1,)]


def test_facts(connection: Connection, mysql_server: MySQLServer) -> None:
    facts = read_facts(connection)
    assert facts.server_uuid == mysql_server.server_uuid
    assert facts.version == mysql_server.version
    assert facts.version.startswith(".".join(map(str, connection.version)))
    assert facts.gtid_mode == "ON"
    assert facts.on("log_bin")
    assert facts.get("no_such_setting") == ""
    before = gtid_executed(connection)
    file, pos = connection.log_status()
    mysql_server.execute("CREATE DATABASE facts_db", "DROP DATABASE facts_db")
    assert before < gtid_executed(connection)
    assert connection.log_status() > (file, pos)
    assert str(gtid_executed(connection)).replace("\n", "") == mysql_server.gtid_executed


def test_what_the_account_may_not_do(mysql_server: MySQLServer, account: str, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (a INT)")
    with login(mysql_server, account) as connection:
        for sql in (f"SELECT * FROM {mysql_db}.t", f"USE {mysql_db}"):
            with pytest.raises(AccessError):
                connection.query(sql)
        with pytest.raises(AccessError, match="REPLICATION CLIENT"):
            connection.log_status()


# -- large results


def _value(cells: Cells, row: int) -> bytes | None:
    begin = int(cells.offset[row])
    return cells.buf[begin : begin + int(cells.length[row])].tobytes() if cells.valid[row] else None


def read(connection: Connection, sql: str, rows: int = 65536) -> list[tuple[bytes | None, ...]]:
    values: list[tuple[bytes | None, ...]] = []
    for block in select_blocks(connection, sql, rows=rows):
        columns = [block.column(index) for index in range(block.offset.shape[0])]
        values += [tuple(_value(cells, row) for cells in columns) for row in range(block.rows)]
    return values


@pytest.mark.parametrize("tls", ["disabled", "required"])
def test_a_large_table_arrives_as_it_is(mysql_server: MySQLServer, mysql_db: str, tls: str) -> None:
    count = 100_000
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, b VARCHAR(300) CHARACTER SET latin1, c INT)",
        "SET SESSION cte_max_recursion_depth = 1000000",
        f"INSERT INTO {mysql_db}.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        " SELECT i, REPEAT('é', i % 300), NULLIF(i % 3, 0) FROM n",
    )
    with Connection.open(settings_for(mysql_server, tls=tls)) as connection:
        rows = read(connection, f"SELECT id, b, c FROM {mysql_db}.t ORDER BY id", 10_000)
        assert connection.query("SELECT 1") == [(1,)]  # the connection is free again
    expected = [(b"%d" % i, b"\xe9" * (i % 300), b"%d" % (i % 3) if i % 3 else None) for i in range(1, count + 1)]
    assert rows == expected


@pytest.mark.parametrize("tls", ["disabled", "required"])
def test_a_row_over_16_mib(mysql_server: MySQLServer, mysql_db: str, tls: str) -> None:
    size = 40_000_000
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, b LONGBLOB)",
        f"INSERT INTO {mysql_db}.t VALUES (1, 'a'), (2, REPEAT('xyz!', {size // 4})), (3, NULL)",
    )
    with Connection.open(settings_for(mysql_server, tls=tls)) as connection:
        rows = read(connection, f"SELECT id, b FROM {mysql_db}.t ORDER BY id")
    assert [row[0] for row in rows] == [b"1", b"2", b"3"]
    assert (rows[0][1], rows[2][1]) == (b"a", None)
    assert rows[1][1] is not None
    assert hashlib.sha256(rows[1][1]).digest() == hashlib.sha256(b"xyz!" * (size // 4)).digest()


def test_an_iteration_left_early_closes_the_connection(connection: Connection) -> None:
    blocks = select_blocks(connection, "SELECT * FROM information_schema.COLUMNS", rows=10)
    next(blocks)
    with pytest.raises(ProtocolError, match="busy"):
        connection.query("SELECT 1")
    blocks.close()  # type: ignore[attr-defined]
    with pytest.raises(ConnectionLostError):
        connection.query("SELECT 1")


def test_an_error_in_the_middle_of_a_result(connection: Connection) -> None:
    sql = "SELECT a, IF(a = 3, CAST('{' AS JSON), 1) FROM (VALUES ROW(1), ROW(2), ROW(3)) v (a)"
    with pytest.raises(DefiniteServerError, match="Invalid JSON"):
        read(connection, sql)
    assert connection.query("SELECT 1") == [(1,)]


@pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
def test_killed_by_an_administrator(mysql_server: MySQLServer, connection: Connection, what: str) -> None:
    number = connection.query("SELECT CONNECTION_ID()")[0][0]
    sql = "SELECT REPEAT('x', 1000) FROM information_schema.COLUMNS a, information_schema.COLUMNS b"
    blocks = select_blocks(connection, sql, rows=100)
    next(blocks)
    mysql_server.execute(f"KILL {what} {number}")
    with pytest.raises((TransientServerError, ConnectionLostError)) as caught:
        for _ in blocks:
            pass
    assert isinstance(caught.value, Transient)


def test_a_silent_server_is_lost(mysql_server: MySQLServer) -> None:
    with (
        Connection.open(settings_for(mysql_server, read_timeout_seconds=3)) as connection,
        pytest.raises(ConnectionLostError),
    ):
        connection.query("SELECT SLEEP(20)")
