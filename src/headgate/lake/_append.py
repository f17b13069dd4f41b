"""Appending to a Delta table past Spark's writers: the tasks write the Parquet files, the driver commits them.

A Spark writer takes each row through generated Java, which costs more CPU than Arrow's writer, and in a young session
has to be compiled first. What is left to the JVM here is Delta's own transaction, so conflicts, checkpoints of the log
and everything else that a commit brings about are Delta's, as before.

**Exactly once** is as with Spark's writer: a commit carries a marker (application, version), and who finds that version
or a later one in the table appends nothing. Files of a commit that did not come about are orphans.

**Only plain tables.** A table whose properties or protocol ask a writer for more than rows in Parquet files (column
mapping, constraints, clustering, generated columns, change data feed, …) is left to Spark, and so are lakes on object
stores, whose credentials Spark has and Python has not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.errors import CommitConflictError
from headgate.lake._delta import DeltaPath, commit_errors, schema_of, spark_schema
from headgate.lake._parquet import CODECS, is_plain, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Marker", "append", "append_frame", "append_rows"]

_PROPERTIES = frozenset(
    {
        "delta.enableDeletionVectors",
        "delta.checkpointInterval",
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
    }
)
_FEATURES = frozenset({"deletionVectors", "timestampNtz", "appendOnly", "invariants"})
_SESSION = ("spark.databricks.delta.optimizeWrite.enabled", "spark.databricks.delta.autoCompact.enabled")

Expand = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Marker:
    """Delta's transaction marker: rows that are appended under it again are there already."""

    application: str
    version: int
    absent_at: int | None = None
    """A version of the table which the caller knows not to have them. If it is still the newest one, that spares a look
    through the table's log."""


def append(delta: DeltaPath, data: DataFrame, expand: Expand, ddl: str, columns: Sequence[str], marker: Marker) -> bool:
    """Append what ``expand`` makes of the record batches of ``data``; False: not here, Spark has to do it.

    :param expand: runs in the tasks.
    :param ddl: the columns that it gives, as Spark DDL.
    :param columns: of them, those that the table gets; other columns of the table become null.
    :raises CommitConflictError: another program changed the table so that this does not fit any more, or appended under
        the same marker.
    """
    begun = _begin(delta, ddl, columns)
    if begun is None:
        return False
    transaction, schema, codec = begun
    if _has(transaction, marker):
        return True
    folder, given = delta.path, frozenset(columns)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (_fit(batch, schema, given) for batch in expand(batches))
        added = list(write_files(rows, folder, schema, codec))
        yield pa.RecordBatch.from_arrays([pa.array(added, pa.string())], ["action"])

    actions = [row[0] for row in data.mapInArrow(write, "action string").collect()]
    _commit(delta, transaction, actions, marker)
    return True


def append_rows(
    delta: DeltaPath,
    rows: Sequence[Sequence[Any]],
    ddl: str,
    marker: Marker | None = None,
    *,
    at: int | None = None,
) -> None:
    """Append a few rows that the driver has: without a Spark job where that can be, else by one that adds what columns
    the table lacks.

    :param rows: values as ``createDataFrame`` takes them; structs as dictionaries.
    :param marker: None: the rows are appended each time.
    :param at: append to this version of the table only; of two programs that do so at the same time one is refused. By
        Spark's writer neither is, so the caller has to look at the version afterwards.
    :raises CommitConflictError: another program changed the table at the same time, or since ``at``.
    """
    names = spark_schema(ddl).fieldNames()
    begun = _begin(delta, ddl, names)
    if begun is None:
        append_frame(delta, delta.spark.createDataFrame(rows, ddl).coalesce(1), marker, mergeSchema="true")
        return
    transaction, schema, codec = begun
    if at is not None:
        if int(transaction.readVersion()) != at:
            raise CommitConflictError(f"another program wrote {delta.path} after version {at}")
        transaction.readWholeTable()
    if not _has(transaction, marker):
        lines = [dict(zip(names, row, strict=True)) for row in rows]
        batches = pa.Table.from_pylist(lines, schema=schema).to_batches()
        _commit(delta, transaction, list(write_files(batches, delta.path, schema, codec)), marker)


