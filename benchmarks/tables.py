"""Many tables in one pipeline: ``python -m benchmarks.tables [--tables N] [--changing N] [--output FILE]``.

A pipeline with ``current`` into Delta follows ``--tables`` small tables and has read them all; then ``--changing`` of
them get changes, ``--batches`` times. Beside it, in the same run, a pipeline that follows only the tables that change:
what it takes more with all of them is the price of a table that does not change. Measured for each, as medians over the
batches:

- ``plan_ms``: milliseconds in which Spark asks for the next offset and its tasks (the progress report's
  ``latestOffset``, ``getBatch`` and ``queryPlanning``), up to 50 of which an idle planner waits between two questions;
- ``offset_b``: bytes of the batch's offset in the checkpoint;
- ``batch_s``: seconds from the beginning of a batch's work on the tables to its ledger row; ``trigger_s``: the whole;
- ``heap_mb``: the driver's heap after a collection; ``jvm_mb``, ``python_mb``: the peak resident sizes (the system's
  ``VmHWM``) of its two processes, over the run so far;
- ``snapshot_s``: seconds until all tables were read for the first time;
- ``touched``: the most tables in any batch whose Delta logs grew, counted as files on disk.

Bounds: a batch touches the tables that changed and no other; with all tables the offset is at most 1.5 times, a
batch's time at most 1.5 times, planning at most 100 ms more than with those that change alone.
"""

from __future__ import annotations

import argparse
import gc
import os
import queue
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._bench import DB, progress, report
from headgate.config import PipelineConfig, parse_config
from headgate.engine import build_session
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate_testing import MySQLServer

TASKS = 2
ROWS = 10
"""Rows of each table: what a table costs is looked for, not what its rows cost."""
PATIENCE = 3600.0
OFFSET_BOUND = 1.5
BATCH_BOUND = 1.5
PLANNING_BOUND_MS = 100.0

TEXT = """\
name = "bench"
[source]
url = "{url}"
tables = ["{pattern}"]
poll_ms = 50
[target]
path = "{lake}"
"""


@dataclass
class Figures:
    """Of one pipeline."""

    tables: int
    snapshot_seconds: float = 0.0
    planning_ms: list[float] = field(default_factory=list)
    batch_seconds: list[float] = field(default_factory=list)
    trigger_seconds: list[float] = field(default_factory=list)
    offset_bytes: int = 0
    touched: list[int] = field(default_factory=list)
    strangers: set[str] = field(default_factory=set)
    heap_mb: int = 0
    jvm_mb: int = 0
    python_mb: int = 0


class Run:
    """A pipeline in a thread."""

    def __init__(self, spark: Any, config: PipelineConfig) -> None:
        self.pipeline = Pipeline(config, spark)
        self._news: queue.Queue[BatchReport | None] = queue.Queue()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.pipeline.run(on_progress=self._news.put)
        except BaseException as error:  # noqa: BLE001 - raised by until_live and until
            self._failed.append(error)
        finally:
            self._news.put(None)

    def next(self) -> BatchReport:
        batch_report = self._news.get(timeout=PATIENCE)
        if batch_report is None:
            raise RuntimeError("the pipeline has ended") from (self._failed[0] if self._failed else None)
        return batch_report

    def until_live(self, tables: int) -> None:
        """All tables are read."""
        while sum(state.state == "live" for state in self.next().tables.values()) < tables:
            pass

    def until(self, gtid: GtidSet) -> list[BatchReport]:
        """The batches up to the one that holds this set."""
        reports = [self.next()]
        while not gtid <= GtidSet.parse(reports[-1].gtid):
            reports.append(self.next())
        return reports

    def stop(self) -> None:
        self.pipeline.stop()
        self._thread.join(PATIENCE)


def name(number: int, changing: int) -> str:
    """The tables that change have a prefix of their own, so that one pattern means just them."""
    return f"hot_{number:04d}" if number < changing else f"cold_{number:04d}"


def make_tables(mysql: MySQLServer, tables: int, changing: int) -> None:
    progress(f"making {tables:,} tables")
    mysql.execute(f"CREATE DATABASE {DB}", f"USE {DB}")
    rows = ", ".join(f"({i}, 0, 'row {i}')" for i in range(ROWS))
    for number in range(tables):
        table = name(number, changing)
        mysql.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, t VARCHAR(40))", f"INSERT INTO {table} VALUES {rows}"
        )


