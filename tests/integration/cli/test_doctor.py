"""``headgate doctor`` of a server that answers: its settings, checks and tables, and a login that is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate_testing import MySQLServer
from tests.cli.test_doctor import members, values
from tests.integration.commands import run

PASSWORD = "never-in-a-report"


@pytest.fixture
def pipeline(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    account = f"'{mysql_db}'@'%'"
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.orders (id INT PRIMARY KEY, state ENUM('open', 'paid'))",
        f"CREATE TABLE {mysql_db}.keyless (note TEXT)",
        f"CREATE USER {account} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT ON {mysql_db}.* TO {account}",
    )
    monkeypatch.setenv("HEADGATE_PASSWORD", PASSWORD)
    file = tmp_path / "pipeline.toml"
    url = f"mysql://{mysql_db}@{mysql_server.host}:{mysql_server.port}"
    file.write_text(
        f'name = "sick"\n[source]\nurl = "{url}"\ntables = ["{mysql_db}.*"]\n[target]\npath = "{tmp_path}/lake"\n'
    )
    yield file
    mysql_server.execute(f"DROP USER {account}")


def report(pipeline: Path) -> tuple[dict[str, Any], str]:
    """The archive's values, and all of its text."""
    out = pipeline.parent / "report.tar.gz"
    code, text, err = run("doctor", str(pipeline), "-o", str(out))
    assert (code, err) == (0, "")
    return values(out), "\n".join([text, *members(out).values()])


def test_the_parts_of_a_server(pipeline: Path, mysql_server: MySQLServer, mysql_db: str) -> None:
    read, text = report(pipeline)
    assert read["server"]["variables"]["gtid_mode"] == "ON"
    assert mysql_server.server_uuid in read["server"]["gtid_executed"]
    assert "REPLICATION SLAVE" in {row["name"] for row in read["check"] if row["status"] == "fail"}
    assert read["tables"][f"{mysql_db}.orders"]["key"] == ["id"]
    assert [one["mysql"] for one in read["tables"][f"{mysql_db}.orders"]["columns"]] == ["int", "enum('open','paid')"]
    assert read["tables"][f"{mysql_db}.keyless"]["engine"] == "InnoDB"
    assert PASSWORD not in text
    assert f"{mysql_db}@" not in text
    assert "no run has written to" in read["status"]["error"]


def test_a_refused_login_is_tried_once(
    pipeline: Path, mysql_server: MySQLServer, mysql_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_PASSWORD", f"{PASSWORD}-of-yesterday")
    mysql_server.execute(f"ALTER USER '{mysql_db}'@'%' FAILED_LOGIN_ATTEMPTS 2 PASSWORD_LOCK_TIME 1")
    read, text = report(pipeline)
    assert {read[part]["type"] for part in ("server", "check", "tables")} == {"AccessError"}
    assert "(see docs/runbook.md#access-denied)" in read["server"]["error"]
    assert PASSWORD not in text
    monkeypatch.setenv("HEADGATE_PASSWORD", PASSWORD)
    assert report(pipeline)[0]["server"]["variables"], "the account is not locked"
