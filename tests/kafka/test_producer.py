"""Messages from Arrow columns to the broker that librdkafka pretends to be (``test.mock.num.brokers``)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from ctypes import c_int, c_size_t, c_void_p
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headgate.errors import ConfigError
from headgate.kafka import _producer as _kafka_producer
from headgate.kafka._producer import ANY_PARTITION, Producer, _library

PARTITIONS = 4


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    cluster = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    yield f"{broker.host}:{broker.port}"
    cluster.close()


def producer(bootstrap: str, **settings: Any) -> Producer:
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "partitioner": "murmur2_random", "acks": "all", **more}
    )


def column(*values: bytes | None) -> pa.Array:
    """As a slice of a longer column."""
    return pa.array([b"other", *values, b"other"], pa.large_binary())[1:-1]


def flush(producer: Producer) -> None:
    deadline = time.monotonic() + 60
    while len(producer) and time.monotonic() < deadline:
        producer.poll(0.01)
        producer.check()
    producer.check()
    assert not len(producer)


def read(bootstrap: str, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None, Any]]]:
    """Key, value and headers of each partition's messages."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    by_partition: dict[int, list[tuple[bytes | None, bytes | None, Any]]] = {number: [] for number in range(PARTITIONS)}
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None
        partition = message.partition()
        assert partition is not None
        if message.error():
            ended += 1
        else:
            by_partition[partition].append((message.key(), message.value(), message.headers()))
    consumer.close()
    return by_partition


def produce_all(producer: Producer, topic: str, values: pa.Array, keys: pa.Array, partition: int = 0) -> None:
    producer.produce_all(topic, partition, keys, values, np.arange(len(values)))


@pytest.mark.parametrize("room", [3, 100_000])
def test_each_message_once_and_in_order(bootstrap: str, room: int) -> None:
    topic, sender = (
        f"order-{room}",
        producer(bootstrap, enable_idempotence=True, linger_ms=0, queue_buffering_max_messages=room),
    )
    keys, values = column(*(b"k%d" % (n % 7) for n in range(1000))), column(*(b"v%d" % n for n in range(1000)))
    for start in (0, 500):
        sender.produce_all(topic, ANY_PARTITION, keys, values, np.arange(start, start + 500))
    flush(sender)
    sender.close()
    by_partition = read(bootstrap, topic)
    by_key: dict[bytes, list[bytes | None]] = {}
    for messages in by_partition.values():
        for key, value, _ in messages:
            assert key is not None
            by_key.setdefault(key, []).append(value)
    assert by_key == {b"k%d" % k: [b"v%d" % n for n in range(k, 1000, 7)] for k in range(7)}
    assert all(len({key for key, *_ in messages}) < 7 for messages in by_partition.values())


def test_as_confluents_producer(bootstrap: str) -> None:
    """The same partitions, nulls and headers."""
    rows: list[tuple[bytes | None, bytes | None, int, Any]] = [
        (b"a", b"1", -1, None), (b"b", None, -1, None), (None, b"3", 2, None),
        (b"a", b"4", -1, ("name", b"header")), (b"c", b"5", 1, ("other", b"")), (b"d", b"6", -1, None),
    ]  # fmt: skip
    ours, theirs = (
        producer(bootstrap),
        confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "log_level": 0}),
    )
    for key, value, partition, header in rows:
        if header is None:
            produce_all(ours, "ours", column(value), column(key), partition)
        else:
            ours.produce("ours", value, key, partition, header)
        theirs.produce("theirs", value, key, partition, headers=None if header is None else [header])
    flush(ours)
    theirs.flush(60)
    ours.close()
    assert read(bootstrap, "ours") == read(bootstrap, "theirs")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"enable_idempotence": True, "acks": 1}, "acks"),
        ({"linger_ms": "x"}, "queue.buffering"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaException, match=text) as raised:
        producer("h:1", **settings)
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG


def test_a_message_that_is_refused_at_once(bootstrap: str) -> None:
    sender, large = producer(bootstrap, message_max_bytes=1000), b"v" * 2000
    with pytest.raises(KafkaException, match="too large"):
        sender.produce("large", large, None, 0)
    with pytest.raises(KafkaException, match="too large"):
        produce_all(sender, "large", column(b"v", large), pa.nulls(2, pa.large_binary()))
    flush(sender)
    sender.close()


