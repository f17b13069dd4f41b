"""SELECT that is granted on some columns of a table: refused with the GRANT, or followed without the excluded ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from headgate import verify
from headgate.catalog import check_visible, hides_columns
from headgate.cli import app
from headgate.config import parse_config
from headgate.errors import AccessError
from headgate.lake import newest_row
from headgate.mysql import Connection, ConnectionSettings, Secret
from headgate.pipeline import Pipeline, check_source
from headgate_testing import MySQLServer
from tests.integration.outside import lake_dicts
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "x"


class World:
    """A table ``p`` and an account without privileges on it."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db, self.user = server, db, f"g_{db}"[:30]
        server.execute(
            f"CREATE TABLE {db}.p (id INT PRIMARY KEY, name VARCHAR(9), ssn VARCHAR(9), age INT, pin INT INVISIBLE)",
            f"INSERT INTO {db}.p (id, name, ssn, age, pin) VALUES (1, 'a', 's1', 30, 7), (2, 'b', 's2', 31, 8)",
            f"CREATE USER {self.user}@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {self.user}@'%'",
        )
        self.settings = ConnectionSettings(server.host, server.port, self.user, Secret(value=PASSWORD))
        self.url = f"mysql://{self.user}@{server.host}:{server.port}"

    def grant(self, what: str) -> None:
        self.server.execute(f"GRANT {what} TO {self.user}@'%'")

    def revoke(self) -> None:
        self.server.execute(
            f"REVOKE ALL, GRANT OPTION FROM {self.user}@'%'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {self.user}@'%'",
        )

    def hides(self) -> bool:
        with Connection.open(self.settings) as connection:
            return hides_columns(connection.query, self.db, "p")


@pytest.fixture
def world(mysql_server: MySQLServer, mysql_db: str) -> Iterator[World]:
    world = World(mysql_server, mysql_db)
    yield world
    mysql_server.execute(f"DROP USER {world.user}@'%'", f"DROP ROLE IF EXISTS role_{world.db}")


@pytest.mark.parametrize(
    ("grants", "hides"),
    [
        (["SELECT (id, name, ssn, age, pin) ON {db}.p"], True),  # a column that is added later would be hidden
        (["SELECT (id) ON {db}.p"], True),
        (["SELECT (id) ON {db}.p", "INSERT ON {db}.p"], True),
        (["SELECT (id) ON {db}.p", "SELECT ON {db}.p"], False),
        (["SELECT ON {db}.p"], False),
        (["SELECT ON {db}.*"], False),
        (["SELECT ON *.*"], False),
        (["SELECT ON `{db}%`.*"], False),
        (["INSERT ON {db}.p"], False),
    ],
)
def test_the_privilege_is_tried(world: World, grants: list[str], hides: bool) -> None:
    for grant in grants:
        world.grant(grant.format(db=world.db))
    assert world.hides() == hides
    if hides:
        world.server.execute(
            f"CREATE ROLE role_{world.db}",
            f"GRANT SELECT ON {world.db}.* TO role_{world.db}",
            f"GRANT role_{world.db} TO {world.user}@'%'",
            f"SET DEFAULT ROLE role_{world.db} TO {world.user}@'%'",
        )
        assert not world.hides()


def test_excluded_columns_need_as_many_names_as_are_hidden(world: World) -> None:
    world.grant(f"SELECT (id, age) ON {world.db}.p")
    with Connection.open(world.settings) as connection:
        for excluded in ({"ssn"}, set[str]()):
            with pytest.raises(AccessError, match=f"GRANT SELECT ON `{world.db}`.`p`"):
                check_visible(connection.query, world.db, "p", excluded)
        check_visible(connection.query, world.db, "p", {"ssn", "name"})


def test_hidden_columns_behind_the_last_visible_one(world: World) -> None:
    """Their number is unknown; a name that no column has does not count as one of them."""
    world.server.execute(f"ALTER TABLE {world.db}.p ADD last JSON, ADD `Shape` GEOMETRY")
    world.grant(f"SELECT (id, name, age, pin) ON {world.db}.p")
    with Connection.open(world.settings) as connection:
        for excluded in ({"ssn"}, {"ssn", "last"}, {"ssn", "shape"}, {"ssn", "last", "shapes"}):
            with pytest.raises(AccessError, match=f"GRANT SELECT ON `{world.db}`.`p`"):
                check_visible(connection.query, world.db, "p", excluded)
        check_visible(connection.query, world.db, "p", {"SSN", "last", "shape"})


