"""A table that ``source.tables`` no longer includes is not called equal to its source, and is read when it is again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.lake import read_as_of
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate_testing import MySQLServer


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    return Runs(spark, mysql_server, mysql_db, tmp_path / "runs")


def test_a_table_that_is_left_out_and_included_again(runs: Runs) -> None:
    kept, left = runs.table("kept"), runs.table("left_out")
    runs.run()
    assert set(read_as_of(runs.spark, runs.lake.path)) == {kept, left}

    runs.tables = f'["{runs.db}.*", "!{left}"]'
    runs.do("UPDATE kept SET v = 77 WHERE id = 1", "UPDATE left_out SET v = 77 WHERE id = 1")
    runs.run()
    reason = runs.reports[-1].tables[left].reason or ""
    assert (runs.state(left), runs.state(kept)) == ("stopped", "live")
    assert reason.startswith("source.tables leaves it out: include it again")
    assert set(read_as_of(runs.spark, runs.lake.path)) == {kept}
    assert runs.rows(left)[1][0] == 1, "its rows stay"

    runs.tables = f'["{runs.db}.*"]'
    runs.do("DELETE FROM left_out WHERE id = 2")
    runs.run()
    assert (runs.state(left), runs.state(kept)) == ("live", "live")
    assert runs.rows(left) == runs.source(left)
