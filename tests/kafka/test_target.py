from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.config import parse_config
from headgate.control import KafkaCluster
from headgate.errors import (
    ConfigError,
    ConnectError,
    HeadgateError,
    KafkaUnavailableError,
    SecondDriverError,
    TargetError,
)
from headgate.kafka import KafkaTarget, TopicNames
from headgate.kafka._cluster import HeartbeatSender, Topics
from headgate.kafka._heartbeats import Heartbeats
from headgate.kafka._target import SentBatch
from headgate.kafka.debezium.envelope import RECORDS, Envelope
from headgate_testing import wait_until
from tests.fix_carrier import FakeTable

DEFAULT = TopicNames("shop", "{prefix}.{db}.{table}")
TEXT = """\
name = "shop"
[source]
url = "mysql://u@h"
tables = ["shop.*"]
{source}
[target]
path = "/lake"
{target}
"""


def test_topics() -> None:
    assert DEFAULT.of("shop.orders") == "shop.shop.orders"
    assert DEFAULT.of("shop.a b.ü$") == "shop.shop.a_b.__"
    assert TopicNames("p", "cdc-{table}").of("shop.orders") == "cdc-orders"
    with pytest.raises(TargetError, match="no name for Kafka"):
        DEFAULT.of("shop." + "x" * 250)


def test_two_tables_of_one_topic_are_refused() -> None:
    known = DEFAULT.distinct(["shop.a$", "shop.b"], {})
    assert known == {"shop.shop.a_": "shop.a$", "shop.shop.b": "shop.b"}
    assert DEFAULT.distinct(["shop.b"], known) == known
    with pytest.raises(TargetError, match=r"shop\.a\$ and shop\.a_ would share"):
        DEFAULT.distinct(["shop.a_"], known)


