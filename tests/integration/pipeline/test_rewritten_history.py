"""The source is put back to an older state, or its GTIDs are reset, and goes on: no pipeline follows it then.

The GTIDs are as many as before, or more, so only the transactions themselves differ.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.errors import HistoryRewrittenError, ServerBehindError
from headgate.spark import carrier_rows
from headgate_testing import MySQLServer
from tests.integration.runs import Runs
from tests.integration.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server


@pytest.fixture
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start() as started:
        yield started


@pytest.fixture
def runs(spark: SparkSession, server: MySQLServer, tmp_path: Path) -> Runs:
    server.execute("CREATE DATABASE d")
    made = Runs(spark, server, "d", tmp_path / "p")
    made.table("t", 20)
    return made


def write(server: MySQLServer, first: int, count: int = 3) -> None:
    """So many transactions of one row each."""
    server.execute(*(f"INSERT INTO d.t VALUES ({number}, 0, 0)" for number in range(first, first + count)))


def saved(server: MySQLServer, folder: Path) -> Callable[[], None]:
    """Save the server's data; the function puts it back."""
    data, copy = server.folder / "data", folder / "saved"
    server.shutdown()
    shutil.copytree(data, copy)
    server.restart()

    def put_back() -> None:
        server.kill()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        server.restart()

    return put_back


@pytest.mark.parametrize("read_before", [True, False], ids=["in a later batch", "in the first snapshot"])
def test_an_older_image_with_other_transactions_after_it(
    runs: Runs, server: MySQLServer, tmp_path: Path, read_before: bool
) -> None:
    """The lost transactions are the end of a batch, whose begin the image still has."""
    if read_before:
        runs.run()
    write(server, 100)
    put_back = saved(server, tmp_path)
    write(server, 200)
    runs.run()
    before = server.gtid_executed
    assert {100, 200} <= runs.rows("d.t").keys()
    put_back()
    with pytest.raises(HistoryRewrittenError, match="it had executed"):
        runs.run()
    write(server, 300, 6)
    assert server.query("SELECT GTID_SUBSET(%s, @@global.gtid_executed)", (before,))[0][0] == 1
    with pytest.raises(HistoryRewrittenError, match="another commit time"):
        runs.run()
    shutil.rmtree(runs.lake.checkpoint)
    with pytest.raises(HistoryRewrittenError, match="another commit time"):
        runs.run()  # resumed at the tables' position
    shutil.rmtree(runs.lake.inbox)
    runs.run()
    assert runs.rows("d.t") == runs.source("d.t")


@pytest.mark.parametrize("kind", ["image", "reset"])
def test_it_happens_while_a_pipeline_runs(runs: Runs, server: MySQLServer, tmp_path: Path, kind: str) -> None:
    """mysqld is killed and put back, or its GTIDs are reset; then as many transactions come as before, and more."""
    runs.run()
    put_back = saved(server, tmp_path)
    write(server, 200)
    count = int(server.query("SELECT @@global.gtid_executed")[0][0].rpartition("-")[2])

    def rewrite(number: int) -> None:
        if number > 1:
            return
        if kind == "image":
            put_back()
            write(server, 300, 6)
        else:
            server.reset_log()
            write(server, 300, count + 3)

    with pytest.raises(HistoryRewrittenError):
        runs.run(once=False, meanwhile=rewrite)
    assert len(runs.reports) <= 2


@pytest.mark.parametrize("part", ["log", "chunks"])
def test_it_happens_between_the_planning_of_a_batch_and_its_tasks(
    server: MySQLServer, tmp_path: Path, part: str
) -> None:
    """The ledger gets no row of a batch of two histories."""
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT, n INT)", "FLUSH BINARY LOGS")
    write(server, 100)
    stream = Stream(server, "d", tmp_path)
    if part == "log":
        stream.finish()
        write(server, 200)
    end = stream.planner.latest(stream.offset)
    tasks = stream.planner.tasks(stream.offset, end)
    assert {bool(task.chunks) for task in tasks} == {part == "chunks"}
    count = end.position.count()
    server.reset_log()
    write(server, 300, count + 3)
    settings, policies = stream.options.settings(), stream.options.policies
    for task in tasks:
        with pytest.raises(HistoryRewrittenError, match="another commit time"):
            list(carrier_rows(settings, task, images="keys", policies=policies))


def test_another_server_that_is_behind_ends_a_run_within_the_stated_time(runs: Runs) -> None:
    """It is waited for, because it may be a replica; a run that is to end does so."""
    runs.reads = "retry_seconds = 2"
    runs.run()
    with MySQLServer.start() as other:
        other.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT, n INT)")
        runs._template_values["url"] = other.url
        begun = time.monotonic()
        with pytest.raises(ServerBehindError, match="has not executed"):
            runs.run()
        assert time.monotonic() - begun < 60, "retry_seconds, and the time that Spark takes for a query"
    assert not runs.reports


@pytest.mark.parametrize("few", [256, 1])
def test_the_newest_transaction_is_the_last_in_the_log(
    server: MySQLServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Its number is not the highest: members of a group assign numbers in blocks, and users choose some."""
    monkeypatch.setattr("headgate.spark._server_history._FEW", few)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    stream = Stream(server, "d", tmp_path)
    stream.finish()
    source = "aaaaaaaa-eb5b-11f1-814f-02fc00000001"
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for number in (1_000_001, 1, 2, 3):
            cursor.execute(f"SET gtid_next = '{source}:{number}'")
            cursor.execute(f"INSERT INTO d.t VALUES ({number})")
    end = stream.planner.latest(stream.offset)
    assert end.last is not None
    assert end.last.gtid == f"{source}:3"
    assert stream.planner.latest(end) is end
