"""Which types have all values of another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import keeps_values

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


Exact = tuple[int, int]
"""A value: an integer and its number of fraction digits."""


@st.composite
def numbers(draw: st.DrawFn) -> tuple[str, list[Exact]]:
    """A type and its extreme values."""
    if draw(st.booleans()):
        kind = draw(st.sampled_from([*BITS]))
        return kind, [(-(1 << (BITS[kind] - 1)), 0), ((1 << (BITS[kind] - 1)) - 1, 0)]
    digits = draw(st.integers(1, 38))
    scale = draw(st.integers(0, digits))
    return f"decimal({digits},{scale})", [(1 - 10**digits, scale), (10**digits - 1, scale)]


def holds(kind: str, value: Exact) -> bool:
    number, scale = value
    if kind in BITS:
        return scale == 0 and -(1 << (BITS[kind] - 1)) <= number < 1 << (BITS[kind] - 1)
    digits, places = map(int, kind[len("decimal(") : -1].split(","))
    scaled, rest = divmod(abs(number) * 10**places, 10**scale)
    return rest == 0 and len(str(scaled)) <= digits if scaled else rest == 0


@given(numbers(), numbers())
def test_a_wider_type_has_all_values_of_the_other(one: tuple[str, list[Exact]], other: tuple[str, list[Exact]]) -> None:
    if keeps_values(one[0], other[0]):
        assert all(holds(other[0], value) for value in one[1])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("mediumint", "int", True),
        ("int", "mediumint", False),
        ("int", "int unsigned", False),
        ("tinyint unsigned", "tinyint", False),
        ("tinyint unsigned", "smallint", True),
        ("bigint unsigned", "bigint", False),
        ("bigint unsigned", "decimal(20,0)", True),
        ("bigint unsigned", "decimal(20,0) unsigned", True),
        ("bigint unsigned", "decimal(19,0)", False),
        ("bigint", "decimal(20,0) unsigned", False),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("decimal(10,2) unsigned", "decimal(10,2)", True),
        ("decimal(10,2)", "decimal(10,2) unsigned", False),
        ("decimal(3,0)", "int", False),
        ("varchar(9)", "varchar(9)", True),
        ("varchar(9)", "varchar(10)", True),
        ("varchar(9)", "varchar(8)", False),
        ("varchar(9)", "text", True),
        ("varchar(9)", "tinytext", False),
        ("varchar(9)", "varbinary(90)", False),
        ("char(9)", "varchar(9)", False),
        ("binary(9)", "binary(10)", False),
        ("text", "mediumtext", True),
        ("mediumtext", "text", False),
        ("text", "varchar(9)", False),
        ("varbinary(9)", "longblob", True),
        ("enum('a','b')", "enum('a','b','c')", True),
        ("enum('a','b')", "enum('a','b')", True),
        ("enum('a','b')", "enum('b','a')", False),
        ("enum('a','b')", "enum('a','bc')", False),
        ("enum('a','b')", "enum('a')", False),
        ("enum('a')", "set('a','b')", False),
        ("set('a')", "set('a','b')", True),
        ("time", "bigint", False),
        ("string", "varchar(9)", False),
        ("double", "double", False),
    ],
)
def test_types(old: str, new: str, expected: bool) -> None:
    assert keeps_values(old, new) is expected
