"""``headgate check`` and ``init`` against real servers, good and bad ones."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.config import load_config
from headgate.errors import ServerSettingError
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate_testing import MySQLServer, replica_pair
from tests.integration import commands
from tests.integration.commands import run

WORD = "s3cr3t!"


def check(url: str, *args: str) -> tuple[int, dict[str, dict[str, str]]]:
    code, out, err = run("check", url, "--format", "json", *args)
    assert err == ""
    rows: list[dict[str, str]] = json.loads(out)
    assert len({row["name"] for row in rows}) == len(rows)
    return code, {row["name"]: row for row in rows}


def fails(code: int, *args: str) -> str:
    error = commands.fails(code, *args)
    assert WORD not in error
    return error


def failed(rows: dict[str, dict[str, str]], status: str = "fail") -> set[str]:
    return {name for name, row in rows.items() if row["status"] == status}


def mend(server: MySQLServer, rows: dict[str, dict[str, str]]) -> None:
    """Do what the report says, as far as it can be done in SQL."""
    for row in rows.values():
        if re.match(r"(SET|GRANT|STOP|ALTER|CALL) ", row["remedy"]) and "…" not in row["remedy"]:
            server.execute(*[part.strip() for part in row["remedy"].split(";") if part.strip()])


@pytest.fixture
def account(mysql_server: MySQLServer, mysql_db: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user who may do nothing; its password is in the environment."""
    name = f"u_{mysql_db}"
    mysql_server.execute(f"CREATE USER {name} IDENTIFIED BY '{WORD}'")
    monkeypatch.setenv("HEADGATE_PASSWORD", WORD)
    yield name
    mysql_server.execute(f"DROP USER {name}")


def url_of(server: MySQLServer, account: str) -> str:
    return f"mysql://{account}@{server.host}:{server.port}"


# -- check


DURABLE: dict[str, Any] = {"sync_binlog": 1, "innodb_flush_log_at_trx_commit": 1}


@pytest.mark.needs_own_server
def test_a_good_server() -> None:
    with MySQLServer.start(DURABLE) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)")
        code, rows = check(server.url, "--tables", "d.*")
        assert (code, failed(rows), failed(rows, "warn")) == (0, set(), set())
        assert {row["remedy"] for row in rows.values()} == {""}
        for name in ("log_bin", "gtid_mode", "REPLICATION CLIENT", "tables d.*", "keys", "SELECT", *DURABLE):
            assert rows[name]["status"] == "ok"
        code, out, err = run("check", server.url, "-t", "d.*")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("0 failed, 0 warnings, ")
    assert "\x1b" not in out


BAD: dict[str, Any] = {
    "gtid_mode": "OFF",
    "enforce_gtid_consistency": "OFF",
    "binlog_format": "STATEMENT",
    "binlog_row_image": "MINIMAL",
    "binlog_row_metadata": "MINIMAL",
    "binlog_row_value_options": "PARTIAL_JSON",
    "binlog_order_commits": "OFF",
    "binlog_expire_logs_seconds": 3600,
    "max_allowed_packet": 4 << 20,
    "binlog_ignore_db": "shop",
    "sync_binlog": 0,
    "innodb_flush_log_at_trx_commit": 2,
}


@pytest.mark.needs_own_server
def test_all_that_is_wrong_is_told_at_once_and_the_remedies_mend_it() -> None:
    with MySQLServer.start(BAD) as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.a (id INT PRIMARY KEY)",
            "CREATE TABLE shop.b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES shop.a (id) ON DELETE CASCADE)",
            "CREATE TABLE shop.old (id INT PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE shop.plain (a INT)",
        )
        code, rows = check(server.url)
        assert code == 1
        mild = {"binlog_expire_logs_seconds", "max_allowed_packet", "binlog_row_image", "binlog_row_metadata", *DURABLE}
        settings = set(BAD) - mild
        expected = settings | {"engine of shop.old"}
        assert failed(rows) - {"foreign keys of shop.b"} == expected
        warned = mild | {"key of shop.plain"}
        assert failed(rows, "warn") == warned
        for name in failed(rows) | warned:
            assert rows[name]["remedy"]
        assert ("foreign keys of shop.b" in rows) == (not server.logs_cascades)

        mend(server, rows)
        code, rows = check(server.url)
        assert failed(rows) - {"foreign keys of shop.b"} == {"binlog_ignore_db"}
        assert rows["binlog_ignore_db"]["remedy"] == "restart the server without binlog_ignore_db"
        assert failed(rows, "warn") == {"key of shop.plain"}
        server.restart({"binlog_ignore_db": None})
        assert "binlog_ignore_db" not in failed(check(server.url)[1])


