"""Failing over to a server without a setting that exactness rests on: each reader refuses it until it is mended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pymysql
import pytest
from typer.testing import CliRunner

from headgate.catalog import TablePatterns
from headgate.cli import app
from headgate.errors import BinlogPurgedError, Definite, ServerSettingError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.replication import DecodeOptions, Idle, follow
from headgate.spark import TablesAsOf
from headgate_testing import UNLOGGED_CASCADES, MySQLServer, Proxy, replica_pair
from tests.integration.bootstraps import first_part
from tests.integration.runs import Runs
from tests.integration.streams import Stream, make_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server

UNORDERED: dict[str, Any] = {"replica_parallel_workers": 2, "replica_preserve_commit_order": False}
UNLOGGED: dict[str, Any] = {"log_replica_updates": False}
FILTERED: dict[str, Any] = {"binlog_ignore_db": "other"}


class Pair(NamedTuple):
    """A primary, a replica that lacks something, and the address under which one or the other is reached."""

    primary: MySQLServer
    replica: MySQLServer
    proxy: Proxy

    @property
    def settings(self) -> ConnectionSettings:
        return ConnectionSettings.from_url(self.proxy.url)

    def stream(self, folder: Path) -> Stream:
        """A stream that has read both tables, by the address that stays."""
        make_tables(self.primary, "d")
        stream = Stream(self.primary, "d", folder, url=self.proxy.url)
        stream.finish()
        return stream

    def fail_over(self) -> None:
        """The replica, which goes on replicating, answers from now on; it has all that the primary has."""
        self.replica.wait_for(self.primary.gtid_executed)
        self.proxy.cut()
        self.proxy.aim(self.replica.host, self.replica.port)
        self.proxy.restore()


@contextmanager
def pair(replica_flags: dict[str, Any]) -> Iterator[Pair]:
    with replica_pair(replica_flags=replica_flags) as (primary, replica), Proxy("127.0.0.1", primary.port) as proxy:
        primary.execute("CREATE DATABASE d")
        yield Pair(primary, replica, proxy)


def refused(work: Callable[[], Any], setting: str) -> str:
    """The remedy, which ends the message."""
    with pytest.raises(ServerSettingError) as caught:
        work()
    assert isinstance(caught.value, Definite)
    begin, _, remedy = caught.value.message.partition(" is needed: ")
    assert re.fullmatch(rf"{setting} is \w+ on mysql://root@127\.0\.0\.1:\d+, but (ON|'')", begin)
    return remedy


def mend(server: MySQLServer, remedy: str) -> None:
    """Do what the message says."""
    server.execute(*[part.strip() for part in remedy.split(";") if part.strip()])


def test_a_replica_that_commits_in_an_order_of_its_own(tmp_path: Path) -> None:
    with pair(UNORDERED) as servers:
        stream = servers.stream(tmp_path)
        stream.do("UPDATE changes SET v = 'one'", "INSERT INTO sibling VALUES (99, 'new')")
        servers.fail_over()
        remedy = refused(stream.batch, "replica_preserve_commit_order")
        repeat = partial(stream.planner.tasks, stream.offset, stream.offset)
        assert refused(repeat, "replica_preserve_commit_order") == remedy
        mend(servers.replica, remedy)
        stream.server = servers.replica
        stream.finish()
        servers.replica.execute("SET GLOBAL binlog_order_commits = OFF")
        stream.do("UPDATE changes SET v = 'two'")
        mend(servers.replica, refused(stream.batch, "binlog_order_commits"))
        stream.finish()


def test_a_batch_that_was_planned_before(tmp_path: Path) -> None:
    """A restart hands out a planned batch without planning it again; by then another server answers, on which a later
    batch reads the chunk.
    """
    with pair(UNORDERED) as servers:
        stream = servers.stream(tmp_path)
        stream.do("UPDATE changes SET v = 'one'")
        stream.inbox.write("signals/again.json", {"type": "resnapshot", "tables": ["d.changes"]})
        end = stream.planner.latest(stream.offset)
        assert end.snapshot.chunks
        servers.fail_over()
        stream.restart()
        mend(servers.replica, refused(lambda: list(stream._read(end)), "replica_preserve_commit_order"))
        assert {row["_kind"] for batch in stream._read(end) for row in batch.to_pylist()} >= {"rows", "redo"}


@pytest.mark.parametrize("mended", ["promoted", "two workers"])
def test_what_a_replica_lacks_that_replicates_no_more_or_in_order(tmp_path: Path, mended: str) -> None:
    with pair(UNORDERED) as servers:
        stream = servers.stream(tmp_path)
        stream.do("UPDATE changes SET v = 'one'")
        servers.fail_over()
        if mended == "promoted":
            servers.replica.execute("STOP REPLICA", "RESET REPLICA ALL")
        else:
            servers.replica.execute("STOP REPLICA", "SET GLOBAL replica_preserve_commit_order = ON")
        stream.server = servers.replica
        stream.finish()


def test_a_replica_that_does_not_log_what_it_applies(tmp_path: Path) -> None:
    """Its GTIDs count as purged, so a stream would be told to read its tables again, there, and again and again."""
    with pair(UNLOGGED) as servers:
        stream = servers.stream(tmp_path)
        had = GtidSet.parse(stream.offset.gtid)
        stream.do("UPDATE changes SET v = 'one'")
        servers.fail_over()
        remedy = refused(stream.batch, "log_replica_updates")
        assert remedy == "restart the server with log_replica_updates=ON in its configuration"
        tables = TablePatterns(["d.*"])
        refused(lambda: next(iter(follow(servers.settings, had, DecodeOptions(tables)))), "log_replica_updates")
        servers.replica.restart({"log_replica_updates": True})
        with pytest.raises(BinlogPurgedError):
            stream.batch()


def test_a_server_whose_log_leaves_a_database_out(tmp_path: Path) -> None:
    """It leaves DDL of other databases out, too, if it is the session's default: nothing but the filter itself shows
    that it is missing.
    """
    with pair(FILTERED) as servers:
        stream = servers.stream(tmp_path)
        tail = follow(servers.settings, GtidSet.parse(stream.offset.gtid), DecodeOptions(TablePatterns(["d.sib*"])))
        assert isinstance(next(iter(tail)), Idle)
        stream.do("UPDATE sibling SET v = 'one'")
        servers.fail_over()
        for work in (stream.batch, lambda: list(tail)):
            remedy = refused(work, "binlog_ignore_db")
            assert remedy.startswith("restart the server without binlog_ignore_db; ")
            assert remedy.endswith("read the tables again")
        servers.replica.execute("STOP REPLICA", "CREATE DATABASE other")
        before = servers.replica.gtid_executed
        servers.replica.execute("USE other", "TRUNCATE d.sibling")
        assert not servers.replica.query("SELECT * FROM d.sibling")
        logged = servers.replica.query(f"SHOW BINLOG EVENTS IN '{servers.replica.log_status()[0]}'")
        assert servers.replica.gtid_executed == before
        assert not [row for row in logged if "TRUNCATE" in row[5]]


def test_readers_that_no_planner_stands_behind(tmp_path: Path) -> None:
    """Chunks of a relay's bootstrap and of ``headgate snapshot``, single rows for ``verify``; the log alone is fine."""
    with pair(UNORDERED) as servers:
        make_tables(servers.primary, "d")
        servers.fail_over()
        gtid, url = servers.replica.gtid_executed, servers.proxy.url
        (tmp_path / "secret").write_text("")
        past = TablesAsOf({"url": url, "password_file": str(tmp_path / "secret")})
        reads: list[Callable[[], Any]] = [
            lambda: first_part(servers.settings, "d.changes", GtidSet.parse(gtid)),
            lambda: past.rows("d.changes", gtid, [(1,)]).num_rows,
        ]
        remedies = {refused(read, "replica_preserve_commit_order") for read in reads}
        command = ["snapshot", url, "--tables", "d.*"]
        assert CliRunner().invoke(app, command).exit_code == 3
        tail = CliRunner().invoke(app, ["tail", url, "--tables", "d.*", "--from", "earliest", "--until-current"])
        assert (tail.exit_code, tail.stdout.count('"op": "c"') + tail.stdout.count('"op":"c"')) == (0, 24)
        mend(servers.replica, remedies.pop())
        assert not remedies
        for read in reads:
            read()
        assert CliRunner().invoke(app, command).exit_code == 0


