"""A table that ``source.tables`` no longer includes is not called equal to its source, and is read when it is again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from headgate import verify
from headgate.cli import app
from headgate.lake import Ledger, read_as_of
from headgate.status import Status, read_status
from tests.fix_carrier import Crash
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate_testing import MySQLServer


def status_of(runs: Runs) -> Status:
    status = read_status(runs.inbox)
    assert status is not None
    return status


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    return Runs(spark, mysql_server, mysql_db, tmp_path / "runs")


def test_a_table_that_is_left_out_and_included_again(runs: Runs) -> None:
    kept, left = runs.table("kept"), runs.table("left_out")
    runs.run()
    assert set(read_as_of(runs.spark, runs.lake.path)) == {kept, left}

    runs.tables = f'["{runs.db}.*", "!{left}"]'
    runs.do("UPDATE kept SET v = 77 WHERE id = 1", "UPDATE left_out SET v = 77 WHERE id = 1")
    runs.run()
    reason = runs.reports[-1].tables[left].reason or ""
    assert (runs.state(left), runs.state(kept)) == ("excluded", "live")
    assert reason == "source.tables leaves it out"
    assert set(read_as_of(runs.spark, runs.lake.path)) == {kept}
    assert runs.rows(left)[1][0] == 1, "its rows stay"

    runs.tables = f'["{runs.db}.*"]'
    runs.do("DELETE FROM left_out WHERE id = 2")
    runs.run()
    assert (runs.state(left), runs.state(kept)) == ("live", "live")
    assert runs.rows(left) == runs.source(left)


def test_a_batch_planned_without_a_table_is_repeated_after_it_was_included_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has no changes of the table, whatever the configuration says now."""
    kept, left = runs.table("kept"), runs.table("left_out")
    runs.modes = '["current", "changelog"]'
    runs.run()
    runs.tables = f'["{runs.db}.*", "!{left}"]'
    runs.do("UPDATE kept SET v = 77 WHERE id = 1", "UPDATE left_out SET v = 77 WHERE id = 1")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "append", crash)
        with pytest.raises(Exception, match="Crash"):
            runs.run()

    runs.tables = f'["{runs.db}.*"]'
    reports = runs.run()
    assert [(reports[0].tables[table].state) for table in (kept, left)] == ["live", "excluded"]
    assert (runs.state(left), runs.state(kept)) == ("live", "live")
    assert runs.rows(left) == runs.source(left)


def crash(*_: object) -> None:
    raise Crash


def test_a_table_that_is_dropped_while_no_run_follows_it(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    """The ledger knows that it was followed; ``status.json`` is for people, and may be gone."""
    kept, dropped = runs.table("kept"), runs.table("dropped")
    runs.tables = f'["{kept}", "{dropped}"]'
    runs.run()
    runs.do("DROP TABLE dropped")
    Path(runs.inbox.path, "status.json").unlink()
    runs.run()
    assert f"there is no table {dropped} on the server" in caplog.text
    assert (runs.state(kept), runs.state(dropped)) == ("live", "dropped")


def test_tables_whose_life_ends_are_no_alarm(runs: Runs, tmp_path: Path) -> None:
    """One is stopped and then left out, while nothing happens at the source; one is dropped, one gets another name, and
    gh-ost's and pt-online-schema-change's helpers come and go.
    """
    kept, stopped, dropped = runs.table("kept"), runs.table("stopped"), runs.table("dropped")
    moved = runs.table("moved")
    runs.more = f'[tables."{stopped}"]\nschema_changes = "strict"'
    runs.run()
    runs.do("ALTER TABLE stopped MODIFY v BIGINT")
    runs.run()
    assert runs.state(stopped) == "stopped"
    runs.more, runs.tables = "", f'["{runs.db}.*", "!{stopped}"]'
    runs.run()
    assert (runs.state(stopped), status_of(runs).needs_attention()) == ("excluded", False)

    for name in ("_kept_gho", "_kept_ghc", "_kept_del", "_kept_new"):
        runs.table(name)
    runs.do("DROP TABLE dropped", "RENAME TABLE moved TO away", "UPDATE kept SET v = 5 WHERE id = 1")
    runs.run()
    runs.do("DROP TABLE _kept_ghc", "RENAME TABLE kept TO _kept_old, _kept_new TO kept", "DROP TABLE _kept_old")
    runs.run()
    states = {table: state.state for table, state in runs.reports[-1].tables.items()}
    away = f"{runs.db}.away"
    assert states == {away: "live", kept: "live", moved: "dropped", dropped: "dropped", stopped: "excluded"}
    assert runs.rows(kept) == runs.source(kept)
    status = status_of(runs)
    assert not status.needs_attention()
    warned = sorted(text for text in (warning.text for warning in status.warnings) if " is dropped, " in text)
    assert [text.split(" ")[0] for text in warned] == sorted([dropped, moved]), "each once"
    assert f"it is {away} now, followed as another table: RENAME" in warned[1]
    results = {result.table: result for result in verify(runs.config())}
    assert {table: result.state for table, result in results.items()} == states
    assert str(results[dropped].remark).startswith("DROP TABLE `dropped`")
    assert results[stopped].remark == "source.tables leaves it out"
    file = tmp_path / "pipeline.toml"
    file.write_text(runs.text())
    done = CliRunner().invoke(app, ["verify", str(file)])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "all 2 tables are equal: 300 rows; 3 not compared")
    assert CliRunner().invoke(app, ["status", str(file)]).exit_code == 0
