"""``rows`` in a pipeline: its tables are MySQL's own WHERE, whatever enters, leaves or changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.errors import ConfigError
from headgate.lake import newest_row
from headgate.pipeline import Pipeline, check_source
from headgate_testing import MySQLServer
from tests.integration.outside import Rows, lake_rows, source_rows
from tests.integration.pipeline.verifying import verify
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "v < 5 AND (n IS NULL OR n <> 7)"


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    runs = Runs(spark, mysql_server, mysql_db, tmp_path)
    choose(runs, ROWS)
    return runs


def choose(runs: Runs, rows: str, more: str = "") -> None:
    runs.more = f'[tables."{runs.db}.t"]\nrows = "{rows}"\n{more}' if rows else more


def check(runs: Runs, condition: str) -> None:
    """The lake's table is that of MySQL's WHERE, and ``headgate verify`` says so."""
    expected = runs.source(f"{runs.db}.t", condition or "TRUE")
    assert runs.rows(f"{runs.db}.t") == expected
    result = verify(runs.config(), newest_row(runs.lake), f"{runs.db}.t")
    assert (result.equal, result.differences, result.state) == (len(expected), 0, "live"), result


def test_a_table_holds_exactly_the_rows_that_pass(runs: Runs) -> None:
    """Also in chunks that are read while rows enter and leave, and after a TRUNCATE."""
    chosen = random.Random(3)
    runs.table("t", rows=250)
    runs.run(meanwhile=lambda number: runs.write(chosen, 20, "t") if number < 4 else None)
    runs.run()
    check(runs, ROWS)
    for _ in range(2):
        runs.write(chosen, 60, "t")
        runs.run()
        check(runs, ROWS)
    runs.do("TRUNCATE t", "INSERT INTO t VALUES (1, 1, 7), (2, 1, 8), (3, 9, 8)")
    runs.run()
    check(runs, ROWS)


@pytest.mark.parametrize("changed", ["v >= 5", ""])
def test_a_changed_filter_reads_the_table_again_without_any_change(
    runs: Runs, changed: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = runs.table("t", rows=60)
    runs.table("other", rows=3)
    runs.run()
    check(runs, ROWS)
    choose(runs, changed)
    runs.run()
    assert [record.getMessage() for record in caplog.records if "read again" in record.getMessage()] == [
        f"{table} is read again: `rows` changed from {ROWS} to {changed or 'all rows'}"
    ]
    check(runs, changed)
    caplog.clear()
    runs.do("UPDATE t SET v = 9 - v")
    runs.run()
    check(runs, changed)
    assert "read again" not in caplog.text


@pytest.mark.parametrize(
    ("more", "shown"),
    [('[columns."{0}"]\nv = "null"\n', {(None, None)}), ('[tables."{0}"]\ndeletes = "mark"\n', {(1, None, False)})],
)
def test_a_changed_setting_reads_the_table_again_without_any_change(
    runs: Runs, caplog: pytest.LogCaptureFixture, more: str, shown: set[tuple[object, ...]]
) -> None:
    runs.more = ""
    table = runs.table("t", rows=60)
    runs.do("UPDATE t SET v = 1")
    runs.run()
    assert {*runs.rows(table).values()} == {(1, None)}
    runs.more = more.format(table)
    runs.run()
    assert f"{table} is read again: " in caplog.text
    assert (len(runs.rows(table)), {*runs.rows(table).values()}, runs.state(table)) == (60, shown, "live")
    caplog.clear()
    runs.do("DELETE FROM t WHERE id > 50")
    runs.run()
    assert "read again" not in caplog.text
    assert runs.state(table) == "live"


@pytest.mark.long
def test_a_history_has_the_versions_that_pass(runs: Runs, mysql_server: MySQLServer) -> None:
    """As of each batch it is MySQL's WHERE of then: a row that leaves ends its version, one that enters begins one."""
    runs.modes, chosen = '"history"', random.Random(5)
    table = runs.table("t", rows=40)
    folder, kept = runs.lake.current(table), dict[int, Rows]()
    runs.run()
    for number in range(3):
        if number == 2:
            runs.do("TRUNCATE t", "INSERT INTO t VALUES (1, 1, 7), (2, 1, 8), (3, 9, 8)")
        runs.write(chosen, 40, "t")
        runs.run()
        row = newest_row(runs.lake)
        kept[row.epoch] = source_rows(mysql_server, f"{table} WHERE {ROWS}", "id, v, n")
        result = verify(runs.config(), row, table)
        assert (result.differences, result.state) == (0, "live"), result
        for epoch, rows in kept.items():
            as_of = f"_seq['epoch'] <= {epoch} AND (_end_seq IS NULL OR _end_seq['epoch'] > {epoch})"
            assert lake_rows(folder, ["id", "v", "n"], where=as_of) == rows, f"as of batch {epoch}"
    versions = lake_rows(folder, ["v", "n"])
    assert all(v < 5 and n != 7 for v, n in versions), "no version of a row that did not pass"


def test_a_filter_that_no_row_passes_any_more_empties_the_table(runs: Runs) -> None:
    runs.table("t", rows=20)
    runs.run()
    choose(runs, "v > 100")
    runs.run()
    runs.run()
    assert runs.rows(f"{runs.db}.t") == {}
    assert newest_row(runs.lake).tables[f"{runs.db}.t"].state == "live"


def test_a_column_of_the_filter_that_is_gone_stops_its_table_only(runs: Runs) -> None:
    table, other = runs.table("t", rows=20), runs.table("other", rows=20)
    runs.run()
    runs.do("ALTER TABLE t DROP COLUMN n", "INSERT INTO t VALUES (70, 1)", "DELETE FROM other WHERE id = 3")
    with pytest.raises(ConfigError, match=r"rows of .*\.t: the table has no column n$"):
        check_source(runs.config())

    def drop(number: int) -> None:
        if number == 1:
            runs.do("ALTER TABLE t DROP COLUMN n", "INSERT INTO t VALUES (80, 1)", "DELETE FROM other WHERE id = 4")

    runs.do("ALTER TABLE t ADD COLUMN n INT", "INSERT INTO other VALUES (500, 1, 1)")
    pipeline, after = Pipeline(runs.config(), runs.spark), []

    def meanwhile(number: int) -> bool:
        drop(number)
        after.append(runs.reports[-1].tables[table])
        return after[-1].state != "stopped"

    runs.run(once=False, meanwhile=meanwhile)
    del pipeline
    assert runs.state(table) == "stopped"
    assert "the table has no column n: change its `rows`, then read the table again" in str(after[-1].reason)
    choose(runs, "v < 5")
    runs.run()
    assert runs.rows(other) == runs.source(other)
    Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[table])
    check(runs, "v < 5")


def test_mistakes_are_found_before_a_run(runs: Runs) -> None:
    runs.table("t", rows=1)
    for rows, problem in (
        ("w = 1", "the table has no column w"), ("v = 'x'", "cannot be compared with 'x'"), ("v +", "rows of"),
    ):  # fmt: skip
        choose(runs, rows)
        with pytest.raises(ConfigError, match=problem):
            check_source(runs.config())
