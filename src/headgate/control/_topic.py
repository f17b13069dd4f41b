"""Signals out of a Kafka topic.

A message is for the pipeline that its key names; its value is a signal as JSON, as Debezium's connectors take it
(Debezium's documentation, "Sending signals to a Debezium connector", Kafka signaling channel). Messages with other keys
are for others: they are passed over and counted, so one topic serves many pipelines.

What holds, and why
===================

- **Each message is followed once, and none is lost.** The planner keeps the position (the offset of the next message)
  in the stream's offset. A planning gets all messages from that position on (:meth:`KafkaSignals.poll`), and its own
  offset has the position after them; whether Spark keeps that offset or plans again from the one before, messages and
  position go together. Kafka itself keeps nothing for us: no group, no commits.
- **In order.** A topic with several partitions has no order, so it is refused. So is a topic that is compacted: Kafka
  removes all messages of a key but the newest, and all signals of a pipeline have one key. Both are looked at again
  every minute, because they can be altered.
- **A new stream begins at the topic's end**: what was asked before concerned another one. The position is in the
  stream's offset before the first message counts.
- **Kafka may be away.** The stream goes on meanwhile; only signals wait. Connecting is done in a thread of its own, and
  messages are fetched by librdkafka in the background, so a planning waits for neither, unless it has to.

Messages that the topic no longer holds (retention) are gone, with a warning; is the topic a new one of the same name,
whose end lies before the position, it is read from its beginning.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from headgate.control._kafka_client import KafkaCluster
from headgate.errors import ConfigError, ConnectError, HeadgateError, Transient
from headgate.extras import needs

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["KafkaSignals", "KafkaTopic", "Polled", "TopicPosition", "check_topic"]

log = logging.getLogger("headgate")

_ANSWER_SECONDS: Final = 10.0
"""How long a broker may take to answer."""
_AGAIN_SECONDS: Final = 10.0
"""The pause after a failed try to connect."""
_LOOK_SECONDS: Final = 60.0
"""How often the number of partitions and the policy are looked at."""
_AT_ONCE: Final = 1000
_NAME_LIMIT: Final = 100
"""Characters of a topic in a signal's id; Kafka allows 249, and an id names a file."""
_KEYS_TOLD: Final = 5


