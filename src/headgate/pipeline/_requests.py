"""Requests of a run to its lake's object store, for its status: those of Python's processes, and those of Spark's JVM.

Spark writes its checkpoint by Hadoop. S3A counts its requests; the connectors of other stores have other statistics, so
there the checkpoint's requests are not counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.status import RequestsStatus
from headgate.stores import COUNTS_VARIABLE, Operation, RequestCounts, read_counts, shared_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.lake import Lake

__all__ = ["RunRequests", "counted_requests"]

_S3A: Final = "S3AStorageStatistics"
"""S3A's statistics of a JVM (``org.apache.hadoop.fs.s3a.S3AStorageStatistics``)."""
_S3A_NAMES: Final[Mapping[Operation, tuple[str, ...]]] = {
    Operation.PUT: ("object_put_request", "object_copy_requests", "object_multipart_initiated"),
    Operation.GET: ("action_http_get_request", "object_metadata_request"),
    Operation.LIST: ("object_list_request", "object_continue_list_request"),
    Operation.DELETE: ("object_delete_request", "object_bulk_delete_request"),
}
"""Its counters, by kind of request (``org.apache.hadoop.fs.s3a.Statistic``)."""


class RunRequests:
    """Requests since this object was made.

    :param folder: counts of Python's processes.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._begun, self._before = time.monotonic(), self._count()

    def read(self) -> RequestsStatus:
        """Return them."""
        counts = self._count()
        seconds = round(time.monotonic() - self._begun, 1)
        named = {operation.name.lower(): counts[operation] - self._before[operation] for operation in Operation}
        return RequestsStatus(seconds=seconds, **named)

    def _count(self) -> RequestCounts:
        counts = read_counts(self._folder)
        s3a = self._hadoop.GlobalStorageStatistics.INSTANCE.get(_S3A)
        if s3a is not None:
            for operation, names in _S3A_NAMES.items():
                counts[operation] += sum(s3a.getLong(name) or 0 for name in names)
        return counts

    @property
    def _hadoop(self) -> Any:
        return self._spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]


@contextlib.contextmanager
def counted_requests(spark: SparkSession, lake: Lake) -> Iterator[RunRequests | None]:
    """Count the requests to a lake's store while the block is open; None: the lake is a folder."""
    if lake.is_local:
        yield None
        return
    environment = spark.sparkContext.environment
    with shared_counts() as folder:
        environment[COUNTS_VARIABLE] = str(folder)
        try:
            yield RunRequests(spark, folder)
        finally:
            environment.pop(COUNTS_VARIABLE, None)
