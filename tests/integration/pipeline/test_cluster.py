"""Pipelines on a standalone cluster: a master and two workers, each a process, which run the same pipeline file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate.testing import MySQLServer, ObjectStore, SparkCluster, s3_jars
from tests.integration.elsewhere import Elsewhere, merged, with_jars
from tests.integration.outside import lake_rows, source_rows


def settings_of(cluster: SparkCluster) -> Mapping[str, str]:
    return {"master": cluster.master, "executor.memory": "1g", "executor.cores": "1", "driver.host": "127.0.0.1"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_in_a_folder_that_all_share(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    settings = {**settings_of(spark_cluster), **with_jars()}
    output = Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "lake"), settings).follow()
    assert merged(output) == ["bare"], "only the table without a key"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_on_s3(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, spark_cluster: SparkCluster, object_store: ObjectStore
) -> None:
    """Executors have no variable of AWS: what reaches the store comes from the pipeline file alone."""
    settings = {**settings_of(spark_cluster), **with_jars(*s3_jars()), **object_store.hadoop_settings}
    bucket = object_store.create_bucket("lake-of-cluster")
    output = Elsewhere(mysql_server, mysql_db, tmp_path, f"{bucket}/lake", settings).follow()
    assert merged(output) == ["bare"], "only the table without a key"
    assert object_store.secret_key not in output


HOOK = """\
import pyarrow as pa
import pyarrow.compute as pc


def shouted(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.append_column("shouted", pc.utf8_upper(rows["v"]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hook_whose_file_spark_ships(
    mysql_server: MySQLServer,
    mysql_db: str,
    tmp_path: Path,
    spark_cluster: SparkCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Executors get the file from the driver. If only the driver has it, the run ends with an error that says so."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/shipped_hooks.py").write_text(HOOK)
    settings = {**settings_of(spark_cluster), **with_jars()}
    hook = f'[tables."{mysql_db}.numbers"]\nhook = "shipped_hooks:shouted"\n'
    lake = tmp_path / "lake"
    only_here = Elsewhere(mysql_server, mysql_db, tmp_path, str(lake), settings, hook)
    only_here.fill()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path / 'hooks'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        output = only_here.command("run", "--once", code=3)
    assert "the hook shipped_hooks:shouted cannot be imported: ModuleNotFoundError" in output
    assert "for the driver and the executors" in output
    shipped = {**settings, "submit.pyFiles": str(tmp_path / "hooks/shipped_hooks.py")}
    everywhere = Elsewhere(mysql_server, mysql_db, tmp_path, str(lake), shipped, hook)
    everywhere.command("run", "--once")
    everywhere.change()
    everywhere.command("run", "--once")
    assert "all 3 tables are equal" in everywhere.command("verify")
    rows = lake_rows(str(lake / mysql_db / "numbers"), ["id", "v", "shouted"])
    assert rows == source_rows(mysql_server, f"{mysql_db}.numbers", "id, v, UPPER(v)")
