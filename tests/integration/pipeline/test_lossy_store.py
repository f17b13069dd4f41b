"""An object store that loses requests and answers, in both directions, while a pipeline writes: nothing is lost, and
nothing comes twice.

The run is killed now and then, and may end: it is started again, as by a supervisor. Spark's checkpoint is spared,
because Spark writes it. Then ``headgate verify`` and delta-rs compare the lake with the source, and all files that the
log names exist.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from headgate.delta import TableLog, files_of, snapshot_at
from headgate.lake import Lake
from headgate.stores import VARIABLE, share_credentials
from headgate_testing import LossyStore, MySQLServer, ObjectStore, s3_jars
from tests.integration.elsewhere import Elsewhere, with_jars
from tests.integration.pipeline.killing import RUN, batches_in, headgate, kill

QUICK = {
    "hadoop.fs.s3a.attempts.maximum": "2", "hadoop.fs.s3a.retry.limit": "1", "hadoop.fs.s3a.retry.interval": "20ms",
    "hadoop.fs.s3a.connection.timeout": "10s",
}  # fmt: skip
"""So that the client gives up soon, and the outcome is headgate's to settle."""


class Changes(threading.Thread):
    """Changes of two tables, without end."""

    def __init__(self, pipeline: Elsewhere, seed: int) -> None:
        super().__init__(daemon=True)
        self._pipeline, self._choice, self.ended = pipeline, random.Random(seed), threading.Event()

    def run(self) -> None:
        number = 1000
        while not self.ended.wait(0.1):
            number, key = number + 1, self._choice.randrange(1, 300)
            self._pipeline.do(
                f"UPDATE numbers SET v = 'change {number}' WHERE id BETWEEN {key} AND {key + 5}",
                f"DELETE FROM numbers WHERE id = {self._choice.randrange(1, 300)}",
                f"INSERT INTO numbers VALUES ({number}, 'new')",
                f"UPDATE names SET n = n + 1 WHERE a = 'a{key % 7}'",
            )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "rounds", [pytest.param(10, marks=pytest.mark.long), pytest.param(200, marks=pytest.mark.slow)]
)
def test_a_store_that_loses_answers(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, object_store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch, rounds: int,
) -> None:  # fmt: skip
    seed = random.randrange(1 << 30)
    choice = random.Random(seed)
    bucket = object_store.create_bucket(f"lossy-{rounds}")
    with LossyStore(object_store.endpoint, seed, spared="/_headgate/checkpoint") as lossy:
        through = {**object_store.hadoop_settings, "hadoop.fs.s3a.endpoint": lossy.endpoint}
        settings = {"master": "local[2]", **with_jars(*s3_jars()), **through, **QUICK}
        pipeline = Elsewhere(mysql_server, mysql_db, tmp_path, f"{bucket}/lake", settings)
        pipeline.do(
            "CREATE TABLE numbers (id INT PRIMARY KEY, v VARCHAR(20))",
            "CREATE TABLE names (a VARCHAR(20), `the b` VARCHAR(20), n INT, PRIMARY KEY (a, `the b`))",
            "INSERT INTO numbers WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
            "SELECT i, CONCAT('row ', i) FROM n",
            "INSERT INTO names WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
            "SELECT CONCAT('a', i % 7), CONCAT('b', i), i FROM n",
        )
        lossy.share, lossy.commit_share = 0.01, 0.2
        changes, log, starts = Changes(pipeline, seed), tmp_path / "log.txt", 0
        changes.start()
        begun = time.monotonic()
        try:
            while batches_in(log) < rounds:
                process = headgate(*RUN, config=pipeline.file)
                starts, end = starts + 1, min(rounds, batches_in(log) + choice.randrange(5, 40))
                try:
                    while process.poll() is None and batches_in(log) < end:
                        changes.ended.wait(choice.uniform(0.1, 1.0))
                finally:
                    kill(process)
        finally:
            changes.ended.set()
            changes.join()
        seconds = time.monotonic() - begun
        text, lost = log.read_text(), Counter(dict(lossy.lost))
        lossy.share = lossy.commit_share = 0.0
        pipeline.command("run", "--once")
        assert "all 2 tables are equal" in pipeline.command("verify")
    print(f"seed {seed}: {batches_in(log)} batches in {seconds:.0f} s, {starts} starts, lost: {lost}")
    print(f"unknown outcomes: {text.count('it is unknown whether version')}, retries: {text.count('; retrying in')}")
    assert {loss for method, loss in lost if method == "COMMIT"} != set()
    monkeypatch.setenv(VARIABLE, "{}")
    lake, direct = Lake(f"{bucket}/lake"), object_store.hadoop_settings
    share_credentials(lake.path, lambda name: direct.get(f"hadoop.{name}"))
    for table, key in (("numbers", "id"), ("names", "a")):
        folder = lake.current(f"{mysql_db}.{table}")
        names = {"numbers": "id, v", "names": 'a, "the b", n'}[table]
        theirs = DeltaTable(folder, storage_options=object_store.delta_rs_options)
        rows = pa.table(QueryBuilder().register("t", theirs).execute(f"SELECT {names} FROM t").read_all()).to_pylist()
        source = mysql_server.query(f"SELECT {names.replace(chr(34), '`')} FROM {mysql_db}.{table} ORDER BY {key}")
        assert Counter(tuple(row.values()) for row in rows) == Counter(map(tuple, source))
    for folder in (*(lake.current(f"{mysql_db}.{table}") for table in ("numbers", "names")), lake.ledger):
        read = TableLog(folder).refresh()
        assert all(files_of(folder).identity(file.name) is not None for file in read.files.values())
        assert snapshot_at(folder, read.version).files.keys() == read.files.keys()
