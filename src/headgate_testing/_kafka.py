"""A private Kafka broker: one process that is broker and controller, and ends with the process that started it.

Kafka's archives come from the machine's Maven repositories and stay in the user's cache folder. So does a formatted log
folder, of which each broker gets a copy, so that no start pays for formatting. Java is ``$JAVA_HOME/bin/java``, else
the one on PATH.

Settings: Apache Kafka's documentation, "KRaft" and "Broker Configs". The voters are named in the settings, not in the
log folder, so the same formatted folder serves any port.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.archives import fetch_jars
from headgate.errors import ConfigError, ConnectError
from headgate.files import cache_folder, make_once
from headgate_testing._jars import spark_home
from headgate_testing._owned import OwnedServer, last_line
from headgate_testing._ports import free_port, try_ports
from headgate_testing._process import start_child
from headgate_testing._waiting import wait_until

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["KafkaBroker", "java_program", "prepare_kafka"]

KAFKA_VERSION = "4.1.2"
PACKAGES = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36")
"""The second writes the broker's log; Kafka 4.1 uses this version of SLF4J and contains no writer."""
CLUSTER_ID = "aGVhZGdhdGUtdGVzdGluZw"
"""A cluster's id is 16 bytes in base64 for URLs; only these brokers see it."""
FOLDER_PREFIX = "headgate-kafka-"
ANSWER_SECONDS = 60.0
JAVA_FLAGS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a few topics: a small heap, and no time spent on optimizing compilation."""

SETTINGS: Mapping[str, str | int] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # One broker holds the one copy of everything, Kafka's own topics included.
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "num.network.threads": 1,
    "num.io.threads": 2,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}


class KafkaBroker(OwnedServer):
    """A running broker on a free port of 127.0.0.1. A context manager that stops it.

    Topics are created only by :meth:`create_topic`. ``bootstrap`` is the address for clients.
    """

    def __init__(self, settings: Mapping[str, str | int]) -> None:
        self._settings = settings
        template, self._classpath = _prepared()
        super().__init__(FOLDER_PREFIX, _logged_errors)
        self._ports = (0, 0)
        with self.stop_on_failure():
            shutil.copytree(template, self.folder / "data")
            try_ports(self._launch_on_free_ports, "ddress already in use")

    @classmethod
    def start(cls, settings: Mapping[str, str | int] | None = None) -> KafkaBroker:
        """Start an empty broker.

        :param settings: of the broker; they override :data:`SETTINGS`.
        :raises ConfigError: Java is missing, or Kafka's archives cannot be fetched.
        :raises ConnectError: it did not start; the message ends with the errors of its log.
        """
        return cls(settings or {})

    @property
    def bootstrap(self) -> str:
        """``127.0.0.1:PORT``, the same after restarts."""
        return f"127.0.0.1:{self._ports[0]}"

    def create_topic(self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic; it can be written and read when this returns. ``settings`` such as ``retention.ms``."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        client = AdminClient(self._client())
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
        for future in client.create_topics([topic], operation_timeout=ANSWER_SECONDS).values():
            future.result(ANSWER_SECONDS)
        self.wait_for_partitions(name, partitions)

    def wait_for_partitions(self, topic: str, partitions: int) -> None:
        """Wait until the broker reports a topic's partitions to clients, and serves them: its controller creates them,
        the broker reports them a moment later, and serves them after that.

        :raises ConnectError: it does not in time.
        """
        from confluent_kafka import Consumer

        client = Consumer({**self._client(), "group.id": "headgate-testing"})
        problem = f"the broker does not serve the {partitions} partitions of {topic}"
        try:
            wait_until(lambda: _serves(client, topic, partitions), problem, seconds=ANSWER_SECONDS)
        except TimeoutError as error:
            raise ConnectError(problem) from error
        finally:
            client.close()

    def send(self, topic: str, value: str | bytes | None, key: str | bytes | None = None, partition: int = 0) -> int:
        """Append a message; return its offset, once the broker has it.

        :raises ConnectError: the broker has no such topic, or refuses the message.
        """
        from confluent_kafka import Producer

        done: list[tuple[Any, Message]] = []
        producer = Producer(self._client())
        missing = producer.list_topics(topic, ANSWER_SECONDS).topics[topic].error  # produce() would wait long for it
        if missing is not None:
            raise ConnectError(f"the broker did not take a message for {topic}: {missing}")
        producer.produce(
            topic, value, key, partition=partition, on_delivery=lambda error, message: done.append((error, message))
        )
        producer.flush(ANSWER_SECONDS)
        if not done or done[0][0] is not None:
            raise ConnectError(f"the broker did not take a message for {topic}: {done[0][0] if done else 'no answer'}")
        offset = done[0][1].offset()
        assert offset is not None
        return offset

    def messages(self, topic: str, partition: int = 0) -> list[tuple[str | None, str | None]]:
        """Return (key, value) of every message that a partition holds now, as text."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "headgate-testing", "enable.auto.commit": False, "enable.partition.eof": False}
        consumer = Consumer({**self._client(), **settings})
        try:
            topic_partition = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(topic_partition, timeout=ANSWER_SECONDS)
            consumer.assign([TopicPartition(topic, partition, low)])
            messages: list[tuple[str | None, str | None]] = []
            deadline = time.monotonic() + ANSWER_SECONDS
            while low < high and consumer.position([topic_partition])[0].offset < high:
                if time.monotonic() > deadline:
                    raise ConnectError(f"{topic} has messages up to offset {high}, but they did not arrive")
                message = consumer.poll(1)
                if message is not None and not message.error():
                    messages.append((_text(message.key()), _text(message.value())))
            return messages
        finally:
            consumer.close()

    def restart(self) -> None:
        """Shut the broker down cleanly, if it runs, and start it again on its data, at the same address.

        After :meth:`kill` that takes ten seconds more: the controller waits that long for the broker that it knew.
        """
        self.end_server(signal.SIGTERM)
        self._launch()

    def kill(self) -> None:
        """Kill the broker (SIGKILL); :meth:`restart` starts it again."""
        self.end_server(signal.SIGKILL)

    def __repr__(self) -> str:
        return f"<KafkaBroker {self.bootstrap}>"

    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0}

    def _launch_on_free_ports(self) -> None:
        self._ports = (free_port(), free_port())
        self._launch()

    def _launch(self) -> None:
        port, controller = self._ports
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
        settings = {
            **SETTINGS,
            **self._settings,
            "listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": self.folder / "data",
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [*_java(self._classpath), "kafka.Kafka", str(file)]
        self.launch_server("kafka", command, self._answers)

    def _answers(self) -> bool:
        """Whether it answers within a moment and counts itself as the only broker."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient({**self._client(), "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50})
        with contextlib.suppress(KafkaException):
            return len(client.list_topics(timeout=5).brokers) == 1
        return False


def prepare_kafka() -> str:
    """Do what the first start would do: fetch the archives, format a log folder. Return the version.

    :raises ConfigError: Java is missing, or Kafka's archives cannot be fetched.
    """
    _prepared()
    return KAFKA_VERSION


def _serves(client: Consumer, topic: str, partitions: int) -> bool:
    from confluent_kafka import KafkaException, TopicPartition

    metadata = client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if metadata.error is not None or sum(one.leader >= 0 for one in metadata.partitions.values()) != partitions:
        return False
    try:
        for number in range(partitions):
            client.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_SECONDS)
    except KafkaException:  # it does not lead the partition yet
        return False
    return True


def _prepared() -> tuple[Path, str]:
    """Return a formatted log folder to copy, and Java's class path."""
    jars = cache_folder("kafka", f"jars-{KAFKA_VERSION}")
    with make_once(jars) as folder:
        if folder is not None:
            fetch_jars(PACKAGES, folder)
            for library in (spark_home() / "jars").glob("scala-library-2.13*.jar"):
                shutil.copy(library, folder)
    classpath = str(jars / "*")
    template = cache_folder("kafka", f"data-{KAFKA_VERSION}")
    with make_once(template) as folder:
        if folder is not None:
            _format(folder, classpath)
    return template, classpath


def _format(folder: Path, classpath: str) -> None:
    log = folder.with_name(folder.name + ".log")
    file = folder.with_name(folder.name + ".properties")
    settings = {
        **SETTINGS,
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "controller.quorum.voters": "1@127.0.0.1:2",
        "log.dirs": folder,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [*_java(classpath), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
    if start_child(command, output=log).wait():
        raise ConfigError(f"Kafka {KAFKA_VERSION} could not format its log folder: {_logged_errors(log.read_text())}")
    log.unlink()
    file.unlink()


def java_program() -> str:
    """Return the path of Java: ``$JAVA_HOME/bin/java``, else the one on PATH.

    :raises ConfigError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin/java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise ConfigError("brokers and registries need Java 17: install it, or set JAVA_HOME to its folder")
    return java


def _java(classpath: str) -> list[str]:
    return [java_program(), *JAVA_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath]


def _logged_errors(log: str) -> str:
    """Return the most informative lines of a log, on one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    informative = [line for line in lines if "Exception" in line or "rror" in line]
    return "; ".join(informative[:3]) or last_line(log)


def _text(data: bytes | str | None) -> str | None:
    return data.decode(errors="replace") if isinstance(data, bytes) else data
