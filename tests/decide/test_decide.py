from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import pytest

from headgate.carrier import Batch, DdlRow, Header
from headgate.catalog import AddedColumn, DroppedColumn
from headgate.decide import Arrival, Decision, Divergence, Policy, TableBefore, decide, reread_reason, suspend
from headgate.decide.actions import (
    AddColumns,
    AppendChanges,
    AppendVersions,
    Count,
    Create,
    DropStrays,
    FillColumns,
    NoteTypes,
    ProveKey,
    Sweep,
    TableContent,
    Truncate,
    Upsert,
    UpsertPartial,
)
from headgate.errors import DecodeError, SchemaChangedError
from headgate.lake import Form, LeftOut, TableState, Target
from tests.fix_carrier import UUID, FakeBatch, FakeTable

ORDERS = FakeTable()
WIDER = FakeTable(columns=(("id", "bigint"), ("added", "int"), ("item", "string")))
RETYPED = FakeTable(columns=(("id", "bigint"), ("item", "int")))
LATER = FakeTable(columns=(*WIDER.columns, ("later", "date")))
NARROWER = FakeTable(columns=(("id", "bigint"),))
REKEYED = FakeTable(key=("id", "item"))
TARGET = ORDERS.target()
ADDED = AddedColumn("added")
ADD = "ALTER TABLE orders ADD added INT AFTER id"
LIVE = TableState("shop.orders", "live", version=4)


_A = TypeVar("_A")


def decided(
    fake: FakeBatch | Batch,
    before: TableState | None = LIVE,
    target: Target | None = TARGET,
    *,
    unseen: Divergence | None = None,
    **options: Any,
) -> Decision:
    """The decision on the table; ``options`` are fields of ``TableBefore`` and ``Policy``."""
    batch = fake.described() if isinstance(fake, FakeBatch) else fake
    policy = {field.name: options.pop(field.name) for field in fields(Policy) if field.name in options}
    return decide(Arrival("shop.orders", batch, unseen), TableBefore(before, target, **options), Policy(**policy))


def created() -> FakeBatch:
    """A batch that creates the table."""
    return FakeBatch(9).create("shop.orders")


def kinds(decision: Decision) -> list[str]:
    """What is done to the current table, in order."""
    return [type(action).__name__ for action in decision.actions]


def find(decision: Decision, kind: type[_A]) -> _A | None:
    """The action of this kind, if there is one."""
    return next((action for action in decision.actions if isinstance(action, kind)), None)


def brought(decision: Decision) -> set[str]:
    """Of which kind the images are that the current table gets."""
    return {part.kind for action in decision.actions for part in getattr(action, "parts", ())}


def is_replaced(decision: Decision) -> bool:
    made = find(decision, Create)
    return made is not None and made.replace


def columns_added(decision: Decision) -> tuple[tuple[str, ...], list[str]]:
    """Those that are added, and all that the table then has."""
    added = find(decision, AddColumns)
    assert added is not None
    return added.names, [column.name for column in added.definition.columns]


def test_a_live_table_takes_images() -> None:
    work = decided(FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]))
    assert kinds(work) == ["Upsert"]
    assert work.state.state == "live"
    assert work.state.images == 1


CHANGES = FakeBatch(9).images(ORDERS, [("u", 1, 1, "x")])


@pytest.mark.parametrize(
    ("before", "target"),
    [
        (LIVE, None),  # its folder is gone
        (replace(LIVE, version=None), TARGET),  # target.mode left it out for some batches
        (replace(LIVE, version=None), None),  # ... for all
    ],
)
def test_a_table_whose_earlier_rows_the_lake_lacks_is_read_again(before: TableState, target: Target | None) -> None:
    work = decided(CHANGES, before, target)
    assert (kinds(work), work.state.state) == ([], "stale")
    assert work.reread_reason is not None
    for state in ("queued", "deferred"):
        ahead = FakeBatch(9).about("shop.orders", state=state).images(ORDERS, [("u", 1, 1, "x")])
        assert decided(ahead, before, target).state.state == "snapshotting", "no row counts as read"
    waits = FakeBatch(9).snapshot("shop.orders", 9, append=False).images(ORDERS, [("u", 1, 1, "x")])
    assert decided(waits, before, target).reread_reason is None, "it is read now"
    reread = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True)
    reread.chunk(ORDERS, [(1, "x")])
    assert decided(reread, work.state, target).state.state == "live"


NEXT = FakeBatch(9).snapshot("shop.orders", 7, append=False).chunk(ORDERS, [(2, "y")])
LAST = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).chunk(ORDERS, [(2, "y")])
RUNNING = TableState("shop.orders", "snapshotting", version=12, since_epoch=7)


@pytest.mark.parametrize("fake", [NEXT, LAST, FakeBatch(9).images(ORDERS, [("u", 1, 1, "x")])])
@pytest.mark.parametrize(("strict", "state"), [(False, "stale"), (True, "stopped")])
def test_a_snapshot_whose_earlier_rows_the_lake_lacks_begins_again(fake: FakeBatch, strict: bool, state: str) -> None:
    """The table's folder was moved away between two batches of it."""
    work = decided(fake, RUNNING, None, strict=strict)
    assert (kinds(work), work.state.state, work.reread_reason is None) == ([], state, strict)
    assert decided(fake, RUNNING, TARGET).state.is_suspended is False


@pytest.mark.parametrize("fake", [NEXT, LAST, FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True)])
def test_a_mode_that_is_added_while_a_snapshot_runs_has_it_begin_again(fake: FakeBatch) -> None:
    """Also if it was left out for some of the snapshot's batches only."""
    first = FakeBatch(7).snapshot("shop.orders", 7, append=False, first=True).chunk(ORDERS, [(1, "x")])
    begun = decided(first, None, None, form=None).state
    assert (begun.state, begun.version) == ("snapshotting", None)
    work = decided(fake, begun, None)
    assert (kinds(work), work.state.state, work.reread_reason is None) == ([], "stale", False)
    changes = FakeBatch(8).images(ORDERS, [("u", 1, 1, "x")])
    left_out = decided(changes, RUNNING, None, form=None).state
    assert decided(fake, left_out, TARGET).state.state == "stale"
    assert decided(LAST, decided(NEXT, begun, None, form=None).state, None, form=None).state.state == "live"
    again = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decided(again, work.state, None).state.state == "live"


def test_a_snapshot_that_has_brought_no_rows_yet_lacks_none() -> None:
    """Its first chunk is retried, or did not fit beside the retries of other tables."""
    for first in (FakeBatch(7).snapshot("shop.orders", 7, append=True, first=True).redo("shop.orders"), FakeBatch(7)):
        first.snapshot("shop.orders", 7, append=True, first=True)
        assert decided(LAST, decided(first, None, None).state, None).state.state == "live"


def test_the_ledger_names_no_version_of_a_table_that_is_not_written() -> None:
    work = decided(FakeBatch(9).images(ORDERS, [("u", 1, 1, "x")]), form=None)
    assert (work.state.state, work.state.version) == ("live", None)


def test_a_first_read_appends_and_ends_live_without_a_sweep() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(ORDERS, [(1, "x")])
    work = decided(fake, None, None)
    assert (kinds(work), work.state.state) == (["Create", "Append"], "live")


@pytest.mark.parametrize("last", [True, False])
def test_a_partial_read_merges_and_neither_sweeps_nor_begins_anything(last: bool) -> None:
    fake = FakeBatch(9).images(ORDERS, [("u", 2, 1, "y")])
    fake.about("shop.orders", state="reading", since_epoch=9, first=True, last=last, append=False, partial=True)
    fake.chunk(ORDERS, [(1, "x")])
    work = decided(fake)
    assert kinds(work) == ["Upsert"]
    assert (work.state.state, work.state.since_epoch) == ("live", None)
    assert brought(work) == {"rows", "chunk"}
    held = TableState("shop.orders", "stale", version=4, held_epoch=3, reason="x")
    assert decided(fake, held).state.state == "stale", "some rows do not make a table whole again"
    assert not decided(fake, held).actions
    new = decided(fake, None, None)
    assert (kinds(new), new.state.state, new.state.since_epoch) == (["Create", "Upsert"], "snapshotting", None)
    alter = FakeBatch(10).ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5)
    assert decided(alter, new.state).reread_reason, "nobody else would read it"


def test_a_first_read_onto_rows_of_an_earlier_stream_merges_and_sweeps() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(ORDERS, [(1, "x")])
    work = decided(fake, LIVE, TARGET)
    assert (kinds(work), find(work, Sweep)) == (["Upsert", "Sweep"], Sweep(9))


def test_a_running_first_read_goes_on_appending() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=True).chunk(ORDERS, [(1, "x")])
    before = TableState("shop.orders", "snapshotting", since_epoch=7)
    work = decided(fake, before, ORDERS.target(since_epoch=7))
    assert (kinds(work), work.state.state, work.state.since_epoch) == (["Append"], "snapshotting", 7)


def test_a_reread_merges_and_sweeps_at_its_end() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).chunk(ORDERS, [(1, "x")])
    work = decided(fake, TableState("shop.orders", "snapshotting", since_epoch=7))
    assert (kinds(work), find(work, Sweep), work.state.state) == (["Upsert", "Sweep"], Sweep(7), "live")


def test_a_chunk_to_be_redone_keeps_the_snapshot_open() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).redo("shop.orders", 3)
    work = decided(fake, TableState("shop.orders", "snapshotting", since_epoch=7))
    assert (kinds(work), work.state.state, work.state.since_epoch) == ([], "snapshotting", 7)


def test_new_columns_are_added() -> None:
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(WIDER, [("c", 2, 2, 5, "y")])
    work = decided(fake.ddl("shop.orders", "ALTER TABLE orders ADD added INT AFTER id", "alter", 2, adds=[ADDED]))
    assert kinds(work) == ["AddColumns", "Upsert"]
    assert columns_added(work) == (("added",), ["id", "added", "item"])
    assert work.state.state == "live"


@pytest.mark.parametrize("changed", [RETYPED, NARROWER, REKEYED, WIDER])
def test_images_that_no_statement_explains_have_the_table_read_again(changed: FakeTable) -> None:
    """A change of the table that the log does not hold (``sql_log_bin = 0``)."""
    values = {"item": "x", "id": 1, "added": 5}
    row = [2 if changed is RETYPED and name == "item" else values[name] for name, _ in changed.columns]
    fake = FakeBatch(9).images(changed, [("c", 1, *row)])
    work = decided(fake)
    assert (work.actions, work.state.state, work.state.held_epoch) == ((), "stale", 9)
    assert work.reread_reason is not None
    assert decided(fake, reread_requested=True).reread_reason is None
    stopped = decided(fake, strict=True)
    assert (stopped.actions, stopped.state.state, stopped.reread_reason) == ((), "stopped", None)
    assert "--resnapshot 'shop.orders'" in str(stopped.state.reason)


