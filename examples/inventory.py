"""The walk-through of the article "Read-only Incremental Snapshots for MySQL" (Debezium's blog), by every way to ask.

A pipeline follows ``inventory.customers``, which is written to all the time. More tables are added to its
configuration while it runs. They are followed from then on, but nobody has read the rows that they hold; that is asked
for by a message to a Kafka topic, a row in a signal table, a file, and an HTTP request. Customers never pause.

Run it from the repository, after ``scripts/test`` or ``scripts/demo`` has set up ``.venv`` once::

    .venv/bin/python -m examples.inventory

It starts a MySQL server, a Kafka broker and Spark on this machine, and leaves nothing but a folder that it names. The
same walk is a test: ``tests/integration/snapshot/test_walkthrough.py``.
"""

from __future__ import annotations

import json
import queue
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.carrier import ControlFolder
from headgate.config import ConfigFile
from headgate.control import parse_signal, submit
from headgate.engine import build_session
from headgate.lake import Lake
from headgate.pipeline import Pipeline, check_config
from headgate.sinks import BatchReport
from headgate.ui import Serving, Token, Watched, create_app
from headgate_testing import KafkaBroker, MySQLServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS = 270
CONFIG = """\
name = "inventory"

[source]
url = "{url}"
password_file = "{folder}/secret"
tables = {tables}
snapshot_new_tables = false      # tables that are added are read when a signal asks for it
signal_table = "{db}.signals"
poll_ms = 50
chunk_rows = 200

[signals.kafka]
bootstrap = "{bootstrap}"
topic = "{topic}"

[target]
path = "{folder}/lake"
"""
ADDED = ("orders", "products", "addresses", "stock")
HELD = 300
"""Rows that each table holds from the beginning."""


