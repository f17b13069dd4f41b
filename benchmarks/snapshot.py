"""Table → Arrow: ``python -m benchmarks.snapshot [--rows N] [--rounds N] [--output FILE]``.

One connection's SELECT into Arrow, against draining the same SELECT from the socket without looking at it; and the same
table by exact chunks (with window and rewind), which is what a snapshot costs. Drained and decoded rounds alternate.
Bound: into Arrow ≥ 90 % of draining.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from benchmarks._bench import DB, Timing, Workloads, median, progress, report, server, verdict
from benchmarks._drain import drain
from headgate.catalog import TableDef, TablePatterns, load_tables
from headgate.columns import TableCodec
from headgate.mysql import Connection, select_blocks
from headgate.replication import ImageBatch
from headgate.snapshot import ChunkRead, advance, first_chunk_bounds, next_chunk, read_chunks

BOUND = 0.9
_CHUNK_ROWS = 250_000


def definition(load: Workloads) -> TableDef:
    with Connection.open(load.settings) as connection:
        return load_tables(connection.query, TablePatterns([f"{DB}.orders"]))[0]


def statement(codec: TableCodec) -> str:
    return f"SELECT {codec.select_list} FROM {DB}.orders"


def into_arrow(load: Workloads, sql: str, codec: TableCodec) -> int:
    """Decode the whole answer; rows."""
    rows = 0
    with Connection.open(load.settings) as connection:
        for block in select_blocks(connection, sql):
            rows += len(codec.from_text(block)[0])
    return rows


def by_chunks(load: Workloads, table: TableDef) -> int:
    """Read the table by exact chunks; rows."""
    rows, chunks = 0, []
    with Connection.open(load.settings) as connection:
        uuid = str(connection.query("SELECT @@server_uuid")[0][0])
        plan = first_chunk_bounds(connection.query, table, epoch=1, rows=_CHUNK_ROWS, rows_estimate=load.rows)
        while (chunk := next_chunk(connection.query, table, plan, _CHUNK_ROWS)) is not None:
            chunks.append(chunk)
            plan = advance(plan, chunk, _CHUNK_ROWS)
    for item in read_chunks(
        ChunkRead(load.settings, chunks, load.end, uuid, epoch=1, planned_us=time.time_ns() // 1000)
    ):
        assert isinstance(item, ImageBatch), item
        rows += item.batch.num_rows
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output")
    args = parser.parse_args()
    with server(args.rows, 0) as load:
        table = definition(load)
        codec = TableCodec(table)
        sql = statement(codec)
        progress("reading")
        drain(load.settings, sql)
        into_arrow(load, sql, codec)
        by_chunks(load, table)
        drained, arrow, chunks = [], [], []
        for _ in range(args.rounds):
            drained.append(Timing(lambda: drain(load.settings, sql)))
            arrow.append(Timing(lambda: into_arrow(load, sql, codec)))
            chunks.append(Timing(lambda: by_chunks(load, table)))
        results = []
        for name, timings in (("drained", drained), ("arrow", arrow), ("exact chunks", chunks)):
            ratio = median(drained) / median(timings)
            results.append(
                {
                    "reader": name, "rows": args.rows, "wall_seconds": median(timings),
                    "cpu_seconds": median(timings, "cpu_seconds"), "rows_per_second": int(args.rows / median(timings)),
                    "of_draining": round(ratio, 3), "ok": verdict(ratio, BOUND) if name == "arrow" else "",
                    "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                }
            )  # fmt: skip
    return report("snapshot", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
