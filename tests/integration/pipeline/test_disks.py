"""A disk that is full or cannot be written: the error says which path and what to do, and the status shows it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate.cli import app
from headgate.errors import HeadgateError, StorageError, TargetError, error_line
from headgate.status import read_status
from headgate_testing import MySQLServer
from tests.integration.runs import Runs

SIZE = 24 << 20
ROOM = 256 << 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, disk: Path) -> Runs:
    runs = Runs(spark, mysql_server, mysql_db, disk)
    runs.reads = "retry_seconds = 0"
    runs.table("t")
    runs.run()
    return runs


def failing(runs: Runs) -> HeadgateError:
    """The error of a run; its status has the same."""
    with pytest.raises(HeadgateError) as caught:
        runs.run()
    error = caught.value
    status = read_status(runs.inbox)
    assert status is not None
    assert (status.condition(), status.error) == ("failed", error_line(error))
    return error


def test_a_disk_that_is_full_during_a_batch(runs: Runs, disk: Path, tmp_path: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write(bytes(free - ROOM))
    runs.do("ALTER TABLE t ADD COLUMN b VARBINARY(1000)", "UPDATE t SET b = RANDOM_BYTES(1000)")
    runs.do(*(f"INSERT INTO t SELECT id + {150 << n}, v, n, RANDOM_BYTES(1000) FROM t" for n in range(5)))
    error = failing(runs)
    assert isinstance(error, StorageError)
    assert str(disk) in str(error)
    assert "No space left on device; make room on its disk" in str(error)
    file = tmp_path / "pipeline.toml"
    file.write_text(runs.text())
    shown = CliRunner().invoke(app, ["status", str(file)])
    assert (shown.exit_code, f"error: {error}" in shown.stdout) == (1, True)
    (disk / "filler").unlink()
    runs.run()
    assert runs.rows(f"{runs.db}.t") == runs.source(f"{runs.db}.t")
    status = read_status(runs.inbox)
    assert status is not None
    assert (status.condition(), status.error) == ("stopped", None)


def test_a_folder_that_cannot_be_written_any_more(runs: Runs, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        error = failing(runs)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert isinstance(error, TargetError)
    assert str(error) == (
        f"{runs.lake.path} cannot be written: {runs.lake.path}: Read-only file system; its file system is mounted for"
        " reading only: change that, or choose another folder"
    )
    runs.run()
    status = read_status(runs.inbox)
    assert status is not None
    assert (status.condition(), status.error) == ("stopped", None)


def test_a_disk_that_is_full_at_the_first_start(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, disk: Path
) -> None:
    runs = Runs(spark, mysql_server, mysql_db, disk)
    runs.reads = "retry_seconds = 0"
    runs.table("t")
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(1 << 20))
    with (disk / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    error = failing(runs)
    assert "No space left on device; make room on its disk" in str(error)
    assert str(disk) in str(error)
