"""Through Spark: ``python -m benchmarks.pipeline [--rows N] [--rounds N] [--output FILE]``.

The typed ``mysql-cdc`` source to Spark's ``noop`` sink, against a Python source that yields the very same Arrow batches
prebuilt from a file, both with two tasks; rounds alternate. Once for the log (bulk workload, cut into two ranges at a
binlog file's start) and once for the table (exact chunks).
Bound: ≥ 70 % of the prebuilt source, on both roads. On one machine the server takes about half a core second for each
million rows of a table that it sends, which the prebuilt source does not pay.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks._bench import DB, Timing, Workloads, median, progress, report, server, verdict
from headgate.catalog import TablePatterns
from headgate.lake import build_session
from headgate.replication import LogBlock, read_range
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
        load.settings, load.bulk, executed=load.end, server_uuid=None, tables=TablePatterns([f"{DB}.*"]), epoch=1
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
        for name, options in (
            ("log", {"start": str(start), "end": str(load.end), "images": "all"}),
            ("table", {"chunk_rows": "250000"}),
        ):
            progress(f"through Spark: {name}")
            path = Path(scratch) / f"{name}.arrow"
            write_file(load, source(spark, load, **options), path)
            prebuilt = spark.read.format("prebuilt").option("file", str(path)).option("tasks", str(TASKS)).load()
            drop(source(spark, load, **options))
            drop(prebuilt)
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(Timing(lambda options=options: drop(source(spark, load, **options))))  # type: ignore[misc]
                theirs.append(Timing(lambda prebuilt=prebuilt: drop(prebuilt)))  # type: ignore[misc]
            ratio = median(theirs) / median(ours)
            for what, timings, value in (("prebuilt", theirs, 1.0), ("mysql-cdc", ours, ratio)):
                results.append(
                    {
                        "road": name, "source": what, "rows": args.rows, "wall_seconds": median(timings),
                        "rows_per_second": int(args.rows / median(timings)), "of_prebuilt": round(value, 3),
                        "ok": verdict(value, BOUND) if what == "mysql-cdc" else "",
                        "peak_rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
                    }
                )  # fmt: skip
        spark.stop()
    return report("pipeline", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
