"""A Spark session that fits headgate: everything that has a wrong default for a small local run, in one place.

In local mode (the default, ``local[*]``): the workers' Python is this one (a virtualenv's workers would otherwise run
whatever ``python3`` is on PATH and not connect back), driver and workers meet on 127.0.0.1 whatever the host's name
resolves to, no UI, failed tasks are tried again, and Delta's log is replayed in as many partitions as there are cores
(its default of 50 makes each commit several times slower on a laptop; measured: MERGE 7 s → 4 s, append 5 s → 1.4 s).
Starts are short: Spark's Python processes are forked from one (``_forked_python``), Java's classes come from an
archive (``_class_archive``).

The user's ``[spark]`` settings win over all of these.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.engine._class_archive import archive_option, await_archive
from headgate.engine._forked_python import forking_python
from headgate.engine._quiet import quiet_driver, quiet_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DELTA_PACKAGE", "DELTA_VERSION", "begun_session", "build_session", "delta_jars"]

DELTA_VERSION = "4.4.0"
DELTA_PACKAGE = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
_CLASS_PATH = "spark.driver.extraClassPath"
_MEMORY = "spark.driver.memory"
_PRELOAD = "headgate._preload:preload"
_FEW_CORES = 4
_COMPILES_ONCE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
_COLLECTS_ALONE = "-XX:+UseSerialGC"
_HADOOP: Final = "spark.hadoop."
_SECRET: Final = re.compile(r"(?i)secret|password|token|access[.]?key")
"""What Spark itself hides in its pages (``spark.redaction.regex``)."""
_TASK_TRIES = 4  # as on a cluster (spark.task.maxFailures)

_LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n
logger.streams.name = org.apache.spark.sql.execution.streaming
logger.streams.level = off
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.datasources.name = org.apache.spark.sql.execution.datasources
logger.datasources.level = off
"""
# Errors of tasks and streams reach the user as exceptions; the log would print each a second time as a stack trace.


def cache_dir() -> Path:
    """Where headgate keeps what it downloads or compiles: ``${XDG_CACHE_HOME:-~/.cache}/headgate``."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "headgate"


def delta_jars() -> list[str]:
    """Delta's jars in the cache; empty when they were not fetched."""
    return sorted(str(path) for path in (cache_dir() / "jars" / f"delta-{DELTA_VERSION}").glob("*.jar"))


_begun: threading.Thread | None = None


@contextmanager
def begun_session(settings: Mapping[str, str]) -> Iterator[None]:
    """Have the JVM started that a :func:`build_session` in the block will use, while the block does other things.

    A failure is left to that call, which tries again. The block ends when the start has ended: until then standard
    error is not whole.
    """
    global _begun  # noqa: PLW0603 - a process has one JVM
    quiet = _is_quiet(None, settings)
    conf, _ = without_secrets(_conf("", settings, quiet=quiet))

    def start() -> None:
        with suppress(Exception), quiet_start() if quiet else nullcontext():
            from pyspark import SparkConf, SparkContext

            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll([*conf.items()]))

    _begun = threading.Thread(target=start, name="headgate-jvm", daemon=True)
    _begun.start()
    try:
        yield
    finally:
        _begun.join()


def build_session(name: str, settings: Mapping[str, str] | None = None, *, quiet: bool | None = False) -> SparkSession:
    """The session of this process, made or taken over.

    :param name: the application's name.
    :param settings: ``spark.*`` settings of the user; they win.
    :param quiet: keep Spark's log off the terminal, but for errors that nothing else reports; None: unless the settings
        say how much it is to log.
    """
    if _begun is not None:
        _begun.join()
    quiet = _is_quiet(quiet, settings or {})
    conf, secrets = without_secrets(_conf(name, settings or {}, quiet=quiet))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    with quiet_start() if quiet else nullcontext():
        spark = builder.getOrCreate()
    if quiet:
        quiet_driver(spark)
    hadoop: Any = spark._jsparkSession.sparkContext().hadoopConfiguration()
    for key, value in secrets.items():
        hadoop.set(key, value)
    await_archive(spark, conf.get(_JAVA_OPTIONS, ""))
    return spark


def _is_quiet(quiet: bool | None, settings: Mapping[str, str]) -> bool:
    return "spark.log.level" not in settings if quiet is None else quiet


