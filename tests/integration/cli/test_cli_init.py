"""``headgate init`` against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from headgate.config import load_config
from headgate_testing import MySQLServer


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", *args])
    return result.exit_code, result.stderr


def test_what_it_writes_is_a_pipeline(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.orders (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE {mysql_db}.log (line TEXT)",
        f'CREATE TABLE {mysql_db}.`odd\n"name"` (id INT PRIMARY KEY)',
    )
    assert run(mysql_server.url, "--tables", f"{mysql_db}.*") == (0, "")
    config = load_config("pipeline.toml")
    assert config.source.tables == (f"{mysql_db}.*",)
    assert config.source.url == mysql_server.url
    assert config.target.path == str(tmp_path / "lake")
    assert config.target.mode == ("current",)
    text = Path("pipeline.toml").read_text()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert any(f"{mysql_db}.orders" in line and "key: id" in line for line in comments)
    assert any(f"{mysql_db}.log" in line and "key: NONE" in line for line in comments)


def test_all_databases_when_no_tables_are_named(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    assert run(mysql_server.url, "-o", "all.toml") == (0, "")
    assert f"{mysql_db}.*" in load_config("all.toml").source.tables
    assert run(mysql_server.url, "-o", "others.toml", "--tables", "!none.*", "-t", "!x.y") == (0, "")
    assert load_config("others.toml").source.tables == ("*.*", "!none.*", "!x.y")


def test_it_never_overwrites_unasked(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    Path("mine.toml").write_text("mine")
    args = (mysql_server.url, "--tables", f"{mysql_db}.*", "--output", "mine.toml")
    code, error = run(*args)
    assert code == 2
    assert error.startswith("error: mine.toml exists already")
    assert error.count("\n") == 1
    assert Path("mine.toml").read_text() == "mine"
    assert run(*args, "--force") == (0, "")
    assert load_config("mine.toml").source.url == mysql_server.url


def test_no_password_is_written(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    user = f"i{mysql_db}"[:30]
    mysql_server.execute(f"CREATE USER `{user}`@`%` IDENTIFIED BY 'verysecret'", f"GRANT SELECT ON *.* TO `{user}`@`%`")
    try:
        url = f"mysql://{user}:verysecret@127.0.0.1:{mysql_server.url.rpartition(':')[2]}"
        code, error = run(url, "--tables", f"{mysql_db}.*")
        assert code == 0
        assert error.startswith("warning: ")
        assert "verysecret" not in error + Path("pipeline.toml").read_text()
    finally:
        mysql_server.execute(f"DROP USER `{user}`@`%`")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [(["--tables", "nowhere.*"], 2, "no table matches"), (["--tables", "nodot"], 2, "pattern")],
)
def test_mistakes(mysql_server: MySQLServer, args: list[str], code: int, message: str) -> None:
    got, error = run(mysql_server.url, *args)
    assert got == code
    assert message in error
    assert not Path("pipeline.toml").exists()


def test_an_unreachable_server() -> None:
    code, error = run("mysql://root@127.0.0.1:1")
    assert code == 3
    assert error.startswith("error: cannot connect to MySQL at 127.0.0.1:1")