@pytest.mark.parametrize("changed", [RETYPED, NARROWER, REKEYED, WIDER])
@pytest.mark.parametrize("form", [Form.PLAIN, Form.MARKED, Form.HISTORY])
@pytest.mark.parametrize("with_rows", [False, True])
def test_a_truncate_that_is_read_after_a_later_alter_empties_the_table(
    changed: FakeTable, form: Form, *, with_rows: bool
) -> None:
    """Its image has the columns of the moment at which it was read; the ALTER is in a later batch."""
    fake = FakeBatch(9).images(changed, [("t", 1)])
    if with_rows:
        fake = fake.images(ORDERS, [("c", 2, 1, "x")])
    batch = fake.described()
    batch.ddl.append(DdlRow("shop.orders", "TRUNCATE TABLE orders", "truncate", (9, 1, 1, 0), None, None))
    work = decided(batch, LIVE, replace(TARGET, form=form), form=form, strict=True, logged=dict(ORDERS.columns))
    assert (work.state.state, work.reread_reason) == ("live", None)
    (logged,) = work.log_actions
    assert isinstance(logged, AppendChanges)
    assert logged.definition.types.items() >= (dict(ORDERS.columns).items() if with_rows else set())
    assert sum(part.images for part in logged.parts) == 1 + with_rows
    rows = [] if not with_rows else ["AppendVersions"] if form is Form.HISTORY else ["Upsert"]
    assert sorted(set(kinds(work)) - {"NoteTypes"}) == sorted(["Truncate", *rows])


def test_a_statement_requests_no_second_reread() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders FORCE", "alter", 5)
    assert decided(fake).reread_reason is not None
    work = decided(fake, reread_requested=True)
    assert (work.state.state, work.reread_reason) == ("stale", None)
    assert work.warnings == decided(fake).warnings


def test_a_reread_asked_for_holds_the_table_until_it_begins() -> None:
    images = FakeBatch(9).images(RETYPED, [("c", 1, 1, 2)])
    held = decided(images, reread_requested=True)
    assert (held.actions, held.state.state, held.state.held_epoch) == ((), "stale", 9)
    still = decided(FakeBatch(10).images(RETYPED, [("c", 1, 1, 2)]), held.state)
    assert (still.actions, still.state.state, still.state.held_epoch) == ((), "stale", 9)
    begun = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(RETYPED, [(1, 2)])
    work = decided(begun, still.state)
    assert (kinds(work), work.state.state) == (["Create", "Upsert"], "snapshotting")
    assert is_replaced(work)


def test_a_snapshot_that_was_running_does_not_free_a_held_table() -> None:
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(10).snapshot("shop.orders", 7, append=False, last=True).chunk(RETYPED, [(1, 2)])
    work = decided(fake, held)
    assert (work.actions, work.state.state) == ((), "stale")


def test_a_begun_reread_without_rows_keeps_the_hold() -> None:
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).redo("shop.orders")
    assert decided(fake, held).state.held_epoch == 9


def test_a_first_chunk_without_rows_ends_the_hold() -> None:
    """It was read: what changes in its range from now on is in no later chunk."""
    held = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason="r")
    begun = decided(FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, []), held)
    assert begun.state.state == "snapshotting"
    images = FakeBatch(13).snapshot("shop.orders", 12, append=False).images(ORDERS, [("c", 1, 100, "new")])
    assert kinds(decided(images, begun.state)) == ["Upsert"]


def since_of_partial(epoch: int, since: int, before: TableState) -> int:
    """The first epoch of rows that complete partial images, in a later batch of a snapshot."""
    fake = FakeBatch(epoch).snapshot("shop.orders", since, append=False).images(ORDERS, [("u", 1, 1, ...)])
    action = find(decided(fake, before), UpsertPartial)
    assert action is not None
    return action.since


def test_rows_from_before_a_suspension_complete_no_image_until_the_reread_ends() -> None:
    held = TableState("shop.orders", "stale", version=4, held_epoch=9, reason="r")
    begun = decided(FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, []), held).state
    assert (begun.state, begun.held_epoch, since_of_partial(13, 12, begun)) == ("snapshotting", 9, 12)
    later = decided(FakeBatch(13).snapshot("shop.orders", 12, append=False).chunk(ORDERS, []), begun).state
    assert since_of_partial(14, 12, later) == 12
    again = decided(FakeBatch(14).snapshot("shop.orders", 14, append=False, first=True).chunk(ORDERS, []), later).state
    assert since_of_partial(15, 14, again) == 14, "the snapshot before it left rows that lack changes, too"
    ended = decided(FakeBatch(15).snapshot("shop.orders", 14, append=False, last=True).chunk(ORDERS, []), again).state
    assert (ended.state, ended.held_epoch) == ("live", None)


@pytest.mark.parametrize("surrogate", [False, True])
def test_what_a_missing_row_means_depends_on_the_ranges(surrogate: bool) -> None:
    fake = FakeBatch(9).about("shop.orders", state="reading", since_epoch=7, surrogate=surrogate)
    fake = fake.images(ORDERS, [("u", 1, 1, ...)])
    action = find(decided(fake, TableState("shop.orders", "snapshotting", since_epoch=7)), UpsertPartial)
    assert action is not None
    assert action.content is (TableContent.SOME_OF_ANY_KEY if surrogate else TableContent.SOME)


def test_rows_complete_images_while_a_table_is_read_again_that_was_not_suspended() -> None:
    begun = decided(FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, [])).state
    assert (begun.state, begun.held_epoch, since_of_partial(13, 12, begun)) == ("snapshotting", None, 0)
    altered = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, [])
    left_out = decided(altered.ddl("shop.orders", "ALTER TABLE orders FORCE", "alter", 5)).state
    assert (left_out.held_epoch, since_of_partial(13, 12, left_out)) == (12, 12), "the batch's log was left out"
    for before in (
        TableState("shop.orders", "inexact", version=4, unlogged="foreign keys"),
        TableState("shop.orders", "settling", version=4, settles_at=f"{UUID}:12"),
    ):
        fake = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, [])
        begun = decided(fake, before).state
        assert (begun.held_epoch, since_of_partial(13, 12, begun)) == (12, 12), "rows may lack changes already"


def test_a_reread_that_found_nothing_ends_the_hold() -> None:
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(12).snapshot("shop.orders", 11, append=False, last=True)
    assert (decided(fake, held).state.state, find(decided(fake, held), Sweep)) == ("live", Sweep(11))
    redo = FakeBatch(12).snapshot("shop.orders", 11, append=False, last=True).redo("shop.orders")
    assert decided(redo, held).state.state == "stale"


@pytest.mark.parametrize(("epoch", "strays"), [(11, None), (12, DropStrays(11, 12))])
def test_rows_of_epochs_in_which_the_table_was_held_are_strays(epoch: int, strays: DropStrays | None) -> None:
    """Of batches that were killed before they counted, and brought no rows when they were done again."""
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(epoch).snapshot("shop.orders", 11, append=False).chunk(ORDERS, [(1, "x")])
    work = decided(fake, held)
    assert (work.state.state, find(work, DropStrays)) == ("snapshotting", strays)
    assert decided(FakeBatch(13).snapshot("shop.orders", 11, append=False), work.state).actions == ()


def test_where_a_reading_begins_the_log_of_the_table_is_settled_by_it() -> None:
    fake = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(RETYPED, [(1, 2)])
    fake.images(ORDERS, [("c", 1, 1, "x")]).ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5)
    for before in (LIVE, TableState("shop.orders", "stale", held_epoch=9, reason="r"), None):
        work = decided(fake, before)
        assert brought(work) == {"chunk"}
        assert is_replaced(work)
        assert (kinds(work), work.reread_reason, work.state.state) == (["Create", "Upsert"], None, "snapshotting")
        assert [outcome.done for outcome in work.outcomes] == ["applied"]
    plain = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(ORDERS, [(1, "x")])
    plain.images(ORDERS, [("c", 1, 1, "x")])
    assert brought(decided(plain)) == {"chunk", "rows"}
    assert brought(decided(plain, None, None)) == {"chunk"}
    dropped = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).redo("shop.orders")
    dropped.ddl("shop.orders", "DROP TABLE orders", "drop", 5)
    assert decided(dropped).state.state == "dropped"


def test_a_table_that_waits_for_its_reading_is_not_asked_for_again() -> None:
    fake = FakeBatch(9).about("shop.orders", state="queued")
    work = decided(fake.ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5))
    assert (work.state.state, work.reread_reason) == ("stale", None)


def test_a_table_that_nobody_reads_is_treated_like_any_other() -> None:
    """Its header entry says that it was never read; no snapshot makes up for what the log lacks."""
    modify = FakeBatch(9).about("shop.orders", state="deferred").images(ORDERS, [("u", 1, 1, "x")])
    work = decided(modify.ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5), None, None)
    assert (work.state.state, work.reread_reason is None) == ("stale", False)
    unreadable = FakeBatch(9).about("shop.orders", state="deferred").stop("shop.orders", AMBIGUOUS)
    assert decided(unreadable, None, None).state.state == "stopped"
    changes = FakeBatch(9).about("shop.orders", state="deferred").images(ORDERS, [("u", 1, 1, "x")])
    assert decided(changes, None, None).state.state == "snapshotting"


def test_an_alter_that_adds_nullable_columns_reads_nothing_again() -> None:
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=WIDER)
    work = decided(fake)
    assert (kinds(work), work.reread_reason) == (["AddColumns"], None)
    assert columns_added(work) == (("added",), ["id", "added", "item"])
    assert [(outcome.done, outcome.reason) for outcome in work.outcomes] == [("applied", None)]


def test_a_literal_default_fills_the_column() -> None:
    five = AddedColumn("added", nullable=False, default="5")
    fake = (
        FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).ddl("shop.orders", ADD, "alter", 5, adds=[five], schema=WIDER)
    )
    for target in (TARGET, WIDER.target()):  # the second: a replay after a crash
        work = decided(fake, LIVE, target)
        assert (kinds(work), work.reread_reason) == (["AddColumns", "FillColumns", "Upsert"], None)
        assert columns_added(work) == (() if "added" in target.types else ("added",), ["id", "added", "item"])
        assert [action.values for action in work.actions if isinstance(action, FillColumns)] == [{"added": "5"}]
        assert [action.fills for action in work.actions if isinstance(action, Upsert)] == [{"added": "5"}]


