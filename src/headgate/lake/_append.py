"""Appending to a Delta table past Spark's writers: the tasks write the Parquet files, the driver commits them.

A Spark writer takes each row through generated Java, which costs more CPU than Arrow's writer, and in a young session
has to be compiled first. Commits are ``headgate.delta``'s, too.

**Exactly once** is as with Spark's writer: a commit carries a marker (application, version), and who finds that version
or a later one in the table appends nothing. Files of a commit that did not come about are orphans.

**Only plain tables.** A table whose properties or protocol ask a writer for more than rows in Parquet files
(constraints, clustering, generated columns, change data feed, …) is left to Spark, and so are lakes on object stores
other than S3.

**Other programs** may commit meanwhile. An append rests on nothing but the table's columns and the marker: it looks at
both again, and commits after them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.delta import ColumnNames, Snapshot, commit, is_plain, write_files
from headgate.errors import CommitConflictError
from headgate.lake._delta import DeltaPath, commit_errors, spark_schema
from headgate.lake._ways import OTHER_TYPES, codec_of, spark_writes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Begun", "Marker", "append", "append_frame", "append_rows", "begin", "fit", "look", "table_schema"]

_TRIES = 100

Expand = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Marker:
    """Delta's transaction marker: rows that are appended under it again are there already."""

    application: str
    version: int

    def action(self) -> str:
        """As an action of the commit."""
        return json.dumps({"txn": {"appId": self.application, "version": self.version}})


def append(delta: DeltaPath, data: DataFrame, expand: Expand, ddl: str, columns: Sequence[str], marker: Marker) -> bool:
    """Append what ``expand`` makes of the record batches of ``data``; False: not here, Spark has to do it.

    :param expand: runs in the tasks.
    :param ddl: the columns that it gives, as Spark DDL.
    :param columns: of them, those that the table gets; other columns of the table become null.
    :raises CommitConflictError: another program changed the table so that this does not fit any more, or appended under
        the same marker.
    """
    begun = begin(delta, ddl, columns)
    if begun is None:
        return False
    if _has(begun, marker):
        return True
    folder, schema, codec, names = delta.path, begun.schema, begun.codec, begun.names
    given = frozenset(columns)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (fit(batch, schema, given) for batch in expand(batches))
        added = list(write_files(rows, folder, schema, codec, names=names))
        yield pa.RecordBatch.from_arrays([pa.array(added, pa.string())], ["action"])

    actions = [row[0] for row in data.mapInArrow(write, "action string").collect()]
    _commit(delta, begun, actions, marker, lambda: begin(delta, ddl, columns))
    return True


def append_rows(
    delta: DeltaPath, rows: Sequence[Sequence[Any]], ddl: str, marker: Marker | None = None, *, at: int | None = None
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
    begun = begin(delta, ddl, names)
    if begun is None:
        append_frame(delta, delta.spark.createDataFrame(rows, ddl).coalesce(1), marker, mergeSchema="true")
        return
    if at is not None and begun.version != at:
        raise CommitConflictError(f"another program wrote {delta.path} after version {at}")
    if not _has(begun, marker):
        lines = [dict(zip(names, row, strict=True)) for row in rows]
        batches = pa.Table.from_pylist(lines, schema=begun.schema).to_batches()
        actions = list(write_files(batches, delta.path, begun.schema, begun.codec, names=begun.names))
        _commit(delta, begun, actions, marker, None if at is not None else lambda: begin(delta, ddl, names))


def append_frame(delta: DeltaPath, frame: DataFrame, marker: Marker | None, **options: str) -> None:
    """Append by Spark's writer.

    :raises CommitConflictError: another program changed the table at the same time.
    """
    writer = frame.write.format("delta").mode("append").options(**options)
    if marker is not None:
        writer = writer.option("txnAppId", marker.application).option("txnVersion", marker.version)
    with commit_errors(delta.path):
        writer.save(delta.path)


def fit(batch: pa.RecordBatch, schema: pa.Schema, given: frozenset[str]) -> pa.RecordBatch:
    """The table's columns, in its order."""
    columns = [
        batch.column(field.name) if field.name in given else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class Begun:
    """What a commit is planned on: the newest version of a plain table."""

    snapshot: Snapshot
    schema: pa.Schema
    """Of the table's rows at that version."""
    codec: str

    @property
    def version(self) -> int:
        """The version that it reads."""
        return self.snapshot.version

    @property
    def names(self) -> ColumnNames:
        """Those that the columns have in files."""
        return self.snapshot.names

    def takes(self, other: Begun) -> bool:
        """Whether files that were written for another version fit this one."""
        return self.schema == other.schema and self.names == other.names


def begin(delta: DeltaPath, ddl: str, columns: Sequence[str]) -> Begun | None:
    """Look at the newest version; None if the table is not one for us.

    :param ddl: of rows that are to be written, as Spark DDL.
    :param columns: of them, those that the table gets.
    """
    found = look(delta, ddl, columns)
    return found if isinstance(found, Begun) else None


def look(delta: DeltaPath, ddl: str, columns: Sequence[str]) -> Begun | str:
    """As :func:`begin`; if the table is not one for us, the reason."""
    reason, snapshot = delta.obstacle(), delta.followed()
    if snapshot is None:
        return str(reason)
    setting = delta.spark.conf.get
    refused = spark_writes(snapshot, setting)
    if refused is not None:
        return refused
    schema = _schema(snapshot.schema_json, ddl, tuple(columns))
    return OTHER_TYPES if schema is None else Begun(snapshot, schema, codec_of(setting))


@lru_cache(maxsize=4096)
def _schema(table_json: str, ddl: str, columns: tuple[str, ...]) -> pa.Schema | None:
    """The schema of the table's files; None if these columns do not fit, or Arrow has no such type."""
    from pyspark.sql.types import StructType

    there = {field.name: field.dataType for field in StructType.fromJson(json.loads(table_json))}
    given = {field.name: field.dataType for field in spark_schema(ddl)}
    return None if any(there.get(name) != given[name] for name in columns) else table_schema(table_json)


def table_schema(table_json: str) -> pa.Schema | None:
    """The schema of a table's files; None if Arrow has no such type, or Spark would write it in another way."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        schema: pa.Schema = to_arrow_schema(StructType.fromJson(json.loads(table_json)), timezone="UTC")
    except PySparkException:
        return None
    return schema if all(is_plain(field.type) for field in schema) else None


def _has(begun: Begun, marker: Marker | None) -> bool:
    return marker is not None and begun.snapshot.transactions.get(marker.application, -1) >= marker.version


def _commit(
    delta: DeltaPath,
    begun: Begun,
    added: Sequence[str],
    marker: Marker | None,
    again: Callable[[], Begun | None] | None,
) -> None:
    """Commit new files.

    :param again: looks at the table again if another program has committed meanwhile; None: then it is a conflict.
    :raises CommitConflictError: it is one, or these rows do not fit the table any more, or are there by now.
    """
    actions = [*([] if marker is None else [marker.action()]), *added]
    for _ in range(_TRIES):
        try:
            about = {"mode": "Append", "partitionBy": "[]"}
            commit(delta.path, begun.snapshot, actions, "WRITE", about, blind=True, put=delta.put)
        except CommitConflictError:
            found = again() if again is not None else None
            if found is None or not found.takes(begun) or _has(found, marker):
                raise
            begun = found
        else:
            return
    raise CommitConflictError(f"other programs keep committing to {delta.path}")
