"""A pipeline into Kafka: what a consumer of Debezium's format makes of the messages, from a real server and broker."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from headgate.carrier import ControlFolder
from headgate.errors import HeadgateError, TargetError
from headgate.gtid import GtidSet
from headgate.kafka import KafkaTarget
from headgate.lake import Lake
from headgate.pipeline import check_config, check_interfaces
from headgate.status import read_status
from headgate_testing import KafkaBroker, MySQLServer, wait_until
from tests.integration.runs import TEXT, Runs, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Consumed(NamedTuple):
    """A message as Debezium's consumers read it."""

    topic: str
    key: Any
    value: Any
    headers: dict[str, Any]
    partition: int
    key_text: str = ""
    header_texts: tuple[tuple[str, str], ...] = ()


class KafkaRuns(Runs):
    """A pipeline whose target is Kafka."""

    def __init__(self, spark: SparkSession, server: MySQLServer, db: str, folder: Path, broker: KafkaBroker) -> None:
        super().__init__(spark, server, db, folder)
        self.broker = broker
        self.prefix = f"p{uuid.uuid4().hex[:8]}"
        self.modes = '["kafka"]'
        self.settings = ""

    def text(self) -> str:
        kafka = f'bootstrap = "{self.broker.bootstrap}"\ntopic_prefix = "{self.prefix}"\n{self.settings}'
        chosen = {"name": self.name, "tables": self.tables, "modes": self.modes, "reads": self.reads}
        return TEXT.format(**self._template_values, **chosen, more=f"[target.kafka]\n{kafka}\n{self.more}")

    def topic(self, table: str) -> str:
        return f"{self.prefix}.{self.db}.{table}"

    def messages(self, *topics: str, committed: bool = False) -> list[Consumed]:
        """All messages of these topics, each partition in order."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "test",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # a fetch that waits longer than a heartbeat takes never sees the end
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "log_level": 0,
            }
        )
        messages: list[Consumed] = []
        try:
            known = consumer.list_topics(timeout=30).topics
            parts = [(topic, number) for topic in topics if topic in known for number in known[topic].partitions]
            consumer.assign([TopicPartition(topic, number, 0) for topic, number in parts])
            ended: set[tuple[str, int]] = set()
            while len(ended) < len(parts):
                message = consumer.poll(30)
                assert message is not None
                topic, partition = message.topic() or "", message.partition() or 0
                if message.error():
                    ended.add((topic, partition))
                    continue
                pairs: Any = message.headers() or ()
                texts = tuple((name, value.decode()) for name, value in pairs)
                headers = {name: json.loads(value, strict=False) for name, value in texts}
                key, value = (None if one is None else json.loads(one) for one in (message.key(), message.value()))
                key_text = (message.key() or b"").decode()
                messages.append(Consumed(topic, key, value, headers, partition, key_text, texts))
        finally:
            consumer.close()
        return messages

    def expected(self, table: str) -> dict[str, dict[str, Any]]:
        """The source's rows, as ``folded`` has them."""
        rows = self.source(f"{self.db}.{table}").items()
        return {json.dumps({"id": i}): {"id": i, "v": v, "n": n} for i, (v, n) in rows}

    def folded(self, *topics: str, committed: bool = False) -> dict[str, dict[str, Any]]:
        """The tables as a consumer has them that applies the messages in their order; keys as JSON."""
        tables: dict[str, dict[str, Any]] = defaultdict(dict)
        for one in self.messages(*topics, committed=committed):
            table = tables[one.topic]
            if one.value is None or one.value["op"] == "d":
                table.pop(json.dumps(one.key), None)
            else:
                table[json.dumps(one.key)] = one.value["after"]
        return tables


@pytest.fixture
def runs(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, kafka_broker: KafkaBroker
) -> KafkaRuns:
    return KafkaRuns(spark, mysql_server, mysql_db, tmp_path, kafka_broker)


