"""``headgate.read_as_of`` in a session that headgate did not make, started as docs/how-to/read-tables.md starts one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from headgate.archives import DELTA_PACKAGE, delta_jars
from headgate_testing import MySQLServer
from tests.integration.runs import Runs

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "read-tables.md"
PROGRAM = """
import sys, headgate
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    tables = headgate.read_as_of(spark, sys.argv[1])
    print({name: sorted(row.id for row in table.collect()) for name, table in tables.items()})
except headgate.ConfigError as error:
    print(error)
"""


def printed(lake: str, *options: str) -> str:
    """What a program prints that reads the lake, in a session with these options of ``pyspark``."""
    variables = {"PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"]), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, lake],
        env={**os.environ, **variables},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_plain_session(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    runs = Runs(spark, mysql_server, mysql_db, tmp_path)
    table = runs.table("t", rows=3)
    runs.run()
    (line,) = re.findall(r"^pyspark (--packages .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    packages, coordinates, *options = shlex.split(line)
    assert (packages, coordinates) == ("--packages", DELTA_PACKAGE)
    fetched = ("--driver-class-path", os.pathsep.join(delta_jars()))
    assert printed(runs.lake.path, *fetched, *options) == str({table: [1, 2, 3]})
    remedy = f"start it by `pyspark {line}`, or with these settings"
    assert printed(runs.lake.path) == f"this Spark session has no Delta: {remedy}"