@pytest.mark.parametrize(
    ("topic", "setting", "table", "what"),
    [
        ("{db}.{table}", "transactions = true", "shop.transaction", "transactions"),
        ("{table}", "schema_changes_topic = true", "crm.shop", "schema changes"),
        ("__{db}.{table}", "heartbeat_ms = 1000", "debezium-heartbeat.shop", "heartbeats"),
        ("{db}.{table}", 'delivery = "exactly-once"', "headgate-batches.shop", "batches that were sent"),
    ],
)
def test_a_table_whose_topic_has_other_messages_is_refused(topic: str, setting: str, table: str, what: str) -> None:
    def names(setting: str) -> TopicNames:
        target = f'mode = "kafka"\n[target.kafka]\nbootstrap = "k"\ntopic = "{topic}"\n{setting}'
        config = parse_config(TEXT.format(source="", target=target))
        assert config.target.kafka is not None
        return TopicNames.make(config.target.kafka, config.name)

    assert [*names("").distinct([table], {}).values()] == [table]
    assert [*names(setting).distinct(["shop.other"], {}).values()] == ["shop.other"]
    with pytest.raises(TargetError, match=f"{table} would share the topic .* with messages about {what}"):
        names(setting).distinct([table], {})


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("", 'mode = "kafka"', "bootstrap is missing"),
        ("", '[target.kafka]\nbootstrap = "k:1"', 'needs "kafka" in target.mode'),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = ""', r"target\.kafka\.bootstrap"),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"\ntopic = "{db}"', r"a name with \{table\}"),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"\ntopic = "{table}{x}"', r"a name with \{table\}"),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"\ntopic_prefix = "a b"', "first part of the names"),
        ('zero_dates = "text"', 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"', "zero_dates"),
    ],
)
def test_wrong_configurations(source: str, target: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_config(TEXT.format(source=source, target=target))


def test_a_configuration() -> None:
    target = 'mode = ["kafka", "current"]\n[target.kafka]\nbootstrap = "k:9092"\nsettings_file = "/k"'
    config = parse_config(TEXT.format(source="", target=target)).target
    assert config.mode == ("current", "kafka")
    assert config.kafka is not None
    assert (config.kafka.topic, config.kafka.settings_file, config.kafka.tombstones) == (
        "{prefix}.{db}.{table}", "/k", True,
    )  # fmt: skip


def test_the_identity_of_a_batch() -> None:
    sent = SentBatch(4, 1_700_000_000_000_000, "u:1-5")
    assert SentBatch.from_json(sent.to_json()) == sent
    later = json.dumps({**json.loads(sent.to_json()), "of a later headgate": 1})
    assert SentBatch.from_json(later) == sent


# --- sending, with Kafka's client replaced


class FakeProducer:
    """Kafka's client as the sink calls it: a queue that ``poll`` and ``flush`` send.

    :param room: messages that the queue holds.
    :param on_poll: called by each of them, instead of sending.
    """

    def __init__(self, room: int = 1000, on_poll: Callable[[], None] | None = None) -> None:
        self.room, self.on_poll = room, on_poll
        self.queue: list[tuple[Any, ...]] = []
        self.sent: list[tuple[Any, ...]] = []
        self.calls: list[str] = []
        self.failed: list[KafkaException] = []
        self.commit_errors: list[BaseException] = []
        self.is_stopped = False

    def __len__(self) -> int:
        return len(self.queue)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int = -1,
        header: tuple[str, bytes] | None = None,
    ) -> None:
        while len(self.queue) == self.room:
            self.poll(0)
            self.check()
        more = {"partition": partition} if partition >= 0 else {}
        self.queue.append((topic, value, key, {**more, **({"header": header} if header else {})}))

    def produce_all(self, topic: str, partition: int, keys: pa.Array, values: pa.Array, rows: Any) -> None:
        for row in rows:
            self.produce(topic, values[row].as_py(), keys[row].as_py(), partition)

    def poll(self, _: float) -> None:
        if self.on_poll is not None:
            self.on_poll()
            return
        self.sent += self.queue
        self.queue.clear()

    def flush(self, seconds: float) -> None:
        self.poll(seconds)

    def stop(self) -> None:
        self.is_stopped = True

    def check(self) -> None:
        if self.is_stopped:
            raise KafkaException(KafkaError(KafkaError._DESTROY, "the run is ending"))
        if self.failed:
            raise self.failed.pop()

    def purge(self) -> None:
        self.queue.clear()

    def close(self) -> None:
        self.calls.append("close")

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def commit_transaction(self, _: float) -> None:
        self.calls.append("commit")
        if self.commit_errors:
            raise self.commit_errors.pop(0)

    def abort_transaction(self, _: float) -> None:
        self.calls.append("abort")


BATCH = SentBatch(1, 2, "u:1-2")
FENCED = KafkaError(KafkaError._FENCED, "fenced", fatal=True)


def opened(producer: FakeProducer, settings: str = "") -> KafkaTarget:
    kafka = f'mode = "kafka"\n[target.kafka]\nbootstrap = "k:1"\ntimeout_seconds = 1\n{settings}'
    config = parse_config(TEXT.format(source="", target=kafka)).target.kafka
    assert config is not None
    target = KafkaTarget(config, "shop")
    target._producer = producer  # type: ignore[assignment]
    return target


@pytest.mark.parametrize(
    ("columns", "form", "error"),
    [
        ([("a-b", "int"), ("a_b", "int")], "avro", "columns a-b and a_b of .* would both be named a_b in Avro"),
        ([("a-b", "int"), ("a_b", "int")], "json", None),
        ([("made", "struct<a:int>")], "json", r"column made of type struct<a:int> has no form in messages"),
    ],
)
def test_what_has_no_form_is_found_before_anything_is_written(
    columns: list[tuple[str, str]], form: str, error: str | None
) -> None:
    def messages(*tables: FakeTable) -> dict[str, Any]:
        return {one.name: [SimpleNamespace(schema=one.name, definition=one.carried)] for one in tables}

    more = 'registry = "http://r"' if form == "avro" else ""
    target = opened(FakeProducer(), f'format = "{form}"\n{more}')
    with pytest.raises(HeadgateError, match=error) if error else nullcontext():
        target.check(messages(FakeTable(columns=(("id", "bigint"), *columns), mysql={"made": ""})))
    with pytest.raises(TargetError, match=r"shop\.a\$ and shop\.a_ would share the topic"):
        target.check(messages(FakeTable("shop.a$"), FakeTable("shop.a_")))