def test_a_default_that_is_not_exact_has_the_table_read_again() -> None:
    half = AddedColumn("added", default="1.5")
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[half], schema=WIDER)
    work = decided(fake)
    assert (work.actions, work.state.state, work.reread_reason is not None) == ((), "stale", True)
    assert [outcome.done for outcome in work.outcomes] == ["re-read"]
    assert decided(fake, strict=True).state.state == "stopped"


@pytest.mark.parametrize("seen", [None, ORDERS, RETYPED, REKEYED])
def test_columns_nobody_has_seen_are_not_guessed(seen: FakeTable | None) -> None:
    """The table was altered again, or dropped, before its columns could be looked at."""
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=seen)
    assert decided(fake).state.state == "stale"


def test_columns_of_later_statements_are_left_out() -> None:
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=LATER)
    assert columns_added(decided(fake)) == (("added",), ["id", "added", "item"])


def test_an_alter_that_changes_no_row_does_nothing() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders COMMENT 'x'", "alter", 5, adds=[])
    work = decided(fake)
    assert (work.actions, work.state.state, work.reread_reason) == ((), "live", None)


def test_a_dropped_table_whose_changes_come_is_read_again() -> None:
    """Its CREATE is not in the log (``sql_log_bin = 0``), or all tables were read again while the account did not see
    it. Nobody else looks at it: for the planner it is finished.
    """
    dropped = replace(LIVE, state="dropped", held_epoch=3, reason="DROP TABLE orders")
    fake = FakeBatch(9).images(ORDERS, [("c", 9, 1, "x")])
    work = decided(fake, dropped)
    assert (work.actions, work.state.state, work.reread_reason is not None) == ((), "stale", True)
    assert decided(fake, dropped, strict=True).state.state == "stopped"
    gone = decided(fake.ddl("shop.orders", "DROP TABLE orders", "drop", 10), dropped)
    assert (gone.state.state, gone.reread_reason) == ("dropped", None)
    read = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decided(read, work.state).state.state == "live"


def test_any_other_alter_reads_again() -> None:
    """The images after it are left out until then: rows may have changed that the log does not show."""
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders MODIFY item CHAR(5)", "alter", 5)
    work = decided(fake.images(ORDERS, [("c", 9, 1, "x")]))
    assert (work.actions, work.state.state, work.reread_reason is not None) == ((), "stale", True)
    again = decided(FakeBatch(10).ddl("shop.orders", "ALTER TABLE orders MODIFY item CHAR(6)", "alter", 5), work.state)
    assert (again.state.held_epoch, again.reread_reason is not None) == (10, True)


@pytest.mark.parametrize("form", [Form.PLAIN, Form.HISTORY, None])
def test_a_rename_that_takes_a_column_out_of_its_mask_stops_the_table(form: Form | None) -> None:
    """A later ALTER has a stopped table read again, but not this one: that would write the plain values."""
    renamed = replace(ORDERS, columns=(("id", "bigint"), ("it", "string")))
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN item TO it", "alter", 5, unmasks=["it"])
    fake.images(ORDERS, [("c", 2, 1, "x")]).images(renamed, [("c", 9, 2, "x")])
    policy: dict[str, Any] = {"form": form, "changelog": True, "kafka": True}
    work = decided(fake, **policy)
    assert work.messages == ()
    assert (work.actions, work.log_actions, work.state.state, work.reread_reason) == ((), (), "stopped", None)
    assert "no rule hides any more what a rule hid in it" in work.warnings[0]
    fake = FakeBatch(10).images(renamed, [("c", 2, 3, "x")]).ddl("shop.orders", "ALTER TABLE orders FORCE", "alter", 5)
    later = decided(fake, work.state, **policy)
    assert (later.state.state, later.state.reason, later.reread_reason) == ("stopped", work.state.reason, None)
    assert (later.actions, later.log_actions, later.messages) == ((), (), ())


def test_a_snapshot_that_begins_does_not_show_what_a_rule_hid() -> None:
    fake = FakeBatch(9).about("shop.orders", state="reading", since_epoch=9).chunk(ORDERS, [(1, "x")])
    fake.ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN item TO it", "alter", 5, unmasks=["it"])
    work = decided(fake)
    assert (work.actions, work.log_actions, work.state.state) == ((), (), "stopped")


UNMASKED = 'no rule hides any more what a rule hid in {}; write a rule in [columns] for each of these names, "keep" to'


@pytest.mark.parametrize(
    ("read", "named", "ends"),
    [
        (FakeTable(columns=(("id", "bigint"), ("It", "string"))), (), False),  # queued before, or of a later start
        (FakeTable(columns=(("id", "bigint"), ("It", "string"))), ("it",), True),
        (ORDERS, (), True),  # renamed back, or another rule hides it
        (None, (), False),  # there are no rows yet
        (None, ("it",), True),
    ],
)
def test_no_read_shows_what_a_rule_hid_without_another_rule(
    read: FakeTable | None, named: tuple[str, ...], ends: bool
) -> None:
    fake = FakeBatch(9).about("shop.orders", state="queued")
    fake.ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN item TO it", "alter", 5, unmasks=["it"])
    stopped = decided(fake, TableState("shop.orders", "snapshotting"), None)
    assert stopped.state.state == "stopped"
    begins = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True)
    if read is not None:
        begins.chunk(read, [(1, "x")])
    policy: dict[str, Any] = {"named_columns": frozenset(named), "kafka": True}
    work = decided(begins, stopped.state, None, **policy)
    assert work.state.state == ("live" if ends else "stopped")
    if not ends:
        assert (work.actions, work.log_actions, work.messages) == ((), (), ())
        assert work.state.reason == stopped.state.reason


def test_a_stopped_table_keeps_the_names_of_all_columns_that_lost_their_mask() -> None:
    rename = "ALTER TABLE orders RENAME COLUMN item TO it"
    stopped = decided(FakeBatch(9).ddl("shop.orders", rename, "alter", 5, unmasks=["it"])).state
    both = decided(FakeBatch(10).ddl("shop.orders", rename, "alter", 5, unmasks=["b"]), stopped).state
    assert (both.reason or "").startswith(UNMASKED.format("it, b"))
    unseen = Divergence("rows change unseen")
    assert decided(FakeBatch(11), both, unseen=unseen).state.reason == both.reason
    other = decided(FakeBatch(9).ddl("shop.orders", rename, "alter", 5, unmasks=["it"]), unseen=unseen).state
    assert (other.reason or "").startswith(UNMASKED.format("it"))


def test_a_table_that_lost_a_mask_shows_nothing_after_it_was_left_out_for_a_while() -> None:
    """Its reason is then another one; no column is forgotten."""
    policy: dict[str, Any] = {"kafka": True}
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN item TO it", "alter", 5, unmasks=["it"])
    stopped = decided(fake, **policy).state
    left_out = decided(FakeBatch(10), stopped, unseen=Divergence("left out", excluded=True), **policy).state
    assert (left_out.state, left_out.unmasked) == ("excluded", ("it",))
    plain = FakeTable(columns=(("id", "bigint"), ("it", "string")))
    included = decided(FakeBatch(11).images(plain, [("c", 9, 1, "x")]), left_out, **policy)
    assert (included.actions, included.log_actions, included.messages) == ((), (), ())
    read = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True, last=True).chunk(plain, [(1, "x")])
    work = decided(read, included.state, **policy)
    assert (work.state.state, work.actions, work.log_actions, work.messages) == ("stopped", (), (), ())
    assert (work.state.reason or "").startswith(UNMASKED.format("it"))
    again = FakeBatch(13).snapshot("shop.orders", 13, append=False, first=True, last=True).chunk(plain, [(1, "x")])
    done = decided(again, work.state, named_columns=frozenset({"it"}), **policy)
    assert (done.state.state, done.state.unmasked) == ("live", ())


def test_names_of_columns_that_lost_a_mask_may_have_commas() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN c TO `a, b`", "alter", 5, unmasks=["a, b"])
    stopped = decided(fake).state
    empty = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True)
    assert decided(empty, stopped).state.state == "stopped"
    assert decided(empty, stopped, named_columns=frozenset({"a, b"})).state.state == "live"


def test_a_table_that_lost_a_mask_and_is_gone_is_dropped() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN item TO it", "alter", 5, unmasks=["it"])
    fake.images(ORDERS, [("c", 9, 2, "x")]).ddl("shop.orders", "DROP TABLE orders", "drop", 6)
    gone = decided(fake, kafka=True)
    assert (gone.state.state, gone.actions, gone.log_actions, gone.messages) == ("dropped", (), (), ())
    assert [one.done for one in gone.outcomes] == ["dropped", "held"]
    again = decided(fake.ddl("shop.orders", "CREATE TABLE orders (id INT PRIMARY KEY)", "create", 7))
    assert (again.state.state, again.log_actions, again.reread_reason is None) == ("stale", (), False)
    fake.ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN a TO b", "alter", 8, unmasks=["b"])
    assert (decided(fake).state.reason or "").startswith(UNMASKED.format("b"))


def test_strict_tables_stop_at_an_alter_that_may_change_rows() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders DROP item", "alter", 5)
    work = decided(fake, strict=True)
    assert (work.state.state, work.reread_reason) == ("stopped", None)
    assert "ALTER TABLE orders DROP item" in work.warnings[0]
    still = decided(FakeBatch(10).images(NARROWER, [("c", 1, 1)]), work.state, strict=True)
    assert (still.actions, still.log_actions, still.warnings) == ((), (), ())
    added = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=WIDER)
    assert decided(added, strict=True).state.state == "live"


def swap(epoch: int) -> FakeBatch:
    """RENAME TABLE orders TO _orders_old, _orders_new TO orders: as the tools that change tables online end."""
    text = "RENAME TABLE orders TO _orders_old, _orders_new TO orders"
    fake = FakeBatch(epoch).ddl("shop.orders", text, "rename", 5, new_name="shop._orders_old")
    return fake.ddl("shop._orders_new", text, "rename", 5, new_name="shop.orders")


