from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate._cells import Cells
from headgate.catalog import SINGLE_BYTE, Column
from headgate.columns import codec_for
from headgate.errors import DecodeError, UnsupportedError
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
    for charset, characters in SINGLE_BYTE.items():
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
    with pytest.raises(DecodeError) as found:
        decode(text_column("utf8mb4"), "log", euro[:2], euro[2:])
    assert (found.value.table, found.value.column) == ("d.t", "c")


@pytest.mark.parametrize(
    ("charset", "value"),
    [
        ("utf16", b"a"), ("utf16", b"\xd8\x00"), ("utf16", b"\xd8\x00\x00a"), ("utf16", b"\xdc\x00"),
        ("utf16le", b"\x00\xd8a\x00"), ("ucs2", b"\xd8\x00\xdc\x00"), ("ucs2", b"abc"), ("utf32", b"\0\0a"),
        ("utf32", b"\0\x11\0\0"), ("utf32", b"\0\0\xd8\0"), ("ascii", b"\x80"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_text_of_the_set(charset: str, value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(text_column(charset), "log", value)


@pytest.mark.parametrize("charset", ["gbk", "sjis", "big5", "gb18030", "ujis", "euckr", "cp932"])
def test_a_character_set_without_a_converter_is_named(charset: str) -> None:
    with pytest.raises(UnsupportedError, match=charset) as found:
        codec_for(text_column(charset), table="d.t")
    assert (found.value.table, found.value.column) == ("d.t", "c")


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
