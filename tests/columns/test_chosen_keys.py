"""Keys that users choose: what they need, and what a table's rows must have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec, check_chosen_keys, with_chosen_key
from headgate.errors import ChosenKeyError, ConfigError
from headgate.policies import Policies

INTEGERS = Column("a", "int"), Column("B", "bigint")
COLUMNS = (*INTEGERS, Column("f", "double"), Column("c", "decimal", precision=5, scale=2))
TABLE = TableDef("d", "t", COLUMNS, ())


def chosen(*names: str, **more: object) -> Policies:
    return Policies.make(more, {"d.t": {"key": names}})


def test_a_table_without_a_key_gets_the_chosen_one() -> None:
    policies = chosen("b", "a")
    table = with_chosen_key(TABLE, policies.of("d.t"))
    assert table.key_names == ("B", "a")
    assert table.has_chosen_key
    assert TableCodec(TABLE, policies).table == table
    assert policies.as_options()["key"] == '{"d.t": ["b", "a"]}'
    keyed = TABLE.with_key(["a"])
    assert with_chosen_key(keyed, policies.of("d.t")) is keyed
    assert not keyed.has_chosen_key
    assert with_chosen_key(TABLE, policies.of("d.u")) is TABLE
    with pytest.raises(ChosenKeyError, match="key: the table has no column 'z': choose other columns"):
        TableCodec(TABLE, chosen("z"))


def test_a_chosen_column_is_one_of_a_key() -> None:
    assert TableCodec(TABLE, chosen("c", decimals="double")).fields[3].type == pa.decimal128(5, 2)


@pytest.mark.parametrize(
    ("table", "names", "problem"),
    [
        (TABLE.with_key(["a"]), ["B"], r"has the key \(a\): remove `key`"), (TABLE, ["x"], "no column 'x'"),
        (TABLE, ["a", "f"], "column f of type double cannot be part of a key"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_key(table: TableDef, names: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^key of d.t: .*{problem}"):
        check_chosen_keys(chosen(*names), [table])
    check_chosen_keys(chosen("a", "B"), [TABLE])


CELL = st.one_of(st.none(), st.integers(0, 3))


@given(st.lists(st.tuples(CELL, CELL), max_size=6))
def test_rows_have_different_keys_without_null(cells: list[tuple[int | None, int | None]]) -> None:
    codec = TableCodec(TABLE, chosen("a", "B"))
    rows = pa.table({name: pa.array([row[i] for row in cells], pa.int64()) for i, name in enumerate(("a", "B"))})
    nulls = any(None in row for row in cells)
    if not nulls and len({*cells}) == len(cells):
        codec.check_keys(rows)
        return
    with pytest.raises(ChosenKeyError, match="NULL in" if nulls else "is not unique") as error:
        codec.check_keys(rows)
    if not nulls:
        repeated = [row for row in cells if cells.count(row) > 1]
        shown = [f"{cells.count(row)} rows have a={row[0]}, B={row[1]}" for row in repeated]
        assert any(text in str(error.value) for text in shown)


def test_a_key_column_whose_name_begins_with_a_dot() -> None:
    table = TableDef("d", "t", (Column(".a", "int"), Column("a", "int")), ())
    codec = TableCodec(table, chosen(".a"))
    codec.check_keys(pa.table({".a": pa.array([1, 2]), "a": pa.array([5, 5])}))
    with pytest.raises(ChosenKeyError, match=r"2 rows have \.a=1"):
        codec.check_keys(pa.table({".a": pa.array([1, 1]), "a": pa.array([5, 6])}))


def test_images_with_null_in_the_key_are_refused_if_they_count() -> None:
    codec = TableCodec(TABLE, chosen("a"))
    columns = [pa.nulls(2, field.type) for field in codec.fields]
    columns[0] = pa.array([1, None], codec.fields[0].type)
    codec.check_key(columns, pa.array([True, False]))
    for passes in (None, pa.array([False, True])):
        with pytest.raises(ChosenKeyError, match=r"key \(a\): a row has NULL in a"):
            codec.check_key(columns, passes)
    TableCodec(TABLE, Policies()).check_key(columns, None)
