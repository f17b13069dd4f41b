"""Lakes on S3: the same pipeline file as in a local folder, by commands, and what is told if it cannot be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.testing import MySQLServer, ObjectStore, s3_jars
from tests.integration.elsewhere import Elsewhere, merged, with_jars


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_on_s3(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, object_store: ObjectStore) -> None:
    settings = {"master": "local[2]", **with_jars(*s3_jars()), **object_store.hadoop_settings}
    bucket = object_store.create_bucket("lake-of-one")
    pipeline = Elsewhere(mysql_server, mysql_db, tmp_path, f"{bucket}/some/lake", settings)
    told = pipeline.follow()
    assert merged(told) == ["bare"], "only the table without a key"
    assert object_store.secret_key not in told