def test_a_table_that_comes_and_goes_within_a_batch_leaves_nothing() -> None:
    """As the working tables of the tools do."""
    fake = FakeBatch(9).ddl("shop.orders", "CREATE TABLE orders ...", "create", 1).images(ORDERS, [("c", 2, 1, "x")])
    fake.ddl("shop.orders", "RENAME TABLE orders TO other", "rename", 5, new_name="shop.other")
    work = decided(fake, None, None, changelog=False)
    assert (work.unrecorded, work.actions, work.reread_reason) == (True, (), None)
    logged = decided(fake, None, None)
    assert (logged.unrecorded, len(logged.log_actions)) == (False, 1)
    assert not decided(fake, LIVE, TARGET, changelog=False).unrecorded


def test_a_name_given_to_another_table_is_read_again() -> None:
    work = decided(swap(9).images(WIDER, [("c", 9, 1, 5, "x")]))
    assert (work.actions, work.state.state, work.reread_reason is not None) == ((), "stale", True)
    assert [outcome.done for outcome in work.outcomes] == ["dropped", "re-read"]
    assert decided(swap(9), strict=True).state.state == "stopped"
    stopped = TableState("shop.orders", "stopped", held_epoch=3, reason="r")
    renamed = FakeBatch(9).ddl("shop.copy", "RENAME TABLE copy TO orders", "rename", 5, new_name="shop.orders")
    assert decided(renamed, stopped).state.state == "stale"


def test_a_batch_names_both_tables_of_a_rename() -> None:
    assert swap(9).described().tables() == ["shop._orders_new", "shop._orders_old", "shop.orders"]


@pytest.mark.parametrize("current", [True, False])
def test_a_type_that_the_changelog_cannot_hold_stops_the_table(current: bool) -> None:
    fake = FakeBatch(9).images(RETYPED, [("c", 1, 1, 2)])
    logged = dict(ORDERS.columns)
    work = decided(fake, LIVE, TARGET if current else None, logged=logged, form=Form.PLAIN if current else None)
    assert (work.actions, work.log_actions, work.state.state, work.reread_reason) == ((), (), "stopped", None)
    assert "changelog" in str(work.state.reason)
    later = decided(
        FakeBatch(10).images(ORDERS, [("c", 1, 1, "x")]),
        work.state,
        logged=logged,
        form=Form.PLAIN if current else None,
    )
    assert (later.actions, later.log_actions) == ((), ())
    again = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True, last=True).chunk(RETYPED, [(1, 2)])
    freed = decided(again, work.state, logged=None, form=Form.PLAIN if current else None)
    assert (freed.state.state, len(freed.log_actions)) == ("live", 1)


def test_the_changelog_takes_all_columns_of_a_batch() -> None:
    other = FakeTable(columns=(("id", "bigint"), ("b", "int"), ("c", "int")))
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(other, [("c", 9, 1, 2, 3)])
    work = decided(fake.ddl("shop.orders", "ALTER ...", "alter", 5))
    (log,) = work.log_actions
    assert {column.name for column in log.definition.columns} == {"id", "item", "b", "c"}


def test_the_changelog_keeps_the_letter_case_of_its_columns() -> None:
    """MySQL renames a column so, and Delta has no two columns that differ only by it."""
    renamed = FakeTable(columns=(("ID", "bigint"), ("Item", "string")), key=("ID",))
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(renamed, [("c", 9, 2, "y")])
    for logged, expected in ((None, ["id", "item"]), ({"id": "bigint", "ITEM": "string"}, ["id", "ITEM"])):
        (log,) = decided(fake.ddl("shop.orders", "ALTER ...", "alter", 5), logged=logged).log_actions
        assert [column.name for column in log.definition.columns] == expected
        assert isinstance(log, AppendChanges)
        assert log.definition.key == ("id",)
        shown = [{log.names.get(name, name) for name in part.definition.types} for part in log.parts]
        assert shown == [{*expected}] * 2


def test_kafka_gets_every_image_unless_the_table_stays_stopped() -> None:
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(RETYPED, [("c", 9, 1, 2)])
    new = created().images(ORDERS, [("c", 1, 1, "x")]).images(RETYPED, [("c", 9, 1, 2)])
    work = decided(new, None, None, form=None, changelog=False, kafka=True)
    assert (work.state.state, sum(part.images for part in work.messages)) == ("live", 2)
    assert decided(fake).messages == ()
    stale = decided(fake, replace(LIVE, state="stale", held_epoch=3, reason="r"), kafka=True)
    assert sum(part.images for part in stale.messages) == 2
    stopped = replace(LIVE, state="stopped", held_epoch=3, reason="r")
    assert decided(fake, stopped, kafka=True).messages == ()
    again = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert [part.kind for part in decided(again, stopped, kafka=True).messages] == ["chunk"]
    brief = FakeBatch(9).images(ORDERS, [("c", 2, 1, "x")]).ddl("shop.orders", "DROP TABLE orders", "drop", 5)
    assert not decided(brief, None, None, changelog=False, kafka=True).unrecorded


@pytest.mark.parametrize("form", [Form.PLAIN, None])
def test_a_re_read_warns_that_no_message_says_which_rows_are_gone(form: Form | None) -> None:
    statement = "TRUNCATE PARTITION" if form is not None else "CREATE"
    fake = FakeBatch(9).ddl("shop.orders", statement, "alter" if form is not None else "create", 5)
    row = LIVE if form is not None else replace(LIVE, state="dropped", held_epoch=3, reason="DROP")
    (quiet,) = decided(fake, row, form=form).warnings
    assert quiet.startswith("shop.orders is read again: ")
    (warning,) = decided(fake, row, form=form, kafka=True).warnings
    assert warning == f"{quiet}; Kafka gets its rows, and no message for those that are gone"


@pytest.mark.parametrize("form", [Form.PLAIN, None])
def test_a_table_that_nobody_reads_and_no_statement_created_is_not_live(form: Form | None) -> None:
    """It was there before the stream began, and gone when the planner looked for tables: its DROP is still to come."""
    changes = [("c", 1, 1, "x")]
    unread = decided(FakeBatch(9).images(ORDERS, changes), None, None, form=form)
    assert (unread.state.state, unread.actions) == ("stale", ())
    assert "had rows before" in str(unread.reread_reason)
    assert decided(created().images(ORDERS, changes), None, None, form=form).state.state == "live"
    perhaps = FakeBatch(9).ddl("shop.orders", "CREATE TABLE IF NOT EXISTS orders ...", "create", 1, adds=())
    assert decided(perhaps.images(ORDERS, changes), None, None, form=form).state.state == "stale"
    emptied = FakeBatch(9).ddl("shop.orders", "TRUNCATE TABLE orders", "truncate", 1)
    assert decided(emptied.images(ORDERS, changes), None, None, form=form).state.state == "live"
    gone = FakeBatch(9).images(ORDERS, changes).ddl("shop.orders", "DROP TABLE orders", "drop", 5)
    assert decided(gone, None, None, form=form).state.state == "dropped"


@pytest.mark.parametrize("action", ["drop", "rename"])
def test_a_dropped_or_renamed_table_is_dropped_with_a_warning_once(action: str) -> None:
    work = decided(FakeBatch(9).ddl("shop.orders", f"{action} TABLE orders", action, 5))
    assert (work.state.state, work.state.reason) == ("dropped", f"{action} TABLE orders")
    assert [outcome.done for outcome in work.outcomes] == ["dropped"]
    warning = f"shop.orders is dropped, and its rows stay: {action} TABLE orders"
    assert (work.warnings, work.reread_reason) == ((warning,), None)
    again = FakeBatch(10).ddl("shop.orders", "DROP TABLE IF EXISTS orders", "drop", 5)
    assert decided(again, work.state).warnings == ()


@pytest.mark.parametrize(
    ("new_name", "unmasks", "where"),
    [
        ("away.orders", (), "which source.tables leaves out"),
        ("away.orders", ("mail",), "which source.tables leaves out"),
        ("shop.old", (), "followed as another table"),
        ("shop.old", ("mail",), "followed as another table, and no rule hides there what a rule hid in mail"),
    ],
)
def test_the_warning_of_a_renamed_table_says_where_its_rows_are(
    new_name: str, unmasks: tuple[str, ...], where: str
) -> None:
    """The table itself loses no change before the statement, also if columns of the other one lose a rule."""
    fake = FakeBatch(9, patterns=("shop.*",)).images(ORDERS, [("c", 2, 1, "x")])
    work = decided(fake.ddl("shop.orders", "RENAME …", "rename", 5, new_name=new_name, unmasks=unmasks))
    reason = f"it is {new_name} now, {where}: RENAME …"
    assert (work.state.state, work.state.reason) == ("dropped", reason)
    assert work.warnings == (f"shop.orders is dropped, and its rows stay: {reason}",)
    assert len(work.log_actions) == 1


@pytest.mark.parametrize("action", ["drop", "rename"])
@pytest.mark.parametrize("modes", [{"changelog": True}, {"changelog": False, "kafka": True}])
def test_a_pipeline_without_tables_follows_where_a_table_goes(action: str, modes: dict[str, Any]) -> None:
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).ddl("shop.orders", f"{action} TABLE orders", action, 5)
    row = replace(LIVE, version=None)
    gone = decided(fake, row, None, form=None, **modes)
    assert (gone.state.state, len(gone.warnings), gone.reread_reason) == ("dropped", 1, None)
    assert len(gone.log_actions) + len(gone.messages) == 1, "its last changes"
    create = FakeBatch(10).ddl("shop.orders", "CREATE ...", "create", 6).images(ORDERS, [("c", 7, 2, "y")])
    back = decided(create, gone.state, None, form=None, **modes)
    assert (back.state.state, back.reread_reason is not None) == ("stale", True), "also if it has rows from before"
    assert len(back.log_actions) + len(back.messages) == 1
    again = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True, last=True).chunk(ORDERS, [(2, "y")])
    assert decided(again, back.state, None, form=None, **modes).state.state == "live"
    alter = FakeBatch(10).ddl("shop.orders", "ALTER TABLE orders CONVERT ...", "alter", 6)
    kept = decided(alter, row, None, form=None, **modes)
    assert (kept.state.state, [outcome.done for outcome in kept.outcomes]) == ("live", ["applied"])


def test_a_pipeline_without_tables_knows_that_a_table_of_one_batch_is_gone() -> None:
    brief = FakeBatch(9).ddl("shop.orders", "CREATE ...", "create", 5).images(ORDERS, [("c", 6, 1, "x")])
    work = decided(brief.ddl("shop.orders", "DROP ...", "drop", 7), None, None, form=None, changelog=False, kafka=True)
    assert (work.state.state, work.unrecorded, len(work.messages)) == ("dropped", False, 1)


