"""Lakes on S3: the same pipeline file as in a local folder, by commands, and what is told if it cannot be reached."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headgate.cli import app
from headgate.delta import LOG, files_of
from headgate.lake import Lake
from headgate.stores import VARIABLE, share_credentials
from headgate.upkeep import Maintenance, UpkeepTimes
from headgate_testing import MySQLServer, ObjectStore, s3_jars
from tests.integration.elsewhere import Elsewhere, with_jars
from tests.upkeep.test_upkeep import AT_ONCE, NAME, STILL, Written


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_lake_on_s3(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"master": "local[2]", **with_jars(*s3_jars()), **object_store.hadoop_settings}
    bucket = object_store.create_bucket("lake-of-one")
    routes = f'[routes]\n"{mysql_db}.numbers" = {{ to = "all.numbers", shard = "of {{db}}" }}\n'
    pipeline = Elsewhere(mysql_server, mysql_db, tmp_path, f"{bucket}/some/lake", settings, routes)
    output = pipeline.follow()
    assert object_store.secret_key not in output
    planned = pipeline.command("maintain", "--dry-run")
    assert "_headgate/ledger: " in planned
    assert "all tables: " in planned
    assert object_store.secret_key not in planned
    pipeline.command("maintain")
    assert "all 3 tables are equal" in pipeline.command("verify")
    monkeypatch.setenv(VARIABLE, "{}")
    lake = Lake(f"{bucket}/some/lake")
    share_credentials(lake.path, lambda name: settings.get(f"hadoop.{name}"))
    table = DeltaTable(lake.current("all.numbers"), storage_options=object_store.delta_rs_options)
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT id, v, _shard FROM t").read_all()).to_pylist()
    source = mysql_server.query(f"SELECT id, v FROM {mysql_db}.numbers ORDER BY id")
    assert sorted(map(tuple, map(dict.values, rows))) == [(*row, f"of {mysql_db}") for row in source]
    pipeline.do("ALTER TABLE names DROP PRIMARY KEY, ADD PRIMARY KEY (`the b`, a)")
    pipeline.command("run", "--once")
    folder = files_of(lake.current(f"{mysql_db}.names"))
    (successor,) = [name for name in folder.folders() if name.startswith("_successor_")]
    assert "all 3 tables are equal" in pipeline.command("verify")
    pipeline.do("UPDATE names SET n = n + 1 WHERE a = 'a3'")
    pipeline.command("run", "--once")
    pipeline.command("maintain")
    assert list(folder.below(f"{successor}/{LOG}")) == []
    assert list(folder.below(successor)) != []
    assert "all 3 tables are equal" in pipeline.command("verify")


PIPELINE = """
name = "shop"
[source]
url = "mysql://headgate@127.0.0.1:3306"
tables = ["shop.*"]
[target]
path = "{path}"
retention_hours = 1
[spark]
{spark}
"""


@pytest.mark.long
def test_old_files_of_a_lake_on_s3_go(
    tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "{}")
    settings = object_store.hadoop_settings
    path = f"{object_store.create_bucket('old-files')}/some/lake"
    share_credentials(path, lambda name: settings.get(f"hadoop.{name}"))
    made = Written(path, times=AT_ONCE, options=object_store.delta_rs_options)
    made.write(STILL, [7])
    most = 0
    for number in range(60):
        made.write(NAME, [number], anew=True)
        made.end(hours_ago=6.0 - 0.1 * number)
        made.upkeep.background.submit(lambda: None).result(60)  # and before it a checkpoint, if it was time for one
        if number % 5 == 4:
            made.round()
            most = max(most, len(made.files(NAME)))
    made.upkeep.close()
    made.restart()
    made.round()
    made.upkeep.close()
    kept = [row for row in made.rows if row.committed_at > datetime.now(UTC) - timedelta(hours=1)]
    assert len(kept) <= len(made.files(NAME)) <= most <= len(kept) + 2, "of the last hour, and the one before"
    folder = files_of(made.lake.current(NAME))
    assert sum(file.name.endswith(".json") for file in folder.below(LOG)) < 30, "the others are behind a checkpoint"
    made.check(kept)
    with pytest.raises(Exception, match=r"(?i)not found|no such|no files in log"):
        made.check(made.rows[30:31])
    spark = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in settings.items())
    file = tmp_path / "pipeline.toml"
    file.write_text(PIPELINE.format(path=path, spark=spark))
    folder.put("part-of-nobody.parquet", b"x")
    assert app(["maintain", str(file), "--dry-run"], standalone_mode=False) == 0
    assert re.search(r"^shop/t: .*; would be removed: ", capsys.readouterr().out, re.MULTILINE)
    assert app(["maintain", str(file)], standalone_mode=False) == 0
    assert re.search(r"^shop/t: .*; removed: ", capsys.readouterr().out, re.MULTILINE)
    assert folder.identity("part-of-nobody.parquet") is not None, "it is too young"
    for dry in (True, False):
        work = Maintenance(Lake(path), 3600.0, "snappy", UpkeepTimes(orphan=-60.0), dry=dry)
        (removed,) = [one.removed for one in work.tables() if one.name == NAME.replace(".", "/")]
        assert removed.files == 1
        assert (folder.identity("part-of-nobody.parquet") is None) is not dry
    made.check(kept[2:])
