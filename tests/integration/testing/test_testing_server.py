"""The private server: what it promises to tests and demonstrations."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pymysql
import pytest

from headgate.errors import ConfigError, ConnectError
from headgate_testing import URL_VARIABLE, MySQLServer, _mysql_server, replica_pair, wait_until
from headgate_testing._ports import free_port


def test_the_shared_server_logs_rows_with_gtids_and_full_metadata(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (a INT PRIMARY KEY)", f"INSERT INTO {mysql_db}.t VALUES (1), (2)")
    assert mysql_server.query(f"SELECT a FROM {mysql_db}.t WHERE a = %s", (2,)) == [(2,)]
    assert mysql_server.query(
        "SELECT @@log_bin, @@gtid_mode, @@enforce_gtid_consistency, @@binlog_format, @@binlog_row_metadata"
    ) == [(1, "ON", "ON", "ROW", "FULL")]
    assert mysql_server.server_uuid in mysql_server.gtid_executed
    with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM t")
        assert cursor.fetchone() == (2,)


def test_percent_signs_without_arguments_are_plain_text(mysql_server: MySQLServer) -> None:
    assert mysql_server.query("SELECT '100%s'") == [("100%s",)]


@pytest.mark.needs_own_server
def test_restarts_keep_data_identity_and_port(tmp_path: Path) -> None:
    with MySQLServer.start({"server_id": 7, "binlog-row-image": "MINIMAL", "mysqlx": None}) as server:
        url, uuid = server.url, server.server_uuid
        assert server.query("SELECT @@server_id, @@binlog_row_image") == [(7, "MINIMAL")]
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        server.restart({"binlog_row_image": "NOBLOB"})
        assert server.query("SELECT a, @@binlog_row_image FROM d.t") == [(1, "NOBLOB")]
        server.execute("INSERT INTO d.t VALUES (2)")
        before = server.gtid_executed
        server.kill()
        with pytest.raises(pymysql.err.OperationalError):
            server.query("SELECT 1")
        server.restart()
        assert server.query("SELECT a FROM d.t ORDER BY a") == [(1,), (2,)]
        assert (server.url, server.server_uuid, server.gtid_executed) == (url, uuid, before)
        folder, pid = server.folder, server.pid
    assert not folder.exists()
    assert not psutil.pid_exists(pid)


@pytest.mark.needs_own_server
def test_a_port_that_somebody_took_meanwhile(mysql_server: MySQLServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though he answers there: a new server takes another port, one that is started again waits for its own."""
    ports = [free_port(), mysql_server.port]
    monkeypatch.setattr(_mysql_server, "free_port", ports.pop)
    with MySQLServer.start({"log_error_verbosity": 3}) as server:
        assert (ports, server.port != mysql_server.port) == ([], True)
        uuid = server.server_uuid
        assert uuid != mysql_server.server_uuid
        server.shutdown()
        with socket.create_server(("127.0.0.1", server.port)):
            starting = threading.Thread(target=server.restart)
            starting.start()
            log = server.folder / "mysqld.log"
            wait_until(lambda: b"Retrying bind on TCP/IP port" in log.read_bytes(), "it does not wait for its port")
        starting.join()
        assert server.server_uuid == uuid


@pytest.mark.needs_own_server
def test_servers_have_identities_of_their_own_and_replicate() -> None:
    with replica_pair(replica_flags={"replica_parallel_workers": 2}) as (primary, replica):
        assert primary.server_uuid != replica.server_uuid
        assert replica.query("SELECT @@server_id, @@replica_parallel_workers") == [(2, 2)]
        primary.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        replica.wait_for(primary.gtid_executed)
        assert replica.query("SELECT a FROM d.t") == [(1,)]
        with pytest.raises(TimeoutError, match="has not executed"):
            replica.wait_for(f"{primary.server_uuid}:999999", seconds=0.1)


@pytest.mark.needs_own_server
def test_a_wrong_flag_is_told_in_the_servers_own_words() -> None:
    with pytest.raises(ConnectError, match="no_such_setting"):
        MySQLServer.start({"no_such_setting": 1})


CHILD = """
import sys
from headgate_testing import MySQLServer
server = MySQLServer.start()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.needs_own_server
def test_the_server_dies_with_a_killed_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        server = psutil.Process(int(pid))
        assert Path(folder, "data", "auto.cnf").exists()
        parent.kill()
    assert psutil.wait_procs([server], timeout=30)[1] == []


def test_a_named_server_is_attached_and_never_stopped(
    mysql_server: MySQLServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, os.environ.get(URL_VARIABLE, mysql_server.url))
    with MySQLServer.start() as named:
        assert not named.owned
        assert named.server_uuid == mysql_server.server_uuid
        with pytest.raises(ConfigError, match=URL_VARIABLE):
            named.restart()
    assert mysql_server.query("SELECT 1") == [(1,)]
    with pytest.raises(ConfigError, match="flags"):
        MySQLServer.start({"server_id": 3})
