"""Does it stay as it is? ``python -m benchmarks.endurance [--batches N] [--live-minutes N] [--output FILE]``.

Two parts. ``--batches 0`` and ``--live-minutes 0`` leave one out.

*recorded*: a table of ``--rows`` rows, and ``--batches`` recorded batches (``_recorded``) that each change 200 random
rows of it, one after another without a pause, into one writer with its upkeep. The retention is short
(``--retention-minutes``), so what is removed keeps up with what is written. In the end the table has to hold what the
recording says.

*live*: a private MySQL, one process that commits ``--rate`` one-row transactions a second, and ``headgate run``, a
process of its own, for ``--live-minutes``. Each minute the table has to hold the newest transaction of its ledger row
and none after it. The retention is an hour, the least that a pipeline may have, so a lake grows until then by what its
older batches need. What the newest version needs does not grow.

Each line of the result is a figure ``at_end`` and what it is compared with:

- *batch p50*: of the last hundred batches, and of the first hundred; in *live* from Spark's note of a batch to the
  ledger row that is seen. Other programs make a machine slower and faster within an hour. So the last hundred recorded
  batches take turns with the first hundred of a *fresh* lake in the same session;
- *full read*: by delta-rs, the opening of the table included: count, and a sum or maximum of each column; beside the
  same of a copy of the rows that delta-rs has just written in the order of the key and compacted; the median of 15 in
  turns. *CPU*: of that the processor's time in all threads, which other programs disturb less. *opening*: the opening;
- *files*, *MB*: in the lake's folder, and in the middle of the part;
- *driver MB*, *JVM MB*: memory of their own, without pages of files; and after the first hundred batches.

The JSON also has the figures of each hundred batches and of each minute. A part whose figures the output already has,
with the same arguments, is not measured again.

Bounds: a full read within 1.3 times that of the copy; batch p50 within 1.2 times that of the first hundred.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from benchmarks._bench import progress, report
from benchmarks._load import SteadyWriter
from benchmarks._recorded import TABLE, Recording
from benchmarks.freshness import (
    POLL_SECONDS,
    Ledger,
    Marks,
    Place,
    Shape,
    check,
    last_of,
    make,
    memory_of,
    paths,
    running,
    wait_until_live,
)
from headgate.carrier import CARRIER_DDL
from headgate.engine import build_session
from headgate.lake import Lake
from headgate.sinks import BatchWriter
from headgate_testing import MySQLServer

HUNDRED = 100
READS = 15
READ_RATIO, BATCH_RATIO = 1.3, 1.2
SAMPLE_SECONDS = 60.0
OUTPUT = Path(__file__).parent / "results" / "endurance.json"


@dataclass
class Sample:
    """How a lake and its writer are at a moment."""

    batches: int
    seconds: float
    p50_s: float
    p99_s: float
    files: int
    log_files: int
    mb: float
    table_files: int
    """Data files of the table's newest version."""
    table_mb: float
    driver_mb: int
    jvm_mb: int
    load: float
    """Processes that ran or waited, on average in the last minute; those of other programs, too."""

    @classmethod
    def take(cls, lake: Path, table: Path, process: int, batches: int, begun: float, last: Sequence[float]) -> Sample:
        """:param last: seconds of the last batches."""
        sizes = sizes_in(lake)
        live = [int(size) for size in pa.table(DeltaTable(table).get_add_actions())["size_bytes"].to_pylist()]
        return cls(
            batches, round(time.monotonic() - begun, 1), *percentiles(last),
            len(sizes), sum(in_log for in_log, _ in sizes), megabytes(size for _, size in sizes),
            len(live), megabytes(live), *memories(process), round(os.getloadavg()[0], 1),
        )  # fmt: skip

    def tell(self, part: str, batches: int) -> None:
        progress(
            f"{part}: {self.batches:,} batches in {self.seconds:,.0f} s, {self.batches / self.seconds:.1f}/s, "
            f"the last {batches:,} with p50 {self.p50_s:.3f} s; {self.files:,} files, {self.mb:,.0f} MB, "
            f"of the newest version {self.table_files} and {self.table_mb:,.0f} MB; "
            f"driver {self.driver_mb:,} MB, JVM {self.jvm_mb:,} MB; load {self.load}"
        )


