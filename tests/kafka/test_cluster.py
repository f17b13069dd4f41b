"""Brokers that refuse a connection are told from brokers that are away."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.config import KafkaTargetConfig
from headgate.control import KafkaCluster, KafkaTopic, check_topic
from headgate.errors import ConfigError, KafkaUnavailableError
from headgate.kafka import check_brokers
from headgate.kafka._cluster import Topics
from tests.certificates import Authority

pytest.importorskip("confluent_kafka")

UNTRUSTED = "cannot be used: ssl://.*certificate verify failed"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """Address of a server whose certificate nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path).issue())
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with suppress(OSError), context.wrap_socket(connection, server_side=True):
                        pass

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)


@pytest.fixture
def settings_file(tmp_path: Path) -> str:
    path = tmp_path / "kafka.properties"
    path.write_text("security.protocol=ssl\n")
    return str(path)


def config(bootstrap: str, settings_file: str) -> KafkaTargetConfig:
    content = {"bootstrap": bootstrap, "settings_file": settings_file, "timeout_seconds": 2}
    return KafkaTargetConfig.model_validate(content)


def test_a_start_says_which_certificate_is_wrong(broker: str, settings_file: str) -> None:
    with pytest.raises(ConfigError, match=UNTRUSTED):
        check_brokers(config(broker, settings_file))


def test_so_does_a_topic_of_signals(broker: str, settings_file: str) -> None:
    with pytest.raises(ConfigError, match=UNTRUSTED):
        check_topic(KafkaTopic(KafkaCluster(broker, settings_file, answer_seconds=2), "signals", "shop"))


def test_a_batch_is_tried_again_and_says_why(broker: str, settings_file: str) -> None:
    """A certificate that expires while a pipeline runs is replaced."""
    with pytest.raises(KafkaUnavailableError, match="certificate verify failed"):
        Topics(KafkaCluster(broker, settings_file), 2).create({"t"})


def test_brokers_that_are_away_refuse_nothing(settings_file: str) -> None:
    with pytest.raises(KafkaUnavailableError, match="does not answer"):
        check_brokers(config("127.0.0.1:1", settings_file))
