"""A real topic, forwarded into an inbox."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions

from headgate.carrier import ControlFolder
from headgate.control import KafkaCluster, KafkaTopic, SignalForwarder, _topic, check_topic
from headgate.errors import ConfigError, ConnectError
from headgate_testing import KafkaBroker, wait_until
from headgate_testing._kafka import _java, _prepared
from headgate_testing._ports import free_port


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inbox(tmp_path: Path) -> ControlFolder:
    return ControlFolder(str(tmp_path / "inbox"))


@pytest.fixture
def forwarder(
    kafka_broker: KafkaBroker, kafka_topic: str, inbox: ControlFolder, clock: Clock
) -> Iterator[SignalForwarder]:
    topic = KafkaTopic(KafkaCluster(kafka_broker.bootstrap), kafka_topic, "us")
    with closing(SignalForwarder(topic, inbox, clock=clock)) as forwarder:
        yield forwarder


def names(inbox: ControlFolder, topic: str) -> list[int]:
    """Offsets of the signals."""
    return [int(name.removeprefix(f"kafka-{topic}-")) for name in inbox.signals()]


def forwarded_nothing(forwarder: SignalForwarder) -> bool:
    """To be called until it raises."""
    forwarder.forward()
    return False


def test_messages_are_forwarded_once(
    kafka_broker: KafkaBroker, kafka_topic: str, inbox: ControlFolder, forwarder: SignalForwarder
) -> None:
    kafka_broker.send(kafka_topic, '{"type": "log"}', "us")
    forwarder.forward(wait=True)
    assert inbox.signals() == {}, "what was there before is not for this stream"
    for value, key in (("{}", "us"), ("not for us", "them"), ("no key", None), ('{"id": "x"}', "us"), ("[1", "us")):
        kafka_broker.send(kafka_topic, value, key)

    def arrived() -> bool:
        """Without waiting for it in one call."""
        forwarder.forward()
        return names(inbox, kafka_topic) == [1, 4, 5]

    wait_until(arrived, "there are not three signals")
    first, second, third = inbox.signals().values()
    assert (set(first), second["id"]) == ({"submitted_us"}, "x")
    assert third["problem"] == "a message that is not a JSON object: '[1'"
    for name in inbox.signals():
        inbox.remove_signal(name)
    forwarder.close()
    forwarder.forward(wait=True)
    kafka_broker.send(kafka_topic, "{}", "us")
    forwarder.forward(wait=True)
    assert names(inbox, kafka_topic) == [6]


def test_waiting_brings_all_that_the_topic_holds(
    kafka_broker: KafkaBroker, kafka_topic: str, inbox: ControlFolder, forwarder: SignalForwarder
) -> None:
    forwarder.forward(wait=True)
    for _ in range(5):
        kafka_broker.send(kafka_topic, "x", "us")
    slow = KafkaCluster(kafka_broker.bootstrap, answer_seconds=3600.0)
    with closing(SignalForwarder(KafkaTopic(slow, kafka_topic, "us"), inbox)) as patient:
        patient.forward(wait=True)
        assert names(inbox, kafka_topic) == [0, 1, 2, 3, 4]
        patient.forward(wait=True)  # nothing to wait for: else for two hours
    kafka_broker.send(kafka_topic, "y", "us")
    forwarder.close()
    forwarder.forward(wait=True)
    assert names(inbox, kafka_topic) == [0, 1, 2, 3, 4, 5]


def test_messages_that_are_gone_and_topics_made_anew(
    kafka_broker: KafkaBroker, kafka_topic: str, inbox: ControlFolder, forwarder: SignalForwarder,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    forwarder.forward(wait=True)
    forwarder.close()
    for number in range(4):
        kafka_broker.send(kafka_topic, str(number), "us")
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    for done in client.delete_records([TopicPartition(kafka_topic, 0, 2)]).values():
        done.result(30)
    with caplog.at_level(logging.WARNING):
        forwarder.forward(wait=True)
        assert names(inbox, kafka_topic) == [2, 3]
        assert f"messages 0 to 1 of Kafka's topic {kafka_topic} are gone" in caplog.text
        caplog.clear()
        forwarder.forward(wait=True)
        assert kafka_topic not in caplog.text, "told once"
        for name in inbox.signals():
            inbox.remove_signal(name)
        forwarder.close()
        inbox.write("forwarded.json", {"topic": kafka_topic, "offset": 99, "until": 99})
        forwarder.forward(wait=True)
        assert names(inbox, kafka_topic) == [2, 3]
        assert "was recreated" in caplog.text


def test_a_topic_needs_one_partition_and_has_to_be_there(
    kafka_broker: KafkaBroker, kafka_topic: str, inbox: ControlFolder, forwarder: SignalForwarder, clock: Clock
) -> None:
    cluster = KafkaCluster(kafka_broker.bootstrap)
    check_topic(KafkaTopic(cluster, kafka_topic, "us"))
    missing = KafkaTopic(cluster, f"{kafka_topic}-not", "us")
    with pytest.raises(ConfigError) as caught:
        check_topic(missing)
    assert caught.value.message == (
        f"Kafka's topic {missing.topic} does not exist: kafka-topics --bootstrap-server {kafka_broker.bootstrap}"
        f" --create --topic {missing.topic} --partitions 1 --config cleanup.policy=delete"
    )
    kafka_broker.create_topic(missing.topic, 1, settings={"cleanup.policy": "delete"})
    check_topic(missing)
    forwarder.forward(wait=True)
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    for done in client.create_partitions([NewPartitions(kafka_topic, 3)]).values():
        done.result(30)
    kafka_broker.wait_for_partitions(kafka_topic, 3)
    with pytest.raises(ConfigError, match="has 3 partitions"):
        check_topic(KafkaTopic(cluster, kafka_topic, "us"))
    with pytest.raises(ConfigError, match="has 3 partitions"):
        SignalForwarder(KafkaTopic(cluster, kafka_topic, "us"), inbox).forward(wait=True)
    clock.ahead += 61
    with pytest.raises(ConfigError, match="has 3 partitions"):  # it is looked at in the background
        wait_until(partial(forwarded_nothing, forwarder))


def alter(broker: KafkaBroker, topic: str, policy: str) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30)


def run_kafka_configs(command: str) -> None:
    """By the class that Kafka's script of this name starts."""
    tool, *args = command.split()
    assert tool == "kafka-configs"
    subprocess.run([*_java(_prepared()[1]), "kafka.admin.ConfigCommand", *args], check=True, timeout=120)


