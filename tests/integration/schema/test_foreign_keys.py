"""Foreign keys that a table gets while it is followed: refused or accepted when they arrive, or followed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.config import parse_config
from headgate.decide import Divergence
from headgate.errors import ServerSettingError
from headgate.pipeline import check_source
from headgate.pipeline.divergence import ForeignKeys
from headgate.replication import Ddl
from headgate_testing import UNLOGGED_CASCADES, MySQLServer
from tests.fix_carrier import FakeBatch
from tests.integration.changes import Log
from tests.integration.schema.test_schema_changes import Follower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server

CONFIG = """\
name = "keys"
[source]
url = "{url}"
tables = ["{db}.*", "!{db}.other*"]
[target]
path = "/nowhere"
"""
CASCADE = "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE"


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start(UNLOGGED_CASCADES) as server:
        yield server


_numbers = itertools.count(1)


def make(server: MySQLServer, db: str) -> Log:
    log = Log(server, db)
    log.do("CREATE TABLE parent (id INT PRIMARY KEY)", "CREATE TABLE child (id INT PRIMARY KEY, p INT)")
    log.mark()
    return log


@pytest.fixture
def log(server: MySQLServer) -> Iterator[Log]:
    log = make(server, f"keys{next(_numbers)}")
    yield log
    server.execute(f"DROP DATABASE {log.db}")


def keys(log: Log, more: str = "") -> ForeignKeys:
    return ForeignKeys(parse_config(CONFIG.format(url=log.server.url, db=log.db) + more), log.settings)


def find_unseen(
    log: Log, more: str = "", *, begins: str | None = None, server_before: str | None = None
) -> dict[str, Divergence]:
    """What a batch of everything since the mark brings; tables without their database.

    :param server_before: the one that the batch before came from, if it is another one.
    """
    fake = FakeBatch(9)
    for item in log.items():
        if isinstance(item, Ddl):
            name, changes = f"{item.db}.{item.table}", item.changes
            fake.ddl(name, item.statement, item.action, item.pos, adds=changes, new_name=item.new_name)
    if begins is not None:
        fake.snapshot(f"{log.db}.{begins}", 9, append=False, first=True, last=True)
    batch = fake.described()
    batch = replace(batch, header=replace(batch.header, server_uuid=log.server.server_uuid))
    foreign_keys = keys(log, more)
    foreign_keys._server = server_before or log.server.server_uuid
    unseen = foreign_keys.unseen(batch)
    assert foreign_keys.unseen(replace(batch, ddl=[], header=replace(batch.header, tables={}))) == {}, "once a server"
    return {table.removeprefix(f"{log.db}."): why for table, why in unseen.items()}


ARRIVALS = {
    "ALTER": ["ALTER TABLE child ADD {key}"],
    "a named one": ["ALTER TABLE child ADD INDEX (p), ADD CONSTRAINT `on delete` {key} ON UPDATE SET NULL"],
    "a column's": ["ALTER TABLE child ADD q INT REFERENCES parent (id) ON UPDATE CASCADE"],
    "CREATE": ["DROP TABLE child", "CREATE TABLE child (id INT PRIMARY KEY, p INT, {key})"],
    "RENAME": [
        "CREATE TABLE other (id INT PRIMARY KEY, p INT, {key})", "RENAME TABLE child TO other_2, other TO child",
    ],
    "ALTER … RENAME": [
        "CREATE TABLE other (id INT PRIMARY KEY, p INT, {key})", "DROP TABLE child", "ALTER TABLE other RENAME child",
    ],
}  # fmt: skip


@pytest.mark.parametrize("way", ARRIVALS)
def test_a_key_that_changes_rows_unseen_holds_its_table(log: Log, way: str) -> None:
    log.do(*(statement.format(key=CASCADE) for statement in ARRIVALS[way]))
    unseen = find_unseen(log)
    assert list(unseen) == ["child"]
    assert not unseen["child"].over
    assert f"foreign keys of {log.db}.child: " in unseen["child"].reason
    assert f'foreign_keys = "accept" in [tables."{log.db}.child"]' in unseen["child"].reason
    accepted = find_unseen(log, accept(log))
    assert list(accepted) == ["child"]
    assert accepted["child"].accepted
    assert not accepted["child"].over
    assert f"foreign keys of {log.db}.child: " in accepted["child"].reason


def accept(log: Log) -> str:
    return f'[tables."{log.db}.child"]\nforeign_keys = "accept"\n'


def test_a_key_that_came_and_went_has_the_table_read_again(log: Log) -> None:
    log.do(f"ALTER TABLE child ADD CONSTRAINT c {CASCADE}", "ALTER TABLE child DROP FOREIGN KEY c")
    unseen = find_unseen(log)
    assert unseen["child"].over
    assert not unseen["child"].accepted
    assert find_unseen(log, accept(log))["child"] == replace(unseen["child"], accepted=True)
    assert "ADD CONSTRAINT c" in unseen["child"].reason


def test_a_reading_that_begins_asks_for_the_keys_that_are_there(log: Log) -> None:
    log.do(f"ALTER TABLE child ADD {CASCADE}")
    log.mark()
    assert find_unseen(log) == {}, "a batch that gives no cause asks nothing"
    assert list(find_unseen(log, begins="child")) == ["child"]
    assert find_unseen(log, begins="parent") == {}


def test_another_server_is_asked_about_all_tables(log: Log) -> None:
    """So is the one that answers first in a run: an earlier version called tables live that are accepted."""
    log.do(f"ALTER TABLE child ADD {CASCADE}", f"CREATE TABLE other (id INT PRIMARY KEY, p INT, {CASCADE})")
    log.mark()
    unseen = find_unseen(log, server_before="the one before")
    assert list(unseen) == ["child"]
    assert not unseen["child"].over
    assert not unseen["child"].accepted
    accepted = find_unseen(log, accept(log), server_before="the one before")
    assert list(accepted) == ["child"]
    assert accepted["child"].accepted


def test_keys_that_change_nothing_or_that_of_others(log: Log) -> None:
    log.do(
        "CREATE TABLE other (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES child (id) ON DELETE CASCADE)",
        "ALTER TABLE child ADD FOREIGN KEY (p) REFERENCES parent (id) ON DELETE RESTRICT ON UPDATE NO ACTION",
        "ALTER TABLE child COMMENT 'REFERENCES parent (id) ON DELETE CASCADE'", "RENAME TABLE parent TO guardian",
        f"CREATE TABLE IF NOT EXISTS child (id INT PRIMARY KEY, p INT, {CASCADE})",
    )  # fmt: skip
    assert find_unseen(log) == {}


@pytest.mark.mysql(">= 9.6", "the server logs cascades")
def test_where_the_server_logs_cascades_every_key_is_followed(mysql_server: MySQLServer, mysql_db: str) -> None:
    assert mysql_server.logs_cascades, "the default"
    log = make(mysql_server, f"{mysql_db}_keys")
    try:
        log.do("INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (1, 1), (2, 2)")
        log.do(f"ALTER TABLE child ADD CONSTRAINT c {CASCADE}", "DELETE FROM parent WHERE id = 1")
        log.do("ALTER TABLE child DROP FOREIGN KEY c")
        assert find_unseen(log, begins="child") == {}
        assert find_unseen(log, server_before="the one before") == {}
        deleted = [row for row in log.rows() if row["_op"] == "d"]
        assert sorted(deleted, key=len) == [{"_op": "d", "id": 1}, {"_op": "d", "id": 1, "p": 1}]
        assert log.chunk("child") == [{"_op": "r", "id": 2, "p": 2}]
    finally:
        mysql_server.execute(f"DROP DATABASE {log.db}")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pipeline_stops_the_child_alone(
    spark: SparkSession, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the key is gone and the table is read again; its siblings go on all the while."""
    log.do("INSERT INTO parent VALUES (1), (2), (3)", "INSERT INTO child VALUES (1, 1), (2, 2), (3, 3)")
    follower = Follower(spark, log.server, log.db, tmp_path)
    assert set(follower.run().values()) == {"live"}
    before = follower.target("child")
    log.do(f"ALTER TABLE child ADD CONSTRAINT c {CASCADE}", "DELETE FROM parent WHERE id = 1")
    log.do("INSERT INTO child VALUES (4, 2)", "INSERT INTO parent VALUES (5)")
    with monkeypatch.context() as patch:
        patch.setattr("headgate.mysql.cascades", lambda *_: [])  # the key came when the run had begun
        assert follower.run() == {"parent": "live", "child": "stopped"}
        follower.assert_equal("parent")
        assert follower.run("child") == {"parent": "live", "child": "stopped"}
    assert follower.target("child") == before
    assert follower.outcomes() == {"child": {"stopped"}}
    state = follower.reports[-1].tables[f"{log.db}.child"]
    assert "c: ON UPDATE NO ACTION ON DELETE CASCADE" in str(state.reason)
    assert f"{log.db}.child is stopped: {state.reason}" in follower.reports[-1].warnings
    with pytest.raises(ServerSettingError, match=rf"foreign keys of {log.db}\.child"):
        check_source(follower.config)
    log.do("ALTER TABLE child DROP FOREIGN KEY c", "INSERT INTO child VALUES (6, 2)")
    assert follower.run() == {"parent": "live", "child": "stopped"}
    assert follower.run("child") == {"parent": "live", "child": "live"}
    follower.assert_equal("parent", "child")
    log.do(f"ALTER TABLE child ADD CONSTRAINT d {CASCADE}", "DELETE FROM parent WHERE id = 2")
    log.do("ALTER TABLE child DROP FOREIGN KEY d")
    assert follower.run() == {"parent": "live", "child": "live"}
    follower.assert_equal("parent", "child")
    assert follower.outcomes() == {"child": {"stopped", "held", "re-read"}}
