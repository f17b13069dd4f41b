"""A Delta table's version, schema, properties and ownership: what headgate needs besides reading and writing rows.

headgate follows the log of a table in a local folder or on S3 (``headgate.delta``). Elsewhere it queries the table's
``DeltaLog`` in the JVM: 10 ms a call in a warm session, where the equivalent SQL commands take a Spark job.

Ownership: every table that headgate creates carries the properties ``headgate.pipeline`` and ``headgate.table``. A path
that holds anything else is refused before the first byte is written.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from headgate.delta import (
    MAPPING_MODE,
    RETENTION_PROPERTIES,
    TYPE_FEATURES,
    CommitPlan,
    NewColumn,
    Put,
    Snapshot,
    TableLog,
    addition,
    commit,
    creation,
    needs_mapping,
    newest_commit,
    renaming,
    snapshot_at,
    sync_commits,
    with_properties,
)
from headgate.errors import CommitConflictError, TargetError
from headgate.lake._log_store import delta_log, put_by_hadoop, share_access
from headgate.lake._properties import PIPELINE, TABLE
from headgate.names import quote_name
from headgate.stores import is_remote, obstacle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DeltaPath", "commit_errors", "followed_log", "schema_of", "spark_schema"]

_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""Prefix of session settings that give new tables properties."""


def _literal(text: str) -> str:
    """Return a text in Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _features(columns: str) -> dict[str, str]:
    """Return the properties that a table needs before it gets columns of these types. Its creation implies them."""
    return {f"delta.feature.{name}": "supported" for kind, name in TYPE_FEATURES.items() if kind in columns}


@lru_cache(maxsize=1)
def _conflicts() -> tuple[type[Exception], ...]:
    """Return Delta's exceptions for a commit that another one preceded. In Python none is a subclass of another."""
    from delta import exceptions

    return tuple(getattr(exceptions, name) for name in exceptions.__all__)


@contextmanager
def commit_errors(path: str) -> Iterator[None]:
    """Turn Delta's concurrency exceptions into :class:`CommitConflictError` (Transient). Sync what the block commits by
    Spark to a table in a local folder.
    """
    before = None if is_remote(path) else newest_commit(path)
    try:
        yield
    except _conflicts() as error:
        first = str(error).strip().splitlines()[0]
        raise CommitConflictError(f"{path}: another program committed at the same time: {first}") from error
    if before is not None:
        sync_commits(path, before)


@lru_cache(maxsize=10_000)
def followed_log(path: str) -> TableLog:
    """Return the follower of a table's log that this process shares."""
    return TableLog(path)


