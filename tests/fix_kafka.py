"""Kafka for tests.

* ``kafka_broker``: one broker for the whole run, started by the first test that asks for it.
* ``kafka_topic``: the name of a fresh topic on it with one partition.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from headgate.errors import ConfigError
from headgate_testing import KafkaBroker, RegistryServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """The run's shared broker. Make topics of your own on it."""
    with KafkaBroker.start() as broker:
        yield broker


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[RegistryServer]:
    """The run's shared schema registry. Use subjects of your own in it. Without Maven its tests are skipped."""
    try:
        started = RegistryServer.start()
    except ConfigError as error:
        pytest.skip(error.message)
    with started as registry:
        yield registry


@pytest.fixture
def kafka_topic(kafka_broker: KafkaBroker) -> str:
    """The name of an empty topic."""
    name = f"t{os.getpid()}-{next(_numbers)}"
    kafka_broker.create_topic(name)
    return name
