"""Settings of a Spark session for headgate: those with a wrong default for a small local run.

In local mode (the default, ``local[*]``): workers use this Python (a virtualenv's workers would otherwise run the
``python3`` on PATH and not connect back), driver and workers use 127.0.0.1 regardless of the host's name, no UI, failed
tasks are retried, and Delta's log is replayed in as many partitions as there are cores (its default of 50 makes each
commit several times slower on a laptop; measured: MERGE 7 s → 4 s, append 5 s → 1.4 s).

The user's ``[spark]`` settings take precedence. Delta is added to the archives that they name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.archives import EXCLUDES, PACKAGES, delta_jars, package_jars
from headgate.files import cache_folder, file_errors, kernel_cache, write_text

__all__ = [
    "CLASS_PATH",
    "JAVA_OPTIONS",
    "MEMORY",
    "PYTHON",
    "is_local",
    "is_secret",
    "session_settings",
    "without_secrets",
]

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
PYTHON: Final = "spark.pyspark.python"
CLASS_PATH: Final = "spark.driver.extraClassPath"
MEMORY: Final = "spark.driver.memory"
_JARS: Final = "spark.jars"
_HADOOP: Final = "spark.hadoop."
_SECRET: Final = re.compile(r"(?i)secret|password|token|(access|account|private|encryption)[._]?key|azure\.sas\.")
"""Settings that Spark hides in its UI (``spark.redaction.regex``), and the keys of Azure (``fs.azure.account.key``,
``fs.azure.sas.…``), Google (``fs.gs.auth.service.account.private.key``) and S3 (``fs.s3a.encryption.key``)."""
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
# Errors of tasks and streams reach the user as exceptions; the log would repeat each as a stack trace.


def is_local(conf: Mapping[str, str]) -> bool:
    """Whether a session's processes run on this machine."""
    return conf["spark.master"].startswith("local")


def is_secret(name: str) -> bool:
    """Return whether the value of a setting or of an environment variable is a secret, by its name."""
    return _SECRET.search(name) is not None


def without_secrets(conf: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings without Hadoop's secrets, and these under Hadoop's names. Spark would put them on its JVM's
    command line, which all users of the machine can see.
    """
    secrets = {key for key in conf if key.startswith(_HADOOP) and is_secret(key)}
    hadoop_secrets = {key.removeprefix(_HADOOP): conf[key] for key in secrets}
    return {key: value for key, value in conf.items() if key not in secrets}, hadoop_secrets


def session_settings(
    name: str, settings: Mapping[str, str], *, quiet: bool = False, starts_jvm: bool = True
) -> dict[str, str]:
    """Return the Spark settings of a session: headgate's, overridden by the user's. Packages are in the cache
    (:func:`headgate.archives.fetch_packages`), so that Spark resolves none.

    :param starts_jvm: False: a JVM runs already, so settings of its start are left out.
    """
    overrides = {key: str(value) for key, value in settings.items()}
    master = overrides.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    is_local = master.startswith("local")
    conf = {**_common(), **(_local(master) if is_local else {"spark.master": master})}
    conf["spark.app.name"] = f"headgate {name}"
    if overrides.get("spark.master", "local").startswith("local"):
        overrides.pop("spark.master", None)
    if starts_jvm:
        _add_archives(conf, overrides, is_local=is_local)
    if quiet:
        conf["spark.log.level"] = "ERROR"
    if quiet and starts_jvm:
        options = (f"-Dlog4j2.configurationFile={_log4j_file().as_uri()}", overrides.pop(JAVA_OPTIONS, ""))
        conf[JAVA_OPTIONS] = " ".join(option for option in options if option)
    return {**conf, **overrides}


def _common() -> dict[str, str]:
    return {
        # A ledger row may name a version that is older than the retention of a table in another kind of store.
        "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.sql.warehouse.dir": str(cache_folder("spark-warehouse")),  # not the folder the command runs in
    }


def _add_archives(conf: dict[str, str], overrides: dict[str, str], *, is_local: bool) -> None:
    """Name Delta's archives, and those of the user's packages, beside those that the user names."""
    packaged = package_jars(overrides)
    if packaged:
        overrides[_JARS] = ",".join(filter(None, (overrides.get(_JARS), *packaged)))
    for resolved in (PACKAGES, EXCLUDES):
        overrides.pop(resolved, None)
    setting, separator = (CLASS_PATH, os.pathsep) if is_local else (_JARS, ",")
    conf[setting] = separator.join(delta_jars())
    if overrides.get(setting):
        overrides[setting] = separator.join((overrides[setting], conf[setting]))


def _local(master: str) -> dict[str, str]:
    cores = os.cpu_count() or 1
    inside = master[len("local") :].strip("[]").split(",")[0].strip()
    if inside.isdigit():
        cores = int(inside)
    elif inside == "":
        cores = 1
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return {
        "spark.master": f"local[{cores},{_TASK_TRIES}]",
        PYTHON: sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": str(cores),
        MEMORY: "2g",
        "spark.executorEnv.NUMBA_CACHE_DIR": kernel_cache(),
    }


def _log4j_file() -> Path:
    path = cache_folder("log4j2.properties")
    with file_errors(f"{path} cannot be written (XDG_CACHE_HOME chooses another folder than ~/.cache)"):
        if not path.exists() or path.read_text() != _LOG4J:
            write_text(path, _LOG4J)  # atomic: another process's JVM may be reading it
    return path
