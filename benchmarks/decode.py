"""Log → Arrow on one core: ``python -m benchmarks.decode [--rows N] [--transactions N] [--rounds N] [--output FILE]``.

Reads the log of both workloads from a private server and decodes every change to canonical record batches. Nothing is
stored. Bounds: bulk ≥ 3 million rows/s a core, oltp ≥ 400,000 rows/s a core.
"""

from __future__ import annotations

import argparse
import resource
import sys

import pyarrow.compute as pc

from benchmarks._bench import Timing, Workloads, median, progress, report, server, verdict
from headgate.catalog import TablePatterns
from headgate.gtid import GtidSet
from headgate.replication import DecodeOptions, LogBlock, LogRead, read_range

BOUNDS = {"bulk": 3_000_000, "oltp": 400_000}


def decode(load: Workloads, wanted: GtidSet) -> int:
    """Read and decode the range; changes (an update's two images are one)."""
    changes = 0
    reader = read_range(
        LogRead(load.settings, wanted=wanted, executed=load.end), DecodeOptions(TablePatterns(["bench.*"]), epoch=1)
    )
    for item in reader:
        if isinstance(item, LogBlock):
            for image in item.images:
                before = pc.sum(pc.equal(image.batch.column("_op"), "b")).as_py() or 0
                changes += image.batch.num_rows - before
    return changes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output")
    args = parser.parse_args()
    results = []
    with server(args.rows, args.transactions) as load:
        for name, wanted in (("bulk", load.bulk), ("oltp", load.oltp)):
            progress(f"decoding {name}")
            decode(load, wanted)  # compiles the kernels
            rounds = [Timing(lambda wanted=wanted: decode(load, wanted)) for _ in range(args.rounds)]  # type: ignore[misc]
            changes = rounds[0].result
            a_core = changes / median(rounds, "cpu_seconds")
            results.append(
                {
                    "workload": name, "changes": changes, "transactions": wanted.count(),
                    "wall_seconds": median(rounds), "cpu_seconds": median(rounds, "cpu_seconds"),
                    "rows_per_second": int(changes / median(rounds)), "rows_per_second_a_core": int(a_core),
                    "bound_a_core": BOUNDS[name], "ok": verdict(a_core, BOUNDS[name]),
                    "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                }
            )  # fmt: skip
    return report("decode", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
