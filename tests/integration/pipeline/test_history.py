"""Mode ``history``: all versions of each row, with the period in which they were valid."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from headgate.config import parse_config
from headgate.errors import ConfigError
from headgate.lake import Lake, newest_row
from headgate.pipeline import Pipeline
from headgate.sinks import BatchWriter
from headgate_testing import MySQLServer
from tests.fix_carrier import SNAPSHOT_PLACE
from tests.integration.databases import Database, pipeline_text
from tests.integration.outside import Rows, lake_rows, source_rows
from tests.integration.pipeline.histories import Copy, Modelled, histories, write_batches
from tests.integration.pipeline.verifying import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ = SNAPSHOT_PLACE[1]
Place = tuple[int, int]
"""Epoch and position of a change; the position of a row that was read is :data:`READ`, that of a sweep 0."""


class Keeping(Copy):
    def make_writer(self) -> BatchWriter:
        return BatchWriter(self.spark, self.lake, "shop", ("history",))


@dataclass
class Version:
    n: int
    value: str
    begin: Place
    end: Place | None = None


@dataclass
class Story(Modelled):
    """Random batches of one table, and the brute-force model of its versions."""

    versions: list[Version] = field(default_factory=list)
    open: dict[int, Version] = field(default_factory=dict)

    def close(self, n: int, place: Place) -> None:
        if n in self.open:
            self.open.pop(n).end = place

    def set(self, n: int, value: str, place: Place) -> None:
        self.close(n, place)
        self.open[n] = Version(n, value, place)
        self.versions.append(self.open[n])

    def changed(self, before: dict[int, str]) -> None:
        place = (self.epoch, self.pos)
        for n in before.keys() - self.rows.keys():
            self.close(n, place)
        for n in self.rows:
            if self.rows[n] != before.get(n):
                self.set(n, self.rows[n], place)

    def read(self) -> list[tuple[Any, ...]]:
        for n, value in self.rows.items():
            if n not in self.open or self.open[n].value != value:
                self.set(n, value, (self.epoch, READ))
        for n in self.open.keys() - self.rows.keys():
            self.close(n, (self.epoch, 0))
        return self.lines()

    def truncate(self) -> None:
        for n in list(self.open):
            self.close(n, (self.epoch, self.pos))

    def expected(self) -> list[tuple[Any, ...]]:
        return sorted((v.value, v.end is None, *v.begin, *(v.end or (None, None))) for v in self.versions)


VERSION_COLUMNS = ["_is_current", "_seq['epoch']", "_seq['pos']", "_end_seq['epoch']", "_end_seq['pos']"]
RIGHT = (
    "(_valid_to IS NULL) = _is_current AND (_valid_to IS NULL OR _valid_to >= _valid_from) AND _seen >= _seq['epoch']"
)


def check(copy: Copy, story: Story, epoch: int) -> None:
    """Compare the table with the model, by a reader that is not ours."""
    names = [f'"{name}"' for name in (story.table.columns[0][0], *story.table.key)]
    versions = list(lake_rows(copy.lake.current(story.table.name), [RIGHT, *VERSION_COLUMNS, *names]).elements())
    rows = sorted(((row[6], *row[1:6]) for row in versions), key=repr)
    assert rows == sorted(story.expected(), key=repr), f"batch {epoch}"
    assert all(row[0] for row in versions), "its period"
    keys = [row[7:] for row in versions if row[1]]
    assert len(keys) == len(set(keys)) == len(story.rows), "one current version a key"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "count", "batches"),
    [(20, 8, 4), *(pytest.param(seed, 200, 5, marks=pytest.mark.slow) for seed in range(10))],
)
def test_versions_are_those_of_the_model(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int, batches: int
) -> None:
    """With replays at other positions of the log, re-reads, TRUNCATE, folds and another writer's OPTIMIZE."""
    stories = histories(Story, seed, count, documents=seed % 2 == 0)
    copy = Keeping(spark, tmp_path, upserts=True)
    for epoch in write_batches(copy, stories, random.Random(seed), batches, monkeypatch):
        for story in stories:
            check(copy, story, epoch)
    folders = [copy.lake.current(story.table.name) for story in stories]
    written = {commit["operation"] for folder in folders for commit in DeltaTable(folder).history()}
    assert {"STREAMING UPDATE", "UPDATE"} <= written
    assert "MERGE" not in written