def change(mysql: MySQLServer, changing: int) -> GtidSet:
    """One transaction that changes a row of each, so that it is one batch; the server's set after it."""
    with mysql.connect(database=DB, autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(changing):
            cursor.execute(f"UPDATE {name(number, changing)} SET v = v + 1 WHERE id = {number % ROWS}")
        connection.commit()
    return GtidSet.parse(mysql.gtid_executed)


def commits(lake: Lake) -> dict[str, int]:
    """Commits in each current table's Delta log, by name of the table's folder."""
    folder = Path(lake.path, DB)
    return {table.name: len(list((table / "_delta_log").glob("*.json"))) for table in folder.iterdir()}


def follow(spark: Any, mysql: MySQLServer, folder: Path, pattern: str, args: argparse.Namespace) -> Figures:
    """One pipeline: its first reading, then the batches that count."""
    figures = Figures(args.tables if pattern.endswith(".*") else args.changing)
    progress(f"a pipeline of {figures.tables:,} tables")
    hot = {name(number, args.changing) for number in range(args.changing)}
    lake = folder / f"lake-{figures.tables}"
    url = f"{mysql.url}/?tls=disabled"
    run = Run(spark, parse_config(TEXT.format(url=url, pattern=pattern, lake=lake)))
    try:
        begun = time.monotonic()
        run.until_live(figures.tables)
        figures.snapshot_seconds = time.monotonic() - begun
        for _ in range(2):  # the first MERGEs compile
            run.until(change(mysql, args.changing))
        (query,) = spark.streams.active
        for _ in range(args.batches):
            before = commits(run.pipeline.lake)
            batches = run.until(change(mysql, args.changing))
            grown = {table for table, count in commits(run.pipeline.lake).items() if count > before.get(table, 0)}
            figures.touched.append(len(grown))
            figures.strangers |= grown ^ hot
            figures.batch_seconds.append(sum(batch.seconds for batch in batches))
            _planning(figures, query, batches[-1].batch_id)
        offsets = Path(run.pipeline.lake.checkpoint, "offsets")
        newest = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        figures.offset_bytes = len(newest.read_text().splitlines()[-1])
        _memory(figures, spark)
    finally:
        run.stop()
    return figures


def _planning(figures: Figures, query: Any, batch: int) -> None:
    """From Spark's progress report, which comes a moment after the batch."""
    deadline = time.monotonic() + PATIENCE
    while True:
        batch_progress = next((one for one in query.recentProgress if one["batchId"] == batch), None)
        if batch_progress is not None:
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"Spark says nothing of batch {batch}")
        time.sleep(0.05)
    spent = batch_progress["durationMs"]
    figures.planning_ms.append(sum(spent.get(part, 0) for part in ("latestOffset", "getBatch", "queryPlanning")))
    figures.trigger_seconds.append(spent["triggerExecution"] / 1000)


def _memory(figures: Figures, spark: Any) -> None:
    gc.collect()
    jvm = spark._jvm.java.lang
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    figures.heap_mb = (runtime.totalMemory() - runtime.freeMemory()) >> 20
    figures.jvm_mb = _peak_mb(jvm.ProcessHandle.current().pid())
    figures.python_mb = _peak_mb(os.getpid())


def _peak_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM"))


def line(figures: Figures, args: argparse.Namespace, few: Figures) -> dict[str, Any]:
    """``few``: the pipeline of the tables that change alone."""
    touches_those = not figures.strangers and set(figures.touched) == {args.changing}
    flat = (
        figures.offset_bytes <= OFFSET_BOUND * few.offset_bytes
        and median(figures.batch_seconds) <= BATCH_BOUND * median(few.batch_seconds)
        and median(figures.planning_ms) <= median(few.planning_ms) + PLANNING_BOUND_MS
    )
    return {
        "tables": figures.tables, "changing": args.changing, "plan_ms": round(median(figures.planning_ms)),
        "offset_b": figures.offset_bytes, "batch_s": round(median(figures.batch_seconds), 2),
        "trigger_s": round(median(figures.trigger_seconds), 2), "touched": max(figures.touched),
        "heap_mb": figures.heap_mb, "jvm_mb": figures.jvm_mb, "python_mb": figures.python_mb,
        "snapshot_s": round(figures.snapshot_seconds, 1), "ok": "ok" if touches_those and flat else "MISSED",
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--changing", type=int, default=50)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--output")
    args = parser.parse_args()
    if not 0 < args.changing < args.tables:
        parser.error("--changing has to be less than --tables")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    caches = {"table_definition_cache": 4 * args.tables, "table_open_cache": 4 * args.tables}
    with MySQLServer.start(flags=caches) as mysql, tempfile.TemporaryDirectory() as scratch:
        make_tables(mysql, args.tables, args.changing)
        settings = {
            "spark.master": f"local[{TASKS}]", "spark.driver.memory": "3g",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }  # fmt: skip
        spark = build_session("benchmark", settings, quiet=True)
        few = follow(spark, mysql, Path(scratch), f"{DB}.hot_*", args)
        many = follow(spark, mysql, Path(scratch), f"{DB}.*", args)
        spark.stop()
    return report("tables", [line(few, args, few), line(many, args, few)], output=args.output)


if __name__ == "__main__":
    sys.exit(main())