STAMPS = b'"op":"c","ts_ms":1700000000000,"ts_us":1700000000000000,"ts_ns":1700000000000000000}'


def value(row: int, transaction: str = "null") -> bytes:
    return f'{{"row":{row},"transaction":{transaction},'.encode() + STAMPS


def produce(target: KafkaTarget, *rows: dict[str, Any]) -> None:
    """Send messages as a batch."""
    target._produce(BATCH, Envelope(target._form("binlog.")), batches(*rows))


def record(row: int, **cells: Any) -> dict[str, Any]:
    """A message of the log; its value is JSON with no transaction."""
    default = {
        "table": "shop.a", "file": 1, "pos": row, "ordinal": 0, "part": 0, "gtid": "u:1", "ts_us": row,
        "key": f"k{row}".encode(), "value": value(row), "header": None, "other_key": None,
    }  # fmt: skip
    return {**default, **cells}


def batches(*rows: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist(list(rows), schema=RECORDS)


def test_messages_leave_in_their_order() -> None:
    producer = FakeProducer(room=2)
    rows = [
        record(1),
        record(2, table="shop.b", key=None),
        record(3, value=None),
        record(4, header="__debezium.newkey", other_key=b"k5"),
        record(5),
    ]
    produce(opened(producer), *rows)
    topics = defaultdict(list)
    for topic, *message in producer.sent:
        topics[topic].append(tuple(message))
    assert topics == {
        "shop.shop.a": [
            (value(1), b"k1", {}),
            (None, b"k3", {}),
            (value(4), b"k4", {"header": ("__debezium.newkey", b"k5")}),
            (value(5), b"k5", {}),
        ],
        "shop.shop.b": [(value(2), None, {"partition": 0})],
    }
    assert producer.calls == []


@pytest.mark.parametrize("form", ["json", "json-schema"])
def test_begins_and_ends_of_transactions(form: str) -> None:
    producer = FakeProducer()
    target = opened(producer, f'transactions = true\nformat = "{form}"\n')
    closing = b"}" if form == "json-schema" else b""
    produce(
        target, *(record(n, gtid=gtid, value=value(n) + closing) for n, gtid in ((1, "u:1"), (2, "u:1"), (3, "u:2")))
    )
    values = [json.loads(value) for topic, value, *_ in producer.sent if topic == "shop.transaction"]
    payloads = [value["payload"] if form == "json-schema" else value for value in values]
    assert [(one["status"], one["id"], one["event_count"]) for one in payloads] == [
        ("BEGIN", "u:1", None), ("END", "u:1", 2), ("BEGIN", "u:2", None), ("END", "u:2", 1),
    ]  # fmt: skip
    changes = [value for topic, value, *_ in producer.sent if topic == "shop.shop.a"]
    assert changes[1] == value(2, '{"id":"u:1","total_order":2,"data_collection_order":2}') + closing


def test_a_batch_is_a_transaction_that_ends_with_its_identity() -> None:
    producer = FakeProducer()
    retriable = KafkaException(KafkaError(KafkaError._TIMED_OUT, "later", retriable=True))
    producer.commit_errors = [retriable, retriable]
    target = opened(producer, 'delivery = "exactly-once"')
    produce(target, record(1))
    assert producer.calls == ["begin", "commit", "commit", "commit"]
    assert producer.sent[-1] == ("headgate-batches.shop", BATCH.to_json(), b"shop", {"partition": 0})
    produce(target, record(1))  # a replay
    assert (len(producer.sent), len(producer.calls)) == (2, 4)


@pytest.mark.parametrize(
    ("settings", "kilobytes"),
    [("", 16 << 10), ("message.max.bytes=30000000", 58593), ("queue.buffering.max.kbytes=9", "9")],
)
def test_the_largest_message_fits_into_the_queue(tmp_path: Path, settings: str, kilobytes: object) -> None:
    (tmp_path / "k").write_text(f"{settings}\n")
    target = opened(FakeProducer(), f'settings_file = "{tmp_path / "k"}"')
    assert target._settings()["queue.buffering.max.kbytes"] == kilobytes


def test_a_commit_that_fails_is_no_commit() -> None:
    producer = FakeProducer()
    producer.commit_errors = [KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "no"))]
    target = opened(producer, 'delivery = "exactly-once"')
    with pytest.raises(KafkaException):
        produce(target, record(1))
    assert target._sent is None


