"""Sessions with a server whose settings, or whose ``init_connect``, are as bad for us as possible."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from headgate import verify
from headgate.catalog import TableDef, TablePatterns, load_tables
from headgate.mysql import Connection, ConnectionSettings, Secret, commit_watermark, gtid_executed
from headgate.offsets import ChunkSpec
from headgate.policies import Policies
from headgate.replication import ImageBatch
from headgate.snapshot import ChunkOptions, ChunkRead, read_chunks
from headgate_testing import MySQLServer
from tests.integration.changes import planned
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_own_server

WORST: Final[dict[str, str]] = {
    "autocommit": "OFF",
    "big_tables": "ON",
    "binlog_direct_non_transactional_updates": "ON",
    "binlog_row_value_options": "'PARTIAL_JSON'",
    "binlog_rows_query_log_events": "ON",
    "block_encryption_mode": "'aes-256-cbc'",
    "character_set_client": "latin1",
    "character_set_connection": "latin1",
    "character_set_results": "latin1",
    "character_set_server": "ucs2",
    "collation_connection": "latin1_bin",
    "collation_server": "ucs2_bin",
    "completion_type": "'RELEASE'",
    "connection_memory_chunk_size": "0",
    "cte_max_recursion_depth": "0",
    "default_collation_for_utf8mb4": "utf8mb4_general_ci",
    "default_week_format": "7",
    "div_precision_increment": "0",
    "end_markers_in_json": "ON",
    "eq_range_index_dive_limit": "1",
    "explain_format": "'JSON'",
    "explicit_defaults_for_timestamp": "OFF",
    "foreign_key_checks": "OFF",
    "group_concat_max_len": "4",
    "information_schema_stats_expiry": "31536000",
    "innodb_lock_wait_timeout": "1",
    "innodb_table_locks": "OFF",
    "interactive_timeout": "1",
    "internal_tmp_mem_storage_engine": "'MEMORY'",
    "join_buffer_size": "128",
    "lc_messages": "de_DE",
    "lc_time_names": "ja_JP",
    "lock_wait_timeout": "1",
    "low_priority_updates": "ON",
    "max_error_count": "0",
    "max_execution_time": "1",
    "max_heap_table_size": "16384",
    "max_join_size": "1",
    "max_length_for_sort_data": "4",
    "max_points_in_geometry": "3",
    "max_seeks_for_key": "1",
    "max_sort_length": "4",
    "net_buffer_length": "1024",
    "net_read_timeout": "1",
    "net_retry_count": "1",
    "net_write_timeout": "1",
    "optimizer_max_subgraph_pairs": "1",
    "optimizer_prune_level": "0",
    "optimizer_search_depth": "1",
    "optimizer_switch": "'index_merge=off,mrr=off,derived_merge=off,materialization=off,semijoin=off'",
    "print_identified_with_as_hex": "ON",
    "profiling": "ON",
    "range_optimizer_max_mem_size": "1",
    "read_buffer_size": "8192",
    "read_rnd_buffer_size": "1",
    "secondary_engine_cost_threshold": "0.0",
    "session_track_gtids": "'ALL_GTIDS'",
    "session_track_schema": "ON",
    "session_track_state_change": "ON",
    "session_track_system_variables": "'*'",
    "session_track_transaction_info": "'CHARACTERISTICS'",
    "show_create_table_verbosity": "ON",
    "show_gipk_in_create_table_and_information_schema": "OFF",
    "sort_buffer_size": "32768",
    "sql_auto_is_null": "ON",
    "sql_big_selects": "OFF",
    "sql_buffer_result": "ON",
    "sql_generate_invisible_primary_key": "ON",
    "sql_mode": (
        "'ANSI,ANSI_QUOTES,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,NO_ZERO_DATE,"
        "NO_ZERO_IN_DATE,ONLY_FULL_GROUP_BY,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT,REAL_AS_FLOAT,STRICT_ALL_TABLES,"
        "TIME_TRUNCATE_FRACTIONAL,TRADITIONAL'"
    ),
    "sql_notes": "OFF",
    "sql_quote_show_create": "OFF",
    "sql_require_primary_key": "ON",
    "sql_safe_updates": "ON",
    "sql_select_limit": "1",
    "sql_warnings": "ON",
    "terminology_use_previous": "'BEFORE_8_0_26'",
    "time_zone": "'-11:30'",
    "tmp_table_size": "1024",
    "transaction_isolation": "'READ-UNCOMMITTED'",
    "transaction_read_only": "ON",
    "unique_checks": "OFF",
    "updatable_views_with_limit": "NO",
    "wait_timeout": "1",
    "windowing_use_high_precision": "OFF",
}
"""Global settings that sessions begin with, each with the value that could do the most harm. Those of one version
that another one lacks are skipped."""


ROWS: Final = 60


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start() as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.numbers (id INT PRIMARY KEY AUTO_INCREMENT, f FLOAT, d DOUBLE, n DECIMAL(9, 5), b BIT,"
            " y YEAR, e ENUM('a', 'b'), s SET('x', 'y'), j JSON)",
            "CREATE TABLE shop.texts (k VARCHAR(50) COLLATE utf8mb4_0900_ai_ci, n INT, c CHAR(9), l CHAR(5) CHARSET"
            " latin1, b BINARY(4), g GEOMETRY, t MEDIUMTEXT, PRIMARY KEY (k, n))",
            "CREATE TABLE shop.times (id BINARY(3) PRIMARY KEY, d DATE, t TIME(3), dt DATETIME(6), ts TIMESTAMP(3))",
            "CREATE TABLE shop.bare (v INT, w VARCHAR(9))",
            "CREATE TABLE shop.signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
            "CREATE USER reader@'%' IDENTIFIED BY 'x'",  # init_connect is not for administrators
            "GRANT SELECT ON shop.* TO reader@'%'",
            "GRANT INSERT, UPDATE ON shop.signals TO reader@'%'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'%'",
        )
        with server.connect(database="shop", autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_generate_invisible_primary_key = ON")
            cursor.execute("CREATE TABLE hidden (v INT)")
            cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
            cursor.execute("INSERT INTO hidden VALUES (7), (NULL)")
            for i in range(ROWS):
                cursor.execute(
                    f"INSERT INTO numbers VALUES ({i + 1}, {i} / 7, {i} / 7, {i} / 7, {i % 2}, 2000 + {i}, {i % 3}, 2,"
                    f" JSON_OBJECT('k', {i} / 4))"
                )
                cursor.execute(
                    f"INSERT INTO texts VALUES ('{'same' if i % 2 else 'Weiß'}{i // 4}\\\\', {i}, 'c  ', 'é', X'6100',"
                    f" POINT({i}, 1), REPEAT('\\\\''\"', {i}))"
                )
                day = f"2026-01-{i % 28 + 1:02} 01:02:03.999999"
                cursor.execute(
                    f"INSERT INTO times VALUES ({i}, '{'0000-00-00' if i == 1 else day[:10]}', '-{i}:59:59.999',"
                    f" '{day}', '{day}')"
                )
                cursor.execute(f"INSERT INTO bare VALUES (NULLIF({i % 5}, 3), '\"{i}')")
        yield server


@pytest.fixture
def settings(server: MySQLServer) -> ConnectionSettings:
    return ConnectionSettings(server.host, server.port, "reader", Secret(value="x"))


TABLES: Final = TablePatterns(("shop.*", "!shop.signals"))


def snapshot(server: MySQLServer, settings: ConnectionSettings) -> dict[str, tuple[TableDef, pa.Table]]:
    """Plan and read all tables, in chunks of a few rows, and commit a watermark."""
    with Connection.open(settings) as connection:
        commit_watermark(connection, "shop.signals", f"{id(connection)}")
        executed = gtid_executed(connection)
        chunks: list[ChunkSpec] = []
        for table in load_tables(connection.query, TABLES):
            chunks += planned(connection.query, table, 7)
    what = ChunkRead(settings, chunks, executed, server.server_uuid, epoch=1, planned_us=0)
    rows: dict[str, list[pa.Table]] = {}
    tables: dict[str, TableDef] = {}
    for item in read_chunks(what, ChunkOptions(Policies(zero_dates="text"))):
        assert isinstance(item, ImageBatch)
        tables[item.table.full_name] = item.table
        rows.setdefault(item.table.full_name, []).append(pa.Table.from_batches([item.batch]))
    joined = {}
    for name, parts in rows.items():
        table = pa.concat_tables(parts)
        table = table.select([one for one in table.column_names if one not in ("_seq", "_ts")])
        joined[name] = (tables[name], table.sort_by([(one, "ascending") for one in sort_columns(name)]))
    return joined


def sort_columns(name: str) -> list[str]:
    return {"shop.texts": ["k", "n"], "shop.bare": ["v", "w"], "shop.hidden": ["v"]}.get(name, ["id"])


@pytest.fixture(scope="module")
def expected(server: MySQLServer) -> dict[str, tuple[TableDef, pa.Table]]:
    rows = snapshot(server, ConnectionSettings(server.host, server.port, "reader", Secret(value="x")))
    assert {name: table.num_rows for name, (_, table) in rows.items()} == {
        "shop.numbers": ROWS, "shop.texts": ROWS, "shop.times": ROWS, "shop.bare": ROWS, "shop.hidden": 2,
    }  # fmt: skip
    return rows


@contextlib.contextmanager
def globals_set(server: MySQLServer, values: dict[str, str]) -> Iterator[list[str]]:
    """The globals that this server has have these values; yields their names."""
    before: dict[str, str] = {}
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL VARIABLES")
        known = {str(name): str(value) for name, value in cursor.fetchall()}
        try:
            for name in values.keys() & known.keys():
                before[name] = known[name]
                cursor.execute(f"SET GLOBAL {name} = {values[name]}")
            yield sorted(before)
        finally:
            for name, value in before.items():
                number = re.fullmatch(r"-?\d+(\.\d+)?", value)
                cursor.execute(f"SET GLOBAL {name} = {value if number else repr(value)}")


@pytest.mark.parametrize("name", sorted(WORST))
def test_each_setting_at_its_worst(
    server: MySQLServer, settings: ConnectionSettings, expected: dict[str, tuple[TableDef, pa.Table]], name: str
) -> None:
    with globals_set(server, {name: WORST[name]}) as changed:
        if not changed:
            pytest.skip(f"this server has no {name}")
        assert snapshot(server, settings) == expected


INIT_CONNECTS: Final = {
    "settings": "SET SESSION " + ", ".join(f"{name} = {value}" for name, value in WORST.items()),
    "a transaction": "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "a transaction without autocommit": "SET autocommit = 0; SELECT COUNT(*) FROM shop.bare",
    "a secondary engine": "SET SESSION use_secondary_engine = FORCED",
    "names": "SET NAMES latin1; SET CHARACTER SET latin1; USE shop",
}


@pytest.mark.parametrize("name", INIT_CONNECTS)
def test_an_init_connect(
    server: MySQLServer, settings: ConnectionSettings, expected: dict[str, tuple[TableDef, pa.Table]], name: str
) -> None:
    text = INIT_CONNECTS[name]
    if name == "settings":
        text = f"SET SESSION {', '.join(of_sessions(server))}"
    with globals_set(server, {"init_connect": repr(text)}):
        assert snapshot(server, settings) == expected
        with (
            Connection.open(settings) as connection,
            server.connect(autocommit=True) as other,
            other.cursor() as cursor,
        ):
            cursor.execute("SET SESSION lock_wait_timeout = 3")
            for _ in range(2):  # nothing keeps a read view, or locks a table against DDL
                cursor.execute("ALTER TABLE shop.bare COMMENT = ''")
                connection.query("SELECT COUNT(*) FROM shop.bare")
            cursor.execute("ALTER TABLE shop.bare COMMENT = ''")


def of_sessions(server: MySQLServer) -> list[str]:
    """The settings of :data:`WORST` that an account without privileges can set for its session."""
    values = []
    with Connection.open(ConnectionSettings(server.host, server.port, "reader", Secret(value="x"))) as connection:
        for name, value in WORST.items():
            with contextlib.suppress(Exception):
                connection.query(f"SET SESSION {name} = {value}")
                values.append(f"{name} = {value}")
    return values


@pytest.mark.long
def test_a_pipeline_and_verify_with_all_of_them(spark: SparkSession, server: MySQLServer, tmp_path: Path) -> None:
    runs = Runs(spark, server, "shop", tmp_path)
    runs.reads = 'zero_dates = "text"'
    runs.tables = '["shop.*", "!shop.signals"]'
    with globals_set(server, {**WORST, "init_connect": repr(f"SET SESSION {', '.join(of_sessions(server))}")}):
        runs.run()
        results = verify(runs.config())
    assert {(one.table, one.state, one.equal, one.differences) for one in results} == {
        *((f"shop.{name}", "live", ROWS, 0) for name in ("numbers", "texts", "times", "bare")),
        ("shop.hidden", "live", 2, 0),
    }