@pytest.mark.needs_own_server
def test_a_server_without_a_log() -> None:
    with MySQLServer.start({"log_bin": "OFF", "gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        code, rows = check(server.url)
        assert code == 1
        assert failed(rows) == {"log_bin", "gtid_mode", "enforce_gtid_consistency", "tables *.*"}
        assert "restart" in rows["log_bin"]["remedy"]
        with Connection.open(ConnectionSettings.from_url(server.url)) as connection:
            with pytest.raises(ServerSettingError, match="writes no binary log"):
                connection.log_status()
            assert not gtid_executed(connection)


@pytest.mark.needs_own_server
def test_a_replica_must_log_in_commit_order() -> None:
    flags = {"replica_preserve_commit_order": False, "replica_parallel_workers": 2}
    with replica_pair(replica_flags=dict(flags)) as (primary, replica):
        assert "replica_preserve_commit_order" not in check(primary.url)[1]
        _, rows = check(replica.url)
        assert "replica_preserve_commit_order" in failed(rows)
        assert rows["watermark gtid"]["actual"] == "not usable: see replica_preserve_commit_order"
        assert rows["log_replica_updates"]["status"] == "ok"
        mend(replica, rows)
        assert check(replica.url)[1]["replica_preserve_commit_order"]["status"] == "ok"


@pytest.mark.needs_own_server
def test_how_long_amazon_rds_keeps_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the account may read what was said to RDS, that is judged, not MySQL's setting, which says 30 days."""
    monkeypatch.setenv("HEADGATE_PASSWORD", WORD)
    with MySQLServer.start() as server:
        server.execute(
            "CREATE TABLE mysql.rds_configuration (name VARCHAR(100) NOT NULL PRIMARY KEY, value VARCHAR(100),"
            " description VARCHAR(300) NOT NULL)",
            "INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', NULL, '')",
            "CREATE PROCEDURE mysql.rds_set_configuration(IN name VARCHAR(30), IN value INT)"
            " UPDATE mysql.rds_configuration SET rds_configuration.value = value WHERE rds_configuration.name = name",
            f"CREATE USER u IDENTIFIED BY '{WORD}'",
            "GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO u",
        )
        names = {"binlog retention hours", "binlog_expire_logs_seconds"}
        _, rows = check(url_of(server, "u"))
        assert {name: rows[name]["status"] for name in names & rows.keys()} == {"binlog_expire_logs_seconds": "ok"}
        server.execute("GRANT SELECT ON mysql.rds_configuration TO u")
        _, rows = check(url_of(server, "u"))
        assert {name: rows[name]["status"] for name in names & rows.keys()} == {"binlog retention hours": "warn"}
        assert rows["binlog retention hours"]["actual"].startswith("NULL")
        mend(server, {"": rows["binlog retention hours"]})
        _, rows = check(url_of(server, "u"))
        assert (rows["binlog retention hours"]["status"], rows["binlog retention hours"]["actual"]) == ("ok", "168")
        server.execute("DELETE FROM mysql.rds_configuration WHERE name = 'binlog retention hours'")
        assert names & check(url_of(server, "u"))[1].keys() == {"binlog_expire_logs_seconds"}


def test_missing_privileges_and_the_statements_that_grant_them(
    mysql_server: MySQLServer, mysql_db: str, account: str
) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.t (a INT PRIMARY KEY, secret INT)", f"CREATE TABLE {mysql_db}.hidden (a INT)"
    )
    url = url_of(mysql_server, account)
    code, rows = check(url, "--tables", f"{mysql_db}.*")
    assert code == 1
    assert {"REPLICATION CLIENT", "REPLICATION SLAVE", f"tables {mysql_db}.*"} <= failed(rows)
    assert rows[f"tables {mysql_db}.*"]["actual"] == "none visible: no SELECT, or misspelt (case counts)"
    grant = f"GRANT SELECT ON `{mysql_db}`.* TO '{account}'@'%';"
    assert rows[f"tables {mysql_db}.*"]["remedy"] == grant
    assert fails(2, "init", url, "--tables", f"{mysql_db}.*").endswith(
        f": the account lacks SELECT: {grant} or check the spelling (case counts)\n"
    )
    assert check(url)[1]["tables *.*"]["remedy"] == f"GRANT SELECT ON `…`.* TO '{account}'@'%';"
    mysql_server.execute(f"GRANT SELECT (a), INSERT ON {mysql_db}.t TO {account}")  # visible, but not all of it
    code, rows = check(url, "--tables", f"{mysql_db}.t")
    assert f"SELECT on {mysql_db}.t" in failed(rows)
    assert "REPLICATION CLIENT" in rows["watermark gtid"]["actual"]
    assert rows["watermark lock"]["actual"].startswith(f"needs GRANT LOCK TABLES ON `{mysql_db}`.* TO '{account}'")
    mend(mysql_server, rows)
    code, rows = check(url, "--tables", f"{mysql_db}.t")
    assert (code, failed(rows)) == (0, set())
    assert rows["watermark gtid"]["actual"] == "usable"
    mysql_server.execute(f"GRANT LOCK TABLES ON {mysql_db}.* TO {account}")
    assert check(url, "--tables", f"{mysql_db}.t")[1]["watermark lock"]["actual"] == "usable"


def test_privileges_of_a_role_count(mysql_server: MySQLServer, mysql_db: str, account: str) -> None:
    role = f"r_{mysql_db}"
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.t (a INT PRIMARY KEY)",
        f"CREATE ROLE {role}",
        f"GRANT REPLICATION CLIENT, REPLICATION SLAVE, SELECT ON *.* TO {role}",
        f"GRANT {role} TO {account}",
        f"ALTER USER {account} DEFAULT ROLE {role}",
    )
    code, rows = check(url_of(mysql_server, account), "--tables", f"{mysql_db}.*")
    mysql_server.execute(f"DROP ROLE {role}")
    assert (code, failed(rows)) == (0, set())