def test_messages_that_nobody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("headgate.kafka._target.time.monotonic", lambda: float(next(now)))
    target = opened(FakeProducer(on_poll=lambda: None))
    with pytest.raises(ConnectError, match="not accept all messages in time"):
        produce(target, record(1))


def test_close_drops_what_was_not_sent() -> None:
    producer = FakeProducer(on_poll=lambda: None)
    target = opened(producer, 'delivery = "exactly-once"')
    producer.produce("t", b"", b"")
    target.close()
    assert (len(producer), producer.calls, target._producer) == (0, ["abort", "close"], None)
    target.close()
    assert producer.calls == ["abort", "close"]


def sending_fails(target: KafkaTarget, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> BaseException:
    """Return what ``send`` raises, as ``error``."""
    monkeypatch.setattr(target._topics, "create", lambda _: None)
    monkeypatch.setattr("headgate.kafka._target._log_base", lambda _: "binlog.")
    monkeypatch.setattr(SentBatch, "of", lambda _: BATCH)
    monkeypatch.setattr("headgate.kafka._target._records", lambda *_: batches(record(1), record(2)))
    messages: dict[str, Sequence[Any]] = {"shop.a": []}
    with pytest.raises(error) as raised:
        target.send(None, messages, lambda: None)  # type: ignore[arg-type]
    assert target._producer is None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headgate-kafka_")]
    return raised.value


def test_a_batch_that_another_driver_wrote_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is looked at when that driver's producer can send nothing more, and before the first message."""
    producer = FakeProducer()
    monkeypatch.setattr(producer, "init_transactions", lambda _: producer.calls.append("init"), raising=False)
    target = opened(producer, 'delivery = "exactly-once"')
    target._producer = None
    monkeypatch.setattr("headgate.kafka._target.Producer", lambda _: producer)
    monkeypatch.setattr(target._topics, "create", lambda *_, **__: None)
    monkeypatch.setattr(target, "_newest_sent", lambda: None)
    monkeypatch.setattr(SentBatch, "of", lambda _: BATCH)

    def check() -> None:
        producer.calls.append("check")
        raise TargetError("another program wrote the ledger")

    with pytest.raises(TargetError, match="another program"):
        target.send(None, {"shop.a": []}, check)  # type: ignore[arg-type]
    assert (producer.calls, producer.sent) == (["init", "check", "abort", "close"], [])


@pytest.mark.parametrize("room", [1, 1000])
@pytest.mark.parametrize(
    ("reason", "error", "text"),
    [
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"), TargetError, "Kafka: too large"),
        (KafkaError(KafkaError._ALL_BROKERS_DOWN, "down"), KafkaUnavailableError, "Kafka: down"),
        (KafkaError(KafkaError._UNKNOWN_PARTITION, "no metadata yet"), KafkaUnavailableError, "Kafka: no metadata yet"),
        (FENCED, SecondDriverError, "Kafka: another run of a pipeline of this name has taken over"),
    ],
)
def test_a_message_that_fails_ends_the_batch(
    monkeypatch: pytest.MonkeyPatch, room: int, reason: KafkaError, error: type[HeadgateError], text: str
) -> None:
    """With a full queue, and after the last message."""
    producer = FakeProducer(room, on_poll=lambda: producer.failed.append(KafkaException(reason)))
    raised = sending_fails(opened(producer, 'delivery = "exactly-once"'), monkeypatch, error)
    assert str(raised).startswith(text)
    assert producer.calls == ["begin", "abort", "close"]


def test_a_transaction_that_lasted_too_long_was_ended_by_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers answer as after another producer's ``init_transactions``, but there is none, and a retry succeeds."""

    def late() -> None:
        monkeypatch.setattr("headgate.kafka._target.time.time", lambda: time.time_ns() / 1e9 + 960)
        producer.failed.append(KafkaException(FENCED))

    producer = FakeProducer(on_poll=late)
    raised = sending_fails(opened(producer, 'delivery = "exactly-once"'), monkeypatch, KafkaUnavailableError)
    assert str(raised) == "Kafka has ended a transaction that lasted 60 s longer than transaction.timeout.ms"


def test_unsent_messages_are_dropped_although_the_settings_have_become_invalid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They must not arrive next to those of the retry."""
    producer = FakeProducer(on_poll=lambda: producer.failed.append(KafkaException(FENCED)))
    more = f'delivery = "exactly-once"\nsettings_file = "{tmp_path / "gone"}"'
    raised = sending_fails(opened(producer, more), monkeypatch, SecondDriverError)
    assert str(raised).startswith("Kafka: another run of a pipeline of this name has taken over")
    assert producer.calls == ["begin", "abort", "close"]


@pytest.mark.parametrize("code", [KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID])
def test_a_producer_that_the_brokers_have_forgotten(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """After a week without a transaction; the retry's producer gets new ids."""
    producer = FakeProducer(on_poll=lambda: producer.failed.append(KafkaException(KafkaError(code, "forgotten"))))
    sending_fails(opened(producer, 'delivery = "exactly-once"'), monkeypatch, KafkaUnavailableError)


def test_close_waits_for_the_thread_that_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has failed beside it. The client of the C library must not be freed under it."""
    closing = threading.Thread(target=lambda: target.close())  # noqa: PLW0108 - it is assigned below

    def close() -> None:
        if closing.ident is None:
            closing.start()
            wait_until(lambda: producer.is_stopped, "the producer is stopped")
            assert "close" not in producer.calls

    producer = FakeProducer(on_poll=close)
    target = opened(producer)
    raised = sending_fails(target, monkeypatch, KafkaUnavailableError)
    closing.join(60)
    assert str(raised) == "Kafka: the run is ending"
    assert producer.calls == ["close"]


def test_an_error_that_is_not_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise MemoryError

    producer = FakeProducer(on_poll=fail)
    sending_fails(opened(producer), monkeypatch, MemoryError)
    assert producer.calls == ["close"]


# --- heartbeats


class Pauses(Event):
    """The event that stops a thread; its waits take no time.

    :param count: the pause in which the thread is stopped.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.seconds = count, list[float | None]()

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        if len(self.seconds) == self.count:
            self.set()
        return self.is_set()


class HeartbeatProducer(FakeProducer):
    """A producer whose brokers answer each message with an error of ``answers``; None, and later ones: accepted."""

    def __init__(self, settings: dict[str, Any], answers: Sequence[KafkaError | None] = ()) -> None:
        super().__init__()
        self.settings, self.answers = settings, [*answers]

    def poll(self, seconds: float) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            self.failed.append(KafkaException(answer))
        super().poll(seconds)


def beating(
    monkeypatch: pytest.MonkeyPatch, settings: str = "", pauses: int = 1, answers: Sequence[KafkaError | None] = ()
) -> tuple[Heartbeats, Pauses, list[HeartbeatProducer]]:
    """Return the heartbeats of a target after they have made their pauses; its producers."""
    producers: list[HeartbeatProducer] = []

    def connect(settings: dict[str, Any]) -> HeartbeatProducer:
        producers.append(HeartbeatProducer(settings, answers))
        return producers[-1]

    monkeypatch.setattr("headgate.kafka._cluster.Producer", connect)
    monkeypatch.setattr(Topics, "create", lambda *_, **__: None)
    target = opened(FakeProducer(), f"heartbeat_ms = 1500\n{settings}")
    beats = target._heartbeats
    assert beats is not None
    beats._stop = stop = Pauses(pauses)
    target.start()
    beats._thread.join(60)
    assert not beats._thread.is_alive()
    target.close()
    return beats, stop, producers


def test_no_heartbeats_by_default() -> None:
    target = opened(FakeProducer())
    target.start()
    assert target._heartbeats is None


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_heartbeats(monkeypatch: pytest.MonkeyPatch, delivery: str) -> None:
    times = iter([1_700_000_000_123_456_789, 1_700_000_001_624_000_000])
    monkeypatch.setattr("headgate.kafka._heartbeats.time.time_ns", lambda: next(times))
    _, stop, (producer,) = beating(monkeypatch, f'delivery = "{delivery}"', pauses=2)
    topic, key = "__debezium-heartbeat.shop", b'{"serverName":"shop"}'
    assert producer.sent == [
        (topic, b'{"ts_ms":1700000000123}', key, {"partition": 0}),
        (topic, b'{"ts_ms":1700000001624}', key, {"partition": 0}),
    ]
    assert stop.seconds == [1.5, 1.5]
    assert producer.calls == ["close"]
    assert "transactional.id" not in producer.settings


def test_heartbeats_with_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, (producer,) = beating(monkeypatch, 'topic_prefix = "p"\nformat = "json-schema"')
    ((topic, value, key, _),) = producer.sent
    assert topic == "__debezium-heartbeat.p"
    assert json.loads(key) == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "string", "optional": False, "field": "serverName"}],
            "optional": False,
            "name": "io.debezium.connector.common.ServerNameKey",
            "version": 1,
        },
        "payload": {"serverName": "p"},
    }
    assert json.loads(value)["schema"] == {
        "type": "struct",
        "fields": [{"type": "int64", "optional": False, "field": "ts_ms"}],
        "optional": False,
        "name": "io.debezium.connector.common.Heartbeat",
        "version": 1,
    }


