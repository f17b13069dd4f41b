"""Signals from a Kafka topic, forwarded into the inbox.

A message's key names its pipeline; its value is a signal as JSON, as Debezium's connectors take it (Debezium's
documentation, "Sending signals to a Debezium connector", Kafka signaling channel). Messages with other keys are for
other pipelines: they are skipped and counted, so one topic serves many pipelines.

Guarantees
==========

- **Each message takes effect once, and none is lost.** Each becomes a file of the inbox, named by topic and offset.
  ``forwarded.json`` there has the offset of the next message, which moves only after the files are durable. Before the
  files are written, it has the range that they are of. The planner calls :meth:`SignalForwarder.forward` and reads and
  removes files in one thread. So if it was killed between the files and their offset, no file of the range was taken
  yet, and the next process continues after the last one that exists. A planner without a topic settles that offset, too
  (:class:`NoForwarder`), before it takes the files.
- **In order.** A topic with several partitions has no order, so it is refused. So is a compacted topic: Kafka keeps
  only the newest message of a key, and all signals of a pipeline have one key. Both are checked again every minute,
  because they can be altered. ``submitted_us`` of the files grows with the offset, and is that of signals that are
  sent when they are forwarded.
- **An inbox without a position begins at the topic's end**: earlier messages were for another stream. So does another
  topic. Spark begins a stream several times before its first batch is committed, so a planner removes no position.
- **Kafka may be unavailable, or not know the topic.** The stream continues; only signals wait. A separate thread
  connects, and librdkafka fetches messages in the background, so a planning waits for neither, except with ``wait``.

Kafka stores nothing for the pipeline: no group, no commits. Messages that the topic no longer holds (retention) are
lost, with a warning. If the topic was recreated under its name and ends before the position, it is read from its
beginning.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from headgate.carrier import ControlFile, ControlFolder, signal_path
from headgate.config import SignalTopicConfig
from headgate.control._kafka_client import KafkaCluster, Refusals
from headgate.control._signals import outside_signal, sending_us
from headgate.errors import ConfigError, ConnectError, HeadgateError, Transient
from headgate.extras import require_extra
from headgate.parsing import parse_json

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["KafkaTopic", "NoForwarder", "SignalForwarder", "check_topic"]

log = logging.getLogger("headgate")

_RECONNECT_SECONDS: Final = 10.0
"""Pause after a failed attempt to connect."""
_CHECK_SECONDS: Final = 60.0
"""Interval between checks of the number of partitions and of the policy."""
_AT_ONCE: Final = 1000
_NAME_LIMIT: Final = 100
"""Characters of a topic in a signal's id; Kafka allows 249, and an id names a file."""
_REPORTED_KEYS: Final = 5


@dataclass(frozen=True)
class KafkaTopic:
    """A topic with signals, and the key of this pipeline's messages.

    :param key: the pipeline's name.
    """

    cluster: KafkaCluster
    topic: str
    key: str

    @classmethod
    def of(cls, config: SignalTopicConfig) -> KafkaTopic:
        """Return the topic of a configuration."""
        return cls(KafkaCluster(config.bootstrap, config.settings_file), config.topic, config.key)


def check_topic(topic: KafkaTopic) -> None:
    """Check that the topic can carry signals.

    :raises ConfigError: the topic does not exist, has several partitions, or is compacted; or the brokers refuse the
        connection.
    :raises ConnectError: no broker answers.
    """
    refusals = Refusals()
    try:
        _connect(topic, refusals, missing=ConfigError).close()
    except ConnectError as error:
        if refusals.reason:
            raise ConfigError(error.message) from None
        raise