@dataclass
class Series:
    """A part: seconds of its batches, and samples."""

    seconds: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    """Seconds of the first hundred batches of a fresh lake, in turns with the last ones."""

    def lines(self, part: str, reads: Reads) -> list[dict[str, Any]]:
        """The part's lines of the result."""
        first, last = (percentiles(some) for some in (self.seconds[:HUNDRED], self.seconds[-HUNDRED:]))
        middle, end = self.samples[len(self.samples) // 2], self.samples[-1]
        early = next((sample for sample in self.samples if sample.batches >= HUNDRED), end)
        lines = [
            line(part, "batch p50, s", last[0], "first hundred", first[0], BATCH_RATIO),
            line(part, "batch p99, s", last[1], "first hundred", first[1]),
        ]
        if self.fresh:
            lines.append(line(part, "batch p50, s", last[0], "a fresh lake's", percentiles(self.fresh)[0], BATCH_RATIO))
        return [
            *lines,
            reads.line(part, "full read, s", "seconds", READ_RATIO),
            reads.line(part, "full read, CPU s", "cpu_seconds"),
            reads.line(part, "opening, s", "opening_seconds"),
            line(part, "files", end.files, "in the middle", middle.files),
            line(part, "MB", end.mb, "in the middle", middle.mb),
            line(part, "driver MB", end.driver_mb, "first hundred", early.driver_mb),
            line(part, "JVM MB", end.jvm_mb, "first hundred", early.jvm_mb),
        ]


def line(
    part: str, measure: str, value: float, beside: str, reference: float, bound: float | None = None
) -> dict[str, Any]:
    ratio = value / reference
    return {
        "part": part, "measure": measure, "at_end": round(value, 3), "beside": beside, "of_it": round(reference, 3),
        "ratio": round(ratio, 2), "bound": "" if bound is None else f"≤ {bound}",
        "ok": "" if bound is None else "ok" if ratio <= bound else "MISSED",
    }  # fmt: skip


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99."""
    p50, p99 = np.percentile(seconds, [50, 99])
    return round(float(p50), 4), round(float(p99), 4)


def megabytes(sizes: Iterable[int]) -> float:
    return round(sum(sizes) / 1e6, 1)


def sizes_in(folder: Path) -> list[tuple[bool, int]]:
    """Of each file below a folder: whether it is one of a table's log, and its bytes."""
    sizes = []
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                sizes.append((path.endswith("_delta_log"), Path(path, name).stat().st_size))
    return sizes


def memories(process: int) -> tuple[int, int]:
    """Of a process that runs headgate and of its JVM: memory of their own, MB."""
    java = []
    for one in psutil.Process(process).children(recursive=True):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):  # a process of Python's may just have ended
            if one.name() == "java":
                java.append(memory_of(one.pid)[0])
    return memory_of(process)[0] >> 10, sum(java) >> 10


# --- the full read


@dataclass(frozen=True)
class Read:
    """What a full read took, and what it found: the count, and something of each column."""

    seconds: float
    opening_seconds: float
    cpu_seconds: float
    totals: list[float]

    @classmethod
    def of(cls, path: Path) -> Read:
        begun, cpu = time.perf_counter(), time.process_time()
        table = DeltaTable(path)
        opened = time.perf_counter()
        columns = [expression(name, str(kind)) for name, kind in leaves(json.loads(table.schema().to_json())["fields"])]
        query = f"SELECT count(*), {', '.join(columns)} FROM t"
        (row,) = pa.table(QueryBuilder().register("t", table).execute(query).read_all()).to_pylist()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        return cls(seconds, opened - begun, cpu, [float(value or 0) for value in row.values()])


@dataclass(frozen=True)
class Reads:
    """Full reads of a table and of its optimised copy."""

    table: list[Read]
    copy: list[Read]

    @classmethod
    def compare(cls, table: Path, key: str, copy: Path) -> Reads:
        """Make the copy, and read both in turns."""
        progress("full reads, beside an optimised copy")
        rows = QueryBuilder().register("t", DeltaTable(table)).execute(f"SELECT * FROM t ORDER BY {key}").read_all()
        write_deltalake(copy, rows)
        DeltaTable(copy).optimize.compact()
        reads = cls([], [])
        for number in range(READS + 1):
            ours, theirs = Read.of(table), Read.of(copy)
            if not all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(ours.totals, theirs.totals, strict=True)):
                raise RuntimeError(f"the copy holds {theirs.totals}, the table {ours.totals}")
            if number:  # the first of each brings the files into the system's cache
                reads.table.append(ours)
                reads.copy.append(theirs)
        return reads

    def line(self, part: str, measure: str, figure: str, bound: float | None = None) -> dict[str, Any]:
        """A line of the result: the medians of a figure."""
        ours, theirs = (median(getattr(read, figure) for read in some) for some in (self.table, self.copy))
        return line(part, measure, ours, "optimised copy", theirs, bound)


