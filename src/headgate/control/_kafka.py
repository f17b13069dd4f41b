"""Notifications to a Kafka topic: the event as JSON, the pipeline's name as the key, so that one partition keeps order.

The producer is idempotent and waits for all replicas (librdkafka's "Introduction", "Idempotent Producer"). If the
broker does not accept an event in time, the whole batch is sent again: at least once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.control._events import Notification
from headgate.control._kafka_client import KafkaCluster
from headgate.errors import ConfigError, NotificationError
from headgate.extras import require_extra

if TYPE_CHECKING:
    from confluent_kafka import Producer

__all__ = ["KafkaChannel"]


class KafkaChannel:
    """The channel ``kafka``.

    :param bootstrap: ``host:port``, or several, comma-separated.
    :param key: key of every message: the pipeline's name.
    :param settings: a file of further settings of librdkafka: :class:`KafkaCluster`.
    :param timeout_seconds: time limit of the broker for a batch.
    """

    name = "kafka"

    def __init__(
        self, bootstrap: str, topic: str, *, key: str, settings: str | None = None, timeout_seconds: float = 10
    ) -> None:
        require_extra("kafka")
        self._cluster, self._topic, self._key = KafkaCluster(bootstrap, settings), topic, key
        self._timeout = timeout_seconds
        self._producer: Producer | None = None

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Produce a batch's notifications, and wait until the broker has them.

        :raises NotificationError: the broker did not accept them, or the settings are wrong.
        """
        from confluent_kafka import KafkaError, KafkaException, Message

        failed: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error.str())

        try:
            producer = self._open()
            for one in notifications:
                value = json.dumps({**one.to_dict(), "epoch": epoch}, ensure_ascii=False).encode()
                producer.produce(self._topic, value, self._key.encode(), on_delivery=delivered)
            left = producer.flush(self._timeout)
        except (KafkaException, BufferError) as error:
            self.close()
            raise NotificationError(f"Kafka: {error}") from None
        if left or failed:
            self.close()  # its queue must not be sent in parallel with the next try
            raise NotificationError(f"Kafka did not accept them: {failed[0] if failed else 'no answer in time'}")

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