def append_frame(delta: DeltaPath, frame: DataFrame, marker: Marker | None, **options: str) -> None:
    """Append by Spark's writer.

    :raises CommitConflictError: another program changed the table at the same time.
    """
    writer = frame.write.format("delta").mode("append").options(**options)
    if marker is not None:
        writer = writer.option("txnAppId", marker.application).option("txnVersion", marker.version)
    with commit_errors(delta.path):
        writer.save(delta.path)


def _fit(batch: pa.RecordBatch, schema: pa.Schema, given: frozenset[str]) -> pa.RecordBatch:
    """The table's columns, in its order."""
    columns = [
        batch.column(field.name) if field.name in given else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _begin(delta: DeltaPath, ddl: str, columns: Sequence[str]) -> tuple[Any, pa.Schema, str] | None:
    """A transaction on the newest version, the files' schema, which is that version's, and their codec; None if the
    table is not one for us.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    if not delta.path.startswith("/"):
        return None
    conf = delta.spark.conf
    codec = (conf.get("spark.sql.parquet.compression.codec") or "").lower()
    if codec not in CODECS or any((conf.get(name, "false") or "").lower() != "false" for name in _SESSION):
        return None
    transaction = delta.transaction()
    if not _is_plain(transaction.metadata(), transaction.protocol()):
        return None
    table = schema_of(transaction.metadata())
    there = {field.name: field.dataType for field in table}
    given = {field.name: field.dataType for field in spark_schema(ddl)}
    if any(there.get(name) != given[name] for name in columns):
        return None
    try:
        schema: pa.Schema = to_arrow_schema(table, timezone="UTC")
    except PySparkException:  # a type that Arrow does not have
        return None
    return (transaction, schema, codec) if all(is_plain(field.type) for field in schema) else None


def _is_plain(metadata: Any, protocol: Any) -> bool:
    """Whether a table asks nothing of its writers but rows: by its properties, its protocol, its partitions."""
    properties = {name for name in metadata.configuration().keySet().mkString("\n").split("\n") if name}
    features = {name for name in protocol.readerAndWriterFeatureNames().mkString("\n").split("\n") if name}
    ours = {name for name in properties if name.startswith("headgate.")}
    return metadata.partitionColumns().isEmpty() and properties - ours <= _PROPERTIES and features <= _FEATURES


def _has(transaction: Any, marker: Marker | None) -> bool:
    """Whether the transaction's version has the marker's rows. If not, a commit of the same application that comes
    before the transaction's is a conflict: Delta is told that it depends on there being none.
    """
    if marker is None:
        return False
    if marker.absent_at is None or int(transaction.readVersion()) != marker.absent_at:
        return int(transaction.txnVersion(marker.application)) >= marker.version  # which tells Delta
    transaction.readTxn().addOne(marker.application)
    return False


def _commit(delta: DeltaPath, transaction: Any, added: list[str], marker: Marker | None) -> None:
    jvm = delta.spark._jvm
    read_action, as_scala, operation = _classes(jvm)
    actions = jvm.java.util.ArrayList()  # type: ignore[union-attr]
    if marker is not None:
        actions.add(read_action(json.dumps({"txn": {"appId": marker.application, "version": marker.version}})))
    for text in added:
        actions.add(read_action(text))
    with commit_errors(delta.path):
        transaction.commit(as_scala(actions).toList(), operation)


@lru_cache(maxsize=1)
def _classes(jvm: Any) -> tuple[Any, Any, Any]:
    """``Action.fromJson``, ``CollectionConverters.asScala``, and what a table's history calls a commit: an append."""
    package = jvm.org.apache.spark.sql.delta
    write = getattr(package, "DeltaOperations$Write")
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    (constructor,) = jvm.java.lang.Class.forName(write._fqn, True, loader).getConstructors()
    count = constructor.getParameterCount()  # more with each version of Delta; all but the first one are options
    operation = write(jvm.org.apache.spark.sql.SaveMode.Append, *[jvm.scala.Option.empty()] * (count - 1))
    action = getattr(package.actions, "Action$").__getattr__("MODULE$")
    return action.fromJson, jvm.scala.jdk.javaapi.CollectionConverters.asScala, operation
