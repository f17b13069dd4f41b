"""``kill -9`` of driver and broker while a million changes go to Kafka: each is committed once, in its key's order.

Each change adds one to a row's counter. So the messages of a key, as a transactional reader has them, must count 1, 2,
3 … up to what the table has: a lost message is a gap, one that was sent again is a repetition.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from headgate_testing import KafkaBroker, MySQLServer, pass_time
from tests.integration.pipeline.killing import RUN, assert_runs, batches_in, headgate, kill

CONFIG = """\
name = "killed"
[source]
url = "{url}"
tables = ["k.counters"]
snapshot_mode = "no_data"
[target]
path = "{lake}"
mode = "kafka"
[target.kafka]
bootstrap = "{bootstrap}"
delivery = "exactly-once"
timeout_seconds = 30
"""
ROWS, CHANGED, PARTITIONS = 20_000, 1_000, 3


class Counting(threading.Thread):
    """Transactions that each count up ``CHANGED`` neighbours: so many, and more until ``enough`` is set, so that every
    kill hits changes, however long a start takes.
    """

    def __init__(self, server: MySQLServer, transactions: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._server, self._least, self._choice = server, transactions, random.Random(seed)
        self.enough, self.written = threading.Event(), 0

    def run(self) -> None:
        with self._server.connect(database="k", autocommit=True) as connection, connection.cursor() as cursor:
            while self.written < self._least or not self.enough.is_set():
                first = self._choice.randrange(ROWS - CHANGED)
                cursor.execute("UPDATE counters SET n = n + 1 WHERE id >= %s AND id < %s", (first, first + CHANGED))
                self.written += 1
                pass_time(0.1)  # so that the kills hit changes


def counted(broker: KafkaBroker, topic: str) -> dict[int, list[int]]:
    """Each key's values in the order of its partition, for a reader of committed messages."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.auto.commit": False,
        "enable.partition.eof": True, "isolation.level": "read_committed",
    }  # fmt: skip
    consumer = Consumer(settings)
    values: dict[int, list[int]] = defaultdict(list)
    places: dict[int, set[int]] = defaultdict(set)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ended = 0
        while ended < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, "the topic's end did not come"
            if message.error():
                ended += 1
                continue
            value = json.loads(message.value() or b"")
            values[value["after"]["id"]].append(value["after"]["n"])
            places[value["after"]["id"]].add(message.partition() or 0)
    finally:
        consumer.close()
    assert all(len(partitions) == 1 for partitions in places.values())
    return values


def run_and_kill(config: Path, choice: random.Random, broker: KafkaBroker | None) -> None:
    """Run until some batches are done; kill the broker and start it again, or kill the driver, at a random moment."""
    log = config.parent / "log.txt"
    wanted, deadline = batches_in(log) + choice.randrange(1, 4), time.monotonic() + 300
    process = headgate(*RUN, config=config)
    try:
        while batches_in(log) < wanted:
            assert_runs(process, log, 0.1)
            assert time.monotonic() < deadline, log.read_text()[-4000:]
        assert_runs(process, log, choice.uniform(0, 1.5))
        if broker is not None:
            broker.kill()
            broker.restart()
            wanted = batches_in(log) + 2
            while batches_in(log) < wanted:
                assert_runs(process, log, 0.1)
                assert time.monotonic() < deadline, log.read_text()[-4000:]
    finally:
        kill(process)


@pytest.mark.slow
@pytest.mark.needs_own_server
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("transactions", "kills"), [(1_000, 12)])
def test_each_change_once_and_in_order(tmp_path: Path, transactions: int, kills: int) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choice = random.Random(seed)
    config = tmp_path / "pipeline.toml"
    with MySQLServer.start() as server, KafkaBroker.start() as broker:
        server.execute("CREATE DATABASE k", "CREATE TABLE k.counters (id INT PRIMARY KEY, n INT NOT NULL)")
        for first in range(0, ROWS, 5000):
            server.execute(f"INSERT INTO k.counters VALUES {','.join(f'({i}, 0)' for i in range(first, first + 5000))}")
        broker.create_topic("killed.k.counters", PARTITIONS)
        config.write_text(CONFIG.format(url=server.url, lake=tmp_path / "lake", bootstrap=broker.bootstrap))
        assert headgate("run", "--once", config=config).wait(300) == 0
        writer = Counting(server, transactions, seed)
        writer.start()
        for number in range(kills):
            run_and_kill(config, choice, broker if number % 4 == 3 else None)
        writer.enough.set()
        writer.join()
        assert headgate("run", "--once", config=config).wait(600) == 0
        with server.connect(database="k") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id, n FROM counters WHERE n > 0")
            counters = dict(cursor.fetchall())
        consumed = counted(broker, "killed.k.counters")
    assert sum(map(len, consumed.values())) == writer.written * CHANGED
    wrong = Counter(key for key, values in consumed.items() if values != list(range(1, counters[key] + 1)))
    assert not wrong, f"{len(wrong)} keys, such as {next(iter(wrong))}: {consumed[next(iter(wrong))]}"
    assert consumed.keys() == counters.keys()
