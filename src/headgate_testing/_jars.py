"""Java archives of tests, and where the installed Spark is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from headgate.archives import drop_bundled, fetch_jars
from headgate.errors import ConfigError
from headgate.files import cache_folder, make_once

__all__ = ["s3_jars", "spark_home"]

HADOOP_VERSION = "3.5.0"
"""Version of Spark 4.2's Hadoop archives, which ``hadoop-aws`` has to match."""
AWS_VERSION = "2.35.4"
"""Version that this ``hadoop-aws`` was built with. By default it needs all of AWS's services, one archive of 600 MB."""
S3_PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    *(f"software.amazon.awssdk:{name}:{AWS_VERSION}" for name in ("s3", "s3-transfer-manager", "sts")),
)
S3_LEFT_OUT = "software.amazon.awssdk:bundle"


def spark_home() -> Path:
    """Return the folder of the installed ``pyspark``; its ``jars/`` has Spark's archives.

    :raises ConfigError: it is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("pyspark is not installed, whose programs fetch Java archives and run clusters")
    return Path(spec.origin).parent


def s3_jars() -> list[Path]:
    """Return the archives that Spark needs for S3, 20 MB; fetched once into the user's cache folder.

    :raises ConfigError: they cannot be fetched.
    """
    jars = cache_folder("jars", f"s3-{HADOOP_VERSION}")
    with make_once(jars) as folder:
        if folder is not None:
            fetch_jars(S3_PACKAGES, folder, conf={"spark.jars.excludes": S3_LEFT_OUT})
            drop_bundled(folder)
    return sorted(jars.glob("*.jar"))
