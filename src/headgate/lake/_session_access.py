"""What a Spark session has: Delta; access to object stores, for this process and for Spark's Python processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headgate.archives import DELTA_PACKAGE
from headgate.errors import ConfigError
from headgate.stores import has_credentials, is_remote, share_credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["delta_needed", "share_access"]

_MISSING: Final = ("DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION", "JavaPackage")
"""In errors of Spark and py4j: there are no archives of Delta, or the session was started without its settings."""
_START: Final = (
    f"pyspark --packages {DELTA_PACKAGE}"
    " --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
    " --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    " --conf spark.databricks.delta.snapshotPartitions=2"
)
"""docs/how-to/read-tables.md has the same line. Without the last setting Delta computes a table's state in 50 tasks."""


@contextmanager
def delta_needed() -> Iterator[None]:
    """Convert errors of a session that has no Delta.

    :raises ConfigError: with the line that starts one that has it.
    """
    try:
        yield
    except Exception as error:
        if not any(one in str(error) for one in _MISSING):
            raise
        raise ConfigError(f"this Spark session has no Delta: start it by `{_START}`, or with these settings") from None


def share_access(spark: SparkSession, path: str) -> None:
    """Give this process, and Python processes that the session starts from now on, the session's access to a path."""
    if not is_remote(path):
        return
    context = spark.sparkContext
    if has_credentials(path, context.environment):
        return
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    text: Any = spark._jvm.java.lang.String  # type: ignore[union-attr]

    def setting(name: str) -> str | None:
        """Return a setting, also from Hadoop's credential providers."""
        characters = hadoop.getPassword(name)
        return None if characters is None else str(text.valueOf(characters))

    context.environment.update(share_credentials(path, setting))
