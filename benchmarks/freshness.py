"""From the commit to a reader: ``python -m benchmarks.freshness [--shapes NAME,…] [--seconds N] [--output FILE]``.

A private MySQL gets transactions of one row at a held rate. ``headgate run``, a process of its own, writes them into
``current``. This process has no code of headgate for reading: delta-rs finds each new row of the ledger, and what its
GTID set holds is visible from then on. Every few seconds it opens the changed table at the version that the ledger row
names, and reads the number of the newest transaction in it, which must be the last one of that GTID set.

| shape | tables | rows of each | changing | transactions a second |
|---|---|---|---|---|
| ``large`` | 1 | 2,000,000 | 1 | 1,000 |
| ``binary`` | the same with a key BINARY(16) | | | |
| ``text`` | the same with a key (VARCHAR, DATETIME(6)) | | | |
| ``medium`` | 1 | 500,000 | 1 | 100 |
| ``many`` | 40 | 10,000 | 20 | 200 |

- ``p50_s``, ``p99_s``: from when a transaction was sent to when its ledger row was read;
- ``tx_s``: the reached rate; ``batch_s``: median time between two ledger rows;
- ``read_s``: median time of a look into the table; ``merges``: commits of the changed tables that were a MERGE;
- ``anonymous_mb``: the run's processes together, at the most; the pages that they map of files are not in it.

Bounds on two cores: ``large`` p50 1.2 s and p99 3 s, ``binary`` and ``text`` 1.5 times as much; ``medium`` p50 0.9 s;
``many`` p50 2.5 s and 2 s a batch.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from benchmarks._bench import DB, SCHEMA, fill, progress, report
from benchmarks._load import Commits, SteadyWriter
from headgate.testing import MySQLServer

POLL_SECONDS = 0.01
LOOK_SECONDS = 5.0
READY_SECONDS = 900.0
COLUMNS = "customer_id INT, status VARCHAR(16), amount DECIMAL(12,2), note VARCHAR(100), flag TINYINT, mark BIGINT"
KEYS = {
    "bigint": ("id BIGINT PRIMARY KEY", "id", "id = {0}"),
    "binary": ("id BINARY(16) PRIMARY KEY", "LEFT(UNHEX(SHA2(id, 256)), 16)", "id = LEFT(UNHEX(SHA2({0}, 256)), 16)"),
    "text": (
        "name VARCHAR(40), at DATETIME(6), PRIMARY KEY (name, at)",
        "CONCAT('customer ', id), TIMESTAMPADD(MICROSECOND, id, '2024-01-01')",
        "name = 'customer {0}' AND at = TIMESTAMPADD(MICROSECOND, {0}, '2024-01-01')",
    ),
}
"""Of each key: its columns; their values of a row's number; a condition on a row's number."""


@dataclass(frozen=True)
class Shape:
    """What is written: ``rate`` transactions a second into ``changing`` of ``tables`` tables of ``rows`` rows."""

    name: str
    tables: int
    rows: int
    changing: int
    rate: int
    key: str = "bigint"
    p50: float = 0.0
    p99: float = 0.0
    batch: float = 0.0
    """Bounds in seconds; 0: none."""


SHAPES = [
    Shape("large", 1, 2_000_000, 1, 1000, p50=1.2, p99=3.0),
    Shape("binary", 1, 2_000_000, 1, 1000, "binary", p50=1.8, p99=4.5),
    Shape("text", 1, 2_000_000, 1, 1000, "text", p50=1.8, p99=4.5),
    Shape("medium", 1, 500_000, 1, 100, p50=0.9),
    Shape("many", 40, 10_000, 20, 200, p50=2.5, batch=2.0),
]


@dataclass
class Marks:
    """Transactions that each update a random row; the n-th one, from 1, writes n into table ``n % changing``."""

    shape: Shape
    number: int = 0

    def __call__(self, choice: random.Random) -> str:
        self.number += 1
        where = KEYS[self.shape.key][2].format(choice.randrange(self.shape.rows))
        table = f"t{self.number % self.shape.changing}"
        return f"UPDATE {table} SET amount = amount + 0.01, mark = {self.number} WHERE {where}"


@dataclass
class Seen:
    """What the reader saw of the ledger: when, and up to which transaction."""

    at_us: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)


class Ledger:
    """The ledger of a lake, read by delta-rs."""

    def __init__(self, lake: Path) -> None:
        self._path = lake / "_headgate" / "ledger"
        self._table: DeltaTable | None = None
        self._known: set[str] = set()

    def newest(self) -> dict[str, Any] | None:
        """The newest row, if there is one that the last call did not see."""
        if self._table is None:
            if not (self._path / "_delta_log" / f"{0:020d}.json").exists():
                return None
            self._table = DeltaTable(self._path)
        elif not (self._path / "_delta_log" / f"{self._table.version() + 1:020d}.json").exists():
            return None
        self._table.update_incremental()
        files = set(self._table.file_uris())
        rows = [row for name in files - self._known for row in pq.read_table(name).to_pylist()]
        self._known = files
        return max(rows, key=lambda row: row["batch_id"], default=None)


def last_of(gtid: str) -> int:
    """The last number of the only UUID of a GTID set."""
    return int(gtid.rpartition(":")[2].rpartition("-")[2])


def make(mysql: MySQLServer, shape: Shape) -> None:
    """The tables ``t0``, ``t1``, …"""
    progress(f"{shape.name}: {shape.tables} tables of {shape.rows:,} rows, key {shape.key}")
    columns, values, _ = KEYS[shape.key]
    mysql.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.made ({SCHEMA})")
    fill(mysql, f"{DB}.made", shape.rows)
    rest = "customer_id, status, amount, note, flag, NULL"
    for number in range(shape.tables):
        mysql.execute(f"CREATE TABLE {DB}.t{number} ({columns}, {COLUMNS})")
        for low in range(0, shape.rows, 100_000):
            chosen = f"id >= {low} AND id < {low + 100_000}"
            mysql.execute(f"INSERT INTO {DB}.t{number} SELECT {values}, {rest} FROM {DB}.made WHERE {chosen}")
    mysql.execute(f"DROP TABLE {DB}.made")


@contextmanager
def running(folder: Path, mysql: MySQLServer) -> Iterator[subprocess.Popen[bytes]]:
    """``headgate run`` of all tables into ``folder/lake``; its log is ``folder/run.log``."""
    file = folder / "pipeline.toml"
    file.write_text(
        f'name = "fresh"\n[source]\nurl = "{mysql.url}/?tls=disabled"\ntables = ["{DB}.*"]\n'
        f'[target]\npath = "{folder / "lake"}"\n[spark]\n"spark.driver.memory" = "3g"\n'
    )
    command = [sys.executable, "-m", "headgate.cli", "run", str(file)]
    with (
        (folder / "run.log").open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_live(run: subprocess.Popen[bytes], ledger: Ledger, tables: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and run.poll() is None:
        row = ledger.newest()
        if row is not None and sum(table["state"] == "live" for table in row["tables"]) == tables:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the tables did not get live (exit code {run.poll()})")


def follow(run: subprocess.Popen[bytes], lake: Path, ledger: Ledger, shape: Shape, first: int, seconds: float) -> Seen:
    """Watch the ledger for a while, and look into the tables."""
    seen = Seen()
    until, look = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < until:
        if run.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {run.returncode}")
        row = ledger.newest()
        if row is None:
            time.sleep(POLL_SECONDS)
            continue
        seen.at_us.append(time.time_ns() // 1000)
        seen.last.append(last_of(row["gtid"]))
        seen.versions |= {table["table"]: table["version"] for table in row["tables"]}
        done = seen.last[-1] - first + 1
        if time.monotonic() >= look and done > shape.changing:
            begun = time.perf_counter()
            check(lake, seen.versions, shape, done)
            seen.looks.append(time.perf_counter() - begun)
            look = time.monotonic() + LOOK_SECONDS
    return seen


def check(lake: Path, versions: dict[str, int], shape: Shape, done: int) -> None:
    """That the table of the last transaction holds it, and none of later ones."""
    name = f"t{done % shape.changing}"
    table = DeltaTable(lake / DB / name, version=versions[f"{DB}.{name}"])
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT max(mark) FROM t").read_all())
    if found.column(0)[0].as_py() != done:
        raise RuntimeError(f"{name} holds transaction {found.column(0)[0]} as the newest, not {done}")


def delays(seen: Seen, commits: Commits, from_us: int) -> Any:
    """Seconds from a transaction to the first ledger row that holds it, of those that were sent since ``from_us``."""
    numbers = commits.first + np.arange(len(commits.at_us))
    place = np.searchsorted(np.array(seen.last), numbers, "left")
    counts = (commits.at_us >= from_us) & (place < len(seen.last))
    return (np.array(seen.at_us)[place[counts]] - commits.at_us[counts]) / 1e6


def merges(lake: Path, shape: Shape) -> tuple[int, int]:
    """Of the commits that changed rows of changing tables: how many were a MERGE, and how many there are."""
    found = []
    for number in range(shape.changing):
        for path in (lake / DB / f"t{number}" / "_delta_log").glob("*.json"):
            found += [json.loads(line)["commitInfo"]["operation"] for line in path.open() if '"commitInfo"' in line]
    changes = [name for name in found if name in ("MERGE", "STREAMING UPDATE")]
    return changes.count("MERGE"), len(changes)


def anonymous_mb(process: int) -> int:
    """Anonymous memory of a process and all below it, MB."""
    found = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            values = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            parent, each = int(values["PPid"]), int(status.parent.name)
            while each != process and parent > 1:
                each, parent = parent, int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
            if each == process:
                found += int(values.get("RssAnon", "0 kB").split()[0]) >> 10
        except (OSError, KeyError):
            continue
    return found


def measure(shape: Shape, warm: float, seconds: float, keep: Path | None) -> dict[str, Any]:
    flags = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "max_binlog_size": 1 << 28}
    with MySQLServer.start(flags=flags) as mysql, tempfile.TemporaryDirectory() as scratch:
        folder = keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        make(mysql, shape)
        lake, ledger = folder / "lake", Ledger(folder / "lake")
        with running(folder, mysql) as run:
            wait_until_live(run, ledger, shape.tables)
            progress(f"{shape.name}: all tables are live; writing for {warm + seconds:.0f} s")
            first = last_of(str(mysql.query("SELECT @@global.gtid_executed")[0][0])) + 1
            with SteadyWriter(mysql, Marks(shape), shape.rate, group=max(1, shape.rate // 50)) as writer:
                follow(run, lake, ledger, shape, first, warm)
                from_us = time.time_ns() // 1000
                seen = follow(run, lake, ledger, shape, first, seconds)
                memory = anonymous_mb(run.pid)
        taken = delays(seen, writer.commits, from_us)
        batches = [(after - before) / 1e6 for before, after in pairwise(seen.at_us)]
        merged, changed = merges(lake, shape)
        p50, p99 = (float(np.percentile(taken, share)) for share in (50, 99))
        batch = median(batches)
        bounds = ((p50, shape.p50), (p99, shape.p99), (batch, shape.batch))
        missed = any(bound and value > bound for value, bound in bounds)
        return {
            "shape": shape.name, "tables": shape.tables, "rows": shape.rows, "key": shape.key,
            "tx_s": round(writer.commits.rate(from_us, seen.at_us[-1])), "batches": len(seen.at_us),
            "batch_s": round(batch, 2), "p50_s": round(p50, 2), "p99_s": round(p99, 2),
            "read_s": round(median(seen.looks), 2) if seen.looks else "", "merges": f"{merged} of {changed}",
            "anonymous_mb": memory, "ok": "MISSED" if missed else "ok",
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [shape.name for shape in SHAPES]
    parser.add_argument("--shapes", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds of writing before it is measured")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds that are measured")
    parser.add_argument("--keep", type=Path, help="keep lakes and logs in this folder, one of each shape")
    parser.add_argument("--output")
    args = parser.parse_args()
    chosen = args.shapes.split(",")
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"no such shape: {', '.join(unknown)}")
    rows = [
        measure(shape, args.warm, args.seconds, args.keep and args.keep / shape.name)
        for shape in SHAPES
        if shape.name in chosen
    ]
    return report("freshness", rows, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
