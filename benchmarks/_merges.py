"""What a batch has changed, by Spark's MERGE: the way to keep tables equal that others go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.incremental import TASKS
from headgate.engine import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["OPTIMIZING", "merge_seconds"]

OPTIMIZING = {"spark.driver.memory": "3g", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
"""Settings of a session that is to do heavy work itself: with Java's second compiler."""


def merge_seconds(tables: Sequence[Path], key: Sequence[str], folder: Path) -> float:
    """Seconds that MERGEs of the newest batch's rows take, into copies of these tables; several at a time.

    The same is done before with the rows of the batch before, so that Spark is warm.
    """
    spark = build_session("merges", {"spark.master": f"local[{TASKS}]", **OPTIMIZING}, quiet=True)
    copies = {table: _copy(spark, table, folder / table.name) for table in tables}
    seconds = 0.0
    for back in (2, 1):
        rows = {table: _rows(spark, table, back) for table in tables}
        started = time.perf_counter()
        with ThreadPoolExecutor(TASKS) as pool:
            for done in [pool.submit(_merge, spark, copies[table], rows[table], key) for table in tables]:
                done.result()
        seconds = time.perf_counter() - started
    spark.stop()
    return seconds


def _copy(spark: SparkSession, table: Path, copy: Path) -> Path:
    frame = spark.read.format("delta").load(str(table))
    frame.write.format("delta").option("delta.enableDeletionVectors", "true").save(str(copy))
    return copy


def _rows(spark: SparkSession, table: Path, back: int) -> DataFrame:
    """The rows that the last batch but ``back - 1`` has written to a table and that are still there."""
    frame = spark.read.format("delta").load(str(table))
    epochs = frame.selectExpr("_seq.epoch AS epoch").distinct().orderBy("epoch", ascending=False).limit(back).collect()
    rows = frame.where(f"_seq.epoch = {epochs[-1]['epoch']}L").persist()
    rows.count()
    return rows


def _merge(spark: SparkSession, copy: Path, rows: DataFrame, key: Sequence[str]) -> None:
    from delta.tables import DeltaTable

    condition = " AND ".join(f"t.{name} = s.{name}" for name in key)
    merge = DeltaTable.forPath(spark, str(copy)).alias("t").merge(rows.alias("s"), condition)
    merge.whenMatchedUpdateAll("t._seq <= s._seq").whenNotMatchedInsertAll().execute()