@dataclass(frozen=True)
class KafkaTopic:
    """A topic with signals, and which of them are ours.

    :param key: the key of our messages: the pipeline's name.
    """

    cluster: KafkaCluster
    topic: str
    key: str

    def to_json(self) -> str:
        """For an option of the Spark source. No secret is in it."""
        value = {"bootstrap": self.cluster.bootstrap, "topic": self.topic, "key": self.key}
        more = {"settings_file": self.cluster.settings_file} if self.cluster.settings_file is not None else {}
        return json.dumps({**value, **more}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> KafkaTopic:
        """From :meth:`to_json`.

        :raises ConfigError: anything else.
        """
        names = {"bootstrap", "topic", "key", "settings_file"}
        try:
            given = json.loads(text)
        except ValueError:
            given = None
        known = isinstance(given, dict) and names - {"settings_file"} <= given.keys() <= names
        if not known or not all(isinstance(value, str) and value for value in given.values()):
            raise ConfigError('expected {"bootstrap": …, "topic": …, "key": …} and perhaps "settings_file"')
        return cls(KafkaCluster(given["bootstrap"], given.get("settings_file")), given["topic"], given["key"])


@dataclass(frozen=True)
class TopicPosition:
    """Where the next message is."""

    topic: str
    offset: int


@dataclass(frozen=True)
class Polled:
    """What a planning gets. ``position`` is None as long as Kafka could not be asked where its topic ends."""

    position: TopicPosition | None = None
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name → what the message says, or ``{problem}``, in order."""
    skipped: int = 0
    """Messages for others."""
    keys: tuple[str, ...] = ()
    """Some of their keys."""


def check_topic(topic: KafkaTopic) -> None:
    """Ask the cluster for the topic.

    :raises ConfigError: there is no such topic, it has several partitions, or it is compacted.
    :raises ConnectError: no broker answers.
    """
    _connect(topic).close()


def _connect(topic: KafkaTopic) -> Consumer:
    needs("kafka")
    from confluent_kafka import Consumer, KafkaException

    fixed = {
        "group.id": f"headgate-{topic.key}",  # asked for, but never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    try:
        consumer = Consumer({**topic.cluster.settings(), **fixed})
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigError(f"Kafka's client cannot be made: {_said(error)}") from None
    try:
        _check_partitions(consumer, topic)
        _check_policy(topic)
    except BaseException:
        consumer.close()
        raise
    return consumer


def _check_partitions(consumer: Consumer, topic: KafkaTopic) -> None:
    from confluent_kafka import KafkaError, KafkaException

    try:
        found = consumer.list_topics(topic.topic, timeout=_ANSWER_SECONDS).topics[topic.topic]
    except KafkaException as error:
        raise ConnectError(f"Kafka at {topic.cluster.bootstrap} does not answer: {_said(error)}") from None
    if found.error is not None:
        unknown = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        raise (ConfigError if unknown else ConnectError)(f"Kafka's topic {topic.topic}: {found.error.str()}")
    if len(found.partitions) != 1:
        raise ConfigError(
            f"Kafka's topic {topic.topic} has {len(found.partitions)} partitions, so its messages have no order:"
            " signals need a topic with one"
        )


def _check_policy(topic: KafkaTopic) -> None:
    """The policy is the topic's own, or its broker's default (Kafka's documentation, "Topic Configs")."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.topic)
    client = AdminClient(topic.cluster.settings())
    try:
        found = client.describe_configs([resource], request_timeout=_ANSWER_SECONDS)[resource].result()
    except KafkaException as error:
        if error.args[0].name() not in _NOT_SHOWN:
            raise ConnectError(f"Kafka's topic {topic.topic}: {_said(error)}") from None
        _tell_not_shown(topic, _said(error))
        return
    policy = str(found["cleanup.policy"].value)
    if "compact" in policy:
        raise ConfigError(
            f"Kafka's topic {topic.topic} has cleanup.policy={policy}, and compaction removes all signals with the same"
            f" key but the newest: kafka-configs --bootstrap-server {topic.cluster.bootstrap} --alter --entity-type"
            f" topics --entity-name {topic.topic} --add-config cleanup.policy=delete"
        )


_NOT_SHOWN: Final = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "_UNSUPPORTED_FEATURE")
"""Errors of librdkafka (``rd_kafka_resp_err_t``) that say that the broker will not tell: no ACL, or no such request."""


@cache
def _tell_not_shown(topic: KafkaTopic, reason: str) -> None:
    """Once for each topic, which is looked at every minute."""
    log.warning(
        "Kafka does not show the cleanup.policy of topic %s (%s; it takes the ACL DescribeConfigs): make sure that it"
        " is delete, or signals are lost",
        topic.topic,
        reason,
    )


def _said(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    text = getattr(first, "str", None)
    return str(text()) if callable(text) else str(first)


class KafkaSignals:
    """A topic, read from the stream's position on. For one thread; make one where planning is done.

    :param clock: seconds, monotonic.
    """

    def __init__(self, topic: KafkaTopic, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic, self._clock = topic, clock
        self._connecting: _Connecting | None = None
        self._looking: _Connecting | None = None
        self._consumer: Consumer | None = None
        self._retry_at = self._look_at = clock()
        self._held: list[_Held] = []
        self._asked = self._next = 0
        """The position that ``_held`` begins at; the offset of the next message to fetch."""
        self._told: str | None = None

    def poll(self, at: TopicPosition | None, *, wait: bool = False) -> Polled:
        """Messages from ``at`` on, as far as they are here; the same again until ``at`` moves.

        :param at: None, or a position in another topic: begin at the topic's end.
        :param wait: until all is here that the topic holds now, for 20 seconds at most.
        :raises ConfigError: the topic has several partitions now, is compacted, or is gone.
        """
        if at is not None and at.topic != self._topic.topic:
            at = None
        deadline = self._clock() + 2 * _ANSWER_SECONDS if wait else None
        try:
            consumer = self._connected(deadline)
            if consumer is None:
                return Polled(at)
            self._move(consumer, self._bounds(consumer)[1] if at is None else at.offset)
            self._fetch(consumer, deadline)
        except HeadgateError as error:
            self.close()
            if not isinstance(error, Transient):
                raise
            self._tell(str(error))
            return Polled(at)
        return self._polled()

    def close(self) -> None:
        """Leave the topic; the next call connects again."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._retry_at = self._clock() + _AGAIN_SECONDS
            consumer.close()

    def _polled(self) -> Polled:
        name = self._topic.topic[:_NAME_LIMIT]
        ours = {f"kafka-{name}-{held.offset}": held.said for held in self._held if held.said is not None}
        keys = [held.key for held in self._held if held.said is None]
        return Polled(
            TopicPosition(self._topic.topic, self._next), ours, len(keys), tuple(dict.fromkeys(keys))[:_KEYS_TOLD]
        )

    # --- connecting

    def _connected(self, deadline: float | None) -> Consumer | None:
        """The consumer, when there is one."""
        if self._consumer is not None:
            self._look()
            return self._consumer
        if self._connecting is None:
            if deadline is None and self._clock() < self._retry_at:
                return None
            self._connecting = _Connecting(self._topic)
        if not self._connecting.done(None if deadline is None else max(0.0, deadline - self._clock())):
            return None
        connecting, self._connecting = self._connecting, None
        self._retry_at = self._clock() + _AGAIN_SECONDS
        self._consumer = connecting.result()
        self._asked = -1
        self._look_at = self._clock() + _LOOK_SECONDS
        if self._told is not None:
            log.warning("Kafka's topic %s can be read again", self._topic.topic)
            self._told = None
        return self._consumer

    def _look(self) -> None:
        """Look whether the topic still has one partition and is not compacted, by another connection that nobody waits
        for.
        """
        if self._looking is not None and self._looking.done(None):
            looking, self._looking = self._looking, None
            looking.result().close()
        elif self._looking is None and self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_SECONDS
            self._looking = _Connecting(self._topic)

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            log.warning("signals out of Kafka have to wait: %s", problem)
            self._told = problem

    def _bounds(self, consumer: Consumer) -> tuple[int, int]:
        """The first offset that the topic holds, and the one after its last."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = consumer.get_watermark_offsets(TopicPartition(self._topic.topic, 0), timeout=_ANSWER_SECONDS)
        except KafkaException as error:
            raise ConnectError(f"Kafka's topic {self._topic.topic}: {_said(error)}") from None
        if found is None:
            raise ConnectError(f"Kafka's topic {self._topic.topic}: no answer")
        return found

    # --- fetching

    def _move(self, consumer: Consumer, offset: int) -> None:
        """Hold nothing that lies before ``offset``, and have everything fetched from there on."""
        if offset == self._asked:
            return
        if 0 <= self._asked < offset <= self._next:
            self._held = [held for held in self._held if held.offset >= offset]
        else:
            self._seek(consumer, offset)
        self._asked = offset

    def _seek(self, consumer: Consumer, offset: int) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        low, high = self._bounds(consumer)
        if offset < low:
            log.warning("messages %d to %d of Kafka's topic %s are gone", offset, low - 1, self._topic.topic)
        elif offset > high:
            log.warning("Kafka's topic %s is a new one; it is read from its beginning", self._topic.topic)
        self._held, self._next = [], offset if low <= offset <= high else low
        try:
            consumer.assign([TopicPartition(self._topic.topic, 0, self._next)])
        except KafkaException as error:
            raise ConnectError(f"Kafka's topic {self._topic.topic}: {_said(error)}") from None

    def _fetch(self, consumer: Consumer, deadline: float | None) -> None:
        """Hold every message that is here; with a deadline, all up to what is the topic's end now."""
        end = 0 if deadline is None else self._bounds(consumer)[1]
        while True:
            messages = consumer.consume(_AT_ONCE, timeout=0.2 if self._next < end else 0.0)
            for message in messages:
                self._take(message)
            if not messages and (self._next >= end or deadline is None or self._clock() >= deadline):
                return

    def _take(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error, offset = message.error(), message.offset()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise ConnectError(f"Kafka's topic {self._topic.topic}: {error.str()}")
            self._next = max(self._next, offset or 0)  # past marks of transactions, which are no messages
            return
        assert offset is not None
        self._next = offset + 1
        key = _text(message.key())
        if key == self._topic.key:
            self._held.append(_Held(offset, key, _signal(message.value())))
        else:
            self._held.append(_Held(offset, "(none)" if key is None else key[:_NAME_LIMIT], None))


@dataclass(frozen=True)
class _Held:
    """A message; ``said`` is None if it is for others."""

    offset: int
    key: str
    said: Mapping[str, Any] | None


class _Connecting:
    """One try to connect, in a thread of its own."""

    def __init__(self, topic: KafkaTopic) -> None:
        self._found: Consumer | None = None
        self._error: HeadgateError | None = None
        self._topic = topic
        self._thread = threading.Thread(target=self._run, name="headgate-kafka", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = _connect(self._topic)
        except HeadgateError as error:
            self._error = error

    def done(self, seconds: float | None) -> bool:
        """Whether it has ended; waits for it so long (None: not at all)."""
        self._thread.join(0.0 if seconds is None else seconds)
        return not self._thread.is_alive()

    def result(self) -> Consumer:
        """What came of it, or its error."""
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found


def _text(data: str | bytes | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data


def _signal(value: str | bytes | None) -> Mapping[str, Any]:
    """What a message says: a JSON object, else ``{problem}``."""
    text = _text(value) or ""
    found: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
    if isinstance(found, dict):
        return found
    return {"problem": f"a message that is not a JSON object: {text[:80]!r}"}
