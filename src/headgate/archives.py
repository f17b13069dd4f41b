"""Java archives of packages (``group:artifact:version``), fetched once into the user's cache by Spark's own resolver.

Spark itself would resolve packages at each start: it prints a hundred lines, keeps files in another folder of the
user, and may need the network. The machine's settings apply (``DEFAULT_ARTIFACT_REPOSITORY``, a local Maven repository,
Java's proxies), and those of Spark: ``spark.jars.repositories``, ``.excludes``, ``.ivySettings``.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from headgate.errors import ArchivesUnavailableError, ConfigError
from headgate.files import cache_folder, file_errors, make_once

__all__ = [
    "DELTA_PACKAGE",
    "DELTA_VERSION",
    "EXCLUDES",
    "PACKAGES",
    "Archives",
    "archives_of",
    "delta_jars",
    "drop_bundled",
    "fetch_jars",
    "fetch_packages",
    "package_jars",
    "spark_home",
]

DELTA_VERSION: Final = "4.4.0"
DELTA_PACKAGE: Final = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"
PACKAGES: Final = "spark.jars.packages"
EXCLUDES: Final = "spark.jars.excludes"
_REPOSITORIES: Final = ("spark.jars.repositories", "spark.jars.ivySettings")
_RESOLVING: Final = (EXCLUDES, *_REPOSITORIES)
"""Settings of Spark that decide what a package is resolved to."""
_PASSING: Final = ("Server access error", "SERVER ERROR", "[FAILED", "No space left on device")
"""What Ivy logs if a repository did not answer, or not completely. If all answered, it logs ``not found``, or ``[NOT
FOUND`` of a file whose description was there."""


def spark_home() -> Path | None:
    """Return the folder of the Spark that PySpark starts, without loading PySpark; None if there is none."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


class Archives(NamedTuple):
    """Packages, and the folder of the cache that has their archives once they are fetched."""

    packages: tuple[str, ...]
    folder: Path
    conf: Mapping[str, str]

    @property
    def are_there(self) -> bool:
        """Whether they are fetched."""
        return self.folder.is_dir()


def archives_of(settings: Mapping[str, str]) -> Iterator[Archives]:
    """Yield what a session with these settings needs: Delta, and the packages that the user names."""
    delta = _delta()
    yield delta._replace(conf={key: settings[key] for key in _REPOSITORIES if settings.get(key)})
    named = _named(settings)
    if named is not None:
        yield named


def fetch_packages(settings: Mapping[str, str]) -> None:
    """Fetch the archives that a session with these settings needs, unless they are in the cache.

    :raises ConfigError: no repository has them, or they cannot be stored; StorageError likewise.
    :raises ArchivesUnavailableError: a repository does not answer.
    """
    for archives in archives_of(settings):
        if archives.are_there:
            continue
        remedy = f"connect once (headgate prefetch), or copy {archives.folder} from another machine"
        with file_errors(f"{archives.folder} cannot be written"), make_once(archives.folder) as folder:
            if folder is not None:
                try:
                    fetch_jars(archives.packages, folder, conf=archives.conf)
                except (ConfigError, ArchivesUnavailableError) as error:
                    raise type(error)(f"{error.message}; {remedy}") from None
                if archives.packages == (DELTA_PACKAGE,):
                    drop_bundled(folder)


def delta_jars() -> list[str]:
    """Return Delta's archives in the cache; empty if they were not fetched."""
    return _jars(_delta().folder)


def package_jars(settings: Mapping[str, str]) -> list[str]:
    """Return the archives in the cache of the packages that the user names."""
    named = _named(settings)
    return [] if named is None else _jars(named.folder)


def _delta() -> Archives:
    return Archives((DELTA_PACKAGE,), cache_folder("jars", f"delta-{DELTA_VERSION}"), {})


def _named(settings: Mapping[str, str]) -> Archives | None:
    packages = tuple(filter(None, (one.strip() for one in settings.get(PACKAGES, "").split(","))))
    if not packages:
        return None
    conf = {key: settings[key] for key in _RESOLVING if settings.get(key)}
    digest = hashlib.sha256("\0".join((*packages, *(f"{key}={conf[key]}" for key in sorted(conf)))).encode())
    return Archives(packages, cache_folder("jars", f"packages-{digest.hexdigest()[:16]}"), conf)


def _jars(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("*.jar")))


def fetch_jars(packages: Sequence[str], folder: Path, *, conf: Mapping[str, str] | None = None) -> None:
    """Put packages and what they need into ``folder``, under their plain names.

    Scala's library is not among them: Spark contains it and leaves it out.

    :param conf: settings of Spark that decide what a package is resolved to.
    :raises ConfigError: the repositories have no such packages, or the settings are wrong; the message has the answer.
    :raises ArchivesUnavailableError: a repository does not answer, or not completely; or the program was ended.
    """
    spark = spark_home()
    if spark is None:
        raise ConfigError("pyspark is not installed, whose programs fetch Java archives: pip install 'headgate[spark]'")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        program = Path(work, "nothing.py")
        program.write_text("")
        settings = {"spark.jars.ivy": f"{work}/ivy", "spark.master": "local[1]", PACKAGES: ",".join(packages)}
        words = [word for key, value in (settings | dict(conf or {})).items() for word in ("--conf", f"{key}={value}")]
        variables = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark), "PYSPARK_PYTHON": sys.executable}
        run = subprocess.run(
            [spark / "bin/spark-submit", *words, program],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        jars = list(Path(work, "ivy/jars").glob("*.jar"))
        if run.returncode or not jars:
            may_pass = not run.stderr.strip() or any(sign in run.stderr for sign in _PASSING)
            raise (ArchivesUnavailableError if may_pass else ConfigError)(
                f"the archives of {', '.join(packages)} could not be fetched: {_reason(run.stderr)}"
            )
        for jar in jars:  # Ivy puts the group in front: io.delta_delta-storage-4.4.0.jar
            jar.rename(folder / jar.name.split("_", 1)[1])


def drop_bundled(folder: Path) -> None:
    """Remove the archives that Spark contains, too, so that there is only one version of each."""
    spark = spark_home()
    bundled = {_artifact(jar.name) for jar in (spark / "jars").glob("*.jar")} if spark is not None else set()
    for jar in folder.glob("*.jar"):
        if _artifact(jar.name) in bundled:
            jar.unlink()


def _artifact(name: str) -> str:
    """``delta-storage-4.4.0.jar`` → ``delta-storage``."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", name)


def _reason(log: str) -> str:
    """Return the most informative line of Spark's log, without a login: a repository's answer, else what is missing."""
    lines = [line.strip() for line in log.splitlines()]
    signs = (*_PASSING, "download failed", "not found", "Exception")
    informative = [line for sign in signs for line in lines if sign in line]
    return re.sub(r"://[^\s/@]+@", "://***@", informative[0]) if informative else "no message"
