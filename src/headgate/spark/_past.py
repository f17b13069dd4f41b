"""Source tables as they were at a GTID set: whole, as Spark frames; some rows of one; which keys became which.

For who compares a copy with its source (``headgate.lake``). Rows are turned back to the set, whatever the pipeline does
with rows that change while it reads them. Where partial row images (``binlog_row_image`` MINIMAL or NOBLOB) leave
something out that nobody knows, a column ``_absent`` says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.spark._options import Options
from headgate.spark._source import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.catalog import TableDef

__all__ = ["PastTables"]

Key = tuple[Any, ...]


class PastTables:
    """Reads tables of one source.

    :param options: those of the Spark source, but ``table``, ``as_of``, ``meta``, ``window`` and ``partial_rows``.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        register(spark)
        self._spark = spark
        self._options = {**options, "meta": "false", "partial_rows": "tell"}

    def __call__(self, table: str, gtid: str) -> DataFrame:
        """A table's own columns as of ``gtid``, which the server has executed, and ``_absent``."""
        reader = self._spark.read.format("mysql-cdc").options(**self._options)
        return reader.option("table", table).option("as_of", gtid).load()

    def keys(self, table: str, keys: pa.Table) -> list[Key]:
        """Keys out of Spark in the form that :meth:`rows` and :meth:`moves` speak of."""
        schema = self._key_schema(self._table(table))
        return _tuples(keys.select(schema.names).cast(schema))

    def rows(self, table: str, gtid: str, keys: list[Key]) -> DataFrame:
        """Some rows, as :meth:`__call__` gives them; perhaps others beside them.

        :raises ChunkRetryError: the table was altered since ``gtid``, so nobody can tell its rows then.
        :raises ServerSettingError: the server lacks a setting that exactness rests on.
        """
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        from headgate.catalog import exact_patterns
        from headgate.errors import ChunkRetryError
        from headgate.gtid import GtidSet
        from headgate.mysql import Connection
        from headgate.replication import ImageBatch, check_settings
        from headgate.snapshot import Chunk, Redo, read_chunks
        from headgate.spark._rows import typed_batch, typed_fields

        options, settings = self._parsed(table), self._parsed(table).settings()
        known = self._table(table)
        with Connection.open(settings) as connection:
            gtids = options.watermark != "signal-table"
            uuid = check_settings(connection, exact_patterns([table]), gtids=gtids).server_uuid
        fields = typed_fields(known, options.policies, meta=False, tell=True)
        spark_schema = from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)
        schema = to_arrow_schema(spark_schema, timezone="UTC")
        found = []
        for item in read_chunks(
            settings, [Chunk(table, 0, None, None)], executed=GtidSet.parse(gtid), server_uuid=uuid, epoch=0,
            planned_us=time.time_ns() // 1000, policies=options.policies, partial="tell",
            only=self._key_table(known, keys),
        ):  # fmt: skip
            if isinstance(item, Redo):
                raise ChunkRetryError(item.reason, table=table)
            if isinstance(item, ImageBatch):
                found.append(typed_batch(item, schema, options.images, tell=True))
        return self._spark.createDataFrame(pa.Table.from_batches(found, schema), spark_schema)

    def key_frame(self, table: str, keys: list[Key]) -> DataFrame:
        """The keys as a frame."""
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        found = self._key_table(self._table(table), keys)
        schema = from_arrow_schema(found.schema, prefer_timestamp_ntz=True)
        return self._spark.createDataFrame(found.cast(to_arrow_schema(schema, timezone="UTC")), schema)

    def moves(self, table: str, start: str, end: str) -> Iterator[tuple[Key, Key]]:
        """The changes of keys in the transactions of ``end`` that are not in ``start``, in the order of the log.

        :raises ChunkRetryError: the table was altered meanwhile.
        """
        from headgate.catalog import TablePatterns
        from headgate.errors import ChunkRetryError
        from headgate.gtid import GtidSet
        from headgate.replication import Ddl, LogBlock, Stopped, read_range

        options, executed = self._parsed(table), GtidSet.parse(end)
        names = self._key_schema(self._table(table)).names
        for item in read_range(
            options.settings(), executed - GtidSet.parse(start), executed=executed, server_uuid=None,
            tables=TablePatterns(options.patterns), epoch=0, images="keys", policies=options.policies,
        ):  # fmt: skip
            if isinstance(item, (Ddl, Stopped)):
                raise ChunkRetryError("the table was altered meanwhile", table=table)
            for image in item.images if isinstance(item, LogBlock) else ():
                yield from _moves(image.batch, names)

    def _parsed(self, table: str) -> Options:
        return Options.parse({**self._options, "table": table})

    def _table(self, table: str) -> TableDef:
        from headgate.spark._rows import find_table

        return find_table(self._parsed(table).settings(), table)

    def _key_schema(self, table: TableDef) -> pa.Schema:
        from headgate.columns import TableCodec

        fields = {field.name: field for field in TableCodec(table, self._parsed(table.full_name).policies).fields}
        return pa.schema([fields[name].remove_metadata() for name in table.key_names])

    def _key_table(self, table: TableDef, keys: list[Key]) -> pa.Table:
        schema = self._key_schema(table)
        columns = zip(*keys, strict=True) if keys else [()] * len(schema)
        return pa.table([pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)], schema)


def _moves(batch: pa.RecordBatch, names: list[str]) -> Iterator[tuple[Key, Key]]:
    """Old and new keys of the updates that change it: with images="keys" only those have a before-image."""
    import pyarrow.compute as pc

    before = pc.indices_nonzero(pc.equal(batch.column(0), "b"))
    if not len(before):
        return
    keys = pa.Table.from_batches([batch]).select(names)
    yield from zip(_tuples(keys.take(before)), _tuples(keys.take(pc.add(before, 1))), strict=True)


def _tuples(keys: pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