def test_a_topic_that_is_compacted_is_refused(
    kafka_broker: KafkaBroker, kafka_topic: str, inbox: ControlFolder, forwarder: SignalForwarder, clock: Clock
) -> None:
    policy = "compact,delete"
    topic = KafkaTopic(KafkaCluster(kafka_broker.bootstrap), kafka_topic, "us")
    forwarder.forward(wait=True)
    alter(kafka_broker, kafka_topic, policy)
    error = rf"topic {kafka_topic} has cleanup\.policy={policy}, and .* only the newest signal of a key: kafka-configs "
    with pytest.raises(ConfigError, match=error) as caught:
        check_topic(topic)
    with pytest.raises(ConfigError, match=error):
        SignalForwarder(topic, inbox).forward(wait=True)
    forwarder.forward()  # it is looked at every minute
    clock.ahead += 61
    with pytest.raises(ConfigError, match=error):  # it is looked at in the background
        wait_until(partial(forwarded_nothing, forwarder))
    run_kafka_configs(caught.value.message.partition(": ")[2])
    check_topic(topic)
    forwarder.forward(wait=True)


def test_a_topic_whose_configuration_nobody_may_see(inbox: ControlFolder, caplog: pytest.LogCaptureFixture) -> None:
    """ACLs that allow what signals need and no more: a warning, once, and signals come."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaBroker.start(authorizer) as broker:
        broker.create_topic("guarded", settings={"cleanup.policy": "compact"})
        client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        rules = [
            AclBinding(
                ResourceType.TOPIC, "guarded", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation,
                AclPermissionType.ALLOW,
            )
            for operation in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE)
        ]  # fmt: skip
        for done in client.create_acls(rules).values():
            done.result(30)
        topic = KafkaTopic(KafkaCluster(broker.bootstrap), "guarded", "us")
        deadline = time.monotonic() + 60
        while "does not show" not in caplog.text:  # until the broker has heard of the rules, it refuses the topic
            with contextlib.suppress(ConfigError):
                check_topic(topic)
            assert time.monotonic() < deadline
        check_topic(topic)
        assert caplog.text.count("Kafka does not show the cleanup.policy of topic guarded") == 1
        with closing(SignalForwarder(topic, inbox)) as forwarder:
            forwarder.forward(wait=True)
            broker.send("guarded", "{}", "us")
            forwarder.forward(wait=True)
            assert names(inbox, "guarded") == [0]


def test_nobody_waits_for_a_broker_that_is_away(
    inbox: ControlFolder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_fail, connect = threading.Event(), _topic._connect

    def connecting(topic: KafkaTopic) -> Any:
        may_fail.wait()
        return connect(topic)

    monkeypatch.setattr(_topic, "_connect", connecting)
    away = KafkaCluster(f"127.0.0.1:{free_port()}", answer_seconds=0.5)
    forwarder = SignalForwarder(KafkaTopic(away, "t", "us"), inbox)
    forwarder.forward()  # who waited here would wait for ever
    with caplog.at_level(logging.WARNING):
        forwarder.forward(wait=True)  # for twice the time of an answer
        assert "signals from Kafka" not in caplog.text
        may_fail.set()
        while "signals from Kafka" not in caplog.text:
            forwarder.forward(wait=True)
    assert "signals from Kafka are delayed: Kafka at 127.0.0.1" in caplog.text
    forwarder.forward()
    assert (inbox.signals(), inbox.read("forwarded.json")) == ({}, None)


def test_clients_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("no.such.setting=x\n")
    for file, message in (("nowhere", "settings_file .*nowhere cannot be read"), ("settings", "No such configuration")):
        with pytest.raises(ConfigError, match=message):
            check_topic(KafkaTopic(KafkaCluster("127.0.0.1:1", str(tmp_path / file)), "t", "us"))


def test_settings_are_read_where_a_client_is_made_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("# ours\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b \n")
    topic = KafkaTopic(KafkaCluster("h:1", str(tmp_path / "settings")), "t", "us")
    assert topic.cluster.settings() == {
        "bootstrap.servers": "h:1", "log_level": 0, "security.protocol": "SASL_SSL", "sasl.password": "a=b"
    }  # fmt: skip
    assert "a=b" not in repr(topic)


def test_no_broker_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectError, match="does not answer"):
        check_topic(KafkaTopic(KafkaCluster(f"127.0.0.1:{free_port()}", answer_seconds=0.5), "t", "us"))
