"""Streams that read the log from a relay: exact beside writers, through kills and failovers; many for one dump."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from headgate.errors import BinlogPurgedError, HistoryRewrittenError, ServerSettingError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.offsets import Hint
from headgate.relay.archive import LogOfRelay
from headgate.replication import cut_in_order
from headgate_testing import MySQLServer, Proxy, replica_pair
from tests.integration.reading.test_replication import running_dumps
from tests.integration.relay.test_binlog_archive import DEADLINE_SECONDS, do, keeping, read
from tests.integration.relay.test_relay import Process
from tests.integration.runs import Runs
from tests.integration.streams import Stream, begin, make_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dumps(server: MySQLServer) -> int:
    """Dumps that the server has ended since it started, and those that go on.

    A dump whose reader has gone ends some time later: it is in the first number or in the second, in both or in none if
    that is between the two questions.
    """
    while True:
        before = running_dumps(server)
        (ended,) = server.query(
            "SELECT SUM(COUNT_STAR) FROM performance_schema.events_statements_summary_global_by_event_name"
            " WHERE EVENT_NAME LIKE 'statement/com/Binlog Dump%'"
        )[0]
        if running_dumps(server) == before:
            return int(ended) + len(before)


def test_many_streams_cost_the_server_one_dump(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """The first reading of the tables, changes in windows, all as without a relay; the server is never asked."""
    server, db = mysql_server, mysql_db
    do(server, db, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")  # more than one file to search
    with keeping(server, tmp_path / "relay") as kept:
        make_tables(server, db)
        kept.wait_for(server.gtid_executed)
        before = dumps(server)
        streams = [Stream(server, db, folder(tmp_path / name), relay=kept.log.url) for name in "ab"]
        for n in range(4):
            for stream, table in zip(streams, ("changes", "sibling"), strict=True):
                kept.wait_for(server.gtid_executed)
                assert stream.batch(
                    f"UPDATE {table} SET v = 'm{n}' WHERE id < {3 * n + 4}",
                    f"DELETE FROM {table} WHERE id = {n + 7}",
                    f"INSERT INTO {table} VALUES ({100 + n}, 'new')",
                )
        kept.wait_for(server.gtid_executed)
        for stream in streams:
            stream.finish()
            assert not stream.redone
        assert dumps(server) == before


def test_a_stream_that_was_there_before_the_relay(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """What the relay does not have is an error, or the server is read until the relay's log begins."""
    server, db = mysql_server, mysql_db
    stream = begin(server, db, folder(tmp_path / "stream"))
    do(server, db, "UPDATE changes SET v = 'before'", "DELETE FROM sibling WHERE id < 4")
    with keeping(server, tmp_path / "relay") as kept:
        kept.wait_for(server.gtid_executed)
        stream.options = stream.options.model_copy(update={"relay": kept.log.url})
        stream.restart()
        with pytest.raises(BinlogPurgedError, match="relay_fallback"):
            stream.batch()
        stream.options = stream.options.model_copy(update={"relay_fallback": True})
        stream.restart()
        before = dumps(server)
        assert stream.batch("INSERT INTO changes VALUES (50, 'window')")
        assert dumps(server) > before
        stream.options = stream.options.model_copy(update={"relay_fallback": False})
        stream.restart()
        for n in range(3):
            do(server, db, f"UPDATE changes SET v = 'after {n}'", f"INSERT INTO sibling VALUES ({90 + n}, 'new')")
            kept.wait_for(server.gtid_executed)
            before = dumps(server)
            assert stream.batch()
            assert dumps(server) == before
        kept.wait_for(server.gtid_executed)
        stream.finish()


def folder(path: Path) -> Path:
    path.mkdir()
    return path


