"""A Python data source that yields Arrow batches that lie in a file: the most that Spark lets any Python source do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks._drain import drain
from headgate.mysql import ConnectionSettings


class Prebuilt(DataSource):
    """Options: ``file`` (Arrow IPC), ``tasks``. Each task yields its share of the file's batches.

    With ``url`` and ``drain`` (a SELECT that contains ``{task}``) each task first receives the answer to its SELECT and
    forgets it: what a source on the same machine as its server cannot avoid.
    """

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        with pa.ipc.open_file(self.options["file"]) as reader:
            return from_arrow_schema(reader.schema, prefer_timestamp_ntz=True)

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._tasks = int(options["tasks"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(i) for i in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if "drain" in self._options:
            settings = ConnectionSettings.from_url(self._options["url"])
            drain(settings, self._options["drain"].format(task=partition.value))
        with pa.memory_map(self._options["file"]) as source, pa.ipc.open_file(source) as reader:
            for i in range(partition.value, reader.num_record_batches, self._tasks):
                yield reader.get_batch(i)
