from __future__ import annotations

from typing import Any

import pytest

from headgate.carrier import Batch, DdlRow, Header
from headgate.catalog import AddedColumn
from headgate.errors import DecodeError
from headgate.lake import TableState
from headgate.sinks._policy import Target, Work, plan_table, read_again
from headgate.sinks._promises import Unseen
from tests.fix_carrier import FakeBatch, FakeTable

ORDERS = FakeTable()
WIDER = FakeTable(columns=(("id", "bigint"), ("added", "int"), ("item", "string")))
RETYPED = FakeTable(columns=(("id", "bigint"), ("item", "int")))
LATER = FakeTable(columns=(*WIDER.columns, ("later", "date")))
NARROWER = FakeTable(columns=(("id", "bigint"),))
REKEYED = FakeTable(key=("id", "item"))
TARGET = Target(dict(ORDERS.columns), ORDERS.key)
ADDED = AddedColumn("added")
ADD = "ALTER TABLE orders ADD added INT AFTER id"
LIVE = TableState("shop.orders", "live", version=4)


def decide(fake: FakeBatch, before: TableState | None = LIVE, target: Target | None = TARGET, **options: Any) -> Work:
    return plan_table("shop.orders", fake.described(), before, target, **options)


def test_a_live_table_takes_images() -> None:
    work = decide(FakeBatch(9).live("shop.orders").images(ORDERS, [("c", 1, 1, "x")]))
    assert (work.apply, work.append_chunks, work.replace, work.add_columns) == (True, False, False, ())
    assert work.state.state == "live"
    assert work.state.images == 1


def test_a_first_read_appends_and_ends_live_without_a_sweep() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(ORDERS, [(1, "x")])
    work = decide(fake, None, None)
    assert (work.append_chunks, work.sweep_before, work.state.state) == (True, None, "live")


@pytest.mark.parametrize("last", [True, False])
def test_a_partial_read_merges_and_neither_sweeps_nor_begins_anything(last: bool) -> None:
    fake = FakeBatch(9).images(ORDERS, [("u", 2, 1, "y")])
    fake.about("shop.orders", state="snapshotting", since_epoch=9, first=True, last=last, append=False, partial=True)
    fake.chunk(ORDERS, [(1, "x")])
    work = decide(fake)
    assert (work.apply, work.append_chunks, work.sweep_before, work.replace) == (True, False, None, False)
    assert (work.state.state, work.state.since_epoch) == ("live", None)
    assert {part.kind for part in work.parts} == {"rows", "chunk"}
    held = TableState("shop.orders", "stale", version=4, held_epoch=3, reason="x")
    assert decide(fake, held).state.state == "stale", "some rows do not make a table whole again"
    assert not decide(fake, held).apply
    new = decide(fake, None, None)
    assert (new.apply, new.state.state, new.state.since_epoch) == (True, "snapshotting", None)
    alter = FakeBatch(10).ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5)
    assert decide(alter, new.state).reread, "nobody else would read it"


def test_a_first_read_onto_rows_of_an_earlier_stream_merges_and_sweeps() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(ORDERS, [(1, "x")])
    work = decide(fake, LIVE, TARGET)
    assert (work.append_chunks, work.sweep_before) == (False, 9)


def test_a_running_first_read_goes_on_appending() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=True).chunk(ORDERS, [(1, "x")])
    before = TableState("shop.orders", "snapshotting", since_epoch=7)
    work = decide(fake, before, Target(TARGET.types, TARGET.key, since_epoch=7))
    assert (work.append_chunks, work.state.state, work.state.since_epoch) == (True, "snapshotting", 7)


def test_a_reread_merges_and_sweeps_at_its_end() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).chunk(ORDERS, [(1, "x")])
    work = decide(fake, TableState("shop.orders", "snapshotting", since_epoch=7))
    assert (work.append_chunks, work.sweep_before, work.state.state) == (False, 7, "live")


