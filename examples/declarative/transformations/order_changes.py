"""The changes of MySQL's ``shop.orders`` as a streaming table."""

from __future__ import annotations

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

import headgate

spark = SparkSession.active()
headgate.register(spark)


@pipelines.table
def order_changes() -> DataFrame:
    """One row for each row image: ``_op``, ``_seq``, ``_gtid``, ``_ts``, ``_table`` and the table's columns."""
    source = spark.readStream.format("mysql-cdc").option("url", spark.conf.get("shop.url"))
    return source.option("table", "shop.orders").load()