class Writer:
    """Changes rows of ``changes`` and ``sibling``, in transactions of both, as many as it may, until it is stopped."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self._server, self._db = server, db
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._news = threading.Condition()
        self._allowed = 0
        self.transactions = 0
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(DEADLINE_SECONDS)

    def stop(self) -> None:
        with self._news:
            self._stop.set()
            self._news.notify_all()

    def allow(self, transactions: int) -> None:
        """So many from now on: its followers should keep up."""
        with self._news:
            self._allowed = self.transactions + transactions
            self._news.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def wait_for(self, transactions: int) -> None:
        """Until it has written so many more, or has been stopped."""
        wanted = self.transactions + transactions
        with self._news:
            assert self._news.wait_for(lambda: self.transactions >= wanted or self.error, DEADLINE_SECONDS)
        assert self.error is None

    def _write(self) -> None:
        try:
            with self._server.connect(database=self._db, autocommit=False) as connection:
                while not self._stop.is_set():
                    n = self.transactions
                    with self._news:
                        self._news.wait_for(lambda n=n: self._allowed > n or self.stopped)  # type: ignore[misc]
                    with connection.cursor() as cursor:
                        for table in ("changes", "sibling"):
                            cursor.execute(f"REPLACE INTO {table} VALUES ({n * 7 % 31}, 'w{n % 1000}')")
                            cursor.execute(f"DELETE FROM {table} WHERE id = {n * 5 % 31}")
                            cursor.execute(f"UPDATE {table} SET id = id + 100 WHERE id = {n % 31}")
                            cursor.execute(f"DELETE FROM {table} WHERE id > 100 AND id % 3 = {n % 3}")
                    connection.commit()
                    with self._news:
                        self.transactions += 1
                        self._news.notify_all()
        except Exception as error:  # noqa: BLE001 - told by the test
            self.error = error


def through_kills(server: MySQLServer, db: str, tmp_path: Path, kills: int) -> None:
    """A relay is killed again and again beside a writer and a stream that reads from it; the copy is the tables."""
    make_tables(server, db)
    file = tmp_path / "relay.toml"
    file.write_text(
        f'state = "state"\nlog_disk_bytes = 10000000\n[[physical]]\nid = 1\nname = "t"\nurl = "{server.url}"\n'
        f'[[physical.sources]]\nid = 40\nname = "test.T"\ntable = "{db}.nothing"\n'
    )
    start, over = server.gtid_executed, threading.Event()
    with Proxy("127.0.0.1", 1) as proxy, Writer(server, db) as writer:
        url = f"http://127.0.0.1:{proxy.port}"

        def one_life(work: Callable[[Process], None]) -> None:
            with Process(file, "--from", start) as relay:
                proxy.aim("127.0.0.1", relay.port)
                proxy.restore()
                work(relay)

        def die(relay: Process) -> None:
            writer.wait_for(73)  # so that it dies anywhere in what the stream does
            relay.kill()

        def last(_: Process) -> None:
            writer.stop()
            over.wait(DEADLINE_SECONDS)

        def lives() -> None:
            for _ in range(kills):
                one_life(die)
            one_life(last)

        relays = threading.Thread(target=lives)
        relays.start()
        stream = Stream(server, db, folder(tmp_path / "stream"), relay=url, slots="2")
        stream.patience_seconds = DEADLINE_SECONDS
        while not writer.stopped:
            writer.allow(50)
            stream.batch()
        log, end = LogOfRelay(url), time.monotonic() + DEADLINE_SECONDS
        while not GtidSet.parse(server.gtid_executed) <= log.head().gtid:
            assert time.monotonic() < end
        stream.finish()
        over.set()
        relays.join(DEADLINE_SECONDS)
    assert writer.error is None


def test_a_pipeline(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    """Tables are read, and followed, with the log from a relay alone; then the copy is the tables."""
    server, db = mysql_server, mysql_db
    make_tables(server, db)

    def change(number: int) -> bool:
        if number == 3:
            return False
        do(
            server, db, f"REPLACE INTO changes VALUES ({number}, 'new'), ({number + 50}, 'new')",
            f"DELETE FROM sibling WHERE id = {number}", "UPDATE sibling SET id = id + 100 WHERE id = 9",
        )  # fmt: skip
        kept.wait_for(server.gtid_executed)
        return True

    with keeping(server, tmp_path / "relay") as kept:
        kept.wait_for(server.gtid_executed)
        before = dumps(server)
        runs = Runs(spark, server, db, tmp_path)
        runs.reads = f'relay = "{kept.log.url}"'
        reports = runs.run(once=False, meanwhile=change)
        assert reports[-1].gtid == server.gtid_executed
        for table in ("changes", "sibling"):
            assert runs.rows(f"{db}.{table}") == runs.source(f"{db}.{table}")
        assert dumps(server) == before
        runs.reads = f'relay = "{kept.log.url}"\nrelay_source = "other"'
        with pytest.raises(ServerSettingError, match="no physical source other"):
            runs.run()


def test_kills(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    through_kills(mysql_server, mysql_db, tmp_path, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    through_kills(mysql_server, mysql_db, tmp_path, 20)


@pytest.mark.needs_own_server
def test_failovers(tmp_path: Path) -> None:
    """A stream that is behind when its server is replaced reads each server's part by itself; the copy is exact."""
    with replica_pair() as (primary, replica), Proxy("127.0.0.1", primary.port) as proxy:
        primary.execute("CREATE DATABASE d")
        make_tables(primary, "d")
        url = primary.url.replace(f":{primary.port}", f":{proxy.port}")
        with keeping(primary, tmp_path / "relay", url=url) as kept:
            kept.wait_for(primary.gtid_executed)
            stream = Stream(primary, "d", folder(tmp_path / "stream"), relay=kept.log.url, url=url)
            while stream.batch():
                pass
            first = GtidSet.parse(stream.offset.gtid)
            do(primary, "d", "UPDATE changes SET v = 'one' WHERE id < 5", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
            do(primary, "d", "DELETE FROM sibling WHERE id = 3")
            replica.wait_for(primary.gtid_executed)
            kept.wait_for(primary.gtid_executed)
            cut = GtidSet.parse(primary.gtid_executed)
            replica.execute("STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = OFF")
            proxy.cut()
            proxy.aim("127.0.0.1", replica.port)
            proxy.restore()
            stream.server = replica
            do(replica, "d", "UPDATE changes SET v = 'two' WHERE id < 3", "INSERT INTO sibling VALUES (77, 'new')")
            kept.wait_for(replica.gtid_executed)
            assert [one.server_uuid for one in kept.log.head().series] == [primary.server_uuid, replica.server_uuid]
            assert stream.batch("UPDATE sibling SET v = 'meanwhile' WHERE id = 77")
            assert GtidSet.parse(stream.offset.gtid) == cut > first
            kept.wait_for(replica.gtid_executed)
            stream.finish()
            assert stream.offset.gtid == replica.gtid_executed
            whole = ConnectionSettings.from_url(url, log=kept.log)
            with pytest.raises(BinlogPurgedError, match=r"as server .* wrote it"):
                read(whole, replica, "d", GtidSet.parse(replica.gtid_executed) - first)


@pytest.mark.needs_own_server
def test_a_log_that_began_anew(tmp_path: Path) -> None:
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d")
        make_tables(server, "d")
        with keeping(server, tmp_path / "relay") as kept:
            do(server, "d", "UPDATE changes SET v = 'one'")
            kept.wait_for(server.gtid_executed)
        before = GtidSet.parse(server.gtid_executed)
        server.reset_log()
        for n in range(before.count()):
            do(server, "d", f"REPLACE INTO sibling VALUES (99, {n})")
        assert before <= GtidSet.parse(server.gtid_executed)
        with keeping(server, tmp_path / "relay") as kept:
            end = time.monotonic() + DEADLINE_SECONDS
            while kept.relay.status()[0] != "SUSPENDED_ON_ERROR":
                assert time.monotonic() < end
            with pytest.raises(HistoryRewrittenError, match="does not read the log any more"):
                kept.log.head()
        with keeping(server, tmp_path / "relay", anew=True) as kept:
            do(server, "d", "UPDATE changes SET v = 'two'")
            kept.wait_for(server.gtid_executed)
            assert len(kept.log.head().series) == 1


@pytest.mark.needs_own_server
def test_a_restored_log_in_a_file_of_the_same_name(tmp_path: Path) -> None:
    """The archive's end is a position between later transactions there."""
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        server.reset_log(at_s=1_600_000_000)
        for number in range(10):
            do(server, "d", f"INSERT INTO t VALUES ({number})")
        with keeping(server, tmp_path / "relay", had="") as kept:
            kept.wait_for(server.gtid_executed)
            position = kept.log.head().pos
        before = GtidSet.parse(server.gtid_executed)
        server.reset_log()
        server.execute(f"SET GLOBAL gtid_purged = '{before}'")
        for number in range(100, 130):
            do(server, "d", f"INSERT INTO t VALUES ({number})")
        ends = [row[4] for row in server.query("SHOW BINLOG EVENTS") if row[2] == "Xid"]
        assert position in ends[1:], "the position alone shows nothing"
        with keeping(server, tmp_path / "relay") as kept:
            kept.wait_for(server.gtid_executed)
            wanted = GtidSet.parse(server.gtid_executed) - before
            settings = replace(ConnectionSettings.from_url(server.url), log=kept.log)
            *rows, _ = read(settings, server, "d", wanted)
            assert [row["id"] for _, _, row in rows] == list(range(100, 130))
            hint = Hint(server.server_uuid, "binlog.000001", position, 1_600_000_000)
            plain = ConnectionSettings.from_url(server.url)
            first = cut_in_order(plain, before, before | wanted, limit_rows=1, hint=hint) - before
            assert next(first.intervals())[:3] == next(wanted.intervals())[:3]


@pytest.mark.needs_own_server
def test_a_log_that_was_purged_before_it_was_copied(tmp_path: Path) -> None:
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d")
        make_tables(server, "d")
        with keeping(server, tmp_path / "relay") as kept:
            do(server, "d", "UPDATE changes SET v = 'one'")
            kept.wait_for(server.gtid_executed)
            had = GtidSet.parse(server.gtid_executed)
        do(server, "d", "UPDATE changes SET v = 'two'")
        server.purge_log()
        with keeping(server, tmp_path / "relay") as kept:
            end = time.monotonic() + DEADLINE_SECONDS
            while kept.relay.status()[0] != "SUSPENDED_ON_ERROR":
                assert time.monotonic() < end
            with pytest.raises(BinlogPurgedError, match="any more: the server has purged log that is") as gone:
                kept.log.head()
            assert GtidSet.parse(gone.value.needed) == GtidSet.parse(server.gtid_executed) - had
        with keeping(server, tmp_path / "relay", anew=True) as kept:
            do(server, "d", "UPDATE changes SET v = 'three'")
            kept.wait_for(server.gtid_executed)
            assert kept.log.head().begin - had