def test_a_chunk_to_be_redone_keeps_the_snapshot_open() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).redo("shop.orders", 3)
    work = decide(fake, TableState("shop.orders", "snapshotting", since_epoch=7))
    assert (work.sweep_before, work.state.state, work.state.since_epoch) == (None, "snapshotting", 7)


def test_new_columns_are_added() -> None:
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(WIDER, [("c", 2, 2, 5, "y")])
    work = decide(fake.ddl("shop.orders", "ALTER TABLE orders ADD added INT AFTER id", "alter", 2, adds=[ADDED]))
    assert work.add_columns == ("added",)
    assert work.definition is not None
    assert [column.name for column in work.definition.columns] == ["id", "added", "item"]
    assert work.state.state == "live"


@pytest.mark.parametrize("changed", [RETYPED, NARROWER, REKEYED, WIDER])
def test_images_that_no_statement_explains_have_the_table_read_again(changed: FakeTable) -> None:
    """A change of the table that the log does not hold (``sql_log_bin = 0``)."""
    values = {"item": "x", "id": 1, "added": 5}
    row = [2 if changed is RETYPED and name == "item" else values[name] for name, _ in changed.columns]
    fake = FakeBatch(9).images(changed, [("c", 1, *row)])
    work = decide(fake)
    assert (work.apply, work.state.state, work.state.held_epoch) == (False, "stale", 9)
    assert work.reread is not None
    assert decide(fake, reread_asked=True).reread is None
    stopped = decide(fake, strict=True)
    assert (stopped.apply, stopped.state.state, stopped.reread) == (False, "stopped", None)
    assert "--resnapshot 'shop.orders'" in str(stopped.state.reason)


def test_a_reread_asked_for_holds_the_table_until_it_begins() -> None:
    images = FakeBatch(9).images(RETYPED, [("c", 1, 1, 2)])
    held = decide(images, reread_asked=True)
    assert (held.apply, held.state.state, held.state.held_epoch) == (False, "stale", 9)
    still = decide(FakeBatch(10).images(RETYPED, [("c", 1, 1, 2)]), held.state)
    assert (still.apply, still.state.state, still.state.held_epoch) == (False, "stale", 9)
    begun = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(RETYPED, [(1, 2)])
    work = decide(begun, still.state)
    assert (work.apply, work.replace, work.state.state) == (True, True, "snapshotting")


def test_a_snapshot_that_was_running_does_not_free_a_held_table() -> None:
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(10).snapshot("shop.orders", 7, append=False, last=True).chunk(RETYPED, [(1, 2)])
    work = decide(fake, held)
    assert (work.apply, work.state.state, work.sweep_before) == (False, "stale", None)


def test_a_begun_reread_without_rows_keeps_the_hold() -> None:
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).redo("shop.orders")
    assert decide(fake, held).state.held_epoch == 9


def test_a_first_chunk_without_rows_ends_the_hold() -> None:
    """It was read: what changes in its range from now on is in no later chunk."""
    held = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason="r")
    begun = decide(FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, []), held)
    assert begun.state.state == "snapshotting"
    images = FakeBatch(13).snapshot("shop.orders", 12, append=False).images(ORDERS, [("c", 1, 100, "new")])
    assert decide(images, begun.state).apply


def test_a_reread_that_found_nothing_ends_the_hold() -> None:
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(12).snapshot("shop.orders", 11, append=False, last=True)
    assert (decide(fake, held).state.state, decide(fake, held).sweep_before) == ("live", 11)
    redo = FakeBatch(12).snapshot("shop.orders", 11, append=False, last=True).redo("shop.orders")
    assert decide(redo, held).state.state == "stale"


@pytest.mark.parametrize(("epoch", "strays"), [(11, None), (12, (11, 12))])
def test_rows_of_epochs_in_which_the_table_was_held_are_strays(epoch: int, strays: tuple[int, int] | None) -> None:
    """Of batches that were killed before they counted, and brought no rows when they were done again."""
    held = TableState("shop.orders", "stale", held_epoch=9, reason="r")
    fake = FakeBatch(epoch).snapshot("shop.orders", 11, append=False).chunk(ORDERS, [(1, "x")])
    work = decide(fake, held)
    assert (work.state.state, work.strays) == ("snapshotting", strays)
    assert decide(FakeBatch(13).snapshot("shop.orders", 11, append=False), work.state).strays is None


