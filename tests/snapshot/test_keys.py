"""Keys in SQL."""

from __future__ import annotations

import pytest

from headgate.catalog import Column, TableDef
from headgate.errors import SnapshotRefusedError
from headgate.names import quote_name
from headgate.snapshot import literal_expression
from headgate.snapshot.keys import key_columns, range_condition


@pytest.mark.parametrize(
    ("lo", "hi", "condition"),
    [
        (None, None, "TRUE"),
        (("1",), None, "((a > 1))"),
        (None, ("9",), "((a <= 9))"),
        (("1",), ("9",), "((a > 1)) AND ((a <= 9))"),
        (("1", "2"), None, "((a > 1) OR (a = 1 AND b > 2))"),
        (None, ("1", "2"), "((a < 1) OR (a = 1 AND b <= 2))"),
        (("1", "2", "3"), None, "((a > 1) OR (a = 1 AND b > 2) OR (a = 1 AND b = 2 AND c > 3))"),
    ],
)
def test_range_condition(lo: tuple[str, ...] | None, hi: tuple[str, ...] | None, condition: str) -> None:
    width = len(lo or hi or ("",))
    assert range_condition(["a", "b", "c"][:width], lo, hi) == condition


def test_a_bound_of_another_width_is_refused() -> None:
    with pytest.raises(SnapshotRefusedError):
        range_condition(["a"], ("1", "2"), None)


def test_names() -> None:
    assert quote_name("a`b") == "`a``b`"
    table = TableDef("d", "t", (Column("a", "int"), Column("b", "int"), Column("c", "int")), key=(2, 0))
    assert [column.name for column in key_columns(table)] == ["c", "a"]


@pytest.mark.parametrize(
    ("column", "expression"),
    [
        (Column("k", "int"), "CAST(`k` AS CHAR)"),
        (Column("k", "enum", members=("b", "a")), "CAST(CAST(`k` AS UNSIGNED) AS CHAR)"),
        (Column("k", "datetime", scale=3), "QUOTE(CAST(`k` AS CHAR))"),
        (Column("k`", "varchar", charset="latin1"), "CONCAT('_latin1 X''', HEX(`k```), '''')"),
        (Column("k", "varbinary"), "CONCAT('X''', HEX(`k`), '''')"),
    ],
)
def test_literals(column: Column, expression: str) -> None:
    assert literal_expression(column, "d.t") == expression


@pytest.mark.parametrize("kind", ["json", "geometry", "vector"])
def test_types_without_an_order_are_refused(kind: str) -> None:
    with pytest.raises(SnapshotRefusedError, match=r"d\.t.*column=k"):
        literal_expression(Column("k", kind), "d.t")