class Inventory:
    """A database, and a pipeline that follows it.

    :param folder: for the pipeline's file and its lake.
    :param db: the database's name; it is there, and empty.
    :param topic: of the broker, with one partition.
    """

    def __init__(self, server: MySQLServer, broker: KafkaBroker, topic: str, folder: Path, db: str) -> None:
        self.server, self.broker, self.topic, self.folder, self.db = server, broker, topic, folder, db
        self.file, self.lake = folder / "pipeline.toml", Lake.at(str(folder / "lake"))
        self.url = server.url
        self.token = "only-for-this-walk"
        self.reports: queue.Queue[BatchReport | None] = queue.Queue()
        self.customers_in_batches: list[int] = []
        self.error: BaseException | None = None
        self._rest, self._rested = threading.Event(), threading.Event()

    def create(self, password: str) -> None:
        """The tables, with rows, and the pipeline's file."""
        rows = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {HELD}) SELECT i, i FROM n"
        for table in ("customers", *ADDED):
            self.server.execute(
                f"CREATE TABLE `{self.db}`.{table} (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
                f"INSERT INTO `{self.db}`.{table} {rows}",
            )
        self.server.execute(
            f"CREATE TABLE `{self.db}`.signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data JSON)"
        )
        (self.folder / "secret").write_text(password)
        self.file.write_text(self.config("customers"))

    def config(self, *tables: str) -> str:
        """The pipeline's file with these tables."""
        return CONFIG.format(
            url=self.url, folder=self.folder, db=self.db, bootstrap=self.broker.bootstrap, topic=self.topic,
            tables=json.dumps([f"{self.db}.{table}" for table in tables]),
        )  # fmt: skip

    # --- running

    @contextmanager
    def running(self, spark: SparkSession) -> Iterator[str]:
        """The pipeline, a process that writes customers, and the page's address."""
        file = ConfigFile(self.file)
        pipeline = Pipeline(file.config, spark, file=file)
        threads = [
            threading.Thread(target=self._guarded, args=(lambda: pipeline.run(on_progress=self.reports.put),)),
            threading.Thread(target=self._guarded, args=(self._write_customers,)),
        ]
        app = create_app([Watched.of(file.config, self.file, check_config)], token=Token(self.token))
        with Serving(app, "127.0.0.1", 0) as page:
            for thread in threads:
                thread.start()
            try:
                yield page.url
            finally:
                self._rest.set()
                pipeline.stop()
                for thread in threads:
                    thread.join(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised where the pipeline is waited for
            self.error = error
            self.reports.put(None)

    def _write_customers(self) -> None:
        with self.server.connect(database=self.db) as connection, connection.cursor() as cursor:
            while not self._rest.wait(0.05):
                cursor.execute("INSERT INTO customers (v) VALUES (0)")
        self._rested.set()

    def rest(self) -> None:
        """Nobody writes any more; wait until the pipeline has everything."""
        self._rest.set()
        assert self._rested.wait(PATIENCE_SECONDS)
        self.server.execute(f"INSERT INTO `{self.db}`.customers (v) VALUES (1)")
        end = self.server.gtid_executed
        self.until(lambda report: report.gtid == end)

    def until(self, done: Callable[[BatchReport], bool]) -> BatchReport:
        """The first batch from now on for which this is so."""
        while True:
            report = self.reports.get(timeout=PATIENCE_SECONDS)
            if report is None:
                raise RuntimeError("the pipeline ended") from self.error
            self.customers_in_batches.append(report.images.get(f"{self.db}.customers", 0))
            if done(report):
                return report

    def state(self, report: BatchReport, table: str) -> str:
        """``live``, ``snapshotting``, or ``""`` for a table that the pipeline does not have."""
        table_report = report.tables.get(f"{self.db}.{table}")
        return "" if table_report is None else table_report.state

    def rows(self, spark: SparkSession, table: str) -> list[tuple[int, int]]:
        """What the lake has of a table."""
        rows = spark.read.format("delta").load(self.lake.current(f"{self.db}.{table}")).select("id", "v")
        return sorted((row["id"], row["v"]) for row in rows.toArrow().to_pylist())

    def source(self, table: str) -> list[tuple[int, int]]:
        """What the server has of it."""
        return [(int(i), int(v)) for i, v in self.server.query(f"SELECT id, v FROM `{self.db}`.{table} ORDER BY id")]

    # --- asking

    def put_config(self, page: str, *tables: str) -> int:
        """``PUT /config``: the pipeline's file with these tables; HTTP's answer."""
        return self._http(page + "config", "PUT", self.config(*tables))

    def _signal(self, table: str) -> dict[str, object]:
        data = {"data-collections": [f"{self.db}[.]{table}"], "type": "INCREMENTAL"}
        return {"type": "execute-snapshot", "data": data}

    def by_kafka(self, table: str) -> None:
        """A message for this pipeline, after one for another."""
        self.broker.send(self.topic, "whatever that one understands", "billing")
        self.broker.send(self.topic, json.dumps(self._signal(table)), "inventory")

    def by_table(self, table: str) -> None:
        """A row in the signal table."""
        signal = self._signal(table)
        with self.server.connect(database=self.db) as connection, connection.cursor() as cursor:
            row = (f"ad-hoc-{table}", signal["type"], json.dumps(signal["data"]))
            cursor.execute("INSERT INTO signals VALUES (%s, %s, %s)", row)

    def by_file(self, table: str) -> None:
        """What ``headgate signal`` does."""
        submit(ControlFolder(self.lake.inbox), parse_signal(self._signal(table)))

    def by_http(self, page: str, table: str) -> int:
        """``POST /signals``; HTTP's answer."""
        return self._http(page + "signals", "POST", json.dumps(self._signal(table)))

    def _http(self, url: str, method: str, body: str) -> int:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        request = urllib.request.Request(url, body.encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return int(answer.status)


def walk(inventory: Inventory, spark: SparkSession, say: Callable[[str], None]) -> None:
    """The whole way; each claim is checked (AssertionError)."""
    with inventory.running(spark) as page:
        say("inventory.customers is read and followed, and written to all the time")
        inventory.until(lambda report: inventory.state(report, "customers") == "live")

        say(f"PUT /config: {', '.join(ADDED)} are to be followed, too")
        assert inventory.put_config(page, "customers", *ADDED) == 202
        inventory.until(lambda report: inventory.state(report, "orders") == "snapshotting")
        inventory.server.execute(f"INSERT INTO `{inventory.db}`.orders VALUES (9000, 9)")
        report = inventory.until(lambda report: f"{inventory.db}.orders" in report.images)
        assert inventory.rows(spark, "orders") == [(9000, 9)]
        assert not report.rows
        say("  a new order arrives; the orders there were do not, because nobody asked for them")

        ways: dict[str, Callable[[], object]] = {
            "orders": lambda: inventory.by_kafka("orders"),
            "products": lambda: inventory.by_table("products"),
            "addresses": lambda: inventory.by_file("addresses"),
            "stock": lambda: inventory.by_http(page, "stock"),
        }
        inventory.customers_in_batches.clear()
        for ask in ways.values():
            ask()
        say("asked for: orders by a message to the Kafka topic, products by a row in the signal table,")
        say("  addresses by a file, as headgate signal writes it, stock by POST /signals")
        inventory.until(lambda report: all(inventory.state(report, table) == "live" for table in ways))
        meanwhile = sum(inventory.customers_in_batches)
        assert meanwhile, "customers never pause"
        say(f"  the {HELD} rows of each are filled in; {meanwhile} new customers came meanwhile")
        inventory.rest()
        for table in ("customers", *ADDED):
            assert inventory.rows(spark, table) == inventory.source(table), table
        say("every table equals the source")


def main() -> int:
    """On servers of its own."""
    folder = Path(tempfile.mkdtemp(prefix="headgate-inventory-"))
    print("starting MySQL, Kafka and Spark", flush=True)
    with MySQLServer.start() as server, KafkaBroker.start() as broker:
        broker.create_topic("headgate-signals")
        server.execute(
            "CREATE DATABASE inventory",
            "CREATE USER headgate@'%' IDENTIFIED BY 'only-here'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO headgate@'%'",
            "GRANT SELECT ON inventory.* TO headgate@'%'",
        )
        inventory = Inventory(server, broker, "headgate-signals", folder, "inventory")
        inventory.url = f"mysql://headgate@{server.host}:{server.port}"
        inventory.create("only-here")
        spark = build_session("inventory", {}, quiet=True)
        try:
            walk(inventory, spark, lambda text: print(text, flush=True))
        finally:
            spark.stop()
    print(f"the lake is in {folder}/lake, the pipeline's file is {folder}/pipeline.toml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
