"""Tables whose earlier rows the lake lacks: it is never called live before all of them were read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.config import SnapshotMode
from headgate.lake import newest_row
from headgate.pipeline import Pipeline
from headgate.status import read_status
from headgate_testing import MySQLServer
from tests.integration.outside import logged
from tests.integration.runs import Runs, killed_before_the_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOTH = '["current", "changelog"]'
CHANGELOG = '["changelog"]'


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    runs = Runs(spark, mysql_server, mysql_db, tmp_path)
    for name in ("changing", "quiet"):
        runs.table(name, rows=60)
    return runs


def check(runs: Runs) -> None:
    for table in (f"{runs.db}.changing", f"{runs.db}.quiet"):
        assert runs.rows(table) == runs.source(table)
        row = newest_row(runs.lake)
        assert row is not None
        assert row.tables[table].state == "live"


@pytest.mark.parametrize("mode", ["current", "history"])
def test_a_mode_that_is_added_begins_with_all_rows(runs: Runs, mode: str) -> None:
    runs.modes = CHANGELOG
    runs.run()
    runs.modes = f'["{mode}", "changelog"]'
    runs.do("UPDATE changing SET v = v + 1 WHERE id < 5")
    runs.run()
    if mode == "current":
        check(runs)
    for table in (f"{runs.db}.changing", f"{runs.db}.quiet"):
        shown = runs.spark.read.format("delta").load(runs.lake.current(table))
        assert shown.where("_valid_to IS NULL" if mode == "history" else "TRUE").count() == 60


def test_a_mode_that_was_left_out_for_some_batches_begins_again(runs: Runs) -> None:
    runs.modes = BOTH
    runs.run()
    runs.modes = CHANGELOG
    runs.do("DELETE FROM changing WHERE id < 5")
    runs.run()
    row = newest_row(runs.lake)
    assert row is not None
    assert row.tables[f"{runs.db}.changing"].version is None, "read_as_of would read older rows"
    runs.modes = BOTH
    runs.run()
    check(runs)


def from_changelog(runs: Runs, table: str) -> tuple[dict[int, tuple[int, int | None]], list[int]]:
    """The rows that a table's logged changes lead to, and the keys of those that were read."""
    rows: dict[int, tuple[int, int | None]] = {}
    changes = logged(runs.lake.changelog(f"{runs.db}.{table}"))
    for change in changes:
        if change["_op"] == "d":
            del rows[change["id"]]
        else:
            rows[change["id"]] = (change["v"], change["n"])
    return rows, [change["id"] for change in changes if change["_op"] == "r"]


@pytest.mark.parametrize("changes", [False, True])
def test_a_changelog_that_was_left_out_for_some_batches_continues_with_all_rows(
    runs: Runs, caplog: pytest.LogCaptureFixture, changes: bool
) -> None:
    runs.modes = BOTH
    runs.run()
    runs.modes = '["current"]'
    runs.do("UPDATE changing SET v = 77 WHERE id < 5")
    runs.run()
    runs.modes = BOTH
    if changes:
        runs.do("UPDATE changing SET v = v + 1 WHERE id > 50")
    runs.run()
    check(runs)
    rows, read = from_changelog(runs, "changing")
    assert rows == runs.source(f"{runs.db}.changing")
    assert len(read) == 120
    assert len(from_changelog(runs, "quiet")[1]) == 60, "nothing of it is missing"
    assert "changing is read again: its changelog lacks changes: target.mode left it out when they came" in caplog.text
    runs.do("UPDATE changing SET v = 78 WHERE id < 5")
    runs.run()
    assert from_changelog(runs, "changing") == (runs.source(f"{runs.db}.changing"), read), "it is read once"


def test_a_changelog_that_is_added_begins_with_the_next_change(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.run()
    runs.modes = BOTH
    runs.do("UPDATE changing SET v = 77 WHERE id < 5")
    with killed_before_the_ledger(monkeypatch):
        runs.run()
    runs.run()
    check(runs)
    assert from_changelog(runs, "changing")[1] == [], "the batch that was repeated had begun it"
    assert len(from_changelog(runs, "changing")[0]) == 4


def test_a_folder_that_is_gone_is_made_again(runs: Runs) -> None:
    runs.run()
    for name in ("changing", "quiet"):
        shutil.rmtree(runs.lake.current(f"{runs.db}.{name}"))
    runs.do("UPDATE changing SET v = v + 1 WHERE id < 5")
    runs.run()
    check(runs)


@pytest.mark.parametrize("missing", ["folder", "mode"])
def test_rows_that_a_running_snapshot_has_read_are_read_again(runs: Runs, missing: str) -> None:
    runs.table("many", rows=1000)
    runs.modes = BOTH if missing == "folder" else CHANGELOG
    table = f"{runs.db}.many"
    runs.run(meanwhile=lambda _: False if runs.reports[-1].rows.get(table) else None)
    assert runs.state(table) == "snapshotting"
    assert runs.reports[-1].tables[table].chunks_done
    if missing == "folder":
        shutil.rmtree(runs.lake.current(table))
    runs.modes = BOTH
    runs.do("UPDATE changing SET v = v + 1 WHERE id < 5")
    runs.run()
    check(runs)
    assert runs.state(table) == "live"
    assert runs.rows(table) == runs.source(table)


def test_nothing_is_read_if_the_configuration_reads_nothing(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    runs.reads = 'snapshot_mode = "no_data"'
    runs.run()
    runs.do("ALTER TABLE changing ADD COLUMN more INT")
    runs.run()
    runs.do("UPDATE changing SET v = 9 WHERE id < 5")
    runs.run()
    assert "again" not in caplog.text
    assert runs.spark.read.format("delta").load(runs.lake.current(f"{runs.db}.changing")).count() == 4


@pytest.mark.parametrize("mode", ["initial", "initial_only"])
def test_a_run_that_ends_while_reading_is_paused_says_so(
    runs: Runs, caplog: pytest.LogCaptureFixture, mode: SnapshotMode
) -> None:
    def run() -> bool:
        return Pipeline(runs.config(), runs.spark, snapshot_mode=mode).run(once=True)

    runs.signal("pause-snapshot")
    assert not run()
    warning = f"{runs.db}.changing, {runs.db}.quiet: waiting to be read; a signal paused that"
    assert warning in caplog.text
    status = read_status(runs.inbox)
    assert status is not None
    assert warning in status.warnings[0].text
    assert not run(), "the next one has nothing to do"
    runs.signal("resume-snapshot")
    assert run()
    check(runs)
