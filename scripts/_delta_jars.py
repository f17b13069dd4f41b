"""Fetch Delta's jars into a folder: ``python scripts/_delta_jars.py VERSION FOLDER``.

Spark itself resolves them, so the machine's Maven settings hold (``DEFAULT_ARTIFACT_REPOSITORY``, a local Maven
repository, Java's proxies). Artifacts that Spark brings along are left out: a second version of them is never wanted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark


def main(version: str, folder: Path) -> int:
    """Make ``folder`` unless it is there; the exit code."""
    if folder.is_dir():
        return 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    spark = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        program = Path(work, "nothing.py")
        program.write_text("")
        package = f"io.delta:delta-spark_4.2_2.13:{version}"
        settings = ["--conf", f"spark.jars.ivy={work}/ivy", "--master", "local[1]", "--packages", package]
        here = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark), "PYSPARK_PYTHON": sys.executable}
        run = subprocess.run(
            [spark / "bin/spark-submit", *settings, program],
            env={**os.environ, **here},
            capture_output=True,
            text=True,
            check=False,
        )
        jars = list(Path(work, "ivy/jars").glob("*.jar"))
        if run.returncode or not jars:
            sys.stderr.write(f"headgate: Delta's jars ({package}) could not be fetched: {_reason(run.stderr)}\n")
            return 3
        keep = Path(work, "keep")
        keep.mkdir()
        have = {_artifact(jar.name) for jar in (spark / "jars").glob("*.jar")}
        for jar in jars:
            name = jar.name.split("_", 1)[1]  # Ivy puts the group in front: io.delta_delta-storage-4.4.0.jar
            if _artifact(name) not in have:
                shutil.move(jar, keep / name)
        if not folder.is_dir():
            keep.rename(folder)
    return 0


def _reason(log: str) -> str:
    """The line of Spark's log that says most: what a repository answered, else what is missing."""
    lines = [line.strip() for line in log.splitlines()]
    telling = [line for words in ("Server access error", "not found", "Exception") for line in lines if words in line]
    return telling[0] if telling else "no message"


def _artifact(name: str) -> str:
    """``delta-storage-4.4.0.jar`` → ``delta-storage``."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
