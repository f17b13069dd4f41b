"""A snapshot on demand: ``python -m benchmarks.incremental [--rows N] [--debezium] [--rounds N] [--output FILE]``.

A stream of one table runs; an ``execute-snapshot`` signal asks for all its rows, which come in parallel chunks beside
the live changes. Measured, each time from the moment at which the signal was submitted: rows a second up to the last
row, and seconds up to the end of the batch that brought the first ones (``first_s``, the worst round's).

- *idle*: the typed stream to Spark's ``noop`` sink, and nobody writes;
- *beside*: the same while one process commits ``--rate`` one-row transactions a second; the rate that it kept is shown
  (``tx_per_s``, the least of the rounds). The live changes' delay is what passed between the commit and the end of the
  batch that had it, in seconds: ``p50`` and ``p99`` without a snapshot (``--quiet`` seconds long), ``p50_reading`` and
  ``p99_reading`` of the commits between a signal and its last row;
- *lake*: the pipeline with ``current`` into Delta, nobody writes: the table joins the running pipeline and is read for
  the first time (*lake*), then once more (*lake again*: each row takes the place of the one that is there); the same
  of a copy whose key is a text (*lake text*, *lake text again*). ``--lake`` measures these alone.

Compared with the Debezium engine's read-only incremental snapshot, chunks of 10,000 rows. With ``--debezium`` it reads
the first ``--debezium-rows`` rows of the same table on the same idle server in the same run, and its rate is that from
its first row to its last one (it waits for its first row for some 48 s, which is shown and left out). Without, the
comparison is with a published figure, 69,000 rows a second, measured on another day on two cores.

Bounds: ≥ 12 times its rate idle, ≥ 8 times beside 2,000 transactions/s, ≥ 4 times into Delta; first rows within 5 s.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import _debezium
from benchmarks._bench import DB, Workloads, progress, report, server
from benchmarks._load import Commits, SteadyWriter, Updates
from headgate.carrier import ControlFolder
from headgate.config import ConfigFile, PipelineConfig
from headgate.control import parse_signal, submit
from headgate.engine import build_session
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.offsets import SourceOffset
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate.spark import register

TABLE = f"{DB}.orders"
TEXT_TABLE = f"{DB}.named_orders"
PUBLISHED = 69_000
FIRST_ROWS_SECONDS = 5.0
BOUNDS = {"idle": 12.0, "beside": 8.0, "lake": 4.0, "lake again": 300_000 / PUBLISHED}
TASKS = 2
PATIENCE = 900.0


def now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Arrival:
    """A batch of the stream that is done."""

    batch: int
    done_us: int
    end: SourceOffset

    @property
    def reading(self) -> bool:
        """Whether chunks are still to be planned after it."""
        return self.end.snapshot.is_pending


@dataclass(frozen=True)
class Reading:
    """A snapshot that a signal asked for."""

    signalled_us: int
    first_us: int
    last_us: int
    rows: int

    @property
    def seconds(self) -> float:
        return (self.last_us - self.signalled_us) / 1e6

    @property
    def first_seconds(self) -> float:
        return (self.first_us - self.signalled_us) / 1e6


class Stream:
    """The typed stream of the table to ``noop``, and what has arrived."""

    def __init__(self, spark: Any, load: Workloads, folder: Path, chunk_rows: int) -> None:
        self.inbox = ControlFolder(str(folder / "control"))
        self.inbox.write("finished.json", {"tables": [TABLE]})  # as sinks that hold the table would say
        self.arrivals: list[Arrival] = []
        self._offsets = folder / "checkpoint" / "offsets"
        self._news: queue.Queue[Arrival] = queue.Queue()
        options = {
            "url": f"{load.mysql.url}/?tls=disabled", "table": TABLE, "start": "current", "slots": str(TASKS),
            "control_path": self.inbox.path, "poll_ms": "50", "chunk_rows": str(chunk_rows),
        }  # fmt: skip
        stream = spark.readStream.format("mysql-cdc").options(**options).load()
        writer = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", str(folder / "checkpoint"))
        self.query = writer.start()

    def _take(self, frame: Any, batch: int) -> None:
        frame.write.format("noop").mode("overwrite").save()
        done = now_us()
        end = (self._offsets / str(batch)).read_text().splitlines()[-1]
        self._news.put(Arrival(batch, done, SourceOffset.from_json(end)))

    def until(self, wanted: Callable[[Arrival], bool]) -> Arrival:
        """The next arrival of this kind.

        :raises RuntimeError: the query has ended, or nothing came for long.
        """
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not self.query.isActive:
                raise RuntimeError(f"the stream has ended: {self.query.exception()}")
            try:
                arrival = self._news.get(timeout=1)
            except queue.Empty:
                continue
            self.arrivals.append(arrival)
            if wanted(arrival):
                return arrival
        raise RuntimeError("the stream brings nothing")

    def read(self, where: str | None = None) -> tuple[Reading, list[int]]:
        """Signal, and wait for the last row; the numbers of the batches with chunks. ``rows`` is yet to be counted."""
        signalled = now_us()
        ask(self.inbox, where)
        first = self.until(lambda arrival: bool(arrival.end.snapshot.chunks))
        before = len(self.arrivals) - 1
        last = first if not first.reading else self.until(lambda arrival: not arrival.reading)
        batches = [arrival.batch for arrival in self.arrivals[before:] if arrival.end.snapshot.chunks]
        return Reading(signalled, first.done_us, last.done_us, 0), batches

    def rows_of(self, batches: list[int]) -> int:
        """Rows of all kinds in these batches, as Spark counted them."""
        rows = {one["batchId"]: one["numInputRows"] for one in self.query.recentProgress}
        return sum(rows[batch] for batch in batches)

    def changes_of(self, batches: list[int]) -> int:
        """Transactions that these batches brought."""
        ends = {arrival.batch: arrival.end.position.count() for arrival in self.arrivals}
        return sum(ends[batch] - ends[batch - 1] for batch in batches)

    def delays(self, commits: Commits) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Seconds from each commit to the end of the batch that had it."""
        ends = np.array([arrival.end.position.count() for arrival in self.arrivals])
        done = np.array([arrival.done_us for arrival in self.arrivals])
        numbers = np.arange(commits.first, commits.first + len(commits.at_us))
        return (done[np.searchsorted(ends, numbers)] - commits.at_us) / 1e6