def test_as_of_every_batch_it_is_the_table_of_the_server(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    choice, table, lake = random.Random(3), f"{mysql_db}.t", Lake.at(tmp_path / "lake")
    pipeline = pipeline_text(mysql_server, [f"{mysql_db}.*"], tmp_path, source="chunk_rows = 7", mode='"history"')
    config, do = parse_config(pipeline), Database(mysql_server, mysql_db).do
    kept: dict[int, Rows] = {}

    def change() -> str:
        key, to, text = choice.randrange(30), choice.randrange(30), f"v{choice.randrange(1000)}"
        return choice.choice(
            [
                f"REPLACE INTO t (id, v) VALUES ({key}, '{text}')",
                f"UPDATE t SET v = '{text}' WHERE id = {key}",
                f"DELETE FROM t WHERE id = {key}",
                f"UPDATE IGNORE t SET id = {to} WHERE id = {key}",
                f"UPDATE t SET v = CONCAT(v, '{text}') WHERE id % 5 = {key % 5}",
            ]
        )

    def write(count: int) -> None:
        do(*(change() for _ in range(count)))

    def run(*again: str) -> None:
        Pipeline(config, spark).run(once=True, resnapshot=again)
        row = newest_row(lake)
        assert row.tables[table].state == "live", row.tables[table].reason
        kept[row.epoch] = source_rows(mysql_server, table, "id, v")
        result = verify(config, row, table)
        assert (result.only_source, result.only_target, result.different, result.undecided) == (0, 0, 0, 0)
        for epoch, rows in kept.items():
            as_of = f"_seq['epoch'] <= {epoch} AND (_end_seq IS NULL OR _end_seq['epoch'] > {epoch})"
            assert lake_rows(lake.current(table), ["id", "v"], where=as_of) == rows, f"as of batch {epoch}"

    do("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(400), j JSON)")
    write(60)
    run()
    for _ in range(2):
        write(40)
        run()
    do("ALTER TABLE t ADD COLUMN n INT DEFAULT 7")
    write(10)
    run()
    ended = lake_rows(lake.current(table), ["n"], where=f"NOT _is_current AND _end_seq['epoch'] < {max(kept)}")
    assert set(ended) == {(None,)}, "versions that have ended stay as they were"
    do("SET SESSION sql_log_bin = 0", "UPDATE t SET v = 'unseen' WHERE id < 12", "DELETE FROM t WHERE id > 25")
    same = "_is_current AND id BETWEEN 12 AND 25"
    before = lake_rows(lake.current(table), ["id", "_valid_from"], where=same)
    run(table)
    assert lake_rows(lake.current(table), ["id", "_valid_from"], where=same) == before, "no new versions of equal rows"
    do("ALTER TABLE t DROP COLUMN j", "TRUNCATE TABLE t")
    write(30)
    run()
    assert "j" in [field.name for field in DeltaTable(lake.current(table)).schema().fields]
    do("ALTER TABLE t MODIFY v TEXT CHARACTER SET latin1, MODIFY n BIGINT")
    write(1)
    Pipeline(config, spark).run(once=True)
    state = newest_row(lake).tables[table]
    assert (state.state, "n changed its type from int to bigint" in (state.reason or "")) == ("stopped", True)
    with pytest.raises(ConfigError, match='expected "current" or "history", not both'):
        parse_config(pipeline.replace('"history"', '["history", "current"]'))
    do("CREATE TABLE keyless (a INT)")
    with pytest.raises(ConfigError, match=r'mode "history" needs a key, and .*keyless has no primary key'):
        Pipeline(config, spark).run(once=True)