def leaves(fields: Sequence[Mapping[str, Any]], inside: str = "") -> list[tuple[str, Any]]:
    """The columns of a table, those in structs by their expressions, with their types."""
    columns = []
    for one in fields:
        name = f"{inside}['{one['name']}']" if inside else f'"{one["name"]}"'
        kind = one["type"]
        columns += leaves(kind["fields"], name) if isinstance(kind, dict) else [(name, kind)]
    return columns


def expression(name: str, kind: str) -> str:
    """A number that no statistics tell."""
    if kind == "string":
        return f"sum(length({name}))"
    if kind.startswith("timestamp"):
        return f"sum(CAST(arrow_cast({name}, 'Int64') AS DOUBLE))"
    return f"sum(CAST({name} AS DOUBLE))"


# --- recorded batches


class Replay:
    """Gives a recording's batches to a writer."""

    def __init__(self, spark: Any, recording: Recording, folder: Path, retention_minutes: float) -> None:
        self.lake = Lake.at(str(folder))
        self.table = Path(self.lake.current(TABLE))
        self.writer = BatchWriter(
            spark, self.lake, "endurance", ("current",), retention_hours=retention_minutes / 60
        )  # fmt: skip
        self.writer.start()
        self._spark, self._recording, self._epoch = spark, recording, 0

    def next(self) -> float:
        """Seconds that the next batch took."""
        self._epoch += 1
        frame = self._spark.createDataFrame(self._recording.batch(self._epoch), CARRIER_DDL)
        begun = time.perf_counter()
        self.writer.write(frame, self._epoch)
        return time.perf_counter() - begun

    def end(self) -> None:
        """End the writer, and check the table."""
        self.writer.close()
        sums = pa.table(
            QueryBuilder()
            .register("t", DeltaTable(self.table))
            .execute("SELECT count(*), sum(id), sum(mark) FROM t")
            .read_all()
        )
        recording, last = self._recording, self._epoch - 1
        wanted = [recording.rows, int(recording.ids[last]), int(recording.marks[last])]
        if [column[0].as_py() for column in sums.columns] != wanted:
            raise RuntimeError(f"after batch {self._epoch} the table holds {sums.to_pylist()}, not {wanted}")


def recorded(args: argparse.Namespace, folder: Path) -> tuple[Series, Reads]:
    progress(f"recorded: {args.batches:,} batches for a table of {args.rows:,} rows")
    recording = Recording.make(folder / "recording.arrow", args.rows, args.batches)
    spark = build_session("endurance", {}, quiet=True)
    series, fresh = Series(), None
    replay = Replay(spark, recording, folder / "lake", args.retention_minutes)
    replay.next()
    begun = time.monotonic()
    for number in range(1, args.batches + 1):
        if number == args.batches - HUNDRED + 1:
            fresh = Replay(spark, recording, folder / "fresh", args.retention_minutes)
            fresh.next()
        series.seconds.append(replay.next())
        if fresh is not None:
            series.fresh.append(fresh.next())
        if number % HUNDRED == 0:
            last = series.seconds[-HUNDRED:]
            sample = Sample.take(folder / "lake", replay.table, os.getpid(), number, begun, last)
            sample.tell("recorded", HUNDRED)
            series.samples.append(sample)
    for one in filter(None, (replay, fresh)):
        one.end()
    reads = Reads.compare(replay.table, "id", folder / "copy")
    spark.stop()
    return series, reads


# --- live