def ask(inbox: ControlFolder, where: str | None = None, table: str = TABLE) -> None:
    """An ``execute-snapshot`` signal for the table, or for the rows that fulfil a condition."""
    data: dict[str, Any] = {"data-collections": [table.replace(".", r"\.")]}
    if where is not None:
        data["additional-conditions"] = [{"data-collection": table.replace(".", r"\."), "filter": where}]
    submit(inbox, parse_signal({"type": "execute-snapshot", "data": data}))


def executed(load: Workloads) -> GtidSet:
    return GtidSet.parse(load.mysql.gtid_executed)


def check_rows(rows: int, load: Workloads) -> int:
    """A figure for rows that did not come would mean nothing."""
    if rows != load.rows:
        raise RuntimeError(f"{rows:,} rows came, and the table has {load.rows:,}")
    return rows


def warm_up(stream: Stream, load: Workloads) -> None:
    """The first batches of a session load and compile: a change, and a chunk."""
    load.mysql.execute(f"UPDATE {TABLE} SET flag = flag ^ 1 WHERE id = 0")
    wanted = executed(load)
    stream.until(lambda arrival: wanted <= arrival.end.position)
    stream.read(f"id < {min(load.rows, 50_000)}")


def idle(stream: Stream, load: Workloads, rounds: int) -> list[Reading]:
    readings = []
    for _ in range(rounds):
        reading, batches = stream.read()
        settle(stream, batches[-1])
        rows = check_rows(stream.rows_of(batches), load)
        readings.append(Reading(reading.signalled_us, reading.first_us, reading.last_us, rows))
    return readings


def settle(stream: Stream, batch: int) -> None:
    """Spark tells a batch's rows a moment after it is done."""
    deadline = time.monotonic() + PATIENCE
    while not any(one["batchId"] >= batch for one in stream.query.recentProgress):
        if time.monotonic() > deadline:
            raise RuntimeError(f"Spark says nothing of batch {batch}")
        time.sleep(0.05)


