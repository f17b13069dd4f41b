"""A password and a key are searched for in everything that a run writes, logs, shows and starts."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headgate.carrier import ControlFolder
from headgate.lake import Lake
from headgate.ui import Token, Watched, create_app
from headgate_testing import MySQLServer, wait_until
from tests.integration.commands import run
from tests.ui.test_app import ask

PASSWORD, KEY, TOKEN = "Pw7xQ-distinctive-word", "Ky5vR-distinctive-word-of-32-bytes", "Tk3zW-distinctive-token"
SECRETS = (PASSWORD, KEY, TOKEN)

TEXT = """\
name = "secrets"
[source]
url = "mysql://{user}@{host}:{port}"
{password}
tables = ["{db}.*"]
poll_ms = 50
mask_key_env = "HEADGATE_SECRETS_KEY"
[target]
path = "{folder}/lake"
mode = ["current", "changelog"]
[columns."*.*"]
note = "hash"
[ui]
port = {page}
token_file = "{secrets}/token"
[notifications]
log = true
table = true
[spark]
master = "local[2]"
"driver.memory" = "1g"
"local.dir" = "{folder}/spark"
"eventLog.enabled" = true
"eventLog.dir" = "{folder}/events"
"eventLog.compress" = false
"log.level" = "INFO"
"""


@pytest.fixture
def account(mysql_server: MySQLServer, mysql_db: str) -> Iterator[str]:
    user = f"s_{mysql_db}"[:32]
    mysql_server.execute(
        f"CREATE USER {user} IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT ON {mysql_db}.* TO {user}",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, note VARCHAR(40))",
        f"INSERT INTO {mysql_db}.t VALUES (1, 'one')",
    )
    yield user
    mysql_server.execute(f"DROP USER {user}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Searched:
    """A run as a process, and what is seen of it."""

    def __init__(self, folder: Path, secrets: Path, way: str) -> None:
        self.folder, self.secrets = folder, secrets
        for one in (folder / "tmp", folder / "events", secrets):
            one.mkdir(parents=True)
        (secrets / "password").write_text(PASSWORD + "\n")
        (secrets / "token").write_text(TOKEN + "\n")
        self.password = {
            "env": 'password_env = "HEADGATE_SECRETS_PASSWORD"',
            "file": f'password_file = "{secrets}/password"',
            "command": f'password_command = "cat {secrets}/password"',
        }[way]
        self.environment = {**os.environ, "HEADGATE_SECRETS_KEY": KEY, "TMPDIR": str(folder / "tmp")}
        if way == "env":
            self.environment["HEADGATE_SECRETS_PASSWORD"] = PASSWORD
        self.arguments: set[bytes] = set()
        self.temporary: dict[str, int] = {}

    def run(self, file: Path) -> None:
        """Until its end; arguments of all processes and modes of temporary folders are noted meanwhile."""
        log = self.folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "headgate.cli", "run", "--once", "--log-level", "debug", str(file)],
                stdout=out, stderr=out, env=self.environment, cwd=self.folder,
            )  # fmt: skip
        try:
            wait_until(lambda: self._has_ended(process), "the run did not end", seconds=400, every=0.1)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, log.read_text()[-4000:]

    def _has_ended(self, process: subprocess.Popen[bytes]) -> bool:
        self._look()
        return process.poll() is not None

    def _look(self) -> None:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                self.arguments.add(file.read_bytes())
        for one in (self.folder / "tmp").iterdir():
            with contextlib.suppress(OSError):  # it was removed meanwhile
                mode = one.stat().st_mode
                if stat.S_ISDIR(mode):
                    self.temporary[one.name] = stat.S_IMODE(mode)

    def places(self) -> Iterator[tuple[str, bytes]]:
        """Everything that was written, with its name; values of Parquet files as text."""
        for file in self.folder.rglob("*"):
            yield str(file), os.fsencode(file.name)
            if file.is_file():
                yield str(file), file.read_bytes()
            if file.is_file() and file.suffix == ".parquet":
                yield str(file), repr(pq.ParquetFile(file).read().to_pydict()).encode()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["env", "file", "command"])
def test_secrets_are_in_nothing_that_a_run_leaves_or_shows(
    mysql_server: MySQLServer, mysql_db: str, account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    searched = Searched(tmp_path / "run", tmp_path / "secrets", way)
    file = searched.folder / "pipeline.toml"
    file.write_text(
        TEXT.format(
            user=account, host=mysql_server.host, port=mysql_server.port, password=searched.password, db=mysql_db,
            folder=searched.folder, secrets=searched.secrets, page=free_port(),
        )
    )  # fmt: skip
    searched.run(file)
    mysql_server.execute(f"UPDATE {mysql_db}.t SET note = 'two'", f"ALTER TABLE {mysql_db}.t ADD n INT")
    searched.run(file)

    places = dict(searched.places())
    assert any("/events/" in name for name in places), "Spark's event log"
    assert any("/lake/" in name and "commits" in name for name in places), "Spark's checkpoint"
    assert any(name.endswith("status.json") for name in places)
    revealing = [name for name, content in searched.places() for one in SECRETS if one.encode() in content]
    assert revealing == []
    assert any(b"headgate.cli" in one for one in searched.arguments)
    assert any(b"org.apache.spark" in one for one in searched.arguments)
    assert [line for line in searched.arguments for one in SECRETS if one.encode() in line] == []
    assert {name: mode for name, mode in searched.temporary.items() if mode != 0o700} == {}, "others may read them"
    assert any(name.startswith("headgate-") for name in searched.temporary)

    inbox = ControlFolder(Lake.at(str(searched.folder / "lake")).inbox)
    app = create_app([Watched("secrets", inbox)], token=Token(TOKEN))
    shown = [ask(app, path).text for path in ("/", "/content", "/api/status", "/metrics")]
    for name, value in searched.environment.items():
        if name.startswith("HEADGATE_SECRETS"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADGATE_PASSWORD", PASSWORD)
    where = f"mysql://{account}@{mysql_server.host}:{mysql_server.port}"
    for words in (
        ["check", where], ["status", str(file)], ["run", "--dry-run", str(file)], ["check", where.replace("@", "x@")],
        ["check", where.replace("@", f":{PASSWORD}@")], ["tail", where.replace("@", f":{PASSWORD}@no.invalid?x=")],
        ["check", f"{where}/?password={PASSWORD}"],
    ):  # fmt: skip
        code, out, err = run(*words)
        shown.append(f"{words[0]} {code} {out} {err}")
    mysql_server.execute(f"ALTER USER {account} ACCOUNT LOCK")
    shown.append("".join(map(str, run("run", "--dry-run", str(file)))))
    assert [text for text in shown for one in SECRETS if one in text] == []