def test_created_again_is_read_again() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "DROP TABLE orders", "drop", 5).ddl("shop.orders", "CREATE ...", "create", 6)
    assert (decided(fake).state.state, decided(fake).reread_reason is not None) == ("stale", True)
    for state in ("stopped", "dropped"):
        held = TableState("shop.orders", state, held_epoch=3, reason="r")
        later = decided(FakeBatch(9).ddl("shop.orders", "CREATE ...", "create", 6), held)
        assert (later.state.state, later.reread_reason is not None) == ("stale", True)


def test_a_life_of_a_dropped_table_within_one_batch_is_in_its_changelog() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "CREATE ...", "create", 6).images(ORDERS, [("c", 7, 1, "x")])
    fake.ddl("shop.orders", "DROP TABLE orders", "drop", 8)
    for state in ("dropped", "stopped"):
        work = decided(fake, TableState("shop.orders", state, held_epoch=3, reason="r"), kafka=True)
        assert (work.state.state, len(work.log_actions), len(work.messages)) == ("dropped", 1, 1)


def test_create_if_not_exists_on_a_table_that_exists_does_nothing() -> None:
    work = decided(FakeBatch(9).ddl("shop.orders", "CREATE TABLE IF NOT EXISTS orders ...", "create", 6))
    assert (work.state.state, work.reread_reason) == ("live", None)


def test_create_if_not_exists_does_not_read_a_table_that_was_stopped_for_another_reason() -> None:
    def after(state: str, *, dropped: bool = False) -> str:
        fake = FakeBatch(9).ddl("shop.orders", "DROP TABLE orders", "drop", 5) if dropped else FakeBatch(9)
        fake = fake.ddl("shop.orders", "CREATE TABLE IF NOT EXISTS orders ...", "create", 6, adds=())
        return decided(fake, TableState("shop.orders", state, held_epoch=3, reason="r")).state.state

    assert after("stopped") == "stopped"
    assert after("stopped", dropped=True) == "stale"
    assert after("dropped") == "stale"


def test_the_last_truncate_counts() -> None:
    fake = (
        FakeBatch(9)
        .ddl("shop.orders", "TRUNCATE orders", "truncate", 5)
        .ddl("shop.orders", "TRUNCATE orders", "truncate", 8)
    )
    assert decided(fake).actions == (Truncate((9, 1, 8, 0), f"{UUID}:1", 1_700_000_000_000_000),)


def test_versions_of_a_history_end_at_the_first_truncate() -> None:
    fake = FakeBatch(9).images(ORDERS, [("c", 9, 1, "x")])
    for place in (3, 7):
        fake.ddl("shop.orders", "TRUNCATE TABLE orders", "truncate", place)
    truncate = find(decided(fake, LIVE, ORDERS.target(form=Form.HISTORY), form=Form.HISTORY), Truncate)
    assert truncate is not None
    assert truncate.bound == (9, 1, 3, 0)


def test_a_table_without_a_key_takes_images() -> None:
    keyless = FakeTable(key=())
    work = decided(FakeBatch(9).images(keyless, [("c", 1, 1, "x")]), LIVE, keyless.target())
    assert (is_exact(work), work.state.state) == (True, "live")
    taken = FakeTable(columns=(("id", "bigint"), ("_Row_Hash", "string")), key=())
    work = decided(FakeBatch(9).images(taken, [("c", 1, 1, "x")]), None, None)
    assert (work.actions, work.state.state) == ((), "stopped")


def test_a_truncate_and_the_rows_of_a_table_without_a_key_are_one_commit() -> None:
    """A replay finds both or none."""
    keyless, target = FakeTable(key=()), FakeTable(key=()).target()
    batch = FakeBatch(9).ddl("shop.orders", "TRUNCATE TABLE orders", "truncate", 5)
    assert kinds(decided(batch, target=target)) == ["Truncate"]
    batch = FakeBatch(9).images(keyless, [("c", 1, 1, "x"), ("t", 5), ("c", 9, 1, "x")])
    work = decided(batch.ddl("shop.orders", "TRUNCATE TABLE orders", "truncate", 5), target=target)
    count = find(work, Count)
    assert count is not None
    assert (kinds(work), count.bound) == (["Count"], (9, 1, 5, 0))


def is_exact(decision: Decision) -> bool:
    count = find(decision, Count)
    assert count is not None
    return count.content is TableContent.ALL


def test_what_is_read_again_is_not_exact() -> None:
    keyless, target, images = FakeTable(key=()), FakeTable(key=()).target(), [("c", 1, 1, "x")]
    waits = FakeBatch(9).about("shop.orders", state="queued")
    assert not is_exact(decided(waits.images(keyless, images), LIVE, target))
    unread = TableState("shop.orders", "snapshotting")
    assert not is_exact(decided(FakeBatch(9).images(keyless, images), unread, target))
    assert not is_exact(decided(FakeBatch(9).images(keyless, images), LIVE, target, reread_requested=True))
    altered = FakeBatch(9).images(keyless, images).ddl("shop.orders", "ALTER …", "alter", 5)
    assert decided(altered, LIVE, target).actions == ()


@pytest.mark.parametrize(("strict", "state"), [(False, "stale"), (True, "stopped")])
def test_a_table_that_lacks_rows_when_it_is_written(strict: bool, state: str) -> None:
    work = decided(FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]), strict=strict)
    suspended = suspend(work, 9, reread_reason="rows are missing", stop_reason=None)
    assert (suspended.state.state, suspended.state.held_epoch) == (state, 9)
    assert (suspended.reread_reason is None) == strict
    assert "rows are missing" in (suspended.state.reason or "")
    assert suspended.warnings
    stopped = suspend(work, 9, reread_reason="rows are missing", stop_reason="rows are wrong")
    assert (stopped.state.state, stopped.state.reason, stopped.reread_reason) == ("stopped", "rows are wrong", None)
    assert stopped.warnings == ("shop.orders is stopped: rows are wrong",)
    assert work.state.state == "live"
    assert suspend(work, 9, reread_reason=None, stop_reason=None) is work


@pytest.mark.parametrize(("strict", "state"), [(False, "stale"), (True, "stopped")])
@pytest.mark.parametrize("form", [Form.PLAIN, None])
def test_a_changelog_that_was_left_out_lacks_changes(form: Form | None, strict: bool, state: str) -> None:
    images = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")])
    for fake in (images, FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED])):
        work = decided(fake, is_log_outdated=True, strict=strict, form=form)
        assert (work.state.state, work.state.held_epoch, work.actions) == (state, 9, ())
        assert "its changelog lacks changes" in (work.state.reason or "")
        assert (work.reread_reason is None) == strict
    assert [type(action) for action in decided(images, is_log_outdated=True).log_actions] == [AppendChanges]


def test_a_snapshot_that_begins_or_waits_makes_up_for_missing_changes() -> None:
    begins = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True).chunk(ORDERS, [(1, "x")])
    waits = FakeBatch(9).about("shop.orders", state="queued").images(ORDERS, [("c", 1, 1, "x")])
    runs = FakeBatch(9).snapshot("shop.orders", 7, append=False).chunk(ORDERS, [(1, "x")])
    reading = TableState("shop.orders", "snapshotting", version=4, since_epoch=7)
    assert decided(begins, is_log_outdated=True).state.state == "snapshotting"
    assert decided(waits, is_log_outdated=True).state.state == "snapshotting"
    assert decided(runs, reading, is_log_outdated=True).state.state == "stale", "its earlier rows are not logged"
    assert decided(runs, reading).state.state == "snapshotting"
    unread = TableState("shop.orders", "snapshotting")
    images = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")])
    assert decided(images, unread, is_log_outdated=True).state.state == "snapshotting", "nobody has it read"


def test_a_requested_re_read_that_begins_is_not_waited_for() -> None:
    """Another one is requested, because the first does not end a suspension of its own batch."""
    fake = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True)
    work = decided(fake.chunk(ORDERS, [(1, "x")]).chunk(REKEYED, [(2, "x")]), reread_requested=True)
    assert (work.state.state, work.state.held_epoch) == ("stale", 9)
    assert work.reread_reason is not None


def test_a_requested_re_read_that_begins_without_rows_is_not_waited_for() -> None:
    """Its chunks are retried. It would not end the suspension by this batch's statement."""
    stale = TableState("shop.orders", "stale", version=4, held_epoch=8, reason="altered; waits to be read again")
    begins = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True).redo("shop.orders")
    work = decided(
        begins.ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5), stale, reread_requested=True
    )
    assert (work.state.state, work.state.held_epoch, work.reread_reason is None) == ("stale", 9, False)
    waits = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5)
    assert decided(waits, stale, reread_requested=True).reread_reason is None, "it begins later"


@pytest.mark.parametrize(("state", "strict"), [("live", False), ("live", True), ("stale", False), ("stopped", False)])
def test_the_re_read_of_a_table_whose_settings_changed(state: str, strict: bool) -> None:
    reason = reread_reason(replace(LIVE, state=state), "`rows` changed", Policy(strict=strict))
    assert reason == ("`rows` changed" if state == "live" and not strict else None)


def test_a_column_with_one_of_our_names_stops_the_table() -> None:
    taken = FakeTable(columns=(("id", "bigint"), ("_SEQ", "string")))
    work = decided(FakeBatch(9).images(taken, [("c", 1, 1, "x")]), None, None)
    assert (work.actions, work.log_actions, work.state.state) == ((), (), "stopped")


def test_a_table_the_header_does_not_mention_keeps_its_state() -> None:
    before = TableState("shop.orders", "snapshotting", since_epoch=7)
    work = decided(FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]), before)
    assert (work.state.state, work.state.since_epoch) == ("snapshotting", 7)


def test_a_batch_has_exactly_one_header() -> None:
    with pytest.raises(DecodeError, match="0 headers"):
        Batch.of([])


def test_a_dropped_database_drops_every_known_table_of_it() -> None:
    row = DdlRow("shop.*", "DROP DATABASE shop", "drop_database", (1, 1, 1, 0), "g", 0)
    header = Header(1, "", "", "", 0, {}, ())
    batch = Batch(header, {}, [row], [], [])
    batch.name_dropped_tables(["shop.a", "shop.b", "shopping.c"])
    assert [(ddl.table, ddl.action) for ddl in batch.ddl] == [("shop.a", "drop"), ("shop.b", "drop")]


AMBIGUOUS = "the log does not name the columns of shop.orders"


