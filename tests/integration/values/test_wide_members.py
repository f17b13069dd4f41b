"""ENUM and SET members with characters above U+FFFF: information_schema shows each of those as ``?``."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.catalog import exact_patterns, load_tables
from headgate.mysql import Connection
from headgate.replication import LogBlock
from headgate.snapshot import Redo
from tests.integration.changes import Log, plain

MEMBERS = "'?','\U0001f600','b','\U0001f601x','\U0001f602x','水'"
CHARSETS = ("utf8mb4", "utf16", "utf16le", "utf32", "gb18030")


def keys_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["e"], row["s"], row["n"]) for row in rows)


@pytest.mark.parametrize("charset", CHARSETS)
def test_both_roads_give_the_members(log: Log, charset: str) -> None:
    """As values and as the key, in every character set that has such characters."""
    kind = f"({MEMBERS}) CHARACTER SET {charset} COLLATE {charset}_bin"  # else all such characters are one
    columns = f"e ENUM {kind}, s SET {kind}, n INT, x ENUM {kind} NOT NULL DEFAULT '\U0001f601x', PRIMARY KEY (e, s)"
    log.do(f"CREATE TABLE t ({columns})", "CREATE TABLE u LIKE t")
    log.do(
        "INSERT INTO t (e, s, n) VALUES ('?', '\U0001f600,b', 1), ('\U0001f600', '?,水', 2), ('水', '', 3),"
        " ('\U0001f601x', '\U0001f601x,\U0001f602x', 4)"
    )
    log.mark()
    log.do("INSERT INTO u SELECT * FROM t")
    expected = sorted(
        [
            ("?", "\U0001f600,b", 1), ("\U0001f600", "?,水", 2), ("水", "", 3),
            ("\U0001f601x", "\U0001f601x,\U0001f602x", 4),
        ]
    )  # fmt: skip
    read, logged = log.chunk("t"), log.rows()
    assert keys_of(read) == keys_of(logged) == expected
    assert {row["x"] for row in read + logged} == {"\U0001f601x"}


@pytest.mark.parametrize("key", ["e", "e, s", "s, n"])
def test_chunks_of_such_a_key_are_turned_back(log: Log, key: str) -> None:
    """Where two members read alike in information_schema, too: a row's place is that of the log's member."""
    log.do(f"CREATE TABLE t (e ENUM({MEMBERS}), s SET({MEMBERS}), n INT, PRIMARY KEY ({key}))")
    log.do(
        "INSERT INTO t VALUES ('?', '?', 1), ('\U0001f600', '\U0001f600', 2), ('b', 'b', 3),"
        " ('\U0001f601x', '\U0001f601x', 4), ('\U0001f602x', '\U0001f602x', 5), ('水', '水', 6)"
    )
    before, end = keys_of(log.chunk("t")), log.executed()
    chunks = log.planned("t", 2)
    log.do("DELETE FROM t WHERE n IN (1, 2, 5)", "UPDATE t SET e = '?', s = '?' WHERE n = 4")
    log.do("UPDATE t SET n = 60 WHERE n = 6", "INSERT INTO t VALUES ('\U0001f602x', 'b,\U0001f602x', 7)")
    assert len(chunks) == 4
    read = []
    for chunk in chunks:
        items = log.chunks([chunk], end)
        assert not any(isinstance(item, Redo) for item in items)
        read += keys_of(plain(items))
    assert sorted(read) == before


def test_a_default_that_a_partial_image_leaves_out(log: Log) -> None:
    log.do(
        f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({MEMBERS}) DEFAULT '\U0001f600',"
        " s SET('\U0001f602', '?') NOT NULL DEFAULT '\U0001f602,?', n INT)"
    )
    log.mark()
    log.do("SET binlog_row_image = MINIMAL", "INSERT INTO t (id) VALUES (1)")
    assert log.rows() == [{"_op": "c", "id": 1, "e": "\U0001f600", "s": "\U0001f602,?", "n": None}]


def test_the_log_and_information_schema_differ_in_the_members_alone(log: Log) -> None:
    log.do(f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({MEMBERS}), v VARCHAR(3), s SET('a', '?'))")
    log.do("INSERT INTO t (id) VALUES (1)")
    (logged,) = [image.table for item in log.items() if isinstance(item, LogBlock) for image in item.images]
    with Connection.open(log.settings) as connection:
        (shown,) = load_tables(connection.query, exact_patterns([f"{log.db}.t"]))
    assert shown.columns[1].members == ("?", "?", "b", "?x", "?x", "水")
    assert shown != logged
    assert shown.with_members_of(logged) == logged