@pytest.mark.mysql(">= 9.6", "the first server logs cascades")
def test_a_server_that_does_not_log_what_foreign_keys_do(spark: SparkSession, tmp_path: Path) -> None:
    """The tables they change are stopped with the first batch that it plans, though nothing in there speaks of them."""
    with pair(dict(UNLOGGED_CASCADES)) as servers:
        runs = Runs(spark, servers.primary, "d", tmp_path)
        runs._template_values["url"] = servers.proxy.url
        key = "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE"
        runs.do(
            "CREATE TABLE parent (id INT PRIMARY KEY)", f"CREATE TABLE child (id INT PRIMARY KEY, p INT, {key})",
            "INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (1, 1), (2, 2)",
        )  # fmt: skip

        def meanwhile(number: int) -> bool:
            if number == 1:
                assert {runs.state(f"d.{table}") for table in ("parent", "child")} == {"live"}
                servers.fail_over()
                runs.server = servers.replica
                runs.do("DELETE FROM parent WHERE id = 1")
            return number == 1

        runs.run(once=False, meanwhile=meanwhile)
        assert (runs.state("d.parent"), runs.state("d.child")) == ("live", "stopped")
        assert runs.rows("d.parent") == runs.source("d.parent")
        assert "ON DELETE CASCADE" in str(runs.reports[-1].tables["d.child"].reason)


@pytest.mark.mysql(plugin="group_replication")
@pytest.mark.parametrize(("flags", "why"), [(UNORDERED, "requires replica-preserve-commit-order"),
                                            (UNLOGGED, "LOG_REPLICA_UPDATES should be ON")])  # fmt: skip
def test_a_group_takes_no_member_without_the_settings(flags: dict[str, Any], why: str) -> None:
    """So nobody has to look for its channel, which SHOW REPLICA STATUS does not show."""
    with MySQLServer.start(flags) as server:
        server.execute("INSTALL PLUGIN group_replication SONAME 'group_replication.so'")
        server.execute("SET GLOBAL group_replication_group_name = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa'")
        with pytest.raises(pymysql.OperationalError, match="not configured properly"):
            server.execute("START GROUP_REPLICATION")
        assert why in (server.folder / "mysqld.log").read_text()
