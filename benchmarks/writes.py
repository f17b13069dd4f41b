"""Large batches into Delta: ``python -m benchmarks.writes [--rows N] [--output FILE]``.

A pipeline with ``current`` follows ``bench.orders``. Measured are batches, from the moment at which Spark gives them to
the writer to their ledger row, the reading of MySQL's log included:

- *changes*: one UPDATE of half the rows. Beside it, in the same run: a bare MERGE by Spark of the same rows, already
  folded and in memory, into a copy of the table as it was (the better of ``--rounds``). ``ratio``: how many times as
  long that takes;
- *column*: an ALTER that adds a column with a default to all rows. Beside it: Spark's UPDATE of all rows of a copy.

Bounds: *changes* ≥ 4 times as fast as the MERGE, *column* within 3 s.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._bench import Workloads, progress, report, server
from benchmarks._merges import OPTIMIZING
from benchmarks.incremental import TABLE, TASKS, Run, WatchedFile, executed
from headgate.engine import build_session
from headgate.gtid import GtidSet
from headgate.lake import Lake

CHANGES_RATIO = 4.0
COLUMN_SECONDS = 3.0
TEXT = """\
name = "bench"
[source]
url = "{url}/?tls=disabled"
tables = ["{table}"]
poll_ms = 50
[target]
path = "{lake}"
"""


def batch_seconds(run: Run, load: Workloads, statement: str) -> float:
    """Of the batch that brings a statement."""
    load.mysql.execute(statement)
    wanted = executed(load)
    return run.until(lambda batch: wanted <= GtidSet.parse(batch.gtid))[1].seconds


def best(rounds: int, prepare: Callable[[], str], work: Callable[[str], Any]) -> float:
    """Seconds of the quickest round, each on a table of its own."""
    seconds = []
    for _ in range(rounds):
        path = prepare()
        started = time.perf_counter()
        work(path)
        seconds.append(time.perf_counter() - started)
        shutil.rmtree(path)
    return min(seconds)


def measure(load: Workloads, folder: Path, rounds: int) -> list[dict[str, Any]]:
    spark = build_session("benchmark", {"spark.master": f"local[{TASKS}]", **OPTIMIZING}, quiet=True)
    file = folder / "pipeline.toml"
    file.write_text(TEXT.format(url=load.mysql.url, table=TABLE, lake=folder / "lake"))
    path, copy = Lake.at(str(folder / "lake")).current(TABLE), str(folder / "copy")
    progress("the first reading")
    run = Run(spark, WatchedFile(file))
    try:
        run.until(lambda batch: batch.tables[TABLE].state == "live")
        for value in range(3):
            batch_seconds(run, load, f"UPDATE {TABLE} SET flag = {value} WHERE id < 1000")
        shutil.copytree(path, folder / "before")
        progress("changes of half the rows")
        changes = batch_seconds(run, load, f"UPDATE {TABLE} SET note = 'changed', flag = flag + 1 WHERE id % 2 = 0")
        progress("a column with a default")
        column = batch_seconds(run, load, f"ALTER TABLE {TABLE} ADD COLUMN colour INT NOT NULL DEFAULT 7")
    finally:
        run.stop()

    def restored() -> str:
        return str(shutil.copytree(folder / "before", copy))

    from delta.tables import DeltaTable

    rows = spark.read.format("delta").load(path).where("id % 2 = 0").drop("colour").persist()
    rows.count()
    progress("the same by MERGE")

    def merge(target: str) -> None:
        merged = DeltaTable.forPath(spark, target).alias("t").merge(rows.alias("s"), "t.id = s.id")
        merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    merged = best(rounds, restored, merge)
    rows.unpersist()
    progress("the same by UPDATE")

    def fill(target: str) -> None:
        spark.sql(f"ALTER TABLE delta.`{target}` ADD COLUMNS (colour INT)")
        spark.sql(f"UPDATE delta.`{target}` SET colour = 7")

    updated = best(rounds, restored, fill)
    summary = spark.read.format("delta").load(path).selectExpr("count(*)", "min(colour)", "count_if(note = 'changed')")
    if tuple(summary.collect()[0]) != (load.rows, 7, -(-load.rows // 2)):
        raise RuntimeError(f"the table holds {summary.collect()}")
    spark.stop()
    return [
        line("changes", load.rows // 2, changes, merged, ok=merged / changes >= CHANGES_RATIO, bound="≥ 4 times"),
        line("column", load.rows, column, updated, ok=column <= COLUMN_SECONDS, bound="≤ 3 s"),
    ]


def line(name: str, rows: int, seconds: float, spark: float, *, ok: bool, bound: str) -> dict[str, Any]:
    return {
        "batch": name, "rows": rows, "seconds": round(seconds, 2), "spark_s": round(spark, 2),
        "ratio": round(spark / seconds, 1), "bound": bound, "ok": "ok" if ok else "MISSED",
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=2, help="of Spark's own writers; the better counts (2)")
    parser.add_argument("--output")
    args = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with server(args.rows, 0) as load, tempfile.TemporaryDirectory() as scratch:
        results = measure(load, Path(scratch), args.rounds)
    return report("writes", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
