"""Which defaults tell the value of an added column in the rows there were."""

from __future__ import annotations

import pytest

from headgate.catalog import AddedColumn, existing_value


@pytest.mark.parametrize(
    ("mysql", "literal", "expected"),
    [
        ("int", "5", "5"),
        ("int", "'5'", "5"),
        ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
        ("tinyint", "+007", "7"),
        ("int", "1.5", None),
        ("decimal(10,2)", "1.5", "1.50"),
        ("decimal(10,2) unsigned", "'7'", "7.00"),
        ("decimal(10,2)", "-0", "0.00"),
        ("decimal(10,2)", "1.555", None),
        ("decimal(40,2)", "1", None),
        ("double", "0.5", "0.5"),
        ("double", "0.1", None),
        ("float", "-1.25", "-1.25"),
        ("float", "16777217", None),
        ("float", "0.0", "0.0"),
        ("varchar(5)", "'a b'", "a b"),
        ("varchar(5)", "'a b  '", "a b  "),
        ("varchar(5)", "'abcdef'", None),
        ("varchar(5)", "7", None),
        ("varchar(5)", "'é'", None),
        ("char(5)", "'a b  '", "a b"),
        ("enum('a','b')", "'b'", "b"),
        ("enum('a','b')", "'B'", None),
        ("enum('a','b')", "2", None),
        ("set('a','b')", "'b'", "b"),
        ("set('a','b')", "'b,a'", None),
        ("date", "'2024-02-29'", "2024-02-29"),
        ("date", "'2023-02-29'", None),
        ("date", "'0000-00-00'", None),
        ("date", "20240229", None),
        ("datetime", "'2024-02-29 01:02:03'", "2024-02-29 01:02:03"),
        ("datetime(3)", "'2024-02-29 01:02:03.5'", "2024-02-29 01:02:03.5"),
        ("datetime", "'2024-02-29 01:02:03.5'", None),
        ("timestamp", "'2024-02-29 01:02:03'", None),
        ("time", "'01:02:03'", None),
        ("bit(8)", "1", None),
        ("varbinary(5)", "'a'", None),
    ],
)
def test_literals(mysql: str, literal: str, expected: str | None) -> None:
    quoted = literal.startswith("'")
    assert existing_value(mysql, AddedColumn("c", default=literal.strip("'"), quoted=quoted)) == expected


@pytest.mark.parametrize(
    ("mysql", "expected"),
    [
        ("int unsigned", "0"),
        ("decimal(5,1)", "0.0"),
        ("double", "0.0"),
        ("varchar(9)", ""),
        ("char(9)", ""),
        ("enum('x','y')", "x"),
        ("enum('ü','y')", None),
        ("set('x','y')", ""),
        ("date", None),
        ("json", None),
        ("year", None),
    ],
)
def test_not_null_without_a_default(mysql: str, expected: str | None) -> None:
    assert existing_value(mysql, AddedColumn("c", nullable=False)) == expected


def test_a_definition_that_does_not_tell_the_value() -> None:
    column = AddedColumn("c", known=False)
    assert not column.is_null
    assert existing_value("int", column) is None
