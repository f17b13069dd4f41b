"""Changes into Kafka: ``python -m benchmarks.kafka [--rows N] [--transactions N] [--rounds N] [--output FILE]``.

``headgate run --once`` in mode ``kafka`` sends what is in MySQL's log to a broker, with each ``delivery``, in JSON
without and with schemas. Beside it, in the same rounds, the Debezium engine reads the same log and makes the same JSON
messages (``DebeziumChanges.java``): it only counts them; it sends them to the same broker with the producer settings of
Kafka Connect, which are Kafka's defaults; and with settings as headgate has them (``PRODUCERS``).

Measured from outside: seconds from the start of the process to the last message, which is for headgate the moment at
which the broker has it (a transactional reader's end of the topic), for the engine the call of its consumer, or the end
of its producer's ``flush``. Starts take seconds in both, so each process first runs for one change alone before each
workload; the least of these times is subtracted, because other programs only make them longer. Every other round takes
them in reverse, because a broker is slow at first. CPU seconds are of the same time, without a start's, too:
``_processes`` names their parts.

Workloads: *bulk*, inserts in transactions of 1,000 rows; *oltp*, updates in transactions of one row.

Bound: 10 times the messages a second of the engine that sends as Kafka Connect does. docs/performance.md says where the
time goes.
"""

from __future__ import annotations

import argparse
import operator
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._bench import DB, SCHEMA, fill, progress, report
from benchmarks._debezium import JAVA_FLAGS, jars, java
from benchmarks._processes import PARTS, cpu_seconds
from headgate.testing import KafkaBroker, MySQLServer

RATIO = 10.0
PATIENCE = 900.0
GROUP = 500


PRODUCERS = {
    "counts": None,
    "sends": {},
    "sends, lz4": {"compression.type": "lz4", "linger.ms": "50", "batch.size": "1000000"},
}
"""What the engine does with messages, and the settings of its producer."""
COMPARED = "sends"
FORMS = {"json": tuple(PRODUCERS), "json-schema": ("counts", COMPARED)}
"""Of messages, and what the engine does in each."""


@dataclass
class Run:
    """What a run took until its last message: seconds, and CPU seconds of each of ``PARTS``."""

    seconds: float
    cpu: dict[str, float]

    def without(self, start: Run) -> Run:
        return self.joined(start, operator.sub)

    def joined(self, other: Run, join: Callable[[float, float], float]) -> Run:
        cpu = {part: join(self.cpu[part], other.cpu[part]) for part in PARTS}
        return Run(join(self.seconds, other.seconds), cpu)


class Contender:
    """Sends the changes since its last run."""

    name: str
    form: str  # of the messages

    def run(self, messages: int) -> Run:
        raise NotImplementedError


class Engine(Contender):
    """The Debezium engine, which goes on at the offsets of its last run."""

    def __init__(self, mysql: MySQLServer, broker: KafkaBroker, folder: Path, form: str, does: str) -> None:
        folder.mkdir()
        self._folder, self.form, self.name = folder, form, engine_name(does, form)
        prefix = folder.name
        self._topics = {table: f"{prefix}.{DB}.{table}" for table in ("orders", "poke")}
        producer, self._arguments = PRODUCERS[does], list[str]()
        if producer is not None:
            for topic in self._topics.values():
                broker.create_topic(topic)
            _write(folder / "producer.properties", {"bootstrap.servers": broker.bootstrap, "acks": "all", **producer})
            self._arguments = ["producer.properties"]
        schemas = str(form == "json-schema").lower()
        settings = {
            "name": "bench", "topic.prefix": prefix, "database.server.id": 85744,
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.hostname": mysql.host, "database.port": mysql.port, "database.user": mysql.user,
            "database.password": "", "table.include.list": f"{DB}.orders,{DB}.poke", "snapshot.mode": "no_data",
            "key.converter.schemas.enable": schemas, "value.converter.schemas.enable": schemas,
            "converter.schemas.enable": schemas,
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": folder / "offsets",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": folder / "history",
        }  # fmt: skip
        _write(folder / "engine.properties", settings)

    def prime(self, poke: Callable[[], None]) -> None:
        """Begin at the log's present end. Only a message shows that it has begun, so ``poke`` changes another table."""
        self._run("poke", 1, poke)

    def run(self, messages: int) -> Run:
        return self._run("orders", messages)

    def _run(self, table: str, messages: int, poke: Callable[[], None] | None = None) -> Run:
        program = Path(__file__).with_name("DebeziumChanges.java")
        arguments = ["engine.properties", self._topics[table], str(messages), *self._arguments]
        command = [java(), *JAVA_FLAGS, "-cp", f"{jars()}/*", str(program), *arguments]
        begun, ended = time.time_ns() // 1000, resource.getrusage(resource.RUSAGE_CHILDREN)
        broker = cpu_seconds()["broker"]
        with subprocess.Popen(command, cwd=self._folder, stdout=subprocess.PIPE, text=True) as process:
            while poke is not None and process.poll() is None:
                poke()
                time.sleep(0.5)
            out, _ = process.communicate(timeout=PATIENCE)
        last = [int(line.split()[1]) for line in out.splitlines() if line.startswith("last ")]
        if process.returncode or not last:
            raise RuntimeError(f"the Debezium engine ended early: {out[-2000:]}")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - ended.ru_utime - ended.ru_stime
        parts = {**dict.fromkeys(PARTS, 0.0), "jvm": cpu, "broker": cpu_seconds()["broker"] - broker}
        return Run((last[0] - begun) / 1e6, parts)


