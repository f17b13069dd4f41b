"""The source fails over while a pipeline reads its tables, and fails back while it follows them.

One run, whose URL leads to the first server, then to the second, then to the first again. Both servers log all
transactions, as replicas do; writers never pause for longer than the change of servers takes. ``current`` must equal
the source as other programs see both; ``changelog`` must hold every change since the stream began once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.config import PipelineConfig, parse_config
from headgate.errors import HeadgateError
from headgate.gtid import Gtid, GtidSet
from headgate.lake import Lake
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate_testing import MySQLServer, Proxy, replica_pair
from tests.integration.outside import lake_rows, source_rows
from tests.integration.pipeline.changelogs import changes_in_lake, changes_in_log
from tests.integration.pipeline.killing import CONFIG, TABLES, Writer, load
from tests.integration.pipeline.verifying import newest, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server

ROWS = 2_000
CHUNKS = CONFIG.replace("chunk_rows = 3000", "chunk_rows = 500\npoll_ms = 20")


class Site:
    """Two servers, the address of the one that is the source, and those who write there."""

    def __init__(self, first: MySQLServer, second: MySQLServer, proxy: Proxy) -> None:
        self.source, self.replica, self.proxy = first, second, proxy
        self.origin = first.server_uuid
        self.writers: list[Writer] = []

    def write(self) -> None:
        self.writers = [Writer(self.source, seed, ROWS) for seed in range(2)]
        for writer in self.writers:
            writer.start()

    def rest(self) -> None:
        for writer in self.writers:
            writer.ended.set()
            writer.join()

    def fail_over(self) -> None:
        """The replica becomes the source, and the other way round; the address leads to it from now on."""
        self.rest()
        self.replica.wait_for(self.source.gtid_executed)
        self.proxy.cut()
        self.source, self.replica = self.replica, self.source
        self.source.execute("STOP REPLICA", "RESET REPLICA ALL")
        self.write()
        self.proxy.aim(self.source.host, self.source.port)
        self.proxy.restore()
        self.replica.follow(self.source)


def run(spark: SparkSession, config: PipelineConfig, met: Callable[[BatchReport], bool]) -> list[BatchReport]:
    """Run until ``met`` says so after a batch; return the batches."""
    reports: list[BatchReport] = []
    pipeline = Pipeline(config, spark)

    def progress(report: BatchReport) -> None:
        reports.append(report)
        if met(report):
            pipeline.stop()

    pipeline.run(on_progress=progress)
    return reports


def states(report: BatchReport) -> set[str]:
    return {report.tables[table].state for table in TABLES if table in report.tables}


def check(spark: SparkSession, config: PipelineConfig, site: Site) -> None:
    """Compare tables and changelogs with the source, where nobody writes."""
    lake = Lake.of(config)
    row = newest(lake)
    for table in TABLES:
        assert row.tables[table].state == "live", row.tables[table]
        assert lake_rows(lake.current(table)) == source_rows(site.source, table), table
        result = verify(config, row, table)
        assert not result.differences, result
    with Connection.open(ConnectionSettings.from_url(site.source.url)) as connection:
        end = gtid_executed(connection)
    changes = changes_in_lake(lake, TABLES)
    assert max(changes.values()) == 1
    began = min(Gtid.parse(gtid).number for _, _, gtid, _ in changes if gtid.startswith(site.origin))
    before = GtidSet.parse(f"{site.origin}:1-{began - 1}")
    assert changes == changes_in_log(site.source, TABLES, end - before, end)


@pytest.mark.long
def test_in_a_snapshot_and_back_in_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    with replica_pair() as (first, second), Proxy(first.host, first.port) as proxy:
        load(first, ROWS)
        config = parse_config(CHUNKS.format(url=proxy.url, lake=tmp_path / "lake"))
        site = Site(first, second, proxy)
        site.write()
        when: list[Callable[[BatchReport], bool]] = [
            lambda one: "snapshotting" in states(one),
            lambda one: states(one) == {"live"},
        ]
        moved: list[set[str]] = []  # the tables' states at each failover
        followed: list[int] = []  # changes of the batches after the last

        def met(report: BatchReport) -> bool:
            if len(moved) == len(when):
                followed.extend(report.changes.values())
            elif when[len(moved)](report):
                moved.append(states(report))
                site.fail_over()
            return sum(followed) > 20

        try:
            run(spark, config, met)
        finally:
            site.rest()
        assert "snapshotting" in moved[0]
        assert site.source is first
        Pipeline(config, spark).run(once=True)
        check(spark, config, site)


@pytest.mark.long
def test_to_a_server_that_lacks_what_was_applied(spark: SparkSession, tmp_path: Path) -> None:
    """The run ends and names the transactions. When the server has them after all, the next run goes on."""
    with replica_pair() as (first, second), Proxy(first.host, first.port) as proxy:
        load(first, ROWS)
        second.wait_for(first.gtid_executed)
        second.execute("STOP REPLICA")
        text = CHUNKS.format(url=proxy.url, lake=tmp_path / "lake").replace("poll_ms = 20", "retry_seconds = 1")
        config, site = parse_config(text), Site(first, second, proxy)
        Pipeline(config, spark).run(once=True)
        first.execute("UPDATE k.numbers SET v = 7 WHERE id < 5")
        Pipeline(config, spark).run(once=True)
        last = first.gtid_executed
        proxy.cut()
        proxy.aim(second.host, second.port)
        proxy.restore()
        with pytest.raises(HeadgateError) as caught:
            Pipeline(config, spark).run()
        missing = GtidSet.parse(last) - GtidSet.parse(second.gtid_executed)
        assert str(missing) in str(caught.value)
        second.execute("START REPLICA")
        second.wait_for(last)
        second.execute("UPDATE k.numbers SET v = 8 WHERE id < 3")
        site.source = second
        Pipeline(config, spark).run(once=True)
        check(spark, config, site)