def _connect(
    topic: KafkaTopic, refusals: Refusals | None = None, *, missing: type[HeadgateError] = ConnectError
) -> Consumer:
    """Return a consumer of a topic that can carry signals.

    :param missing: the error if the broker does not know the topic. While it restarts, it says so for a moment.
    """
    refusals = refusals or Refusals()
    require_extra("kafka")
    from confluent_kafka import Consumer, KafkaException

    fixed = {
        "group.id": f"headgate-{topic.key}",  # required, but never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    try:
        consumer = Consumer({**topic.cluster.settings(refusals), **fixed})
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigError(f"cannot create the Kafka client: {_error_text(error)}") from None
    try:
        _check_partitions(consumer, topic, missing)
        _check_policy(topic)
    except ConnectError:
        consumer.poll(0)
        consumer.close()
        if not refusals.reason:
            raise
        raise ConnectError(f"Kafka at {topic.cluster.bootstrap} cannot be used: {refusals.reason}") from None
    except BaseException:
        consumer.close()
        raise
    return consumer


def _check_partitions(consumer: Consumer, topic: KafkaTopic, missing: type[HeadgateError]) -> None:
    from confluent_kafka import KafkaError, KafkaException

    try:
        metadata = consumer.list_topics(topic.topic, timeout=topic.cluster.answer_seconds).topics[topic.topic]
    except KafkaException as error:
        raise ConnectError(f"Kafka at {topic.cluster.bootstrap} does not answer: {_error_text(error)}") from None
    if metadata.error is not None:
        if metadata.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise ConnectError(f"Kafka's topic {topic.topic}: {metadata.error.str()}")
        command = topic.cluster.creation_command(topic.topic, "--partitions 1 --config cleanup.policy=delete")
        raise missing(f"Kafka's topic {topic.topic} does not exist: {command}")
    if len(metadata.partitions) != 1:
        raise ConfigError(
            f"Kafka's topic {topic.topic} has {len(metadata.partitions)} partitions, so its messages have no order;"
            " use a topic with one partition"
        )


def _check_policy(topic: KafkaTopic) -> None:
    """Check the topic's cleanup policy, or its broker's default (Kafka's documentation, "Topic Configs")."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.topic)
    client = AdminClient(topic.cluster.settings())
    try:
        config = client.describe_configs([resource], request_timeout=topic.cluster.answer_seconds)[resource].result()
    except KafkaException as error:
        if error.args[0].name() not in _POLICY_HIDDEN:
            raise ConnectError(f"Kafka's topic {topic.topic}: {_error_text(error)}") from None
        _warn_hidden_policy(topic, _error_text(error))
        return
    policy = str(config["cleanup.policy"].value)
    if "compact" in policy:
        raise ConfigError(
            f"Kafka's topic {topic.topic} has cleanup.policy={policy}, and compaction keeps only the newest signal of a"
            f" key: kafka-configs --bootstrap-server {topic.cluster.bootstrap} --alter --entity-type"
            f" topics --entity-name {topic.topic} --add-config cleanup.policy=delete"
        )


_POLICY_HIDDEN: Final = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "_UNSUPPORTED_FEATURE")
"""Errors of librdkafka (``rd_kafka_resp_err_t``) when the broker hides the policy: no ACL, or no such request."""


@cache
def _warn_hidden_policy(topic: KafkaTopic, reason: str) -> None:
    """Warn once for each topic, which is checked every minute."""
    log.warning(
        "Kafka does not show the cleanup.policy of topic %s (%s). Grant the ACL DescribeConfigs, or check that"
        " the policy is delete, else signals are lost",
        topic.topic,
        reason,
    )


def _error_text(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    text = getattr(first, "str", None)
    return str(text()) if callable(text) else str(first)


@dataclass(frozen=True)
class _Cursor:
    """Content of ``forwarded.json``."""

    topic: str
    offset: int
    """All messages before it were forwarded."""
    until: int
    """Messages before it may have been."""

    def store(self, inbox: ControlFolder) -> _Cursor:
        """Write the file."""
        inbox.write(ControlFile.FORWARDED, asdict(self))
        return self


def _settled(inbox: ControlFolder) -> _Cursor | None:
    """Return the stored position, after moving it behind everything that is in the inbox; None: there is none."""
    content = inbox.read(ControlFile.FORWARDED) or {}
    names = _Cursor.__dataclass_fields__.keys()
    if not names <= content.keys():
        return None
    cursor = _Cursor(**{name: content[name] for name in names})
    if cursor.until <= cursor.offset:
        return cursor
    files = inbox.signals()
    done = [n + 1 for n in range(cursor.offset, cursor.until) if _name(cursor.topic, n) in files]
    offset = max(done, default=cursor.offset)
    return replace(cursor, offset=offset, until=offset).store(inbox)


def _name(topic: str, offset: int) -> str:
    """Return the name of a message's signal."""
    return f"kafka-{topic[:_NAME_LIMIT]}-{offset}"


class NoForwarder:
    """Forwarder of a planner without a signal topic. An earlier planner may have had one."""

    def __init__(self, inbox: ControlFolder) -> None:
        self._inbox: ControlFolder | None = inbox

    def forward(self, *, wait: bool = False) -> None:  # noqa: ARG002 - as SignalForwarder's
        """The first time, settle how far an earlier planner came: its files are taken now.

        :raises HeadgateError: the inbox cannot be read or written. Call it again before the inbox is read.
        """
        if self._inbox is not None:
            _settled(self._inbox)
            self._inbox = None


class SignalForwarder:
    """Forwarder of the messages of a signal topic into the inbox. For the thread of the planner that reads the inbox.

    :param clock: seconds, monotonic.
    """

    def __init__(self, topic: KafkaTopic, inbox: ControlFolder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic, self._inbox, self._clock = topic, inbox, clock
        self._connecting: _Connecting | None = None
        self._checking: _Connecting | None = None
        self._consumer: Consumer | None = None
        self._retry_at = self._check_at = clock()
        self._cursor: _Cursor | None = None
        self._next = -1
        """Offset of the next message to fetch; -1: the consumer is not assigned yet."""
        self._logged_problem: str | None = None

    def forward(self, *, wait: bool = False) -> None:
        """Put the messages that have arrived into the inbox. The first time, begin at the topic's end, or where it ends
        when Kafka is available again.

        :param wait: wait for all messages that the topic holds now, for 20 seconds at most.
        :raises ConfigError: the topic has several partitions now, or is compacted.
        :raises HeadgateError: the inbox cannot be written. Call it again before the inbox is read.
        """
        deadline = self._clock() + 2 * self._topic.cluster.answer_seconds if wait else None
        cursor = self._cursor = self._cursor or self._stored()
        try:
            consumer = self._connected(deadline)
            if consumer is None:
                return
            cursor = cursor or self._record(self._bounds(consumer)[1])
            if self._next < 0:
                self._seek(consumer, cursor.offset)
            messages = self._fetch(consumer, deadline)
        except HeadgateError as error:
            self.close()
            if not isinstance(error, Transient):
                raise
            self._warn_delayed(str(error))
            return
        try:
            self._store(cursor, messages)
        except BaseException:  # the planning ends, and the next one first reads which files exist
            self.close()
            raise

    def close(self) -> None:
        """Disconnect. The next call connects again, and reads how far the last one came."""
        consumer, self._consumer = self._consumer, None
        self._cursor, self._next = None, -1
        if consumer is not None:
            self._retry_at = self._clock() + _RECONNECT_SECONDS
            consumer.close()

    # --- the inbox

    def _stored(self) -> _Cursor | None:
        """Return the stored position behind everything that is in the inbox; None: there is none in this topic."""
        cursor = _settled(self._inbox)
        return cursor if cursor is not None and cursor.topic == self._topic.topic else None

    def _store(self, cursor: _Cursor, messages: Sequence[_FetchedMessage]) -> None:
        """Write a file for each message to this pipeline, then the position behind all messages."""
        ours = [(_name(self._topic.topic, one.offset), one.signal) for one in messages if one.signal is not None]
        keys = [one.key for one in messages if one.signal is None]
        if ours:
            self._record(cursor.offset, until=self._next)
            first_us = sending_us(self._inbox)
            for number, (name, signal) in enumerate(ours):
                self._inbox.write(signal_path(name), {**signal, "submitted_us": first_us + number})
        if self._next != cursor.offset:
            self._record(self._next)
        if keys:
            some = ", ".join(tuple(dict.fromkeys(keys))[:_REPORTED_KEYS])
            log.info("topic messages with signals for other pipelines ignored: %d (%s)", len(keys), some)

    def _record(self, offset: int, *, until: int | None = None) -> _Cursor:
        cursor = _Cursor(self._topic.topic, offset, offset if until is None else until)
        self._cursor = cursor.store(self._inbox)
        return cursor

    # --- connecting

    def _connected(self, deadline: float | None) -> Consumer | None:
        """Return the consumer, or None while it is not connected."""
        if self._consumer is not None:
            self._check()
            return self._consumer
        if self._connecting is None:
            if deadline is None and self._clock() < self._retry_at:
                return None
            self._connecting = _Connecting(self._topic)
        if not self._connecting.done(None if deadline is None else max(0.0, deadline - self._clock())):
            return None
        connecting, self._connecting = self._connecting, None
        self._retry_at = self._clock() + _RECONNECT_SECONDS
        self._consumer = connecting.result()
        self._check_at = self._clock() + _CHECK_SECONDS
        if self._logged_problem is not None:
            log.warning("Kafka's topic %s can be read again", self._topic.topic)
            self._logged_problem = None
        return self._consumer

    def _check(self) -> None:
        """Check for one partition and no compaction, over another connection and without waiting."""
        if self._checking is not None and self._checking.done(None):
            checking, self._checking = self._checking, None
            checking.result().close()
        elif self._checking is None and self._clock() >= self._check_at:
            self._check_at = self._clock() + _CHECK_SECONDS
            self._checking = _Connecting(self._topic)

    def _warn_delayed(self, problem: str) -> None:
        if problem != self._logged_problem:
            log.warning("signals from Kafka are delayed: %s", problem)
            self._logged_problem = problem

    def _bounds(self, consumer: Consumer) -> tuple[int, int]:
        """Return the first offset that the topic holds, and the one after its last."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            offsets = consumer.get_watermark_offsets(
                TopicPartition(self._topic.topic, 0), timeout=self._topic.cluster.answer_seconds
            )
        except KafkaException as error:
            raise ConnectError(f"Kafka's topic {self._topic.topic}: {_error_text(error)}") from None
        if offsets is None:
            raise ConnectError(f"Kafka's topic {self._topic.topic}: no answer")
        return offsets

    # --- fetching

    def _seek(self, consumer: Consumer, offset: int) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        low, high = self._bounds(consumer)
        if offset < low:
            log.warning("messages %d to %d of Kafka's topic %s are gone", offset, low - 1, self._topic.topic)
        elif offset > high:
            log.warning("Kafka's topic %s was recreated; reading it from its beginning", self._topic.topic)
        self._next = offset if low <= offset <= high else low
        try:
            consumer.assign([TopicPartition(self._topic.topic, 0, self._next)])
        except KafkaException as error:
            raise ConnectError(f"Kafka's topic {self._topic.topic}: {_error_text(error)}") from None

    def _fetch(self, consumer: Consumer, deadline: float | None) -> list[_FetchedMessage]:
        """Return every message that has arrived; with a deadline, all up to the topic's present end."""
        fetched: list[_FetchedMessage] = []
        end = 0 if deadline is None else self._bounds(consumer)[1]
        while True:
            messages = consumer.consume(_AT_ONCE, timeout=0.2 if self._next < end else 0.0)
            fetched += [one for one in map(self._take, messages) if one is not None]
            if not messages and (self._next >= end or deadline is None or self._clock() >= deadline):
                return fetched

    def _take(self, message: Message) -> _FetchedMessage | None:
        """Return a message; None: the topic's end."""
        from confluent_kafka import KafkaError

        error, offset = message.error(), message.offset()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise ConnectError(f"Kafka's topic {self._topic.topic}: {error.str()}")
            self._next = max(self._next, offset or 0)  # skip transaction marks, which are not messages
            return None
        assert offset is not None
        self._next = offset + 1
        key = _text(message.key())
        if key == self._topic.key:
            return _FetchedMessage(offset, key, _signal(message.value()))
        return _FetchedMessage(offset, "(none)" if key is None else key[:_NAME_LIMIT], None)


@dataclass(frozen=True)
class _FetchedMessage:
    """A message; ``signal`` is None if it is for another pipeline."""

    offset: int
    key: str
    signal: Mapping[str, Any] | None


class _Connecting:
    """One attempt to connect, in a thread."""

    def __init__(self, topic: KafkaTopic) -> None:
        self._consumer: Consumer | None = None
        self._error: HeadgateError | None = None
        self._topic = topic
        self._thread = threading.Thread(target=self._run, name="headgate-kafka", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._consumer = _connect(self._topic)
        except HeadgateError as error:
            self._error = error

    def done(self, seconds: float | None) -> bool:
        """Return whether it has ended, after waiting ``seconds`` at most (None: not at all)."""
        self._thread.join(0.0 if seconds is None else seconds)
        return not self._thread.is_alive()

    def result(self) -> Consumer:
        """Return the consumer, or raise the attempt's error."""
        if self._error is not None:
            raise self._error
        assert self._consumer is not None
        return self._consumer


def _text(data: str | bytes | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data


def _signal(value: str | bytes | None) -> Mapping[str, Any]:
    """Return a message's JSON object, else ``{problem}``."""
    text = _text(value) or ""
    parsed: Any = None
    with contextlib.suppress(ValueError):
        parsed = parse_json(text)
    if isinstance(parsed, dict):
        return outside_signal(parsed)
    return {"problem": f"a message that is not a JSON object: {text[:80]!r}"}
