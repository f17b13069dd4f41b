"""From the commit to a reader: ``python -m benchmarks.freshness [--shapes NAME,… | --full] [--output FILE]``.

A private MySQL gets transactions of one row at a held rate. ``headgate run``, a process of its own, writes them into
Delta tables. This process has no code of headgate for reading: delta-rs finds each new row of the ledger, and what its
GTID set holds is visible from then on. Every few seconds it opens the changed table at the version that the ledger row
names, and reads the number of the newest transaction in it, which must be the last one of that GTID set.

| shape | tables | rows of each | changing | transactions a second | written |
|---|---|---|---|---|---|
| ``large`` | 1 | 2,000,000 | 1 | 1,000 | ``current`` |
| ``binary`` | the same with a key BINARY(16) | | | | |
| ``text`` | the same with a key (VARCHAR, DATETIME(6)) | | | | |
| ``medium`` | 1 | 500,000 | 1 | 100 | ``current`` |
| ``many`` | 40 | 10,000 | 20 | 200 | ``current`` |
| ``keyless`` | 8, one without a key | 200,000 | 8 | 400 | ``current`` |
| ``changelog`` | 1 | 2,000,000 | 1 | 1,000 | ``changelog`` |
| ``both`` | 1 | 2,000,000 | 1 | 1,000 | both |
| ``slow``, ``fast`` | 1 | 2,000,000 | 1 | 100, 5,000 | ``current`` |
| ``thousand`` | 1,000 | 1,000 | 50 | 200 | ``current`` |
| ``huge`` | 1 | 50,000,000 | 1 | 1,000 | ``current`` |
| ``cluster``, ``s3`` | as ``medium``; by a standalone cluster of two workers, into a bucket of MinIO | | | | |

Those from ``both`` on are measured with ``--full`` only, or if they are named. A shape that ``--output`` holds already
is not measured again: a run that was ended goes on where it stopped.

- ``p50_s``, ``p99_s``: from when a transaction was sent to when its ledger row was read;
- ``tx_s``: the reached rate; ``batch_s``: median time between two ledger rows;
- ``read_s``: median time of a look into the table;
- ``merge_s``: MERGEs by Spark of what one batch has changed, folded and in memory, into copies of its tables;
  ``ratio``: how many times as long that takes as the whole batch did, the reading of MySQL's log included;
- ``anonymous_mb``, ``mapped_mb``: the run's processes together, memory of their own, and pages of files: the most that
  was seen, every few seconds of the measured time; ``driver_mb``, ``java_mb``, ``task_mb``: anonymous memory of the
  driver's Python, of Java, and of the largest Python process of a task.

Bounds on two cores: ``large`` p50 1.2 s and p99 3 s, ``binary`` and ``text`` 1.5 times as much; ``medium`` p50 0.9 s;
``many`` p50 2.5 s and 2 s a batch; ``keyless`` p50 1.5 s; ``changelog`` p50 1 s and p99 2.5 s; ``thousand`` 5 s a
batch; ``huge`` p50 2 s, and 1 GB of anonymous memory a process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from benchmarks._bench import DB, SCHEMA, fill, progress, report
from benchmarks._load import Commits, SteadyWriter
from benchmarks._merges import merge_seconds
from headgate.archives import delta_jars
from headgate_testing import MySQLServer, ObjectStore, SparkCluster, s3_jars

POLL_SECONDS = 0.01
LEDGER = "_headgate/ledger"
ROOMY = {"spark.driver.memory": "3g"}
"""Settings of Spark with which Java is no bottleneck."""
LOOK_SECONDS = 5.0
READY_SECONDS = 900.0
COLUMNS = "customer_id INT, status VARCHAR(16), amount DECIMAL(12,2), note VARCHAR(100), flag TINYINT, mark BIGINT"
KEYS = {
    "bigint": ("id BIGINT PRIMARY KEY", "id", "id = {0}", ["id"]),
    "binary": (
        "id BINARY(16) PRIMARY KEY",
        "LEFT(UNHEX(SHA2(id, 256)), 16)",
        "id = LEFT(UNHEX(SHA2({0}, 256)), 16)",
        ["id"],
    ),
    "text": (
        "name VARCHAR(40), at DATETIME(6), PRIMARY KEY (name, at)",
        "CONCAT('customer ', id), TIMESTAMPADD(MICROSECOND, id, '2024-01-01')",
        "name = 'customer {0}' AND at = TIMESTAMPADD(MICROSECOND, {0}, '2024-01-01')",
        ["name", "at"],
    ),
    "none": ("id BIGINT, INDEX (id)", "id", "id = {0}", []),
}
"""Of each key: its columns' definitions; their values of a row's number; a condition on a row's number; their names."""