def test_snapshot_and_changes(runs: KafkaRuns) -> None:
    runs.table("a", 150)
    runs.do("CREATE TABLE keyless (v INT)", "INSERT INTO keyless VALUES (1)")
    runs.broker.create_topic(runs.topic("a"), 3)
    runs.run()
    first = runs.messages(runs.topic("a"))
    assert len(first) == 150
    assert {one.value["op"] for one in first} == {"r"}
    assert len({one.partition for one in first}) == 3
    runs.do(
        "INSERT INTO a VALUES (1000, 1, 1)",
        "UPDATE a SET v = 77 WHERE id = 1",
        "UPDATE a SET id = 2000 WHERE id = 2",
        "DELETE FROM a WHERE id = 3",
        "DELETE FROM keyless",
    )
    runs.run()
    later = [one for one in runs.messages(runs.topic("a")) if one.value is None or one.value["op"] != "r"]
    assert len(later) == 7
    shown = {
        one.key["id"]: [
            (m.value and (m.value["op"], m.value["before"], m.value["after"]), m.headers)
            for m in later
            if m.key == one.key
        ]
        for one in later
    }
    assert shown == {
        1000: [(("c", None, {"id": 1000, "v": 1, "n": 1}), {})],
        1: [(("u", {"id": 1, "v": 1, "n": None}, {"id": 1, "v": 77, "n": None}), {})],
        2: [
            (("d", {"id": 2, "v": 2, "n": None}, None), {"__debezium.newkey": {"id": 2000}}),
            (None, {"__debezium.newkey": {"id": 2000}}),
        ],
        2000: [(("c", None, {"id": 2000, "v": 2, "n": None}), {"__debezium.oldkey": {"id": 2}})],
        3: [(("d", {"id": 3, "v": 3, "n": None}, None), {}), (None, {})],
    }
    source = next(one.value["source"] for one in later if one.value)
    log_file, _ = runs.server.log_status()
    assert source["file"] == log_file
    ((executed,),) = runs.server.query("SELECT @@gtid_executed")
    assert GtidSet.parse(source["gtid"]) <= GtidSet.parse(executed)
    keyless = runs.messages(runs.topic("keyless"))
    assert [(one.key, one.value["op"], one.partition) for one in keyless] == [(None, "r", 0), (None, "d", 0)]
    status = read_status(ControlFolder(Lake.of(runs.config()).inbox))
    assert status is not None
    assert status.kafka is not None
    assert status.kafka.messages == len(later) + 1
    assert status.kafka.bytes > 1000
    assert runs.folded(runs.topic("a"))[runs.topic("a")] == runs.expected("a")
    assert not Path(runs.lake.current(f"{runs.db}.a")).exists()


def test_next_to_current(runs: KafkaRuns) -> None:
    runs.modes = '["current", "kafka"]'
    runs.table("a", 300)
    runs.table("b", 50)
    runs.run()
    for start in range(0, 300, 50):
        runs.do(*(f"UPDATE a SET v = v + 1, n = {n} WHERE id BETWEEN {start} AND {start + 60}" for n in range(5)))
        runs.do("UPDATE b SET id = id + 1 ORDER BY id DESC")
    runs.run()
    for table in ("a", "b"):
        assert runs.folded(runs.topic(table))[runs.topic(table)] == runs.expected(table)
        assert runs.rows(f"{runs.db}.{table}") == runs.source(f"{runs.db}.{table}")
    before: dict[int, Any] = {}
    for one in runs.messages(runs.topic("a")):  # each change follows the previous one of its row
        assert one.value["op"] == "r" or one.value["before"] == before[one.key["id"]]
        before[one.key["id"]] = one.value["after"]


