"""Notifications to a Kafka topic: the event as JSON, the pipeline's name as the key, so that one partition keeps order.

The producer is idempotent and waits for all replicas (librdkafka's "Introduction", "Idempotent Producer"). If the
broker does not accept an event in time, the whole batch is sent again: at least once.

With schemas, keys and values are as Kafka Connect's ``JsonConverter`` writes them with ``schemas.enable``. The fields
are those of Debezium's channel ``sink``, ``event_id`` and ``epoch``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.control._events import Notification
from headgate.control._kafka_client import KafkaCluster
from headgate.errors import ConfigError, NotificationError
from headgate.extras import require_extra

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

__all__ = ["KafkaChannel"]

_KEY: Final = {"type": "string", "optional": False}
_VALUE: Final = {
    "type": "struct",
    "name": "io.debezium.connector.common.Notification",
    "version": 1,
    "optional": False,
    "fields": [
        *({**_KEY, "field": name} for name in ("id", "type", "aggregate_type")),
        {"type": "map", "keys": _KEY, "values": _KEY, "optional": True, "field": "additional_data"},
        {"type": "int64", "optional": False, "field": "timestamp"},
        {**_KEY, "field": "event_id"},
        {"type": "int64", "optional": False, "field": "epoch"},
    ],
}
"""Connect's schemas."""


class KafkaChannel:
    """The channel ``kafka``.

    :param bootstrap: ``host:port``, or several, comma-separated.
    :param key: key of every message: the pipeline's name.
    :param settings: a file of further settings of librdkafka: :class:`KafkaCluster`.
    :param schemas: put Connect's schema next to each key and value.
    :param timeout_seconds: time limit of the broker for a batch.
    """

    name = "kafka"

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        key: str,
        settings: str | None = None,
        schemas: bool = False,
        timeout_seconds: float = 10,
    ) -> None:
        require_extra("kafka")
        self._cluster, self._topic, self._key = KafkaCluster(bootstrap, settings), topic, key
        self._schemas, self._timeout = schemas, timeout_seconds
        self._producer: Producer | None = None

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Produce a batch's notifications, and wait until the broker has them.

        :raises NotificationError: the broker did not accept them, or the settings are wrong.
        """
        from confluent_kafka import KafkaException, Message

        failed: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(self._reason(error))

        try:
            producer = self._open()
            for one in notifications:
                key, value = self._message({**one.to_dict(), "epoch": epoch})
                producer.produce(self._topic, value, key, on_delivery=delivered)
            left = producer.flush(self._timeout)
        except (KafkaException, BufferError) as error:
            self.close()
            raise NotificationError(f"Kafka: {error}") from None
        if left or failed:
            self.close()  # its queue must not be sent in parallel with the next try
            raise NotificationError(f"Kafka did not accept them: {failed[0] if failed else 'no answer in time'}")

    def _reason(self, error: KafkaError) -> str:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return f"topic {self._topic} does not exist: {self._cluster.creation_command(self._topic)}"
        return error.str()

    def _message(self, event: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return the key and the value of an event."""
        from headgate.kernels import connect_json, connect_message, schema_json

        if not self._schemas:
            return self._key.encode(), connect_json(event)
        return connect_message(schema_json(_KEY), self._key), connect_message(schema_json(_VALUE), event)

    def _open(self) -> Producer:
        from confluent_kafka import Producer

        if self._producer is None:
            milliseconds = int(self._timeout * 1000)
            defaults = {
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": milliseconds,
                "socket.timeout.ms": milliseconds,
            }
            try:
                self._producer = Producer({**defaults, **self._cluster.settings()})
            except ConfigError as error:
                raise NotificationError(error.message) from None
        return self._producer

    def close(self) -> None:
        """Drop the producer and its unsent messages."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                producer.purge()
                producer.flush(0)
