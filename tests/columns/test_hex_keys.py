"""Values of keys that are spelled by their bytes where their text does not tell them apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import MULTI_BYTE, SINGLE_BYTE, Column, multi_byte_table
from headgate.columns import HEX_MARK, HexKey, needs_hex, read_hex_key
from tests.columns.cells import NOT_THERE, decode


def text_column(charset: str) -> Column:
    return Column("c", "varchar", length=4000, charset=charset)


def key_texts(charset: str, road: str, *values: object) -> list[str | None]:
    return decode(text_column(charset), road, *values, key=True, ambiguous_keys="spell")


ODD = [
    ("cp932", b"\xed\x40"), ("sjis", b"C:\x5c"), ("gbk", b"\xaa\xa1"), ("ujis", b"\xa1\xc0"), ("cp1250", b"\x81"),
    ("gb18030", b"\xfe\x39\xfe\x39"), ("gb18030", b"\xe3\x32\x9a\x35"), ("armscii8", b"\xff"), ("ucs2", b"\0a\xdc\0"),
    ("tis620", b"\xff"), ("swe7", b"a\xff"),
]  # fmt: skip


@pytest.mark.parametrize(("charset", "value"), ODD)
@pytest.mark.parametrize("road", ["log", "text"])
def test_only_what_does_not_come_back_is_spelled(charset: str, value: bytes, road: str) -> None:
    plain = b"\0x\0y" if charset == "ucs2" else b"xy"
    texts = key_texts(charset, road, plain, None, value, value, b"", NOT_THERE, plain)
    assert texts == ["xy", None, f"{HEX_MARK}{charset}:{value.hex()}", texts[2], "", None, "xy"]
    assert read_hex_key(texts[2]) == HexKey(charset, value)
    assert read_hex_key(texts[0]) is None


@pytest.mark.parametrize("charset", sorted({*SINGLE_BYTE, *MULTI_BYTE, "ucs2"}))
@given(values=st.lists(st.binary(max_size=8), min_size=2, max_size=8, unique=True))
def test_different_values_are_different_strings(charset: str, values: list[bytes]) -> None:
    """Of whatever bytes, also such as no column of the set can hold."""
    texts = key_texts(charset, "log", *values)
    assert len(set(texts)) == len(values)
    for value, text in zip(values, texts, strict=True):
        spelled = read_hex_key(text)
        if spelled is not None:
            assert spelled == HexKey(charset, value)
        elif charset in MULTI_BYTE:
            assert text == multi_byte_table(charset).decode(value)


@pytest.mark.parametrize("charset", ["utf8mb4", "utf16", "utf32"])
def test_sets_without_such_codes_have_the_mark_as_any_other_letter(charset: str) -> None:
    text = f"{HEX_MARK}gbk:00"
    stored = text.encode({"utf8mb4": "utf-8", "utf16": "utf-16-be", "utf32": "utf-32-be"}[charset])
    assert key_texts(charset, "log", stored) == [text]
    assert not needs_hex(text_column(charset))


def test_other_columns_have_question_marks_as_ever() -> None:
    assert decode(text_column("gbk"), "log", b"\xaa\xa1", ambiguous_keys="spell") == ["?"]


@pytest.mark.parametrize(
    ("members", "spelled"), [(("a", ""), True), (("a",), False), (("", f"{HEX_MARK}0"), False), (("", "?"), True)]
)
def test_which_enums_are_spelled(members: tuple[str, ...], spelled: bool) -> None:
    assert needs_hex(Column("c", "enum", charset="utf8mb4", members=members)) is spelled
