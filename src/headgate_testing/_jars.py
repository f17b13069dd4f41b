"""Java archives from the machine's Maven repositories.

Spark fetches them (``spark-submit --packages``), so its settings and the machine's apply:
``DEFAULT_ARTIFACT_REPOSITORY``, a local Maven repository, Java's proxies.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headgate.errors import ConfigError
from headgate.files import cache_folder
from headgate_testing._cache import make_once

__all__ = ["drop_bundled", "fetch_jars", "s3_jars", "spark_home"]

HADOOP_VERSION = "3.5.0"
"""Version of Spark 4.2's Hadoop archives, which ``hadoop-aws`` has to match."""
AWS_VERSION = "2.35.4"
"""Version that this ``hadoop-aws`` was built with. By default it needs all of AWS's services, one archive of 600 MB."""
S3_PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    *(f"software.amazon.awssdk:{name}:{AWS_VERSION}" for name in ("s3", "s3-transfer-manager", "sts")),
)
S3_LEFT_OUT = ("software.amazon.awssdk:bundle",)


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
            fetch_jars(S3_PACKAGES, folder, without=S3_LEFT_OUT)
            drop_bundled(folder)
    return sorted(jars.glob("*.jar"))


def fetch_jars(packages: Sequence[str], folder: Path, *, without: Sequence[str] = ()) -> None:
    """Put ``packages`` (``group:artifact:version``) and their dependencies into ``folder``, under their plain names.

    Scala's library is not among them: Spark contains it and leaves it out.

    :param without: packages (``group:artifact``) to leave out, with all that only they need.
    :raises ConfigError: they cannot be fetched; the message has the repository's answer.
    """
    spark = spark_home()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        program = Path(work, "nothing.py")
        program.write_text("")
        settings = ["--conf", f"spark.jars.ivy={work}/ivy", "--master", "local[1]", "--packages", ",".join(packages)]
        settings += ["--exclude-packages", ",".join(without)] if without else []
        variables = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark), "PYSPARK_PYTHON": sys.executable}
        run = subprocess.run(
            [spark / "bin/spark-submit", *settings, program],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        jars = list(Path(work, "ivy/jars").glob("*.jar"))
        if run.returncode or not jars:
            raise ConfigError(f"the archives of {', '.join(packages)} could not be fetched: {_reason(run.stderr)}")
        for jar in jars:  # Ivy puts the group in front: io.delta_delta-storage-<version>.jar
            jar.rename(folder / jar.name.split("_", 1)[1])


def drop_bundled(folder: Path) -> None:
    """Remove the archives that Spark contains, too, so that there is only one version of each."""
    bundled = {_artifact(jar.name) for jar in (spark_home() / "jars").glob("*.jar")}
    for jar in folder.glob("*.jar"):
        if _artifact(jar.name) in bundled:
            jar.unlink()


def _artifact(name: str) -> str:
    """``delta-storage-<version>.jar`` → ``delta-storage``."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", name)


def _reason(log: str) -> str:
    """Return the most informative line of Spark's log: a repository's answer, else what is missing."""
    lines = [line.strip() for line in log.splitlines()]
    informative = [
        line for words in ("Server access error", "not found", "Exception") for line in lines if words in line
    ]
    return informative[0] if informative else "no message"