def test_before_a_run(runs: KafkaRuns, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The plan names the topics; two tables of one topic, and brokers that do not answer, are reported."""
    runs.table("a", 1)
    runs.prefix = "p"
    assert f"p.{runs.db}.a" in "".join(plan(runs.text(), tmp_path).split())
    runs.settings = "timeout_seconds = 1\n"
    runs.broker = SimpleNamespace(bootstrap="127.0.0.1:1")  # type: ignore[assignment]
    check_interfaces(runs.config())
    assert "does not answer" in caplog.text
    runs.do("CREATE TABLE `b$` (v INT)", "CREATE TABLE `b_` (v INT)")
    with pytest.raises(TargetError, match="would share the topic"):
        check_config(runs.config())


def test_transactions_and_schemas(runs: KafkaRuns) -> None:
    runs.settings = 'transactions = true\nformat = "json-schema"\ndelivery = "exactly-once"\n'
    runs.table("a", 5)
    runs.table("b", 5)
    runs.run()
    runs.do("BEGIN", "INSERT INTO a VALUES (10, 0, 0)", "DELETE FROM b WHERE id < 3", "UPDATE a SET v = 9", "COMMIT")
    runs.do("UPDATE b SET id = 33 WHERE id = 3")
    runs.run()
    topics = [runs.topic("a"), runs.topic("b")]
    messages = [one for one in runs.messages(*topics, committed=True) if one.value]
    assert {one.key["schema"]["name"] for one in messages} == {f"{topic}.Key" for topic in topics}
    values = [one.value["payload"] for one in messages]
    assert all(value["transaction"] is None for value in values if value["op"] == "r")
    numbered = sorted(
        (int(value["transaction"]["id"].rpartition(":")[2]), value["transaction"]["total_order"],
         value["transaction"]["data_collection_order"], value["source"]["table"], value["op"])
        for value in values if value["op"] != "r"
    )  # fmt: skip
    first = numbered[0][0]
    assert numbered == [
        (first, 1, 1, "a", "c"), (first, 2, 1, "b", "d"), (first, 3, 2, "b", "d"),
        *((first, 4 + n, 2 + n, "a", "u") for n in range(6)),
        (first + 1, 1, 1, "b", "d"), (first + 1, 2, 2, "b", "c"),
    ]  # fmt: skip
    about = runs.messages(f"{runs.prefix}.transaction", committed=True)
    payloads = [one.value["payload"] for one in about]
    assert [one["status"] for one in payloads] == ["BEGIN", "END"] * 2
    assert [one["event_count"] for one in payloads] == [None, 9, None, 2]
    assert payloads[1]["data_collections"] == [
        {"data_collection": f"{runs.db}.a", "event_count": 7}, {"data_collection": f"{runs.db}.b", "event_count": 2},
    ]  # fmt: skip
    assert {one.key["payload"]["id"] for one in about} == {value["id"] for value in payloads}


@pytest.mark.parametrize("form", ["json", "json-schema"])
def test_statements(runs: KafkaRuns, form: str) -> None:
    runs.settings = f'schema_changes_topic = true\nformat = "{form}"\ndelivery = "exactly-once"\n'
    runs.table("a", 5)
    runs.run()
    assert runs.messages(runs.prefix) == []
    runs.do(
        "INSERT INTO a VALUES (10, 0, 0)",
        "ALTER TABLE a ADD COLUMN more VARCHAR(9) NOT NULL DEFAULT 'x'",
        "UPDATE a SET v = 9 WHERE id = 10",
        "TRUNCATE TABLE a",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "DROP TABLE b",
    )
    runs.run()
    messages = runs.messages(runs.prefix, committed=True)
    if form == "json-schema":
        assert {one.value["schema"]["name"] for one in messages} == {"io.debezium.connector.mysql.SchemaChangeValue"}
    values = [one.value["payload"] if form == "json-schema" else one.value for one in messages]
    kinds = [(one["ddl"].split("(")[0].strip(), [c["type"] for c in one["tableChanges"]]) for one in values]
    assert kinds == [
        ("ALTER TABLE a ADD COLUMN more VARCHAR", ["ALTER"]),
        ("CREATE TABLE b", []),  # it was gone when the statement was read
        (f"DROP TABLE `{runs.db}`.`b`", ["DROP"]),
    ]
    columns = values[0]["tableChanges"][0]["table"]["columns"]
    assert [one["name"] for one in columns] == ["id", "v", "n", "more"]
    changes = [
        one.value["payload"] if form == "json-schema" else one.value
        for one in runs.messages(runs.topic("a"))
        if one.value
    ]
    insert, update = (next(one["source"] for one in changes if one["op"] == op) for op in ("c", "u"))
    assert insert["pos"] < values[0]["source"]["pos"] < update["pos"]


class Killed(Exception):
    """What a test raises where a run would be killed."""


def killed_before_ledger(runs: KafkaRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until the batch's messages are sent and its tables written, and end there."""
    with monkeypatch.context() as patched:

        def write(*_: Any) -> None:
            raise Killed

        patched.setattr("headgate.apply._schema_history.SchemaHistory.write", write)
        with pytest.raises(HeadgateError, match="Killed"):
            runs.run()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_killed_between_the_messages_and_the_ledger(
    runs: KafkaRuns, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    runs.settings = f'delivery = "{delivery}"\n'
    runs.table("a", 20)
    topic, times = runs.topic("a"), 1 if delivery == "exactly-once" else 2
    killed_before_ledger(runs, monkeypatch)
    assert len(runs.messages(topic, committed=True)) == 20
    runs.run()
    assert len(runs.messages(topic, committed=True)) == times * 20
    runs.do("UPDATE a SET v = v + 1", "DELETE FROM a WHERE id = 1")
    killed_before_ledger(runs, monkeypatch)
    runs.run()
    assert len(runs.messages(topic, committed=True)) == times * (20 + 20 + 2)
    assert runs.folded(topic, committed=True)[topic] == runs.expected("a")
    runs.do("INSERT INTO a VALUES (50, 1, 1)")
    runs.run()
    assert len(runs.messages(topic, committed=True)) == times * 42 + 1


def test_killed_before_the_commit(runs: KafkaRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of the aborted transaction are in the topic, but no consumer of committed ones sees them."""
    runs.settings = 'delivery = "exactly-once"\n'
    runs.table("a", 20)
    topic = runs.topic("a")
    with monkeypatch.context() as patched:

        def commit(*_: Any) -> None:
            raise Killed

        patched.setattr(KafkaTarget, "_commit", commit)
        patched.setattr(KafkaTarget, "_drop_unsent", lambda _: None)  # a killed process aborts nothing
        with pytest.raises(HeadgateError, match="Killed"):
            runs.run()
    runs.run()
    assert len(runs.messages(topic)) == 40
    assert len(runs.messages(topic, committed=True)) == 20


def test_a_second_producer_fences_the_first(runs: KafkaRuns) -> None:
    from confluent_kafka import Producer

    runs.settings = 'delivery = "exactly-once"\n'
    runs.table("a", 20)

    def take_over(number: int) -> None:
        if number == 1:
            settings = {"bootstrap.servers": runs.broker.bootstrap, "transactional.id": "headgate-modes"}
            Producer(settings).init_transactions(60)
            runs.do("UPDATE a SET v = v + 1")

    with pytest.raises(TargetError, match="another run of a pipeline of this name"):
        runs.run(once=False, meanwhile=take_over)
    assert len(runs.messages(runs.topic("a"), committed=True)) == 20
    runs.run()
    assert runs.folded(runs.topic("a"), committed=True)[runs.topic("a")] == runs.expected("a")


def test_rows_that_pass_skipped_operations_and_a_chosen_key(runs: KafkaRuns) -> None:
    a, b, c = runs.table("a", 20), runs.table("b", 20), f"{runs.db}.c"
    runs.do("CREATE TABLE c (v INT, id INT NOT NULL)", "INSERT INTO c VALUES (1, 1), (2, 2)")
    runs.more = f'[tables."{a}"]\nrows = "v < 5"\n[tables."{b}"]\nskip = ["delete"]\n[tables."{c}"]\nkey = ["id"]\n'
    runs.run()
    assert runs.expected("a").keys() > runs.folded(runs.topic("a"))[runs.topic("a")].keys()
    runs.do(
        "UPDATE a SET v = 9 WHERE id = 3", "UPDATE a SET v = 0 WHERE id = 8", "UPDATE a SET v = 8 WHERE id = 9",
        "DELETE FROM a WHERE id = 2", "DELETE FROM b WHERE id = 5", "UPDATE b SET v = 7 WHERE id = 6",
        "UPDATE c SET v = 5 WHERE id = 2", "DELETE FROM c WHERE id = 1",
    )  # fmt: skip
    runs.run()
    topics = {name: runs.topic(name) for name in "abc"}
    folded = runs.folded(*topics.values())
    passing = {key: row for key, row in runs.expected("a").items() if row["v"] < 5}
    assert folded[topics["a"]] == passing
    operations = [(one.key["id"], one.value["op"]) for one in runs.messages(topics["a"]) if one.value is not None]
    assert [one for one in operations if one[1] != "r"] == [(3, "d"), (8, "c"), (2, "d")]
    assert folded[topics["b"]] == {**runs.expected("b"), '{"id": 5}': {"id": 5, "v": 5, "n": None}}
    assert folded[topics["c"]] == {'{"id": 2}': {"v": 5, "id": 2}}


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker that tests kill and restart."""
    with KafkaBroker.start() as broker:
        yield broker


@pytest.mark.long
def test_a_broker_that_is_away(runs: KafkaRuns, own_broker: KafkaBroker) -> None:
    """The run retries, and nothing is lost."""
    runs.table("a", 20)
    runs.settings, runs.broker = "timeout_seconds = 1\n", own_broker

    def meanwhile(number: int) -> bool:
        if number == 1:
            runs.do("UPDATE a SET v = v + 1")
            own_broker.kill()
            Thread(target=own_broker.restart, daemon=True).start()
        return number < 2

    runs.run(once=False, meanwhile=meanwhile)
    assert runs.folded(runs.topic("a"))[runs.topic("a")] == runs.expected("a")


def test_spark_makes_the_table_of_the_messages(runs: KafkaRuns) -> None:
    """By the code of docs/reference/kafka.md."""
    columns = "id, name, price, amount, made, day, data"
    runs.do(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9), price DECIMAL(12,3), amount BIGINT UNSIGNED,"
        " made DATETIME, day DATE, seen TIMESTAMP(3) NULL, data VARBINARY(9))",
        "INSERT INTO t (id) VALUES (1), (2), (3), (4)",
    )
    runs.run()
    runs.do(
        "SET time_zone = '+00:00'",
        "UPDATE t SET name = 'é 😀', price = -0.1, amount = 18446744073709551615, made = '1969-12-31 23:59:59',"
        " day = '2024-02-29', seen = '2024-02-29 12:34:56.120', data = X'00FF' WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
    )
    runs.run()
    fetched = [
        (one.key_text, None if one.value is None else json.dumps(one.value), one.partition, offset)
        for offset, one in enumerate(runs.messages(runs.topic("t")))
    ]
    messages = runs.spark.createDataFrame(fetched, "key STRING, value STRING, partition INT, offset BIGINT")
    page = Path("docs/reference/kafka.md").read_text("utf-8").partition("## Reading with Spark")[2]
    names: dict[str, Any] = {"messages": messages}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    rows = names["rows"].collect()
    expected = runs.server.query(f"SELECT {columns} FROM {runs.db}.t ORDER BY id")
    assert [row["id"] for row in rows if row["seen"]] == [1]
    assert sorted(tuple(row[name] for name in columns.split(", ")) for row in rows) == [*expected]
    (moment,) = [row["seen"] for row in rows if row["seen"]]
    assert moment.timestamp() == dt.datetime(2024, 2, 29, 12, 34, 56, 120_000, dt.UTC).timestamp()


def test_heartbeats_while_nothing_changes(runs: KafkaRuns) -> None:
    """They come between two batches, next to transactions, and end with the run."""
    runs.settings = 'heartbeat_ms = 50\ndelivery = "exactly-once"\nformat = "json-schema"\n'
    runs.table("a", 20)
    topic = f"__debezium-heartbeat.{runs.prefix}"
    idle: list[int] = []

    def times() -> list[int]:
        return [one.value["payload"]["ts_ms"] for one in runs.messages(topic, committed=True)]

    def change_later() -> None:
        since = time.time_ns() // 1_000_000
        wait_until(lambda: sum(one > since for one in times()) > 3)
        idle.extend(times())
        runs.do("UPDATE a SET v = v + 1")

    def meanwhile(number: int) -> bool:
        if number == 1:
            Thread(target=change_later, daemon=True).start()
        return number < 2

    runs.run(once=False, meanwhile=meanwhile)
    assert len(idle) > 3
    assert not [one for one in threading.enumerate() if one.name == "headgate-heartbeats"]
    assert times() == sorted(times())
    assert {one.partition for one in runs.messages(topic)} == {0}
    assert {one.key["payload"]["serverName"] for one in runs.messages(topic)} == {runs.prefix}
    assert len(runs.messages(runs.topic("a"), committed=True)) == 40


@pytest.mark.long
def test_heartbeats_of_a_broker_that_is_away(
    runs: KafkaRuns, own_broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    runs.settings, runs.broker = "heartbeat_ms = 50\ntimeout_seconds = 1\n", own_broker
    topic, config = f"__debezium-heartbeat.{runs.prefix}", runs.config().target.kafka
    assert config is not None
    target = KafkaTarget(config, "modes")
    with contextlib.closing(target), caplog.at_level(logging.WARNING, "headgate"):
        target.start()
        wait_until(lambda: len(runs.messages(topic)) > 1)
        own_broker.kill()
        wait_until(lambda: "Kafka: " in caplog.text)
        own_broker.restart()
        wait_until(lambda: "resumed after" in caplog.text)
        sent = len(runs.messages(topic))
        wait_until(lambda: len(runs.messages(topic)) > sent)
    assert len(caplog.messages) == 2
