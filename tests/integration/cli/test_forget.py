"""``headgate signal --wait`` and ``headgate forget`` beside a run: each ends with what the pipeline answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from headgate import Pipeline
from headgate.cli import app
from headgate.config import ConfigFile
from headgate.status import Status, read_status
from headgate_testing import wait_until
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate_testing import MySQLServer


@pytest.mark.timeout(600)
def test_a_table_is_read_again_forgotten_and_new(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    runs, file = Runs(spark, mysql_server, mysql_db, tmp_path / "runs"), tmp_path / "pipeline.toml"
    kept, old = runs.table("kept"), runs.table("old")
    file.write_text(runs.text())
    config = ConfigFile(file)
    pipeline = Pipeline(config.config, spark, file=config)
    running = threading.Thread(target=pipeline.run)

    def headgate(*words: str) -> tuple[int, list[str]]:
        done = CliRunner().invoke(app, [words[0], str(file), *words[1:]])
        return done.exit_code, done.output.splitlines()

    def status() -> Status | None:
        return read_status(runs.inbox)

    def states() -> dict[str, str]:
        known = status()
        return {} if known is None else {name: table.state for name, table in known.tables.items()}

    running.start()
    try:
        wait_until(lambda: states() == {kept: "live", old: "live"}, seconds=180)
        code, lines = headgate("signal", "execute-snapshot", "-t", kept, "--id", "again", "--wait")
        assert (code, lines[0], lines[-1]) == (0, "again", f"done: execute-snapshot of {kept}")
        code, lines = headgate("signal", "execute-snapshot", "-t", kept, "-t", f"{mysql_db}.none*", "--wait")
        assert (code, lines[-1].partition(": no table")[0]) == (1, f"partly: execute-snapshot of {kept}")
        assert headgate("forget", kept)[0] == 2
        runs.do("DROP TABLE old")
        wait_until(lambda: states().get(old) == "dropped", seconds=60)
        folder = Path(runs.lake.current(old))
        code, lines = headgate("forget", old, "--delete-data", "--yes")
        assert (code, lines[-2:]) == (0, [f"done: forget-table of {old}", f"deleted: {folder}"])
        assert (states(), folder.exists()) == ({kept: "live"}, False)
        runs.table("old", 7)
        wait_until(lambda: states().get(old) == "live" and len(runs.rows(old)) == 7, seconds=60)
    finally:
        pipeline.stop()
        running.join()
    assert runs.rows(old) == runs.source(old)
    last = status()
    assert last is not None
    assert [one.state.value for one in last.signals] == ["done", "partly", "done"]
