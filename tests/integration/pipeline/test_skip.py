"""``skip``: operations that a pipeline leaves out, against a model that applies the others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headgate
from headgate.errors import ConfigError
from headgate.pipeline import Pipeline, check_source
from headgate_testing import MySQLServer
from tests.integration.outside import logged
from tests.integration.pipeline.verifying import newest
from tests.integration.runs import Runs, change_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[int, tuple[Any, ...]]


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    return Runs(spark, mysql_server, mysql_db, tmp_path)


def skip(runs: Runs, *operations: str) -> None:
    runs.more = f'[tables."{runs.db}.t"]\nskip = {list(operations)}\n'


def write(runs: Runs, chosen: random.Random, count: int, model: Rows) -> None:
    """Write, and apply to the model all but what a DELETE or TRUNCATE removes."""
    for _ in range(count):
        apply(runs, change_of(chosen, "t"), model)


def apply(runs: Runs, statement: str, model: Rows) -> None:
    before = runs.source(f"{runs.db}.t")
    runs.do(statement)
    after = runs.source(f"{runs.db}.t")
    if statement.startswith("UPDATE"):
        for key in before.keys() - after.keys():
            del model[key]
    model.update(after)


def compare(runs: Runs) -> tuple[int, int, int]:
    """Equal rows, differences, and rows that only the lake has and may have."""
    (result,) = (one for one in headgate.verify(runs.config()) if one.table == f"{runs.db}.t")
    return result.equal, result.differences, result.removed


@pytest.mark.long
def test_removed_rows_stay_through_everything_that_reads_the_table_again(runs: Runs) -> None:
    chosen, name = random.Random(5), f"{runs.db}.t"
    skip(runs, "delete", "truncate")
    runs.table("t", rows=25)
    runs.run()
    model = runs.source(name)
    assert runs.rows(name) == model
    for number in range(3):
        write(runs, chosen, 25, model)
        if number == 1:
            apply(runs, "TRUNCATE t", model)
            write(runs, chosen, 10, model)
        runs.run()
        assert runs.rows(name) == model
        assert runs.reports[-1].tables[name].state == "inexact"
        assert runs.reports[-1].tables[name].reason == "skip leaves operations out: delete, truncate"
    source = runs.source(name)
    assert len(source) < len(model)
    assert compare(runs) == (len(source), 0, len(model) - len(source))

    def meanwhile(number: int) -> None:
        if number == 1:
            write(runs, chosen, 15, model)

    Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[name])
    runs.run(meanwhile=meanwhile)
    runs.run()
    assert runs.rows(name) == model, "no sweep removes them"
    runs.do("ALTER TABLE t ENGINE = InnoDB, COMMENT 'read again', FORCE", "ALTER TABLE t ALTER v SET DEFAULT 3")
    runs.run()
    assert runs.rows(name) == model

    # Without skip the table stays inexact until a re-read removes them.
    runs.more = ""
    write(runs, chosen, 5, model)
    runs.run()
    assert runs.reports[-1].tables[name].state == "inexact"
    Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[name])
    runs.run()
    assert runs.rows(name) == runs.source(name)
    assert compare(runs) == (len(runs.source(name)), 0, 0)


def test_a_deletion_alone_makes_the_table_inexact(runs: Runs) -> None:
    """Its batch has nothing of the table."""
    name = runs.table("t", rows=5)
    runs.run()
    assert runs.state(name) == "live"
    skip(runs, "delete")
    runs.do("DELETE FROM t WHERE id = 2")
    runs.run()
    assert (runs.state(name), len(runs.rows(name))) == ("inexact", 5)
    assert compare(runs) == (4, 0, 1)


def test_a_table_that_would_be_made_again_stops_and_keeps_its_rows(runs: Runs) -> None:
    skip(runs, "delete")
    name = runs.table("t", rows=5)
    runs.run()
    runs.do("DELETE FROM t WHERE id = 2", "ALTER TABLE t MODIFY v VARCHAR(20)", "INSERT INTO t VALUES (9, 9, 9)")
    runs.run()
    runs.run()
    state = newest(runs.lake).tables[name]
    assert state.state == "stopped"
    assert f"would lose the rows that skip keeps: move {runs.lake.current(name)} away" in str(state.reason)
    assert sorted(runs.rows(name)) == [1, 2, 3, 4, 5]
    Path(runs.lake.current(name)).rename(Path(runs.lake.path) / "kept")
    Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[name])
    assert runs.rows(name) == runs.source(name)


class WithChangelogs(Runs):
    def text(self) -> str:
        return super().text().replace('["current"]', '["current", "changelog"]')


def test_inserts_and_updates_are_left_out_of_tables_and_changelogs(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    runs = WithChangelogs(spark, mysql_server, mysql_db, tmp_path)
    runs.reads = 'skip = ["update", "insert"]'
    name = runs.table("t", rows=3)
    runs.run()
    runs.do("INSERT INTO t VALUES (9, 9, 9)", "UPDATE t SET v = 5 WHERE id = 1", "UPDATE t SET id = 20 WHERE id = 2")
    runs.do("DELETE FROM t WHERE id = 3")
    runs.run()
    assert runs.rows(name) == {1: (1, None), 2: (2, None)}
    assert [(row["_op"], row["id"]) for row in logged(runs.lake.changelog(name), where="_op <> 'r'")] == [("d", 3)]
    (result,) = headgate.verify(runs.config())
    assert (result.state, result.remark) == ("inexact", "not compared: skip leaves out inserts and updates")


def test_a_table_without_a_key_cannot_keep_rows(runs: Runs) -> None:
    runs.do("CREATE TABLE t (id INT)")
    skip(runs, "truncate")
    with pytest.raises(ConfigError, match=r"skip cannot keep removed rows of .*\.t: there is no primary key"):
        check_source(runs.config())
    skip(runs, "update", "insert")
    check_source(runs.config())