@dataclass(frozen=True)
class DeltaPath:
    """One Delta table by path, in one session."""

    spark: SparkSession
    path: str

    @property
    def sql(self) -> str:
        """The table's name in SQL."""
        return f"delta.{quote_name(self.path)}"

    def inside(self, name: str) -> DeltaPath:
        """Return the table in a folder of this one."""
        return replace(self, path=f"{self.path}/{name}")

    def obstacle(self) -> str | None:
        """Return why Spark has to read and write the table's files; None: headgate does."""
        if is_remote(self.path):
            share_access(self.spark, self.path)
        return obstacle(self.path)

    def followed(self, *, files: bool = False) -> Snapshot | None:
        """Return the newest version; None if Spark has to read the table's files.

        :param files: with its data files.
        """
        return None if self.obstacle() else followed_log(self.path).refresh(files=files)

    @property
    def put(self) -> Put | None:
        """Function that puts commits into the log; None: as in a local folder."""
        return partial(put_by_hadoop, self.spark) if is_remote(self.path) else None

    def commit(
        self, plan: Callable[[], CommitPlan | None], *, tries: int | None = None, staged: Collection[str] = ()
    ) -> CommitPlan | None:
        """Commit what is planned; see :func:`headgate.delta.commit`."""
        bounds = {} if tries is None else {"tries": tries}
        return commit(self.path, plan, self.put, staged=staged, **bounds)

    def snapshot(self) -> Snapshot:
        """Return the newest version."""
        snapshot = self.followed()
        if snapshot is not None:
            return snapshot
        _, theirs = delta_log(self.spark, self.path)
        metadata = json.loads(theirs.metadata().json())["metaData"]
        return Snapshot(version=int(theirs.version()), metadata=metadata)

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
        hadoop: Any = self.spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        path = hadoop.Path(self.path)
        fs = path.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())
        if not fs.exists(path):
            return False
        files = fs.listFiles(path, True)
        while files.hasNext():
            if not files.next().getPath().getName().startswith("."):
                return True
        return False

    def check_ours(self, pipeline: str, table: str) -> Snapshot | None:
        """Return the newest version if the table is ours, None if the path is free; else raise ``TargetError``."""
        snapshot = self.snapshot()
        if snapshot.version < 0:
            if self.occupied():
                raise TargetError(
                    f"{self.path} holds files that are not a table of pipeline {pipeline!r}; "
                    "move them away or choose another target.path",
                    table=table,
                )
            return None
        owner, owned = snapshot.properties.get(PIPELINE), snapshot.properties.get(TABLE)
        if owner is None:
            raise TargetError(
                f"{self.path} is a Delta table that headgate did not make; move it away or choose another target.path",
                table=table,
            )
        if owner != pipeline or owned != table:
            raise TargetError(
                f"{self.path} belongs to pipeline {owner!r}, table {owned!r}, not to pipeline {pipeline!r}; "
                "choose another target.path or name",
                table=table,
            )
        return snapshot

    def create(self, schema: StructType, properties: Mapping[str, str]) -> None:
        """Create an empty table in one commit.

        Where headgate can, it alone removes the table's old files (:data:`RETENTION_PROPERTIES`).
        """
        values = {**({} if self.obstacle() else RETENTION_PROPERTIES), **properties}
        actions = creation(schema.json(), values) if self._is_plain() else None
        if actions is not None:
            about = {"properties": json.dumps(values), "partitionBy": "[]", "isManaged": "false"}
            planned = CommitPlan(Snapshot(), actions, "CREATE TABLE", about, blind=True)
            self.commit(lambda: planned, tries=1)
            return
        from delta.tables import DeltaTable

        builder = DeltaTable.create(self.spark).location(self.path).addColumns(schema)
        if any(needs_mapping(name) for name in _all_names(schema)):
            values[MAPPING_MODE] = "name"
        for name, value in values.items():
            builder = builder.property(name, value)
        with commit_errors(self.path):
            builder.execute()

    def _is_plain(self) -> bool:
        """Return whether headgate creates a table here without Spark: the session gives it no properties."""
        return not self.obstacle() and not any(name.startswith(_DEFAULTS) for name in self.spark.conf.getAll)

    def add_columns(self, columns: Sequence[NewColumn], properties: Mapping[str, str] | None = None) -> None:
        """Add columns to the table, and first the properties that Delta requires for them.

        :param properties: others to set with them.
        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        """
        clauses = [_to_sql(column) for column in columns]
        about = {"columns": json.dumps(clauses)}
        if self._change("ADD COLUMNS", about, lambda table: addition(table, columns, _kind_of, properties)):
            return
        text = ", ".join(clauses)
        needed = {**_features(text), **(properties or {})}
        if any(needs_mapping(column.name) for column in columns):
            needed[MAPPING_MODE] = "name"
        self._set_by_sql(needed)
        with commit_errors(self.path):
            self.spark.sql(f"ALTER TABLE {self.sql} ADD COLUMNS ({text})")

    def rename_columns(self, dropped: Collection[str], renamed: Mapping[str, str]) -> bool:
        """Drop and rename columns in one commit without data, if the table has column mapping; return whether it has.

        :param renamed: new name → name before.
        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        """
        about = {"dropped": json.dumps(sorted(dropped)), "renamed": json.dumps(dict(renamed))}
        return self._change("RENAME COLUMN", about, lambda table: renaming(table, dropped, renamed))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties that change nothing in the table's format; no commit if it has them.

        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        """
        about = {"properties": json.dumps(dict(properties))}
        if not self._change("SET TBLPROPERTIES", about, lambda table: with_properties(table, properties)):
            self._set_by_sql(properties)

    def _change(
        self, operation: str, about: Mapping[str, str], plan: Callable[[Snapshot], Sequence[Mapping[str, Any]] | None]
    ) -> bool:
        """Commit a change of the table's definition. Return False if Spark has to make it.

        :param plan: returns the actions for a version: none if there is nothing to change; None if Spark has to do it.
        :raises CommitConflictError: other programs changed the table at the same time, again and again.
        """
        is_ours = False

        def planned() -> CommitPlan | None:
            nonlocal is_ours
            table = self.followed()
            actions = None if table is None else plan(table)
            is_ours = actions is not None
            return CommitPlan(table, actions, operation, about) if table is not None and actions else None

        self.commit(planned)
        return is_ours

    def _set_by_sql(self, properties: Mapping[str, str]) -> None:
        """Set those of the properties that the table lacks."""
        known = self.snapshot().properties
        missing = [
            f"{_literal(name)} = {_literal(value)}" for name, value in properties.items() if known.get(name) != value
        ]
        if missing:
            with commit_errors(self.path):
                self.spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ({', '.join(missing)})")

    def count(self, version: int) -> int:
        """Return the number of rows at ``version``, by the log where headgate reads it."""
        with suppress(TargetError):  # a log that only Spark reads
            table = self.followed(files=True)
            if table is not None:
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


def _all_names(schema: StructType) -> list[str]:
    from pyspark.sql.types import StructType as Struct

    names = []
    for one in schema.fields:
        names.append(one.name)
        if isinstance(one.dataType, Struct):
            names.extend(_all_names(one.dataType))
    return names
