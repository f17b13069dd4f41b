"""Batches whose images are in files: the tables are MySQL's, and the files are gone with their batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkFiles

from headgate.carrier import ImageFolder, open_images
from headgate.errors import EngineError
from headgate.lake import Lake
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate.stores import VARIABLE, folder_of, share_credentials
from headgate_testing import MySQLServer, ObjectStore
from tests.fix_carrier import FakeTable
from tests.integration.databases import pipeline_config
from tests.integration.outside import lake_rows, source_rows
from tests.integration.pipeline.verifying import newest, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 6_000
NUMBERS = f"WITH RECURSIVE n AS (SELECT 0 AS id UNION ALL SELECT id + 1 FROM n WHERE id < {ROWS - 1})"


@pytest.mark.parametrize("modes", [["current", "changelog"], ["history"]], ids="+".join)
def test_chunks_and_changes(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path, modes: list[str]
) -> None:
    root = Path(SparkFiles.getRootDirectory())
    used: list[int] = []

    def look(_: BatchReport) -> None:
        used.append(len([*root.glob("headgate-images-*/*.arrow")]))

    config = pipeline_config(mysql_server, [f"{mysql_db}.t"], tmp_path, mode=json.dumps(modes))
    table = f"{mysql_db}.t"
    mysql_server.execute(
        "SET SESSION cte_max_recursion_depth = 10000",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, note VARCHAR(100))",
        f"INSERT INTO {table} {NUMBERS} SELECT id, REPEAT('x', 100) FROM n",
    )
    Pipeline(config, spark).run(once=True, on_progress=look)
    mysql_server.execute(
        f"UPDATE {table} SET note = REPEAT('y', 100) WHERE id % 2 = 0", f"DELETE FROM {table} WHERE id % 3 = 0"
    )
    Pipeline(config, spark).run(once=True, on_progress=look)
    assert len([count for count in used if count]) >= 2, "the chunks and the changes were in files"
    assert not [*root.glob("headgate-images-*")]
    lake = Lake.at(str(tmp_path / "lake"))
    where = "_is_current" if "history" in modes else "true"
    assert lake_rows(lake.current(table), ["id", "note"], where=where) == source_rows(mysql_server, table, "id, note")
    result = verify(config, newest(lake), table)
    assert (result.state, result.equal, result.differences) == ("live", ROWS * 2 // 3, 0), result


def test_a_folder_in_an_object_store(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "{}")
    settings, path = object_store.hadoop_settings, f"{object_store.create_bucket('images')}/lake/images"
    share_credentials(path, lambda name: settings.get(f"hadoop.{name}"))
    batch = FakeTable().batch(1, [("c", pos, pos, "x" * 99) for pos in range(50)])
    folder = ImageFolder(path, least_bytes=1)
    stored = [folder.serialised(batch) for _ in range(2)]
    assert all(one.equals(batch) for one in open_images(stored))
    folder.clear()
    assert not folder_of(path).has_folder("")
    folder.clear()
    with pytest.raises(EngineError, match=f"images cannot be read: {path}/"):
        next(open_images(stored))
    share_credentials("s3a://missing/lake", lambda name: settings.get(f"hadoop.{name}"))
    with pytest.raises(EngineError, match="images cannot be written: s3a://missing/lake/"):
        ImageFolder("s3a://missing/lake", least_bytes=1).serialised(batch)
