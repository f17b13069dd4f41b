"""Reading a real server's log: ranges, windows, following; complete or an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pymysql
import pytest

from headgate.binlog import codes
from headgate.binlog._events import Rotate, parse_heartbeat
from headgate.catalog import TablePatterns
from headgate.errors import BinlogPurgedError, IncompleteReadError, ServerBehindError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate.offsets import Hint
from headgate.replication import (
    Ddl,
    DecodeOptions,
    Idle,
    LogBlock,
    LogRead,
    RangeEnd,
    WindowReader,
    cut_in_order,
    follow,
    previous_gtids,
    read_range,
    transaction_headers,
)
from headgate.replication._transport import Transport
from headgate_testing import MySQLServer


def settings_of(server: MySQLServer) -> ConnectionSettings:
    return ConnectionSettings.from_url(server.url)


def executed(server: MySQLServer) -> GtidSet:
    with Connection.open(settings_of(server)) as connection:
        return gtid_executed(connection)


def images(items: Iterable[Any]) -> list[dict[str, Any]]:
    """All row images as dicts with ``table``; ``_seq`` flattened to a tuple; in ``_seq`` order."""
    out = []
    for item in items:
        if isinstance(item, LogBlock):
            for image in item.images:
                for row in image.batch.to_pylist():
                    row["table"] = image.table.full_name
                    row["_seq"] = tuple(row["_seq"].values())
                    out.append(row)
    return sorted(out, key=lambda row: row["_seq"])


def running_dumps(server: MySQLServer) -> set[int]:
    """Connections that read the log; also of readers that have gone, for a moment."""
    rows = server.query("SELECT id FROM performance_schema.processlist WHERE command LIKE 'Binlog Dump%'")
    return {int(row[0]) for row in rows}


class Range:
    """What a test does to the server between two points."""

    def __init__(self, server: MySQLServer, db: str, hint: Hint | None = None, **options: Any) -> None:
        self.server, self.db, self.hint, self.options = server, db, hint, options
        self.start = executed(server)

    def read(self, tables: list[str] | None = None) -> list[Any]:
        end = executed(self.server)
        patterns = TablePatterns(tables or [f"{self.db}.*"])
        return list(
            read_range(
                LogRead(settings_of(self.server), wanted=end - self.start, executed=end, hint=self.hint),
                DecodeOptions(patterns, epoch=1, **self.options),
            )
        )


def test_every_change_once_in_order(mysql_server: MySQLServer, mysql_db: str) -> None:
    span = Range(mysql_server, mysql_db)
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO {mysql_db}.t VALUES (1, 'a'), (2, 'b')",
        f"UPDATE {mysql_db}.t SET v = 'c' WHERE id = 1",
        f"UPDATE {mysql_db}.t SET id = 9 WHERE id = 2",
        f"DELETE FROM {mysql_db}.t WHERE id = 1",
    )
    items = span.read()
    rows = images(items)
    assert [(row["_op"], row["id"], row["v"]) for row in rows] == [
        ("c", 1, "a"), ("c", 2, "b"), ("b", 1, "a"), ("u", 1, "c"), ("b", 2, "b"), ("u", 9, "b"), ("d", 1, "c"),
    ]  # fmt: skip
    assert [row["_seq"][3] for row in rows] == [0, 1, 0, 0, 0, 0, 0]
    assert isinstance(items[-1], RangeEnd)
    assert items[-1].gtid == executed(mysql_server)
    (ddl,) = [item for item in items if isinstance(item, Ddl)]
    assert (ddl.action, ddl.db, ddl.table) == ("create", mysql_db, "t")


def test_images_keys_leaves_out_unchanged_keys(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, v INT)", f"INSERT INTO {mysql_db}.t VALUES (1, 1), (2, 2)"
    )
    span = Range(mysql_server, mysql_db, images="keys")
    mysql_server.execute(f"UPDATE {mysql_db}.t SET v = 5", f"UPDATE {mysql_db}.t SET id = 3 WHERE id = 2")
    assert [(row["_op"], row["id"]) for row in images(span.read())] == [("u", 1), ("u", 2), ("b", 2), ("u", 3)]


def test_ordinals_do_not_depend_on_the_tables_chosen(mysql_server: MySQLServer, mysql_db: str) -> None:
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        for name in "ab":
            cursor.execute(f"CREATE TABLE {mysql_db}.{name} (id INT PRIMARY KEY)")
        span = Range(mysql_server, mysql_db)
        cursor.execute("BEGIN")
        for i in range(3):
            cursor.execute(f"INSERT INTO {mysql_db}.a VALUES ({i})")
            cursor.execute(f"INSERT INTO {mysql_db}.b VALUES ({i}), ({i + 10})")
        cursor.execute("COMMIT")
    both = {(row["table"], row["id"]): row["_seq"] for row in images(span.read())}
    only = {(row["table"], row["id"]): row["_seq"] for row in images(span.read([f"{mysql_db}.b"]))}
    assert sorted(seq[3] for seq in both.values()) == list(range(9))
    assert only == {name: seq for name, seq in both.items() if name[0].endswith(".b")}


def test_compressed_transactions(mysql_server: MySQLServer, mysql_db: str) -> None:
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, v TEXT)")
        cursor.execute("SET SESSION binlog_transaction_compression = ON")
        span = Range(mysql_server, mysql_db)
        for n in range(20):
            cursor.execute(
                f"INSERT INTO {mysql_db}.t VALUES " + ",".join(f"({n * 100 + i}, REPEAT('x', 500))" for i in range(50))
            )
            connection.commit()
    rows = images(span.read())
    assert [row["id"] for row in rows] == [n * 100 + i for n in range(20) for i in range(50)]
    assert len({row["_seq"][2] for row in rows}) == 20
    assert all(len(row["v"]) == 500 for row in rows)


@pytest.mark.mysql(">= 8.3", "GTIDs with tags")
def test_tagged_gtids(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    span = Range(mysql_server, mysql_db)
    with mysql_server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
        cursor.execute("SET gtid_next = 'AUTOMATIC:blue'")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (2)")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (3)")
        cursor.execute("SET gtid_next = 'AUTOMATIC'")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (4)")
    items = span.read()
    rows = images(items)
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert [":blue:" in row["_gtid"] for row in rows] == [False, True, True, False]
    assert {GtidSet.parse(row["_gtid"]).count() for row in rows} == {1}
    # and from a tagged position on
    end = executed(mysql_server)
    start = span.start | GtidSet.parse(rows[1]["_gtid"]) | GtidSet.parse(rows[0]["_gtid"])
    rest = read_range(
        LogRead(settings_of(mysql_server), wanted=end - start, executed=end),
        DecodeOptions(TablePatterns([f"{mysql_db}.*"]), epoch=1),
    )
    assert [row["id"] for row in images(rest)] == [3, 4]


def test_a_transaction_over_a_packet(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, v LONGBLOB)")
    span = Range(mysql_server, mysql_db)
    mysql_server.execute(
        f"INSERT INTO {mysql_db}.t VALUES (1, REPEAT('ab', 9000000))",
        f"INSERT INTO {mysql_db}.t VALUES (2, 'small')",
        f"INSERT INTO {mysql_db}.t VALUES (3, REPEAT('c', 33600000))",
    )
    rows = images(span.read())
    assert [(row["id"], len(row["v"])) for row in rows] == [(1, 18_000_000), (2, 5), (3, 33_600_000)]
    assert rows[0]["v"] == b"ab" * 9_000_000


def test_truncate_is_an_image_and_savepoints_are_nothing(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    span = Range(mysql_server, mysql_db)
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
        cursor.execute("SAVEPOINT s")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (2)")
        cursor.execute("ROLLBACK TO s")
        cursor.execute("COMMIT")
        cursor.execute(f"TRUNCATE TABLE {mysql_db}.t")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (3)")
        connection.commit()
    assert [(row["_op"], row.get("id")) for row in images(span.read())] == [("c", 1), ("t", None), ("c", 3)]


def test_create_select_is_one_transaction(mysql_server: MySQLServer, mysql_db: str) -> None:
    span = Range(mysql_server, mysql_db)
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY) SELECT 1 AS id UNION SELECT 2")
    assert sorted(row["id"] for row in images(span.read())) == [1, 2]


def test_statements_in_place_of_rows_are_refused(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    span = Range(mysql_server, mysql_db)
    with mysql_server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
    with pytest.raises(UnsupportedError, match="binlog_format") as caught:
        span.read()
    assert "INSERT INTO" in caught.value.statement


def test_a_window_reaches_the_position_asked_for(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    settings = settings_of(mysql_server)
    with Connection.open(settings) as connection:
        start = gtid_executed(connection)
        uuid = str(connection.query("SELECT @@server_uuid")[0][0])
        window = WindowReader(settings, start, server_uuid=uuid, tables=TablePatterns([f"{mysql_db}.*"]))
        assert images(window.read_to(*connection.log_status())) == []
        mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
        assert [row["id"] for row in images(window.read_to(*connection.log_status()))] == [1]
        assert images(window.read_to(*connection.log_status())) == []
        mysql_server.execute("FLUSH BINARY LOGS", f"INSERT INTO {mysql_db}.t VALUES (2)")
        assert [row["id"] for row in images(window.read_to(*connection.log_status()))] == [2]
        assert window.gtid == gtid_executed(connection)


def test_hints_skip_nothing(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    span = Range(mysql_server, mysql_db)
    mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
    end = span.read()[-1]
    hint = Hint(end.server_uuid, end.file, end.pos)
    later = Range(mysql_server, mysql_db, hint=hint)
    mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (2)", f"INSERT INTO {mysql_db}.t VALUES (3)")
    assert [row["id"] for row in images(later.read())] == [2, 3]


def test_files_begin_with_the_exact_set_before_them(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    before = executed(mysql_server)
    mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
    with Connection.open(settings_of(mysql_server)) as connection:
        file, _ = connection.log_status()
    assert previous_gtids(settings_of(mysql_server), file) == before


def test_a_cut_in_order_holds_whole_transactions(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    start = executed(mysql_server)
    for i in range(10):
        mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES ({10 * i}), ({10 * i + 1})")
    end = executed(mysql_server)
    cut = cut_in_order(settings_of(mysql_server), start, end, limit_rows=4)
    assert start < cut <= end


@pytest.mark.needs_own_server
def test_purged_logs_and_other_servers_are_refused() -> None:
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        span = Range(server, "d")
        server.execute("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS")
        file, _ = server.log_status()
        assert [row["id"] for row in images(span.read())] == [2]
        end = executed(server)
        with pytest.raises(ServerBehindError, match="planned on"):
            list(
                read_range(
                    LogRead(settings_of(server), wanted=end - span.start, executed=end, server_uuid="0" * 36),
                    DecodeOptions(TablePatterns(["d.*"]), epoch=1),
                )
            )
        server.purge_log(file)
        with pytest.raises(BinlogPurgedError) as caught:
            span.read()
        assert GtidSet.parse(caught.value.needed) <= end - span.start


def test_a_killed_dump_is_not_taken_for_the_end(mysql_server: MySQLServer, mysql_db: str) -> None:
    """``KILL QUERY`` on the dump thread ends it with a clean EOF: the reader goes on and still delivers all, once."""
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(250))")
    span = Range(mysql_server, mysql_db)
    values = ",".join(f"(REPEAT('x', {i % 250}))" for i in range(2000))
    for _ in range(60):
        mysql_server.execute(f"INSERT INTO {mysql_db}.t (v) VALUES {values}")
    end, others = executed(mysql_server), running_dumps(mysql_server)
    reader = read_range(
        LogRead(settings_of(mysql_server), wanted=end - span.start, executed=end),
        DecodeOptions(TablePatterns([f"{mysql_db}.*"]), epoch=1),
    )
    seen = 0
    killed: set[int] = set()
    for item in reader:
        if isinstance(item, LogBlock):
            seen += sum(image.batch.num_rows for image in item.images)
            for thread in list(running_dumps(mysql_server) - others)[: 3 - len(killed)]:
                with contextlib.suppress(pymysql.err.OperationalError):  # it may have ended by itself
                    mysql_server.execute(f"KILL QUERY {thread}")
                    killed.add(thread)
    assert killed
    assert seen == 120_000


def test_following(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    start, others = executed(mysql_server), running_dumps(mysql_server)
    stream: Iterator[Any] = follow(settings_of(mysql_server), start, DecodeOptions(TablePatterns([f"{mysql_db}.*"])))
    assert isinstance(next(item for item in stream if isinstance(item, Idle)), Idle)
    mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (1), (2)")
    block = next(item for item in stream if isinstance(item, LogBlock))
    assert [row["id"] for row in images([block])] == [1, 2]
    idle = next(item for item in stream if isinstance(item, Idle))
    assert idle.gtid == executed(mysql_server)
    # a cut connection is made again, and nothing comes twice
    (dump,) = running_dumps(mysql_server) - others
    mysql_server.execute(f"KILL {dump}", f"INSERT INTO {mysql_db}.t VALUES (3)")
    block = next(item for item in stream if isinstance(item, LogBlock))
    assert [row["id"] for row in images([block])] == [3]


def test_an_incomplete_range_is_an_error(mysql_server: MySQLServer) -> None:
    """Asked for a transaction that the server says it executed but its log does not hold."""
    pauses: list[float] = []
    ghost = GtidSet.parse("11111111-71ca-11e1-9e33-c80aa9429562:5")
    read = LogRead(settings_of(mysql_server), wanted=ghost, executed=executed(mysql_server))
    transport = Transport().retrying(tries=1, sleep=pauses.append)
    with pytest.raises(IncompleteReadError) as caught:
        list(read_range(read, DecodeOptions(TablePatterns(["d.*"])), transport))
    assert caught.value.missing == str(ghost)
    assert len(pauses) == 1


def test_a_dropped_database_is_told_although_its_tables_are_not_known(mysql_server: MySQLServer, mysql_db: str) -> None:
    other = f"{mysql_db}_other"
    mysql_server.execute(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (id INT PRIMARY KEY)")
    span = Range(mysql_server, mysql_db)
    mysql_server.execute(f"DROP DATABASE {other}")
    (ddl,) = [item for item in span.read([f"{other}.*"]) if isinstance(item, Ddl)]
    assert (ddl.action, ddl.db, ddl.table) == ("drop_database", other, "*")
    assert [item for item in span.read([f"{mysql_db}.*"]) if isinstance(item, Ddl)] == []


def test_a_server_names_whole_positions_behind_what_it_skips(
    mysql_server: MySQLServer, mysql_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since 8.0.26 it sends HEARTBEAT_V2 if that is requested, and it does so before the next event."""
    kinds: list[int] = []

    def recorded(kind: int, body: bytes, end_pos: int) -> Rotate:
        kinds.append(kind)
        return parse_heartbeat(kind, body, end_pos)

    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY)")
    skipped = Range(mysql_server, mysql_db)
    mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
    read = Range(mysql_server, mysql_db)
    mysql_server.execute(f"INSERT INTO {mysql_db}.t VALUES (2)")
    end = executed(mysql_server)
    monkeypatch.setattr("headgate.binlog._frame.parse_heartbeat", recorded)
    (first,) = transaction_headers(LogRead(settings_of(mysql_server), wanted=read.start - skipped.start))
    hint = Hint(first.server_uuid, first.file, first.pos)
    wanted = LogRead(settings_of(mysql_server), wanted=end - read.start, hint=hint)
    kinds.clear()
    (second,) = transaction_headers(wanted)
    assert second.pos > first.pos
    assert set(kinds) == {codes.HEARTBEAT_V2}
