"""The ``mysql-cdc`` data source: thin adapters between Spark's classes and the planner and row functions.

Spark pickles these objects: planning runs in one long-lived Python process, reading in many others that never see the
planner's state. So no constructor opens anything, a planner is created where planning happens, and a partition holds
everything that reading it needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headgate.carrier import CARRIER_DDL
from headgate.errors import ChunkRetryError, ConfigError
from headgate.offsets import SourceOffset
from headgate.spark._connect import accept_profiles, is_connect
from headgate.spark._options import Options
from headgate.spark._tasks import Task, pack
from headgate.spark._worker import task as worker_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from headgate.spark._planner import Planner

__all__ = ["MySQLCDCDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Register the format ``mysql-cdc`` for ``spark.read`` and ``spark.readStream``, once per session.

    >>> headgate.register(spark)
    >>> orders = spark.read.format("mysql-cdc").option("url", "mysql://headgate@db:3306").option("table", "shop.orders")
    >>> orders.option("meta", "false").load().orderBy("id").first()
    Row(id=1, customer='Ada', total=Decimal('12.50'))
    """
    spark.dataSource.register(MySQLCDCDataSource)
    if is_connect(spark):
        accept_profiles(spark.client)


class MySQLCDCDataSource(DataSource):
    """MySQL tables and their changes: ``format("mysql-cdc")``. docs/reference/spark.md has the options.

    Available in a session after :func:`register`. Spark creates the objects.

    >>> spark.dataSource.register(headgate.MySQLCDCDataSource)
    >>> changes = spark.readStream.format("mysql-cdc").option("url", "mysql://headgate@db:3306")
    >>> changes.option("table", "shop.items").load().columns
    ['_op', '_seq', '_gtid', '_ts', '_table', 'id', 'name']
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._parsed = Options.parse(dict(options))

    @classmethod
    def name(cls) -> str:
        """``mysql-cdc``"""
        return "mysql-cdc"

    def schema(self) -> StructType | str:
        """Return the table's columns after the meta columns with option ``table``, else the carrier's."""
        if self._parsed.table is None:
            return CARRIER_DDL
        from pyspark.sql.pandas.types import from_arrow_schema

        from headgate.spark._typed import find_table, typed_fields

        table = find_table(self._parsed.settings(), self._parsed.table)
        report_absent = self._parsed.partial_rows == "tell"
        fields = typed_fields(table, self._parsed.policies, meta=self._parsed.meta, report_absent=report_absent)
        return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``."""
        return _BatchReader(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader for ``spark.readStream``."""
        return _StreamReader(self._parsed, schema)


class _ReaderBase:
    """Common part of both readers. ``read`` uses only the options and the partition."""

    _parsed: Options
    _schema: StructType
    _truncate: Literal["keep", "redo"] = "redo"

    def planner(self) -> Planner:
        """Return a new planner with a separate connection."""
        from headgate.carrier import ControlFolder
        from headgate.control import KafkaTopic, NoForwarder, SignalForwarder
        from headgate.mysql import expect_login
        from headgate.spark._planner import Planner
        from headgate.spark._relayed import server_of

        path, topic = self._parsed.control_path, self._parsed.signal_topic
        folder = ControlFolder(path) if path else None
        forwarder: SignalForwarder | NoForwarder | None = None
        if folder is not None:
            expect_login(self._parsed.settings())  # a pipeline has checked its server before
            forwarder = NoForwarder(folder) if topic is None else SignalForwarder(KafkaTopic.of(topic), folder)
        return Planner(self._parsed, server_of(self._parsed), folder, forwarder=forwarder)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        task = partition.value
        if not isinstance(task, Task):  # Spark's placeholder for "no partitions"
            return
        with worker_task():
            yield from self._rows(task)

    def _rows(self, task: Task) -> Iterator[pa.RecordBatch]:
        from headgate.carrier import ImageFolder
        from headgate.mysql import expect_login
        from headgate.spark._carried import carrier_rows
        from headgate.spark._typed import typed_rows

        options, settings = self._parsed, self._parsed.settings()
        expect_login(settings)
        locks = options.locks(initial=task.initial)
        if options.table is None:
            yield from carrier_rows(
                settings,
                task,
                images=options.images,
                folder=ImageFolder(options.images_path, task.tasks) if options.images_path else None,
                policies=options.policies,
                locks=locks,
            )
            return
        from pyspark.sql.pandas.types import to_arrow_schema

        from headgate.snapshot import ChunkOptions

        schema = to_arrow_schema(self._schema, timezone="UTC")
        partial: Literal["refuse", "tell"] = "tell" if options.partial_rows == "tell" else "refuse"
        chunks = ChunkOptions(options.policies, self._truncate, locks, partial)
        try:
            yield from typed_rows(settings, task, options.table, schema, options.images, chunks)
        except ChunkRetryError as error:
            remedy = "start the query again: a stream with a new checkpoint, a batch as of a later set"
            raise ChunkRetryError(f"{error.message}; {remedy}", **error.fields) from None


class _StreamReader(_ReaderBase, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader: plans with :class:`Planner`."""

    _truncate = "keep"  # of typed rows: the TRUNCATE follows as an image

    def __init__(self, options: Options, schema: StructType) -> None:
        for name in ("as_of", "end"):
            if getattr(options, name) is not None:
                raise ConfigError(f'option "{name}" is for batch reads; a stream begins at option "start"')
        if options.partial_rows == "tell":
            raise ConfigError('option "partial_rows" is for batch reads of rows: "as_of"')
        if options.table is not None and not options.meta:
            raise ConfigError('a stream of changes needs its meta columns: leave option "meta" out')
        self._parsed = options
        self._schema = schema
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def _get_planner(self) -> Planner:
        if self._planner is None:
            self._planner = self.planner()
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return _as_dict(self._get_planner().initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch; ``start`` itself if there is nothing to read."""
        before = SourceOffset.from_json(start)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        after = self._get_planner().latest(before, rows)
        return start if after is before else _as_dict(after)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return option ``max_rows_per_batch`` as a limit."""
        rows = self._parsed.max_rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take nothing that is committed from now on."""
        self._get_planner().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = self._get_planner().tasks(SourceOffset.from_json(start), SourceOffset.from_json(end))
        return [InputPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the sinks have finished the batch. The next planning of a typed stream removes its signals."""

    def stop(self) -> None:
        """Release nothing: the connection ends with the process."""


class _BatchReader(_ReaderBase, DataSourceReader):
    """Batch reader: tables as of one GTID set, or the changes of a range of the log."""

    def __init__(self, options: Options, schema: StructType) -> None:
        changes = options.end is not None or options.start not in (None, "snapshot")
        if changes and options.as_of is not None:
            raise ConfigError('option "as_of" reads rows, "start" and "end" read changes: keep the ones you mean')
        if changes and options.partial_rows == "tell":
            raise ConfigError('option "partial_rows" is for rows ("as_of"); "start" and "end" read changes')
        if changes and options.table is not None and not options.meta:
            raise ConfigError('changes need their meta columns: leave option "meta" out')
        if options.start == "current":
            raise ConfigError('option "start" is "current", after which there are no changes yet; name a GTID set')
        policies = options.policies if changes else options.policies.without_stream()
        self._parsed = options.model_copy(update={"policies": policies})
        self._schema = schema
        self._changes = changes

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks. Every run of the query plans again, so pin it with ``as_of`` or ``end``."""
        planner = self.planner()
        options = self._parsed
        if self._changes:
            start = None if options.start == "snapshot" else options.start
            tasks = planner.tasks(*planner.between(start, options.end))
        else:
            offset, chunks = planner.everything(options.as_of)
            tasks = pack(offset, chunks, options.chunk_rows)
        return [InputPartition(task) for task in tasks]


def _as_dict(offset: SourceOffset) -> dict[str, Any]:
    """Return plain values, always in the same order: Spark compares offsets as text."""
    plain: dict[str, Any] = json.loads(offset.to_json())
    return plain
