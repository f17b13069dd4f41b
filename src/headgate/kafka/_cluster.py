"""The brokers, as the Kafka sink uses them: topics, heartbeats, and what Kafka's errors mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.control import KafkaCluster, Refusals
from headgate.errors import ConfigError, HeadgateError, KafkaUnavailableError, SecondDriverError, TargetError
from headgate.extras import require_extra
from headgate.kafka._producer import Producer
from headgate.kafka.debezium.schema import HEARTBEAT_KEY, HEARTBEAT_VALUE
from headgate.kafka.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from headgate.config import KafkaTargetConfig
    from headgate.kafka.debezium.envelope import MessageForm

__all__ = ["HeartbeatSender", "Topics", "check_brokers", "failure", "is_transient"]

_CHECK_SECONDS: Final = 10.0
_HEARTBEAT_SECONDS: Final = 4.0
"""Longest wait for the brokers' answer about the heartbeat topic: shorter than the wait for the thread's end."""
_HEARTBEAT_POLL_SECONDS: Final = 0.1


class Topics:
    """The topics of a cluster that exist, as far as one user of it knows.

    :param timeout: seconds for each answer of the brokers.
    """

    def __init__(self, cluster: KafkaCluster, timeout: float) -> None:
        self._cluster, self._timeout = cluster, timeout
        self._existing: set[str] = set()

    def create(self, topics: set[str], partitions: int = -1, settings: Mapping[str, str] | None = None) -> None:
        """Create missing topics; -1 is the brokers' default number of partitions and replicas (KIP-464).

        :raises TargetError: the brokers refuse a topic.
        :raises KafkaUnavailableError: they do not answer, or cannot create one at the moment.
        """
        if not topics <= self._existing:
            self._create(topics, partitions, dict(settings or {}))

    def _create(self, topics: set[str], partitions: int, settings: dict[str, str]) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        refusals = Refusals()
        client = AdminClient(self._cluster.settings(refusals))
        try:
            listed = client.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            client.poll(0)
            raise failure(error.args[0], refusals.reason) from None
        self._existing |= {name for name, one in listed.items() if one.error is None}
        wanted = [NewTopic(name, partitions, -1, config=settings) for name in sorted(topics - self._existing)]
        made = client.create_topics(wanted) if wanted else {}
        for name, future in made.items():
            try:
                future.result(self._timeout)
            except TimeoutError:
                raise KafkaUnavailableError(f"Kafka: topic {name} was not created in time") from None
            except KafkaException as error:
                reason = error.args[0]
                if is_transient(reason):
                    raise KafkaUnavailableError(f"Kafka: topic {name} cannot be created now: {reason.str()}") from None
                if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise TargetError(f"topic {name} is missing and cannot be created: {reason.str()}") from None
            self._existing.add(name)


class HeartbeatSender:
    """Sender of heartbeats to their topic's only partition, apart from batches and their transactions."""

    def __init__(self, config: KafkaTargetConfig, topic: str, form: MessageForm) -> None:
        self._topic, self._form, self._timeout = topic, form, config.timeout_seconds
        self._cluster = KafkaCluster(config.bootstrap, config.settings_file)
        self._topics = Topics(self._cluster, min(_HEARTBEAT_SECONDS, self._timeout))
        self._producer: Producer | None = None

    def send(self, key: Mapping[str, Any], value: Mapping[str, Any], stopped: Callable[[], bool]) -> None:
        """Send a heartbeat; return when the brokers have it, or when ``stopped`` returns true.

        :raises KafkaUnavailableError: the brokers cannot be reached, or did not accept it in time.
        :raises TargetError: they refused it.
        """
        from confluent_kafka import KafkaException

        key_bytes = self._form.message(f"{self._topic}-key", HEARTBEAT_KEY, key)
        value_bytes = self._form.message(f"{self._topic}-value", HEARTBEAT_VALUE, value)
        self._topics.create({self._topic}, partitions=1)
        try:
            producer = self._open()
            producer.produce(self._topic, value_bytes, key_bytes, partition=0)
            while len(producer) and not stopped():
                producer.poll(_HEARTBEAT_POLL_SECONDS)
            producer.check()
        except KafkaException as error:
            raise failure(error.args[0]) from None

    def _open(self) -> Producer:
        if self._producer is None:
            settings = {"acks": "all", "message.timeout.ms": self._timeout * 1000, **self._cluster.settings()}
            settings.pop("transactional.id", None)  # of the file: it is the batches'
            self._producer = Producer(settings)
        return self._producer

    def close(self) -> None:
        """Drop the producer and what it has not sent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.close()


_TRANSIENT: Final = (
    *("_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_RESOLVE"),
    *("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_CONTROLLER"),
    *("NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    "_UNKNOWN_PARTITION",  # of a topic that was just made: its metadata has not reached the client
    "_DESTROY",  # the producer was stopped
    *("INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID"),  # brokers forget an idle producer; a new one gets new ids
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "THROTTLING_QUOTA_EXCEEDED"),
)
"""Names of Kafka's errors that mean: not reached, not ready, or not now."""


def is_transient(error: KafkaError) -> bool:
    """Whether a retry may mend an error. Only the transactional API marks its own as retriable."""
    from confluent_kafka import KafkaError as Codes

    codes = {getattr(Codes, name) for name in _TRANSIENT}
    return not error.fatal() and (error.retriable() or error.code() in codes)


def check_brokers(config: KafkaTargetConfig) -> None:
    """Check that the brokers answer, and the schema registry, if there is one.

    :raises ConfigError: the extra is missing, Kafka's client refuses the settings, or the brokers refuse the
        connection.
    :raises ConnectError: the registry does not answer; KafkaUnavailableError: the brokers do not.
    """
    require_extra("kafka")
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    refusals = Refusals()
    try:
        client = AdminClient(KafkaCluster(config.bootstrap, config.settings_file).settings(refusals))
    except (KafkaException, ValueError) as error:
        raise ConfigError(f"target.kafka: {error}") from None
    try:
        client.list_topics(timeout=min(_CHECK_SECONDS, config.timeout_seconds))
    except KafkaException as error:
        client.poll(0)
        if refusals.reason:
            raise ConfigError(f"Kafka at {config.bootstrap} cannot be used: {refusals.reason}") from None
        raise KafkaUnavailableError(f"Kafka at {config.bootstrap} does not answer: {error.args[0].str()}") from None
    if config.format == "avro":
        SchemaRegistry.of(config).check()


def failure(error: KafkaError, reason: str = "", overdue_seconds: float = 0.0) -> HeadgateError:
    """Return headgate's error for one of Kafka's: transient if the brokers were not reached or not ready.

    :param reason: why, if that is known.
    :param overdue_seconds: how long the transaction has been open beyond its ``transaction.timeout.ms``. Brokers end it
        then, with the same error as that of a producer that another one has replaced.
    """
    from confluent_kafka import KafkaError as Codes

    if error.code() in {Codes._FENCED, Codes.PRODUCER_FENCED, Codes.INVALID_PRODUCER_EPOCH}:
        if overdue_seconds > 0:
            return KafkaUnavailableError(
                f"Kafka has ended a transaction that lasted {overdue_seconds:.0f} s longer than transaction.timeout.ms"
            )
        return SecondDriverError(
            "Kafka: another run of a pipeline of this name has taken over (its producer has the same transactional.id):"
            " stop one of them, or rename its pipeline"
        )
    text = f"Kafka: {reason or error.str()}"
    if is_transient(error):
        return KafkaUnavailableError(text)
    return TargetError(text)