class Pipeline(Contender):
    """``headgate run --once``, which goes on at its checkpoint."""

    def __init__(self, mysql: MySQLServer, broker: KafkaBroker, folder: Path, delivery: str, form: str) -> None:
        folder.mkdir()
        self.form, self.name, self._folder, self._end = form, f"headgate, {delivery}, {form}", folder, 0
        prefix = f"{delivery}-{form}"
        self._topic = f"{prefix}.{DB}.orders"
        broker.create_topic(self._topic)
        from confluent_kafka import Consumer

        client = {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "isolation.level": "read_committed"}
        self._consumer = Consumer(client)
        self._file = folder / "pipeline.toml"
        self._file.write_text(
            f'name = "bench-{prefix}"\n[source]\nurl = "{mysql.url}/?tls=disabled"\ntables = ["{DB}.orders"]\n'
            f'snapshot_mode = "no_data"\n[target]\npath = "{folder / "lake"}"\nmode = "kafka"\n[target.kafka]\n'
            f'bootstrap = "{broker.bootstrap}"\ntopic_prefix = "{prefix}"\ntombstones = false\n'
            f'delivery = "{delivery}"\nformat = "{form}"\n'
        )

    def run(self, messages: int) -> Run:
        # In a topic with transactions, their markers have offsets, too; all but the last one's are before its messages.
        wanted, before = self._end + messages, Run(time.monotonic(), cpu_seconds())
        with self._running() as process:
            while (end := self._high()) < wanted:
                if process.poll() not in (None, 0) or time.monotonic() - before.seconds > PATIENCE:
                    raise RuntimeError(f"the messages did not come; {self._folder / 'run.log'} says why")
                time.sleep(0.02)
            run = Run(time.monotonic(), cpu_seconds()).without(before)
            process.wait(PATIENCE)
        self._end = max(end, self._high())
        return run

    def prime(self) -> None:
        """Begin the pipeline at the log's present end."""
        with self._running() as process:
            process.wait(PATIENCE)

    @contextmanager
    def _running(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "headgate.cli", "run", "--once", str(self._file)]
        with (
            (self._folder / "run.log").open("ab") as out,
            subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()

    def _high(self) -> int:
        from confluent_kafka import TopicPartition

        _, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=30)
        return int(high)


@dataclass
class Workload:
    """Changes of a kind."""

    name: str
    messages: int
    write: Callable[[], None]
    runs: dict[str, list[Run]] = field(default_factory=dict)

    def median(self, name: str, start: Run) -> Run:
        """Return a contender's run without its start, each figure the median's."""
        runs = [run.without(start) for run in self.runs[name]]
        cpu = {part: median(run.cpu[part] for run in runs) for part in PARTS}
        return Run(median(run.seconds for run in runs), cpu)


