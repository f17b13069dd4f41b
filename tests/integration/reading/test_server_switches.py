"""Settings of the server that change in the middle of a stream: followed, or refused with the reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import SchemaAmbiguousError, ServerSettingError, UnsupportedError
from headgate.mysql import Connection
from headgate.policies import Policies
from headgate.replication import Ddl, WindowReader
from headgate_testing import MySQLServer
from tests.integration.changes import Log, plain
from tests.integration.streams import Stream

pytestmark = pytest.mark.needs_own_server


@pytest.fixture(scope="module")
def mysql_server() -> Iterator[MySQLServer]:
    with MySQLServer.start() as server:
        yield server


@pytest.fixture
def log(log: Log) -> Iterator[Log]:
    """What a test changes of the server's settings is put back."""
    before, server = settings(log.server), log.server
    yield log
    for name, value in settings(server).items():
        if before.get(name) != value:
            server.execute(f"SET GLOBAL {name} = '{before[name]}'")


def settings(server: MySQLServer) -> dict[str, str]:
    known = (
        "binlog_checksum", "binlog_row_metadata", "binlog_rows_query_log_events", "binlog_transaction_compression",
        "character_set_server", "collation_server", "character_set_client", "character_set_connection",
        "explicit_defaults_for_timestamp", "sql_mode", "time_zone",
    )  # fmt: skip
    listed = ", ".join(f"'{name}'" for name in known)
    rows = server.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
    return {str(row[0]): str(row[1]) for row in rows}


