"""A table's definition is the same whether it is read from information_schema or from the log."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from headgate.catalog import TableDef, TablePatterns, load_stats, load_tables, table_from_table_map
from headgate.config import parse_config
from headgate.mysql import Connection, ConnectionSettings
from headgate.pipeline import check_source
from headgate_testing import MySQLServer
from tests.integration.logdump import log_end, read_table

ALL_TYPES = """
    a int unsigned not null, `b``q` bigint, ti tinyint unsigned, si smallint, mi mediumint unsigned zerofill,
    e enum('a', 'b''c', 'd\\\\e', 'f\\ng', 'h,i', 'ü'), eb enum('x', 'y') character set binary,
    el set('ł', 'y') character set latin2, eu enum('ü') character set utf16, f float, db double unsigned, y year,
    d decimal(10,2) unsigned not null, d2 decimal(65,30), p point, g geometry, gc geometrycollection,
    b1 bit(13), b2 bit(64), b3 bit(8), c char(100) character set utf8mb4, c2 char(255) character set utf8mb4,
    c0 char(0), cl char(5) character set latin1, bi binary(3), bi2 binary(255), vb varbinary(300),
    vc varchar(255) character set utf8mb4 collate utf8mb4_bin, vl varchar(3) character set gbk, x int as (a + 1),
    xs int as (a + 2) stored, iv int invisible, t1 tinytext, t2 text, t3 mediumtext character set latin1, t4 longtext,
    b4 tinyblob, bb blob, b5 mediumblob, lb longblob, j json, dt datetime(3), dt0 datetime, ts timestamp(6) null,
    ts0 timestamp null, tm time, tm5 time(5), da date, bl char(3) character set binary,
    primary key (d, a), index ((a + 5)), unique index ((si + 5))
