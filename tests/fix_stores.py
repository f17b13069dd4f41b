"""Object stores and a Spark cluster for tests. Where there is no store to be had, its tests are skipped.

* ``object_store``: one MinIO for the whole run. Make buckets of your own in it.
* ``blob_store``: one Azurite for the whole run, likewise.
* ``spark_cluster``: a standalone master and two workers for the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.errors import ConfigError
from headgate_testing import BlobStore, ObjectStore, SparkCluster


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """The run's shared store."""
    try:
        store = ObjectStore.start()
    except ConfigError as error:
        pytest.skip(str(error))
    with store:
        yield store


@pytest.fixture(scope="session")
def blob_store() -> Iterator[BlobStore]:
    """The run's shared store."""
    try:
        store = BlobStore.start()
    except ConfigError as error:
        pytest.skip(str(error))
    with store:
        yield store


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """The run's shared cluster."""
    with SparkCluster.start() as cluster:
        yield cluster