def table(log: Log, columns: str = "v INT") -> None:
    log.do(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    log.mark()


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def test_compression_of_single_sessions_and_of_all(log: Log) -> None:
    table(log, "v VARCHAR(1000)")
    stream = log.following()
    one, other = (log.server.connect(database=log.db, autocommit=True) for _ in range(2))
    with one, other, one.cursor() as plain_cursor, other.cursor() as cursor:
        for number in range(0, 12, 2):
            cursor.execute(f"SET SESSION binlog_transaction_compression = {'ON' if number % 4 else 'OFF'}")
            cursor.execute(f"SET SESSION binlog_transaction_compression_level_zstd = {number + 1}")
            cursor.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', 900))")
            plain_cursor.execute(f"INSERT INTO t VALUES ({number + 1}, NULL)")
    log.do("SET GLOBAL binlog_transaction_compression = ON")
    log.do("INSERT INTO t VALUES (12, REPEAT('y', 900))", "BEGIN", "UPDATE t SET v = 'z' WHERE id = 1", "COMMIT")
    rows = log.rows()
    assert ids(rows) == [*range(13), 1, 1]
    assert stream.rows() == rows
    stream.close()


def test_checksums_are_switched_off_and_on(log: Log) -> None:
    """The setting changes with a new file; all three readers go through both kinds in one dump."""
    table(log)
    stream = log.following()
    for number, kind in enumerate(("NONE", "CRC32", "NONE")):
        log.do(f"SET GLOBAL binlog_checksum = {kind}", f"INSERT INTO t VALUES ({2 * number}, 1)")
        log.do("SET binlog_transaction_compression = ON", f"INSERT INTO t VALUES ({2 * number + 1}, 1)")
    assert ids(log.rows()) == [*range(6)]
    assert ids(stream.rows()) == [*range(6)]
    stream.close()
    with Connection.open(log.settings) as connection:
        end = connection.log_status()
    window = WindowReader(log.settings, log.start, server_uuid=None, tables=log.tables)
    assert ids(plain(list(window.read_to(*end)))) == [*range(6)]


@pytest.mark.parametrize("kind", ["STATEMENT", "MIXED"])
def test_a_session_that_logs_statements_is_refused(log: Log, kind: str) -> None:
    table(log)
    log.do(f"SET SESSION binlog_format = {kind}", "INSERT INTO t VALUES (1, 1)")
    with pytest.raises(UnsupportedError, match=r"SET GLOBAL binlog_format = 'ROW', and in the session") as caught:
        log.rows()
    assert caught.value.statement == "INSERT INTO t VALUES (1, 1)"
    assert caught.value.gtid
    log.mark()
    log.do("INSERT INTO t VALUES (2, 2)")
    assert ids(log.rows()) == [2], "other sessions are as before"
    if kind == "MIXED":
        log.do(f"SET SESSION binlog_format = {kind}", "INSERT INTO t SELECT 3, CAST(RAND() * 0 AS SIGNED) + 7")
        assert log.rows()[1:] == [{"_op": "c", "id": 3, "v": 7}], "what is unsafe as a statement is logged as rows"


def test_time_zones_of_server_and_session(log: Log) -> None:
    """TIMESTAMP is an instant on both roads, in all zones of writers and readers; DATETIME is what was written."""
    table(log, "ts TIMESTAMP(3), d DATETIME, tm TIME")
    log.do("SET GLOBAL time_zone = '+09:00'")
    log.do("INSERT INTO t VALUES (1, '2024-03-31 10:30:00.125', '2024-03-31 10:30:00', '10:30:00')")
    log.do(
        "SET time_zone = '-02:30'", "INSERT INTO t VALUES (2, '2024-03-30 23:00:00.125', '2024-03-31 10:30:00', NULL)"
    )
    log.do("SET GLOBAL time_zone = 'SYSTEM'", "UPDATE t SET d = d + INTERVAL 1 SECOND WHERE id = 2")
    instant = dt.datetime(2024, 3, 31, 1, 30, 0, 125000, tzinfo=dt.UTC)
    rows = log.rows()
    assert [(row["id"], row["ts"]) for row in rows] == [(1, instant), (2, instant), (2, instant), (2, instant)]
    assert [row["d"].second for row in rows] == [0, 0, 0, 1]
    log.do("SET GLOBAL time_zone = '+05:45'")
    assert log.chunk("t") == [{**rows[0], "_op": "r"}, {**rows[3], "_op": "r"}]


NO_ZERO_DATES = Policies(zero_dates="null")
MODES = (
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT,IGNORE_SPACE,HIGH_NOT_PRECEDENCE,"
    "REAL_AS_FLOAT,NO_UNSIGNED_SUBTRACTION,TIME_TRUNCATE_FRACTIONAL,NO_ZERO_DATE,NO_ZERO_IN_DATE,STRICT_TRANS_TABLES"
)


def test_sql_modes_of_the_server_do_not_reach_the_reader(log: Log) -> None:
    columns = r"`q" "'\\` CHAR(8), e ENUM('a''b', 'c\\d', 'e\"f'), d DATE, u INT UNSIGNED, b BINARY(4)"
    table(log, columns)
    log.do(
        "SET sql_mode = ''", r"INSERT INTO t VALUES (1, 'x\\', 'c\\d', '0000-00-00', 1, 'k')",
        "INSERT INTO t VALUES (2, 'y', 'a''b', '2024-01-01', 2, 'k'), (3, '', 'e\"f', NULL, 0, '')",
    )  # fmt: skip
    logged, read = log.rows(policies=NO_ZERO_DATES), log.chunk("t", policies=NO_ZERO_DATES)
    assert [{**row, "_op": "r"} for row in logged] == read
    log.do(f"SET GLOBAL sql_mode = '{MODES}'")
    log.do("UPDATE t SET u = u + 1")
    later = log.chunk("t", policies=NO_ZERO_DATES)
    assert later == [{**row, "u": row["u"] + 1} for row in read]
    assert [{**row, "_op": "r"} for row in log.rows(policies=NO_ZERO_DATES) if row["_op"] == "u"] == later


def test_statements_of_every_sql_mode_are_understood(log: Log) -> None:
    table(log)
    log.do(f"SET GLOBAL sql_mode = '{MODES}'")
    log.do('ALTER TABLE "t" ADD COLUMN "a`b" INT DEFAULT 1', r"ALTER TABLE t COMMENT 'no escape: \'")
    log.do("SET sql_mode = ''", r"""ALTER TABLE `t` ADD COLUMN s INT COMMENT "an escape: \", DROP COLUMN v" """)
    log.do("INSERT INTO t VALUES (1, 2, 3, 4)")
    items = log.items()
    assert [item.action for item in items if isinstance(item, Ddl)] == ["alter"] * 3
    assert plain(items) == [{"_op": "c", "id": 1, "v": 2, "a`b": 3, "s": 4}]


def test_character_sets_of_server_database_and_client(log: Log) -> None:
    """Values are stored in the column's set, in all sets of clients; statements are logged in the client's."""
    table(log, "a VARCHAR(20) CHARACTER SET utf8mb4, b VARCHAR(20) CHARACTER SET koi8r")
    log.do("SET GLOBAL character_set_server = gbk", "SET GLOBAL character_set_client = latin1")
    log.do("SET GLOBAL character_set_connection = latin1")
    log.do(f"ALTER DATABASE {log.db} CHARACTER SET cp1251")
    for number, charset in enumerate(("utf8mb4", "cp1251", "koi8r"), 1):
        log.do(f"INSERT INTO t VALUES ({number}, 'имя', 'имя')", charset=charset)
    log.do("CREATE TABLE таблица (id INT PRIMARY KEY, имя VARCHAR(9))", charset="cp1251")
    log.do("INSERT INTO таблица VALUES (1, 'ы')", "ALTER TABLE t COMMENT '誠', ADD COLUMN c INT", charset="gbk")
    log.do("ALTER TABLE `таблица` RENAME COLUMN имя TO x", charset="koi8r")
    items = log.items()
    assert [row for row in plain(items) if "a" in row] == [
        {"_op": "c", "id": number, "a": "имя", "b": "имя"} for number in (1, 2, 3)
    ]
    assert [row for row in plain(items) if "имя" in row] == [{"_op": "c", "id": 1, "имя": "ы"}]
    assert [(item.action, item.table) for item in items if isinstance(item, Ddl)] == [
        ("create", "таблица"), ("alter", "t"), ("alter", "таблица"),
    ]  # fmt: skip
    assert log.chunk("t") == [{"_op": "r", "id": n, "a": "имя", "b": "имя", "c": None} for n in (1, 2, 3)]
    assert log.chunk("таблица") == [{"_op": "r", "id": 1, "x": "ы"}]


def test_statements_beside_rows(log: Log) -> None:
    table(log)
    log.do("SET GLOBAL binlog_rows_query_log_events = ON", "INSERT INTO t VALUES (1, 1)")
    log.do("INSERT INTO t VALUES (2, 2)", "SET binlog_rows_query_log_events = OFF", "INSERT INTO t VALUES (3, 3)")
    log.do("SET SESSION binlog_transaction_compression = ON", "DELETE FROM t WHERE id = 2")
    assert [(row["_op"], row["id"]) for row in log.rows()] == [("c", 1), ("c", 2), ("c", 3), ("d", 2)]


def test_timestamps_with_implicit_defaults(log: Log) -> None:
    log.do("SET GLOBAL explicit_defaults_for_timestamp = OFF")
    log.do("CREATE TABLE t (id INT PRIMARY KEY, a TIMESTAMP, b TIMESTAMP NULL)", "INSERT INTO t (id) VALUES (1)")
    (row,) = log.rows()
    assert (row["a"] is None, row["b"]) == (False, None)
    assert log.chunk("t") == [{**row, "_op": "r"}]


@pytest.mark.mysql(">= 8.0.30", "generated invisible primary keys")
def test_generated_primary_keys_and_tags(log: Log) -> None:
    """A tag on the GTID of single transactions, and keys that the server makes up, by session."""
    log.do("SET sql_generate_invisible_primary_key = ON", "CREATE TABLE t (v INT)", "INSERT INTO t VALUES (5), (6)")
    log.do(log.server.tagging("tagged"), "INSERT INTO t VALUES (7)", "SET gtid_next = 'AUTOMATIC'")
    log.do("INSERT INTO t VALUES (8)")
    assert log.rows() == [{"_op": "c", "my_row_id": n, "v": n + 4} for n in (1, 2, 3, 4)]
    assert len(log.chunk("t")) == 4


def test_anonymous_transactions_are_refused(log: Log, tmp_path: Path) -> None:
    table(log)
    log.do("INSERT INTO t VALUES (1, 1)")
    stream = log.following()
    assert ids(stream.rows()) == [1]
    planned = Stream(log.server, log.db, tmp_path)
    log.do("SET GLOBAL gtid_mode = ON_PERMISSIVE")
    try:
        log.do("INSERT INTO t VALUES (2, 2)")
        assert ids(stream.rows()) == [2]
        with pytest.raises(ServerSettingError, match="SET GLOBAL gtid_mode = ON, or OFF") as refused:
            planned.batch()
        assert refused.value.actual == "ON_PERMISSIVE"
        log.do("SET gtid_next = 'ANONYMOUS'", "INSERT INTO t VALUES (3, 3)", "SET gtid_next = 'AUTOMATIC'")
        log.do("INSERT INTO t VALUES (4, 4)")
        with pytest.raises(ServerSettingError, match="SET GLOBAL gtid_mode = ON") as caught:
            stream.rows()
        assert caught.value.setting == "gtid_mode"
        with pytest.raises(ServerSettingError, match="SET GLOBAL gtid_mode = ON"):
            log.rows()
    finally:
        log.do("SET GLOBAL gtid_mode = ON")
    with pytest.raises(ServerSettingError, match="read the tables again from a position after it"):
        log.rows()
    log.do("FLUSH BINARY LOGS")
    log.mark()
    log.do("INSERT INTO t VALUES (5, 5)")
    assert ids(log.rows()) == [5]


def test_a_restart_begins_table_ids_anew(log: Log) -> None:
    """Equal ids and equal bytes, before and after, with other names behind them: only the new file tells."""
    table(log, "a INT, b INT")
    stream = log.following()
    log.server.restart({"binlog_row_metadata": "MINIMAL"}, kill=True)
    log.do("INSERT INTO t VALUES (1, 10, 20)")
    assert stream.rows() == [{"_op": "c", "id": 1, "a": 10, "b": 20}]
    log.mark()
    log.do("INSERT INTO t VALUES (2, 10, 20)")
    assert ids(stream.rows()) == [2]
    log.do("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    log.server.restart({"binlog_row_metadata": "MINIMAL"}, kill=True)
    log.do("INSERT INTO t VALUES (3, 20, 10)")
    assert stream.rows() == [{"_op": "c", "id": 3, "b": 20, "a": 10}]
    stream.close()
    with pytest.raises(SchemaAmbiguousError):
        log.rows()
    assert plain(log.items(ambiguous="stop")) == [{"_op": "c", "id": 3, "b": 20, "a": 10}]
    log.server.restart({"binlog_row_metadata": "FULL"}, kill=True)
    log.do("INSERT INTO t VALUES (4, 20, 10)")
    assert ids(plain(log.items(ambiguous="stop"))) == [3, 4]
