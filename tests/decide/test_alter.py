"""Columns that are dropped, renamed or widened within a batch: which of it is exact, and what a replay does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn
from headgate.config import SchemaChangesConfig
from headgate.decide import Arrival, Decision, Policy, TableBefore, decide
from headgate.decide.actions import NoteTypes, Reshape, Upsert
from headgate.lake import TableState, Target
from tests.fix_carrier import FakeBatch, FakeTable

NAME = "shop.orders"
BEFORE = FakeTable(columns=(("id", "bigint"), ("n", "int"), ("item", "string"), ("old", "string")))
AFTER = FakeTable(columns=(("id", "bigint"), ("n", "bigint"), ("name", "string")))
CHANGES = (RedefinedColumn("n", "n", "bigint"), RedefinedColumn("item", "name"), DroppedColumn("old"))
LIVE = TableState(NAME, "live", version=4)


def decided(
    fake: FakeBatch, target: Target, config: SchemaChangesConfig | None = None, *, strict: bool = False
) -> Decision:
    policy = Policy(changelog=False, strict=strict, schema_changes=config or SchemaChangesConfig())
    return decide(Arrival(NAME, fake.described()), TableBefore(LIVE, target), policy)


def altered(*changes: ColumnChange, schema: FakeTable | None = None) -> FakeBatch:
    return FakeBatch(9).ddl(NAME, "ALTER TABLE orders ...", "alter", 5, adds=changes, schema=schema)


def around(*changes: ColumnChange) -> FakeBatch:
    """Images before and after the statement."""
    fake = altered(*changes, schema=AFTER).images(BEFORE, [("c", 1, 1, 2, "x", "y")])
    return fake.images(AFTER, [("c", 9, 2, 3, "z")])


def kinds(decision: Decision) -> list[str]:
    return [type(action).__name__ for action in decision.actions]


def test_rows_from_before_and_after_an_alter_fit_the_columns_after_it() -> None:
    work = decided(around(*CHANGES), BEFORE.target())
    assert (kinds(work), work.state.state, work.reread_reason) == (["Reshape", "NoteTypes", "Upsert"], "live", None)
    reshape, note, upsert = work.actions
    assert note == NoteTypes(AFTER.target())
    assert isinstance(reshape, Reshape)
    assert isinstance(upsert, Upsert)
    assert reshape.dropped == {"old"}
    assert reshape.renamed == {"name": "item"}
    assert reshape.definition.types == upsert.definition.types == dict(AFTER.columns)
    assert upsert.names == {"item": "name"}
    assert [outcome.done for outcome in work.outcomes] == ["applied"]


def test_messages_and_the_changelog_have_the_images_as_they_are() -> None:
    policy = Policy(kafka=True)
    work = decide(Arrival(NAME, around(*CHANGES).described()), TableBefore(LIVE, BEFORE.target()), policy)
    assert [part.definition for part in work.messages] == [BEFORE.carried, AFTER.carried]
    (logged,) = work.log_actions
    assert logged.definition.types == {
        "id": "bigint",
        "n": "bigint",
        "item": "string",
        "old": "string",
        "name": "string",
    }
    narrow = TableBefore(LIVE, BEFORE.target(), {"id": "bigint", "n": "decimal(20,0)"})
    (logged,) = decide(Arrival(NAME, around(*CHANGES).described()), narrow, policy).log_actions
    assert logged.definition.types["n"] == "decimal(20,0)", "a wider column of the changelog stays"
    other = TableBefore(LIVE, BEFORE.target(), {"n": "string"})
    assert decide(Arrival(NAME, around(*CHANGES).described()), other, policy).state.state == "stopped"


def test_a_replay_finds_the_columns_changed_and_writes_only_the_rows() -> None:
    work = decided(around(*CHANGES), AFTER.target())
    assert (kinds(work), work.state.state) == (["Upsert"], "live")
    upsert = work.actions[0]
    assert isinstance(upsert, Upsert)
    assert upsert.names == {"item": "name"}, "older images still have the name before"


def test_without_rows_the_definition_read_with_the_statement_counts() -> None:
    later = FakeTable(columns=(*AFTER.columns, ("later", "date")))
    work = decided(altered(*CHANGES, schema=later), BEFORE.target())
    assert (kinds(work), work.state.state) == (["Reshape", "NoteTypes"], "live")
    assert decided(altered(*CHANGES, schema=BEFORE), BEFORE.target()).reread_reason
    assert decided(altered(*CHANGES), BEFORE.target()).reread_reason


def test_added_columns_come_after_the_reshape() -> None:
    wider = FakeTable(columns=(*AFTER.columns, ("added", "int")))
    five = AddedColumn("added", nullable=False, default="5")
    work = decided(altered(*CHANGES, five, schema=wider), BEFORE.target())
    assert kinds(work) == ["Reshape", "AddColumns", "FillColumns"]


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
        (CHANGES[0], RedefinedColumn("item", "name, first"), CHANGES[2]),
        (RedefinedColumn("n", "n", "smallint"), *CHANGES[1:]),
        (RedefinedColumn("n", "n", "bigint unsigned"), *CHANGES[1:]),
        CHANGES[:2],
        CHANGES[1:],
    ],
)
def test_what_is_not_certain_has_the_table_read_again(changes: tuple[ColumnChange, ...]) -> None:
    work = decided(around(*changes), BEFORE.target())
    assert (work.actions, work.state.state) == ((), "stale")
    assert [outcome.done for outcome in work.outcomes] == ["re-read"]


RENAMED = FakeTable(
    columns=(("id", "bigint"), ("x", "string"), ("c", "string")), names={"id": "nr", "x": "a"}, rules={"x": "hash:1"}
)


@pytest.mark.parametrize(
    ("before", "after", "change", "actions"),
    [
        ("x", "b", RedefinedColumn("x", "b", None, "a", ""), ["Reshape", "NoteTypes", "Upsert"]),
        ("x", "y", RedefinedColumn("x", "y", None, "a", "b"), ["Reshape", "NoteTypes", "Upsert"]),
        ("x", "x", RedefinedColumn("x", "x", None, "a", "b"), ["NoteTypes", "Upsert"]),
        ("id", "id", RedefinedColumn("id", "id", None, "nr", "key"), ["NoteTypes", "Upsert"]),
    ],
)
def test_a_rename_at_the_source_follows_the_rules_for_names(
    before: str, after: str, change: RedefinedColumn, actions: list[str]
) -> None:
    """Without rows of the source, also after each step of an attempt that was killed."""
    old, renamed = RENAMED, {before: after}
    names = {name: source for name, source in old.names.items() if name != before}
    names |= {after: change.new_source_name} if change.new_source_name else {}
    columns = tuple((renamed.get(name, name), kind) for name, kind in old.columns)
    new = replace(old, columns=columns, names=names, rules={renamed.get(n, n): rule for n, rule in old.rules.items()})
    fake = altered(change, schema=new).images(old, [("c", 1, 1, "h", "y")]).images(new, [("c", 9, 2, "g", "z")])
    work = decided(fake, old.target())
    assert (kinds(work), work.state.state, work.reread_reason) == (actions, "live", None)
    assert work.actions[-2] == NoteTypes(new.target())
    upsert = work.actions[-1]
    assert isinstance(upsert, Upsert)
    assert (upsert.definition, upsert.names) == (new.carried, {} if before == after else {before: after})
    reshaped = Target.of(dict(new.columns), old.target().properties)
    assert (kinds(decided(fake, reshaped)), decided(fake, reshaped).reread_reason) == (actions[-2:], None)
    assert (kinds(decided(fake, new.target())), decided(fake, new.target()).reread_reason) == (["Upsert"], None)
    assert kinds(decided(altered(change, schema=new), old.target())) == actions[:-1], "without an image"
    assert decided(altered(change, schema=old), old.target()).reread_reason, "the definition after it is unknown"
    other = replace(old, names={**old.names, before: "other"}).target()
    assert decided(fake, other).reread_reason, "the target has the values of another column"


def test_a_column_with_a_rule_may_be_dropped_but_gets_no_other_rule_or_type() -> None:
    without = FakeTable(columns=RENAMED.columns[::2], names={"id": "nr"})
    dropped = altered(DroppedColumn("x"), schema=without)
    work = decided(dropped, RENAMED.target())
    assert (kinds(work), work.reread_reason) == (["Reshape", "NoteTypes"], None)
    assert work.actions[1] == NoteTypes(without.target())
    assert decided(dropped, replace(RENAMED, rules={"c": "null"}).target()).reread_reason
    change = RedefinedColumn("x", "x", "longtext", "a", "a")
    retyped = altered(change, schema=replace(RENAMED, mysql={"x": "longtext"}))
    assert decided(retyped, replace(RENAMED, mysql={"x": "text"}).target()).reread_reason


LATIN = "latin1_swedish_ci"
GETS = (("id", "bigint", ""), ("v", "varchar(5)", LATIN), ("m", "mediumint", ""), ("d", "decimal(9,2)", ""))
HOOKED = FakeTable(columns=(("id", "bigint"), ("v", "int")), hook="m:f@1/aa", hook_gets=GETS)
"""The hook makes a number of the text ``v``, and leaves ``m`` and ``d`` out."""


def getting(**types: str) -> FakeTable:
    return replace(HOOKED, hook_gets=tuple((name, types.get(name, mysql), text) for name, mysql, text in GETS))


def test_what_leaves_the_input_of_a_hook_reads_nothing_again() -> None:
    wider = getting(v="varchar(50)", m="int")
    changes = (RedefinedColumn("v", "v", "varchar(50)"), RedefinedColumn("m", "m", "int"))
    fake = altered(*changes, RedefinedColumn("d", "d", "decimal(9,2)"), schema=wider)
    assert kinds(decided(fake, HOOKED.target())) == ["NoteTypes"]
    fake.images(HOOKED, [("c", 1, 1, 2)]).images(wider, [("c", 9, 2, 3)])
    work = decided(fake, HOOKED.target())
    assert (kinds(work), work.reread_reason, work.state.state) == (["NoteTypes", "Upsert"], None, "live")
    assert work.actions[0] == NoteTypes(wider.target())
    assert kinds(decided(fake, wider.target())) == ["Upsert"], "a replay"
    assert kinds(decided(fake, replace(HOOKED, key=()).target())) == [], "another key"


@pytest.mark.parametrize(
    ("change", "after", "before"),
    [
        (RedefinedColumn("v", "v", "varchar(4)"), getting(v="varchar(4)"), HOOKED),
        (RedefinedColumn("d", "d", "decimal(9,3)"), getting(d="decimal(9,3)"), HOOKED),
        (RedefinedColumn("id", "id", "decimal(20,0)"), getting(id="decimal(20,0)"), HOOKED),
        (RedefinedColumn("v", "v", "varchar(9)"), replace(getting(v="varchar(9)"), hook="m:f@1/bb"), HOOKED),
        (RedefinedColumn("v", "v", "varchar(9)"), getting(v="varchar(8)"), HOOKED),
        (RedefinedColumn("v", "v", "varchar(9)"), getting(v="varchar(9)"), replace(HOOKED, hook_gets=())),
        (RedefinedColumn("v", "v", "varchar(9)"), replace(getting(v="varchar(9)"), columns=HOOKED.columns[:1]), HOOKED),
    ],
)
def test_what_may_change_the_input_of_a_hook_has_the_table_read_again(
    change: RedefinedColumn, after: FakeTable, before: FakeTable
) -> None:
    assert decided(altered(change, schema=after), before.target()).reread_reason
    image = ("c", 9, *(2, 3)[: len(after.columns)])
    assert decided(altered(change, schema=after).images(after, [image]), before.target()).reread_reason


def test_a_text_of_another_collation_may_be_another_one_for_a_hook() -> None:
    recoded = replace(HOOKED, hook_gets=(GETS[0], ("v", "varchar(9)", "utf8mb4_bin"), *GETS[2:]))
    assert decided(altered(RedefinedColumn("v", "v", "varchar(9)"), schema=recoded), HOOKED.target()).reread_reason


@pytest.mark.parametrize(
    "changes",
    [
        (RedefinedColumn("x", "x", None, "a", "b"), RedefinedColumn("x", "x", None, "b", "d")),
        (DroppedColumn("x"), RedefinedColumn("c", "x", None, "", "a")),
        (RedefinedColumn("x", "c", None, "a", ""), RedefinedColumn("c", "x", None, "", "a")),
    ],
)
def test_a_name_that_two_columns_of_the_source_had_in_one_batch(changes: tuple[ColumnChange, ...]) -> None:
    assert decided(altered(*changes, schema=RENAMED), RENAMED.target()).reread_reason


def test_a_table_without_a_key_and_partial_images_are_read_again() -> None:
    keyless = FakeTable(columns=BEFORE.columns, key=()).target()
    assert decided(altered(*CHANGES, schema=FakeTable(columns=AFTER.columns, key=())), keyless).reread_reason
    assert decided(around(*CHANGES).images(AFTER, [("u", 20, 2, ..., "z")]), BEFORE.target()).reread_reason


def test_a_narrower_type_of_the_same_spark_type_is_no_wider_one() -> None:
    narrow = altered(RedefinedColumn("n", "n", "mediumint"), schema=BEFORE)
    assert decided(narrow, BEFORE.target()).reread_reason


@pytest.mark.parametrize("state", ["snapshotting", "settling", "stale", "stopped", "filtered"])
def test_a_table_that_lacks_rows_or_has_newer_ones_is_read_again(state: str) -> None:
    row = TableState(NAME, state, version=4, since_epoch=3 if state == "snapshotting" else None, held_epoch=4)
    arrival = Arrival(NAME, around(*CHANGES).described())
    work = decide(arrival, TableBefore(row, BEFORE.target()), Policy(changelog=False))
    assert (work.actions, work.state.state, bool(work.reread_reason)) == ((), "stale", True)


def test_a_table_that_is_being_read_is_read_again() -> None:
    fake = around(*CHANGES).snapshot(NAME, 5, append=False)
    assert decided(fake, BEFORE.target()).reread_reason


@pytest.mark.parametrize("change", CHANGES)
def test_images_that_the_log_does_not_name_have_the_table_read_again(change: ColumnChange) -> None:
    """Not stopped: the statement tells why they are ambiguous."""
    work = decided(altered(change, schema=AFTER).stop(NAME, "columns unknown"), BEFORE.target())
    assert (work.actions, work.state.state, bool(work.reread_reason)) == ((), "stale", True)


NAMED = FakeTable(
    columns=(("id", "bigint"), ("v", "string"), ("e", "string")), mysql={"v": "varchar(9)", "e": "enum('a')"}
)


def test_text_grows_without_a_write_of_rows() -> None:
    longer = replace(NAMED, mysql={"v": "varchar(10)", "e": "enum('a','b')"})
    changes = (RedefinedColumn("v", "v", "varchar(10)"), RedefinedColumn("e", "e", "enum('a','b')"))
    for fake in (
        altered(*changes, schema=longer),
        altered(*changes, schema=longer).images(NAMED, [("c", 1, 1, "a", "a")]),
    ):
        work = decided(fake, NAMED.target())
        assert (kinds(work)[:1], work.reread_reason, work.state.state) == (["NoteTypes"], None, "live")
        assert work.actions[0] == NoteTypes(longer.target())
    assert kinds(decided(altered(*changes, schema=longer), longer.target())) == [], "a replay"
    assert decided(altered(RedefinedColumn("v", "v", "varchar(8)"), schema=NAMED), NAMED.target()).reread_reason
    unknown = NAMED.target().with_source_types({"id": ("bigint", "")})
    assert decided(altered(*changes, schema=longer), unknown).reread_reason, "made by an older version"
    recoded = replace(longer, collations={"v": "latin1_swedish_ci"})
    assert decided(altered(*changes, schema=recoded), NAMED.target()).reread_reason


def test_a_column_of_the_key_may_be_moved_but_not_changed() -> None:
    assert kinds(decided(altered(RedefinedColumn("id", "id", "bigint"), schema=BEFORE), BEFORE.target())) == []
    wider = replace(BEFORE, columns=(("id", "decimal(20,0)"), *BEFORE.columns[1:]))
    assert decided(altered(RedefinedColumn("id", "id", "decimal(20,0)"), schema=wider), BEFORE.target()).reread_reason


def test_types_are_stored_as_the_log_shows_them() -> None:
    """Also of tables that an older version made. A definition that may be newer than the batch does not count."""
    images = FakeBatch(9).images(NAMED, [("c", 1, 1, "a", "a")])
    assert kinds(decided(images, NAMED.target())) == ["Upsert"]
    work = decided(images, NAMED.target().with_source_types({}))
    assert work.actions[0] == NoteTypes(NAMED.target())
    newer = replace(NAMED, mysql={"v": "varchar(20)", "e": "enum('a')"})
    emptied = FakeBatch(9).ddl(NAME, "TRUNCATE", "truncate", 5).images(newer, [("t", 5)])
    assert kinds(decided(emptied, NAMED.target())) == ["Truncate"]


def test_a_generated_column_that_was_dropped_since_has_the_table_read_again() -> None:
    """Nobody knows what it computed from the wider column."""
    wider = FakeTable(columns=(("id", "bigint"), ("n", "bigint"), ("item", "string"), ("old", "string")))
    since = FakeTable(columns=wider.columns[:3])
    fake = altered(RedefinedColumn("n", "n", "bigint"), schema=since).images(wider, [("c", 9, 1, 1, "x", "y")])
    assert decided(fake, BEFORE.target()).reread_reason


def test_a_dropped_column_may_stay_without_values() -> None:
    keep = SchemaChangesConfig(dropped_columns="keep")
    work = decided(around(*CHANGES), BEFORE.target(), keep)
    assert (kinds(work), work.state.state) == (["Reshape", "NoteTypes", "Upsert"], "live")
    reshape, note, upsert = work.actions
    assert isinstance(reshape, Reshape)
    assert isinstance(note, NoteTypes)
    assert isinstance(upsert, Upsert)
    assert (reshape.dropped, reshape.kept) == (frozenset(), frozenset(["old"]))
    assert [*note.target.kept] == ["old"]
    assert upsert.definition.types == dict(AFTER.columns), "what rows do not have is null in the table"
    after = AFTER.target(kept={"old": BEFORE.target().columns["old"]})
    assert kinds(decided(around(*CHANGES), after, keep)) == ["Upsert"], "a replay"
    assert kinds(decided(FakeBatch(9).images(AFTER, [("c", 1, 1, 2, "x")]), after)) == ["Upsert"]
    back = FakeTable(columns=(*AFTER.columns, ("OLD", "int")))
    assert decided(altered(AddedColumn("OLD"), schema=back), after).reread_reason, "the name is taken"


@pytest.mark.parametrize(
    ("kind", "change", "schema"),
    [
        ("add_column", AddedColumn("k"), FakeTable(columns=(*BEFORE.columns, ("k", "int")))),
        ("drop_column", DroppedColumn("old"), FakeTable(columns=BEFORE.columns[:3])),
        ("rename_column", RedefinedColumn("n", "m", "int"), None),
        ("widen_column", RedefinedColumn("n", "n", "bigint"), None),
        (None, RedefinedColumn("n", "n", "int"), BEFORE),
    ],
)
def test_each_kind_of_change_has_its_policy(kind: str | None, change: ColumnChange, schema: FakeTable | None) -> None:
    kinds_of_change = [name for name in SchemaChangesConfig.model_fields if name != "dropped_columns"]
    for policy, state in (("stop", "stopped"), ("reread", "stale")):
        others = SchemaChangesConfig(**{name: policy for name in kinds_of_change if name != kind})  # type: ignore[arg-type]
        if schema is not None:
            assert decided(altered(change, schema=schema), BEFORE.target(), others).state.state == "live"
        if kind is not None:
            work = decided(altered(change, schema=schema), BEFORE.target(), SchemaChangesConfig(**{kind: policy}))  # type: ignore[arg-type]
            assert (work.actions, work.state.state, bool(work.reread_reason)) == ((), state, policy == "reread")
            assert f'{kind} = "{policy}"' in str(work.state.reason)


def test_the_strictest_policy_counts_and_a_stopped_table_stays_so() -> None:
    config = SchemaChangesConfig(drop_column="reread", rename_column="stop")
    work = decided(around(*CHANGES), BEFORE.target(), config)
    assert (work.state.state, [outcome.done for outcome in work.outcomes]) == ("stopped", ["stopped"])
    stopped = TableState(NAME, "stopped", version=4, held_epoch=4, reason="why")
    before = TableBefore(stopped, BEFORE.target())
    policy = Policy(changelog=False, schema_changes=config)
    again = decide(Arrival(NAME, around(*CHANGES).described()), before, policy)
    assert (again.state.state, again.state.reason, again.reread_reason) == ("stopped", "why", None)


def test_strict_stops_the_table() -> None:
    work = decided(around(*CHANGES), BEFORE.target(), strict=True)
    assert (work.actions, work.state.state) == ((), "stopped")