@pytest.mark.parametrize("columns", ["id, name, age", "name, age", "id, name, ssn, age"])
def test_check_and_commands_refuse(world: World, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    world.grant(f"SELECT ({columns}) ON {world.db}.p")
    monkeypatch.setenv("HEADGATE_PASSWORD", PASSWORD)
    tables = ["--tables", f"{world.db}.*"]
    result = CliRunner().invoke(app, ["check", world.url, *tables, "--format", "json"])
    if "id" in columns:
        failed = [row for row in json.loads(result.stdout) if row["status"] == "fail"]
        assert [row["name"] for row in failed] == [f"SELECT on {world.db}.p"]
        assert f"GRANT SELECT ON `{world.db}`.`p`" in failed[0]["remedy"]
    assert result.exit_code != 0
    result = CliRunner().invoke(app, ["snapshot", world.url, *tables])
    assert result.exit_code == 3
    assert f"GRANT SELECT ON `{world.db}`.`p`" in result.stderr
    config = parse_config(
        f'name = "g"\n[source]\nurl = "{world.url}"\ntables = ["{world.db}.p"]\n[target]\npath = "/tmp/none"\n'
    )
    with pytest.raises(AccessError, match="some of its columns"):
        check_source(config)
    world.grant(f"SELECT ON {world.db}.p")
    assert check_source(config) == [f"{world.db}.p"]


@pytest.mark.long
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_a_hidden_column_that_only_the_log_shows(
    spark: SparkSession, world: World, tmp_path: Path, metadata: str
) -> None:
    """It is INVISIBLE and the last one, so no SELECT tells that it exists."""
    runs = Runs(spark, world.server, world.db, tmp_path)
    runs._template_values["url"] = world.url
    (tmp_path / "secret").write_text(PASSWORD)
    runs.tables = f'["{world.db}.p"]'
    runs.more = f'[columns."{world.db}.p"]\nssn = "exclude"\n'
    table = f"{world.db}.p"
    world.grant(f"SELECT (id, name, age) ON {table}")
    runs.run()
    world.server.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        runs.do("INSERT INTO p (id, name, ssn, age, pin) VALUES (3, 'c', 's3', 32, 9)")
    finally:
        world.server.execute("SET GLOBAL binlog_row_metadata = FULL")
    runs.run()
    runs.run()
    state = newest_row(runs.lake).tables[table]
    assert state.state == "stopped"
    assert f"GRANT SELECT ON `{world.db}`.`p`" in (state.reason or "")
    world.grant(f"SELECT ON {table}")
    Pipeline(runs.config(), spark).run(once=True, resnapshot=[table])
    rows = lake_dicts(runs.lake.current(table))
    assert sorted((row["id"], row["name"], row["pin"]) for row in rows) == [(1, "a", 7), (2, "b", 8), (3, "c", 9)]


@pytest.mark.long
def test_a_pipeline_without_the_excluded_columns(
    spark: SparkSession, world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(spark, world.server, world.db, tmp_path)
    runs._template_values["url"] = world.url
    (tmp_path / "secret").write_text(PASSWORD)
    runs.tables = f'["{world.db}.p"]'
    runs.modes = '["current", "changelog"]'
    table = f"{world.db}.p"
    world.grant(f"SELECT (id, name, age) ON {table}")
    with pytest.raises(AccessError, match=f"GRANT SELECT ON `{world.db}`.`p`"):
        runs.run()
    runs.more = f'[columns."{table}"]\nssn = "exclude"\npin = "exclude"\n'
    runs.run()
    runs.do("INSERT INTO p (id, name, ssn, age, pin) VALUES (3, 'c', 's3', 32, 9)", "UPDATE p SET ssn = 'no'")
    runs.do("UPDATE p SET name = 'z' WHERE id = 1")
    caplog.clear()
    for report in runs.run():
        assert report.tables[table].state == "live"
    assert not [one.message for one in caplog.records if "new" in one.message or "matches no column" in one.message]
    rows = lake_dicts(runs.lake.current(table))
    assert sorted((row["id"], row["name"], row["age"]) for row in rows) == [(1, "z", 30), (2, "b", 31), (3, "c", 32)]
    assert all({"ssn", "pin"}.isdisjoint(row) for row in [*rows, *lake_dicts(runs.lake.changelog(table))])
    (result,) = verify(runs.config())
    assert (result.state, result.equal, result.differences) == ("live", 3, 0)


@pytest.mark.long
def test_a_table_without_a_grant_is_stopped_when_it_changes(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """Only the log shows it, so nobody has read its earlier rows."""
    runs = Runs(spark, world.server, world.db, tmp_path)
    runs._template_values["url"] = world.url
    (tmp_path / "secret").write_text(PASSWORD)
    runs.tables = f'["{world.db}.*"]'
    table = f"{world.db}.p"
    runs.do("CREATE TABLE q (id INT PRIMARY KEY)", "INSERT INTO q VALUES (1)")
    world.grant(f"SELECT ON {world.db}.q")
    runs.run()
    runs.do("UPDATE p SET age = 40 WHERE id = 1", "INSERT INTO q VALUES (2)")
    runs.run()
    states = newest_row(runs.lake).tables
    assert (states[f"{world.db}.q"].state, states[table].state) == ("live", "stopped")
    assert f"GRANT SELECT ON `{world.db}`.`p`" in (states[table].reason or "")
    world.grant(f"SELECT ON {table}")
    Pipeline(runs.config(), spark).run(once=True, resnapshot=[table])
    assert newest_row(runs.lake).tables[table].state == "live"
    assert sorted((row["id"], row["age"]) for row in lake_dicts(runs.lake.current(table))) == [(1, 40), (2, 31)]