def test_images_that_nobody_can_read_stop_the_table() -> None:
    work = decided(FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).stop("shop.orders", AMBIGUOUS))
    assert (work.actions, work.state.state, work.state.reason, work.reread_reason) == ((), "stopped", AMBIGUOUS, None)
    assert work.warnings == (f"shop.orders is stopped: {AMBIGUOUS}",)
    alone = FakeBatch(9).stop("shop.orders", AMBIGUOUS)
    assert alone.described().tables() == ["shop.orders"]
    assert decided(alone, form=None).state.state == "stopped", "a changelog has a gap"


def test_the_alter_that_made_them_unreadable_has_the_table_read_again() -> None:
    """A statement that comes later says more than that the images before it cannot be read."""
    fake = FakeBatch(9).stop("shop.orders", AMBIGUOUS)
    fake.ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN item TO it", "alter", 5)
    work = decided(fake)
    assert (work.state.state, work.reread_reason) == ("stale", "ALTER may have changed rows: " + fake_statement(fake))
    assert decided(fake, strict=True).state.state == "stopped"


def fake_statement(fake: FakeBatch) -> str:
    return fake.described().ddl[0].statement


@pytest.mark.parametrize("append", [True, False])
def test_unreadable_images_of_what_is_read_here_or_later_do_no_harm(append: bool) -> None:
    begins = FakeBatch(9).snapshot("shop.orders", 9, append=append, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decided(begins.stop("shop.orders", AMBIGUOUS), None, None).state.state == "live"
    waits = FakeBatch(9).about("shop.orders", state="queued", append=append)
    assert decided(waits.stop("shop.orders", AMBIGUOUS), None, None).state.state == "snapshotting"
    stale = TableState("shop.orders", "stale", version=4, held_epoch=8, reason="altered")
    assert decided(FakeBatch(9).stop("shop.orders", AMBIGUOUS), stale).state.state == "stale"


def test_unreadable_images_in_the_middle_of_a_reading_stop_it() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).chunk(ORDERS, [(1, "x")])
    work = decided(fake.stop("shop.orders", AMBIGUOUS), TableState("shop.orders", "snapshotting", since_epoch=7))
    assert (work.state.state, work.state.held_epoch, work.actions) == ("stopped", 9, ())
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason=AMBIGUOUS)
    again = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decided(again, stopped).state.state == "live"


ODD = "a value is not text of character set ujis that MySQL maps to UTF-8 and back, as a key must be: 0xa1c0"


def test_rows_of_chunks_that_nobody_can_read_stop_the_table_also_beside_others() -> None:
    first = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True).unread("shop.orders", ODD)
    assert first.described().tables() == ["shop.orders"]
    work = decided(first, None, None)
    assert (work.actions, work.state.state, work.state.reason, work.state.held_epoch) == ((), "stopped", ODD, 9)
    assert work.warnings == (f"shop.orders is stopped: {ODD}",)
    beside = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    work = decided(beside.unread("shop.orders", ODD), TableState("shop.orders", "live", version=4))
    assert work.actions == ()
    assert (work.state.state, work.state.held_epoch, work.state.version) == ("stopped", 9, 4)


@pytest.mark.parametrize("rows", [True, False])
def test_a_reading_that_could_not_read_all_frees_nothing_later(rows: bool) -> None:
    """The table was stopped for the same reason before; chunks of the same reading that come later are of no use."""
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=5, reason=ODD)
    begins = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).unread("shop.orders", ODD)
    work = decided(begins.chunk(ORDERS, [(1, "x")]) if rows else begins, stopped)
    assert (work.actions, work.state.state, work.state.held_epoch) == ((), "stopped", 12)
    ends = FakeBatch(13).snapshot("shop.orders", 12, append=False, last=True).chunk(ORDERS, [(2, "y")])
    work = decided(ends, work.state)
    assert (work.actions, work.state.state) == ((), "stopped")
    again = FakeBatch(14).snapshot("shop.orders", 14, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decided(again, work.state).state.state == "live"


def test_the_last_chunk_of_a_reading_that_could_not_be_read_does_not_end_the_hold() -> None:
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=5, reason="dropped")
    fake = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True, last=True).unread("shop.orders", ODD)
    work = decided(fake, stopped)
    assert (work.actions, work.state.state, work.state.reason) == ((), "stopped", ODD)


KEY = Divergence("foreign keys of shop.orders: c: ON DELETE CASCADE: use RESTRICT")
OVER = Divergence("a foreign key may have changed rows unseen: ALTER", over=True)
REFERENCES = "ALTER TABLE orders ADD FOREIGN KEY (item) REFERENCES u (id) ON DELETE CASCADE"


def altered(epoch: int = 9) -> FakeBatch:
    fake = FakeBatch(epoch).images(ORDERS, [("c", 1, 1, "x")])
    return fake.ddl("shop.orders", REFERENCES, "alter", 2, adds=[])


@pytest.mark.parametrize("current", [True, False])
def test_rows_that_change_unseen_stop_the_table(current: bool) -> None:
    work = decided(altered(), unseen=KEY, form=Form.PLAIN if current else None)
    assert (work.actions, work.state.state, work.state.held_epoch, work.reread_reason) == ((), "stopped", 9, None)
    assert work.state.reason == f"{KEY.reason}; then read the table again with: headgate run --resnapshot 'shop.orders'"
    assert work.warnings == (f"shop.orders is stopped: {work.state.reason}",)
    assert [outcome.done for outcome in work.outcomes] == ["stopped" if current else "applied"]
    assert decided(altered()).state.state == "live", "a key that changes nothing, or that is accepted"


def test_what_they_did_is_read_again_when_it_is_over() -> None:
    work = decided(altered(), unseen=OVER)
    assert (work.actions, work.state.state, work.reread_reason) == ((), "stale", OVER.reason)
    assert [outcome.done for outcome in work.outcomes] == ["re-read"]
    assert decided(altered(), unseen=OVER, strict=True).state.state == "stopped"
    begins = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decided(begins, unseen=OVER).state.state == "live", "the reading is as of the batch's end"
    dropped = altered().ddl("shop.orders", "DROP TABLE orders", "drop", 3)
    assert decided(dropped, unseen=OVER).state.state == "dropped"


def test_a_reading_does_not_free_a_table_whose_rows_still_change_unseen() -> None:
    """Nor does any later batch of that reading."""
    reason = decided(altered(), unseen=KEY).state.reason
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason=reason)
    begins = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, [(1, "x")])
    work = decided(begins, stopped, unseen=KEY)
    assert (work.actions, work.state.state, work.state.held_epoch, work.state.version) == ((), "stopped", 12, 4)
    assert work.warnings, "that reading was asked for"
    ends = FakeBatch(13).snapshot("shop.orders", 12, append=False, last=True).chunk(ORDERS, [(2, "y")])
    assert decided(ends, work.state).state.state == "stopped"
    again = FakeBatch(14).snapshot("shop.orders", 14, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decided(again, work.state).state.state == "live"


def test_unreadable_images_in_the_middle_of_what_would_free_a_table() -> None:
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason=AMBIGUOUS)
    part = FakeBatch(12).snapshot("shop.orders", 11, append=False).chunk(ORDERS, [(1, "x")])
    work = decided(part.stop("shop.orders", AMBIGUOUS), stopped)
    assert (work.actions, work.state.state, work.state.held_epoch) == ((), "stopped", 12)
    ends = FakeBatch(13).snapshot("shop.orders", 11, append=False, last=True).chunk(ORDERS, [(2, "y")])
    assert decided(ends, work.state).state.state == "stopped", "images of the first part's rows were left out"


def test_a_table_that_has_just_become_inexact_need_not_have_each_deleted_row() -> None:
    """The insert of a row was skipped in the batch that deletes it."""
    keyless = replace(ORDERS, key=())
    changes = FakeBatch(9).images(keyless, [("d", 1, 1, "x")])
    for unseen, content in ((None, TableContent.ALL), (INSERTS, TableContent.UNKNOWN)):
        work = decided(changes, LIVE, replace(TARGET, key=()), unseen=unseen)
        count = find(work, Count)
        assert count is not None
        assert count.content is content


INSERTS = Divergence("skip leaves operations out: insert", accepted=True)


def test_removed_rows_that_skip_keeps_outlive_a_reread() -> None:
    stale = TableState("shop.orders", "stale", version=4, held_epoch=3, reason="x")
    begins = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).chunk(ORDERS, [(1, "x")])
    skipped = Divergence("skip leaves operations out: delete", accepted=True)
    assert kinds(decided(begins, stale)) == ["DropStrays", "Upsert", "Sweep"]
    work = decided(begins, stale, unseen=skipped, keeps_removed=True)
    assert (kinds(work), work.state.state, work.state.reason) == (["Upsert"], "inexact", skipped.reason)
    retyped = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True).chunk(RETYPED, [(1, 2)])
    assert is_replaced(decided(retyped, stale))
    stopped = decided(retyped, stale, unseen=skipped, keeps_removed=True)
    assert (stopped.state.state, stopped.actions) == ("stopped", ())
    assert "would lose the rows that skip keeps" in str(stopped.state.reason)
    keyless = decided(created().images(replace(ORDERS, key=()), [("c", 1, 1, "x")]), None, None, keeps_removed=True)
    assert keyless.state.state == "stopped"


