"""Pipelines on a standalone cluster: a master and two workers, each a process, which run the same pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headgate.testing import MySQLServer, ObjectStore, SparkCluster, s3_jars
from tests.integration.elsewhere import Elsewhere, merged, with_jars


def settings_of(cluster: SparkCluster) -> Mapping[str, str]:
    return {"master": cluster.master, "executor.memory": "1g", "executor.cores": "1", "driver.host": "127.0.0.1"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_in_a_folder_that_all_share(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    settings = {**settings_of(spark_cluster), **with_jars()}
    told = Elsewhere(mysql_server, mysql_db, tmp_path, str(tmp_path / "lake"), settings).follow()
    assert merged(told) == ["bare"], "only the table without a key"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_on_s3(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, spark_cluster: SparkCluster, object_store: ObjectStore
) -> None:
    """Executors have no variable of AWS: what reaches the store comes from the pipeline file alone."""
    settings = {**settings_of(spark_cluster), **with_jars(*s3_jars()), **object_store.hadoop_settings}
    bucket = object_store.create_bucket("lake-of-cluster")
    told = Elsewhere(mysql_server, mysql_db, tmp_path, f"{bucket}/lake", settings).follow()
    assert merged(told) == ["bare"], "only the table without a key"
    assert object_store.secret_key not in told