def test_flush_does_not_wait_for_more(bootstrap: str) -> None:
    sender = producer(bootstrap, linger_ms=200_000)
    sender.produce("flushed", b"v", b"k", 0)
    sender.poll(0.1)
    assert len(sender) == 1
    sender.flush(60)
    assert not len(sender)
    sender.close()


def test_a_stopped_producer_waits_no_more() -> None:
    sender = producer("127.0.0.1:1", queue_buffering_max_messages=1)
    sender.produce("t", b"1", None, 0)
    sender.stop()
    with pytest.raises(KafkaException) as raised:
        sender.produce("t", b"2", None, 0)  # the queue is full
    assert raised.value.args[0].code() == KafkaError._DESTROY
    sender.purge()
    sender.close()


@pytest.mark.parametrize("room", [1, 10])
def test_brokers_that_are_away(room: int) -> None:
    """With a full queue, and after the last message."""
    sender = producer("127.0.0.1:1", message_timeout_ms=1, queue_buffering_max_messages=room)

    def send() -> None:
        produce_all(sender, "t", column(b"1", b"2"), column(None, None))
        flush(sender)

    with pytest.raises(KafkaException) as raised:
        send()
    assert raised.value.args[0].code() == KafkaError._MSG_TIMED_OUT
    sender.purge()
    assert not len(sender)
    sender.close()


def test_transactions(bootstrap: str) -> None:
    first = producer(bootstrap, transactional_id="t", transaction_timeout_ms=60_000)
    first.init_transactions(60)
    for number, end in enumerate((first.commit_transaction, first.abort_transaction)):
        first.begin_transaction()
        first.produce("transactions", b"%d" % number, b"k", 0)
        flush(first)
        end(60)
    with pytest.raises(KafkaException, match="state") as raised:
        first.commit_transaction(60)
    assert not raised.value.args[0].fatal()
    first.begin_transaction()
    _library()["rd_kafka_test_fatal_error"](c_void_p(first._client), KafkaError._FENCED, b"as if fenced")
    for send in (first.check, lambda: first.produce("transactions", b"2", b"k", 0)):
        with pytest.raises(KafkaException, match="as if fenced") as raised:
            send()
        assert raised.value.args[0].fatal()
        assert raised.value.args[0].code() == KafkaError._FENCED
    first.close()


@pytest.mark.parametrize("partition", [ANY_PARTITION, 0, 2])
def test_a_transaction_with_a_new_topic(bootstrap: str, partition: int) -> None:
    """The client gets to know the topic when its first messages are queued."""
    topic, values = f"new-{partition}", [b"%d" % number for number in range(10)]
    sender = producer(bootstrap, transactional_id=topic)
    sender.init_transactions(60)
    sender.begin_transaction()
    produce_all(sender, topic, column(*values), column(*(b"k" for _ in values)), partition)
    flush(sender)
    sender.commit_transaction(60)
    sender.close()
    (messages,) = filter(None, read(bootstrap, topic).values())
    assert [value for _, value, _ in messages] == values


def test_a_transaction_that_fails_says_why() -> None:
    """Its messages fail because librdkafka purges them, which is not why."""
    sender = producer("", test_mock_num_brokers=1, transactional_id="t")
    sender.init_transactions(60)
    sender.begin_transaction()
    library, errors = _library(), (c_int * 1)(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    mocked, push_errors, add_partitions_to_txn = (
        library["rd_kafka_handle_mock_cluster"],
        library["rd_kafka_mock_push_request_errors_array"],
        24,
    )
    mocked.restype = c_void_p
    push_errors(c_void_p(mocked(c_void_p(sender._client))), add_partitions_to_txn, c_size_t(1), errors)
    produce_all(sender, "topic", column(b"1", b"2"), column(None, None))
    with pytest.raises(KafkaException, match="Failed to add partition") as raised:
        flush(sender)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    sender.abort_transaction(60)
    sender.close()


def test_a_library_that_hides_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kafka_producer, "_SIGNATURES", {"of_later_versions": (None, ())})
    _library.cache_clear()
    with pytest.raises(ConfigError, match=r"does not show rd_kafka_of_later_versions of its librdkafka: install"):
        _library()
