"""Changes of columns that a table ignores: its columns stay, whatever ALTERs a source goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.apply._images import align
from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn
from headgate.config import SchemaChangesConfig
from headgate.decide import Arrival, Decision, Policy, TableBefore, decide
from headgate.decide.actions import (
    AddColumns,
    Append,
    AppendVersions,
    Count,
    Create,
    NoteTypes,
    Overwrite,
    Reshape,
    RowAction,
    Upsert,
    UpsertPartial,
)
from headgate.lake import Form, IgnoredChanges, TableState, Target
from tests.fix_carrier import FakeBatch, FakeTable

NAME = "shop.orders"
ALL = SchemaChangesConfig(add_column="ignore", drop_column="ignore", rename_column="ignore")
ORDERS = FakeTable(columns=(("id", "bigint"), ("a", "string"), ("c", "int")))
WITHOUT_C = Target.of(dict(ORDERS.columns), {**ORDERS.target().properties, "headgate.dropped_columns": '["c"]'})
LIVE = TableState(NAME, "live", version=4)


def decided(
    fake: FakeBatch,
    target: Target | None,
    row: TableState | None = LIVE,
    config: SchemaChangesConfig = ALL,
    **policy: Any,
) -> Decision:
    settings_of_table = Policy(**{"changelog": False, "schema_changes": config, **policy})
    return decide(Arrival(NAME, fake.described()), TableBefore(row, target), settings_of_table)


def altered(*changes: ColumnChange, schema: FakeTable | None = None) -> FakeBatch:
    return FakeBatch(9).ddl(NAME, "ALTER TABLE orders ...", "alter", 5, adds=changes, schema=schema)


def columns(*names: str, key: tuple[str, ...] = ("id",)) -> FakeTable:
    """A table with these columns of :data:`ORDERS`, or strings."""
    known = dict(ORDERS.columns)
    return FakeTable(columns=tuple((name, known.get(name, "string")) for name in names), key=key)


def kinds(decision: Decision) -> list[str]:
    return [type(action).__name__ for action in decision.actions]


def outcomes(decision: Decision) -> list[tuple[str, str | None]]:
    return [(outcome.done, outcome.reason) for outcome in decision.outcomes]


# --- one statement


@pytest.mark.parametrize("kind", [AddedColumn("n"), AddedColumn("n", default="7"), AddedColumn("n", known=False)])
def test_an_added_column_is_left_out_of_the_table(kind: AddedColumn) -> None:
    wider = columns("id", "a", "c", "n")
    fake = altered(kind).images(ORDERS, [("c", 1, 1, "x", 2)]).images(wider, [("c", 9, 2, "y", 3, "new")])
    work = decided(fake, ORDERS.target())
    assert (kinds(work), work.state.state, work.reread_reason) == (["Upsert"], "live", None)
    assert (work.state.ignored, outcomes(work)) == (
        IgnoredChanges({"n": None}), [("ignored", 'add_column = "ignore"')],
    )  # fmt: skip
    (upsert,) = work.actions
    assert isinstance(upsert, RowAction)
    assert (upsert.definition.types, upsert.names) == (dict(ORDERS.columns), {"n": None})


def test_a_renamed_column_comes_under_its_old_name() -> None:
    after = columns("id", "b", "c")
    fake = altered(RedefinedColumn("a", "b")).images(ORDERS, [("c", 1, 1, "x", 2)]).images(after, [("c", 9, 2, "y", 3)])
    work = decided(fake, ORDERS.target())
    assert (kinds(work), work.state.ignored) == (["Upsert"], IgnoredChanges({"b": "a"}))
    assert outcomes(work) == [("ignored", 'rename_column = "ignore"')]
    (upsert,) = work.actions
    assert isinstance(upsert, RowAction)
    assert (upsert.definition.types, upsert.names) == (dict(ORDERS.columns), {"b": "a"})


def test_a_dropped_column_stays_with_its_values() -> None:
    after = columns("id", "a")
    fake = altered(DroppedColumn("c")).images(ORDERS, [("c", 1, 1, "x", 2)]).images(after, [("c", 9, 2, "y")])
    work = decided(fake, ORDERS.target())
    assert (kinds(work), work.state.ignored) == (["NoteTypes", "Upsert"], IgnoredChanges(kept=("c",)))
    note, upsert = work.actions
    assert isinstance(note, NoteTypes)
    assert isinstance(upsert, RowAction)
    assert [*note.target.kept] == ["c"]
    assert (list(upsert.definition.types), upsert.names) == (["id", "a"], {"c": None})
    assert kinds(decided(fake, WITHOUT_C)) == ["Upsert"], "a replay finds the property"


def test_a_drop_without_images_is_known_to_the_next_batch() -> None:
    work = decided(altered(DroppedColumn("c")), ORDERS.target())
    assert (work.actions, work.state.state) == ((), "live")
    later = FakeBatch(10).images(columns("id", "a"), [("c", 1, 2, "y")])
    work = decided(later, ORDERS.target(), work.state)
    assert (kinds(work), work.state.ignored) == (["NoteTypes", "Upsert"], IgnoredChanges(kept=("c",)))


def test_a_renamed_column_of_the_key() -> None:
    after = columns("nr", "a", "c", key=("nr",))
    after = replace(after, columns=(("nr", "bigint"), *ORDERS.columns[1:]))
    fake = altered(RedefinedColumn("id", "nr")).images(after, [("c", 9, 2, "y", 3)])
    work = decided(fake, ORDERS.target())
    (upsert,) = work.actions
    assert isinstance(upsert, RowAction)
    assert (work.state.state, upsert.definition.key, upsert.names) == ("live", ("id",), {"nr": "id"})


def test_a_rename_keeps_the_name_that_a_rule_gave() -> None:
    ruled = FakeTable(columns=(("id", "bigint"), ("x", "string")), names={"x": "a"}, rules={"x": "hash:1"})
    after = FakeTable(columns=(("id", "bigint"), ("b", "string")), rules={"b": "hash:1"})
    fake = altered(RedefinedColumn("x", "b", None, "a", "")).images(after, [("c", 9, 2, "y")])
    work = decided(fake, ruled.target())
    assert (kinds(work), work.state.ignored) == (["Upsert"], IgnoredChanges({"b": "x"}))
    later = FakeBatch(10).images(after, [("u", 1, 2, "z")])
    assert kinds(decided(later, ruled.target(), work.state)) == ["Upsert"]


def test_other_changes_of_a_statement_are_applied() -> None:
    narrow = SchemaChangesConfig(add_column="ignore", rename_column="ignore")
    after = FakeTable(columns=(("id", "bigint"), ("b", "string"), ("n", "string")))
    changes = AddedColumn("n"), RedefinedColumn("a", "b"), DroppedColumn("c")
    fake = altered(*changes, schema=after).images(ORDERS, [("c", 1, 1, "x", 2)]).images(after, [("c", 9, 2, "y", "z")])
    work = decided(fake, ORDERS.target(), config=narrow)
    assert kinds(work) == ["Reshape", "NoteTypes", "Upsert"]
    assert outcomes(work) == [("applied", 'add_column = "ignore"; rename_column = "ignore"')]
    upsert = work.actions[-1]
    assert isinstance(upsert, RowAction)
    assert (list(upsert.definition.types), upsert.names) == (["id", "a"], {"n": None, "b": "a"})
    without_rows = decided(altered(*changes, schema=after), ORDERS.target(), config=narrow)
    assert (kinds(without_rows), without_rows.state.state) == (["Reshape", "NoteTypes"], "live")


def test_the_strictest_policy_of_the_other_changes_counts() -> None:
    stopping = SchemaChangesConfig(add_column="ignore", drop_column="stop")
    work = decided(altered(AddedColumn("n"), DroppedColumn("c")), ORDERS.target(), config=stopping)
    assert (work.state.state, work.state.ignored) == ("stopped", IgnoredChanges({"n": None}))
    rereading = SchemaChangesConfig(rename_column="ignore", widen_column="reread")
    work = decided(altered(RedefinedColumn("c", "d", "bigint")), ORDERS.target(), config=rereading)
    assert (work.state.state, work.state.ignored) == ("stale", IgnoredChanges({"d": "c"}))


def test_a_rename_that_also_widens_widens_the_old_name() -> None:
    after = FakeTable(columns=(("id", "bigint"), ("a", "string"), ("d", "bigint")))
    fake = altered(RedefinedColumn("c", "d", "bigint"), schema=after).images(after, [("c", 9, 1, "x", 2)])
    work = decided(fake, ORDERS.target())
    reshape = work.actions[0]
    assert isinstance(reshape, Reshape)
    assert (reshape.renamed, reshape.widened) == ({}, {"c": "bigint"})
    same = altered(RedefinedColumn("c", "d", "int")).images(
        replace(after, columns=(*after.columns[:2], ("d", "int"))), [("c", 9, 1, "x", 2)]
    )
    assert kinds(decided(same, ORDERS.target())) == ["Upsert"], "CHANGE names the type, too"


@pytest.mark.parametrize("state", ["snapshotting", "settling", "inexact", "filtered"])
@pytest.mark.parametrize("form", [Form.PLAIN, Form.MARKED, Form.HISTORY])
def test_every_form_ignores_in_every_state(state: str, form: Form) -> None:
    row = TableState(NAME, state, version=4, since_epoch=7 if state == "snapshotting" else None)
    after = columns("id", "b", "n")
    changes = AddedColumn("n", known=False), RedefinedColumn("a", "b"), DroppedColumn("c")
    fake = altered(*changes).images(ORDERS, [("c", 1, 1, "x", 2)]).images(after, [("c", 9, 2, "y", "z")])
    work = decided(fake, ORDERS.target(form=form), row, form=form, strict=True)
    assert (work.state.is_suspended, work.reread_reason) == (False, None)
    assert work.state.ignored == IgnoredChanges({"b": "a", "n": None}, ("c",))
    assert not {"Create", "Reshape", "AddColumns"} & {*kinds(work)}


def test_partial_images_name_the_tables_columns() -> None:
    after = columns("id", "b", "c", "n")
    changes = AddedColumn("n"), RedefinedColumn("a", "b")
    fake = altered(*changes).images(after, [("u", 9, 2, ..., 3, ...), ("u", 10, 3, "y", 3, ...)])
    work = decided(fake, ORDERS.target())
    (merge,) = work.actions
    assert isinstance(merge, UpsertPartial)
    schema = pa.schema([*after.batch(9, [("c", 1, 1, "x", 2, "")]).schema][:4])
    wanted = pa.schema([*schema, *[pa.field(one, pa.string()) for one in ("a", "_absent")]])
    rows = align(after.batch(9, [("u", 9, 2, ..., 3, ...), ("u", 10, 3, "y", 3, ...)]), wanted, {}, merge.names)
    assert (rows["a"].to_pylist(), rows["_absent"].to_pylist()) == ([None, "y"], ['["a"]', None])


# --- later changes of the same columns


def test_what_happens_to_an_ignored_column_is_ignored() -> None:
    row = replace(LIVE, ignored=IgnoredChanges({"n": None, "b": "a"}))
    work = decided(altered(RedefinedColumn("n", "m")), ORDERS.target(), row)
    assert work.state.ignored == IgnoredChanges({"b": "a", "m": None})
    work = decided(altered(DroppedColumn("N")), ORDERS.target(), row)
    assert (work.state.ignored, outcomes(work)) == (
        IgnoredChanges({"b": "a"}), [("ignored", "the table has no column n")],
    )  # fmt: skip
    work = decided(altered(RedefinedColumn("n", "n", "bigint")), ORDERS.target(), row)
    assert (work.actions, work.state.ignored) == ((), row.ignored)
    work = decided(altered(RedefinedColumn("b", "d")), ORDERS.target(), row)
    assert work.state.ignored == IgnoredChanges({"n": None, "d": "a"})
    work = decided(altered(RedefinedColumn("b", "a")), ORDERS.target(), row)
    assert work.state.ignored == IgnoredChanges({"n": None}), "the old name again"
    work = decided(altered(DroppedColumn("b")), ORDERS.target(), row)
    assert work.state.ignored == IgnoredChanges({"n": None}, ("a",))
    work = decided(altered(AddedColumn("a")), ORDERS.target(), row)
    assert work.state.ignored == IgnoredChanges({"n": None, "b": "a", "a": None}), "another column of the old name"


def test_a_name_that_is_used_again_in_one_batch_has_the_table_read_again() -> None:
    fake = altered(RedefinedColumn("a", "b")).ddl(NAME, "ALTER", "alter", 6, adds=[AddedColumn("a")])
    fake = fake.images(columns("id", "b", "c", "a"), [("c", 9, 1, "x", 2, "y")])
    work = decided(fake, ORDERS.target())
    assert (work.state.state, work.state.reason) == (
        "stale", "the name a was used for two columns in one batch; waits to be read again",
    )  # fmt: skip
    assert work.state.ignored == IgnoredChanges({"b": "a", "a": None})
    assert [outcome.done for outcome in work.outcomes] == ["re-read", "re-read"]
    waiting = decided(altered(AddedColumn("n")), ORDERS.target(), work.state)
    assert outcomes(waiting) == [("held", 'add_column = "ignore"')]
    assert "n" in waiting.state.ignored.names
    swapped = decided(altered(RedefinedColumn("a", "c"), RedefinedColumn("c", "a")), ORDERS.target())
    assert (swapped.state.state, swapped.state.ignored) == ("stale", IgnoredChanges({"c": "a", "a": "c"}))
    again = altered(DroppedColumn("c"), AddedColumn("c"))
    work = decided(again, ORDERS.target())
    assert (work.state.state, work.state.ignored) == ("live", IgnoredChanges({"c": None}, ("c",)))


@pytest.mark.parametrize(
    ("ignored", "change"),
    [
        (IgnoredChanges({"b": "a"}), AddedColumn("a")),
        (IgnoredChanges({"b": "a"}), RedefinedColumn("c", "A")),
        (IgnoredChanges(kept=("c",)), AddedColumn("c")),
    ],
)
def test_a_column_that_gets_the_name_of_another_one_of_the_table(ignored: IgnoredChanges, change: ColumnChange) -> None:
    work = decided(altered(change), ORDERS.target(), replace(LIVE, ignored=ignored), SchemaChangesConfig())
    assert (work.state.state, work.actions) == ("stale", ())


def test_statements_about_shown_columns_have_the_tables_names() -> None:
    row = replace(LIVE, ignored=IgnoredChanges({"b": "a"}))
    after = columns("id", "d", "c")
    fake = altered(RedefinedColumn("b", "d"), schema=after).images(columns("id", "b", "c"), [("c", 1, 1, "x", 2)])
    work = decided(fake.images(after, [("c", 9, 2, "y", 3)]), ORDERS.target(), row, SchemaChangesConfig())
    reshape, _, upsert = work.actions
    assert isinstance(reshape, Reshape)
    assert isinstance(upsert, RowAction)
    assert (reshape.renamed, upsert.names, work.state.ignored) == ({"d": "a"}, {"b": "d"}, IgnoredChanges())
    dropped = altered(DroppedColumn("b"), schema=columns("id", "c"))
    reshape = decided(dropped, ORDERS.target(), row, SchemaChangesConfig()).actions[0]
    assert isinstance(reshape, Reshape)
    assert reshape.dropped == {"a"}


# --- tables without a key, hooks, new tables


def test_a_table_without_a_key_is_read_again_for_a_drop_only() -> None:
    keyless = replace(ORDERS, key=())
    after = columns("id", "b", "c", "n", key=())
    fake = altered(AddedColumn("n", known=False), RedefinedColumn("a", "b")).images(after, [("c", 9, 1, "x", 2, "y")])
    work = decided(fake, keyless.target())
    (count,) = work.actions
    assert isinstance(count, Count)
    assert (work.state.state, count.names) == ("live", {"n": None, "b": "a"})
    work = decided(altered(DroppedColumn("c")), keyless.target())
    assert (work.state.state, work.state.ignored.kept) == ("stale", ("c",))
    assert [outcome.done for outcome in work.outcomes] == ["re-read"]
    mixed = SchemaChangesConfig(drop_column="ignore")
    assert decided(altered(DroppedColumn("c"), AddedColumn("n")), keyless.target(), config=mixed).reread_reason
    chunk = FakeBatch(12).snapshot(NAME, 12, append=False, last=True).chunk(columns("id", "a", key=()), [(1, "x")])
    work = decided(chunk, keyless.target(), work.state)
    assert (kinds(work), work.state.state) == (["NoteTypes", "Overwrite", "Sweep"], "live")
    overwrite = work.actions[1]
    assert isinstance(overwrite, Overwrite)
    assert list(overwrite.definition.types) == ["id", "a"]


def test_a_table_that_begins_in_the_batch_has_the_sources_columns() -> None:
    wider = columns("id", "a", "c", "n")
    fake = (
        altered(AddedColumn("n")).snapshot(NAME, 9, append=True, first=True, last=True).chunk(wider, [(1, "x", 2, "")])
    )
    work = decided(fake, None, None)
    create = work.actions[0]
    assert isinstance(create, Create)
    assert (list(create.definition.types), work.state.ignored) == (["id", "a", "c", "n"], IgnoredChanges())


# --- re-reads


def reread(shape: FakeTable, row: TableState, target: Target, config: SchemaChangesConfig = ALL) -> Decision:
    values = {"bigint": 1, "int": 2, "string": "x"}
    chunk = FakeBatch(12).snapshot(NAME, 12, append=False, last=True)
    return decided(chunk.chunk(shape, [tuple(values[kind] for _, kind in shape.columns)]), target, row, config)


@pytest.mark.parametrize("state", ["live", "stale"])
def test_a_reread_keeps_what_is_still_ignored(state: str) -> None:
    ignored = IgnoredChanges({"n": None, "b": "a", "gone": None}, ("c",))
    row = replace(LIVE, state=state, held_epoch=3 if state == "stale" else None, ignored=ignored)
    shape = columns("id", "b", "n")
    work = reread(shape, row, ORDERS.target())
    assert (kinds(work), work.state.state) == (["NoteTypes", "Upsert", "Sweep"], "live")
    assert work.state.ignored == IgnoredChanges({"n": None, "b": "a"}, ("c",))
    create = reread(shape, row, ORDERS.target(), SchemaChangesConfig()).actions[0]
    assert isinstance(create, Create)
    assert (list(create.definition.types), create.replace) == (["id", "b", "n"], True)
    add = SchemaChangesConfig(rename_column="ignore", drop_column="ignore")
    work = reread(shape, row, ORDERS.target(), add)
    assert (kinds(work)[0], work.state.ignored) == ("AddColumns", IgnoredChanges({"b": "a"}, ("c",)))


def test_a_reread_forgets_what_cannot_be_shown() -> None:
    row = replace(LIVE, ignored=IgnoredChanges({"b": "a", "n": None}))
    work = reread(columns("id", "b", "c", "a"), row, ORDERS.target())
    assert work.state.ignored == IgnoredChanges(), "both names are in the source"
    work = reread(columns("id", "a", "c", "n", key=("id", "n")), row, ORDERS.target())
    assert work.state.ignored == IgnoredChanges(), "a column of the key"
    hooked = replace(columns("id", "a", "n"), hook="m:f@1/x")
    assert reread(hooked, row, ORDERS.target()).state.ignored == IgnoredChanges()


@pytest.mark.parametrize("form", [Form.PLAIN, Form.HISTORY])
def test_a_kept_column_that_comes_back_with_a_reread(form: Form) -> None:
    row = replace(LIVE, state="stale", held_epoch=3, ignored=IgnoredChanges(kept=("c",)))
    target = replace(WITHOUT_C, form=form)
    chunk = FakeBatch(12).snapshot(NAME, 12, append=False, last=True).chunk(ORDERS, [(1, "x", 2)])
    for state in (row, replace(row, ignored=IgnoredChanges())):
        work = decided(chunk, target, state, form=form)
        assert work.state.state == "live"
        if form is Form.HISTORY or state is row:
            note, rows = work.actions[:2]
            assert isinstance(note, NoteTypes)
            assert isinstance(rows, AppendVersions | Upsert)
            assert (note.target.kept, list(rows.definition.types)) == ({}, ["id", "a", "c"])
            stored = {**target.properties, **note.target.properties}  # as a table's are set
            assert Target.of(dict(ORDERS.columns), stored).kept == {}, "images of the next batch fit"


# --- random sources


@dataclass
class Source:
    """A source table: its columns, in order, and what each one is."""

    columns: dict[str, int] = field(default_factory=lambda: {"id": 0, "a": 1, "c": 2})  # name → number
    rows: dict[int, dict[int, str]] = field(default_factory=dict)  # key → number of a column → value
    made: int = 2

    @property
    def shape(self) -> FakeTable:
        kinds = tuple((name, "string" if number else "bigint") for name, number in self.columns.items())
        return FakeTable(columns=kinds, key=tuple(name for name, number in self.columns.items() if number == 0))

    def values(self, key: int) -> tuple[Any, ...]:
        return tuple(key if number == 0 else self.rows[key].get(number) for number in self.columns.values())

    def alter(self, draw: st.DataObject) -> list[ColumnChange]:
        """One statement with one to three changes of different columns."""
        changes: list[ColumnChange] = []
        before = [*self.columns]
        free = [name for name in "abcd" if name not in before]
        if len(before) > 1 and draw.draw(st.integers(0, 3)) == 0:
            one, two = draw.draw(st.permutations(before))[:2]
            names = {one: two, two: one}
            self.columns = {names.get(name, name): number for name, number in self.columns.items()}
            return [RedefinedColumn(one, two), RedefinedColumn(two, one)]
        for name in draw.draw(st.lists(st.sampled_from(before), max_size=2, unique=True)):
            if self.columns[name] == 0 or draw.draw(st.booleans()):
                if not free:
                    continue
                new = free.pop(draw.draw(st.integers(0, len(free) - 1)))
                self.columns = {(new if one == name else one): number for one, number in self.columns.items()}
                changes.append(RedefinedColumn(name, new))
            else:
                del self.columns[name]
                changes.append(DroppedColumn(name))
        if free and (not changes or draw.draw(st.booleans())):
            new = free.pop(0)
            self.made += 1
            self.columns[new] = self.made
            changes.append(AddedColumn(new, known=draw.draw(st.booleans())))
        return changes


@dataclass
class Lake:
    """The current table, as the actions make it."""

    target: Target = field(default_factory=Source().shape.target)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def apply(self, decision: Decision, images: Sequence[tuple[FakeTable, Any]]) -> None:
        """Carry out the actions; only those that leave the columns as they are may come.

        :param images: in log order.
        """
        for action in decision.actions:
            match action:
                case NoteTypes(target=target):
                    types = {name: column.spark for name, column in self.target.noted.items()}
                    self.target = Target.of(types, target.properties)
                case Upsert() | Append():
                    wanted = [pa.field("_op", pa.string()), *[
                        pa.field(name, pa.int64() if kind == "bigint" else pa.string())
                        for name, kind in action.definition.types.items()
                    ]]  # fmt: skip
                    for shape, image in images:
                        (row,) = align(shape.batch(1, [image]), pa.schema(wanted), {}, action.names).to_pylist()
                        self._set(row, action.definition.key[0])
                case Create() | Reshape() | AddColumns():
                    raise AssertionError(action)

    def _set(self, row: dict[str, Any], key: str) -> None:
        op = row.pop("_op")
        self.rows.pop(row[key], None)
        if op not in "bd":
            self.rows[row[key]] = {**dict.fromkeys(self.target.kept), **row}


@pytest.mark.parametrize("examples", [50, pytest.param(200, marks=pytest.mark.long)])
def test_random_alters_leave_the_columns_as_they_are(examples: int) -> None:
    settings(max_examples=examples, deadline=None)(given(st.data())(follow_random_alters))()


def follow_random_alters(draw: st.DataObject) -> None:
    source, lake, state = Source(), Lake(), LIVE
    shown = {"a": 1, "c": 2}  # the table's columns: the number of the source's column
    kept: set[str] = set()
    for epoch in range(10, 10 + draw.draw(st.integers(1, 5))):
        fake, images = FakeBatch(epoch), []
        dropped: set[str] = set()
        if state.is_suspended:
            fake = fake.snapshot(NAME, epoch, append=False, last=True)
            for pos in range(draw.draw(st.integers(0, 2))):
                changes = source.alter(draw)
                dropped |= {name for name, number in shown.items() if number not in source.columns.values()} - kept
                fake = fake.ddl(NAME, "ALTER", "alter", 10 * pos, adds=changes, schema=source.shape)
            images = [(source.shape, ("r", key, *source.values(key))) for key in source.rows]
            fake = fake.chunk(source.shape, [source.values(key) for key in source.rows] or [])
        for pos in range(0 if state.is_suspended else draw.draw(st.integers(2, 8))):
            if draw.draw(st.booleans()):
                changes = source.alter(draw)
                dropped |= {name for name, number in shown.items() if number not in source.columns.values()} - kept
                fake = fake.ddl(NAME, "ALTER", "alter", 10 * pos, adds=changes, schema=source.shape)
            else:
                key = draw.draw(st.integers(1, 3))
                op = "u" if key in source.rows else "c"
                source.rows[key] = {number: f"{epoch}.{pos}.{number}" for number in source.columns.values() if number}
                image = (op, 10 * pos, *source.values(key))
                images.append((source.shape, image))
                fake = fake.images(source.shape, [image])
        kept |= dropped
        decision = decided(fake, lake.target, state)
        for _ in range(2):  # the second time is a replay: it begins with the ledger's state and the written table
            again = decided(fake, lake.target, state)
            assert again.state == decision.state
            lake.apply(again, images)
        state = decision.state
        assert lake.target.noted.keys() == {"id", *shown}
        if not state.is_suspended:
            assert lake.rows.keys() == source.rows.keys()
            for key, row in lake.rows.items():
                expected = {name: source.rows[key].get(number) for name, number in shown.items() if name not in kept}
                assert {name: row.get(name) for name in expected} == expected
                assert row["id"] == key
