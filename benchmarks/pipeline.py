"""Through Spark: ``python -m benchmarks.pipeline [--rows N] [--rounds N] [--output FILE]``.

The typed ``mysql-cdc`` source to Spark's ``noop`` sink, against a Python source that yields the very same Arrow batches
prebuilt from a file, both with two tasks; rounds alternate. Once for the log (bulk workload, cut into two ranges at a
binlog file's start) and once for the table (exact chunks).

Bound on the log's road: ≥ 70 % of the prebuilt source. The table's road has the server for a neighbour: it spends about
half a core second on each million rows that it sends, where the prebuilt source spends one in all. So there the bound,
≥ 70 % too, is against a prebuilt source whose tasks first receive the same SELECT and throw it away (*drained*); the
ratio without that is shown beside it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks._bench import DB, Timing, Workloads, median, progress, report, server, verdict
from headgate.catalog import TablePatterns
from headgate.engine import build_session
from headgate.replication import DecodeOptions, LogBlock, LogRead, read_range
from headgate.spark import register

BOUND = 0.7
TASKS = 2


def source(spark: Any, load: Workloads, **options: str) -> Any:
    reader = (
        spark.read.format("mysql-cdc").option("url", f"{load.mysql.url}/?tls=disabled").option("table", f"{DB}.orders")
    )
    return reader.options(**options).option("slots", str(TASKS)).load()


def drop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def write_file(load: Workloads, frame: Any, path: Path) -> None:
    """The rows of ``frame`` as an Arrow file with batches as large as the source makes them."""
    batches = []
    reader = read_range(
        LogRead(load.settings, wanted=load.bulk, executed=load.end), DecodeOptions(TablePatterns([f"{DB}.*"]), epoch=1)
    )
    sizes = [image.batch.num_rows for item in reader if isinstance(item, LogBlock) for image in item.images]
    table = frame.toArrow()
    start = 0
    for size in sizes:
        batches += table.slice(start, size).combine_chunks().to_batches()
        start += size
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def contenders(
    spark: Any, load: Workloads, path: Path, options: dict[str, str], rows: int
) -> dict[str, Callable[[], None]]:
    """What is measured, by name. Each begins with ``load()``, as a user's query does."""
    prebuilt = {"file": str(path), "tasks": str(TASKS)}
    runs = {
        "prebuilt": lambda: drop(spark.read.format("prebuilt").options(**prebuilt).load()),
        "mysql-cdc": lambda: drop(source(spark, load, **options)),
    }
    if "chunk_rows" in options:
        share = rows // TASKS
        half = f"SELECT * FROM {DB}.orders WHERE id >= {{task}} * {share} AND id < ({{task}} + 1) * {share}"
        drained = {**prebuilt, "url": f"{load.mysql.url}/?tls=disabled", "drain": half}
        runs["drained"] = lambda: drop(spark.read.format("prebuilt").options(**drained).load())
    return runs


def compare(road: str, runs: dict[str, Callable[[], None]], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Rounds of all contenders in turn."""
    timings: dict[str, list[Timing]] = {name: [] for name in runs}
    for number in range(args.rounds + 1):
        for name, run in runs.items():
            timing = Timing(run)
            if number:  # the first round warms up
                timings[name].append(timing)
    seconds = {name: median(rounds) for name, rounds in timings.items()}
    reference = "drained" if "drained" in runs else "prebuilt"
    return [
        {
            "road": road, "source": name, "rows": args.rows, "wall_seconds": seconds[name],
            "rows_per_second": int(args.rows / seconds[name]),
            "of_prebuilt": round(seconds["prebuilt"] / seconds[name], 3),
            "of_drained": round(seconds["drained"] / seconds[name], 3) if "drained" in runs else "",
            "ok": verdict(seconds[reference] / seconds[name], BOUND) if name == "mysql-cdc" else "",
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        }
        for name in runs
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output")
    args = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with server(args.rows, 0) as load, tempfile.TemporaryDirectory() as scratch:
        spark = build_session("benchmark", {"spark.master": f"local[{TASKS}]", "spark.driver.memory": "3g"}, quiet=True)
        register(spark)
        from benchmarks._prebuilt import Prebuilt

        spark.dataSource.register(Prebuilt)
        start = load.end - load.bulk
        results = []
        for road, options in (
            ("log", {"start": str(start), "end": str(load.end), "images": "all"}),
            ("table", {"chunk_rows": "250000"}),
        ):
            progress(f"through Spark: {road}")
            path = Path(scratch) / f"{road}.arrow"
            write_file(load, source(spark, load, **options), path)
            results += compare(road, contenders(spark, load, path, options, args.rows), args)
        spark.stop()
    return report("pipeline", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
