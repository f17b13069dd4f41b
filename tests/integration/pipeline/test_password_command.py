"""A password that a command prints changes at the server while a pipeline runs; executors run the command, too."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest

from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate_testing import MySQLServer


class OfCommand(Runs):
    """A pipeline whose user has a password of its own, printed by a command."""

    def __init__(self, spark: SparkSession, server: MySQLServer, db: str, folder: Path) -> None:
        super().__init__(spark, server, db, folder)
        self.user, self.secret, self.count = f"r_{db}"[:32], folder / "pass word", folder / "runs"
        self.script = folder / "print"
        self.script.write_text('#!/bin/sh\necho x >>"$2"\ncat "$1"\n')
        self.script.chmod(0o700)
        self.secret.write_text("first\nnot this\n")
        server.execute(
            f"CREATE USER {self.user} IDENTIFIED BY 'first' FAILED_LOGIN_ATTEMPTS 20 PASSWORD_LOCK_TIME 1",
            f"GRANT SELECT ON {db}.* TO {self.user}",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {self.user}",
        )

    def text(self) -> str:
        command = f"{self.script} '{self.secret}' {self.count}"
        lines = super().text().replace(f"://{self.server.user}@", f"://{self.user}@").splitlines()
        return "\n".join(f'password_command = "{command}"' if "password_file" in one else one for one in lines)

    def change_password(self) -> None:
        """The server has another one, the command prints it, and every connection ends."""
        self.server.execute(f"ALTER USER {self.user} IDENTIFIED BY 'second'")
        self.secret.write_text("second\n")
        for (one,) in self.server.query(f"SELECT id FROM information_schema.processlist WHERE user = '{self.user}'"):
            with contextlib.suppress(pymysql.err.MySQLError):  # it has ended meanwhile
                self.server.execute(f"KILL {one}")


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> OfCommand:
    return OfCommand(spark, mysql_server, mysql_db, tmp_path / "runs")


def test_a_pipeline_goes_on_when_the_password_changes(runs: OfCommand) -> None:
    table = runs.table("t", 50)

    def meanwhile(_: int) -> bool | None:
        if runs.secret.read_text().startswith("first"):
            runs.change_password()
            runs.do("INSERT INTO t VALUES (9000, 1, 1)")
        return 9000 not in runs.rows(table)

    try:
        runs.run(once=False, meanwhile=meanwhile)
        assert runs.rows(table) == runs.source(table)
        times_run = len(runs.count.read_text().splitlines())
        assert times_run >= 2, "the driver's processes and the tasks' have each run it"
    finally:
        runs.server.execute(f"DROP USER {runs.user}")
