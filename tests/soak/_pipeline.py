"""``headgate run`` in a process that is started again whenever it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from headgate.files import cache_folder
from headgate_testing import pass_time
from tests.fix_spark import JAVA_OPTIONS

__all__ = ["Pipeline"]

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
retention_hours = 0.25
[spark]
"spark.master" = "local[2]"
"spark.local.dir" = "{{spark}}"
"spark.sql.shuffle.partitions" = 2
"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"
"""
_MOST_BARREN: Final = 8
"""Ends of the process in a row without a batch between them, after which it is stuck."""
_BATCH: Final = b" DEBUG batch "
_ANSWER: Final = b"SOAK wrong answer"


class Pipeline:
    """The process, its lake, and its supervisor.

    ``kills`` counts, by site, what was done to running or starting processes.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.lake, self.spark, self._file = folder / "lake", folder / "spark", folder / "pipeline.toml"
        self.spark.mkdir()
        self._file.write_text(_CONFIG.format(url=url, lake=self.lake, spark=self.spark))
        self.cache = folder / "cache"
        (self.cache / "headgate").mkdir(parents=True)
        for path in cache_folder().iterdir():
            if path.name != "keys":  # key indexes are damaged
                (self.cache / "headgate" / path.name).symlink_to(path)
        self._share = folder / "share"
        self.set_share_of_wrong_answers(0)
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = Counter[str]()
        self.starts = self._barren = self._batches = self._batches_before = 0
        self._log = _Log(folder / "log.txt")

    @property
    def batches(self) -> int:
        """Number of batches so far."""
        return self._log.count(_BATCH)

    @property
    def wrong_answers(self) -> int:
        """Number of wrong answers of the file system so far."""
        return self._log.count(_ANSWER)

    def set_share_of_wrong_answers(self, share: float, only: str = "") -> None:
        """Let so many of the driver's calls of the file system be answered wrongly (0 to 1).

        :param only: the name of the call; "": all that ``program`` knows.
        """
        self._share.write_text(f"{share} {only}" if only else str(share))

    @property
    def pid(self) -> int | None:
        """The running process; None: it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def runs(self) -> bool:
        """Return whether the process runs."""
        return self.pid is not None

    def works(self) -> bool:
        """Return whether the process has had a batch."""
        return self.runs() and self.batches > self._batches_before

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the process."""
        environment = {**os.environ, "SOAK_SHARE": str(self._share), "XDG_CACHE_HOME": str(self.cache)}
        program = [sys.executable, "-m", "tests.soak.program", "run", "--log-level", "debug"]
        with self._log.file.open("ab") as log:
            command = [*program, *arguments, str(self._file)]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self._process, self._batches_before = process, self.batches
        self.starts += 1
        return process

    def supervise(self) -> None:
        """Start the process again if it has ended.

        :raises AssertionError: it ended again and again without a batch.
        """
        if self._process is None or self._process.poll() is None:
            return
        batches = self.batches
        self._barren = 0 if batches > self._batches or self._share.read_text() != "0" else self._barren + 1
        self._batches = batches
        assert self._barren <= _MOST_BARREN, f"it ends without a batch:\n{self.tail()}"
        self._kill_group()  # what a killed process has left, such as Java
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
            pass_time(0.2)

    def java(self) -> list[psutil.Process]:
        """Return the JVM, if it runs."""
        return [child for child in self._below() if _words(child)[0].endswith("java")]

    def fork_servers(self) -> list[psutil.Process]:
        """Return the process that forks Python workers, if it runs."""
        return [child for child in self._below() if _is_fork_server(child, self.pid)]

    def workers(self) -> list[psutil.Process]:
        """Return the Python processes of Spark's tasks and of the planner, forked ones and those that request them."""
        pythons = [child for child in self._below() if "python" in _words(child)[0]]
        return [child for child in pythons if not _is_fork_server(child, self.pid)]

    def _below(self) -> list[psutil.Process]:
        """Return the processes below the driver that have a command line."""
        if (pid := self.pid) is None:
            return []
        with contextlib.suppress(psutil.Error):
            return [child for child in psutil.Process(pid).children(recursive=True) if _words(child)[0]]
        return []

    def kill(self, site: str = "driver") -> int:
        """``kill -9`` of the process and all that it started. Return 1 if it ran, else 0.

        :param site: under which it is counted.
        """
        running = self.pid is not None
        self._kill_group()
        self.kills[site] += running
        return int(running)

    def _kill_group(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def finish(self, seconds: float) -> None:
        """Apply everything, without faults.

        :raises AssertionError: it fails, or takes longer.
        """
        self._kill_group()
        process = self.start("--once")
        try:
            code = process.wait(seconds)
        finally:
            self._kill_group()
        assert code == 0, f"run --once ended with {code}:\n{self.tail()}"

    def tail(self) -> str:
        """Return the end of the log."""
        return self._log.file.read_text(errors="replace")[-6000:]


def _words(process: psutil.Process) -> list[str]:
    """Return the command line; [""] if the process has ended."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline() or [""]
    return [""]


def _is_fork_server(process: psutil.Process, driver: int | None) -> bool:
    with contextlib.suppress(psutil.Error):
        return "headgate.engine._fork_server" in _words(process) and process.ppid() == driver
    return False


class _Log:
    """The process's log, and how often words are in it: each look reads what is new."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()
        self._at, self._rest, self._counts = 0, b"", Counter[bytes]()

    def count(self, words: bytes) -> int:
        """Return in how many lines these words are, which are ``_BATCH`` or ``_ANSWER``."""
        with self.file.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        self._at += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            for known in (_BATCH, _ANSWER):
                self._counts[known] += known in line
        return self._counts[words]