def test_a_chosen_key_is_proven_wherever_the_rows_are_known() -> None:
    chosen = replace(ORDERS, chosen_key=True)
    changes = FakeBatch(9).images(chosen, [("c", 1, 1, "x"), ("c", 2, 2, "x"), ("d", 3, 3, "x")])
    work = decided(changes)
    proof = find(work, ProveKey)
    assert (kinds(work), proof and (proof.base, proof.bound)) == (["Upsert", "ProveKey"], (4, None))
    assert proof is not None
    assert sum(part.growth for part in proof.parts) == 1
    first = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(chosen, [(1, "x")])
    begun = decided(first, None, None)
    proof = find(begun, ProveKey)
    assert kinds(begun) == ["Create", "Append", "ProveKey"]
    assert proof is not None
    assert {part.kind for part in proof.parts} == {"chunk"}
    changes.images(chosen, [("t", 5)]).ddl("shop.orders", "TRUNCATE TABLE t", "truncate", 5)
    proof = find(decided(changes), ProveKey)
    assert proof is not None
    assert (proof.base, proof.bound) == (None, (9, 1, 5, 0))
    reading = TableState("shop.orders", "snapshotting", version=4, since_epoch=8)
    running = FakeBatch(9).snapshot("shop.orders", 8, append=False).images(chosen, [("c", 1, 1, "x")])
    assert find(decided(running, reading), ProveKey) is None, "which rows there are is not known yet"
    assert find(decided(FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")])), ProveKey) is None


@pytest.mark.parametrize("rows", ["", "id > 3"])
def test_another_row_filter_reads_the_table_again(rows: str) -> None:
    shown, target = replace(ORDERS, rows=rows), replace(TARGET, rows="id > 2")
    work = decided(FakeBatch(9).images(shown, [("u", 1, 1, "x")]), target=target)
    assert (work.state.state, work.actions) == ("stale", ())
    assert work.reread_reason == f"`rows` changed from id > 2 to {rows or 'all rows'}"
    begins = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True).chunk(shown, [])
    again = decided(begins, work.state, target)
    assert (again.state.state, is_replaced(again)) == ("live", True), "its rows are others, and it has to say so"
    same = decided(FakeBatch(9).images(shown, [("u", 1, 1, "x")]), target=replace(target, rows=rows))
    assert (same.state.state, kinds(same)) == ("live", ["Upsert"])


HOOKED = replace(ORDERS, hook="m:f@1/aa")


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ("m:f@2/aa", "the hook changed from m:f@1 to m:f@2"),
        ("", "the hook changed from m:f@1 to none"),
        ("m:f@1/bb", "the hook gets other columns, so it may make other rows"),
    ],
)
def test_another_hook_or_input_reads_the_table_again(hook: str, reason: str) -> None:
    shown, target = replace(ORDERS, hook=hook), HOOKED.target()
    work = decided(FakeBatch(9).images(shown, [("u", 1, 1, "x")]), target=target)
    assert (work.state.state, work.actions, work.reread_reason) == ("stale", (), reason)
    begins = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True).chunk(shown, [])
    again = decided(begins, work.state, target)
    assert (again.state.state, is_replaced(again)) == ("live", True)
    assert again.state.hook == (hook.partition("/")[0] or None)


def test_images_before_and_after_a_change_of_the_hooks_input_do_not_fit_together() -> None:
    fake = FakeBatch(9).images(HOOKED, [("u", 1, 1, "x")])
    fake.images(replace(HOOKED, hook="m:f@1/bb"), [("u", 5, 1, "y")])
    assert (
        decided(fake, target=HOOKED.target()).reread_reason == "the hook gets other columns, so it may make other rows"
    )


def test_the_ledger_tells_the_hook_of_the_newest_images() -> None:
    row = decided(FakeBatch(9).images(HOOKED, [("u", 1, 1, "x")]), target=HOOKED.target()).state
    assert row.hook == "m:f@1"
    quiet = FakeBatch(10).ddl("shop.orders", "ALTER TABLE t COMMENT 'x'", "alter", 5, adds=[])
    assert decided(quiet, row, HOOKED.target()).state.hook == "m:f@1"
    for modes in list[dict[str, Any]]([{"kafka": True}, {"changelog": True}]):
        batch = FakeBatch(9).images(replace(HOOKED, hook="m:f@2/aa"), [("u", 1, 1, "x")])
        work = decided(batch, row, None, form=None, **modes)
        assert (work.state.state, work.state.hook) == ("live", "m:f@2")


def test_a_history_takes_what_its_hook_makes_of_other_columns_and_no_other_hook() -> None:
    target = HOOKED.target(form=Form.HISTORY)
    for hook, kept in (("m:f@1/bb", True), ("m:f@2/aa", False)):
        shown = replace(ORDERS, hook=hook)
        first = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True).chunk(shown, [(1, "x")])
        read = decided(first, target=target, form=Form.HISTORY)
        assert (read.state.state, kinds(read)) == (
            ("live", ["NoteTypes", "AppendVersions", "Sweep"]) if kept else ("stopped", [])
        )


MARKED = ORDERS.target(form=Form.MARKED)


def test_a_table_that_marks_deletes_gets_the_same_actions() -> None:
    first = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(ORDERS, [(1, "x")])
    made = find(decided(first, None, None, form=Form.MARKED), Create)
    assert made is not None
    assert made.target.form is Form.MARKED
    changes = FakeBatch(9).images(ORDERS, [("t", 5)]).images(ORDERS, [("d", 6, 1, ...)])
    changes.ddl("shop.orders", "TRUNCATE TABLE orders", "truncate", 5)
    work = decided(changes, target=MARKED, form=Form.MARKED)
    assert kinds(work) == ["Truncate", "UpsertPartial"]
    action = find(work, UpsertPartial)
    assert action is not None
    assert action.base == 4, "rows before the TRUNCATE have last values"
    removing = find(decided(changes), UpsertPartial)
    assert removing is not None
    assert removing.base is None


@pytest.mark.parametrize("form", [Form.MARKED, Form.PLAIN])
def test_a_table_that_was_written_with_the_other_setting_is_read_again_and_replaced(form: Form) -> None:
    target = TARGET if form is Form.MARKED else MARKED
    changes = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")])
    work = decided(changes, target=target, form=form)
    assert (work.state.state, kinds(work)) == ("stale", [])
    assert work.reread_reason is not None
    assert work.reread_reason.startswith('deletes = "mark"' if form is Form.MARKED else 'deletes = "remove"')
    assert decided(changes, target=target, form=form, strict=True).state.state == "stopped"
    first = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    again = decided(first.images(ORDERS, [("c", 1, 2, "x")]), work.state, target, form=form)
    made = find(again, Create)
    assert made is not None
    assert (made.replace, made.target.form, again.state.state) == (True, form, "live")
    at_once = decided(first, target=target, form=form)
    assert (kinds(at_once), is_replaced(at_once), brought(at_once)) == (
        ["Create", "Upsert", "TakeOver"],
        True,
        {"chunk"},
    )


UNKNOWN = "the log has a later change of the table"
INCONSISTENT = {
    "unknown columns": lambda: FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).stop("shop.orders", "no names", UNKNOWN),
    "another type": lambda: FakeBatch(9).images(RETYPED, [("c", 1, 1, 2)]),
    "a further column": lambda: FakeBatch(9).images(WIDER, [("c", 1, 1, 5, "x")]),
    "a column less": lambda: FakeBatch(9).images(NARROWER, [("c", 1, 1)]),
    "another key": lambda: FakeBatch(9).images(REKEYED, [("c", 1, 1, "x")]),
    "a column less, later": lambda: FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(NARROWER, [("c", 2, 2)]),
    "two types": lambda: FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(RETYPED, [("c", 2, 2, 2)]),
}


@pytest.mark.parametrize("images", INCONSISTENT)
@pytest.mark.parametrize("strict", [False, True])
def test_images_that_contradict_the_table(images: str, *, strict: bool) -> None:
    fake = INCONSISTENT[images]()
    usual = decided(fake, strict=strict, changelog=False)
    assert usual.state.state == ("stopped" if strict or images == "unknown columns" else "stale")
    again = decided(fake, strict=strict, changelog=False, inconsistent_images="reread")
    assert (again.state.state, kinds(again), again.state.held_epoch) == ("stale", [], 9)
    assert again.reread_reason is not None
    assert "--resnapshot" not in (again.state.reason or "")
    stopped = decided(fake, strict=strict, changelog=False, inconsistent_images="stop")
    assert (stopped.state.state, kinds(stopped), stopped.reread_reason) == ("stopped", [], None)
    assert "--resnapshot 'shop.orders'" in (stopped.state.reason or "")
    with pytest.raises(
        SchemaChangedError, match=r'is "fail": set "reread", "stop" or "skip" in \[tables."shop.orders"\]'
    ) as caught:
        decided(fake, strict=strict, changelog=False, inconsistent_images="fail")
    assert caught.value.table == "shop.orders"
    held = replace(LIVE, state="stale", held_epoch=3, reason="altered")
    assert decided(fake, held, changelog=False, inconsistent_images="fail").state.state == "stale", (
        "its images do not count"
    )


@pytest.mark.parametrize("images", INCONSISTENT)
@pytest.mark.parametrize("strict", [False, True])
def test_images_that_contradict_the_table_are_left_out_and_named(images: str, *, strict: bool) -> None:
    """Of every target. The same batch makes the table inexact, which lasts until all of it is read again."""
    fake = INCONSISTENT[images]()
    options: dict[str, Any] = {"strict": strict, "inconsistent_images": "skip", "kafka": True}
    fake.images(ORDERS, [("c", 7, 7, "y")])
    batch = fake.described()
    batch.header = replace(batch.header, start=f"{UUID}:1-8")
    work = decided(batch, **options)
    known = [part for part in batch.parts["shop.orders"] if part.definition == ORDERS.carried]
    count = sum(part.changes for part in batch.parts["shop.orders"] if part not in known)
    assert (work.state.state, kinds(work), work.reread_reason) == ("inexact", ["Upsert"], None)
    assert [*work.messages] == known
    assert [action.parts for action in work.log_actions if isinstance(action, AppendChanges)] == [known]
    left_out = work.state.left_out
    assert left_out is not None
    assert (left_out.since, left_out.changes) == (f"{UUID}:1-8", count)
    assert work.state.reason == left_out.text
    assert left_out.text.startswith(f"{count} changes left out" if count else "changes left out since 3e11fa47")
    assert work.warnings[0].startswith(f"shop.orders: left out {count or 'some'} changes: {left_out.reason}")
    quiet = FakeBatch(10).images(ORDERS, [("u", 1, 1, "x")])
    assert decided(quiet, work.state).state.left_out == left_out, "whatever the setting is then"
    again = decided(INCONSISTENT[images](), work.state, **options)
    assert again.state.left_out == replace(left_out, changes=2 * count)
    both = decided(quiet, work.state, unseen=INSERTS)
    assert (both.state.state, both.state.reason) == ("inexact", f"{INSERTS.reason}; {left_out.text}")
    assert decided(quiet, both.state, unseen=INSERTS).state.reason == both.state.reason
    first = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(ORDERS, [(1, "x")])
    begun = decided(first, work.state, **options)
    assert (begun.state.state, begun.state.left_out) == ("snapshotting", None)
    last = FakeBatch(12).snapshot("shop.orders", 11, append=False, last=True).chunk(ORDERS, [(2, "x")], start=1)
    assert decided(last, begun.state).state.state == "live"
    lacking = decided(INCONSISTENT[images](), begun.state, **options)
    assert (lacking.state.state, lacking.state.left_out is None) == ("snapshotting", False)
    assert decided(last, lacking.state).state.state == "inexact", "ranges that had been read need these images"
    filtered = decided(INCONSISTENT[images](), replace(LIVE, state="filtered"), **options).state
    assert (filtered.state, filtered.reason) == ("filtered", filtered.left_out and filtered.left_out.text)


