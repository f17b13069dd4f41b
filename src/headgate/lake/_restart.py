"""Reset of a stream's position: the next run begins a new stream, and reads all tables into the existing lake.

The order makes a kill in between safe. The record of the sinks' positions goes first: without it a new checkpoint
begins by reading everything. The checkpoint goes last: while it exists, the next run meets the same error and resets
again. The ledger stays: epochs keep growing, and tables keep their rows until they have been read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.carrier import ControlFolder
from headgate.lake._layout import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["forget_position"]


def forget_position(spark: SparkSession, lake: Lake, inbox: ControlFolder) -> None:
    """Forget the stream's position. Users' signals stay, also a pause; what the sinks requested is read anyway."""
    inbox.forget_position()
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    path = hadoop.Path(lake.checkpoint)
    fs = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    fs.delete(path, True)
