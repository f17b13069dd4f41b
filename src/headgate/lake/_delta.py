"""A Delta table's version, schema, properties and ownership: what headgate needs besides reading and writing rows.

headgate follows the logs of tables and commits to them without Spark (``headgate.delta``).

Ownership: every table that headgate creates carries the properties ``headgate.pipeline`` and ``headgate.table``. A path
that holds anything else is refused before the first byte is written.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.delta import (
    RETENTION_PROPERTIES,
    CommitPlan,
    Description,
    NewColumn,
    Snapshot,
    TableLog,
    addition,
    commit,
    creation,
    describing,
    is_mapped,
    renaming,
    snapshot_at,
    unsupported_properties,
    with_properties,
)
from headgate.errors import TargetError
from headgate.lake._marker import Marker, check_order
from headgate.lake._properties import PIPELINE, TABLE
from headgate.lake._session_access import share_access
from headgate.lake._table_layout import TableLayout
from headgate.lake._write_methods import check_writable
from headgate.names import quote_name
from headgate.stores import folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DeltaPath", "followed_log", "schema_of", "session_properties", "spark_schema"]

log = logging.getLogger("headgate")

_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""Prefix of session settings that give new tables properties."""


_PROTOCOL: Final = frozenset({"delta.minReaderVersion", "delta.minWriterVersion"})
"""Settings of the session that are no properties of a table: its requirements follow from its columns."""


def session_properties(spark: SparkSession) -> dict[str, str]:
    """Return the Delta properties that the session gives new tables.

    :raises TargetError: headgate does not support one.
    """
    settings = spark.conf.getAll
    named = {f"delta.{key.removeprefix(_DEFAULTS)}": key for key in settings if key.startswith(_DEFAULTS)}
    unsupported = [named[name] for name in unsupported_properties(named)]
    if unsupported:
        raise TargetError(
            "the Spark session gives new tables properties that headgate does not support: remove"
            f" {', '.join(unsupported)}"
        )
    return {name: settings[key] for name, key in named.items() if name not in _PROTOCOL}


@lru_cache(maxsize=10_000)
def followed_log(path: str) -> TableLog:
    """Return the follower of a table's log that this process shares."""
    return TableLog(path)


def check_owner(path: str, snapshot: Snapshot, pipeline: str, table: str) -> None:
    """Check that a Delta table is a pipeline's.

    :raises TargetError: it is another one's, or headgate did not make it.
    """
    owner, owned = snapshot.properties.get(PIPELINE), snapshot.properties.get(TABLE)
    if owner is None:
        raise TargetError(
            f"{path} is a Delta table that headgate did not make; move it away or choose another target.path",
            table=table,
        )
    if owner != pipeline or owned != table:
        raise TargetError(
            f"{path} belongs to pipeline {owner!r}, table {owned!r}, not to pipeline {pipeline!r}; "
            "choose another target.path or name",
            table=table,
        )