def beside(stream: Stream, load: Workloads, args: argparse.Namespace) -> tuple[list[Reading], dict[str, Any]]:
    """Under a steady load: the readings, and what became of the load."""
    readings: list[Reading] = []
    with SteadyWriter(load.mysql, Updates(load.rows), args.rate) as writer:
        until_later(stream, args.quiet / 2)  # the load comes up
        quiet_from = now_us()
        until_later(stream, args.quiet)
        quiet_to = now_us()
        for _ in range(args.rounds):
            reading, batches = stream.read()
            settle(stream, batches[-1])
            rows = check_rows(stream.rows_of(batches) - stream.changes_of(batches), load)
            readings.append(Reading(reading.signalled_us, reading.first_us, reading.last_us, rows))
    wanted = executed(load)
    if not wanted <= stream.arrivals[-1].end.position:
        stream.until(lambda arrival: wanted <= arrival.end.position)
    spans = [(reading.signalled_us, reading.last_us) for reading in readings]
    while_reading = np.concatenate([stream.delays(writer.commits.between(*span)) for span in spans])
    without = stream.delays(writer.commits.between(quiet_from, quiet_to))
    quantiles = [*np.percentile(without, [50, 99]), *np.percentile(while_reading, [50, 99])]
    names = ("p50", "p99", "p50_reading", "p99_reading")
    kept = min(writer.commits.rate(*span) for span in spans)
    return readings, {
        "tx_per_s": round(kept), **{name: round(float(q), 2) for name, q in zip(names, quantiles, strict=True)}
    }  # fmt: skip


def until_later(stream: Stream, seconds: float) -> None:
    """Let the stream run for a while."""
    deadline = now_us() + round(seconds * 1e6)
    stream.until(lambda arrival: arrival.done_us >= deadline)


# --- the pipeline into Delta


TEXT = """\
name = "bench"
[source]
url = "{url}"
tables = [{tables}]
snapshot_new_tables = false
poll_ms = 50
chunk_rows = {chunk_rows}
[target]
path = "{lake}"
"""


class WatchedFile(ConfigFile):
    """Tells when a new configuration is in force."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.taken = threading.Event()

    def take(self, config: PipelineConfig) -> None:
        super().take(config)
        self.taken.set()


class Run:
    """A pipeline that runs in a thread: what its batches did, and when."""

    def __init__(self, spark: Any, file: ConfigFile) -> None:
        self.pipeline = Pipeline(file.config, spark, file=file)
        self._news: queue.Queue[tuple[int, BatchReport] | None] = queue.Queue()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.pipeline.run(on_progress=lambda done: self._news.put((now_us(), done)))
        except BaseException as error:  # noqa: BLE001 - raised by until
            self._failed.append(error)
        finally:
            self._news.put(None)

    def until(self, wanted: Callable[[BatchReport], bool]) -> tuple[int, BatchReport]:
        """The next batch of this kind, and when it was done (µs since 1970 UTC)."""
        while True:
            news = self._news.get(timeout=PATIENCE)
            if news is None:
                raise RuntimeError("the pipeline has ended") from (self._failed[0] if self._failed else None)
            if wanted(news[1]):
                return news

    def read(self, table: str) -> Reading:
        """Signal, and wait until the table is live."""
        signalled, rows, first = now_us(), 0, 0
        ask(ControlFolder(self.pipeline.lake.inbox), table=table)
        while True:
            done, batch = self.until(lambda batch: table in batch.rows)
            rows += batch.rows[table]
            first = first or done
            if batch.tables[table].state == "live":
                return Reading(signalled, first, done, rows)

    def stop(self) -> None:
        self.pipeline.stop()
        self._thread.join(PATIENCE)


@contextmanager
def running(spark: Any, load: Workloads, folder: Path, chunk_rows: int) -> Iterator[Run]:
    """A pipeline of another table, which ``orders`` has then joined; nobody has read ``orders`` yet."""
    load.mysql.execute(f"CREATE TABLE {DB}.live (id INT PRIMARY KEY, v INT)", f"INSERT INTO {DB}.live VALUES (1, 0)")
    progress("a copy with a text key")
    load.mysql.execute(
        f"CREATE TABLE {TEXT_TABLE} (name VARCHAR(40) NOT NULL, PRIMARY KEY (name)) AS "
        f"SELECT concat('order ', left(sha2(id, 256), 30)) AS name, t.* FROM {TABLE} t ORDER BY name",
        f"ANALYZE TABLE {TEXT_TABLE}", "FLUSH BINARY LOGS",
    )  # fmt: skip
    path = folder / "pipeline.toml"

    def configure(*tables: str) -> None:
        listed = ", ".join(f'"{table}"' for table in tables)
        url = f"{load.mysql.url}/?tls=disabled"
        text = TEXT.format(url=url, tables=listed, chunk_rows=chunk_rows, lake=folder / "lake")
        (folder / "new").write_text(text)
        (folder / "new").replace(path)

    def change() -> None:
        load.mysql.execute(f"UPDATE {DB}.live SET v = v + 1")
        wanted = executed(load)
        run.until(lambda batch: wanted <= GtidSet.parse(batch.gtid))

    configure(f"{DB}.live")
    file = WatchedFile(path)
    run = Run(spark, file)
    try:
        run.until(lambda batch: batch.tables[f"{DB}.live"].state == "live")
        for _ in range(3):
            change()
        configure(f"{DB}.live", TABLE, TEXT_TABLE)
        if not file.taken.wait(PATIENCE):
            raise RuntimeError("the pipeline does not follow its file")
        change()
        yield run
    finally:
        run.stop()


def into_lake(spark: Any, load: Workloads, folder: Path, chunk_rows: int) -> dict[str, Reading]:
    with running(spark, load, folder, chunk_rows) as run:
        readings = {
            "lake": run.read(TABLE), "lake again": run.read(TABLE),
            "lake text": run.read(TEXT_TABLE), "lake text again": run.read(TEXT_TABLE),
        }  # fmt: skip
    for reading in readings.values():
        check_rows(reading.rows, load)
    for table in (TABLE, TEXT_TABLE):
        check_rows(spark.read.format("delta").load(Lake.at(str(folder / "lake")).current(table)).count(), load)
    return readings


# --- the whole


def line(
    name: str, rows: int, seconds: float, first: float, reference: float, load: dict[str, Any] | None = None
) -> dict[str, Any]:
    """:param reference: the Debezium engine's rows a second."""
    rate, bound = rows / seconds, BOUNDS.get(name)
    ok = "" if bound is None else "ok" if rate / reference >= bound and first <= FIRST_ROWS_SECONDS else "MISSED"
    return {
        "snapshot": name, "rows": rows, "seconds": round(seconds, 2), "first_s": round(first, 2),
        "rows_per_s": int(rate), "of_debezium": round(rate / reference, 2), "bound": bound or "",
        **dict.fromkeys(("tx_per_s", "p50", "p99", "p50_reading", "p99_reading"), ""), **(load or {}), "ok": ok,
    }  # fmt: skip