def test_where_a_reading_begins_the_log_of_the_table_is_settled_by_it() -> None:
    fake = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(RETYPED, [(1, 2)])
    fake.images(ORDERS, [("c", 1, 1, "x")]).ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5)
    for before in (LIVE, TableState("shop.orders", "stale", held_epoch=9, reason="r"), None):
        work = decide(fake, before)
        assert [part.kind for part in work.parts] == ["chunk"]
        assert (work.apply, work.replace, work.reread, work.state.state) == (True, True, None, "snapshotting")
        assert [outcome.done for outcome in work.outcomes] == ["applied"]
    plain = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).chunk(ORDERS, [(1, "x")])
    plain.images(ORDERS, [("c", 1, 1, "x")])
    assert {part.kind for part in decide(plain).parts} == {"chunk", "rows"}
    assert {part.kind for part in decide(plain, None, None).parts} == {"chunk"}
    dropped = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).redo("shop.orders")
    dropped.ddl("shop.orders", "DROP TABLE orders", "drop", 5)
    assert decide(dropped).state.state == "stopped"


def test_a_table_that_waits_for_its_reading_is_not_asked_for_again() -> None:
    fake = FakeBatch(9).about("shop.orders", state="snapshotting", since_epoch=None)
    work = decide(fake.ddl("shop.orders", "ALTER TABLE orders MODIFY item INT", "alter", 5))
    assert (work.state.state, work.reread) == ("stale", None)


def test_an_alter_that_adds_nullable_columns_reads_nothing_again() -> None:
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=WIDER)
    work = decide(fake)
    assert (work.apply, work.add_columns, work.fills, work.reread) == (True, ("added",), {}, None)
    assert [(outcome.done, outcome.reason) for outcome in work.outcomes] == [("applied", None)]


def test_a_literal_default_fills_the_column() -> None:
    five = AddedColumn("added", nullable=False, default="5")
    fake = (
        FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).ddl("shop.orders", ADD, "alter", 5, adds=[five], schema=WIDER)
    )
    for target in (TARGET, Target(dict(WIDER.columns), WIDER.key)):  # the second: a replay after a crash
        work = decide(fake, LIVE, target)
        assert (work.apply, work.fills, work.reread) == (True, {"added": "5"}, None)
        assert work.definition is not None
        assert [column.name for column in work.definition.columns] == ["id", "added", "item"]


def test_a_default_that_is_not_exact_has_the_table_read_again() -> None:
    half = AddedColumn("added", default="1.5")
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[half], schema=WIDER)
    work = decide(fake)
    assert (work.apply, work.state.state, work.reread is not None) == (False, "stale", True)
    assert [outcome.done for outcome in work.outcomes] == ["re-read"]
    assert decide(fake, strict=True).state.state == "stopped"


@pytest.mark.parametrize("seen", [None, ORDERS, RETYPED, REKEYED])
def test_columns_nobody_has_seen_are_not_guessed(seen: FakeTable | None) -> None:
    """The table was altered again, or dropped, before its columns could be looked at."""
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=seen)
    assert decide(fake).state.state == "stale"


def test_columns_of_later_statements_are_left_out() -> None:
    fake = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=LATER)
    assert decide(fake).add_columns == ("added",)


def test_an_alter_that_changes_no_row_does_nothing() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders COMMENT 'x'", "alter", 5, adds=[])
    work = decide(fake)
    assert (work.apply, work.state.state, work.reread) == (False, "live", None)


def test_any_other_alter_reads_again() -> None:
    """The images after it are left out until then: rows may have changed that the log does not show."""
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders MODIFY item CHAR(5)", "alter", 5)
    work = decide(fake.images(ORDERS, [("c", 9, 1, "x")]))
    assert (work.apply, work.state.state, work.reread is not None) == (False, "stale", True)
    again = decide(FakeBatch(10).ddl("shop.orders", "ALTER TABLE orders MODIFY item CHAR(6)", "alter", 5), work.state)
    assert (again.state.held_epoch, again.reread is not None) == (10, True)


