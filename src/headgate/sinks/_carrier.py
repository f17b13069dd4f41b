"""One batch of the carrier, as the driver sees it: everything but the images themselves.

The images stay in Spark, in the batch's persisted frame; few ones come along. With the :class:`Batch` alone the sinks
decide what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.carrier import DESCRIBED_DDL, Batch, decode, describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["read_batch"]

_SENT_BYTES = 128 << 20
"""Images that the tasks of a batch send along with its description, at most."""


def read_batch(frame: DataFrame) -> Batch:
    """Run one job over the (persisted) carrier frame and describe the batch."""
    share = _SENT_BYTES // frame.sparkSession.sparkContext.defaultParallelism
    described = frame.mapInArrow(lambda batches: describe(batches, share), DESCRIBED_DDL).toArrow()
    return Batch.of(decode(described))
