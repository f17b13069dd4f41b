"""Columns that are dropped, renamed or widened within a batch: which of it is exact, and what a replay does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn
from headgate.lake import TableState
from headgate.sinks._actions import Reshape, Upsert
from headgate.sinks._alter import is_wider
from headgate.sinks._case import Arrival, Policy, TableBefore
from headgate.sinks._decide import Decision, decide
from headgate.sinks._shape import Target
from tests.fix_carrier import FakeBatch, FakeTable

NAME = "shop.orders"
BEFORE = FakeTable(columns=(("id", "bigint"), ("n", "int"), ("item", "string"), ("old", "string")))
AFTER = FakeTable(columns=(("id", "bigint"), ("n", "bigint"), ("name", "string")))
CHANGES = (RedefinedColumn("n", "n", "bigint"), RedefinedColumn("item", "name"), DroppedColumn("old"))
LIVE = TableState(NAME, "live", version=4)


def target_of(table: FakeTable, **more: dict[str, str]) -> Target:
    return Target(dict(table.columns), table.key, **more)  # type: ignore[arg-type]


def decided(fake: FakeBatch, target: Target, *, strict: bool = False) -> Decision:
    arrival = Arrival(NAME, fake.described())
    return decide(arrival, TableBefore(LIVE, target), Policy(changelog=False, strict=strict))


def altered(*changes: ColumnChange, schema: FakeTable | None = None) -> FakeBatch:
    return FakeBatch(9).ddl(NAME, "ALTER TABLE orders ...", "alter", 5, adds=changes, schema=schema)


def around(*changes: ColumnChange) -> FakeBatch:
    """Images before and after the statement."""
    fake = altered(*changes).images(BEFORE, [("c", 1, 1, 2, "x", "y")])
    return fake.images(AFTER, [("c", 9, 2, 3, "z")])


def kinds(decision: Decision) -> list[str]:
    return [type(action).__name__ for action in decision.actions]


def test_rows_from_before_and_after_an_alter_fit_the_columns_after_it() -> None:
    work = decided(around(*CHANGES), target_of(BEFORE))
    assert (kinds(work), work.state.state, work.reread) == (["Reshape", "Upsert"], "live", None)
    reshape, upsert = work.actions
    assert isinstance(reshape, Reshape)
    assert isinstance(upsert, Upsert)
    assert reshape.dropped == {"old"}
    assert reshape.renamed == {"name": "item"}
    assert reshape.definition.types == upsert.definition.types == dict(AFTER.columns)
    assert upsert.renamed == {"name": "item"}
    assert [outcome.done for outcome in work.outcomes] == ["applied"]


def test_a_replay_finds_the_columns_changed_and_writes_only_the_rows() -> None:
    work = decided(around(*CHANGES), target_of(AFTER))
    assert (kinds(work), work.state.state) == (["Upsert"], "live")
    upsert = work.actions[0]
    assert isinstance(upsert, Upsert)
    assert upsert.renamed == {"name": "item"}, "older images still have the name before"


def test_without_rows_the_definition_read_with_the_statement_counts() -> None:
    later = FakeTable(columns=(*AFTER.columns, ("later", "date")))
    work = decided(altered(*CHANGES, schema=later), target_of(BEFORE))
    assert (kinds(work), work.state.state) == (["Reshape"], "live")
    assert decided(altered(*CHANGES, schema=BEFORE), target_of(BEFORE)).reread
    assert decided(altered(*CHANGES), target_of(BEFORE)).reread


def test_added_columns_come_after_the_reshape() -> None:
    wider = FakeTable(columns=(*AFTER.columns, ("added", "int")))
    five = AddedColumn("added", nullable=False, default="5")
    work = decided(altered(*CHANGES, five, schema=wider), target_of(BEFORE))
    assert kinds(work) == ["Reshape", "AddColumns", "Fill"]


@pytest.mark.parametrize(
    "changes",
    [
        (DroppedColumn("old"), AddedColumn("old")),
        (DroppedColumn("old"), RedefinedColumn("item", "old")),
        (RedefinedColumn("item", "old"), RedefinedColumn("old", "item")),
        (RedefinedColumn("item", "name"), RedefinedColumn("name", "other")),
        (RedefinedColumn("ITEM", "name"), RedefinedColumn("n", "n", "bigint"), DroppedColumn("old")),
        (RedefinedColumn("unknown", "name"), *CHANGES[::2]),
        (DroppedColumn("id"), *CHANGES),
        (RedefinedColumn("n", "n", "smallint"), *CHANGES[1:]),
        (RedefinedColumn("n", "n", "bigint unsigned"), *CHANGES[1:]),
        CHANGES[:2],
        CHANGES[1:],
    ],
)
def test_what_is_not_certain_has_the_table_read_again(changes: tuple[ColumnChange, ...]) -> None:
    work = decided(around(*changes), target_of(BEFORE))
    assert (work.actions, work.state.state) == ((), "stale")
    assert [outcome.done for outcome in work.outcomes] == ["re-read"]


def test_a_column_with_a_rule_a_table_without_a_key_and_partial_images_are_read_again() -> None:
    assert decided(around(*CHANGES), target_of(BEFORE, rules={"old": "hash:1"})).reread
    keyless = Target(dict(BEFORE.columns), ())
    assert decided(altered(*CHANGES, schema=FakeTable(columns=AFTER.columns, key=())), keyless).reread
    assert decided(around(*CHANGES).images(AFTER, [("u", 20, 2, ..., "z")]), target_of(BEFORE)).reread


def test_a_narrower_type_of_the_same_spark_type_is_no_wider_one() -> None:
    narrow = altered(RedefinedColumn("n", "n", "mediumint"), schema=BEFORE)
    assert decided(narrow, target_of(BEFORE)).reread


@pytest.mark.parametrize("state", ["snapshotting", "settling", "stale", "stopped", "filtered"])
def test_a_table_that_lacks_rows_or_has_newer_ones_is_read_again(state: str) -> None:
    row = TableState(NAME, state, version=4, since_epoch=3 if state == "snapshotting" else None, held_epoch=4)
    arrival = Arrival(NAME, around(*CHANGES).described())
    work = decide(arrival, TableBefore(row, target_of(BEFORE)), Policy(changelog=False))
    assert (work.actions, work.state.state, bool(work.reread)) == ((), "stale", True)


def test_a_table_that_is_being_read_is_read_again() -> None:
    fake = around(*CHANGES).snapshot(NAME, 5, append=False)
    assert decided(fake, target_of(BEFORE)).reread


@pytest.mark.parametrize("change", CHANGES)
def test_images_that_the_log_does_not_name_have_the_table_read_again(change: ColumnChange) -> None:
    """Not stopped: the statement tells why they are ambiguous."""
    work = decided(altered(change, schema=AFTER).stop(NAME, "columns unknown"), target_of(BEFORE))
    assert (work.actions, work.state.state, bool(work.reread)) == ((), "stale", True)


def test_strict_stops_the_table() -> None:
    work = decided(around(*CHANGES), target_of(BEFORE), strict=True)
    assert (work.actions, work.state.state) == ((), "stopped")


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
    if is_wider(one[0], other[0]):
        assert all(holds(other[0], value) for value in one[1])


@pytest.mark.parametrize(
    ("spark", "mysql", "expected"),
    [
        ("int", "bigint", True),
        ("int", "int", True),
        ("int", "mediumint", False),
        ("int", "int unsigned", False),
        ("tinyint", "mediumint", True),
        ("bigint", "decimal(19,0)", True),
        ("bigint", "decimal(18,0)", False),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("decimal(10,2)", "decimal(12,2) unsigned", False),
        ("string", "bigint", False),
        ("double", "decimal(38,0)", False),
        ("int", "varchar(20)", False),
    ],
)
def test_wider_types(spark: str, mysql: str, expected: bool) -> None:
    assert is_wider(spark, mysql) is expected