def test_strict_tables_stop_at_an_alter_that_may_change_rows() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders DROP item", "alter", 5)
    work = decide(fake, strict=True)
    assert (work.state.state, work.reread) == ("stopped", None)
    assert "ALTER TABLE orders DROP item" in work.warnings[0]
    still = decide(FakeBatch(10).images(NARROWER, [("c", 1, 1)]), work.state, strict=True)
    assert (still.apply, still.log, still.warnings) == (False, None, ())
    added = FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=WIDER)
    assert decide(added, strict=True).state.state == "live"


def swap(epoch: int) -> FakeBatch:
    """RENAME TABLE orders TO _orders_old, _orders_new TO orders: as the tools that change tables online end."""
    text = "RENAME TABLE orders TO _orders_old, _orders_new TO orders"
    fake = FakeBatch(epoch).ddl("shop.orders", text, "rename", 5, new_name="shop._orders_old")
    return fake.ddl("shop._orders_new", text, "rename", 5, new_name="shop.orders")


def test_a_table_that_comes_and_goes_within_a_batch_leaves_nothing() -> None:
    """As the working tables of the tools do."""
    fake = FakeBatch(9).ddl("shop.orders", "CREATE TABLE orders ...", "create", 1).images(ORDERS, [("c", 2, 1, "x")])
    fake.ddl("shop.orders", "RENAME TABLE orders TO other", "rename", 5, new_name="shop.other")
    work = decide(fake, None, None, changelog=False)
    assert (work.passing, work.apply, work.reread) == (True, False, None)
    logged = decide(fake, None, None)
    assert (logged.passing, logged.log is not None) == (False, True)
    assert not decide(fake, LIVE, TARGET, changelog=False).passing


def test_a_name_given_to_another_table_is_read_again() -> None:
    work = decide(swap(9).images(WIDER, [("c", 9, 1, 5, "x")]))
    assert (work.apply, work.state.state, work.reread is not None) == (False, "stale", True)
    assert [outcome.done for outcome in work.outcomes] == ["stopped", "re-read"]
    assert decide(swap(9), strict=True).state.state == "stopped"
    stopped = TableState("shop.orders", "stopped", held_epoch=3, reason="r")
    given = FakeBatch(9).ddl("shop.copy", "RENAME TABLE copy TO orders", "rename", 5, new_name="shop.orders")
    assert decide(given, stopped).state.state == "stale"


def test_a_batch_names_both_tables_of_a_rename() -> None:
    assert swap(9).described().tables() == ["shop._orders_new", "shop._orders_old", "shop.orders"]


@pytest.mark.parametrize("current", [True, False])
def test_a_type_that_the_changelog_cannot_hold_stops_the_table(current: bool) -> None:
    fake = FakeBatch(9).images(RETYPED, [("c", 1, 1, 2)])
    logged = dict(ORDERS.columns)
    work = decide(fake, LIVE, TARGET if current else None, logged=logged, current=current)
    assert (work.apply, work.log, work.state.state, work.reread) == (False, None, "stopped", None)
    assert "changelog" in str(work.state.reason)
    later = decide(FakeBatch(10).images(ORDERS, [("c", 1, 1, "x")]), work.state, logged=logged, current=current)
    assert (later.apply, later.log) == (False, None)
    again = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True, last=True).chunk(RETYPED, [(1, 2)])
    freed = decide(again, work.state, logged=None, current=current)
    assert (freed.state.state, freed.log is not None) == ("live", True)


def test_the_changelog_takes_all_columns_of_a_batch() -> None:
    other = FakeTable(columns=(("id", "bigint"), ("b", "int"), ("c", "int")))
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(other, [("c", 9, 1, 2, 3)])
    work = decide(fake.ddl("shop.orders", "ALTER ...", "alter", 5))
    assert work.log is not None
    assert {column.name for column in work.log.columns} == {"id", "item", "b", "c"}


