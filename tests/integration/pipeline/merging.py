"""Changes of current tables by Spark's MERGE, DELETE and UPDATE, with which headgate's own writer is compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from delta.tables import DeltaTable

from headgate.apply import Upserts
from headgate.apply._shares import Shares
from headgate.apply._staged_rows import Changes
from headgate.lake import DeltaPath
from headgate.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MergingUpserts"]


class MergingUpserts(Upserts):
    """Writes the same images, each as the newest one of its key over a row whose ``_seq`` is below."""

    def apply(self, delta: DeltaPath, changes: Changes) -> None:
        keys = [quote_name(name) for name in changes.key]
        values: Any = {quote_name(name): f"s.{quote_name(name)}" for name in changes.columns}
        target = DeltaTable.forPath(delta.spark, delta.path).alias("t")
        merge = target.merge(last_images(delta.spark, changes).alias("s"), " AND ".join(f"t.{k} = s.{k}" for k in keys))
        merge = merge.whenMatchedDelete("s._op IN ('b', 'd') AND t._seq < s._seq")
        merge = merge.whenMatchedUpdate("s._op NOT IN ('b', 'd') AND t._seq < s._seq", set=values)
        merge.whenNotMatchedInsert("s._op NOT IN ('b', 'd')", values=values).execute()

    def clear(self, delta: DeltaPath, bound: tuple[int, int, int, int], key: Sequence[str], *, since: int = 0) -> None:
        DeltaTable.forPath(delta.spark, delta.path).delete(f"_seq < {literal(bound)} AND _seq.epoch >= {since}")


def last_images(spark: SparkSession, changes: Changes) -> DataFrame:
    """The last image of each key, by Spark."""
    from pyspark.sql import functions

    if isinstance(changes.images, Shares):
        frame = changes.images.data().mapInArrow(changes.images.expand, changes.ddl)
    else:
        batches = [*changes.images]

        def give(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches

        frame = spark.range(0, 1, 1, 1).mapInArrow(give, changes.ddl)
    image = functions.struct(*[frame[quote_name(name)] for name in frame.columns])
    order = functions.struct(functions.col("_seq"), functions.col("_op") != "b")
    keys = [functions.col(quote_name(name)).alias(f"_key{i}") for i, name in enumerate(changes.key)]
    return frame.groupBy(*keys).agg(functions.max_by(image, order).alias("_last")).select("_last.*")


def literal(seq: tuple[int, int, int, int]) -> str:
    """A ``_seq`` in SQL."""
    epoch, file, pos, ordinal = seq
    return f"named_struct('epoch', {epoch}L, 'file', {file}, 'pos', {pos}L, 'ordinal', {ordinal}L)"