def test_a_file_of_settings_may_name_the_transactions_of_batches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "k").write_text("transactional.id=ours\nclient.id=c\n")
    _, _, (producer,) = beating(monkeypatch, f'settings_file = "{tmp_path / "k"}"')
    assert producer.settings["client.id"] == "c"
    assert "transactional.id" not in producer.settings


def test_an_outage_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    away = KafkaError(KafkaError._MSG_TIMED_OUT, "away")
    beats, stop, (producer,) = beating(monkeypatch, pauses=5, answers=[None, away, away, away])
    assert stop.seconds == [1.5] * 5
    assert not producer.answers
    assert [record.getMessage() for record in caplog.records] == [
        "heartbeats of shop: Kafka: away (see docs/runbook.md#kafka-away)",
        "heartbeats of shop: resumed after 0 s",
    ]
    assert (beats.failed, beats.problem) == (False, None)


def test_brokers_that_refuse_heartbeats_end_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = KafkaError(KafkaError._TRANSPORT, "away")
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed")
    beats, stop, _ = beating(monkeypatch, pauses=5, answers=[away, refused])
    assert stop.seconds == [1.5]
    line = "heartbeats of shop: Kafka: not allowed; the run goes on without heartbeats"
    assert caplog.messages[-1] == f"{line} (see docs/runbook.md#refused-target)"
    assert len(caplog.messages) == 2
    assert isinstance(beats.error, TargetError)