@pytest.mark.parametrize("action", ["drop", "rename"])
def test_drop_and_rename_stop_the_table_with_a_warning(action: str) -> None:
    work = decide(FakeBatch(9).ddl("shop.orders", f"{action} TABLE orders", action, 5))
    assert work.state.state == "stopped"
    assert work.state.reason is not None
    assert "--resnapshot" in work.state.reason
    assert work.warnings
    assert work.reread is None


def test_created_again_is_read_again() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "DROP TABLE orders", "drop", 5).ddl("shop.orders", "CREATE ...", "create", 6)
    assert (decide(fake).state.state, decide(fake).reread is not None) == ("stale", True)
    stopped = TableState("shop.orders", "stopped", held_epoch=3, reason="r")
    later = decide(FakeBatch(9).ddl("shop.orders", "CREATE ...", "create", 6), stopped)
    assert (later.state.state, later.reread is not None) == ("stale", True)


def test_create_if_not_exists_on_a_table_that_exists_does_nothing() -> None:
    work = decide(FakeBatch(9).ddl("shop.orders", "CREATE TABLE IF NOT EXISTS orders ...", "create", 6))
    assert (work.state.state, work.reread) == ("live", None)


def test_the_last_truncate_counts() -> None:
    fake = (
        FakeBatch(9)
        .ddl("shop.orders", "TRUNCATE orders", "truncate", 5)
        .ddl("shop.orders", "TRUNCATE orders", "truncate", 8)
    )
    assert decide(fake).truncated == (9, 1, 8, 0)


def test_a_table_without_a_key_takes_images() -> None:
    keyless = FakeTable(key=())
    work = decide(FakeBatch(9).live("shop.orders").images(keyless, [("c", 1, 1, "x")]), LIVE, Target(TARGET.types, ()))
    assert (work.apply, work.exact, work.state.state) == (True, True, "live")
    taken = FakeTable(columns=(("id", "bigint"), ("_Row_Copy", "string")), key=())
    work = decide(FakeBatch(9).images(taken, [("c", 1, 1, "x")]), None, None)
    assert (work.apply, work.state.state) == (False, "stopped")


def test_what_is_read_again_is_not_exact() -> None:
    images = [("c", 1, 1, "x")]
    waits = FakeBatch(9).about("shop.orders", state="snapshotting", since_epoch=None)
    assert not decide(waits.images(ORDERS, images)).exact
    assert not decide(FakeBatch(9).images(ORDERS, images), TableState("shop.orders", "snapshotting")).exact
    assert not decide(FakeBatch(9).images(ORDERS, images), reread_asked=True).exact
    altered = FakeBatch(9).images(ORDERS, images).ddl("shop.orders", "ALTER …", "alter", 5)
    assert not decide(altered).exact


@pytest.mark.parametrize(("strict", "state"), [(False, "stale"), (True, "stopped")])
def test_a_table_that_turned_out_wrong_while_it_was_written(strict: bool, state: str) -> None:
    work = decide(FakeBatch(9).live("shop.orders").images(ORDERS, [("c", 1, 1, "x")]))
    found = read_again(work, "rows are missing", 9, strict=strict)
    assert (found.state.state, found.state.held_epoch, found.reread is None) == (state, 9, strict)
    assert "rows are missing" in (found.state.reason or "")
    assert found.warnings


def test_a_column_with_one_of_our_names_stops_the_table() -> None:
    taken = FakeTable(columns=(("id", "bigint"), ("_SEQ", "string")))
    work = decide(FakeBatch(9).images(taken, [("c", 1, 1, "x")]), None, None)
    assert (work.apply, work.log, work.state.state) == (False, None, "stopped")


