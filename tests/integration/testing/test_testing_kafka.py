"""The private broker: what it promises to tests and examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from headgate.errors import ConfigError, ConnectError
from headgate_testing import KafkaBroker, _kafka


def test_topics_hold_what_was_sent_in_order(kafka_broker: KafkaBroker, kafka_topic: str) -> None:
    assert kafka_broker.messages(kafka_topic) == []
    offsets = [kafka_broker.send(kafka_topic, value, key) for value, key in (("a", "k"), ("é", None), (None, "k"))]
    assert offsets == [0, 1, 2]
    assert kafka_broker.messages(kafka_topic) == [("k", "a"), (None, "é"), ("k", None)]
    with pytest.raises(ConnectError, match="no-such-topic"):
        kafka_broker.send("no-such-topic", "lost")


def test_a_topic_that_was_made_is_there(kafka_broker: KafkaBroker, kafka_topic: str) -> None:
    """For every client, at once."""
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    for number in range(20):
        kafka_broker.create_topic(f"{kafka_topic}-{number}", 3)
        topic = client.list_topics(f"{kafka_topic}-{number}", 60).topics[f"{kafka_topic}-{number}"]
        assert topic.error is None
        assert [(one.error, one.leader) for one in topic.partitions.values()] == [(None, 1)] * 3
        assert [kafka_broker.messages(f"{kafka_topic}-{number}", partition) for partition in range(3)] == [[]] * 3


def test_a_topic_may_have_partitions(kafka_broker: KafkaBroker, kafka_topic: str) -> None:
    kafka_broker.create_topic(f"{kafka_topic}-3", 3)
    kafka_broker.send(f"{kafka_topic}-3", "x", partition=2)
    assert [kafka_broker.messages(f"{kafka_topic}-3", partition) for partition in range(3)] == [[], [], [(None, "x")]]


@pytest.mark.slow
def test_a_restart_keeps_address_and_messages() -> None:
    with KafkaBroker.start() as broker:
        address, pid, folder = broker.bootstrap, broker.pid, broker.folder
        broker.create_topic("t")
        broker.send("t", "before")
        broker.restart()
        assert (broker.bootstrap, broker.messages("t")) == (address, [(None, "before")])
        assert broker.send("t", "after") == 1
        second = broker.pid
    assert not folder.exists()
    assert not psutil.pid_exists(pid)
    assert not psutil.pid_exists(second)


CHILD = """
import sys
from headgate_testing import KafkaBroker
broker = KafkaBroker.start()
print(broker.pid, broker.folder, flush=True)
sys.stdin.read()
"""


def test_the_broker_dies_with_a_killed_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        broker = psutil.Process(int(pid))
        assert Path(folder, "data", "meta.properties").exists()
        parent.kill()
    assert psutil.wait_procs([broker], timeout=30)[1] == []


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="Java 17"):
        KafkaBroker.start()


def test_a_setting_it_refuses_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kafka, "SETTINGS", {**_kafka.SETTINGS, "num.io.threads": 0})
    with pytest.raises(ConnectError, match=r"num\.io\.threads"):
        KafkaBroker.start()
