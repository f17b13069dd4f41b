"""The world of one episode: servers, writers, the lake, and the pipeline's process with its supervisor."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pymysql

from headgate.files import cache_folder
from headgate_testing import MySQLServer, Proxy, pass_time, replica_pair
from tests.fix_spark import JAVA_OPTIONS

__all__ = ["KEYED", "TABLES", "TOTAL", "Pipeline", "Source", "World", "open_world"]

ACCOUNTS: Final = 400
TOTAL: Final = 2 * ACCOUNTS * 100
"""Money in all accounts together."""
KEYED: Final = ("accounts", "savings", "journal", "churn")
TABLES: Final = (*KEYED, "loose")
"""``loose`` has no key."""

_CONFIG: Final = f"""\
name = "soak"
[source]
url = "{{url}}"
tables = ["bank.*"]
chunk_rows = 500
poll_ms = 50
retry_seconds = 20
[target]
path = "{{lake}}"
mode = ["current", "changelog"]
[spark]
"spark.master" = "local[2]"
"spark.sql.shuffle.partitions" = 2
"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"
"""
_MOST_BARREN: Final = 8
"""Ends of the process in a row without a batch between them, after which it is stuck."""


class Source:
    """Two servers, the address of the one that is the source, and those who write there."""

    def __init__(self, first: MySQLServer, second: MySQLServer, proxy: Proxy, seed: int) -> None:
        self.server, self.replica, self.proxy = first, second, proxy
        self._seed, self._writers = seed, list[_Writer]()

    def fill(self) -> None:
        """Create the tables with their first rows."""
        names = ",".join(f"('name {n}', 100, 0)" for n in range(ACCOUNTS))
        self.server.execute(
            "CREATE DATABASE bank",
            "CREATE TABLE bank.accounts (id INT PRIMARY KEY, balance INT NOT NULL, n INT NOT NULL)",
            "CREATE TABLE bank.savings (name VARCHAR(40) PRIMARY KEY, balance INT NOT NULL, n INT NOT NULL)",
            "CREATE TABLE bank.journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, writer INT NOT NULL, seq INT NOT NULL)",
            "CREATE TABLE bank.churn (id INT PRIMARY KEY, v INT, note TEXT, d DECIMAL(12,3), at DATETIME(6))",
            "CREATE TABLE bank.loose (v INT, note VARCHAR(20))",
            f"INSERT INTO bank.accounts VALUES {','.join(f'({n}, 100, 0)' for n in range(ACCOUNTS))}",
            f"INSERT INTO bank.savings VALUES {names}",
        )

    def write(self) -> None:
        """Let the writers begin."""
        self._seed += 100
        self._writers = [_Writer(self.server, self._seed + number) for number in range(2)]
        for writer in self._writers:
            writer.start()

    def rest(self) -> None:
        """Let the writers end. A last change makes sure that the pipeline has something to apply."""
        for writer in self._writers:
            writer.ended.set()
        for writer in self._writers:
            writer.join()
        self._writers = []
        self.server.execute("REPLACE INTO bank.churn VALUES (-1, NULL, UUID(), NULL, NOW(6))")

    def fail_over(self) -> None:
        """The replica becomes the source, and the other way round; the address leads to it from now on."""
        self.rest()
        self.replica.wait_for(self.server.gtid_executed)
        self.proxy.cut()
        self.server, self.replica = self.replica, self.server
        self.server.execute("STOP REPLICA", "RESET REPLICA ALL")
        self.proxy.aim(self.server.host, self.server.port)
        self.replica.follow(self.server)
        self.write()
        self.proxy.restore()

    def restart(self, *, kill: bool) -> None:
        """Restart the server of the source."""
        self.rest()
        self.server.restart(kill=kill)
        self.write()


class _Writer(threading.Thread):
    """Transactions that move money, and others that insert, delete and rename rows."""

    def __init__(self, server: MySQLServer, seed: int) -> None:
        super().__init__(daemon=True)
        self._server, self._seed, self._choice = server, seed, random.Random(seed)
        self.ended = threading.Event()

    def run(self) -> None:
        choice, seq = self._choice, 0
        with self._server.connect(database="bank", autocommit=False) as connection, connection.cursor() as cursor:
            while not self.ended.wait(choice.choice((0.0, 0.01, 0.05))):
                with contextlib.suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
                    seq += self._move(cursor, seq)
                    if choice.random() < 0.5:
                        self._churn(cursor)
                    if choice.random() < 0.9:
                        connection.commit()
                        continue
                connection.rollback()

    def _move(self, cursor: pymysql.cursors.Cursor, seq: int) -> int:
        """Move money between two accounts, in one table or between both."""
        choice, sum_ = self._choice, self._choice.randrange(1, 20)
        for amount in (sum_, -sum_):
            if choice.random() < 0.5:
                table, key, value = "accounts", "id", str(choice.randrange(ACCOUNTS))
            else:
                table, key, value = "savings", "name", f"'name {choice.randrange(ACCOUNTS)}'"
            cursor.execute(f"UPDATE {table} SET balance = balance + {amount}, n = n + 1 WHERE {key} = {value}")
        cursor.execute(f"INSERT INTO journal (writer, seq) VALUES ({self._seed}, {seq})")
        return 1

    def _churn(self, cursor: pymysql.cursors.Cursor) -> None:
        choice = self._choice
        key = choice.randrange(3000)
        cursor.execute(
            choice.choice(
                (
                    f"REPLACE INTO churn VALUES ({key}, {key}, REPEAT('é', {key % 200}), {key}.125, NOW(6))",
                    f"UPDATE churn SET id = id + 5000 WHERE id = {key}",
                    f"UPDATE churn SET note = NULL, d = d + 1 WHERE id BETWEEN {key} AND {key + 40}",
                    f"DELETE FROM churn WHERE id % 50 = {key % 50}",
                    "INSERT INTO churn SELECT id + 10000, v, note, d, at FROM churn WHERE id < 5000 LIMIT 20",
                )
            )
        )
        if choice.random() < 0.02:  # a table without a key is read in a moment without changes
            cursor.execute(f"INSERT INTO loose VALUES ({key % 7}, 'note'), ({key % 7}, 'note'), (NULL, NULL)")
            cursor.execute(f"DELETE FROM loose WHERE v = {choice.randrange(7)} LIMIT 2")


class Pipeline:
    """``headgate run`` in a process that is started again whenever it ends."""

    def __init__(self, folder: Path, url: str) -> None:
        self.lake, self.log, self._file = folder / "lake", folder / "log.txt", folder / "pipeline.toml"
        self._file.write_text(_CONFIG.format(url=url, lake=self.lake))
        self.cache = folder / "cache"
        (self.cache / "headgate").mkdir(parents=True)
        for path in cache_folder().iterdir():
            if path.name != "keys":  # key indexes are damaged
                (self.cache / "headgate" / path.name).symlink_to(path)
        self._share = folder / "share"
        self.set_share_of_wrong_answers(0)
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = self.ends = self.kills = self._barren = 0
        self._batches = 0
        self.most_bytes = self.most_descriptors = 0

    @property
    def batches(self) -> int:
        """Number of batches so far."""
        return self.log.read_text(errors="replace").count(" DEBUG batch ") if self.log.exists() else 0

    @property
    def wrong_answers(self) -> int:
        """Number of wrong answers of the file system so far."""
        return self.log.read_text(errors="replace").count("SOAK wrong answer") if self.log.exists() else 0

    def set_share_of_wrong_answers(self, share: float) -> None:
        """Let so many of the driver's calls of the file system be answered wrongly (0 to 1)."""
        self._share.write_text(str(share))

    @property
    def pid(self) -> int | None:
        """The running process; None: it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the process."""
        environment = {**os.environ, "SOAK_SHARE": str(self._share), "XDG_CACHE_HOME": str(self.cache)}
        command = [
            sys.executable,
            "-m",
            "tests.soak.program",
            "run",
            "--log-level",
            "debug",
            *arguments,
            str(self._file),
        ]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self._process = process
        self.starts += 1
        return process

    def supervise(self) -> None:
        """Start the process again if it has ended.

        :raises AssertionError: it ended again and again without a batch.
        """
        if self._process is None or self._process.poll() is None:
            return
        self.ends += 1
        batches = self.batches
        self._barren = 0 if batches > self._batches or self._share.read_text() != "0" else self._barren + 1
        self._batches = batches
        assert self._barren <= _MOST_BARREN, f"it ends without a batch:\n{self.tail()}"
        self.start()

    def wait_for_batches(self, count: int, seconds: float) -> None:
        """Wait for so many more batches. Start the process again if it ends.

        :raises AssertionError: they take longer.
        """
        wanted = self.batches + count
        self.wait_until(lambda: self.batches >= wanted, seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition. Start the process again if it ends.

        :raises AssertionError: it takes longer.
        """
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"no progress in {seconds:.0f} s:\n{self.tail()}"
            self.supervise()
            self.measure()
            pass_time(0.2)

    def measure(self) -> None:
        """Record the memory and the descriptors of the driver."""
        if (pid := self.pid) is not None:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                self.most_bytes = max(self.most_bytes, process.memory_info().rss)
                self.most_descriptors = max(self.most_descriptors, process.num_fds())

    def children(self, name: str) -> list[psutil.Process]:
        """Return the processes below the driver whose command line has ``name``."""
        matching = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if name in " ".join(child.cmdline()):
                        matching.append(child)
        return matching

    def kill(self) -> None:
        """``kill -9`` of the process and all that it started."""
        if self._process is not None:
            self.kills += self.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def finish(self, seconds: float) -> None:
        """Apply everything, without faults.

        :raises AssertionError: it fails, or takes longer.
        """
        self.kill()
        process = self.start("--once")
        try:
            code = process.wait(seconds)
        finally:
            self.kill()
        assert code == 0, f"run --once ended with {code}:\n{self.tail()}"

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-6000:] if self.log.exists() else ""


class World:
    """Source and pipeline of one episode."""

    def __init__(self, source: Source, pipeline: Pipeline) -> None:
        self.source, self.pipeline = source, pipeline


@contextmanager
def open_world(folder: Path, seed: int) -> Iterator[World]:
    """Open the world of an episode: tables are filled, writers write, the pipeline runs."""
    with replica_pair() as (first, second), Proxy(first.host, first.port) as proxy:
        source = Source(first, second, proxy, seed)
        source.fill()
        source.write()
        pipeline = Pipeline(folder, proxy.url)
        pipeline.start()
        try:
            yield World(source, pipeline)
        finally:
            source.rest()
            pipeline.kill()
