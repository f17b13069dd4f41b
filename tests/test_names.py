"""How names are compared, and written into paths."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.errors import ConfigError, SchemaChangedError
from headgate.names import in_utf8mb3, lower_name, path_segment, split_table


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("Orders", "orders"),
        ("SİPARİŞ", "sipariş"),  # Python's lower() has a combining dot behind each i
        ("ΟΔΟΣ", "οδοσ"),  # and a final sigma
        ("ẞ", "ẞ"),
        ("ᎣᏏᏲ", "ᎣᏏᏲ"),
        ("ꭳ", "ꭳ"),
        ("Ⱥ", "Ⱥ"),
        ("𐐀", "𐐀"),
        ("ÄÉ表ß", "äé表ß"),
    ],
)
def test_lower_case_is_that_of_the_server(name: str, lower: str) -> None:
    assert lower_name(name) == lower


def test_every_character_becomes_one() -> None:
    lower = [lower_name(chr(code)) for code in range(0x11000)]
    assert {len(one) for one in lower} == {1}
    assert [lower_name(one) for one in lower] == lower
    assert sum(one != chr(code) for code, one in enumerate(lower)) == 696


def test_columns_are_found_as_the_server_finds_them() -> None:
    table = TableDef("d", "t", (Column("İD", "int"), Column("ⱥ", "int"), Column("Ⱥ", "int")))
    assert [table.index(name) for name in ("id", "Ⱥ", "ⱥ")] == [0, 2, 1]
    with pytest.raises(SchemaChangedError):
        table.index("i\u0307d")


def test_names_have_no_characters_beyond_utf8mb3() -> None:
    assert in_utf8mb3("a😀表") == "a?表"


ANY = st.text(st.characters() | st.sampled_from("aA-_.%hu0"), min_size=1, max_size=20)


def name_of(segment: str) -> str:
    """The name that a segment stands for; its letters may be in any case."""
    text, _, capitals = re.fullmatch(r"((?:--|-[0-9a-f]{4}|[a-z0-9_])*)(-u([0-9a-f]+))?", segment.lower()).groups()  # type: ignore[union-attr]
    units = [
        "-" if part == "--" else part if len(part) == 1 else chr(int(part[1:], 16))
        for part in re.findall("--|-....|.", text)
    ]
    name = "".join(units).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    upper = int(capitals or "0", 16)
    return "".join(one.upper() if upper >> index & 1 else one for index, one in enumerate(name))


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("orders", "orders"), ("order_items2", "order_items2"), ("a b", "a-0020b"), ("$x", "-0024x"), ("_x", "-005fx"),
        ("é", "-00e9"), ("my-shop", "my--shop"), ("a/b", "a-002fb"), ("a%2Fb", "a-00252Fb-u8"), ("..", "-002e-002e"),
        ("Orders", "Orders-u1"), ("SHOP", "SHOP-uf"), ("😀", "-d83d-de00"), ("表" * 51, "-8868" * 51),
    ],
)  # fmt: skip
def test_names_in_paths(name: str, segment: str) -> None:
    assert path_segment(name) == segment


@given(ANY)
def test_names_come_back_from_their_segment_in_any_case(name: str) -> None:
    segment = path_segment(name)
    assert re.fullmatch(r"[A-Za-z0-9-][A-Za-z0-9_-]*", segment)
    assert name_of(segment) == name_of(segment.upper()) == name


@given(st.text("ая_%x.-A", min_size=1, max_size=64), st.text("ая_%x.-A", min_size=1, max_size=64))
@example("т" * 64, "т" * 63 + "я")
@example("表" * 64, "表" * 52)
@example("A" * 64, "a" * 64)
@example("é" * 60, unicodedata.normalize("NFD", "é" * 60))
def test_segments_fit_and_differ_by_more_than_the_case_of_letters(left: str, right: str) -> None:
    for longest in (255, 180, 40):
        segments = {path_segment(name, longest).lower() for name in (left, right)}
        assert len(segments) == len({left, right})
        assert all(len(one) <= longest and re.fullmatch("(--|-[0-9a-f]{4}|-[uh][0-9a-f]+|[a-z0-9_])*", one)
                   for one in segments)  # fmt: skip


@pytest.mark.parametrize("name", ["orders", ".orders", "shop.", ""])
def test_a_table_needs_a_database(name: str) -> None:
    with pytest.raises(ConfigError, match=r"db\.table"):
        split_table(name)


def test_the_first_dot_separates() -> None:
    assert split_table("shop.a.b") == ("shop", "a.b")
