"""A table joins a running pipeline: followed from the moment it is configured, read when a signal asks for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.config import ConfigFile, PipelineConfig
from headgate.control import parse_signal, submit
from headgate.lake import Inbox, Lake
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate.testing import MySQLServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = """\
name = "inventory"
[source]
url = "{url}"
password_file = "{secret}"
tables = [{tables}]
snapshot_new_tables = false
poll_ms = 50
chunk_rows = 100
[target]
path = "{lake}"
"""


class WatchedFile(ConfigFile):
    """Tells when a new configuration is in force."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.taken = threading.Event()

    def take(self, config: PipelineConfig) -> None:
        super().take(config)
        self.taken.set()


def test_a_table_is_added_to_a_running_pipeline_and_read_on_demand(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    db, customers, orders = mysql_db, f"{mysql_db}.customers", f"{mysql_db}.orders"
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i, i FROM n"
    for table in ("customers", "orders"):
        mysql_server.execute(
            f"CREATE TABLE `{db}`.{table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO `{db}`.{table} {numbers}"
        )
    (tmp_path / "secret").write_text(mysql_server._password)
    path, lake = tmp_path / "pipeline.toml", Lake.at(str(tmp_path / "lake"))

    def configure(*tables: str) -> None:
        listed = ", ".join(f'"{table}"' for table in tables)
        text = TEXT.format(url=mysql_server.url, secret=tmp_path / "secret", tables=listed, lake=lake.path)
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(path)

    def rows(table: str) -> set[tuple[int, int]]:
        found = spark.read.format("delta").load(lake.current(table)).select("id", "v").toArrow().to_pylist()
        return {(row["id"], row["v"]) for row in found}

    def source(table: str) -> set[tuple[int, int]]:
        return {(int(i), int(v)) for i, v in mysql_server.query(f"SELECT id, v FROM `{db}`.{table.split('.')[1]}")}

    configure(customers)
    file = WatchedFile(path)
    reports: queue.Queue[BatchReport | None] = queue.Queue()
    pipeline = Pipeline(file.config, spark, file=file)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            pipeline.run(on_progress=reports.put)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)
        finally:
            reports.put(None)

    def until(wanted: Callable[[BatchReport], bool]) -> BatchReport:
        while True:
            report = reports.get(timeout=270)
            assert report is not None, failed
            if wanted(report):
                return report

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda report: customers in report.tables and report.tables[customers].state == "live")
        configure(customers, orders)
        assert file.taken.wait(60)
        mysql_server.execute(
            f"UPDATE `{db}`.customers SET v = 0 WHERE id = 1", f"INSERT INTO `{db}`.orders VALUES (900, 9)"
        )
        report = until(lambda report: orders in report.images)
        assert report.tables[orders].state == "snapshotting"
        assert not report.rows, "nobody asked for the others yet"
        assert rows(orders) == {(900, 9)}
        asked = {"type": "execute-snapshot", "data": {"data-collections": [orders.replace(".", r"\.")]}}
        submit(Inbox(lake.inbox), parse_signal(asked))
        mysql_server.execute(
            f"UPDATE `{db}`.customers SET v = -1 WHERE id = 2", f"DELETE FROM `{db}`.orders WHERE id = 7"
        )
        until(lambda report: report.tables[orders].state == "live" and report.gtid == mysql_server.gtid_executed)
        assert rows(orders) == source(orders)
        assert rows(customers) == source(customers)
    finally:
        pipeline.stop()
        thread.join(120)
    assert not failed
