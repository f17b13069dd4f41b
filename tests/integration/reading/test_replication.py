"""Reading a real server's log: ranges, windows, following; complete or an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from headgate.binlog import codes
from headgate.catalog import TablePatterns
from headgate.errors import BinlogPurgedError, IncompleteReadError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, gtid_executed
from headgate.offsets import Hint
from headgate.replication import (
    Ddl,
    DecodeOptions,
    Idle,
    LogBlock,
    LogRead,
    RangeEnd,
    Transport,
    WindowReader,
    cut_in_order,
    follow,
    previous_gtids,
    read_range,
    transaction_headers,
)
from headgate_testing import MySQLServer
from tests.integration.changes import Log, images, note_heartbeats


def running_dumps(server: MySQLServer) -> set[int]:
    """Connections that read the log; also of readers that have gone, for a moment."""
    rows = server.query("SELECT id FROM performance_schema.processlist WHERE command LIKE 'Binlog Dump%'")
    return {int(row[0]) for row in rows}


def test_every_change_once_in_order(log: Log) -> None:
    log.mark()
    log.do(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "UPDATE t SET v = 'c' WHERE id = 1",
        "UPDATE t SET id = 9 WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
    )
    items = log.items()
    rows = images(items)
    assert [(row["_op"], row["id"], row["v"]) for row in rows] == [
        ("c", 1, "a"), ("c", 2, "b"), ("b", 1, "a"), ("u", 1, "c"), ("b", 2, "b"), ("u", 9, "b"), ("d", 1, "c"),
    ]  # fmt: skip
    assert [row["_seq"][3] for row in rows] == [0, 1, 0, 0, 0, 0, 0]
    assert isinstance(items[-1], RangeEnd)
    assert items[-1].gtid == log.executed()
    (ddl,) = [item for item in items if isinstance(item, Ddl)]
    assert (ddl.action, ddl.db, ddl.table) == ("create", log.db, "t")


def test_images_keys_leaves_out_unchanged_keys(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    log.mark()
    log.do("UPDATE t SET v = 5", "UPDATE t SET id = 3 WHERE id = 2")
    assert [(row["_op"], row["id"]) for row in log.rows(images="keys")] == [("u", 1), ("u", 2), ("b", 2), ("u", 3)]


def test_ordinals_do_not_depend_on_the_tables_chosen(log: Log) -> None:
    with log.server.connect(database=log.db) as connection, connection.cursor() as cursor:
        for name in "ab":
            cursor.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        log.mark()
        cursor.execute("BEGIN")
        for i in range(3):
            cursor.execute(f"INSERT INTO a VALUES ({i})")
            cursor.execute(f"INSERT INTO b VALUES ({i}), ({i + 10})")
        cursor.execute("COMMIT")
    both = {(row["table"], row["id"]): row["_seq"] for row in images(log.items())}
    only = {(row["table"], row["id"]): row["_seq"] for row in images(log.items(f"{log.db}.b"))}
    assert sorted(seq[3] for seq in both.values()) == list(range(9))
    assert only == {name: seq for name, seq in both.items() if name[0].endswith(".b")}


@pytest.mark.mysql(">= 8.3", "GTIDs with tags")
def test_tagged_gtids(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)")
    log.mark()
    with log.server.connect(database=log.db, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("SET gtid_next = 'AUTOMATIC:blue'")
        cursor.execute("INSERT INTO t VALUES (2)")
        cursor.execute("INSERT INTO t VALUES (3)")
        cursor.execute("SET gtid_next = 'AUTOMATIC'")
        cursor.execute("INSERT INTO t VALUES (4)")
    items = log.items()
    rows = images(items)
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert [":blue:" in row["_gtid"] for row in rows] == [False, True, True, False]
    assert {GtidSet.parse(row["_gtid"]).count() for row in rows} == {1}
    # and from a tagged position on
    end = log.executed()
    start = log.start | GtidSet.parse(rows[1]["_gtid"]) | GtidSet.parse(rows[0]["_gtid"])
    assert [row["id"] for row in log.rows(start=start, end=end)] == [3, 4]


def test_a_transaction_over_a_packet(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    log.mark()
    log.do(
        "INSERT INTO t VALUES (1, REPEAT('ab', 9000000))",
        "INSERT INTO t VALUES (2, 'small')",
        "INSERT INTO t VALUES (3, REPEAT('c', 33600000))",
    )
    rows = images(log.items())
    assert [(row["id"], len(row["v"])) for row in rows] == [(1, 18_000_000), (2, 5), (3, 33_600_000)]
    assert rows[0]["v"] == b"ab" * 9_000_000


def test_truncate_is_an_image_and_savepoints_are_nothing(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)")
    log.mark()
    with log.server.connect(database=log.db) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO t VALUES (2)")
        cursor.execute("ROLLBACK TO s")
        cursor.execute("COMMIT")
        cursor.execute("TRUNCATE TABLE t")
        cursor.execute("INSERT INTO t VALUES (3)")
        connection.commit()
    assert [(row["_op"], row.get("id")) for row in images(log.items())] == [("c", 1), ("t", None), ("c", 3)]


def test_a_window_reaches_the_position_asked_for(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = log.settings
    with Connection.open(settings) as connection:
        start = gtid_executed(connection)
        uuid = str(connection.query("SELECT @@server_uuid")[0][0])
        window = WindowReader(settings, start, server_uuid=uuid, tables=log.tables)
        assert images(window.read_to(*connection.log_status())) == []
        log.do("INSERT INTO t VALUES (1)")
        assert [row["id"] for row in images(window.read_to(*connection.log_status()))] == [1]
        assert images(window.read_to(*connection.log_status())) == []
        before = gtid_executed(connection)
        log.do("FLUSH BINARY LOGS", "INSERT INTO t VALUES (2)")
        assert [row["id"] for row in images(window.read_to(*connection.log_status()))] == [2]
        assert window.gtid == gtid_executed(connection)
        (newest,) = transaction_headers(LogRead(settings, wanted=window.gtid - before))
        assert window.last == newest.last


def test_hints_skip_nothing(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)")
    log.mark()
    log.do("INSERT INTO t VALUES (1)")
    end = log.items()[-1]
    log.mark()
    log.do("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
    assert [row["id"] for row in log.rows(hint=Hint(end.server_uuid, end.file, end.pos))] == [2, 3]


def test_files_begin_with_the_exact_set_before_them(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    before = log.executed()
    log.do("INSERT INTO t VALUES (1)")
    with Connection.open(log.settings) as connection:
        file, _ = connection.log_status()
    assert previous_gtids(log.settings, file) == before


def test_a_cut_in_order_holds_whole_transactions(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)")
    start = log.executed()
    for i in range(10):
        log.do(f"INSERT INTO t VALUES ({10 * i}), ({10 * i + 1})")
    end = log.executed()
    cut = cut_in_order(log.settings, start, end, limit_rows=4)
    assert start < cut <= end


@pytest.mark.needs_own_server
def test_purged_logs_and_other_servers_are_refused() -> None:
    with MySQLServer.start() as server:
        log = Log(server, "d")
        log.do("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        log.mark()
        log.do("INSERT INTO t VALUES (2)", "FLUSH BINARY LOGS")
        file, _ = server.log_status()
        assert [row["id"] for row in images(log.items())] == [2]
        with pytest.raises(ServerBehindError, match="planned on"):
            log.items(uuid="0" * 36)
        server.purge_log(file)
        with pytest.raises(BinlogPurgedError) as caught:
            log.items()
        assert GtidSet.parse(caught.value.needed) <= log.executed() - log.start


def test_a_killed_dump_is_not_taken_for_the_end(log: Log) -> None:
    """``KILL QUERY`` on the dump thread ends it with a clean EOF: the reader goes on and still delivers all, once."""
    log.do("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(250))")
    log.mark()
    values = ",".join(f"(REPEAT('x', {i % 250}))" for i in range(2000))
    for _ in range(60):
        log.do(f"INSERT INTO t (v) VALUES {values}")
    others, seen = running_dumps(log.server), 0
    killed: set[int] = set()
    for item in log.read():
        if isinstance(item, LogBlock):
            seen += sum(image.batch.num_rows for image in item.images)
            for thread in list(running_dumps(log.server) - others)[: 3 - len(killed)]:
                with contextlib.suppress(pymysql.err.OperationalError):  # it may have ended by itself
                    log.do(f"KILL QUERY {thread}")
                    killed.add(thread)
    assert killed
    assert seen == 120_000


def test_following(log: Log) -> None:
    log.do("CREATE TABLE t (id INT PRIMARY KEY)")
    start, others = log.executed(), running_dumps(log.server)
    stream: Iterator[Any] = follow(log.settings, start, DecodeOptions(log.tables))
    assert isinstance(next(item for item in stream if isinstance(item, Idle)), Idle)
    log.do("INSERT INTO t VALUES (1), (2)")
    block = next(item for item in stream if isinstance(item, LogBlock))
    assert [row["id"] for row in images([block])] == [1, 2]
    idle = next(item for item in stream if isinstance(item, Idle))
    assert idle.gtid == log.executed()
    # a cut connection is made again, and nothing comes twice
    (dump,) = running_dumps(log.server) - others
    log.do(f"KILL {dump}", "INSERT INTO t VALUES (3)")
    block = next(item for item in stream if isinstance(item, LogBlock))
    assert [row["id"] for row in images([block])] == [3]


def test_an_incomplete_range_is_an_error(log: Log) -> None:
    """Asked for a transaction that the server says it executed but its log does not hold."""
    pauses: list[float] = []
    ghost = GtidSet.parse("11111111-71ca-11e1-9e33-c80aa9429562:5")
    read = LogRead(log.settings, wanted=ghost, executed=log.executed())
    transport = Transport().retrying(tries=1, sleep=pauses.append)
    with pytest.raises(IncompleteReadError) as caught:
        list(read_range(read, DecodeOptions(TablePatterns(["d.*"])), transport))
    assert caught.value.missing == str(ghost)
    assert len(pauses) == 1


def test_a_dropped_database_is_told_although_its_tables_are_not_known(log: Log) -> None:
    other = f"{log.db}_other"
    log.do(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (id INT PRIMARY KEY)")
    log.mark()
    log.do(f"DROP DATABASE {other}")
    (ddl,) = [item for item in log.items(f"{other}.*") if isinstance(item, Ddl)]
    assert (ddl.action, ddl.db, ddl.table) == ("drop_database", other, "*")
    assert [item for item in log.items() if isinstance(item, Ddl)] == []


def test_a_server_names_whole_positions_behind_what_it_skips(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since 8.0.26 it sends HEARTBEAT_V2 if that is requested, and it does so before the next event."""
    log.do("CREATE TABLE t (id INT PRIMARY KEY)")
    skipped = log.executed()
    log.do("INSERT INTO t VALUES (1)")
    read = log.executed()
    log.do("INSERT INTO t VALUES (2)")
    end = log.executed()
    kinds = note_heartbeats(monkeypatch)
    (first,) = transaction_headers(LogRead(log.settings, wanted=read - skipped))
    hint = Hint(first.server_uuid, first.file, first.pos)
    wanted = LogRead(log.settings, wanted=end - read, hint=hint)
    kinds.clear()
    (second,) = transaction_headers(wanted)
    assert second.pos > first.pos
    assert set(kinds) == {codes.HEARTBEAT_V2}
