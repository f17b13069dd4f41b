"""``headgate tail`` against a real server."""

from __future__ import annotations

import hmac
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate_testing import MySQLServer
from tests.integration.commands import fails, run

SRC = str(Path(headgate.__file__).parents[1])
KEYS = ["op", "db", "table", "gtid", "file", "pos", "ordinal", "ts", "before", "after"]


def tail(server: MySQLServer, *args: str) -> list[dict[str, Any]]:
    code, out, err = run("tail", server.url, "--until-current", *args)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


class Since:
    """What a server does from here on, as ``tail`` tells it."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db, self.start = server, db, server.gtid_executed

    def changes(self, *args: str) -> list[dict[str, Any]]:
        return tail(self.server, "--from", self.start, "--tables", f"{self.db}.*", *args)

    def do(self, *statements: str) -> None:
        """All in one transaction."""
        with self.server.connect(database=self.db, autocommit=False) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()


@pytest.fixture
def since(mysql_server: MySQLServer, mysql_db: str) -> Since:
    return Since(mysql_server, mysql_db)


def shapes(changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["op"], one["table"], one["before"], one["after"]) for one in changes]


def test_inserts_updates_deletes_truncate_and_ddl(since: Since) -> None:
    since.do("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))", "CREATE TABLE u (n INT)")
    since.do(
        "INSERT INTO t VALUES (1, 'a'), (2, NULL)", "INSERT INTO u VALUES (7)", "UPDATE t SET v = 'b' WHERE id = 1"
    )
    since.do("UPDATE t SET id = 3 WHERE id = 2", "DELETE FROM t WHERE id = 1")
    since.do("TRUNCATE TABLE t")
    since.do("ALTER TABLE t ADD COLUMN w INT")
    changes = since.changes()
    rows = [one for one in changes if one["op"] != "ddl"]
    assert shapes(rows) == [
        ("c", "t", None, {"id": 1, "v": "a"}),
        ("c", "t", None, {"id": 2, "v": None}),
        ("c", "u", None, {"n": 7}),
        ("u", "t", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
        ("u", "t", {"id": 2, "v": None}, {"id": 3, "v": None}),
        ("d", "t", {"id": 1, "v": "b"}, None),
        ("t", "t", None, None),
    ]
    assert all(list(one) == KEYS for one in rows)
    assert [one["ordinal"] for one in rows] == [0, 1, 2, 3, 0, 1, 0]
    ddl = [one for one in changes if one["op"] == "ddl"]
    assert [one["statement"].split()[0] for one in ddl] == ["CREATE", "CREATE", "ALTER"]
    assert all(list(one) == [*KEYS[:-2], "statement"] for one in ddl)
    assert [one["table"] for one in ddl] == ["t", "u", "t"]
    assert changes[-1] is ddl[-1]


def test_the_place_of_a_change(since: Since) -> None:
    since.do("CREATE TABLE t (id INT PRIMARY KEY)")
    before = datetime.now(UTC)
    since.do("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2), (3)")
    since.do("INSERT INTO t VALUES (4)")
    after = datetime.now(UTC)
    _, one, two, three, four = since.changes()
    assert one["db"] == since.db
    assert one["gtid"] == two["gtid"] == three["gtid"] != four["gtid"]
    assert re.fullmatch(r"[0-9a-f-]{36}:[0-9]+", one["gtid"])
    assert one["pos"] < two["pos"] == three["pos"] < four["pos"]
    positions = {row[1]: row[2] for row in since.server.query(f"SHOW BINLOG EVENTS IN '{one['file']}'")}
    assert "Write_rows" in {positions[change["pos"]] for change in (one, two, four)}
    for change in (one, four):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", change["ts"])
        committed = datetime.fromisoformat(change["ts"].removesuffix("Z")).replace(tzinfo=UTC)
        assert before <= committed <= after


def test_from_a_gtid_set_means_already_had(since: Since) -> None:
    since.do("CREATE TABLE t (id INT PRIMARY KEY)")
    since.do("INSERT INTO t VALUES (1)")
    had = since.server.gtid_executed
    since.do("INSERT INTO t VALUES (2)")
    assert [one["after"] for one in tail(since.server, "--from", had)] == [{"id": 2}]
    assert tail(since.server) == []


def test_tables_are_chosen_by_pattern(since: Since) -> None:
    since.do("CREATE TABLE a (id INT)", "CREATE TABLE b (id INT)")
    since.do("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (2)", "INSERT INTO a VALUES (3)")
    changes = since.changes("--tables", f"!{since.db}.b")
    assert [(one["op"], one["table"]) for one in changes] == [("ddl", "a"), ("c", "a"), ("c", "a")]
    assert [one["ordinal"] for one in changes[1:]] == [0, 2]


def test_text_for_people(since: Since) -> None:
    since.do("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    since.do("INSERT INTO t VALUES (1, 2, 3)", "UPDATE t SET b = 4", "DELETE FROM t")
    code, out, _ = run("tail", since.server.url, "--until-current", "--from", since.start, "--format", "text")
    assert code == 0
    name = f"{since.db}.t"
    assert [line for line in out.splitlines() if line.startswith("  ")] == [
        f"  # {name}  CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
        f"  + {name}  id=1 a=2 b=3",
        f"  ~ {name}  id=1 b=3→4",
        f"  - {name}  id=1 a=2 b=4",
    ]
    assert len(out.splitlines()) == 6


def start(since: Since, table: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headgate.cli", "tail", since.server.url, "--tables", f"{since.db}.{table}"]
    environment = {**os.environ, "PYTHONPATH": SRC}
    return subprocess.Popen(
        [*command, "--from", since.start], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def following(since: Since) -> Iterator[subprocess.Popen[str]]:
    since.do("CREATE TABLE there (id INT PRIMARY KEY)")
    since.start = since.server.gtid_executed
    with start(since, "*") as process:
        try:
            yield process
        finally:
            process.kill()


def test_who_waits_for_a_table_that_is_not_there_is_told(since: Since) -> None:
    with start(since, "odrers") as process:
        try:
            assert process.stderr is not None
            line = f"warning: no table matches {since.db}.odrers yet: check the spelling (case counts) and the grants\n"
            assert select.select([process.stderr], [], [], 60)[0], "nothing was said"
            assert process.stderr.readline() == line
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_prints_at_once_and_ends_with_ctrl_c(
    since: Since, following: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert following.stdout is not None
    since.do("CREATE TABLE t (id INT PRIMARY KEY)")
    assert json.loads(following.stdout.readline())["op"] == "ddl"
    for i in range(3):
        since.do(f"INSERT INTO t VALUES ({i})")
        assert json.loads(following.stdout.readline())["after"] == {"id": i}
    following.send_signal(number)
    out, err = following.communicate(timeout=120)
    assert (following.returncode, out, err) == (0, "", "")


def test_ctrl_c_leaves_whole_lines(since: Since, following: subprocess.Popen[str]) -> None:
    """A line longer than a pipe holds has begun when Ctrl-C comes."""
    assert following.stdout is not None
    assert following.stderr is not None
    since.do("CREATE TABLE t (id INT PRIMARY KEY, v MEDIUMTEXT)")
    assert following.stdout.readline()
    since.do("INSERT INTO t VALUES (1, REPEAT('x', 1000000))")
    pipe = following.stdout.fileno()
    parts = [os.read(pipe, 10)]
    following.send_signal(signal.SIGINT)
    while part := os.read(pipe, 1 << 16):
        parts.append(part)
    assert (following.wait(60), following.stderr.read()) == (0, "")
    out = b"".join(parts).decode()
    assert out.endswith("}}\n")
    assert json.loads(out)["after"] == {"id": 1, "v": "x" * 1_000_000}


# --- what goes wrong


def test_wrong_password_and_missing_grants(since: Since, monkeypatch: pytest.MonkeyPatch) -> None:
    server, user = since.server, f"u{since.db}"[:30]
    url = f"mysql://{user}@127.0.0.1:{server.url.rpartition(':')[2]}"
    server.execute(f"CREATE USER `{user}`@`%` IDENTIFIED BY 'right'")
    try:
        monkeypatch.setenv("HEADGATE_PASSWORD", "wrong")
        error = fails(3, "tail", url)
        assert "Access denied" in error
        assert "HEADGATE_PASSWORD" in error
        assert "wrong" not in error
        monkeypatch.setenv("HEADGATE_PASSWORD", "right")
        assert "REPLICATION CLIENT" in fails(3, "tail", url)
        server.execute(f"GRANT REPLICATION CLIENT ON *.* TO `{user}`@`%`")
        error = fails(3, "tail", url)
        assert "REPLICATION SLAVE" in error
        error = fails(3, "tail", url, "--until-current", "--from", since.start)
        assert "REPLICATION SLAVE" in error
    finally:
        server.execute(f"DROP USER `{user}`@`%`")


def test_unreachable_host() -> None:
    assert "127.0.0.1:1" in fails(3, "tail", "mysql://root@127.0.0.1:1")


def test_bad_use(mysql_server: MySQLServer) -> None:
    fails(2, "tail", "postgres://x")
    fails(2, "tail", mysql_server.url, "--tables", "nodot")
    assert "the start is 'yesterday'; expected current, earliest, a time" in fails(
        2, "tail", mysql_server.url, "--from", "yesterday"
    )
    fails(2, "tail", mysql_server.url, "--format", "xml")


def test_a_gtid_set_of_another_server(mysql_server: MySQLServer) -> None:
    error = fails(3, "tail", mysql_server.url, "--from", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
    assert "has not executed 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5" in error


@pytest.mark.needs_own_server
def test_from_the_earliest_change_and_from_a_purged_one() -> None:
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (0)")
        first = tail(server, "--from", "earliest", "--tables", "d.t")
        assert [one["after"] for one in first if one["op"] == "c"] == [{"id": 0}]
        server.execute("FLUSH BINARY LOGS")
        server.execute("INSERT INTO d.t VALUES (1)")
        file, _ = server.log_status()
        server.purge_log(file)
        assert "no longer holds" in fails(3, "tail", server.url, "--from", f"{server.server_uuid}:1")
        assert [one["after"] for one in tail(server, "--from", "earliest")] == [{"id": 1}]


def test_rules_of_a_pipeline_file(since: Since, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they hide is neither printed by ``tail`` nor by ``snapshot``, in lines and in text."""
    secret, table, file = "s3cr3t", f"{since.db}.t", tmp_path / "pipeline.toml"
    monkeypatch.setenv("MASK_KEY", "a key of 16 bytes or more")
    rules = """
        name = "rules"
        source = { url = "mysql://nobody@127.0.0.1:1", tables = ["x.y"], mask_key_env = "MASK_KEY" }
        target = { path = "/nowhere" }
        [columns."*.t"]
        id = { rename = "nr" }
        mail = "hash"
        note = "exclude"
        on = "boolean"
        kind = "number"
        gone = "null"
        """
    file.write_text(rules)
    since.do(
        "CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(20), note TEXT, `on` TINYINT(1), kind ENUM('a'), gone INT)"
    )
    since.start = since.server.gtid_executed
    since.do(f"INSERT INTO t VALUES (1, '{secret}', '{secret}', 1, 'a', 5)", f"UPDATE t SET note = '{secret}2'")
    hashed = hmac.new(b"a key of 16 bytes or more", secret.encode(), "sha256").hexdigest()
    row = {"nr": 1, "mail": hashed, "on": True, "kind": 1, "gone": None}
    changes = since.changes("--rules", str(file))
    assert [(one["op"], one["before"], one["after"]) for one in changes] == [("c", None, row), ("u", row, row)]
    code, out, err = run("snapshot", since.server.url, "-t", table, "--rules", str(file))
    assert (code, [json.loads(line)["after"] for line in out.splitlines()]) == (0, [row]), err
    more = ("--until-current", "--from", since.start, "-t", table, "--format", "text", "--rules", str(file))
    code, text, err = run("tail", since.server.url, *more)
    assert (code, hashed[:8] in text, secret in out + text + err) == (0, True, False)
    file.write_text(rules + 'nobody = "null"')
    code, _, err = run("snapshot", since.server.url, "-t", table, "--rules", str(file))
    assert (code, "the rule for *.t.nobody" in err) == (0, True)
    file.write_text(rules.replace('{ rename = "nr" }', '"null"'))
    refused = fails(3, "tail", since.server.url, "--until-current", "-t", table, "--rules", str(file))
    assert "a column of the key" in refused
    assert "cannot be read" in fails(2, "tail", since.server.url, "-t", table, "--rules", str(tmp_path / "none.toml"))
