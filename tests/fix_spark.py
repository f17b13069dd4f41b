"""One small local Spark session with Delta for all tests of a run, or of a worker of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pytest

from headgate.preload import PRELOAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")


def once_its_source_starts(run: Callable[[], _T]) -> _T:
    """What the run of a stream gives.

    Spark allows the process of a stream's source ten seconds to load its modules and to answer, which may be too few on
    a busy machine. Nothing has been read by then, so it is begun again, as a pipeline does (``EngineError``).
    """
    while True:
        try:
            return run()
        except Exception as error:
            if "Python worker failed to connect back" not in str(error) or "State: INITIALIZING" not in str(error):
                raise


# The memory is not the default one, so headgate leaves Java's collector as it is; tests want the smallest.
JAVA_OPTIONS = "-XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from headgate.engine import build_session

    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        # Delta replays a log in so many tasks: one saves 9 % of Java's time in tests.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Delta's VACUUM lists folders in so many tasks, by default 10,000: 40 seconds of processor time for any table.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Generating and compiling Java for each query takes a fifth of Java's time where tables have a few rows. Tests
        # that start `headgate run` as a process leave it on.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = build_session("tests", settings, quiet=True, preload=PRELOAD)
    yield session
    session.stop()


def pytest_sessionfinish() -> None:
    """End the JVM with the run: Python would report its process and pipe as forgotten, below the failures."""
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark is not None else None
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    process.stdin.close()  # the JVM ends with its input
    process.wait()
