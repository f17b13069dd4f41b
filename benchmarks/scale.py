"""How cost grows with its work: ``python -m benchmarks.scale [--axes NAME,… | --large] [--output FILE]``.

A private MySQL gets some work, and ``headgate run --once``, a process of its own, brings it into Delta tables. Each
axis has points of growing size, each with a database and a lake of its own:

| axis | a point is | unit of work | large |
|---|---|---|---|
| ``backlog`` | MB of log, in transactions of 1,000 new rows of 1 kB | MB | 10,240 |
| ``transaction`` | MB of one transaction of new rows of 2 kB | MB | 2,048 |
| ``history`` | the same into ``history`` | MB | |
| ``partial`` | MB of one transaction that changes rows of 2 kB, whose images leave columns out (``MINIMAL``) | MB | |
| ``small`` | rows of some 20 bytes that one transaction changes | row | |
| ``rows`` | rows of some 20 bytes of a table that is read | row | 50,000,000 |
| ``tables`` | tables of 10 rows that are read | table | 2,000 |
| ``changing`` | the same tables, a row of each changed by a transaction of its own | table | 2,000 |
| ``columns`` | columns of a table of 4,000,000 cells, all rows of which change | cell | |
| ``width`` | bytes of a row, of rows of 128 MB together that are inserted | MB | |
| ``wide`` | bytes of a row, of a table of 512 MB that is read | MB | |

Measured of each run, from ``/proc`` five times a second:

- ``seconds``, ``cpu_s``: wall and CPU seconds, of the run with all its processes, less those of a run that finds
  nothing;
- ``driver_mb``, ``java_mb``, ``task_mb``: the most anonymous memory of the driver's Python, of Java, and of the largest
  Python process of a task; ``task_peak_mb``: the most resident memory of such a process, mapped files included;
- ``images_mb``: the most bytes of Spark's folder, which has the images of a batch;
- ``batches``, ``files``, ``lake_mb``: rows of the ledger, data files and bytes of the lake that the run has made.

After each run delta-rs counts the rows of the lake, which must be those of MySQL.

``exponent`` of an axis: by which power of the size the CPU seconds of one unit of work grow at its largest three points
(the slope of their logarithms). 0: cost grows as the work does; small points have the costs of a batch, however small,
and would hide a growth. Bounds: an exponent of at most 0.15; ``task_mb`` at most 1,024. The memory
of the driver may grow with the keys of a batch: ``driver_mb`` has no bound.

With ``--large`` only the large points are measured. A point that ``--output`` holds already is not measured again, nor
is the run that finds nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median
from typing import Any, Final

import psutil
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from benchmarks._bench import progress, report
from headgate_testing import MySQLServer

SEED_ROWS: Final = 1 << 20
LOOK_SECONDS: Final = 0.2
PATIENCE: Final = 1800.0
EXPONENT_BOUND: Final = 0.15
TASK_MB: Final = 1024
MB: Final = 1 << 20
CELLS: Final = 4_000_000
WIDTH_MB: Final = 128
WIDE_MB: Final = 512
FLAGS: Final = {
    "innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "innodb_doublewrite": False,
    "loose_innodb_redo_log_capacity": 1 << 30, "max_binlog_size": 256 << 20, "table_definition_cache": 10_000,
    "table_open_cache": 10_000,
}  # fmt: skip
LEAST_SECONDS: Final = 0.05
"""What a point costs beside an idle run, at least: less is noise."""


class Source:
    """A database of the server with its work."""

    def __init__(self, mysql: MySQLServer, db: str) -> None:
        self.mysql, self.db = mysql, db
        mysql.execute(f"CREATE DATABASE {db}")

    def do(self, *statements: str) -> None:
        """Run statements in the database, in one session, each in a transaction of its own."""
        with self.mysql.connect(database=self.db) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def make(self, row_bytes: int, table: str = "t") -> None:
        """A table for rows of so many bytes."""
        self.do(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v INT, {'pad LONGTEXT' if row_bytes > 20 else 'w INT'})")

    def insert(self, rows: int, row_bytes: int, together: int) -> None:
        """New rows, in transactions of so many.

        :param together: at most ``SEED_ROWS``.
        """
        pad = f"REPEAT(SHA2({{0}} + n, 256), {max(1, row_bytes // 64)})" if row_bytes > 20 else "n % 7"
        self.do(
            *(
                f"INSERT INTO t SELECT {first} + n, n % 1000, {pad.format(first)} FROM seed.numbers"
                f" WHERE n < {min(together, rows - first)}"
                for first in range(0, rows, together)
            )
        )

    def tables(self) -> list[str]:
        """Return the names of its tables."""
        return [str(name) for (name,) in self.mysql.query(f"SHOW TABLES FROM {self.db}")]

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return int(self.mysql.query(f"SELECT COUNT(*) FROM {self.db}.{table}")[0][0])


# --- what each axis has of a size: before the run that counts, and for it


def backlog(source: Source, size: int) -> None:
    source.insert(size * 1000, 1024, 1000)


def transaction(source: Source, size: int) -> None:
    source.insert(size * 500, 2048, SEED_ROWS)


def partial_table(source: Source, size: int) -> None:
    source.make(2048)
    source.insert(size * 500, 2048, SEED_ROWS)


def partial(source: Source, size: int) -> None:
    del size
    source.do("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET pad = CONCAT(pad, 'x')")


def small_table(source: Source, size: int) -> None:
    source.make(20)
    source.insert(size, 20, SEED_ROWS)


def small(source: Source, size: int) -> None:
    del size
    source.do("UPDATE t SET v = v + 1")


def tables(source: Source, size: int) -> None:
    rows = ", ".join(f"({number}, 0, 0)" for number in range(10))
    source.do(
        *(
            statement
            for number in range(size)
            for statement in (
                f"CREATE TABLE t{number} (id BIGINT PRIMARY KEY, v INT, w INT)",
                f"INSERT INTO t{number} VALUES {rows}",
            )
        )
    )


def changing(source: Source, size: int) -> None:
    source.do(*(f"UPDATE t{number} SET v = v + 1 WHERE id = 3" for number in range(size)))


def columns_table(source: Source, size: int) -> None:
    others = range(size - 1)
    source.do(f"CREATE TABLE t (id BIGINT PRIMARY KEY, {', '.join(f'c{number} INT' for number in others)})")
    values = ", ".join(f"n % {number + 2}" for number in others)
    source.do(f"INSERT INTO t SELECT n, {values} FROM seed.numbers WHERE n < {CELLS // size}")


def columns(source: Source, size: int) -> None:
    del size
    source.do("UPDATE t SET c0 = c0 + 1")


def width(source: Source, size: int) -> None:
    source.insert(WIDTH_MB * MB // size, size, max(1, MB // size))


def wide_table(source: Source, size: int) -> None:
    source.make(size)
    source.insert(WIDE_MB * MB // size, size, max(1, 64 * MB // size))
    source.do("ANALYZE TABLE t")


def table_of(row_bytes: int) -> Callable[[Source, int], None]:
    """Return what makes an empty table."""
    return lambda source, _size: source.make(row_bytes)


@dataclass(frozen=True)
class Axis:
    """What grows."""

    name: str
    unit: str
    sizes: Sequence[int]
    before: Callable[[Source, int], None]
    """Before the first run."""
    work: Callable[[Source, int], None] | None
    """After the first run; the second one counts. None: the first one counts."""
    units: Callable[[int], float] = float
    """Of a size: its units of work."""
    large: int | None = None
    mode: str = "current"
    window: str = "rewind"


AXES: Final = [
    Axis("backlog", "MB", (64, 256, 1024, 4096), table_of(1024), backlog, large=10_240),
    Axis("transaction", "MB", (32, 128, 512), table_of(2048), transaction, large=2_048),
    Axis("history", "MB", (64, 256, 1024), table_of(2048), transaction, mode="history"),
    Axis("partial", "MB", (64, 256, 1024), partial_table, partial, window="keep"),
    Axis("small", "row", (125_000, 250_000, 500_000, 1_000_000, 2_000_000), small_table, small),
    Axis("rows", "row", (500_000, 1_000_000, 2_000_000, 4_000_000), small_table, None, large=50_000_000),
    Axis("tables", "table", (25, 50, 100, 200, 400), tables, None, large=2_000),
    Axis("changing", "table", (25, 50, 100, 200, 400), tables, changing, large=2_000),
    Axis("columns", "cell", (8, 32, 128, 512), columns_table, columns, lambda _: CELLS),
    Axis("width", "MB", (128, 1024, 8192, 65_536, 1_048_576), table_of(1024), width, lambda _: WIDTH_MB),
    Axis("wide", "MB", (1024, 16_384, 262_144), wide_table, None, lambda _: WIDE_MB),
]  # fmt: skip


# --- one run


@dataclass
class Watched:
    """What was seen of a run's processes."""

    cpu: dict[int, float] = field(default_factory=dict)
    driver: int = 0
    java: int = 0
    task: int = 0
    task_peak: int = 0
    """KB."""
    images: int = 0
    """Bytes."""

    def look(self, process: psutil.Process, scratch: Path) -> None:
        """Look once."""
        for one in (process, *process.children(recursive=True)):
            with suppress(OSError, psutil.Error):
                times = one.cpu_times()
                self.cpu[one.pid] = times.user + times.system
                kind = "driver" if one.pid == process.pid else "java" if one.name() == "java" else "task"
                memory = status_kb(one.pid)
                setattr(self, kind, max(getattr(self, kind), memory.get("RssAnon", 0)))
                if kind == "task":
                    self.task_peak = max(self.task_peak, memory.get("VmHWM", 0))
        self.images = max(self.images, bytes_below(scratch))

    def figures(self) -> dict[str, int]:
        """Return its figures in MB."""
        return {
            "driver_mb": self.driver >> 10, "java_mb": self.java >> 10, "task_mb": self.task >> 10,
            "task_peak_mb": self.task_peak >> 10, "images_mb": self.images // MB,
        }  # fmt: skip


