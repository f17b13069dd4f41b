"""Whole pipelines whose chunks rest on something else than ``gtid_executed``: the copy is what the source is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.lake import newest_row
from headgate.positions import LogPlace
from headgate_testing import MySQLServer
from tests.integration.databases import pipeline_config
from tests.integration.pipeline.test_copies import Copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def copy_of(server: MySQLServer, spark: SparkSession, db: str, folder: Path, more: str) -> Copy:
    copy = Copy(server, spark, db, folder)
    source = f"chunk_rows = 100\n{more}"
    copy.config = pipeline_config(server, [f"{db}.*", f"!{db}.signals"], folder, source=source)
    return copy


def all_equal(copy: Copy) -> set[str]:
    """The tables of the copy, each of which equals the source."""
    results = copy.verify()
    for name, result in results.items():
        assert (result.state, result.differences) == ("live", 0), (name, result)
    return set(results)


@pytest.mark.slow
@pytest.mark.needs_own_server
@pytest.mark.timeout(900)
def test_a_server_without_gtids(spark: SparkSession, tmp_path: Path) -> None:
    with MySQLServer.start({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        rows = ", ".join(f"({i}, 'item {i}')" for i in range(250))
        server.execute(
            "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(40))",
            "CREATE TABLE d.bare (n INT, v VARCHAR(9))",
            "CREATE TABLE d.signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
            f"INSERT INTO d.t VALUES {rows}", "INSERT INTO d.bare VALUES (1, 'a'), (1, 'a')",
        )  # fmt: skip
        copy = copy_of(server, spark, "d", tmp_path, 'watermark = "signal-table"\nsignal_table = "d.signals"')
        copy.run()
        first = newest_row(copy.lake)
        assert LogPlace.parse(first.gtid).server_uuid == server.server_uuid
        server.execute(
            "UPDATE d.t SET v = 'changed' WHERE id % 10 = 3", "FLUSH BINARY LOGS",
            "UPDATE d.t SET id = id + 1000 WHERE id % 10 = 4", "DELETE FROM d.t WHERE id % 10 = 5",
            "INSERT INTO d.bare VALUES (1, 'a'), (2, NULL)", "CREATE TABLE d.later (id INT PRIMARY KEY)",
            "INSERT INTO d.later VALUES (7)",
        )  # fmt: skip
        copy.run()
        assert LogPlace.parse(first.gtid) < LogPlace.parse(newest_row(copy.lake).gtid)
        assert all_equal(copy) == {"t", "bare", "later"}
        assert copy.rows("later") == [(7,)]
        assert copy.rows("bare") == [(1, "a"), (1, "a"), (1, "a"), (2, None)]
