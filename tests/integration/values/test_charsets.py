"""Every code of every multi-byte character set, through the log and a SELECT, against the server's own CONVERT."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pymysql
import pytest

from headgate.catalog import ALIAS, MULTI_BYTE, NO_CODE, SINGLE_BYTE, Column, multi_byte_table, table_from_table_map
from headgate.columns import TableCodec, codec_for
from headgate.errors import DecodeError
from headgate.mysql import Connection, ConnectionSettings, select_blocks
from headgate.policies import Policies
from headgate_testing import MySQLServer
from tests.columns.cells import cells
from tests.integration.changes import Log
from tests.integration.logdump import log_end, read_table

DIGITS = "(SELECT 0 d" + "".join(f" UNION SELECT {digit}" for digit in range(1, 10)) + ")"


@contextlib.contextmanager
def session(server: MySQLServer) -> Iterator[tuple[pymysql.Connection, pymysql.cursors.Cursor]]:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SET sql_mode = '', cte_max_recursion_depth = 100000, max_error_count = 0, group_concat_max_len = 10000000"
        )
        yield connection, cursor


def store_codes(cursor: pymysql.cursors.Cursor, name: str, charset: str) -> None:
    """A table of every code of one, two or three bytes that a column of the set takes, by number."""
    cursor.execute(f"CREATE TABLE {name} (n INT, b VARBINARY(4), c VARCHAR(4) CHARACTER SET {charset})")
    for size, first, count in ((1, 0, 256), (2, 0x8000, 0x8000), (3, 0x8F0000, 0x10000)):
        if size == 3 and charset not in ("ujis", "eucjpms"):
            continue
        cursor.execute(
            f"INSERT IGNORE INTO {name} WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n"
            f" WHERE i < {first + count - 1}), x (i, b) AS (SELECT i, UNHEX(LPAD(HEX(i), {2 * size}, '0')) FROM n)"
            " SELECT i, b, b FROM x"
        )
    cursor.execute(f"DELETE FROM {name} WHERE HEX(b) <> HEX(c) OR CHAR_LENGTH(c) <> 1")


def both_roads(server: MySQLServer, name: str, fill: str, charset: str) -> tuple[pa.Array, pa.Array, list[str]]:
    """Column ``c`` of a table filled by ``fill``: from the log, from a SELECT, and as MySQL converts it."""
    with session(server) as (connection, cursor):
        cursor.execute(f"CREATE TABLE {name} (n INT PRIMARY KEY, c MEDIUMTEXT CHARACTER SET {charset})")
        start = log_end(connection)
        cursor.execute(f"INSERT INTO {name} {fill}")
        connection.commit()
        cursor.execute(f"SELECT CONVERT(c USING utf8mb4) FROM {name} ORDER BY n")
        converted = [row[0] for row in cursor.fetchall()]
        table_map, log = read_table(connection, start, name)
    codec = TableCodec(table_from_table_map(table_map))
    order = np.argsort(codec.from_log(log)[0].to_numpy())
    from_log = codec.from_log(log)[1].take(pa.array(order))
    with Connection.open(ConnectionSettings.from_url(server.url)) as reader:
        sql = f"SELECT {codec.select_list} FROM {name} ORDER BY n"
        from_text = pa.concat_arrays([codec.from_text(block)[1] for block in select_blocks(reader, sql)])
    return from_log, from_text, converted


@pytest.mark.parametrize("charset", sorted(MULTI_BYTE))
def test_every_code_converts_as_mysql_converts_it(mysql_server: MySQLServer, mysql_db: str, charset: str) -> None:
    name = f"{mysql_db}.codes"
    with session(mysql_server) as (connection, cursor):
        store_codes(cursor, name, charset)
        connection.commit()
        cursor.execute(f"SELECT n, HEX(CONVERT(CONVERT(c USING utf8mb4) USING {charset})) = HEX(b) FROM {name}")
        returns = {int(number): bool(same) for number, same in cursor.fetchall()}
    table = multi_byte_table(charset)
    known = {number: entry for number, entry in enumerate(table.codes.tolist()) if entry != NO_CODE}
    known |= {0x8F0000 | number: entry for number, entry in enumerate(table.triples.tolist()) if entry != NO_CODE}
    assert known.keys() == returns.keys()
    assert {number for number, entry in known.items() if not entry & ALIAS} == {
        n for n, same in returns.items() if same
    }
    fill = f"SELECT n >> 8, GROUP_CONCAT(c ORDER BY n SEPARATOR '') FROM {name} GROUP BY n >> 8"
    from_log, from_text, converted = both_roads(mysql_server, f"{mysql_db}.t", fill, charset)
    assert sum(map(len, converted)) == len(known) > 8000
    assert from_log.to_pylist() == converted
    assert from_text.to_pylist() == converted


SAMPLE = (0x81, 0x82, 0x84, 0x90, 0x95, 0xE3, 0xFE)
"""First bytes of four: both ends of the basic plane's codes, of the others', and codes without character."""


@pytest.mark.parametrize(
    "leads", [pytest.param(SAMPLE, id="sample"), pytest.param(range(0x81, 0xFF), id="all", marks=pytest.mark.slow)]
)
def test_gb18030_codes_of_four_bytes(mysql_server: MySQLServer, mysql_db: str, leads: tuple[int, ...]) -> None:
    several = " UNION ".join(f"SELECT {lead} d" for lead in leads)
    fill = (
        f"WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 125), a (d) AS ({several}),"
        " x (k, m, b) AS (SELECT a.d * 10 + p.d, n.i * 10 + q.d,"
        f" CHAR(a.d, 48 + p.d, 129 + n.i, 48 + q.d) FROM a, {DIGITS} p, n, {DIGITS} q)"
        " SELECT k, GROUP_CONCAT(b ORDER BY m SEPARATOR '') FROM x GROUP BY k"
    )
    from_log, from_text, converted = both_roads(mysql_server, f"{mysql_db}.t", fill, "gb18030")
    assert sum(map(len, converted)) == len(leads) * 12600
    assert from_log.to_pylist() == converted
    assert from_text.to_pylist() == converted


def test_single_bytes_that_a_key_may_have_are_those_that_mysql_writes(mysql_server: MySQLServer) -> None:
    for charset in SINGLE_BYTE:
        expressions = ", ".join(
            f"CONVERT(CONVERT(_{charset} 0x{byte:02x} USING utf8mb4) USING {charset}) = _{charset} 0x{byte:02x}"
            f" COLLATE {charset}_bin"
            for byte in range(256)
        )
        returns = [bool(value) for value in mysql_server.query(f"SELECT {expressions}")[0]]
        column = Column("k", "varchar", length=1, charset=charset, collation=f"{charset}_bin")
        codec = codec_for(column, table="d.t", key=True, policies=Policies())
        for byte in range(256):
            try:
                taken = bool(codec.from_text(cells(bytes([byte]))))
            except DecodeError:
                taken = False
            # Nine bytes of tis620 are U+FFFD, which says just that nobody knows what they are.
            assert taken == (returns[byte] and (charset, byte) != ("tis620", 0xFF)), (charset, byte)


@pytest.mark.parametrize(("charset", "first"), [("gbk", 0x8140), ("sjis", 0x889F)])
def test_chunks_by_a_key_of_a_multi_byte_set_are_exact(
    mysql_server: MySQLServer, mysql_db: str, charset: str, first: int
) -> None:
    """Keys written, deleted, and moved after E come out as they were at E, in chunks of 40 keys."""
    name = f"{mysql_db}.t"
    characters = multi_byte_table(charset).codes[first : first + 200]
    keys = [chr(entry) + "x" * (entry % 3) for entry in characters.tolist() if entry < ALIAS]
    values = ",".join(f"('{key}', 'old')" for key in keys)
    mysql_server.execute(
        f"CREATE TABLE {name} (k VARCHAR(9) CHARACTER SET {charset} PRIMARY KEY, v VARCHAR(9))",
        f"INSERT INTO {name} VALUES {values}",
    )
    log = Log(mysql_server, mysql_db, create=False)
    chunks = log.planned("t", 40)
    assert len(chunks) > len(keys) // 40
    mysql_server.execute(
        *(f"UPDATE {name} SET v = 'new' WHERE k = '{key}'" for key in keys[::7]),
        *(f"DELETE FROM {name} WHERE k = '{key}'" for key in keys[1::7]),
        *(f"UPDATE {name} SET k = CONCAT('山', k) WHERE k = '{key}'" for key in keys[2::7]),
        f"INSERT INTO {name} VALUES ('山', 'new'), ('水', 'new')",
    )
    items = log.chunks(chunks, log.start)
    rows = [row for item in items for row in item.batch.select(["k", "v"]).to_pylist()]
    assert sorted((row["k"], row["v"]) for row in rows) == sorted((key, "old") for key in keys)
