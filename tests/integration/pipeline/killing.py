"""A pipeline that is killed with everything it started, and those who write at its source meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pymysql

from headgate_testing import MySQLServer
from tests.fix_spark import JAVA_OPTIONS

__all__ = ["CONFIG", "RUN", "TABLES", "Writer", "assert_runs", "batches_in", "headgate", "kill", "load"]

TABLES = ("k.numbers", "k.names", "k.notes")
CONFIG = f"""\
name = "killed"
[source]
url = "{{url}}"
tables = ["k.*"]
chunk_rows = 3000
[target]
path = "{{lake}}"
mode = ["current", "changelog"]
[spark]
"spark.master" = "local[2]"
"spark.sql.shuffle.partitions" = 2
"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"
"""


def load(server: MySQLServer, rows: int) -> None:
    """Tables of so many rows, and one without a key; a batch reads two chunks of 3,000."""
    server.execute(
        "CREATE DATABASE k",
        "CREATE TABLE k.numbers (id INT PRIMARY KEY, v INT, t VARCHAR(40))",
        "CREATE TABLE k.names (name VARCHAR(40) PRIMARY KEY, v INT)",
        "CREATE TABLE k.notes (v INT, note VARCHAR(20))",
        "INSERT INTO k.notes VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    )
    for first in range(0, rows, 2000):
        numbers = ",".join(f"({i}, 0, 'row {i}')" for i in range(first, first + 2000))
        names = ",".join(f"('name {i}', 0)" for i in range(first, first + 2000))
        server.execute(f"INSERT INTO k.numbers VALUES {numbers}", f"INSERT INTO k.names VALUES {names}")


class Writer(threading.Thread):
    """Transactions over all tables: updates, inserts, deletes, changed keys."""

    def __init__(self, server: MySQLServer, seed: int, rows: int) -> None:
        super().__init__(daemon=True)
        self._server, self._choice, self.ended = server, random.Random(seed), threading.Event()
        self._rows = rows

    def run(self) -> None:
        choice, rows, n = self._choice, self._rows, 0
        with self._server.connect(database="k") as connection, connection.cursor() as cursor:
            while not self.ended.wait(0.05):
                n += 1
                key = choice.randrange(rows)
                with contextlib.suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
                    cursor.execute("UPDATE numbers SET v = v + 1 WHERE id BETWEEN %s AND %s", (key, key + 5))
                    cursor.execute("UPDATE names SET v = v + 1 WHERE name = %s", (f"name {key}",))
                    if n % 3 == 0:
                        cursor.execute("DELETE FROM numbers WHERE id = %s", (choice.randrange(rows),))
                    if n % 4 == 0:
                        cursor.execute(
                            "UPDATE names SET name = CONCAT(name, 'x') WHERE name = %s",
                            (f"name {choice.randrange(rows)}",),
                        )
                    if n % 5 == 0:
                        cursor.execute(
                            "INSERT INTO numbers VALUES (%s, 1, 'new')", (rows + choice.randrange(10 * rows),)
                        )
                    if n % 40 == 0:  # a table without a key is read in a moment without changes
                        cursor.execute("INSERT INTO notes VALUES (%s, 'note')", (choice.randrange(5),))
                        cursor.execute("DELETE FROM notes WHERE v = %s LIMIT 1", (choice.randrange(5),))
                    connection.commit()
                connection.rollback()


RUN: Final = ("run", "--log-level", "debug")
"""A run that logs each batch."""


def batches_in(log: Path) -> int:
    """The batches in the log of runs so far."""
    return log.read_text(errors="replace").count(" DEBUG batch ") if log.exists() else 0


def headgate(*arguments: str, config: Path, program: Sequence[str] = ("-m", "headgate.cli")) -> subprocess.Popen[bytes]:
    """Start a command; what it prints goes to ``log.txt`` beside the pipeline file."""
    command = [sys.executable, *program, *arguments, str(config)]
    with (config.parent / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` of the process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def assert_runs(process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """For so long the process must not end by itself."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
        raise AssertionError(log.read_text()[-4000:])