@dataclass(frozen=True)
class DeltaPath:
    """One Delta table by path, in one session.

    :param marker: of the batch that writes the table: each commit gets it, and none is planned after a later batch's.
    """

    spark: SparkSession
    path: str
    marker: Marker | None = None

    def inside(self, name: str) -> DeltaPath:
        """Return the table in a folder of this one."""
        return replace(self, path=f"{self.path}/{name}")

    def snapshot(self, *, files: bool = False) -> Snapshot:
        """Return the newest version.

        :param files: with its data files.
        """
        share_access(self.spark, self.path)
        return followed_log(self.path).refresh(files=files)

    def known(self, *, files: bool = False) -> Snapshot:
        """Return the version that this process has read or made last, without a look at the table; without one, the
        newest.

        :param files: with its data files.
        """
        share_access(self.spark, self.path)
        return followed_log(self.path).known(files=files)

    def writable(self, *, files: bool = False, deletes: bool = False, newest: bool = True) -> Snapshot:
        """Return the newest version, to plan a commit on.

        :param files: with its data files.
        :param deletes: by deletion vectors, as of a current table.
        :param newest: False: the version that is known, if headgate can write it. If it is not the newest, the commit
            conflicts.
        :raises TargetError: headgate cannot write the table, or a later batch has written it.
        """
        if not newest:
            with suppress(TargetError):  # another program may have made it writable since
                return self._checked(self.known(files=files), deletes=deletes)
        return self._checked(self.snapshot(files=files), deletes=deletes)

    def _checked(self, table: Snapshot, *, deletes: bool) -> Snapshot:
        if self.marker is not None:
            check_order(self.path, table.transactions, self.marker)
        check_writable(self.path, table, self.spark.conf.get, deletes=deletes)
        return table

    def commit(
        self, plan: Callable[[], CommitPlan | None], *, tries: int | None = None, staged: Collection[str] = ()
    ) -> CommitPlan | None:
        """Commit what is planned; see :func:`headgate.delta.commit`."""
        marker = None if self.marker is None else self.marker.action()
        return commit(followed_log(self.path), plan, tries=tries, staged=staged, marker=marker)

    def transactions(self) -> Mapping[str, int]:
        """Return by application the newest version of its transaction markers, as of the last look at the table. If
        there was none, look at it.
        """
        share_access(self.spark, self.path)
        return followed_log(self.path).transactions()

    def version(self) -> int:
        """Return the newest version's number; −1 if there is no Delta table."""
        return self.snapshot().version

    def schema(self) -> StructType:
        """Return the columns of the newest version."""
        return schema_of(self.snapshot())

    def exists(self) -> bool:
        """Return whether the path holds a Delta table."""
        return self.version() >= 0

    def occupied(self) -> bool:
        """Return whether the path holds any file, except hidden ones: a commit that was killed leaves such a file."""
        return any(not file.name.rpartition("/")[2].startswith(".") for file in folder_of(self.path).below())

    def check_ours(self, pipeline: str, table: str, *, deletes: bool = False) -> Snapshot | None:
        """Return the newest version of a table that is ours to write; None if the path is free.

        :param deletes: by deletion vectors, as of a current table.
        :raises TargetError: the path holds something else, or headgate cannot write the table.
        """
        snapshot = self.snapshot()
        if snapshot.version < 0:
            if self.occupied():
                raise TargetError(
                    f"{self.path} holds files that are not a table of pipeline {pipeline!r}; "
                    "move them away or choose another target.path",
                    table=table,
                )
            return None
        check_owner(self.path, snapshot, pipeline, table)
        check_writable(self.path, snapshot, self.spark.conf.get, deletes=deletes)
        return snapshot

    def create(
        self,
        schema: StructType,
        properties: Mapping[str, str],
        layout: TableLayout = TableLayout(),  # noqa: B008 - a frozen value
        description: Description = Description(),  # noqa: B008
    ) -> None:
        """Create an empty table in one commit, with the properties that the session gives new tables, too.

        headgate alone removes the table's old files (:data:`RETENTION_PROPERTIES`).

        :raises TargetError: headgate does not support a property of the session.
        """
        text = schema.json()
        others = {**session_properties(self.spark), **RETENTION_PROPERTIES, **properties}
        values = layout.properties_of(text, others)
        about = {"properties": json.dumps(values), "partitionBy": "[]", "isManaged": "false"}
        actions = creation(text, values, description, layout.cluster_by)
        planned = CommitPlan(Snapshot(), actions, "CREATE TABLE", about, blind=True)
        self.commit(lambda: planned, tries=1)

    def has_other_layout(self, layout: TableLayout) -> bool:
        """Return whether the table, as it is known, differs from a layout that it could follow; not without a table."""
        table = self.known(files=bool(layout.cluster_by))
        return table.version >= 0 and bool(layout.changes(table))

    def arrange(self, layout: TableLayout) -> None:
        """Give the table a layout; no commit if it has it, or does not exist.

        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        :raises TargetError: headgate cannot write the table.
        """
        if self.has_other_layout(layout):
            files = bool(layout.cluster_by)
            about = {"properties": json.dumps(dict(layout.properties)), "clusterBy": json.dumps(layout.cluster_by)}
            self._change("SET TBLPROPERTIES", about, layout.changes, files=files)
            for name in layout.left_out(self.known(files=files)):
                log.warning(
                    "%s is not clustered by %s: it lacks this column, or a file has no statistics of it",
                    self.path,
                    name,
                )

    def describe(self, description: Description) -> None:
        """Give the table and its columns comments; no commit if it has them.

        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        :raises TargetError: headgate cannot write the table.
        """
        if describing(self.known(), description):
            about = {"comment": json.dumps(description.comment)}
            self._change("CHANGE COLUMNS", about, lambda table: describing(table, description))

    def add_columns(self, columns: Sequence[NewColumn], properties: Mapping[str, str] | None = None) -> None:
        """Add columns to the table.

        :param properties: others to set with them.
        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        :raises TargetError: headgate cannot write the table, or its columns are other ones.
        """
        about = {"columns": json.dumps([_to_sql(column) for column in columns])}
        self._change("ADD COLUMNS", about, lambda table: addition(table, columns, _kind_of, properties))

    def rename_columns(self, dropped: Collection[str], renamed: Mapping[str, str]) -> bool:
        """Drop and rename columns in one commit without data, if the table has column mapping; return whether it has.

        :param renamed: new name → name before.
        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        :raises TargetError: headgate cannot write the table.
        """
        if not is_mapped(self.snapshot().properties):
            return False
        about = {"dropped": json.dumps(sorted(dropped)), "renamed": json.dumps(dict(renamed))}
        self._change("RENAME COLUMN", about, lambda table: renaming(table, dropped, renamed))
        return True

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties that change nothing in the table's format; no commit if it has them.

        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        :raises TargetError: headgate cannot write the table.
        """
        about = {"properties": json.dumps(dict(properties))}
        self._change("SET TBLPROPERTIES", about, lambda table: with_properties(table, properties))

    def _change(
        self,
        operation: str,
        about: Mapping[str, str],
        plan: Callable[[Snapshot], Sequence[Mapping[str, Any]]],
        *,
        files: bool = False,
    ) -> None:
        """Commit a change of the table's definition.

        :param plan: returns the actions for a version: none if there is nothing to change.
        :param files: it gets the version with its data files.
        """

        def planned() -> CommitPlan | None:
            table = self.writable(files=files)
            actions = plan(table)
            return CommitPlan(table, actions, operation, about) if actions else None

        self.commit(planned)

    def count(self, version: int) -> int:
        """Return the number of rows at ``version``, by the log if headgate reads it."""
        with suppress(TargetError):  # a log that only Spark reads
            table = self.snapshot(files=True)
            table = table if table.version == version else snapshot_at(self.path, version)
            return sum(file.rows(self.path) - file.deleted for file in table.files.values())
        return self.read(version).count()

    def read(self, version: int | None = None) -> DataFrame:
        """Return the rows at ``version``, by default the newest one."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path)


def _to_sql(column: NewColumn) -> str:
    """Return a column as text for ALTER TABLE … ADD COLUMNS."""
    path = ".".join(quote_name(name) for name in (column.inside, column.name) if name is not None)
    position = "" if column.after is None else f" AFTER {quote_name(column.after)}" if column.after else " FIRST"
    return f"{path} {column.kind}{position}"


def _kind_of(ddl: str) -> Any:
    """Return a type in the form of a table's JSON."""
    return spark_schema(f"`c` {ddl}").fields[0].dataType.jsonValue()


def schema_of(snapshot: Snapshot) -> StructType:
    """Return the columns of a version."""
    from pyspark.sql.types import StructType as Struct

    return Struct.fromJson(json.loads(snapshot.schema_json))


@lru_cache(maxsize=4096)
def spark_schema(ddl: str) -> StructType:
    """Return a Spark schema from DDL."""
    from pyspark.sql.types import _parse_datatype_string

    parsed: StructType = _parse_datatype_string(ddl)  # type: ignore[assignment]
    return parsed
