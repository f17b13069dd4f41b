"""A batch as the sinks see it: parts of images, and statements by table."""

from __future__ import annotations

import pytest

from headgate.carrier import Batch, DdlRow, Header, HeaderTable, UnreadableRows
from headgate.errors import DecodeError
from tests.fix_carrier import FakeBatch, FakeTable


def test_parts_of_a_batch() -> None:
    table = FakeTable()
    fake = FakeBatch(3).images(table, [("c", 10, 5, "x")]).images(table, [("b", 20, 9, "x"), ("u", 20, 9, "y")])
    fake.chunk(table, [(100, "z")]).chunk(table, [(20, "z")]).chunk(table, []).redo("shop.gone")
    batch = fake.described()
    assert isinstance(batch, Batch)
    assert batch.tables() == ["shop.gone", "shop.orders"]
    rows, chunk = batch.parts["shop.orders"]
    assert (rows.images, rows.changes, rows.newest_seq) == (3, 2, (3, 1, 20, 0))
    assert chunk.images == 2
    assert [part.num_rows for part in rows.record_batches()] == [1, 2]
    assert [part.num_rows for part in chunk.record_batches()] == [1, 1], "without the empty one"
    assert rows.size == sum(part.nbytes for part in rows.record_batches())


@pytest.mark.parametrize("headers", [0, 2])
def test_a_batch_has_one_header(headers: int) -> None:
    with pytest.raises(DecodeError, match=f"a batch has {headers} headers"):
        Batch.of([Header(1, "", "", "", 0)] * headers)


def statement(table: str, action: str, pos: int) -> DdlRow:
    return DdlRow(table, action.upper(), action, (9, 1, pos, 0), None, None)


@pytest.mark.parametrize("full_restart", [False, True])
def test_a_dropped_database_is_a_drop_of_each_of_its_tables(full_restart: bool) -> None:
    header = Header(9, "", "", "", 0, {"shop.new": HeaderTable()}, full_restart=full_restart)
    batch = Batch.of([statement("shop.*", "drop_database", 20), statement("web.b", "alter", 10), header])
    batch.name_dropped_tables(iter(["shop.b", "shop.a", "shopping.c"]))
    named = [("web.b", "alter"), ("shop.a", "drop"), ("shop.b", "drop"), ("shop.new", "drop")]
    missing = [("shop.a", "drop"), ("shop.b", "drop"), ("shopping.c", "drop")] if full_restart else []
    assert [(ddl.table, ddl.action) for ddl in batch.ddl] == missing + named
    assert [ddl.seq for ddl in batch.ddl[: len(missing)]] == [(9, 0, 0, number) for number in range(len(missing))]


def test_the_first_reason_of_a_table_stays() -> None:
    stops = [UnreadableRows("a.b", "first"), UnreadableRows("a.b", "second"), UnreadableRows("a.c", "odd", chunk=3)]
    batch = Batch.of([Header(1, "", "", "", 0), *stops])
    assert (batch.stops, batch.unread, batch.tables()) == ({"a.b": "first"}, {"a.c": "odd"}, ["a.b", "a.c"])