def test_a_table_the_header_does_not_mention_keeps_its_state() -> None:
    before = TableState("shop.orders", "snapshotting", since_epoch=7)
    work = decide(FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]), before)
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
    work = decide(FakeBatch(9).live("shop.orders").images(ORDERS, [("c", 1, 1, "x")]).stop("shop.orders", AMBIGUOUS))
    assert (work.apply, work.state.state, work.state.reason, work.reread) == (False, "stopped", AMBIGUOUS, None)
    assert work.warnings == (f"shop.orders is stopped: {AMBIGUOUS}",)
    alone = FakeBatch(9).stop("shop.orders", AMBIGUOUS)
    assert alone.described().tables() == ["shop.orders"]
    assert decide(alone, current=False).state.state == "stopped", "a changelog has a gap"


def test_the_alter_that_made_them_unreadable_has_the_table_read_again() -> None:
    """A statement that comes later says more than that the images before it cannot be read."""
    fake = FakeBatch(9).stop("shop.orders", AMBIGUOUS)
    fake.ddl("shop.orders", "ALTER TABLE orders RENAME COLUMN item TO it", "alter", 5)
    work = decide(fake)
    assert (work.state.state, work.reread) == ("stale", "ALTER may have changed rows: " + fake_statement(fake))
    assert decide(fake, strict=True).state.state == "stopped"


def fake_statement(fake: FakeBatch) -> str:
    return fake.described().ddl[0].statement


@pytest.mark.parametrize("append", [True, False])
def test_unreadable_images_of_what_is_read_here_or_later_do_no_harm(append: bool) -> None:
    begins = FakeBatch(9).snapshot("shop.orders", 9, append=append, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decide(begins.stop("shop.orders", AMBIGUOUS), None, None).state.state == "live"
    waits = FakeBatch(9).about("shop.orders", state="snapshotting", since_epoch=None, append=append)
    assert decide(waits.stop("shop.orders", AMBIGUOUS), None, None).state.state == "snapshotting"
    stale = TableState("shop.orders", "stale", version=4, held_epoch=8, reason="altered")
    assert decide(FakeBatch(9).stop("shop.orders", AMBIGUOUS), stale).state.state == "stale"


def test_unreadable_images_in_the_middle_of_a_reading_stop_it() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).chunk(ORDERS, [(1, "x")])
    work = decide(fake.stop("shop.orders", AMBIGUOUS), TableState("shop.orders", "snapshotting", since_epoch=7))
    assert (work.state.state, work.state.held_epoch, work.sweep_before) == ("stopped", 9, None)
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason=AMBIGUOUS)
    again = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decide(again, stopped).state.state == "live"


ODD = "a value is not text of character set ujis that MySQL converts there and back, as a key must be: 0xa1c0"


def test_rows_of_chunks_that_nobody_can_read_stop_the_table_also_beside_others() -> None:
    first = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True).unread("shop.orders", ODD)
    assert first.described().tables() == ["shop.orders"]
    work = decide(first, None, None)
    assert (work.apply, work.state.state, work.state.reason, work.state.held_epoch) == (False, "stopped", ODD, 9)
    assert work.warnings == (f"shop.orders is stopped: {ODD}",)
    beside = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    work = decide(beside.unread("shop.orders", ODD), TableState("shop.orders", "live", version=4))
    assert (work.apply, work.append_chunks, work.sweep_before) == (False, False, None)
    assert (work.state.state, work.state.held_epoch, work.state.version) == ("stopped", 9, 4)


@pytest.mark.parametrize("rows", [True, False])
def test_a_reading_that_could_not_read_all_frees_nothing_later(rows: bool) -> None:
    """The table was stopped for the same reason before; chunks of the same reading that come later are of no use."""
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=5, reason=ODD)
    begins = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).unread("shop.orders", ODD)
    work = decide(begins.chunk(ORDERS, [(1, "x")]) if rows else begins, stopped)
    assert (work.apply, work.state.state, work.state.held_epoch) == (False, "stopped", 12)
    ends = FakeBatch(13).snapshot("shop.orders", 12, append=False, last=True).chunk(ORDERS, [(2, "y")])
    work = decide(ends, work.state)
    assert (work.apply, work.state.state, work.sweep_before) == (False, "stopped", None)
    again = FakeBatch(14).snapshot("shop.orders", 14, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decide(again, work.state).state.state == "live"


def test_the_last_chunk_of_a_reading_that_could_not_be_read_does_not_end_the_hold() -> None:
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=5, reason="dropped")
    fake = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True, last=True).unread("shop.orders", ODD)
    work = decide(fake, stopped)
    assert (work.apply, work.state.state, work.state.reason) == (False, "stopped", ODD)


