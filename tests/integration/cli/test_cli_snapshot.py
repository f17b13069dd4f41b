"""``headgate snapshot`` against a real server."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pymysql
import pytest

import headgate
from headgate.cli import _snapshot
from headgate.gtid import GtidSet
from headgate_testing import MySQLServer
from tests.integration.beside import beside
from tests.integration.commands import fails, run

SRC = str(Path(headgate.__file__).parents[1])
Line = dict[str, Any]


def snapshot(server: MySQLServer, *args: str) -> tuple[list[Line], str]:
    """The lines, and E."""
    code, out, err = run("snapshot", server.url, *args)
    assert code == 0, err
    assert err.endswith("\n")
    return [json.loads(line) for line in out.splitlines()], err.splitlines()[-1]


def test_rows_of_several_tables(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.a (id INT PRIMARY KEY, v DECIMAL(9,3), f FLOAT)",
        f"CREATE TABLE {mysql_db}.b (n INT)",
        f"CREATE TABLE {mysql_db}.c (id INT PRIMARY KEY)",
        f"CREATE TABLE {mysql_db}.empty (id INT PRIMARY KEY)",
        f"INSERT INTO {mysql_db}.a VALUES (1, 0.001, 0.1), (2, NULL, NULL), (3, -5, 16777216)",
        f"INSERT INTO {mysql_db}.b VALUES (7), (7)",
        f"INSERT INTO {mysql_db}.c VALUES (9)",
    )
    lines, gtid = snapshot(mysql_server, "-t", f"{mysql_db}.*", "-t", "!*.c", "--chunk-rows", "2")
    assert gtid == mysql_server.gtid_executed
    assert [line["ordinal"] for line in lines] == list(range(5))
    for line in lines:
        assert list(line) == ["op", "db", "table", "gtid", "file", "pos", "ordinal", "ts", "before", "after"]
        assert (line["op"], line["db"], line["before"]) == ("r", mysql_db, None)
        assert line["gtid"] is line["file"] is line["pos"] is None
    assert [line["after"] for line in lines if line["table"] == "b"] == [{"n": 7}, {"n": 7}]
    assert sorted((line["after"] for line in lines if line["table"] == "a"), key=lambda row: row["id"]) == [
        {"id": 1, "v": "0.001", "f": 0.1},
        {"id": 2, "v": None, "f": None},
        {"id": 3, "v": "-5.000", "f": 16777216},
    ]
    assert len({line["ts"] for line in lines}) == 1


def writing(work: Callable[[random.Random], None], writers: int) -> AbstractContextManager[None]:
    """``work``, over and over."""

    def loop(rng: random.Random, stop: threading.Event) -> None:
        while not stop.is_set():
            work(rng)

    return beside(loop, writers)


def test_exact_while_writers_run_and_tail_goes_on(mysql_server: MySQLServer, mysql_db: str) -> None:
    """The rows as of E and then every change after E give the tables as they are in the end."""
    server = mysql_server
    for name in ("a", "b"):
        server.execute(f"CREATE TABLE {mysql_db}.{name} (id INT PRIMARY KEY, v INT NOT NULL)")
        rows = ", ".join(f"({i}, 100)" for i in range(300))
        server.execute(f"INSERT INTO {mysql_db}.{name} VALUES {rows}")
    local = threading.local()

    def work(rng: random.Random) -> None:
        """Moves an amount between two tables, so that the sum of both stays; and moves keys."""
        if not hasattr(local, "connection"):
            local.connection = server.connect(database=mysql_db, autocommit=False)
        amount, one, two = rng.randrange(50), rng.randrange(300), rng.randrange(300)
        with local.connection.cursor() as cursor:
            try:
                cursor.execute(f"UPDATE a SET v = v - {amount} WHERE id = {one}")
                moved = cursor.rowcount
                cursor.execute(f"UPDATE b SET v = v + {amount} WHERE id = {two}")
                if moved == cursor.rowcount:
                    cursor.execute(f"UPDATE IGNORE a SET id = {rng.randrange(600)} WHERE id = {one}")
                    local.connection.commit()
            except pymysql.err.OperationalError as error:
                if error.args[0] != 1213:  # a deadlock is no failure, here as in any application
                    raise
            local.connection.rollback()

    with writing(work, 3):
        for _ in range(3):
            lines, gtid = snapshot(server, "--tables", f"{mysql_db}.*", "--chunk-rows", "50")
            assert sum(line["after"]["v"] for line in lines) == 60_000
            assert len(lines) == 600
    state = {(line["table"], line["after"]["id"]): line["after"]["v"] for line in lines}
    assert len(state) == 600
    code, out, err = run("tail", server.url, "--from", gtid, "--until-current", "--tables", f"{mysql_db}.*")
    assert (code, err) == (0, "")
    for change in map(json.loads, out.splitlines()):
        assert change["op"] == "u"
        table, before, after = change["table"], change["before"], change["after"]
        assert state.pop((table, before["id"])) == before["v"]
        state[table, after["id"]] = after["v"]
    final = {(name, *row) for name in ("a", "b") for row in server.query(f"SELECT id, v FROM {mysql_db}.{name}")}
    assert {(*key, value) for key, value in state.items()} == final


def test_a_disturbed_table_is_tried_at_a_later_point(
    mysql_server: MySQLServer, mysql_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keyless table is written behind E's back twice: nothing of those tries is printed."""
    server, tries = mysql_server, list[str]()
    server.execute(f"CREATE TABLE {mysql_db}.k (n INT)", f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    server.execute(f"INSERT INTO {mysql_db}.k VALUES (1)", f"INSERT INTO {mysql_db}.t VALUES (1)")
    begin = _snapshot._SnapshotReader._begin

    def begin_and_write(reading: _snapshot._SnapshotReader) -> None:
        begin(reading)
        tries.append(str(reading.executed))
        if len(tries) < 3:
            server.execute(f"INSERT INTO {mysql_db}.k VALUES (2)")

    monkeypatch.setattr(_snapshot._SnapshotReader, "_begin", begin_and_write)
    lines, gtid = snapshot(server, "--tables", f"{mysql_db}.*")
    assert sorted((line["table"], *line["after"].values()) for line in lines) == [
        ("k", 1), ("k", 2), ("k", 2), ("t", 1),
    ]  # fmt: skip
    assert gtid == tries[2] == server.gtid_executed
    assert [line["ordinal"] for line in lines] == list(range(4))
    assert GtidSet.parse(tries[0]) < GtidSet.parse(tries[1]) < GtidSet.parse(tries[2])


@pytest.mark.parametrize("hold", ["setup", "read"])
def test_a_table_that_is_disturbed_for_ever_can_be_locked(
    mysql_server: MySQLServer, mysql_db: str, hold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = mysql_server
    server.execute(f"CREATE TABLE {mysql_db}.k (n INT)", f"INSERT INTO {mysql_db}.k VALUES (1), (1)")
    begin, tries = _snapshot._SnapshotReader._begin, list[str]()

    def begin_and_write(reading: _snapshot._SnapshotReader) -> None:
        begin(reading)
        tries.append(str(reading.executed))
        server.execute(f"INSERT INTO {mysql_db}.k VALUES (2)", f"DELETE FROM {mysql_db}.k WHERE n = 1 LIMIT 1")

    monkeypatch.setattr(_snapshot._SnapshotReader, "_begin", begin_and_write)
    lines, gtid = snapshot(server, "--tables", f"{mysql_db}.*", "--watermark", "lock", "--lock-hold", hold)
    assert [gtid] == tries
    assert [line["after"] for line in lines] == [{"n": 1}, {"n": 1}]


def test_a_table_that_is_disturbed_for_ever(
    mysql_server: MySQLServer, mysql_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = mysql_server
    server.execute(f"CREATE TABLE {mysql_db}.k (n INT)")
    begin = _snapshot._SnapshotReader._begin

    def begin_and_write(reading: _snapshot._SnapshotReader) -> None:
        begin(reading)
        server.execute(f"INSERT INTO {mysql_db}.k VALUES (2)")

    monkeypatch.setattr(_snapshot._SnapshotReader, "_begin", begin_and_write)
    monkeypatch.setattr(_snapshot, "_ATTEMPTS", 3)
    error = fails(3, "snapshot", server.url, "--tables", f"{mysql_db}.*")
    assert "without a key" in error
    assert f"table={mysql_db}.k" in error


def test_rows_with_partial_images_are_refused_or_kept(
    mysql_server: MySQLServer, mysql_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind E's back a session with MINIMAL images updates one row, deletes one and inserts one."""
    server = mysql_server
    server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, a INT, b VARCHAR(9) DEFAULT 'new')")
    begin = _snapshot._SnapshotReader._begin

    def begin_and_write(reading: _snapshot._SnapshotReader) -> None:
        server.execute(f"REPLACE INTO {mysql_db}.t VALUES (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')")
        begin(reading)
        with server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
            cursor.execute("UPDATE t SET a = 10 WHERE id = 1")
            cursor.execute("DELETE FROM t WHERE id = 2")
            cursor.execute("INSERT INTO t (id, a) VALUES (4, 4)")
            connection.commit()

    monkeypatch.setattr(_snapshot._SnapshotReader, "_begin", begin_and_write)
    tables = ("--tables", f"{mysql_db}.t")
    error = fails(3, "snapshot", server.url, *tables)
    assert 'window = "keep"' in error
    server.execute(f"DELETE FROM {mysql_db}.t")
    lines, _ = snapshot(server, *tables, "--window", "keep")
    rows = {line["after"]["id"]: line["after"] for line in lines}
    assert sorted(rows) == [1, 3, 4]
    assert rows[1] == {"id": 1, "a": 10, "b": "one"}
    code, out, err = run("snapshot", server.url, *tables, "--window", "drop")
    assert (code, out) == (2, "")
    assert "'rewind', 'keep'" in err


def test_a_table_changed_after_rows_were_printed(mysql_server: MySQLServer, mysql_db: str) -> None:
    """The rest cannot be had as of the same E, so the command fails and says no E."""
    server = mysql_server
    for name in ("a", "b"):
        server.execute(f"CREATE TABLE {mysql_db}.{name} (id INT PRIMARY KEY)")
        server.execute(f"INSERT INTO {mysql_db}.{name} VALUES (1), (2), (3)")
    url, tables = server.url, f"{mysql_db}.*"
    read, calls = _snapshot._SnapshotReader._read, list[int]()

    def read_and_alter(reading: _snapshot._SnapshotReader, chunks: list[Any]) -> Iterator[Any]:
        for image in read(reading, chunks):
            yield image
            if not calls:
                calls.append(1)
                server.execute(f"ALTER TABLE {mysql_db}.b ADD COLUMN x INT")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_snapshot._SnapshotReader, "_read", read_and_alter)
        code, out, err = run("snapshot", url, "--tables", tables)
    assert code == 3
    assert [json.loads(line)["table"] for line in out.splitlines()] == ["a"] * 3
    assert err.startswith("error: ")
    assert "rows were printed already" in err
    assert err.count("\n") == 1


def test_as_a_program(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, v TEXT)")
    mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (1, 'ä😀')")
    command = [sys.executable, "-m", "headgate.cli", "snapshot", mysql_server.url, "-t", f"{mysql_db}.t"]
    environment = {**os.environ, "PYTHONPATH": SRC, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=280)
    assert done.returncode == 0
    assert json.loads(done.stdout.decode())["after"] == {"id": 1, "v": "ä😀"}
    assert done.stderr.decode() == f"{mysql_server.gtid_executed}\n"


# --- what goes wrong


def test_bad_use(mysql_server: MySQLServer) -> None:
    assert "no table matches nowhere.*" in fails(2, "snapshot", mysql_server.url, "--tables", "nowhere.*")
    assert "--tables" in fails(2, "snapshot", mysql_server.url)
    fails(2, "snapshot", mysql_server.url, "--tables", "nodot")
    fails(3, "snapshot", "mysql://root@127.0.0.1:1", "--tables", "a.b")


def test_missing_grants(mysql_server: MySQLServer, mysql_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server, user = mysql_server, f"s{mysql_db}"[:30]
    server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)", f"INSERT INTO {mysql_db}.t VALUES (1)")
    server.execute(f"CREATE USER `{user}`@`%` IDENTIFIED BY 'right'")
    url = f"mysql://{user}@127.0.0.1:{server.url.rpartition(':')[2]}"
    monkeypatch.setenv("HEADGATE_PASSWORD", "right")
    try:
        assert "GRANT SELECT" in fails(2, "snapshot", url, "--tables", f"{mysql_db}.*")
        server.execute(f"GRANT SELECT ON {mysql_db}.* TO `{user}`@`%`")
        assert "REPLICATION CLIENT" in fails(3, "snapshot", url, "--tables", f"{mysql_db}.*")
        server.execute(f"GRANT REPLICATION CLIENT ON *.* TO `{user}`@`%`")
        assert "REPLICATION SLAVE" in fails(3, "snapshot", url, "--tables", f"{mysql_db}.*")
        server.execute(f"GRANT REPLICATION SLAVE ON *.* TO `{user}`@`%`")
        assert run("snapshot", url, "--tables", f"{mysql_db}.*")[0] == 0
    finally:
        server.execute(f"DROP USER `{user}`@`%`")
