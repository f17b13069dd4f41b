"""A JVM that ``spark-submit`` has started, with this process as its program: on the machine of the command
(``--deploy-mode client``), or on one of the cluster (``cluster``).

Spark's documentation, "Submitting Applications": settings of a program take precedence over the options of
``spark-submit``, and these over ``spark-defaults.conf``. So headgate's defaults come last, and the pipeline file first.
What a running JVM cannot change any more is refused in the file: it would have no effect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from headgate.errors import ConfigError

__all__ = ["check_delta", "check_submitted", "is_submitted", "submitted_settings"]

_PORT: Final = "PYSPARK_GATEWAY_PORT"
"""Variable by which ``spark-submit`` gives its program the JVM (``PythonRunner`` in Spark's core)."""
_OF_THE_JVM: Final = (
    "spark.master",
    "spark.submit.deployMode",
    "spark.driver.memory",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.excludes",
    "spark.jars.repositories",
)
"""Settings that have their effect before or while the JVM starts."""
_DELTA_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"


def is_submitted() -> bool:
    """Return whether ``spark-submit`` has started this process."""
    return _PORT in os.environ


def submitted_settings() -> dict[str, str]:
    """Return the settings of ``spark-submit``: its options, its files of settings, and what it derives from them."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def check_submitted(submitted: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Check that the user's settings can still have an effect in a JVM with the settings ``submitted``.

    :raises ConfigError: one of them cannot.
    """
    late = [key for key in _OF_THE_JVM if key in settings and str(settings[key]) != submitted.get(key)]
    if late:
        name = late[0].removeprefix("spark.")
        raise ConfigError(
            f"spark-submit has started Spark's JVM, so {name} in [spark] comes too late: remove it from the file,"
            f" and run spark-submit with --conf {late[0]}=…"
        )


def check_delta(package: str) -> None:
    """Check that the JVM of ``spark-submit`` has Delta's classes.

    :param package: Delta's, as ``--packages`` takes it.
    :raises ConfigError: it has not.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_DELTA_CLASS)
    except Py4JJavaError:
        raise ConfigError(f"Spark has no Delta: run spark-submit with --packages {package}") from None
