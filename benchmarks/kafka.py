"""Changes into Kafka: ``python -m benchmarks.kafka [--rows N] [--transactions N] [--rounds N] [--output FILE]``.

``headgate run`` in mode ``kafka`` sends changes to a broker, with each ``delivery``, in JSON without and with schemas.
Beside it the Debezium engine reads the same log and makes the same JSON messages (``DebeziumChanges.java``): it only
counts them; it sends them to the same broker with the producer settings of Kafka Connect, which are Kafka's defaults;
and with settings as headgate has them (``PRODUCERS``).

All of them run, and are stopped (SIGSTOP) while the log is written. Then each in turn goes on, alone, until it has
caught up. Measured from outside: seconds from when it goes on to the last message, which is for headgate the moment at
which the broker has it (a transactional reader's end of the topic), for the engine the call of its consumer, or the end
of its producer's ``flush``. Every other round takes them in reverse. ``_processes`` names the parts of CPU seconds.

Workloads: *bulk*, inserts in transactions of 1,000 rows; *oltp*, updates in transactions of one row. The first round
is not counted: the programs compile.

Bound: 10 times the messages a second of the engine that sends as Kafka Connect does. docs/explanation/performance.md
says where the time goes.
"""

from __future__ import annotations

import argparse
import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self
from zlib import crc32

from benchmarks._bench import DB, SCHEMA, fill, progress, report
from benchmarks._debezium import JAVA_FLAGS, jars, java
from benchmarks._processes import PARTS, cpu_seconds, descendants
from headgate_testing import KafkaBroker, MySQLServer

