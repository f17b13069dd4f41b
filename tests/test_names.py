"""How names are compared."""

from __future__ import annotations

import pytest

from headgate.catalog import Column, TableDef
from headgate.errors import SchemaChangedError
from headgate.names import in_utf8mb3, lower_name


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
