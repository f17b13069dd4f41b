"""Commits to tables on S3, and access to it: what the session's JVM has and Python has not.

**Put if absent.** Arrow has no PUT that fails if the object exists. S3A has: a PUT with ``If-None-Match: *``, which the
store decides. So of two writers one makes a version, and a request that arrives late overwrites nothing. Delta's own
``LogStore``, by which Spark's writers commit, looks for the object and then overwrites it. That is why a lake has one
driver (docs/operations.md, "Two drivers").
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.stores import grant, is_granted, is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["delta_log", "log_transactions", "put_by_hadoop", "share_access"]

_EXISTS_ERROR: Final = "FileAlreadyExistsException"
_IF_ABSENT: Final = "fs.option.create.conditional.overwrite"
"""Hadoop, "S3A Performance": a PUT that the store refuses if the object exists."""


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


def log_transactions(spark: SparkSession, path: str) -> dict[str, int]:
    """Return by application the newest version of its transaction markers: a Spark job for a long log."""
    _, newest = delta_log(spark, path)
    converters = _classes(spark._jvm)[2]
    return {str(one.appId()): int(one.version()) for one in converters.asJava(newest.setTransactions())}


def put_by_hadoop(spark: SparkSession, folder: str, name: str, text: str) -> None:
    """Put the file of a commit (:data:`headgate.delta.Put`).

    :raises FileExistsError: a file of that name exists.
    :raises OSError: it is not known whether the file was created.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    _, _, _, path_class = _classes(spark._jvm)
    path = path_class(f"{folder}/{name}")
    try:
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        created = files.createFile(path).overwrite(False).recursive()
        out = (created.must(_IF_ABSENT, True) if is_remote(folder) else created).build()
        out.write(bytearray(text.encode()))
        out.close()
    except Py4JError as error:
        problem = getattr(error, "java_exception", None)
        if problem is not None and _EXISTS_ERROR in str(problem.getClass().getName()):
            raise FileExistsError(name) from None
        raise OSError(f"{folder}/{name} cannot be written: {str(problem or error).partition(chr(10))[0]}") from None


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
