"""A signal that sets the stream's position gets a pipeline past a change that no run can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.errors import UnsupportedError
from headgate.testing import MySQLServer
from tests.integration.runs import Runs, killed_before_the_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start() as mysql:
        yield mysql


@pytest.fixture
def runs(spark: SparkSession, server: MySQLServer, tmp_path: Path) -> Runs:
    db = f"p{len(server.query('SHOW DATABASES'))}"
    server.execute(f"CREATE DATABASE {db}")
    return Runs(spark, server, db, tmp_path)


def executed(server: MySQLServer) -> str:
    return str(server.query("SELECT @@gtid_executed")[0][0])


def set_position(runs: Runs, gtids: str) -> None:
    runs.inbox.write("signals/past.json", {"type": "set-binlog-position", "data": {"gtid_set": gtids}})


def test_a_statement_that_no_run_can_read_is_passed_and_its_tables_are_read_again(
    runs: Runs, server: MySQLServer
) -> None:
    """The batch with the statement is planned, and repeated by each run: the signal changes what its tasks read."""
    one = runs.table("one")
    two = runs.table("two")
    runs.run()
    assert {table: runs.state(table) for table in (one, two)} == {one: "live", two: "live"}

    before = executed(server)
    runs.do("SET binlog_format = 'STATEMENT'", "UPDATE one SET v = v + 1 WHERE id < 9")
    statement = executed(server)
    runs.do("UPDATE two SET v = -1 WHERE id = 1")
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="as a statement instead of rows"):
            runs.run()

    set_position(runs, before.rpartition(":")[0] + ":1")
    with pytest.raises(UnsupportedError, match="as a statement instead of rows"):
        runs.run()  # it lacks what the stream has

    set_position(runs, statement)
    first, *_ = runs.run()
    assert first.tables[one].state == first.tables[two].state == "stale"
    assert "a signal set the position of the stream" in str(first.tables[one].reason)
    assert {table: runs.state(table) for table in (one, two)} == {one: "live", two: "live"}
    assert runs.rows(one) == runs.source(one)
    assert runs.rows(two) == runs.source(two)
    assert not runs.inbox.signals()
    (notification,) = [one for one in runs.notifications() if one.aggregate_type == "Signal"]
    assert (notification.id, notification.type) == ("past", "POSITION_SET")

    runs.do("UPDATE one SET v = -2 WHERE id = 3", "DELETE FROM two WHERE id = 4")
    runs.run()
    assert runs.rows(one) == runs.source(one)
    assert runs.rows(two) == runs.source(two)


def test_a_position_is_set_before_the_log_after_it_is_planned(runs: Runs, server: MySQLServer) -> None:
    """Also one after everything, and where the server has purged the log between."""
    one = runs.table("one")
    runs.run()
    runs.do("SET binlog_format = 'STATEMENT'", "DELETE FROM one WHERE id < 9")
    runs.purge()
    set_position(runs, executed(server))
    runs.run()
    assert runs.state(one) == "live"
    assert runs.rows(one) == runs.source(one)


def test_a_position_within_a_batch_that_was_written_in_part(
    runs: Runs, server: MySQLServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables were written, its ledger row was not; the replay leaves out what the tables have."""
    one = runs.table("one")
    runs.run()
    runs.do("UPDATE one SET v = -1 WHERE id < 9", "INSERT INTO one VALUES (1000, 1, 1)")
    skipped = executed(server)
    runs.do("DELETE FROM one WHERE id = 20")

    with killed_before_the_ledger(monkeypatch):
        runs.run()
    assert runs.rows(one)[1000] == (1, 1), "the table has the batch"
    runs.do("DELETE FROM one WHERE id = 1000")
    set_position(runs, skipped)
    first, *_ = runs.run()
    assert first.tables[one].state == "stale"
    assert runs.state(one) == "live"
    assert runs.rows(one) == runs.source(one)


def test_a_log_that_is_purged_after_all_of_it_was_read_hinders_nothing(runs: Runs) -> None:
    """The place that the stream has reached is in a file that is gone."""
    one = runs.table("one")
    runs.run()
    runs.do("UPDATE one SET v = 7 WHERE id = 1")
    runs.run()
    runs.purge()
    runs.do("UPDATE one SET v = 8 WHERE id = 2")
    runs.run()
    assert runs.rows(one) == runs.source(one)