"""


def both(server: MySQLServer, db: str, ddl: str, insert: str) -> tuple[TableDef, TableDef]:
    """``(from the log, from information_schema)``"""
    with contextlib.closing(server.connect()) as connection:
        server.execute(f"CREATE TABLE {db}.t ({ddl})")
        start = log_end(connection)
        server.execute(f"INSERT INTO {db}.t {insert}")
        table_map, _ = read_table(connection, start, f"{db}.t")
    (loaded,) = load_tables(server.query, TablePatterns([f"{db}.t"]))
    return table_from_table_map(table_map), loaded


def test_every_type(mysql_server: MySQLServer, mysql_db: str) -> None:
    types = ALL_TYPES if mysql_server.version_numbers < (9, 0) else f"v vector(3), {ALL_TYPES}"
    logged, loaded = both(mysql_server, mysql_db, types, "(a, d) VALUES (1, 2)")
    for ours, theirs in zip(logged.columns, loaded.columns, strict=True):
        assert ours == theirs
    assert logged == loaded
    assert logged.fingerprint == loaded.fingerprint
    assert loaded.key_names == ("d", "a")
    members = loaded.columns[loaded.index("e")].members
    assert members == ("a", "b'c", "d\\e", "f\ng", "h,i", "ü")
    assert [column.name for column in loaded.columns if column.generated] == ["x", "xs"]
    assert [column.name for column in loaded.columns if not column.visible] == ["iv"]


def test_a_unique_key_stands_in_for_a_primary_key(mysql_server: MySQLServer, mysql_db: str) -> None:
    ddl = (
        "a int not null, b varchar(20) not null, c int, d int not null, e int not null,"
        " unique k0 (b(5)), unique k1 (c), unique k2 ((a + 1)), unique z3 (d, a), unique k5 (e), index k6 (e)"
    )
    logged, loaded = both(mysql_server, mysql_db, ddl, "VALUES (1, 'a', 2, 3, 4)")
    assert logged.key_names == ("d", "a"), "the first in the table, neither by name nor by length"
    assert logged == loaded
    assert loaded.with_key(("e",)).key_names == ("e",)


@pytest.mark.parametrize(
    "ddl",
    [
        "a int not null, b int not null, unique z (b, a), unique y (a, b)",
        "a int not null, b int not null, unique y (b, a), unique z (a, b)",
        "a int not null, b varchar(9) not null, unique x (a, b(2)), unique y (b, a), unique a1 (a, b)",
    ],
)
def test_unique_keys_of_the_same_columns_in_other_orders(mysql_server: MySQLServer, mysql_db: str, ddl: str) -> None:
    logged, loaded = both(mysql_server, mysql_db, ddl, "VALUES (1, 2)")
    assert logged.key_names == loaded.key_names == ("b", "a")


@pytest.mark.parametrize(
    ("ddl", "key"),
    [
        ("a int not null, g int as (a + 1) virtual not null, unique u (g)", ()),
        ("a int not null, g int as (a + 1) virtual not null, unique u (a, g)", ()),
        ("a int not null, g int as (a + 1) virtual not null, unique u (g), unique w (a)", ("a",)),
        ("a int not null, g int as (a + 1) stored not null, unique u (g)", ("g",)),
        ("a tinyblob not null, unique u (a(255))", ("a",)),
        ("a text not null, unique u (a(10))", ()),
        ("a int not null, unique u ((a + 1))", ()),
    ],
)
def test_a_key_that_mysql_does_not_use_as_primary_is_none(
    mysql_server: MySQLServer, mysql_db: str, ddl: str, key: tuple[str, ...]
) -> None:
    """The log does not name it. So what information_schema has now would be taken for what it had then."""
    logged, loaded = both(mysql_server, mysql_db, ddl, "(a) VALUES (1)")
    assert logged == loaded
    assert loaded.key_names == key


def test_no_key_at_all(mysql_server: MySQLServer, mysql_db: str) -> None:
    logged, loaded = both(mysql_server, mysql_db, "a int, unique (a)", "VALUES (1)")
    assert logged == loaded
    assert loaded.key == ()


@pytest.mark.mysql(">= 8.0.30", "generated invisible primary keys")
def test_a_generated_invisible_primary_key_is_a_column(mysql_server: MySQLServer, mysql_db: str) -> None:
    with contextlib.closing(mysql_server.connect()) as connection, connection.cursor() as cursor:
        start = log_end(connection)
        cursor.execute("SET sql_generate_invisible_primary_key = ON")
        cursor.execute(f"CREATE TABLE {mysql_db}.t (a INT)")
        cursor.execute(f"INSERT INTO {mysql_db}.t VALUES (1)")
        table_map, _ = read_table(connection, start, f"{mysql_db}.t")
    with Connection.open(ConnectionSettings.from_url(mysql_server.url)) as session:
        (loaded,) = load_tables(session.query, TablePatterns([f"{mysql_db}.*"]))
    assert loaded == table_from_table_map(table_map)
    assert loaded.key_names == ("my_row_id",)


def test_only_base_tables_that_match(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.one (a INT PRIMARY KEY)",
        f"CREATE TABLE {mysql_db}.tmp_two (a INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE VIEW {mysql_db}.seen AS SELECT * FROM {mysql_db}.one",
    )
    for patterns in ([f"{mysql_db}.*", "!*.tmp_*"], [f"{mysql_db[:-1]}?.*", "!*.tmp_*"]):
        loaded = load_tables(mysql_server.query, TablePatterns(patterns))
        assert f"{mysql_db}.one" in [table.full_name for table in loaded]
        assert not {f"{mysql_db}.tmp_two", f"{mysql_db}.seen"} & {table.full_name for table in loaded}
    assert load_tables(mysql_server.query, TablePatterns(["!a.b"])) == []
    stats = load_stats(mysql_server.query, TablePatterns([f"{mysql_db}.*"]))
    assert {name: stat.engine for name, stat in stats.items()} == {
        f"{mysql_db}.one": "InnoDB", f"{mysql_db}.tmp_two": "MyISAM",
    }  # fmt: skip


def test_databases_with_a_dot_in_their_name_are_left_out(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``a.b.t`` would be table ``b.t`` of database ``a``."""
    (tmp_path / "secret").write_text(mysql_server._password)
    source = f'url = "{mysql_server.url}"\npassword_file = "{tmp_path / "secret"}"\ntables = ["{mysql_db}*.*"]'
    config = parse_config(f'name = "dots"\n[source]\n{source}\n[target]\npath = "{tmp_path}"')
    try:
        for db in (mysql_db, f"{mysql_db}.x"):
            mysql_server.execute(
                f"CREATE DATABASE IF NOT EXISTS `{db}`", f"CREATE TABLE `{db}`.`y.t` (id INT PRIMARY KEY)"
            )
        assert check_source(config) == [f"{mysql_db}.y.t"]
    finally:
        mysql_server.execute(f"DROP DATABASE `{mysql_db}.x`")
    expected = f'database {mysql_db}.x is not followed: its name has a dot; exclude it by "!{mysql_db}?x.*"'
    assert expected in caplog.messages