@dataclass(frozen=True)
class Shape:
    """What is written: ``rate`` transactions a second into ``changing`` of ``tables`` tables of ``rows`` rows."""

    name: str
    tables: int
    rows: int
    changing: int
    rate: int
    key: str = "bigint"
    keyless: int = 0
    """How many of the tables, from ``t0`` on, have no key."""
    mode: tuple[str, ...] = ("current",)
    place: str = "folder"
    """One of ``PLACES``."""
    p50: float = 0.0
    p99: float = 0.0
    batch: float = 0.0
    """Bounds in seconds; 0: none."""
    process_mb: int = 0
    """Bound of each process's anonymous memory; 0: none."""


SHAPES = [
    Shape("large", 1, 2_000_000, 1, 1000, p50=1.2, p99=3.0),
    Shape("binary", 1, 2_000_000, 1, 1000, "binary", p50=1.8, p99=4.5),
    Shape("text", 1, 2_000_000, 1, 1000, "text", p50=1.8, p99=4.5),
    Shape("medium", 1, 500_000, 1, 100, p50=0.9),
    Shape("many", 40, 10_000, 20, 200, p50=2.5, batch=2.0),
    Shape("keyless", 8, 200_000, 8, 400, keyless=1, p50=1.5),
    Shape("changelog", 1, 2_000_000, 1, 1000, mode=("changelog",), p50=1.0, p99=2.5),
]
MORE_SHAPES = [
    Shape("cluster", 1, 500_000, 1, 100, place="cluster"),
    Shape("s3", 1, 500_000, 1, 100, place="s3"),
    Shape("both", 1, 2_000_000, 1, 1000, mode=("current", "changelog")),
    Shape("slow", 1, 2_000_000, 1, 100),
    Shape("fast", 1, 2_000_000, 1, 5000),
    Shape("thousand", 1000, 1_000, 50, 200, batch=5.0),
    Shape("huge", 1, 50_000_000, 1, 1000, p50=2.0, process_mb=1024),
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
    memory: list[Memory] = field(default_factory=list)
    versions: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Of each table: of ``current`` and of the changelog."""


@dataclass(frozen=True)
class Place:
    """A lake, as readers without headgate reach it."""

    uri: str
    options: Mapping[str, str] | None = None
    """For delta-rs; None: it is a folder."""
    files: pafs.FileSystem | None = None

    def open(self, table: str, version: int | None = None) -> DeltaTable:
        """A table of the lake by its path there."""
        options = None if self.options is None else dict(self.options)
        return DeltaTable(f"{self.uri}/{table}", version=version, storage_options=options)

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        if self.files is None:
            return Path(self.uri, path).exists()
        return bool(self.files.get_file_info(f"{self.uri.removeprefix('s3://')}/{path}").is_file)


@contextmanager
def folder_place(folder: Path) -> Iterator[tuple[Place, Mapping[str, str]]]:
    """A folder, and a Spark of one process with its default settings."""
    yield Place(str(folder / "lake")), {}


@contextmanager
def cluster_place(folder: Path) -> Iterator[tuple[Place, Mapping[str, str]]]:
    """A folder that a standalone cluster of a master and two workers shares."""
    with SparkCluster.start() as cluster:
        settings = {"spark.master": cluster.master, "spark.executor.memory": "1g", "spark.driver.host": "127.0.0.1"}
        yield Place(str(folder / "lake")), {**ROOMY, **settings, "spark.jars": _jars()}


@contextmanager
def s3_place(_folder: Path) -> Iterator[tuple[Place, Mapping[str, str]]]:
    """A bucket of MinIO, and a Spark of one process."""
    with ObjectStore.start() as store:
        yield s3_lake(store)


def s3_lake(store: ObjectStore) -> tuple[Place, Mapping[str, str]]:
    """A lake in a new bucket of the store, and settings of Spark."""
    bucket = store.create_bucket("fresh")
    options = {
        "AWS_ENDPOINT_URL": store.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key,
    }  # fmt: skip
    settings = {f"spark.{name}": value for name, value in store.hadoop_settings.items()}
    place = Place(f"{bucket.replace('s3a', 's3')}/lake", options, store.file_system())
    return place, {**ROOMY, **settings, "spark.jars": _jars(*s3_jars())}


PLACES = {"folder": folder_place, "cluster": cluster_place, "s3": s3_place}
"""Where lakes are: of each, the lake and settings of Spark."""


def _jars(*more: Path) -> str:
    return ",".join([*delta_jars(), *map(str, more)])


class Ledger:
    """The ledger of a lake, read by delta-rs."""

    def __init__(self, lake: Place | Path) -> None:
        self._lake = lake if isinstance(lake, Place) else Place(str(lake))
        self._table: DeltaTable | None = None
        self._known: set[str] = set()

    def newest(self) -> dict[str, Any] | None:
        """The newest row, if there is one that the last call did not see."""
        version = 0 if self._table is None else self._table.version() + 1
        if not self._lake.has(f"{LEDGER}/_delta_log/{version:020d}.json"):
            return None
        if self._table is None:
            self._table = self._lake.open(LEDGER)
        self._table.update_incremental()
        files = set(self._table.file_uris())
        parts = [pq.read_table(name.removeprefix("s3://"), filesystem=self._lake.files) for name in files - self._known]
        rows = [row for table in parts for row in table.to_pylist()]
        self._known = files
        return max(rows, key=lambda row: row["batch_id"], default=None)


def last_of(gtid: str) -> int:
    """The last number of the only UUID of a GTID set."""
    return int(gtid.rpartition(":")[2].rpartition("-")[2])


def make(mysql: MySQLServer, shape: Shape) -> None:
    """The tables ``t0``, ``t1``, …"""
    progress(f"{shape.name}: {shape.tables} tables of {shape.rows:,} rows, key {shape.key}")
    mysql.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.made ({SCHEMA})")
    fill(mysql, f"{DB}.made", shape.rows)
    rest = "customer_id, status, amount, note, flag, NULL"
    for number in range(shape.tables):
        columns, values, _, _ = KEYS["none" if number < shape.keyless else shape.key]
        mysql.execute(f"CREATE TABLE {DB}.t{number} ({columns}, {COLUMNS})")
        for low in range(0, shape.rows, 100_000):
            chosen = f"id >= {low} AND id < {low + 100_000}"
            mysql.execute(f"INSERT INTO {DB}.t{number} SELECT {values}, {rest} FROM {DB}.made WHERE {chosen}")
    mysql.execute(f"DROP TABLE {DB}.made")


@contextmanager
def running(
    folder: Path,
    mysql: MySQLServer,
    mode: Sequence[str] = ("current",),
    spark: Mapping[str, str] = ROOMY,
    retention_hours: float = 6,
    lake: str | None = None,
    freshness_ms: int | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """``headgate run`` of all tables into a lake, by default ``folder/lake``; its log is ``folder/run.log``.

    :param spark: settings; none: as it is for a user who says nothing.
    :param freshness_ms: of the target; None: the default.
    """
    settings = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in spark.items())
    file = folder / "pipeline.toml"
    file.write_text(
        f'name = "fresh"\n[source]\nurl = "{mysql.url}/?tls=disabled"\ntables = ["{DB}.*"]\n'
        f'[target]\npath = "{lake or folder / "lake"}"\nmode = {json.dumps(list(mode))}\n'
        f"retention_hours = {retention_hours}\n"
        + ("" if freshness_ms is None else f"freshness_ms = {freshness_ms}\n")
        + f"[spark]\n{settings}"
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


def follow(run: subprocess.Popen[bytes], lake: Place, ledger: Ledger, shape: Shape, first: int, seconds: float) -> Seen:
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
        seen.versions |= {table["table"]: (table["version"], table["changelog_version"]) for table in row["tables"]}
        done = seen.last[-1] - first + 1
        if time.monotonic() >= look and done > shape.changing:
            begun = time.perf_counter()
            check(lake, seen.versions, shape, done)
            seen.looks.append(time.perf_counter() - begun)
            seen.memory.append(memory_mb(run.pid))
            look = time.monotonic() + LOOK_SECONDS
    return seen


def check(lake: Place, versions: dict[str, tuple[int | None, int | None]], shape: Shape, done: int) -> None:
    """That the table of the last transaction holds it, and none of later ones."""
    name = f"t{done % shape.changing}"
    current, changelog = versions[f"{DB}.{name}"]
    logged = "current" not in shape.mode
    table = lake.open(paths(shape)[name], version=changelog if logged else current)
    newest = pa.table(QueryBuilder().register("t", table).execute("SELECT max(mark) FROM t").read_all())
    if newest.column(0)[0].as_py() != done:
        raise RuntimeError(f"{name} holds transaction {newest.column(0)[0]} as the newest, not {done}")


def paths(shape: Shape) -> dict[str, str]:
    """The changing tables' paths in the lake: of ``current``, if that is written."""
    base = DB if "current" in shape.mode else f"_changelog/{DB}"
    return {f"t{number}": f"{base}/t{number}" for number in range(shape.changing)}


def delays(seen: Seen, commits: Commits, from_us: int) -> Any:
    """Seconds from a transaction to the first ledger row that holds it, of those that were sent since ``from_us``."""
    numbers = commits.first + np.arange(len(commits.at_us))
    place = np.searchsorted(np.array(seen.last), numbers, "left")
    counts = (commits.at_us >= from_us) & (place < len(seen.last))
    return (np.array(seen.at_us)[place[counts]] - commits.at_us[counts]) / 1e6


class Memory(NamedTuple):
    """Memory of a run's processes, in MB. Pages that forked processes share count once (``Pss``, proc(5))."""

    anonymous: int
    mapped: int
    driver: int
    """Anonymous memory of the process itself, of Java, and of the largest other one."""
    java: int
    task: int


def memory_mb(process: int) -> Memory:
    """Measure a process and all below it."""
    kinds: dict[str, list[int]] = {"driver": [0], "java": [0], "task": [0]}
    mapped = 0
    driver = psutil.Process(process)
    for one in (driver, *driver.children(recursive=True)):
        with suppress(OSError, psutil.Error):
            kind = "driver" if one == driver else "java" if one.name() == "java" else "task"
            anonymous, of_files = memory_of(one.pid)
            kinds[kind].append(anonymous)
            mapped += of_files
    largest = (max(values) >> 10 for values in kinds.values())
    return Memory(sum(map(sum, kinds.values())) >> 10, mapped >> 10, *largest)


def memory_of(process: int) -> tuple[int, int]:
    """The same of one process; KB."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    values = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return values["Pss_Anon"], values["Pss_File"]


def measure(shape: Shape, warm: float, seconds: float, keep: Path | None) -> dict[str, Any]:
    flags = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "max_binlog_size": 1 << 28}
    with MySQLServer.start(flags=flags) as mysql, tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        make(mysql, shape)
        lake, settings = stack.enter_context(PLACES[shape.place](folder))
        ledger = Ledger(lake)
        with running(
            folder, mysql, shape.mode, settings, lake=lake.uri.replace("s3:", "s3a:"), freshness_ms=1000
        ) as run:
            wait_until_live(run, ledger, shape.tables)
            progress(f"{shape.name}: all tables are live; writing for {warm + seconds:.0f} s")
            first = last_of(str(mysql.query("SELECT @@global.gtid_executed")[0][0])) + 1
            with SteadyWriter(mysql, Marks(shape), shape.rate, group=max(1, shape.rate // 50)) as writer:
                follow(run, lake, ledger, shape, first, warm)
                from_us = time.time_ns() // 1000
                seen = follow(run, lake, ledger, shape, first, seconds)
                seen.memory.append(memory_mb(run.pid))
        memory = Memory(*map(max, zip(*seen.memory, strict=True)))
        taken = delays(seen, writer.commits, from_us)
        batch = median((after - before) / 1e6 for before, after in pairwise(seen.at_us))
        p50, p99 = (float(np.percentile(taken, share)) for share in (50, 99))
        process = max(memory.driver, memory.java, memory.task)
        bounds = ((p50, shape.p50), (p99, shape.p99), (batch, shape.batch), (process, shape.process_mb))
        missed = any(bound and value > bound for value, bound in bounds)
        result = {
            "shape": shape.name, "tables": shape.tables, "rows": shape.rows, "key": shape.key,
            "mode": " ".join(shape.mode), "tx_s": round(writer.commits.rate(from_us, seen.at_us[-1])),
            "batches": len(seen.at_us), "batch_s": round(batch, 2), "p50_s": round(p50, 2), "p99_s": round(p99, 2),
            "read_s": round(median(seen.looks), 2) if seen.looks else "",
            "merge_s": "", "ratio": "", "anonymous_mb": memory.anonymous, "mapped_mb": memory.mapped,
            "driver_mb": memory.driver, "java_mb": memory.java, "task_mb": memory.task,
            "ok": "MISSED" if missed else "ok",
        }  # fmt: skip
        if "current" in shape.mode and shape.place == "folder" and not shape.keyless:
            progress(f"{shape.name}: what a batch has changed by MERGE")
            merge = merge_seconds(
                [Path(lake.uri, path) for path in paths(shape).values()], KEYS[shape.key][3], folder / "merged"
            )
            result |= {"merge_s": round(merge, 2), "ratio": round(merge / batch, 1)}
        return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = {shape.name: shape for shape in (*SHAPES, *MORE_SHAPES)}
    parser.add_argument("--shapes", help=f"some of {', '.join(shapes)}")
    parser.add_argument("--full", action="store_true", help="all shapes")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds of writing before it is measured")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds that are measured")
    parser.add_argument("--keep", type=Path, help="keep lakes and logs in this folder, one of each shape")
    parser.add_argument("--output")
    args = parser.parse_args()
    chosen = args.shapes.split(",") if args.shapes else [*shapes] if args.full else [shape.name for shape in SHAPES]
    if unknown := sorted({*chosen} - {*shapes}):
        parser.error(f"no such shape: {', '.join(unknown)}")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    output = Path(args.output) if args.output else None
    rows = json.loads(output.read_text())["results"] if output is not None and output.exists() else []
    missed = 0
    for name in chosen:
        if not any(row["shape"] == name for row in rows):
            rows.append(measure(shapes[name], args.warm, args.seconds, args.keep and args.keep / name))
            missed = report("freshness", rows, output=args.output)
    return missed


if __name__ == "__main__":
    sys.exit(main())
