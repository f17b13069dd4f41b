"""Giving up a stream's position: the next run begins a new one, and reads all tables into the lake that there is.

The order makes it safe to be killed in between. What says where the sinks are goes first: without it a new checkpoint
begins with reading everything. The checkpoint goes last; as long as it is there, the next run meets the same error and
comes here again. The ledger stays: epochs go on growing, and tables keep their rows until they have been read anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.carrier import ControlFolder
from headgate.lake._layout import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["forget_position"]


def forget_position(spark: SparkSession, lake: Lake, inbox: ControlFolder) -> None:
    """Forget where the stream is. Users' signals stay; what the sinks asked for is part of what is read anyway."""
    inbox.forget_position()
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    path = hadoop.Path(lake.checkpoint)
    fs = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    fs.delete(path, True)