def _conf(name: str, settings: Mapping[str, str], *, quiet: bool) -> dict[str, str]:
    conf = session_settings(name, settings, quiet=quiet)
    if conf["spark.master"].startswith("local"):
        _start_sooner(conf, settings)
    return conf


def _start_sooner(conf: dict[str, str], given: Mapping[str, str]) -> None:
    """Settings that make a local session's start shorter.

    On few cores Java's second compiler and its concurrent collector take what a start needs: a run's first change comes
    after 6 s of the JVM's processor time instead of 14. A first reading of 1.5 million rows takes 1 to 5 % longer: rows
    are decoded and written by Python's processes. Without the second compiler Java keeps a fifth of its usual room for
    code, which the classes that Spark generates fill within some twenty MERGEs: hence the size.
    """
    if conf[_PYTHON] == sys.executable:
        python = forking_python(_PRELOAD) or sys.executable
        conf[_PYTHON] = os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    named = conf.get(_JAVA_OPTIONS, "")
    options = [named]
    if (os.cpu_count() or 1) <= _FEW_CORES:
        options.insert(0, _COMPILES_ONCE)
        if _MEMORY not in given and "GC" not in named:
            options.insert(0, _COLLECTS_ALONE)
    jars = conf.get(_CLASS_PATH, "").split(os.pathsep)
    archive = archive_option(cache_dir() / "classes", jars, (*options, conf[_MEMORY]))
    conf[_JAVA_OPTIONS] = " ".join(filter(None, (*options, archive)))


def without_secrets(conf: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings but for Hadoop's secrets, and these under Hadoop's names. Spark would put them on the command line
    of its JVM, where everybody on the machine sees them.
    """
    secrets = {key for key in conf if key.startswith(_HADOOP) and _SECRET.search(key)}
    found = {key.removeprefix(_HADOOP): conf[key] for key in secrets}
    return {key: value for key, value in conf.items() if key not in secrets}, found


def session_settings(name: str, settings: Mapping[str, str], *, quiet: bool = False) -> dict[str, str]:
    """The Spark settings of a session: headgate's, and over them the user's."""
    given = {key: str(value) for key, value in settings.items()}
    master = given.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    is_local = master.startswith("local")
    conf = {**_common(), **(_local(master) if is_local else {"spark.master": master}), **_delta(is_local=is_local)}
    conf["spark.app.name"] = f"headgate {name}"
    if given.get("spark.master", "local").startswith("local"):
        given.pop("spark.master", None)
    if _CLASS_PATH in conf and given.get(_CLASS_PATH):
        given[_CLASS_PATH] = os.pathsep.join((given[_CLASS_PATH], conf[_CLASS_PATH]))
    if quiet:
        options = (f"-Dlog4j2.configurationFile={_log4j_file().as_uri()}", given.pop(_JAVA_OPTIONS, ""))
        conf[_JAVA_OPTIONS] = " ".join(option for option in options if option)
        conf["spark.log.level"] = "ERROR"
    return {**conf, **given}


def _common() -> dict[str, str]:
    return {
        # A ledger row may name a version that is older than the retention of a table made by an earlier headgate.
        "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.sql.warehouse.dir": str(cache_dir() / "spark-warehouse"),  # not the folder the command runs in
    }


def _delta(*, is_local: bool) -> dict[str, str]:
    """Where Spark finds Delta."""
    jars = delta_jars()
    if not jars:
        return {"spark.jars.packages": DELTA_PACKAGE}
    return {_CLASS_PATH: os.pathsep.join(jars)} if is_local else {"spark.jars": ",".join(jars)}


def _local(master: str) -> dict[str, str]:
    cores = os.cpu_count() or 1
    inside = master[len("local") :].strip("[]").split(",")[0].strip()
    if inside.isdigit():
        cores = int(inside)
    elif inside == "":
        cores = 1
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_dir() / "numba"))
    return {
        "spark.master": f"local[{cores},{_TASK_TRIES}]",
        _PYTHON: sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": str(cores),
        _MEMORY: "2g",
        "spark.executorEnv.NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"],
    }


def _log4j_file() -> Path:
    path = cache_dir() / "log4j2.properties"
    if not path.exists() or path.read_text() != _LOG4J:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(_LOG4J)
        partial.replace(path)  # at once: a JVM that another process starts may be reading it
    return path