def lines_of(results: dict[str, tuple[list[Reading], dict[str, Any]]], reference: float) -> list[dict[str, Any]]:
    return [
        line(
            name,
            readings[0].rows,
            median(reading.seconds for reading in readings),
            max(reading.first_seconds for reading in readings),
            reference,
            load,
        )
        for name, (readings, load) in results.items()
    ]


def debezium(load: Workloads, args: argparse.Namespace) -> tuple[float, list[dict[str, Any]]]:
    """The rate to compare with, and the engine's own line."""
    if not args.debezium:
        return PUBLISHED, []
    progress("the Debezium engine")
    run = _debezium.measure(load, min(args.rows, args.debezium_rows))
    name, rate = f"Debezium {_debezium.VERSION}", run.rows_per_second
    return rate, [line(name, run.rows, run.seconds, run.waited_seconds, rate)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--chunk-rows", type=int, default=500_000, help="rows of a chunk; a batch has two (500,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of idle and beside; the median counts (3)")
    parser.add_argument("--rate", type=int, default=2_000, help="transactions a second (2,000)")
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds under load without a snapshot (20)")
    parser.add_argument("--lake", action="store_true", help="into Delta alone")
    parser.add_argument("--debezium", action="store_true", help="measure the Debezium engine in the same run")
    parser.add_argument("--debezium-rows", type=int, default=500_000)
    parser.add_argument("--output")
    args = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with server(args.rows, 0) as load, tempfile.TemporaryDirectory() as scratch:
        load.mysql.execute("FLUSH BINARY LOGS")  # a running stream is not at the beginning of a gigabyte of log
        settings = {
            "spark.master": f"local[{TASKS}]", "spark.driver.memory": "3g",
            "spark.sql.streaming.numRecentProgressUpdates": "100000",
        }  # fmt: skip
        spark = build_session("benchmark", settings, quiet=True)
        register(spark)
        results: dict[str, tuple[list[Reading], dict[str, Any]]] = {}
        if not args.lake:
            progress("snapshots beside a stream to noop")
            stream = Stream(spark, load, Path(scratch), args.chunk_rows)
            warm_up(stream, load)
            results = {"idle": (idle(stream, load, args.rounds), {}), "beside": beside(stream, load, args)}
            stream.query.stop()
        progress("snapshots beside a pipeline into Delta")
        results |= {name: ([one], {}) for name, one in into_lake(spark, load, Path(scratch), args.chunk_rows).items()}
        spark.stop()
        reference, theirs = debezium(load, args)
    return report("incremental", theirs + lines_of(results, reference), output=args.output)


if __name__ == "__main__":
    sys.exit(main())
