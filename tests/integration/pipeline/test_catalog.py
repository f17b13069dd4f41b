"""Tables with names in a Hive metastore (embedded Derby), read by name in another session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate_testing import MySQLServer
from tests.integration.elsewhere import Elsewhere

READ = """
import json, sys
from headgate.engine import build_session
settings, db = json.loads(sys.argv[1]), sys.argv[2]
spark = build_session("reader", settings, quiet=True)
row = spark.sql(f"SELECT count(*), sum(n) FROM {db}.names").collect()[0]
old = spark.sql(f"SELECT count(*) FROM {db}.numbers VERSION AS OF 0").collect()[0]
logged = spark.sql(f"SELECT count(*) FROM {db}_changelog.numbers WHERE _op = 'd'").collect()[0]
tables = [one.tableName for one in spark.sql(f"SHOW TABLES IN {db}").collect()]
print("read:" + json.dumps([*row, old[0], logged[0], sorted(tables)]))
"""


def metastore(folder: Path) -> Mapping[str, str]:
    """Settings of Spark with a Hive metastore in a folder."""
    return {
        "sql.catalogImplementation": "hive",
        "sql.warehouse.dir": str(folder / "warehouse"),
        "hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
        "hadoop.hive.metastore.schema.verification": "false",
        "hadoop.datanucleus.schema.autoCreateAll": "true",
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tables_are_read_by_name(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    settings = metastore(tmp_path)
    pipeline = Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "the lake"), settings)
    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace("[target]\n", '[target]\ncatalog = "spark_catalog"\n'))
    output = pipeline.follow()
    assert "gets no name" not in output
    assert "cannot be a name" not in output
    spark = {f"spark.{name}": value for name, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps({**spark, "spark.driver.memory": "1g"}), mysql_db],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("read:"))
    count, total = mysql_server.query(f"SELECT count(*), sum(n) FROM {mysql_db}.names")[0]
    deleted = mysql_server.query(f"SELECT 300 - count(*) FROM {mysql_db}.numbers")[0][0]
    rows, numbers, old, logged, tables = json.loads(line.removeprefix("read:"))
    assert (rows, numbers) == (count, int(total))
    assert old == 0, "the version that made the table"
    assert logged >= deleted > 0
    assert tables == ["bare", "names", "numbers"]
