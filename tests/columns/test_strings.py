from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import ALIAS, MULTI_BYTE, NO_CODE, SINGLE_BYTE, Column, multi_byte_table, single_byte_text
from headgate.columns import codec_for
from headgate.errors import AmbiguousKeyError, DecodeError, UnsupportedError
from headgate.kernels import Cells
from tests.columns.cells import NOT_THERE, decode

TEXTS = st.lists(st.one_of(st.text(), st.text("abc", min_size=30, max_size=90), st.text("é日😀 ", max_size=20)))
WIDE = {"utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}


def text_column(charset: str) -> Column:
    return Column("c", "varchar", length=4000, charset=charset)


@given(TEXTS)
def test_utf8_is_copied(texts: list[str]) -> None:
    for road in ("log", "text"):
        values = [text.encode() for text in texts]
        assert decode(text_column("utf8mb4"), road, *values, None, NOT_THERE) == [*texts, None, None]


@pytest.mark.parametrize("charset", WIDE)
@given(texts=TEXTS)
def test_wide_character_sets(charset: str, texts: list[str]) -> None:
    assert decode(text_column(charset), "log", *(text.encode(WIDE[charset]) for text in texts), None) == [*texts, None]


@given(st.lists(st.binary()))
def test_single_bytes_go_through_the_servers_table(values: list[bytes]) -> None:
    for charset in sorted(SINGLE_BYTE):
        characters = single_byte_text(charset)
        expected = ["".join(characters[byte] for byte in value) for value in values]
        assert decode(text_column(charset), "text", *values) == expected


def test_latin1_is_windows_1252_with_its_holes_as_controls() -> None:
    assert decode(text_column("latin1"), "log", b"\x80\x81\xe9") == ["€\x81é"]


@given(st.binary(max_size=12))
def test_what_is_accepted_as_utf8_is_what_python_accepts(value: bytes) -> None:
    try:
        expected = value.decode()
    except UnicodeDecodeError:
        with pytest.raises(DecodeError, match="UTF-8"):
            decode(text_column("utf8mb4"), "log", b"fine", value)
    else:
        assert decode(text_column("utf8mb4"), "log", value) == [expected]


def test_characters_must_not_begin_in_one_value_and_end_in_the_next() -> None:
    euro = "€".encode()
    with pytest.raises(DecodeError) as caught:
        decode(text_column("utf8mb4"), "log", euro[:2], euro[2:])
    assert (caught.value.table, caught.value.column) == ("d.t", "c")


@pytest.mark.parametrize(
    ("charset", "value"),
    [
        ("utf16", b"a"), ("utf16", b"\xd8\x00"), ("utf16", b"\xd8\x00\x00a"), ("utf16", b"\xdc\x00"),
        ("utf16le", b"\x00\xd8a\x00"), ("ucs2", b"abc"), ("utf32", b"\0\0a"),
        ("utf32", b"\0\x11\0\0"), ("utf32", b"\0\0\xd8\0"), ("ascii", b"\x80"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_text_of_the_set(charset: str, value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(text_column(charset), "log", value)


PYTHONS = {
    "gbk": ("gbk", ""), "gb2312": ("gb2312", ""), "gb18030": ("gb18030", "\u1e3f\ue7c7"),
    "sjis": ("shift_jis", "\u00a5\u203e\uff3c"), "ujis": ("euc_jp", "\u00a5\u203e\uff3c"),
    "cp932": ("cp932", "\u0080\u00a2\u00a3\u00ac\u2016\u2212\u301c\uf8f0\uf8f1\uf8f2\uf8f3"),
    "eucjpms": ("euc_jp", "\u00a2\u00a3\u00a5\u00a6\u00ac\u2016\u203e\u2212\u301c"),
    "big5": ("big5", "\u02cd\u2574\uffe3"), "euckr": ("cp949", ""),
}  # fmt: skip
"""Python's codec of each set, and the characters that it writes in another way than MySQL reads."""


def encoded(charset: str) -> tuple[str, list[bytes]]:
    """Every character that Python's codec and MySQL's table should agree on, and the characters' codes."""
    codec, other = PYTHONS[charset]
    characters, codes = [], []
    for number in range(0x110000 if charset == "gb18030" else 0x10000):
        with contextlib.suppress(UnicodeEncodeError):
            codes.append(chr(number).encode(codec))
            characters.append(chr(number))
    kept = [place for place, character in enumerate(characters) if character not in other]
    if charset == "euckr":  # cp949 has more: MySQL's euckr ends where a second byte is no letter
        table = multi_byte_table(charset)
        kept = [place for place in kept if table.decode(codes[place]) is not None]
    return "".join(characters[place] for place in kept), [codes[place] for place in kept]


@pytest.mark.parametrize("charset", sorted(MULTI_BYTE))
def test_multi_byte_character_sets_are_read_as_python_reads_them(charset: str) -> None:
    text, codes = encoded(charset)
    assert len(text) > 7000
    pieces = [b"".join(codes[start : start + 5000]) for start in range(0, len(codes), 5000)]
    for road in ("log", "text"):
        decoded = decode(text_column(charset), road, *pieces, None, NOT_THERE)
        assert "".join(decoded[:-2]) == text
        assert decoded[-2:] == [None, None]


@pytest.mark.parametrize("charset", sorted(MULTI_BYTE))
@given(value=st.binary(max_size=24))
def test_any_bytes_are_text_or_an_error_and_names_are_read_alike(charset: str, value: bytes) -> None:
    text = multi_byte_table(charset).decode(value)
    if text is None:
        with pytest.raises(DecodeError, match=charset):
            decode(text_column(charset), "log", value)
    else:
        assert decode(text_column(charset), "log", b"", value, b"a" * 20) == ["", text, "a" * 20]


def test_a_code_without_character_is_a_question_mark_as_in_mysql() -> None:
    assert decode(text_column("gbk"), "log", b"\xa2\xa1\xaa\xa1") == ["\u2170?"]
    assert decode(text_column("gb18030"), "log", b"\xfe\x39\xfe\x39") == ["?"]
    assert decode(text_column("ucs2"), "log", b"\xd8\x00\xdc\x00\0a") == ["??a"]


@pytest.mark.parametrize(
    ("charset", "value"),
    [
        ("cp932", b"\xed\x40"), ("cp932", b"\x87\x90"),
        ("sjis", b"C:\x5c"), ("gbk", b"\xaa\xa1"), ("ujis", b"\xa1\xc0"),
        ("ujis", b"\x8f\xa2\xb7"), ("gb18030", b"\xfe\x39\xfe\x39"), ("cp1250", b"\x81"), ("armscii8", b"\xff"),
        ("ucs2", b"\0a\xdc\x00"),
    ],
)  # fmt: skip
def test_a_key_must_be_told_apart_by_its_text(charset: str, value: bytes) -> None:
    assert decode(text_column(charset), "log", value) != []
    with pytest.raises(AmbiguousKeyError, match="as a key must be") as caught:
        decode(text_column(charset), "log", b"fine?", value, key=True)
    assert caught.value.column == "c"


@pytest.mark.parametrize("charset", sorted(MULTI_BYTE))
def test_the_codes_that_a_key_may_have_mean_different_characters(charset: str) -> None:
    table = multi_byte_table(charset)
    entries = np.concatenate([table.codes, table.triples])
    exact = entries[(entries != NO_CODE) & (entries & np.uint32(ALIAS) == 0)]
    assert len(np.unique(exact)) == len(exact)


def test_an_unknown_character_set_is_named() -> None:
    with pytest.raises(UnsupportedError, match="klingon") as caught:
        codec_for(text_column("klingon"), table="d.t")
    assert (caught.value.table, caught.value.column) == ("d.t", "c")


@given(st.lists(st.binary(max_size=100)))
def test_bytes_are_copied(values: list[bytes]) -> None:
    for kind in ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"):
        assert decode(Column("c", kind), "log", *values, None) == [*values, None]


def test_binary_is_padded() -> None:
    column = Column("c", "binary", length=4)
    assert decode(column, "log", b"a", b"", None, b"abcd") == [b"a\0\0\0", bytes(4), None, b"abcd"]
    with pytest.raises(DecodeError, match="at most 4"):
        decode(column, "log", b"abcde")


def test_values_at_the_very_end_of_the_buffer() -> None:
    for size in range(1, 60):
        buf = np.frombuffer(bytearray(b"x" * size), np.uint8)
        one = np.ones(1, np.uint8)
        cells = Cells(buf, np.zeros(1, np.int64), np.full(1, size, np.int32), one)
        assert codec_for(text_column("utf8mb4"), table="d.t").from_log(cells).to_pylist() == ["x" * size]


def test_no_rows() -> None:
    for kind in ("varchar", "blob", "int", "json", "geometry", "vector", "date", "time", "double"):
        charset = "utf8mb4" if kind == "varchar" else None
        assert decode(Column("c", kind, charset=charset), "log") == []
        assert decode(Column("c", kind, charset=charset), "text") == []
