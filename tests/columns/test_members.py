from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.columns import ZERO, codec_for
from headgate.errors import AmbiguousKeyError, DecodeError, UnsupportedError
from tests.columns.cells import decode

MEMBERS = st.lists(st.text(max_size=8), min_size=1, max_size=64).map(tuple)


@given(MEMBERS, st.data())
def test_enum(members: tuple[str, ...], data: st.DataObject) -> None:
    column = Column("c", "enum", charset="utf8mb4", members=members)
    indexes = data.draw(st.lists(st.integers(0, len(members))))
    texts = ["" if index == 0 else members[index - 1] for index in indexes]
    for size in (1, 2):
        assert decode(column, "log", *(index.to_bytes(size, "little") for index in indexes), None) == [*texts, None]
    assert decode(column, "text", *(text.encode() for text in texts), None) == [*texts, None]


@given(MEMBERS, st.data())
def test_set(members: tuple[str, ...], data: st.DataObject) -> None:
    column = Column("c", "set", charset="utf8mb4", members=members)
    numbers = data.draw(st.lists(st.integers(0, 2 ** len(members) - 1)))
    texts = [",".join(m for bit, m in enumerate(members) if number >> bit & 1) for number in numbers]
    assert decode(column, "log", *(number.to_bytes(8, "little") for number in numbers), None) == [*texts, None]


def test_text_comes_in_the_columns_character_set() -> None:
    column = Column("c", "enum", charset="latin2", members=("ł",))
    assert decode(column, "text", b"\xb3") == decode(column, "log", b"\x01") == ["ł"]


@pytest.mark.parametrize(
    ("kind", "value"), [("enum", b"\x03"), ("enum", b"\xff\xff"), ("set", b"\x04"), ("set", bytes(9))]
)
def test_a_value_that_the_column_does_not_have(kind: str, value: bytes) -> None:
    with pytest.raises(DecodeError, match=kind.upper()):
        decode(Column("c", kind, charset="utf8mb4", members=("a", "b")), "log", b"\x01", value)


@pytest.mark.parametrize(("kind", "member"), [("enum", b"\x02"), ("set", b"\x02")])
def test_a_key_whose_empty_text_may_be_two_values(kind: str, member: bytes) -> None:
    """The member '', and the 0 of no member at all: as text they would be one row."""
    column = Column("c", kind, charset="utf16", members=("a", ""))
    assert decode(column, "log", member, b"\x00", b"\x01") == ["", "", "a"]
    assert (
        decode(column, "log", member, b"\x01", key=True) == decode(column, "text", b"", b"\0a", key=True) == ["", "a"]
    )
    for road, zero in [("log", b"\0"), ("text", b"\0\0")]:
        with pytest.raises(AmbiguousKeyError, match="the value 0"):
            decode(column, road, zero, key=True)
    texts = [
        decode(column, "log", member, b"\x00", b"\x01", None, key=True, ambiguous_keys="spell"),
        decode(column, "text", b"", b"\0\0", b"\0a", None, key=True, ambiguous_keys="spell"),
    ]
    assert texts == [["", ZERO, "a", None]] * 2
    for charset, zero in [("utf8mb4", b"\0"), ("utf32", bytes(4))]:
        column = Column("c", kind, charset=charset, members=("a", ""))
        with pytest.raises(AmbiguousKeyError, match="the value 0"):
            decode(column, "text", zero, key=True)
    assert decode(Column("c", kind, charset="ascii", members=("a",)), "log", b"\x00", key=True) == [""]


@pytest.mark.parametrize(
    ("kind", "fine", "again"),
    [
        ("enum", {b"\x01": "a", b"\x02": "", b"\x04": "b"}, [b"\x03", b"\x05", b"\x00"]),
        ("set", {b"\x01": "a", b"\x02": "", b"\x09": "a,b"}, [b"\x04", b"\x0c", b"\x10", b"\x00"]),
    ],
)
def test_a_key_whose_text_may_be_two_values(kind: str, fine: dict[bytes, str], again: list[bytes]) -> None:
    """A session that is not strict may create a type with a member twice. Both are values, and keys of two rows."""
    column = Column("c", kind, charset="utf8mb4", members=("a", "", "a", "b", ""))
    assert decode(column, "log", *fine, None, key=True) == [*fine.values(), None]
    assert decode(column, "text", b"a", b"", b"b", None, key=True) == ["a", "", "b", None]
    for options in ({"key": True}, {"key": True, "ambiguous_keys": "spell"}):
        for road, value in [*(("log", value) for value in again), ("text", b"\0")]:
            with pytest.raises(AmbiguousKeyError, match=f"its {kind.upper()} column whose text another value has"):
                decode(column, road, value, **options)
    assert decode(column, "log", again[0]) == ["a"]


def test_members_that_information_schema_shows_alike_are_not_taken_for_one() -> None:
    column = Column("c", "enum", charset="utf8mb4", members=("?", "b", "?"))
    assert decode(column, "text", "\U0001f600".encode(), "\U0001f601".encode(), key=True) == [
        "\U0001f600",
        "\U0001f601",
    ]
    assert codec_for(column, table="d.t", key=True).select == "`c`"


def test_a_set_has_at_most_64_values() -> None:
    with pytest.raises(UnsupportedError):
        decode(Column("c", "set", charset="utf8mb4", members=tuple(map(str, range(65)))), "log")
