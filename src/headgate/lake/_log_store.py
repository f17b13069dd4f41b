"""Commits to tables on S3, and access to it: what the session's JVM has and Python has not.

**One path for all commits.** Arrow has no PUT that fails if the object exists. So Delta's own ``LogStore`` puts each
commit, as it does for Spark's writers in this session: only one of them makes a version. Protection against other
drivers depends on that store, which is why a lake has one driver (docs/operations.md, "Two drivers").
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.stores import grant, is_granted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["delta_log", "put_by_log_store", "share_access"]

_EXISTS_ERROR: Final = "FileAlreadyExistsException"


@lru_cache(maxsize=1)
def _classes(jvm: Any) -> tuple[Any, Any, Any, Any]:
    """Return ``DeltaLog``, Scala's ``None``, its converters and Hadoop's ``Path``. py4j takes each part of a name for a
    possible class, so at each access the JVM searches every jar for ``org``, ``org.apache`` and so on.
    """
    return (
        jvm.org.apache.spark.sql.delta.DeltaLog,
        jvm.scala.Option.empty(),
        jvm.scala.jdk.javaapi.CollectionConverters,
        jvm.org.apache.hadoop.fs.Path,
    )


def delta_log(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return the table's ``DeltaLog``, and its newest version."""
    log_class, nothing, _, _ = _classes(spark._jvm)
    table = log_class.forTable(spark._jsparkSession, path)
    return table, table.update(False, nothing, nothing)


def put_by_log_store(spark: SparkSession, folder: str, name: str, text: str) -> None:
    """Put the file of a commit (:data:`headgate.delta.Put`).

    :raises FileExistsError: a file of that name exists.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    log_class, _, converters, path_class = _classes(spark._jvm)
    table = log_class.forTable(spark._jsparkSession, folder)
    lines: Any = spark._jvm.java.util.Collections.singletonList(text.removesuffix("\n"))  # type: ignore[union-attr]
    content = converters.asScala(lines.iterator())
    try:
        table.store().write(path_class(f"{folder}/{name}"), content, False, table.newDeltaHadoopConf())
    except Py4JJavaError as error:
        if _EXISTS_ERROR in str(error.java_exception.getClass().getName()):
            raise FileExistsError(name) from None
        raise OSError(f"{folder}/{name} cannot be written: {error.java_exception.toString()}") from None


def share_access(spark: SparkSession, path: str) -> None:
    """Give this process, and Python processes that the session starts from now on, the session's access to a path."""
    context = spark.sparkContext
    if is_granted(path, context.environment):
        return
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    text: Any = spark._jvm.java.lang.String  # type: ignore[union-attr]

    def setting(name: str) -> str | None:
        """Return a setting, also from Hadoop's credential providers."""
        characters = hadoop.getPassword(name)
        return None if characters is None else str(text.valueOf(characters))

    context.environment.update(grant(path, setting))
