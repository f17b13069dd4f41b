"""Appends to Delta tables without Spark's writers: tasks write the Parquet files, the driver commits them.

A Spark writer passes each row through generated Java. That costs more CPU than Arrow's writer, and a new session has to
compile it first. The commits are ``headgate.delta``'s, too.

**Exactly once**, as with Spark's writer: a commit carries a marker (application, version). If the table has that
version or a later one, nothing is appended. ``commit`` removes files that no version names.

**Only plain tables.** Tables whose properties or protocol require more of a writer than rows in Parquet files with
statistics (constraints, generated columns, change data feed, …) are refused (``_write_methods``).

**Other programs** may commit meanwhile. An append depends only on the table's columns and the marker: it checks both
again, and commits after the other program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.delta import ColumnNames, CommitPlan, Snapshot, is_plain, write_files
from headgate.errors import CommitConflictError
from headgate.lake._delta import DeltaPath, spark_schema
from headgate.lake._marker import Marker
from headgate.lake._table_kind import measured_columns
from headgate.lake._write_methods import OTHER_COLUMNS, OTHER_TYPES, codec_of, not_writable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CommitBase", "append", "append_rows", "fit", "inspect_base", "table_schema"]

_TRIES = 100

Expand = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def append(delta: DeltaPath, data: DataFrame, expand: Expand, ddl: str, columns: Sequence[str], marker: Marker) -> None:
    """Append what ``expand`` makes of the record batches of ``data``, once under the marker.

    :param expand: runs in the tasks.
    :param ddl: the columns that ``expand`` returns, as Spark DDL.
    :param columns: those of them that the table gets. Other columns of the table become null.
    :raises CommitConflictError: another program changed the table so that the rows no longer fit, or appended under the
        same marker.
    :raises TargetError: headgate cannot write the table.
    """
    base = inspect_base(delta, ddl, columns)
    if base.has(marker):
        return
    folder, schema, codec, names, leaves = delta.path, base.schema, base.codec, base.names, base.leaves
    row_columns, measured = frozenset(columns), base.measured

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (fit(batch, schema, row_columns) for batch in expand(batches))
        added = list(write_files(rows, folder, schema, codec, measured, names, leaves))
        yield pa.RecordBatch.from_arrays([pa.array(added, pa.string())], ["action"])

    actions = [json.loads(row[0]) for row in data.mapInArrow(write, "action string").collect()]
    _commit(delta, base, actions, marker, lambda: inspect_base(delta, ddl, columns))


def append_rows(
    delta: DeltaPath, rows: Sequence[Sequence[Any]], ddl: str, marker: Marker | None = None, *, at: int | None = None
) -> None:
    """Append a few rows that the driver holds.

    :param rows: values as ``createDataFrame`` takes them; structs as dictionaries.
    :param marker: None: append the rows each time.
    :param at: append only to this version of the table. Of two programs that do so at the same time one fails.
    :raises CommitConflictError: another program changed the table at the same time, or since ``at``.
    :raises TargetError: headgate cannot write the table.
    """
    names = spark_schema(ddl).fieldNames()
    base = inspect_base(delta, ddl, names)
    if at is not None and base.version != at:
        raise CommitConflictError(f"another program wrote {delta.path} after version {at}")
    if not base.has(marker):
        lines = [dict(zip(names, row, strict=True)) for row in rows]
        batches = pa.Table.from_pylist(lines, schema=base.schema).to_batches()
        actions = [*map(json.loads, write_files(batches, delta.path, base.schema, base.codec, names=base.names))]
        _commit(delta, base, actions, marker, None if at is not None else lambda: inspect_base(delta, ddl, names))


def fit(batch: pa.RecordBatch, schema: pa.Schema, row_columns: frozenset[str]) -> pa.RecordBatch:
    """Return the table's columns, in its order; null if not in ``row_columns``."""
    columns = [
        batch.column(field.name) if field.name in row_columns else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class CommitBase:
    """Base of a commit: the newest version of a plain table."""

    snapshot: Snapshot
    schema: pa.Schema
    """Schema of the table's rows at that version."""
    codec: str

    @property
    def version(self) -> int:
        """The version that the commit is planned on."""
        return self.snapshot.version

    @property
    def names(self) -> ColumnNames:
        """Column names in data files."""
        return self.snapshot.names

    @property
    def leaves(self) -> int:
        """Number of leaf columns, from the first, that have statistics in new files."""
        return self.snapshot.indexed_leaves

    @property
    def measured(self) -> tuple[str, ...]:
        """Columns that have statistics in new files, at any position."""
        return measured_columns(self.snapshot.properties)

    def has(self, marker: Marker | None) -> bool:
        """Return whether the table has what was committed under a marker."""
        return marker is not None and self.snapshot.transactions.get(marker.application, -1) >= marker.version

    def fits(self, other: CommitBase) -> bool:
        """Return whether files that were written for another version fit this one: they have its columns, and all
        statistics that it wants.
        """
        return (self.schema, self.names) == (other.schema, other.names) and self.leaves <= other.leaves


def inspect_base(
    delta: DeltaPath,
    ddl: str,
    columns: Sequence[str],
    *,
    files: bool = False,
    deletes: bool = False,
    newest: bool = True,
) -> CommitBase:
    """Return the newest version, to write rows to it.

    :param ddl: columns of the rows to write, as Spark DDL.
    :param columns: those of them that the table gets.
    :param files: the version has its data files.
    :param deletes: by deletion vectors, as of a current table.
    :param newest: False: the version that is known; see :meth:`DeltaPath.writable`.
    :raises TargetError: headgate cannot write the table.
    """
    snapshot = delta.writable(files=files, deletes=deletes, newest=newest)
    schema = _schema(snapshot.schema_json, ddl, tuple(columns))
    if schema is None:
        raise not_writable(delta.path, OTHER_TYPES if deletes else OTHER_COLUMNS, deletes=deletes)
    return CommitBase(snapshot, schema, codec_of(delta.spark.conf.get))


@lru_cache(maxsize=4096)
def _schema(table_json: str, ddl: str, columns: tuple[str, ...]) -> pa.Schema | None:
    """Return the schema of the table's files; None if these columns do not fit, or Arrow lacks a type."""
    from pyspark.sql.types import StructType

    table_types = {field.name: field.dataType.simpleString() for field in StructType.fromJson(json.loads(table_json))}
    row_types = {field.name: field.dataType.simpleString() for field in spark_schema(ddl)}
    return None if any(table_types.get(name) != row_types[name] for name in columns) else table_schema(table_json)


@lru_cache(maxsize=4096)
def table_schema(table_json: str) -> pa.Schema | None:
    """Return the schema of a table's files; None if Arrow lacks a type, or Spark would write it differently.

    Its columns may be null, as in Spark's files: the log alone says which never are.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        schema: pa.Schema = to_arrow_schema(StructType.fromJson(json.loads(table_json)), timezone="UTC")
    except PySparkException:
        return None
    return pa.schema([(one.name, one.type) for one in schema]) if all(is_plain(one.type) for one in schema) else None


def _commit(
    delta: DeltaPath,
    base: CommitBase,
    added: Sequence[dict[str, Any]],
    marker: Marker | None,
    again: Callable[[], CommitBase] | None,
) -> None:
    """Commit new files.

    :param added: the actions that add them.
    :param again: reads the table again if another program has committed meanwhile; None: raise the conflict.
    :raises CommitConflictError: it is one, the rows no longer fit the table or are already in it, or conflicts persist.
    """
    actions = [*([] if marker is None else [marker.action()]), *added]

    def bases() -> Iterator[CommitBase]:
        yield base
        while again is not None:
            newer = again()
            if not newer.fits(base) or newer.has(marker):
                raise CommitConflictError(f"{delta.path}: another program changed the columns, or appended these rows")
            yield newer

    about, versions = {"mode": "Append", "partitionBy": "[]"}, bases()
    delta.commit(
        lambda: CommitPlan(next(versions).snapshot, actions, "WRITE", about, blind=True),
        tries=1 if again is None else _TRIES,
        staged=[str(one["add"]["path"]) for one in added],
    )