def test_a_table_that_lacks_images_need_not_have_each_deleted_row_and_its_key_is_not_counted() -> None:
    keyless, chosen = replace(ORDERS, key=()), replace(ORDERS, chosen_key=True)
    other = replace(RETYPED, key=())
    for before in (LIVE, replace(LIVE, state="inexact", left_out=LeftOut("why", "", 1))):
        fake = FakeBatch(9).images(keyless, [("d", 1, 1, "x")]).images(other, [("c", 2, 1, 2)])
        count = find(decided(fake, before, replace(TARGET, key=()), inconsistent_images="skip"), Count)
        assert count is not None
        assert count.content is TableContent.UNKNOWN
        fake = FakeBatch(9).images(chosen, [("d", 1, 1, "x")]).images(RETYPED, [("c", 2, 1, 2)])
        assert kinds(decided(fake, before, inconsistent_images="skip")) == ["Upsert"]


def test_what_cannot_be_left_out_has_the_table_read_again() -> None:
    """Chunks; and images next to a statement, which may fit after it."""
    skip: dict[str, Any] = {"inconsistent_images": "skip", "changelog": False}
    row = TableState("shop.orders", "snapshotting", version=4, since_epoch=7)
    chunks = FakeBatch(9).snapshot("shop.orders", 7, append=False).chunk(RETYPED, [(1, 2)])
    assert (decided(chunks, row, **skip).state.state, decided(chunks, row, **skip).state.left_out) == ("stale", None)
    alter = (
        FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=WIDER).images(RETYPED, [("c", 9, 1, 2)])
    )
    assert decided(alter, **skip).state.state == "stale"
    new = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(RETYPED, [("c", 2, 2, 2)])
    assert decided(new, None, None, **skip).state.state == "stale", "no table says which of them are wrong"
    begins = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True, last=True).chunk(RETYPED, [(1, 2)])
    work = decided(begins.images(ORDERS, [("d", 1, 1, "x")]), **skip)
    assert (work.state.state, work.state.left_out, is_replaced(work)) == ("live", None, True)
    unknown = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).stop("shop.orders", "no names", UNKNOWN)
    logged = decided(unknown, target=None, form=None, inconsistent_images="skip")
    assert (logged.state.state, logged.state.left_out is None) == ("inexact", False), "a changelog alone"


def test_other_reasons_to_read_a_table_again_are_no_inconsistency() -> None:
    changes = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")])
    assert decided(changes, target=MARKED, inconsistent_images="fail").state.state == "stale"
    rules = replace(ORDERS, rules={"item": "hash"}).target()
    assert decided(changes, target=rules, inconsistent_images="fail").state.state == "stale"
    rows = replace(TARGET, rows="id > 3")
    assert decided(changes, target=rows, inconsistent_images="fail").state.state == "stale"
    chosen = FakeBatch(9).images(FakeTable(key=("item",), chosen_key=True), [("c", 1, 1, "x")])
    assert decided(chosen, inconsistent_images="fail").state.state == "stale"
    alter = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5)
    assert decided(alter.images(RETYPED, [("c", 9, 1, 2)]), inconsistent_images="fail").state.state == "stale"
    key = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).stop("shop.orders", "a key value is ambiguous")
    assert decided(key, inconsistent_images="fail").state.state == "stopped"


def test_a_table_without_a_key_cannot_mark_deletes() -> None:
    keyless = FakeTable(key=())
    work = decided(created().images(keyless, [("c", 1, 1, "x")]), None, None, form=Form.MARKED)
    assert (work.state.state, kinds(work)) == ("stopped", [])
    assert 'set deletes = "remove" in [tables."shop.orders"], then read the table again' in (work.state.reason or "")
    only_log = decided(created().images(keyless, [("c", 1, 1, "x")]), None, None, form=None)
    assert only_log.state.state == "live"


def test_the_column_of_the_mark_is_reserved_only_where_it_is_used() -> None:
    table = FakeTable(columns=(*ORDERS.columns, ("_Deleted", "int")))
    changes = created().images(table, [("c", 1, 1, "x", 0)])
    assert decided(changes, None, None).state.state == "live"
    work = decided(changes, None, None, form=Form.MARKED)
    assert (work.state.state, work.state.reason is not None and "_Deleted" in work.state.reason) == ("stopped", True)


HISTORY = ORDERS.target(form=Form.HISTORY)


def test_a_history_gets_its_rows_before_older_versions_are_ended() -> None:
    first = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert kinds(decided(first, None, None, form=Form.HISTORY)) == ["Create", "Append"]
    changes = FakeBatch(9).images(ORDERS, [("c", 4, 2, "y"), ("t", 5)])
    changes.ddl("shop.orders", "TRUNCATE TABLE orders", "truncate", 5)
    work = decided(changes, target=HISTORY, form=Form.HISTORY)
    assert kinds(work) == ["AppendVersions", "Truncate"]
    ended = find(work, Truncate)
    assert ended is not None
    assert (ended.gtid, ended.at_us) == (f"{UUID}:1", 1_700_000_000_000_000)
    again = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert kinds(decided(again, target=HISTORY, form=Form.HISTORY)) == ["AppendVersions", "Sweep"]


@pytest.mark.parametrize(
    ("before", "snapshot", "exact_since"),
    [
        (TableState("shop.orders", "live", version=4), None, 0),
        (TableState("shop.orders", "settling", version=4, settles_at=f"{UUID}:20"), None, 0),
        (TableState("shop.orders", "snapshotting", version=4, since_epoch=7), 7, 7),
        (TableState("shop.orders", "live", version=4), 9, 9),
        (TableState("shop.orders", "stale", version=4, held_epoch=6), 9, 9),
        (TableState("shop.orders", "inexact", version=4, left_out=LeftOut("one", "")), None, 9),
    ],
)
def test_before_images_are_the_values_of_versions_that_nothing_is_missing_from(
    before: TableState, snapshot: int | None, exact_since: int
) -> None:
    """The epoch from which on such versions were last seen. The batch's is 9."""
    batch = FakeBatch(9).images(ORDERS, [("d", 4, 2, "y")])
    if snapshot is not None:
        batch.snapshot("shop.orders", snapshot, append=False, first=snapshot == 9).chunk(ORDERS, [(1, "x")])
    rows = find(decided(batch, before, HISTORY, form=Form.HISTORY), AppendVersions)
    assert rows is not None
    assert rows.exact_since == exact_since


def test_before_images_are_the_values_of_versions_that_a_reading_along_a_surrogate_key_has_seen() -> None:
    batch = FakeBatch(9).about("shop.orders", state="reading", since_epoch=7, surrogate=True)
    before = TableState("shop.orders", "snapshotting", version=4, since_epoch=7)
    rows = find(decided(batch.images(ORDERS, [("d", 4, 2, "y")]), before, HISTORY, form=Form.HISTORY), AppendVersions)
    assert rows is not None
    assert rows.exact_since == 7


@pytest.mark.parametrize(
    ("table", "form", "reason"),
    [
        (
            FakeTable(columns=(("id", "bigint"), ("item", "int"))),
            Form.HISTORY,
            "item changed its type from string to int",
        ),
        (FakeTable(columns=ORDERS.columns, key=("item",)), Form.HISTORY, "the key changed from (id) to (item)"),
        (
            FakeTable(columns=(("id", "bigint"), ("Item", "string"))),
            Form.HISTORY,
            "column Item differs from column item only in letter case",
        ),
        (ORDERS, Form.PLAIN, 'the target was written with mode = "history"'),
    ],
)
def test_a_history_is_never_replaced(table: FakeTable, form: Form, reason: str) -> None:
    values = {"string": "x", "int": 1, "bigint": 1}
    row = tuple(values[kind] for _, kind in table.columns)
    first = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True, last=True).chunk(table, [row])
    for batch in (FakeBatch(9).images(table, [("c", 1, *row)]), first):
        work = decided(batch, target=HISTORY, form=form)
        assert (work.state.state, kinds(work), work.reread_reason) == ("stopped", [], None)
        assert reason in (work.state.reason or "")
        assert "move its folder away, then read the table again" in (work.state.reason or "")


def test_a_history_whose_columns_are_dropped_or_changed_is_read_again() -> None:
    """Its ended versions have the columns of their time."""
    fewer = FakeTable(columns=ORDERS.columns[:1])
    dropped = FakeBatch(9).ddl(
        "shop.orders", "ALTER TABLE orders DROP item", "alter", 5, adds=[DroppedColumn("item")], schema=fewer
    )
    assert decided(dropped, target=HISTORY, form=Form.HISTORY).state.state == "stale"


def test_columns_of_a_history_only_grow() -> None:
    fewer = FakeTable(columns=ORDERS.columns[:1])
    changes = FakeBatch(9).images(fewer, [("c", 1, 1)])
    assert kinds(decided(changes, target=HISTORY, form=Form.HISTORY)) == ["NoteTypes", "AppendVersions"]
    new = FakeTable(columns=(*ORDERS.columns, ("n", "int")))
    unexplained = decided(FakeBatch(9).images(new, [("c", 1, 1, "x", 2)]), target=HISTORY, form=Form.HISTORY)
    assert unexplained.state.state == "stale", "rows that it has may have a value there"
    first = FakeBatch(10).snapshot("shop.orders", 10, append=False, first=True, last=True).chunk(new, [(1, "x", 2)])
    read = decided(first, unexplained.state, HISTORY, form=Form.HISTORY)
    assert kinds(read) == ["AddColumns", "AppendVersions", "Sweep"]


def test_a_history_notes_which_columns_its_newest_rows_have() -> None:
    """By that a start of a run knows that a column which a rule excludes or renames needs no further re-read."""
    first = FakeBatch(9).about("shop.orders", state="reading", since_epoch=9).chunk(NARROWER, [(1,)])
    note = find(decided(first, target=HISTORY, form=Form.HISTORY), NoteTypes)
    assert note is not None
    assert {name for name, column in note.target.columns.items() if column.source is not None} == {"id"}
    assert note.target.columns.keys() == {"id", "item"}


def test_a_history_needs_a_key_and_whole_rows() -> None:
    keyless = FakeTable(key=())
    work = decided(created().images(keyless, [("c", 1, 1, "x")]), None, None, form=Form.HISTORY)
    assert (work.state.state, "a history needs a key" in (work.state.reason or "")) == ("stopped", True)
    partial = FakeBatch(9).images(ORDERS, [("u", 1, 1, ...)])
    work = decided(partial, target=HISTORY, form=Form.HISTORY)
    assert (work.state.state, "binlog_row_image = FULL" in (work.state.reason or "")) == ("stopped", True)