class Load:
    """The table and who writes it."""

    def __init__(self, mysql: MySQLServer) -> None:
        self._mysql, self._rows = mysql, 0
        mysql.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.orders ({SCHEMA})")
        mysql.execute(f"CREATE TABLE {DB}.poke (id INT PRIMARY KEY AUTO_INCREMENT)")

    def poke(self) -> None:
        self._mysql.execute(f"INSERT INTO {DB}.poke VALUES ()")

    def change(self) -> None:
        row = "(-1, 1, 'new', 1, 'n', NOW(3), NULL, 0)"
        self._mysql.execute(f"INSERT INTO {DB}.orders VALUES {row} ON DUPLICATE KEY UPDATE flag = 1 - flag")

    def bulk(self, rows: int) -> None:
        self._mysql.execute(f"TRUNCATE TABLE {DB}.orders")  # no message, by the defaults of both
        fill(self._mysql, f"{DB}.orders", rows)
        self._rows = rows

    def oltp(self, transactions: int) -> None:
        from pymysql.constants import CLIENT

        with self._mysql.connect(autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS) as connection:
            cursor = connection.cursor()
            for first in range(0, transactions, GROUP):
                cursor.execute(
                    ";".join(
                        f"UPDATE {DB}.orders SET amount = amount + 1, flag = 1 - flag WHERE id = {key % self._rows}"
                        for key in range(first, min(transactions, first + GROUP))
                    )
                )
                while cursor.nextset():
                    pass


def compare(contenders: list[Contender], load: Load, workloads: list[Workload], rounds: int) -> dict[str, Run]:
    """Run them all; return what each contender's start takes, the least of each figure."""
    least: dict[str, Run] = {}
    for number in range(rounds):
        for workload in workloads:
            load.change()
            starts = {one.name: one.run(1) for one in contenders}
            least = {name: start.joined(least.get(name, start), min) for name, start in starts.items()}
            progress(f"round {number}, {workload.name}: {workload.messages:,} changes; starts {starts}")
            workload.write()
            for one in contenders if number % 2 == 0 else contenders[::-1]:
                run = one.run(workload.messages)
                progress(f"{one.name}: {run}")
                workload.runs.setdefault(one.name, []).append(run)
    return least


def engine_name(does: str, form: str) -> str:
    return f"debezium {does}, {form}"


def _write(file: Path, properties: Mapping[str, Any]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def line(workload: Workload, one: Contender, starts: dict[str, Run]) -> dict[str, Any]:
    run = workload.median(one.name, starts[one.name])
    ratios = {
        f"of_debezium_that_{does}": round(workload.median(name, starts[name]).seconds / run.seconds, 2)
        for does in FORMS[one.form]
        if (name := engine_name(does, one.form))
    }
    is_met = ratios[f"of_debezium_that_{COMPARED}"] >= RATIO
    return {
        "workload": workload.name, "sent_by": one.name, "messages": workload.messages,
        "seconds": round(run.seconds, 2), "messages_per_second": int(workload.messages / run.seconds),
        **ratios, "ok": "" if isinstance(one, Engine) else "yes" if is_met else "no",
        **{part: round(run.cpu[part], 2) for part in PARTS},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output")
    args = parser.parse_args()
    flags = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "max_binlog_size": 1 << 30}
    with MySQLServer.start(flags=flags) as mysql, KafkaBroker.start() as broker, tempfile.TemporaryDirectory() as name:
        load, folder = Load(mysql), Path(name)
        contenders: list[Contender] = []
        for form, done in FORMS.items():
            for number, does in enumerate(done):
                engine = Engine(mysql, broker, folder / f"engine{number}-{form}", form, does)
                engine.prime(load.poke)
                contenders.append(engine)
            for delivery in ("at-least-once", "exactly-once"):
                pipeline = Pipeline(mysql, broker, folder / f"{delivery}-{form}", delivery, form)
                pipeline.prime()
                contenders.append(pipeline)
        workloads = [
            Workload("bulk", args.rows, lambda: load.bulk(args.rows)),
            Workload("oltp", args.transactions, lambda: load.oltp(args.transactions)),
        ]
        starts = compare(contenders, load, workloads, args.rounds)
        results = [line(workload, one, starts) for workload in workloads for one in contenders]
    return report("kafka", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