def test_what_cannot_be_checked_is_one_line(
    mysql_server: MySQLServer, account: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = url_of(mysql_server, account)
    assert "cannot connect to MySQL at 127.0.0.1:1" in fails(3, "check", "mysql://127.0.0.1:1")
    assert "host name is unknown" in fails(3, "check", "mysql://no-such-host.invalid")
    assert "not a MySQL URL" in fails(2, "check", "http://x")
    assert "unknown tls mode 'on'" in fails(2, "check", f"{url}/?tls=on")
    assert "not a table pattern" in fails(2, "check", url, "--tables", "shop")
    assert "cannot read the password file" in fails(2, "check", url, "--password-file", str(tmp_path / "none"))
    assert "cannot use the TLS files" in fails(2, "check", f"{url}/?tls=verify_ca&tls_ca=/no/such.pem")
    (tmp_path / "pw").write_text("not it\n")
    error = fails(3, "check", url, "--password-file", str(tmp_path / "pw"))
    assert ("check the user and its password" in error, "not it" in error) == (True, False)
    monkeypatch.setenv("HEADGATE_PASSWORD", "wrong")
    assert "check the user and its password" in fails(3, "check", url)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "cannot connect" in fails(3, "check", f"mysql://127.0.0.1:{port}/?connect_timeout_seconds=0.2")


def test_a_password_in_the_url_works_with_a_warning(mysql_server: MySQLServer, account: str) -> None:
    code, out, err = run("check", f"mysql://{account}:{WORD}@{mysql_server.host}:{mysql_server.port}")
    assert code == 1
    assert err.startswith("warning: ")
    assert WORD not in out + err


def test_an_unknown_table(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (a INT PRIMARY KEY)")
    patterns = ["--tables", f"{mysql_db}.t", "--tables", f"{mysql_db}.T", "--tables", f"!{mysql_db}.x"]
    code, rows = check(mysql_server.url, *patterns)
    assert code == 1
    assert failed(rows) == {f"tables {mysql_db}.T"}


# -- init


def test_init_writes_a_file_that_reads_back(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.orders (id INT, line INT, PRIMARY KEY (id, line))",
        f'CREATE TABLE {mysql_db}.`we"ird\n[x]` (a INT)',
        f"CREATE TABLE {mysql_db}.old (a INT PRIMARY KEY) ENGINE = MyISAM",
    )
    file = tmp_path / "pipeline.toml"
    command = ["init", mysql_server.url + "/?tls=required", "-t", f"{mysql_db}.*", "--target", str(tmp_path / 'la"ke')]
    code, out, err = run(*command, "-o", str(file))
    assert (code, err) == (0, "")
    assert "3 tables" in out
    config = load_config(file)
    assert config.name == mysql_db
    assert config.source.url == mysql_server.url + "/?tls=required"
    assert config.source.tables == (f"{mysql_db}.*",)
    assert config.target.path == str(tmp_path / 'la"ke')
    text = file.read_text()
    assert "key: id, line" in text
    assert "engine MyISAM" in text
    assert "no primary key" in text
    assert "[x]" in text  # the keyless table is named
    file.write_text("mine")
    assert "exists already; --force overwrites it" in fails(2, *command, "-o", str(file))
    assert file.read_text() == "mine"
    assert run(*command, "-o", str(file), "--force")[0] == 0
    assert load_config(file) == config


def test_init_uncommented_is_valid_too(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """What stands in comments as an example must be right as well."""
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (a INT PRIMARY KEY)")
    file = tmp_path / "p.toml"
    assert run("init", mysql_server.url, "-t", f"{mysql_db}.*", "-o", str(file))[0] == 0
    text = re.sub(r"(?m)^# (?=\w+ = |\"|\[)", "", file.read_text())
    file.write_text(text)
    config = load_config(file)
    assert config.source.chunk_rows == 250_000
    assert config.source.password_file == "/run/secrets/mysql"
    assert config.spark["spark.driver.memory"] == "4g"
    assert config.tables[f"{mysql_db}.t"].schema_changes == "evolve"
    with_kafka = re.sub(r"(?m)^#   ", "", text).replace('mode = "current"', 'mode = ["current", "kafka"]')
    file.write_text(with_kafka)
    kafka = load_config(file).target.kafka
    assert kafka is not None
    assert (kafka.bootstrap, kafka.delivery) == ("kafka:9092", "exactly-once")


def test_init_never_writes_a_password(
    mysql_server: MySQLServer, mysql_db: str, account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (a INT PRIMARY KEY)", f"GRANT SELECT ON {mysql_db}.* TO {account}")
    address = f"{mysql_server.host}:{mysql_server.port}"
    file, secret = tmp_path / "p.toml", tmp_path / "pw"
    code, out, err = run("init", f"mysql://{account}:{WORD}@{address}", "-o", str(file))
    assert (code, err.startswith("warning: ")) == (0, True)
    assert WORD not in file.read_text() + out + err
    assert load_config(file).source.url == f"mysql://{account}@{address}"
    secret.write_text(WORD)
    monkeypatch.delenv("HEADGATE_PASSWORD")
    code, _, _ = run("init", f"mysql://{account}@{address}", "--password-file", str(secret), "-o", str(file), "--force")
    assert code == 0
    assert load_config(file).source.password_file == str(secret)
    monkeypatch.setenv("OTHER", WORD)
    code, _, _ = run("init", f"mysql://{account}@{address}/?password_env=OTHER", "-o", str(file), "--force")
    assert code == 0
    assert load_config(file).source.password_env == "OTHER"


def test_init_takes_all_databases_and_writes_here(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    assert run("init", mysql_server.url)[0] == 0
    config = load_config("pipeline.toml")
    assert f"{mysql_db}.*" in config.source.tables
    assert (config.target.path, config.target.mode) == (str(tmp_path / "lake"), ("current",))
    assert run("init", mysql_server.url, "-o", "others.toml", "--tables", "!none.*", "-t", "!x.y")[0] == 0
    assert load_config("others.toml").source.tables == ("*.*", "!none.*", "!x.y")


def test_init_without_tables_server_or_place(
    mysql_server: MySQLServer, mysql_db: str, account: str, tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"
    assert "no table matches" in fails(2, "init", url_of(mysql_server, account), "-o", str(file))
    assert "pattern" in fails(2, "init", mysql_server.url, "--tables", "nodot", "-o", str(file))
    assert "cannot connect to MySQL at 127.0.0.1:1" in fails(3, "init", "mysql://root@127.0.0.1:1", "-o", str(file))
    assert not file.exists()
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (a INT PRIMARY KEY)", f"GRANT SELECT ON {mysql_db}.* TO {account}")
    target = str(tmp_path / "none" / "p.toml")
    assert "cannot be written" in fails(2, "init", url_of(mysql_server, account), "-o", target)
