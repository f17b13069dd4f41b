"""One pipeline file, run by commands as a user runs it, on any master and into any lake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from headgate_testing import MySQLServer
from tests.fix_spark import JAVA_OPTIONS
from tests.integration.databases import Database

TEXT = """\
name = "elsewhere"
[source]
url = "{url}"
password_file = "{secret}"
tables = ["{db}.*"]
chunk_rows = 100
[target]
path = "{lake}"
mode = ["current", "changelog"]
[spark]
{spark}
{more}
"""
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)"


class Elsewhere(Database):
    """A database, and commands with the pipeline file that follows it.

    :param settings: of Spark, without their prefix.
    :param lake: the lake's path.
    :param more: further sections of the file.
    """

    def __init__(
        self, server: MySQLServer, db: str, folder: Path, lake: str, settings: Mapping[str, str], more: str = ""
    ) -> None:
        super().__init__(server, db)
        self.file, secret = folder / "pipeline.toml", folder / "secret"
        secret.write_text(server._password)
        known = {"driver.memory": "1g", "sql.shuffle.partitions": "2", "driver.extraJavaOptions": JAVA_OPTIONS}
        spark = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in {**known, **settings}.items())
        self.file.write_text(TEXT.format(url=server.url, secret=secret, db=db, lake=lake, spark=spark, more=more))

    def fill(self) -> None:
        """Three tables: with a key of a number, with a key of texts, one in a column of an odd name, without a key."""
        self.do(
            "CREATE TABLE numbers (id INT PRIMARY KEY, v VARCHAR(20))",
            "CREATE TABLE names (a VARCHAR(20), `the b` VARCHAR(20), n INT, PRIMARY KEY (a, `the b`))",
            "CREATE TABLE bare (n INT, v VARCHAR(20))",
            f"INSERT INTO numbers {NUMBERS} SELECT i, CONCAT('row ', i) FROM n",
            f"INSERT INTO names {NUMBERS} SELECT CONCAT('a', i % 7), CONCAT('b', i), i FROM n",
            f"INSERT INTO bare {NUMBERS} SELECT i % 10, 'x' FROM n",
        )

    def change(self) -> None:
        """Updates, deletes, inserts, a changed key, a new column."""
        self.do(
            "UPDATE numbers SET v = 'changed' WHERE id % 7 = 0",
            "DELETE FROM numbers WHERE id % 11 = 1",
            "UPDATE numbers SET id = id + 1000 WHERE id % 13 = 2",
            "ALTER TABLE names ADD COLUMN extra INT NOT NULL DEFAULT 5",
            "UPDATE names SET n = n + 1 WHERE a = 'a3'",
            "INSERT INTO names VALUES ('new', 'one', 1, 2)",
            "DELETE FROM bare WHERE n = 3 LIMIT 5",
        )

    def command(self, name: str, *options: str, code: int = 0) -> str:
        """What ``headgate NAME FILE …`` prints; it has to end with this exit code."""
        command = [sys.executable, "-m", "headgate.cli", name, str(self.file), *options]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def follow(self) -> str:
        """Read all tables, follow changes, compare with the source; all that the commands printed."""
        self.fill()
        output = self.command("run", "--once")
        self.change()
        output += self.command("run", "--once")
        verified = self.command("verify")
        assert "all 3 tables are equal" in verified, verified
        return output + verified


def with_jars(*jars: Path) -> dict[str, str]:
    """The setting that names archives beside Delta's."""
    return {"jars": ",".join(map(str, jars))}
