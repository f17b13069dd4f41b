"""Statements come in the client's character set; the members of ENUM and SET are in test_log.py."""

from __future__ import annotations

import pytest

from headgate.catalog import AddedColumn, Statement, decode_statement, no_break_space_is_white, parse_statement
from headgate.errors import UnsupportedError

LATIN1, CP866, UTF8MB4 = 8, 36, 255
ALTER = "ALTER TABLE `таблица` RENAME COLUMN `имя` TO x"


@pytest.mark.parametrize(
    ("text", "encoding", "collation"),
    [
        (ALTER, "utf-8", 255),
        (ALTER, "utf-8", 33),
        (ALTER, "utf-8", 63),
        (ALTER, "utf-8", 0),
        (ALTER, "cp1251", 51),
        (ALTER, "koi8-r", 7),
        ("DROP TABLE `表`", "cp932", 95),
        ("DROP TABLE `誠` /* 0x5C */", "gbk", 28),
        ("ALTER TABLE ü COMMENT '€'", "cp1252", 8),
        ("DROP TABLE `orders`", "ascii", 10),
    ],
)
def test_the_clients_character_set(text: str, encoding: str, collation: int) -> None:
    assert decode_statement(text.encode(encoding), collation) == text


def test_a_second_byte_is_no_backslash() -> None:
    """In GBK, 誠 ends in 0x5C, which would escape the quote behind it."""
    sql = decode_statement("ALTER TABLE t COMMENT '誠', DROP COLUMN a".encode("gbk"), 28)
    assert parse_statement(sql, "d").effects[0].adds is None
    assert parse_statement("ALTER TABLE t COMMENT '\udcd5\\', DROP COLUMN a", "d").kind == "unknown"


def test_bytes_that_are_no_text_lose_nothing() -> None:
    assert parse_statement(decode_statement(b"DROP TABLE t /* \xff */", 255), "d").effects[0].table == "t"


@pytest.mark.parametrize("collation", [28, 1, 19, 248, 12, 13, 24, 95, 97])
def test_bytes_that_are_no_text_of_a_multi_byte_set_lose_no_quote(collation: int) -> None:
    """MySQL's lexer, too, reads a byte that begins no code as one character."""
    (altered,) = parse_statement(decode_statement(b"ALTER TABLE t COMMENT '\xff', ADD a INT", collation), "d").effects
    assert altered.changes == (AddedColumn("a"),)
    assert decode_statement(b"SELECT '\x81'", collation) == "SELECT '\udc81'"
    assert decode_statement(b"SET @a = '\x8f\xa1'", collation).endswith("'")


def parsed(sql: str, encoding: str, collation: int) -> Statement:
    """The meaning of a statement that a client of this character set sent."""
    white = no_break_space_is_white(collation)
    return parse_statement(decode_statement(sql.encode(encoding), collation), "d", no_break_space=white)


@pytest.mark.parametrize(("encoding", "collation"), [("cp1252", LATIN1), ("cp866", CP866)])
def test_a_no_break_space_divides_words(encoding: str, collation: int) -> None:
    (truncated,) = parsed("TRUNCATE TABLE\u00a0orders", encoding, collation).effects
    assert (truncated.action, truncated.table) == ("truncate", "orders")
    (altered,) = parsed("ALTER\u00a0TABLE orders\u00a0ADD a INT\u00a0DEFAULT 5", encoding, collation).effects
    assert (altered.table, altered.changes) == ("orders", (AddedColumn("a", default="5"),))
    (dropped,) = parsed("DROP TABLE t --\u00a0, u", encoding, collation).effects
    assert dropped.table == "t"


@pytest.mark.parametrize("collation", [UTF8MB4, 63, 0, 9999])
def test_a_no_break_space_is_a_letter_in_utf_8(collation: int) -> None:
    assert not no_break_space_is_white(collation)
    assert parsed("DROP TABLE a\u00a0b", "utf-8", UTF8MB4).effects[0].table == "a\u00a0b"


def test_a_no_break_space_in_quotes_is_part_of_a_name() -> None:
    assert parsed("DROP TABLE `a\u00a0b`", "cp1252", LATIN1).effects[0].table == "a\u00a0b"


@pytest.mark.parametrize(("value", "collation"), [(b"DROP TABLE t", 9999), (b"DROP TABLE `k|p`", 10)])
def test_what_cannot_be_read(value: bytes, collation: int) -> None:
    with pytest.raises(UnsupportedError, match="a statement is not readable"):
        decode_statement(value, collation)
