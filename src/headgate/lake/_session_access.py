"""Access to object stores that a Spark session has, for this process and for Spark's Python processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.stores import has_credentials, is_remote, share_credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["share_access"]


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
