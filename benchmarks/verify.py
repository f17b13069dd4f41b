"""Comparing a lake with its source: ``python -m benchmarks.verify [--rows N] [--rounds N] [--output FILE]``.

Pipelines copy three databases: 40 tables of 10,000 rows, 4 of 20,000, and one of ``--rows``. Each lake is then compared
by the command ``headgate verify``, in a process of its own. In the last line 1,000 rows of the large table are
different, so a part of it is read twice. Medians over the rounds:

- ``start_s``: seconds of the command with a lake of one table without rows; of the next two it is taken off;
- ``seconds``: of the command without its start; ``table_s``: the same for each table; ``rows_s``: rows a second;
- ``peak_mb``: the command's peak resident size.

Bounds: tables of 10,000 and 20,000 rows take at most 0.3 s each, the large one is compared at 500,000 rows/s at least
(on two cores that nobody else uses), and a table has at most 256 MB more in memory than the lake without rows has.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._bench import SCHEMA, fill, progress, report
from benchmarks._merges import OPTIMIZING
from headgate.config import load_config
from headgate.engine import build_session
from headgate.pipeline import Pipeline
from headgate_testing import MySQLServer

TABLE_SECONDS = 0.3
ROWS_A_SECOND = 500_000
MEMORY_MB = 256
DIFFERENT = 1000

TEXT = """\
name = "{name}"
[source]
url = "{url}"
tables = ["{name}.*"]
[target]
path = "{lake}"
"""


@dataclass
class Run:
    """One call of the command."""

    seconds: float
    peak_mb: int
    code: int
    equal: int
    """Rows that it found equal, or that are left when those that differ are taken off."""


def verify(file: Path) -> Run:
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "verify", "--samples", "0", str(file)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun
    rows = sum(int(number.replace(",", "")) for number in re.findall(r"(?m)^\S+: ([\d,]+) rows", text))
    different = sum(int(number.replace(",", "")) for number in re.findall(r"([\d,]+) different", text))
    return Run(seconds, usage.ru_maxrss >> 10, process.returncode, rows - different)


def make(mysql: MySQLServer, spark: Any, scratch: Path, name: str, tables: int, rows: int) -> Path:
    """A database, its copy and the pipeline's file."""
    progress(f"{name}: {tables:,} tables of {rows:,} rows")
    mysql.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t0 ({SCHEMA})")
    fill(mysql, f"{name}.t0", rows)
    for number in range(1, tables):
        mysql.execute(f"CREATE TABLE {name}.t{number} LIKE {name}.t0", f"INSERT INTO {name}.t{number} TABLE {name}.t0")
    file = scratch / f"{name}.toml"
    file.write_text(TEXT.format(name=name, url=f"{mysql.url}/?tls=disabled", lake=scratch / f"lake-{name}"))
    Pipeline(load_config(file), spark).run(once=True)
    return file


def measure(
    name: str, file: Path, tables: int, rows: int, start: Run, rounds: int, different: int = 0
) -> dict[str, Any]:
    runs = []
    for _ in range(rounds):
        progress(f"verify {name}")
        run = verify(file)
        if (run.code, run.equal) != (int(different > 0), tables * rows - different):
            raise RuntimeError(f"verify {name}: exit code {run.code}, {run.equal:,} rows are equal")
        runs.append(run)
    seconds = max(0.001, median(run.seconds for run in runs) - start.seconds)
    peak = max(run.peak_mb for run in runs)
    fast = (
        seconds / tables <= TABLE_SECONDS if rows <= 20_000 else different or tables * rows / seconds >= ROWS_A_SECOND
    )
    return {
        "lake": name, "tables": tables, "rows": tables * rows, "start_s": round(start.seconds, 2),
        "seconds": round(seconds, 2), "table_s": round(seconds / tables, 3), "rows_s": round(tables * rows / seconds),
        "peak_mb": peak,
        "ok": "ok" if fast and peak <= start.peak_mb + MEMORY_MB else "MISSED",
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the large table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output")
    args = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    flags = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "max_binlog_size": 1 << 30}
    with MySQLServer.start(flags=flags) as mysql, tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spark = build_session("benchmark", OPTIMIZING, quiet=True)
        shapes = {"no_rows": (1, 0), "small": (40, 10_000), "medium": (4, 20_000), "large": (1, args.rows)}
        files = {name: make(mysql, spark, scratch, name, *shape) for name, shape in shapes.items()}
        verify(files["no_rows"])  # loads what later ones find loaded
        starts = sorted((verify(files["no_rows"]) for _ in range(args.rounds)), key=lambda run: run.seconds)
        start = starts[len(starts) // 2]
        rows = [measure(name, files[name], *shapes[name], start, args.rounds) for name in ("small", "medium", "large")]
        step = max(1, args.rows // DIFFERENT)
        mysql.execute("SET sql_log_bin = 0", f"UPDATE large.t0 SET amount = amount + 1 WHERE id % {step} = 0")
        number = int(mysql.query(f"SELECT COUNT(*) FROM large.t0 WHERE id % {step} = 0")[0][0])
        rows.append(measure("differs", files["large"], *shapes["large"], start, args.rounds, number))
        spark.stop()
    return report("verify", rows, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