def live(args: argparse.Namespace, folder: Path) -> tuple[Series, Reads]:
    shape = Shape("live", 1, args.rows, 1, args.rate)
    flags = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "max_binlog_size": 1 << 28}
    lake = folder / "lake"
    with MySQLServer.start(flags=flags) as mysql:
        make(mysql, shape)
        ledger = Ledger(lake)
        with running(folder, mysql, retention_hours=1) as run:
            wait_until_live(run, ledger, shape.tables)
            progress(f"live: {args.rate} transactions/s for {args.live_minutes:g} minutes")
            first = last_of(str(mysql.query("SELECT @@global.gtid_executed")[0][0])) + 1
            with SteadyWriter(mysql, Marks(shape), shape.rate, group=max(1, shape.rate // 50)):
                watch = Watch(lake, ledger, shape, first, run.pid)
                watch.follow(args.live_minutes * 60, run.poll)
        return watch.series, Reads.compare(lake / paths(shape)["t0"], "id", folder / "copy")


class Watch:
    """Looks at a lake that ``headgate run`` writes."""

    def __init__(self, lake: Path, ledger: Ledger, shape: Shape, first: int, process: int) -> None:
        self.series = Series()
        self._lake, self._ledger, self._shape, self._first, self._process = lake, ledger, shape, first, process

    def follow(self, seconds: float, ended: Callable[[], int | None]) -> None:
        """Note each batch, and take a sample each minute.

        :raises RuntimeError: the run has ended, or the table is not what the ledger says.
        """
        begun, done = time.monotonic(), 0
        while len(self.series.samples) < seconds / SAMPLE_SECONDS:
            if (code := ended()) is not None:
                raise RuntimeError(f"the run ended with exit code {code}")
            row = self._ledger.newest()
            if row is None:
                time.sleep(POLL_SECONDS)
                continue
            self._note(row["batch_id"])
            if time.monotonic() - begun >= min(SAMPLE_SECONDS * (len(self.series.samples) + 1), seconds):
                self._check(row)
                last = self.series.seconds[done:]
                table = self._lake / paths(self._shape)["t0"]
                sample = Sample.take(self._lake, table, self._process, len(self.series.seconds), begun, last)
                sample.tell("live", len(last))
                self.series.samples.append(sample)
                done = len(self.series.seconds)

    def _note(self, batch: int) -> None:
        """A batch whose ledger row is seen now, which began when Spark noted its offsets."""
        with suppress(FileNotFoundError):
            begun = Path(Lake.at(str(self._lake)).checkpoint, "offsets", str(batch)).stat().st_mtime
            self.series.seconds.append(time.time() - begun)

    def _check(self, row: Mapping[str, Any]) -> None:
        versions = {table["table"]: (table["version"], table["changelog_version"]) for table in row["tables"]}
        check(Place(str(self._lake)), versions, self._shape, last_of(row["gtid"]) - self._first + 1)


# --- the whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=10_000, help="recorded ones, at least 300 (10,000); 0: none")
    parser.add_argument("--live-minutes", type=float, default=60.0, help="at least 3 (60); 0: none")
    parser.add_argument("--rows", type=int, default=500_000, help="of the table (500,000)")
    parser.add_argument("--rate", type=int, default=200, help="live transactions a second (200)")
    parser.add_argument("--retention-minutes", type=float, default=5.0, help="of the recorded part (5)")
    parser.add_argument("--keep", type=Path, help="keep the lakes in this folder, one of each part")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"({OUTPUT.relative_to(OUTPUT.parents[2])})")
    args = parser.parse_args()
    if 0 < args.batches < 3 * HUNDRED or 0 < args.live_minutes < 3:
        parser.error("too little: there would be no beginning and no end")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    parts: dict[str, tuple[Callable[..., tuple[Series, Reads]], dict[str, Any]]] = {}
    if args.batches:
        names = ("batches", "rows", "retention_minutes")
        parts["recorded"] = recorded, {name: getattr(args, name) for name in names}
    if args.live_minutes:
        parts["live"] = live, {name: getattr(args, name) for name in ("live_minutes", "rows", "rate")}
    known = json.loads(args.output.read_text()) if args.output.exists() else {"results": [], "series": {}}
    missed = 0
    for part, (measure, settings) in parts.items():
        if known["series"].get(part, {}).get("settings") != settings:
            with tempfile.TemporaryDirectory() as scratch:
                folder = args.keep / part if args.keep else Path(scratch)
                folder.mkdir(parents=True, exist_ok=True)
                series, reads = measure(args, folder)
            others = [row for row in known["results"] if row["part"] != part]
            samples = [asdict(sample) for sample in series.samples]
            known["results"] = [*others, *series.lines(part, reads)]
            known["series"][part] = {"settings": settings, "samples": samples}
        missed = report("endurance", known["results"], output=str(args.output), series=known["series"])
    return missed


if __name__ == "__main__":
    sys.exit(main())
