"""A batch between Spark and the driver: evaluated once, then used as it was.

Spark may compute a partition twice: an executor is lost, a block is evicted, a task is slow. A chunk that is read again
has a longer window, so it may give other rows, or none. So one job evaluates the stream's frame, and fetches all rows:
statements and reports whole, images as they are stored, in the row or in a file. The decision and all writes use these
rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.carrier import DATA_COLUMN, Batch, Part, decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["image_frame", "read_batch"]


def read_batch(frame: DataFrame) -> Batch:
    """Evaluate the stream's frame by one job, and decode its rows. Nothing else may evaluate it."""
    return Batch.of(decode(frame.toArrow()))


def image_frame(spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
    """Return stored images as one binary column, for :func:`~headgate.carrier.open_images` in tasks."""
    cells = [one.data.to_pybytes() for part in parts for one in part.stored]
    partitions = min(len(cells), spark.sparkContext.defaultParallelism) or 1
    ends = [len(cells) * number // partitions for number in range(partitions + 1)]
    arrays = [pa.array(cells[begin:end], pa.binary()) for begin, end in pairwise(ends)]
    return spark.createDataFrame(pa.table({DATA_COLUMN: pa.chunked_array(arrays)}))