KEY = Unseen("foreign keys of shop.orders: c: ON DELETE CASCADE: use RESTRICT")
OVER = Unseen("a foreign key changed rows unseen, or may have: ALTER", over=True)
REFERENCES = "ALTER TABLE orders ADD FOREIGN KEY (item) REFERENCES u (id) ON DELETE CASCADE"


def altered(epoch: int = 9) -> FakeBatch:
    fake = FakeBatch(epoch).live("shop.orders").images(ORDERS, [("c", 1, 1, "x")])
    return fake.ddl("shop.orders", REFERENCES, "alter", 2, adds=[])


@pytest.mark.parametrize("current", [True, False])
def test_rows_that_change_unseen_stop_the_table(current: bool) -> None:
    work = decide(altered(), unseen=KEY, current=current)
    assert (work.apply, work.state.state, work.state.held_epoch, work.reread) == (False, "stopped", 9, None)
    assert work.state.reason == f"{KEY.reason}; then read the table again with: headgate run --resnapshot 'shop.orders'"
    assert work.warnings == (f"shop.orders is stopped: {work.state.reason}",)
    assert [outcome.done for outcome in work.outcomes] == ["stopped" if current else "applied"]
    assert decide(altered()).state.state == "live", "a key that changes nothing, or that is accepted"


def test_what_they_did_is_read_again_when_it_is_over() -> None:
    work = decide(altered(), unseen=OVER)
    assert (work.apply, work.state.state, work.reread) == (False, "stale", OVER.reason)
    assert [outcome.done for outcome in work.outcomes] == ["re-read"]
    assert decide(altered(), unseen=OVER, strict=True).state.state == "stopped"
    begins = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decide(begins, unseen=OVER).state.state == "live", "the reading is as of the batch's end"
    dropped = altered().ddl("shop.orders", "DROP TABLE orders", "drop", 3)
    assert decide(dropped, unseen=OVER).state.state == "stopped"


def test_a_reading_does_not_free_a_table_whose_rows_still_change_unseen() -> None:
    """Nor does any later batch of that reading."""
    reason = decide(altered(), unseen=KEY).state.reason
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason=reason)
    begins = FakeBatch(12).snapshot("shop.orders", 12, append=False, first=True).chunk(ORDERS, [(1, "x")])
    work = decide(begins, stopped, unseen=KEY)
    assert (work.apply, work.state.state, work.state.held_epoch, work.state.version) == (False, "stopped", 12, 4)
    assert work.warnings, "somebody has asked for that reading"
    ends = FakeBatch(13).snapshot("shop.orders", 12, append=False, last=True).chunk(ORDERS, [(2, "y")])
    assert decide(ends, work.state).state.state == "stopped"
    again = FakeBatch(14).snapshot("shop.orders", 14, append=False, first=True, last=True).chunk(ORDERS, [(1, "x")])
    assert decide(again, work.state).state.state == "live"


def test_unreadable_images_in_the_middle_of_what_would_free_a_table() -> None:
    stopped = TableState("shop.orders", "stopped", version=4, held_epoch=9, reason=AMBIGUOUS)
    part = FakeBatch(12).snapshot("shop.orders", 11, append=False).chunk(ORDERS, [(1, "x")])
    work = decide(part.stop("shop.orders", AMBIGUOUS), stopped)
    assert (work.apply, work.state.state, work.state.held_epoch) == (False, "stopped", 12)
    ends = FakeBatch(13).snapshot("shop.orders", 11, append=False, last=True).chunk(ORDERS, [(2, "y")])
    assert decide(ends, work.state).state.state == "stopped", "images of the first part's rows were left out"


