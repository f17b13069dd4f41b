"""Notifications as messages of Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headgate.control import KafkaChannel, Notification
from headgate.errors import NotificationError

EVENT = Notification("e-1", "s", "Incremental Snapshot", "STARTED", {"data_collections": 'shop."a"'}, 1_700_000_000_000)


class FakeProducer:
    """A producer whose broker accepts everything, or answers each message with an error."""

    def __init__(self, error: KafkaError | None) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self._error = error

    def produce(self, _topic: str, value: bytes, key: bytes, on_delivery: Callable[..., None]) -> None:
        self.sent.append((key, value))
        on_delivery(self._error, None)

    def flush(self, _seconds: float) -> int:
        return 0

    def purge(self) -> None:
        self.sent.clear()


def channel(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None = None, **more: Any
) -> tuple[KafkaChannel, FakeProducer]:
    producer = FakeProducer(error)
    monkeypatch.setattr("confluent_kafka.Producer", lambda _settings: producer)
    return KafkaChannel("broker:9092", "events", key="shop", **more), producer


def test_plain_json(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, producer = channel(monkeypatch)
    kafka.send(7, [EVENT])
    ((key, value),) = producer.sent
    assert key == b"shop"
    assert json.loads(value) == {**EVENT.to_dict(), "epoch": 7}


def test_with_schemas_as_json_converter_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema is that of Debezium's channel ``sink``, with two fields more."""
    kafka, producer = channel(monkeypatch, schemas=True)
    kafka.send(7, [EVENT])
    ((key, value),) = producer.sent
    assert key == b'{"schema":{"type":"string","optional":false},"payload":"shop"}'
    text = '{"type":"string","optional":false,"field":"%s"}'
    fields = [text % name for name in ("id", "type", "aggregate_type")]
    fields.append(
        '{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":false},'
        '"optional":true,"field":"additional_data"}'
    )
    fields += ['{"type":"int64","optional":false,"field":"timestamp"}', text % "event_id"]
    fields.append('{"type":"int64","optional":false,"field":"epoch"}')
    schema, _, payload = value.decode().partition(',"payload":')
    assert schema == (
        f'{{"schema":{{"type":"struct","fields":[{",".join(fields)}],"optional":false,'
        '"name":"io.debezium.connector.common.Notification","version":1}'
    )
    assert json.loads(payload[:-1]) == {**EVENT.to_dict(), "epoch": 7}


def test_a_missing_topic_is_named_with_the_command_that_creates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, _ = channel(monkeypatch, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(NotificationError) as caught:
        kafka.send(7, [EVENT])
    command = "kafka-topics --bootstrap-server broker:9092 --create --topic events"
    assert caught.value.message == f"Kafka did not accept them: topic events does not exist: {command}"
