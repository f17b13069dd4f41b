"""headgate: MySQL change data capture for Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``spark.read`` and ``spark.readStream`` know the format ``mysql-cdc``."""
    from headgate.spark import register as _register

    _register(spark)