# --- which definition the rows are of

OTHER = FakeTable(fingerprint="other")
"""The same to Spark, and another definition to MySQL."""
KNOWN = TableState("shop.orders", "live", version=4, definition="known")
MODIFY = "ALTER TABLE orders MODIFY item JSON"


def definition(fake: FakeBatch, before: TableState | None = KNOWN, **options: Any) -> str | None:
    state = decide(fake, before, **options).state
    assert state.state in ("live", "snapshotting")
    return state.definition


def test_images_and_chunks_tell_the_definition() -> None:
    image, row = [("c", 1, 1, "x")], [(2, "y")]
    assert definition(FakeBatch(9).live("shop.orders").images(OTHER, image)) == "other"
    assert definition(FakeBatch(9).live("shop.orders")) == "known"
    assert definition(FakeBatch(9).live("shop.orders"), LIVE) is None
    two = FakeBatch(9).live("shop.orders").images(OTHER, image).images(ORDERS, image)
    assert definition(two) is None, "an ALTER that is not logged: nobody knows which is the newer one"
    read = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True)
    assert definition(read.chunk(OTHER, row), None, target=None) == "other"
    both = FakeBatch(9).snapshot("shop.orders", 8, append=False, last=True).images(ORDERS, image).chunk(OTHER, row)
    assert definition(both) == "other", "a chunk is as of the batch's end"
    assert decide(FakeBatch(9).live("shop.orders").images(OTHER, image), KNOWN, current=False).state.definition is None


def test_a_table_without_rows_and_a_truncate_tell_nothing() -> None:
    """What they are given with is what the table looks like when the log is read."""
    assert definition(FakeBatch(9).snapshot("shop.orders", 9, append=False, last=True).chunk(OTHER, [])) == "known"
    batch = FakeBatch(9).live("shop.orders").images(OTHER, [("t", 1)]).described()
    batch.parts["shop.orders"][0].truncates = True
    batch.ddl.append(DdlRow("shop.orders", "TRUNCATE TABLE orders", "truncate", (9, 1, 1, 0), None, None))
    assert plan_table("shop.orders", batch, KNOWN, TARGET).state.definition == "known"


def test_an_alter_of_indexes_keeps_the_definition() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders ADD INDEX (item)", "alter", 5, adds=[])
    assert definition(fake) == "known"


def test_after_an_alter_that_adds_columns_an_image_with_them_tells() -> None:
    def altered() -> FakeBatch:
        return FakeBatch(9).ddl("shop.orders", ADD, "alter", 5, adds=[ADDED], schema=WIDER)

    before, after = [("c", 1, 1, "x")], [("c", 9, 1, 7, "x")]
    assert definition(altered()) is None
    assert definition(altered().images(ORDERS, before)) is None
    assert definition(altered().images(ORDERS, before).images(WIDER, after)) == WIDER.definition
    later = AddedColumn("later")
    twice = altered().ddl("shop.orders", "ALTER TABLE orders ADD later DATE", "alter", 6, adds=[later], schema=LATER)
    assert definition(twice.images(WIDER, after)) is None, "it may come before the second one"


def test_a_reading_settles_the_definition() -> None:
    begun = FakeBatch(9).snapshot("shop.orders", 9, append=False, first=True)
    begun.ddl("shop.orders", MODIFY, "alter", 5).images(ORDERS, [("c", 1, 1, "x")])
    assert definition(begun.chunk(OTHER, [])) is None
    assert definition(begun.chunk(OTHER, [(1, "x")])) == "other"
    held = decide(FakeBatch(8).ddl("shop.orders", MODIFY, "alter", 5).images(ORDERS, [("c", 1, 1, "x")]), KNOWN).state
    assert (held.state, held.definition) == ("stale", None)
    assert definition(FakeBatch(9).snapshot("shop.orders", 9, append=False, last=True), held) is None
    other = FakeBatch(9).snapshot("shop.orders", 9, append=False, last=True).chunk(OTHER, [(1, "x")])
    assert definition(other, held) == "other"