RATIO = 10.0
PATIENCE = 900.0
GROUP = 500
QUIET_SECONDS = 2.0
"""If no message comes for so long, there is none."""
PRODUCERS: Mapping[str, Mapping[str, str] | None] = {
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

    def joined(self, other: Run, join: Callable[[float, float], float]) -> Run:
        cpu = {part: join(self.cpu[part], other.cpu[part]) for part in PARTS}
        return Run(join(self.seconds, other.seconds), cpu)


class Contender(ABC):
    """A process that follows the log."""

    def __init__(self, name: str, form: str, folder: Path, command: list[str]) -> None:
        self.name, self.form, self.output = name, form, folder / "output"
        self.counted = 0  # as of the last look
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self._process.terminate()
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for pid in (self._process.pid, *descendants(self._process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """Stop its processes."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let its processes go on."""
        self._signal(signal.SIGCONT)

    def prime(self, change: Callable[[], None]) -> None:
        """Wait until it has a change."""
        begun = time.monotonic()
        while not self.counted:
            self.check(begun)
            change()
            self.settle()

    def settle(self) -> None:
        """Wait until no message comes any more."""
        before = -1
        while before != self.counted:
            before = self.counted
            time.sleep(QUIET_SECONDS)
            self.counted = self.count()

    def run(self, messages: int) -> Run:
        """Go on until so many messages have come, then stop."""
        self.expect(messages)
        begun = Run(time.time(), cpu_seconds())
        self.go_on()
        ended = self.wait()
        used = Run(ended, cpu_seconds()).joined(begun, operator.sub)
        self.settle()
        self.stop()
        return used

    @abstractmethod
    def count(self) -> int:
        """Return the number of messages so far."""

    @abstractmethod
    def expect(self, messages: int) -> None:
        """Note, while it is stopped, how many messages come next."""

    @abstractmethod
    def wait(self) -> float:
        """Wait for the expected messages. Return when the last one came, in seconds since 1970 UTC."""

    def check(self, since: float) -> None:
        """Raise RuntimeError if the process has ended or takes too long."""
        if self._process.poll() is not None or time.monotonic() - since > PATIENCE:
            raise RuntimeError(f"{self.name} did not get there: {self.output.read_text()[-2000:]}")


class Engine(Contender):
    """The Debezium engine."""

    def __init__(self, mysql: MySQLServer, broker: KafkaBroker, folder: Path, form: str, does: str) -> None:
        folder.mkdir()
        prefix, schemas = folder.name, str(form == "json-schema").lower()
        topic = f"{prefix}.{DB}.orders"
        settings = {
            "name": prefix, "topic.prefix": prefix, "database.server.id": crc32(prefix.encode()),
            "topic": topic, "connect.keep.alive": "false",  # it would take the stop for a lost connection
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.hostname": mysql.host, "database.port": mysql.port, "database.user": mysql.user,
            "database.password": "", "table.include.list": f"{DB}.orders", "snapshot.mode": "no_data",
            "key.converter.schemas.enable": schemas, "value.converter.schemas.enable": schemas,
            "converter.schemas.enable": schemas,
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": folder / "offsets",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": folder / "history",
        }  # fmt: skip
        _write(folder / "engine.properties", settings)
        arguments, producer = ["engine.properties"], PRODUCERS[does]
        if producer is not None:
            broker.create_topic(topic)
            _write(folder / "producer.properties", {"bootstrap.servers": broker.bootstrap, "acks": "all", **producer})
            arguments.append("producer.properties")
        program = Path(__file__).with_name("DebeziumChanges.java")
        command = [java(), *JAVA_FLAGS, "-cp", f"{jars()}/*", str(program), *arguments]
        super().__init__(engine_name(does, form), form, folder, command)
        self._lasts = 0

    def count(self) -> int:
        """Return the number of messages so far."""
        known = len(self._printed("counted"))
        self._ask(0)
        return self._wait_for("counted", known)

    def expect(self, messages: int) -> None:
        """Note how many messages come next: it reads this once it goes on."""
        self._ask(self.counted + messages)

    def wait(self) -> float:
        """Wait for the expected messages. Return when the last one came, in seconds since 1970 UTC."""
        last = self._wait_for("last", self._lasts) / 1e6
        self._lasts += 1
        return last

    def _ask(self, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()

    def _wait_for(self, word: str, known: int) -> int:
        """Return the newest number that was printed after a word, when there are more than the known ones."""
        begun = time.monotonic()
        while len(numbers := self._printed(word)) <= known:
            self.check(begun)
            time.sleep(0.02)
        return numbers[-1]

    def _printed(self, word: str) -> list[int]:
        lines = [line.split() for line in self.output.read_text().splitlines()]
        return [int(line[1]) for line in lines if line[:1] == [word]]


class Pipeline(Contender):
    """``headgate run``."""

    def __init__(self, mysql: MySQLServer, broker: KafkaBroker, folder: Path, delivery: str, form: str) -> None:
        from confluent_kafka import Consumer

        folder.mkdir()
        prefix = f"{delivery}-{form}"
        self._topic, self._expected = f"{prefix}.{DB}.orders", 0
        broker.create_topic(self._topic)
        client = {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "isolation.level": "read_committed"}
        self._consumer = Consumer(client)
        (folder / "pipeline.toml").write_text(
            f'name = "bench-{prefix}"\n[source]\nurl = "{mysql.url}/?tls=disabled"\ntables = ["{DB}.orders"]\n'
            f'snapshot_mode = "no_data"\n[target]\npath = "{folder / "lake"}"\nmode = "kafka"\n[target.kafka]\n'
            f'bootstrap = "{broker.bootstrap}"\ntopic_prefix = "{prefix}"\ntombstones = false\n'
            f'delivery = "{delivery}"\nformat = "{form}"\n'
        )
        command = [sys.executable, "-m", "headgate.cli", "run", "pipeline.toml"]
        super().__init__(f"headgate, {delivery}, {form}", form, folder, command)

    def expect(self, messages: int) -> None:
        """Note how many messages come next."""
        # In a topic with transactions, their markers have offsets, too; all but the last one's are before its messages.
        self._expected = self.counted + messages

    def wait(self) -> float:
        """Wait for the expected messages. Return when the last one came, in seconds since 1970 UTC."""
        begun = time.monotonic()
        while self.count() < self._expected:
            self.check(begun)
            time.sleep(0.02)
        return time.time()

    def count(self) -> int:
        """Return the end of the topic."""
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

    def median(self, name: str) -> Run:
        """Return a contender's run, each figure the median's."""
        runs = self.runs[name]
        cpu = {part: median(run.cpu[part] for run in runs) for part in PARTS}
        return Run(median(run.seconds for run in runs), cpu)


class Load:
    """The table and who writes it."""

    def __init__(self, mysql: MySQLServer) -> None:
        self._mysql, self._rows = mysql, 0
        mysql.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.orders ({SCHEMA})")

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


def compare(contenders: list[Contender], workloads: list[Workload], rounds: int) -> None:
    """Run them all; the contenders have been stopped."""
    for number in range(rounds + 1):
        for workload in workloads:
            progress(f"round {number}, {workload.name}: {workload.messages:,} changes")
            workload.write()
            for one in contenders if number % 2 else contenders[::-1]:
                run = one.run(workload.messages)
                progress(f"{one.name}: {run}")
                if number:
                    workload.runs.setdefault(one.name, []).append(run)


def engine_name(does: str, form: str) -> str:
    return f"debezium {does}, {form}"


def _write(file: Path, properties: Mapping[str, Any]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def line(workload: Workload, one: Contender) -> dict[str, Any]:
    run = workload.median(one.name)
    engines = {does: workload.median(engine_name(does, one.form)) for does in FORMS[one.form]}
    ratios = {f"of_debezium_that_{does}": round(engine.seconds / run.seconds, 2) for does, engine in engines.items()}
    is_met = ratios[f"of_debezium_that_{COMPARED}"] >= RATIO
    return {
        "workload": workload.name, "sent_by": one.name, "messages": workload.messages,
        "seconds": round(run.seconds, 2), "messages_per_second": int(workload.messages / run.seconds),
        **ratios, "ok": "" if isinstance(one, Engine) else "ok" if is_met else "MISSED",
        **{part: round(run.cpu[part], 2) for part in PARTS},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output")
    args = parser.parse_args()
    flags: dict[str, str | int] = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0}
    flags |= {"max_binlog_size": 1 << 30, "net_write_timeout": 3600}  # a stopped reader reads nothing
    with ExitStack() as stack:
        mysql = stack.enter_context(MySQLServer.start(flags=flags))
        broker = stack.enter_context(KafkaBroker.start())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        load, contenders = Load(mysql), list[Contender]()

        def begin(contender: Contender) -> None:
            contenders.append(stack.enter_context(contender))
            contender.prime(load.change)
            progress(f"{contender.name} follows the log")

        for form, done in FORMS.items():
            for number, does in enumerate(done):
                begin(Engine(mysql, broker, folder / f"engine{number}-{form}", form, does))
            for delivery in ("at-least-once", "exactly-once"):
                begin(Pipeline(mysql, broker, folder / f"{delivery}-{form}", delivery, form))
        for one in contenders:
            one.settle()
        for one in contenders:
            one.stop()
        workloads = [
            Workload("bulk", args.rows, lambda: load.bulk(args.rows)),
            Workload("oltp", args.transactions, lambda: load.oltp(args.transactions)),
        ]
        compare(contenders, workloads, args.rounds)
        results = [line(workload, one) for workload in workloads for one in contenders]
    return report("kafka", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())
