"""How long a start takes: ``python -m benchmarks.starts [--rounds N] [--output FILE]``.

``headgate run``, a process of its own, follows three tables of 1,500 rows. This process has no code of headgate for
reading: delta-rs reads the ledger.

- *first reading*: from the start of the process to the ledger row in which all three tables are live;
- *first change*: a run on the lake that is there; from the start of the process to the ledger row that has a
  transaction which was committed just before.

Kernels are compiled before (a run that is not measured). The median of ``--rounds`` lakes counts.

Bounds on two cores: *first reading* 10 s, *first change* 6 s.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._bench import DB, progress, report
from benchmarks.freshness import Ledger, Shape, last_of, make, running
from headgate_testing import MySQLServer

SHAPE = Shape("three", 3, 1_500, 3, 1)
BOUNDS = {"first reading": 10.0, "first change": 6.0}
PATIENCE = 300.0


def first_reading(folder: Path, mysql: MySQLServer) -> float:
    """Seconds until all tables are live."""
    begun = time.monotonic()
    with running(folder, mysql, spark={}):
        ledger = Ledger(folder / "lake")
        while time.monotonic() - begun < PATIENCE:
            row = ledger.newest()
            if row is not None and sum(table["state"] == "live" for table in row["tables"]) == SHAPE.tables:
                return time.monotonic() - begun
            time.sleep(0.01)
    raise RuntimeError(f"the tables did not get live; {folder / 'run.log'} says why")


def first_change(folder: Path, mysql: MySQLServer) -> float:
    """Seconds until a transaction of before is in the lake."""
    mysql.execute(f"UPDATE {DB}.t0 SET flag = 1 - flag WHERE id = 1")
    wanted = last_of(re.sub(r"\s", "", mysql.gtid_executed))
    begun = time.monotonic()
    with running(folder, mysql, spark={}):
        ledger = Ledger(folder / "lake")
        while time.monotonic() - begun < PATIENCE:
            row = ledger.newest()
            if row is not None and last_of(row["gtid"]) >= wanted:
                return time.monotonic() - begun
            time.sleep(0.01)
    raise RuntimeError(f"the change did not come; {folder / 'run.log'} says why")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output")
    args = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in BOUNDS}
    with MySQLServer.start() as mysql, tempfile.TemporaryDirectory() as scratch:
        make(mysql, SHAPE)
        for number in range(args.rounds + 1):
            folder = Path(scratch, str(number))
            folder.mkdir()
            progress(f"lake {number}")
            seconds = {"first reading": first_reading(folder, mysql), "first change": first_change(folder, mysql)}
            for name in BOUNDS if number else ():
                times[name].append(seconds[name])
    return report("starts", [line(name, times[name]) for name in BOUNDS], output=args.output)


def line(name: str, seconds: list[float]) -> dict[str, Any]:
    middle = median(seconds)
    return {
        "start": name, "seconds": round(middle, 2), "worst": round(max(seconds), 2), "bound": BOUNDS[name],
        "ok": "ok" if middle <= BOUNDS[name] else "MISSED",
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