# --- topics


class FakeAdmin:
    """Kafka's client of topics; the brokers answer each request to create one with ``answer``.

    :param listing: what asking for the topics raises.
    """

    def __init__(self, answer: Exception | None = None, listing: Exception | None = None) -> None:
        self.answer, self.listing = answer, listing
        self.created: list[str] = []

    def poll(self, _: float) -> None:
        """No report of a refused connection."""

    def list_topics(self, timeout: float) -> Any:
        if self.listing is not None:
            raise self.listing
        return SimpleNamespace(topics={"old": SimpleNamespace(error=None)})

    def create_topics(self, topics: list[Any]) -> dict[str, Future[None]]:
        self.created += [one.topic for one in topics]
        futures = {one.topic: Future[None]() for one in topics}
        for future in futures.values():
            if self.answer is None:
                future.set_result(None)
            else:
                future.set_exception(self.answer)
        return futures


def topics(monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin) -> Topics:
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda _: admin)
    return Topics(KafkaCluster("k:1", None), 1)


def kafka_error(code: int, text: str = "not now") -> KafkaException:
    return KafkaException(KafkaError(code, text))


def test_missing_topics_are_created_once(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin()
    known = topics(monkeypatch, admin)
    known.create({"old", "b", "a"})
    known.create({"a", "old"})
    assert admin.created == ["a", "b"]
    admin = FakeAdmin(kafka_error(KafkaError.TOPIC_ALREADY_EXISTS))  # another producer was faster
    topics(monkeypatch, admin).create({"a"})
    assert admin.created == ["a"]


@pytest.mark.parametrize(
    ("admin", "text"),
    [
        (FakeAdmin(listing=kafka_error(KafkaError._TRANSPORT, "away")), "Kafka: away"),
        (FakeAdmin(kafka_error(KafkaError.NOT_CONTROLLER)), "Kafka: topic a cannot be created now: not now"),
        (FakeAdmin(kafka_error(KafkaError.REQUEST_TIMED_OUT)), "Kafka: topic a cannot be created now: not now"),
        (FakeAdmin(kafka_error(KafkaError._TIMED_OUT)), "Kafka: topic a cannot be created now: not now"),
        (FakeAdmin(TimeoutError()), "Kafka: topic a was not created in time"),
    ],
)
def test_a_topic_that_cannot_be_created_now(monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin, text: str) -> None:
    """The run retries, and so do heartbeats."""
    known = topics(monkeypatch, admin)
    with pytest.raises(ConnectError) as raised:
        known.create({"a"})
    assert str(raised.value) == text
    admin.answer = admin.listing = None
    known.create({"a"})
    config, form = opened(FakeProducer())._config, opened(FakeProducer())._form("")
    admin.listing = kafka_error(KafkaError._TRANSPORT, "away")
    with pytest.raises(ConnectError, match="Kafka: away"):
        HeartbeatSender(config, "t", form).send({"serverName": "s"}, {"ts_ms": 1}, lambda: False)


def test_a_topic_that_the_brokers_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin(kafka_error(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed"))
    with pytest.raises(TargetError, match="topic a is missing and cannot be created: not allowed"):
        topics(monkeypatch, admin).create({"a"})


def test_close_ends_heartbeats_that_wait_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Event()
    producer = FakeProducer(on_poll=waiting.set)
    monkeypatch.setattr("headgate.kafka._cluster.Producer", lambda _: producer)
    monkeypatch.setattr(Topics, "create", lambda *_, **__: None)
    target = opened(FakeProducer(), "heartbeat_ms = 10\n")
    target.start()
    assert waiting.wait(60)
    target._drop_unsent()  # as after a batch that failed
    assert target._heartbeats is not None
    assert target._heartbeats._thread.is_alive()
    target.close()
    assert not target._heartbeats._thread.is_alive()
    assert len(producer) == 0


@pytest.mark.parametrize("milliseconds", [-1, 86_400_001, 0.5])
def test_wrong_heartbeats(milliseconds: float) -> None:
    with pytest.raises(ConfigError, match="heartbeat_ms"):
        opened(FakeProducer(), f"heartbeat_ms = {milliseconds}\n")