def status_kb(pid: int) -> dict[str, int]:
    """Return the lines of a process's status that are in KB (proc(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.partition(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}


def bytes_below(folder: Path) -> int:
    """Return the bytes of the files in a folder, without those that go meanwhile."""
    total = 0
    for name, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                total += Path(name, file).stat().st_size
    return total


@dataclass(frozen=True)
class Run:
    """What a run took."""

    seconds: float
    cpu: float
    watched: Watched


class Pipeline:
    """A pipeline of a database into a lake of its own."""

    def __init__(self, mysql: MySQLServer, db: str, folder: Path, mode: str, window: str = "rewind") -> None:
        folder.mkdir(parents=True)
        self.folder, self.lake, self._scratch = folder, folder / "lake", folder / "spark"
        self._scratch.mkdir()
        self._file, self._log = folder / "pipeline.toml", folder / "run.log"
        self._file.write_text(
            f'name = "{db}"\n[source]\nurl = "{mysql.url}/?tls=disabled"\ntables = ["{db}.*"]\n'
            f'window = "{window}"\n[target]\npath = "{self.lake}"\nmode = "{mode}"\n'
            f'[spark]\n"local.dir" = "{self._scratch}"\n',
            encoding="utf-8",
        )

    def run(self) -> Run:
        """Bring all that there is."""
        command, begun = [sys.executable, "-m", "headgate.cli", "run", "--once", str(self._file)], time.monotonic()
        watched, ended = Watched(), threading.Event()
        with self._log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
            watching = threading.Thread(target=self._watch, args=(psutil.Process(process.pid), watched, ended))
            watching.start()
            try:
                process.wait(PATIENCE)
            finally:
                ended.set()
                watching.join()
                process.kill()
        seconds = time.monotonic() - begun
        if process.returncode:
            raise RuntimeError(f"a run ended with {process.returncode}: {self._log.read_text('utf-8')[-3000:]}")
        return Run(seconds, sum(watched.cpu.values()), watched)

    def _watch(self, process: psutil.Process, watched: Watched, ended: threading.Event) -> None:
        while not ended.wait(LOOK_SECONDS):
            with suppress(psutil.Error):
                watched.look(process, self._scratch)

    def files(self) -> tuple[int, int]:
        """Return the data files of the lake, and their bytes."""
        sizes = [file.stat().st_size for file in self.lake.rglob("*.parquet") if "_delta_log" not in file.parts]
        return len(sizes), sum(sizes)

    def batches(self) -> int:
        """Return the rows of the ledger."""
        ledger = self.lake / "_headgate/ledger"
        return int(DeltaTable(ledger).count()) if (ledger / "_delta_log").exists() else 0

    def count(self, db: str, table: str) -> int:
        """Return the rows of a table, without those of its deletion vectors."""
        query = QueryBuilder().register("t", DeltaTable(self.lake / db / table))
        return int(pa.table(query.execute("SELECT COUNT(*) AS n FROM t"))["n"][0].as_py())


def check(pipeline: Pipeline, source: Source) -> None:
    """Check that the lake has as many rows as MySQL, of one table in fifty if there are many."""
    names = source.tables()
    for name in names[:: max(1, len(names) // 50)]:
        if pipeline.count(source.db, name) != source.count(name):
            raise RuntimeError(f"{name} has {pipeline.count(source.db, name)} rows, not {source.count(name)}")


def idle(mysql: MySQLServer, folder: Path) -> dict[str, float]:
    """Return the seconds of a run that finds nothing: the medians of three, after one that does not count."""
    source = Source(mysql, "idle")
    tables(source, 1)
    pipeline = Pipeline(mysql, source.db, folder / source.db, "current")
    pipeline.run()
    runs = [pipeline.run() for _ in range(3)]
    return {
        "seconds": round(median(one.seconds for one in runs), 2),
        "cpu_s": round(median(one.cpu for one in runs), 2),
    }


def measure(axis: Axis, size: int, mysql: MySQLServer, folder: Path, idle_run: Mapping[str, float]) -> dict[str, Any]:
    """Measure one point."""
    db = f"{axis.name}_{size}"
    source, pipeline = Source(mysql, db), Pipeline(mysql, db, folder / db, axis.mode, axis.window)
    begun = time.monotonic()
    axis.before(source, size)
    if axis.work is not None:
        pipeline.run()
        axis.work(source, size)
    made = time.monotonic() - begun
    progress(f"{axis.name} {size:,}: made in {made:.0f} s")
    files, size_before = pipeline.files()
    batches = pipeline.batches()
    run = pipeline.run()
    files_after, size_after = pipeline.files()
    check(pipeline, source)
    seconds = max(LEAST_SECONDS, run.seconds - idle_run["seconds"])
    cpu = max(LEAST_SECONDS, run.cpu - idle_run["cpu_s"])
    units = axis.units(size)
    point = {
        "axis": axis.name, "size": size, "unit": axis.unit, "units": units, "seconds": round(seconds, 2),
        "cpu_s": round(cpu, 2), "cpu_us_a_unit": round(cpu / units * 1e6, 2), **run.watched.figures(),
        "batches": pipeline.batches() - batches, "files": files_after - files,
        "lake_mb": (size_after - size_before) // MB,
    }  # fmt: skip
    progress(f"{point}")
    shutil.rmtree(pipeline.folder)
    mysql.execute(f"DROP DATABASE {db}", "FLUSH BINARY LOGS")
    mysql.purge_log()
    return point


def exponent(points: Sequence[Mapping[str, Any]]) -> float:
    """Return by which power of the size the cost of a unit grows."""
    sizes, costs = ([math.log(one[name]) for one in points] for name in ("size", "cpu_us_a_unit"))
    return linear_regression(sizes, costs).slope


def lines(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line for each axis."""
    results = []
    for axis in AXES:
        ours = sorted((one for one in points if one["axis"] == axis.name), key=lambda one: one["size"])
        if not ours:
            continue
        grows = round(exponent(ours[-3:]), 2) if len(ours) > 1 else ""
        most = {name: max(point[name] for point in ours) for name in ("driver_mb", "java_mb", "task_mb")}
        missed = (grows != "" and float(grows) > EXPONENT_BOUND) or most["task_mb"] > TASK_MB
        largest = ours[-1]
        results.append({
            "axis": axis.name, "points": len(ours), "largest": largest["size"], "seconds": largest["seconds"],
            "cpu_s": largest["cpu_s"], "exponent": grows, **most, "ok": "MISSED" if missed else "ok",
        })  # fmt: skip
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_name = {axis.name: axis for axis in AXES}
    parser.add_argument("--axes", help=f"some of {', '.join(by_name)}")
    parser.add_argument("--large", action="store_true", help="the large points alone")
    parser.add_argument("--output")
    args = parser.parse_args()
    chosen = args.axes.split(",") if args.axes else [*by_name]
    if unknown := sorted({*chosen} - {*by_name}):
        parser.error(f"no such axis: {', '.join(unknown)}")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    output = Path(args.output) if args.output else None
    series = json.loads(output.read_text())["series"] if output is not None and output.exists() else {"points": []}
    points = series["points"]
    missed = 0
    with MySQLServer.start(flags=FLAGS) as mysql, tempfile.TemporaryDirectory() as scratch:
        seed(mysql)
        if "idle" not in series:
            series["idle"] = idle(mysql, Path(scratch))
            progress(f"a run that finds nothing: {series['idle']}")
        for axis in (by_name[name] for name in chosen):
            sizes = axis.sizes if not args.large else [axis.large] if axis.large else []
            for size in sizes:
                if not any((one["axis"], one["size"]) == (axis.name, size) for one in points):
                    points.append(measure(axis, size, mysql, Path(scratch), series["idle"]))
                    missed = report("scale", lines(points), output=args.output, series=series)
    return missed


def seed(mysql: MySQLServer) -> None:
    """Make the table that rows are made from; it is not in the log."""
    with mysql.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "SET SESSION sql_log_bin = 0", f"SET SESSION cte_max_recursion_depth = {SEED_ROWS + 1}",
            "CREATE DATABASE seed", "CREATE TABLE seed.numbers (n INT PRIMARY KEY)",
            ("INSERT INTO seed.numbers WITH RECURSIVE x(n) AS "
            f"(SELECT 0 UNION ALL SELECT n + 1 FROM x WHERE n < {SEED_ROWS - 1}) SELECT n FROM x"),
        ):  # fmt: skip
            cursor.execute(statement)


if __name__ == "__main__":
    sys.exit(main())
