from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.errors import DecodeError, SchemaChangedError
from headgate.lake import TableState
from headgate.sinks._carrier import Batch, DdlRow, Header, build_batch
from headgate.sinks._policy import Target, Work, plan_table
from tests.fix_carrier import FakeBatch, FakeTable

ORDERS = FakeTable()
WIDER = FakeTable(columns=(("id", "bigint"), ("added", "int"), ("item", "string")))
RETYPED = FakeTable(columns=(("id", "bigint"), ("item", "int")))
NARROWER = FakeTable(columns=(("id", "bigint"),))
REKEYED = FakeTable(key=("id", "item"))
TARGET = Target(dict(ORDERS.columns), ORDERS.key)
LIVE = TableState("shop.orders", "live", version=4)


def described(fake: FakeBatch) -> Batch:
    """What the description job would say of the batch."""
    rows: list[dict[str, Any]] = []
    for table, kind, schema, count, data in fake.rows:
        text = None if kind in ("rows", "chunk") else data.decode()
        rows.append({"_table": table, "_kind": kind, "_schema": schema, "_count": count, "_text": text})
    header = {"v": 1, "epoch": fake.epoch, "start": "", "gtid": fake.gtid, "server_uuid": "u", "planned_us": 1}
    header.update(tables=fake.header, actions=[])
    rows.append({"_table": None, "_kind": "batch", "_schema": None, "_count": 0, "_text": json.dumps(header)})
    blank = {"_low": None, "_high": None, "_newest": None, "_truncates": False}
    return build_batch([{**blank, **row} for row in rows])


def decide(fake: FakeBatch, before: TableState | None = LIVE, target: Target | None = TARGET, **options: Any) -> Work:
    return plan_table("shop.orders", described(fake), before, target, **options)


def test_a_live_table_takes_images() -> None:
    work = decide(FakeBatch(9).live("shop.orders").images(ORDERS, [("c", 1, 1, "x")]))
    assert (work.apply, work.append_chunks, work.replace, work.add_columns) == (True, False, False, ())
    assert work.state.state == "live"
    assert work.state.images == 1


def test_a_first_read_appends_and_ends_live_without_a_sweep() -> None:
    fake = FakeBatch(9).snapshot("shop.orders", 9, append=True, first=True, last=True).chunk(ORDERS, [(1, "x")])
    work = decide(fake, None, None)
    assert (work.append_chunks, work.sweep_before, work.state.state) == (True, None, "live")


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
    fake = FakeBatch(9).snapshot("shop.orders", 7, append=False, last=True).redo("shop.orders", {"number": 3})
    work = decide(fake, TableState("shop.orders", "snapshotting", since_epoch=7))
    assert (work.sweep_before, work.state.state, work.state.since_epoch) == (None, "snapshotting", 7)


def test_new_columns_are_added() -> None:
    fake = FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]).images(WIDER, [("c", 2, 2, 5, "y")])
    work = decide(fake)
    assert work.add_columns == ("added",)
    assert work.definition is not None
    assert [column.name for column in work.definition.columns] == ["id", "added", "item"]
    assert work.state.state == "live"


@pytest.mark.parametrize("changed", [RETYPED, NARROWER, REKEYED])
def test_other_changes_stop_the_pipeline_and_name_the_remedy(changed: FakeTable) -> None:
    values = [1, "x", 2][: len(changed.columns)] if changed is not RETYPED else [1, 2]
    fake = FakeBatch(9).images(changed, [("c", 1, *values)])
    with pytest.raises(SchemaChangedError, match=r"--resnapshot 'shop\.orders'"):
        decide(fake)


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
    fake = FakeBatch(11).snapshot("shop.orders", 11, append=False, first=True).redo("shop.orders", {})
    assert decide(fake, held).state.held_epoch == 9


def test_an_alter_that_adds_nullable_columns_reads_nothing_again() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders ADD x INT", "alter", 5, only_adds=True)
    assert decide(fake).reread is None


def test_any_other_alter_reads_again_and_images_that_fit_still_apply() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders ADD x INT DEFAULT 5", "alter", 5)
    work = decide(fake.images(WIDER, [("c", 9, 1, 5, "x")]))
    assert work.reread is not None
    assert (work.apply, work.add_columns, work.state.state) == (True, ("added",), "live")


def test_an_alter_whose_images_do_not_fit_holds_the_table() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders DROP item", "alter", 5)
    work = decide(fake.images(NARROWER, [("c", 9, 1)]))
    assert work.reread is not None
    assert (work.apply, work.state.state) == (False, "stale")


def test_strict_tables_stop_at_an_alter_that_may_change_rows() -> None:
    fake = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders DROP item", "alter", 5)
    work = decide(fake, strict=True)
    assert (work.state.state, work.reread) == ("stopped", None)
    added = FakeBatch(9).ddl("shop.orders", "ALTER TABLE orders ADD x INT", "alter", 5, only_adds=True)
    assert decide(added, strict=True).state.state == "live"


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


def test_a_table_without_a_key_is_stopped_but_logged() -> None:
    keyless = FakeTable(key=())
    work = decide(FakeBatch(9).images(keyless, [("c", 1, 1, "x")]), None, None)
    assert (work.apply, work.log, work.state.state) == (False, True, "stopped")
    assert work.state.reason is not None
    assert "primary key" in work.state.reason
    alone = decide(FakeBatch(9).images(keyless, [("c", 1, 1, "x")]), None, None, current=False)
    assert (alone.log, alone.state.state) == (True, "live")


def test_a_column_with_one_of_our_names_stops_the_table() -> None:
    taken = FakeTable(columns=(("id", "bigint"), ("_SEQ", "string")))
    work = decide(FakeBatch(9).images(taken, [("c", 1, 1, "x")]), None, None)
    assert (work.apply, work.log, work.state.state) == (False, False, "stopped")


def test_a_table_the_header_does_not_mention_keeps_its_state() -> None:
    before = TableState("shop.orders", "snapshotting", since_epoch=7)
    work = decide(FakeBatch(9).images(ORDERS, [("c", 1, 1, "x")]), before)
    assert (work.state.state, work.state.since_epoch) == ("snapshotting", 7)


def test_a_batch_has_exactly_one_header() -> None:
    with pytest.raises(DecodeError, match="0 headers"):
        build_batch([])


def test_a_dropped_database_drops_every_known_table_of_it() -> None:
    row = DdlRow("shop.*", "DROP DATABASE shop", "drop_database", (1, 1, 1, 0), "g", 0, False)
    header = Header(1, "", "", "", 0, {}, ())
    batch = Batch(header, {}, [row], [], [])
    batch.name_dropped_tables(["shop.a", "shop.b", "shopping.c"])
    assert [(ddl.table, ddl.action) for ddl in batch.ddl] == [("shop.a", "drop"), ("shop.b", "drop")]
