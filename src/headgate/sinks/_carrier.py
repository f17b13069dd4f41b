"""Read one batch of the carrier into the driver: everything except the images.

The images stay in Spark, in the batch's persisted frame; if they are few, they are sent along. The sinks decide what to
do from the :class:`Batch` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.carrier import DESCRIBED_DDL, Batch, decode, describe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["read_batch"]

_SENT_BYTES = 128 << 20
"""Most bytes of images that a batch's tasks send with its description."""


def read_batch(frame: DataFrame) -> Batch:
    """Run one job over the (persisted) carrier frame and describe the batch."""
    share = _SENT_BYTES // frame.sparkSession.sparkContext.defaultParallelism
    described = frame.mapInArrow(lambda batches: describe(batches, share), DESCRIBED_DDL).toArrow()
    return Batch.of(decode(described))
