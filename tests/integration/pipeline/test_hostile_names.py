"""Databases, tables and columns whose names are made to break SQL, paths, pages and lines: read, followed and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.carrier import ControlFolder
from headgate.catalog import exact_pattern
from headgate.lake import Lake
from headgate.names import printable, quote_name
from headgate.ui import Watched, create_app
from tests.hostile import NAMES
from tests.integration.commands import run
from tests.integration.outside import lake_dicts
from tests.integration.runs import Runs
from tests.ui.test_app import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate_testing import MySQLServer


@pytest.mark.long
@pytest.mark.timeout(900)
def test_hostile_names_are_names(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    db = f"{mysql_db}'`\"<i>;--\\"
    mysql_server.execute(f"CREATE DATABASE {quote_name(db)}")
    try:
        runs = Runs(spark, mysql_server, db, tmp_path / "runs")
        runs.tables = json.dumps([f"{exact_pattern(db)}.*"])
        for name in NAMES:
            quoted = quote_name(name)
            runs.do(
                f"CREATE TABLE {quoted} ({quoted} VARCHAR(80), id INT PRIMARY KEY)",
                f"INSERT INTO {quoted} VALUES ('a', 1), ('b', 2)",
            )
        runs.run()
        for name in NAMES:
            quoted = quote_name(name)
            runs.do(f"UPDATE {quoted} SET {quoted} = 'c' WHERE id = 2", f"DELETE FROM {quoted} WHERE id = 1")
        runs.run()
        lake = Lake.at(runs.lake.path)
        rows = {name: lake_dicts(lake.current(f"{db}.{name}")) for name in NAMES}
        assert rows == {name: [{name: "c", "id": 2}] for name in NAMES}
        folders = {path.parent.parent for path in Path(runs.lake.path).rglob("_delta_log")}
        assert all(folder.is_relative_to(runs.lake.path) for folder in folders)
        assert [path for path in tmp_path.rglob("*") if not path.name.isprintable()] == []

        file = tmp_path / "pipeline.toml"
        file.write_text(runs.text())
        code, out, err = run("status", str(file))
        assert (code, err) == (0, "")
        assert all(line.isprintable() for line in out.split("\n"))
        assert [name for name in NAMES if printable(f"{db}.{name}") not in out] == []
        code, out, err = run("run", "--dry-run", str(file))
        assert code == 0, err
        assert all(line.isprintable() for line in (out + err).split("\n"))
        page = ask(create_app([Watched("modes", ControlFolder(lake.inbox))]), "/?all=1").text
        assert "<script>" not in page
        assert "<img" not in page
        assert "<i>" not in page
    finally:
        mysql_server.execute(f"DROP DATABASE {quote_name(db)}")
