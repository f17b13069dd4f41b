"""The Java that Spark will start, found as Spark's script finds it (``bin/spark-class``), and whether it is recent
enough: without this, PySpark reports only that its gateway has ended.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError

__all__ = ["check_java", "java_home", "java_release"]

OLDEST: Final = 17
"""Oldest Java of Spark 4 (Spark documentation, "Overview", "Downloading")."""
_REMEDY: Final = f"install Java {OLDEST} (Debian: apt install openjdk-{OLDEST}-jre-headless) or set JAVA_HOME to it"
_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


def java_home() -> Path | None:
    """Return the folder of the Java that PySpark will start; None: there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return Path(home)
    java = shutil.which("java")
    return Path(java).resolve().parent.parent if java else None


def java_release(home: Path) -> str:
    """Return what a Java's folder says of its version: one line a property (JEP 223). Empty: it does not say so."""
    try:
        return (home / "release").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def check_java() -> None:
    """Check that there is a Java that Spark can use. A Java whose folder does not show its version is accepted.

    :raises ConfigError: there is none, or it is too old.
    """
    home = java_home()
    if home is None:
        raise ConfigError(f"Spark needs Java, and there is no java on PATH: {_REMEDY}")
    if shutil.which("java", path=str(home / "bin")) is None:
        raise ConfigError(f"Spark needs Java, and there is no {home}/bin/java, as JAVA_HOME says: {_REMEDY}")
    version = _VERSION.search(java_release(home))
    if version is not None and int(version[1]) < OLDEST:
        raise ConfigError(f"Spark needs Java {OLDEST} or newer, and {home} is Java {version[1]}: {_REMEDY}")
