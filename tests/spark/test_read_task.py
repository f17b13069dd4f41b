"""What a task reads, and what of it is left out."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.mysql import ConnectionSettings
from headgate.offsets import Last
from headgate.policies import DEFAULT, OPERATIONS, Hook, Operation, Policies
from headgate.positions import LogPlace
from headgate.replication import ABSENT_FIELD, META_FIELDS, ImageBatch, LogBlock, RangeEnd, canonical_schema
from headgate.snapshot import ChunkOptions
from headgate.spark import LogRange, Task, Unread, read_task
from tests.spark.model import Image, batch_of, partial_of


def passed(image: ImageBatch, policies: Policies = DEFAULT, unread: Unread | None = None) -> ImageBatch | None:
    """What a task passes on of images in the log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.spark._read_task.read_range", lambda *_args, **_options: [LogBlock([image])])
        log = LogRange(wanted="", unread=() if unread is None else (unread,))
        task = Task("uuid", "", 1, 0, ("d.*",), log=log)
        items = [*read_task(ConnectionSettings("localhost"), task, "all", ChunkOptions(policies))]
    assert all(isinstance(item, ImageBatch) for item in items)
    assert len(items) <= 1
    return items[0] if items and isinstance(items[0], ImageBatch) else None


def left(images: list[Image], unread: Unread | None) -> list[tuple[str, int]]:
    rest = passed(batch_of("d.t", images), unread=unread)
    return [(row["_op"], row["id"]) for row in rest.batch.to_pylist()] if rest else []


@given(
    st.lists(st.tuples(st.sampled_from("cd"), st.integers(-5, 15)), min_size=1, max_size=20),
    st.one_of(st.none(), st.integers(-3, 10)),
    st.integers(-3, 12),
)
def test_keys_between_what_was_read_and_the_frozen_maximum_are_left_out(
    changes: list[tuple[str, int]], hi: int | None, most: int
) -> None:
    images = [(op, key, 0, number) for number, (op, key) in enumerate(changes, 1)]
    expected = [(op, key) for op, key in changes if key > most or (hi is not None and key <= hi)]
    assert left(images, Unread("d.t", True, hi, most)) == expected


def test_update_into_an_unread_range_is_a_delete_and_out_of_one_an_after_image() -> None:
    unread = Unread("d.t", True, 10, 20)
    assert left([("b", 5, 0, 1), ("u", 15, 0, 1), ("c", 1, 0, 2)], unread) == [("d", 5), ("c", 1)]
    assert left([("b", 15, 0, 1), ("u", 5, 0, 1)], unread) == [("u", 5)]
    assert left([("b", 5, 0, 1), ("u", 5, 0, 1)], unread) == [("b", 5), ("u", 5)]
    assert left([("b", 5, 0, 1), ("u", 25, 0, 1)], unread) == [("b", 5), ("u", 25)]


def test_table_nobody_has_begun_to_read_gives_nothing_and_others_all() -> None:
    images: list[Image] = [("c", 1, 0, 1), ("d", 2, 0, 2)]
    assert left(images, Unread("d.t")) == []
    assert left(images, None) == [("c", 1), ("d", 2)]


def test_a_hook_makes_the_columns_behind_the_meta_columns() -> None:
    """Of whole rows with a column for absent columns, too; not of a TRUNCATE, which has no columns yet."""
    policies = Policies.make({}, {"d.t": {"hook": Hook("tests.hooks_of_tests:doubled")}})
    images = batch_of("d.t", [("b", 5, 1, 1), ("u", 5, 2, 1)])
    first = len(META_FIELDS)
    whole = images.batch.schema.insert(first, ABSENT_FIELD)
    absent = pa.nulls(2, ABSENT_FIELD.type)
    columns = images.batch.columns
    with_absent = pa.RecordBatch.from_arrays([*columns[:first], absent, *columns[first:]], schema=whole)
    for image in (images, ImageBatch(images.table, with_absent)):
        made = passed(image, policies)
        assert made is not None
        assert made.table == images.table
        assert made.batch.schema.names == [*image.batch.schema.names[:-1], "product", "text", "columns"]
        assert made.batch.schema.metadata == image.batch.schema.metadata
        assert [(row["_op"], row["id"], row["product"], row["columns"]) for row in made.batch.to_pylist()] == [
            ("b", 5, 2, 2), ("u", 5, 4, 2),
        ]  # fmt: skip
    assert passed(images) is images
    truncate = ImageBatch(images.table.without(["v"]).with_key([]).without(["id"]), images.batch.select(range(first)))
    assert passed(truncate, policies) is truncate


CHANGES: dict[Operation, list[Image]] = {
    "insert": [("c", 1, 1, 1)], "update": [("b", 1, 1, 1), ("u", 2, 1, 1)], "delete": [("d", 2, 1, 1)],
    "truncate": [("t", 0, 0, 1)],
}  # fmt: skip


@given(st.lists(st.sampled_from(OPERATIONS)), st.sets(st.sampled_from(OPERATIONS)))
def test_whole_operations_are_left_out(done: list[Operation], skip: set[Operation]) -> None:
    def images(operations: list[Operation]) -> list[Image]:
        return [image for operation in operations for image in CHANGES[operation]]

    rest = passed(batch_of("d.t", images(done)), replace(DEFAULT, skip=tuple(sorted(skip))))
    shown = [] if rest is None else [row["_op"] for row in rest.batch.to_pylist()]
    assert shown == [op for op, *_ in images([one for one in done if one not in skip])]


def test_a_row_that_moves_into_an_unread_range_is_no_skipped_delete() -> None:
    """It is an update, which only becomes a delete because the row comes with a chunk."""
    images = batch_of("d.t", [("b", 1, 1, 1), ("u", 50, 1, 1), ("d", 2, 1, 2)])
    rest = passed(images, replace(DEFAULT, skip=("delete",)), Unread("d.t", True, 10, 100))
    assert rest is not None
    assert [(row["_op"], row["id"]) for row in rest.batch.to_pylist()] == [("d", 1)]


def test_truncation_is_never_left_out_of_a_table_that_was_begun() -> None:
    empty = TableDef("d", "t", (), ())
    image = batch_of("d.t", [("t", 0, 0, 1)])
    bare = image.batch.select([field.name for field in META_FIELDS])
    truncation = ImageBatch(empty, bare.replace_schema_metadata(canonical_schema(empty, ()).metadata))
    assert passed(truncation, unread=Unread("d.t", True, 1, 2)) is truncation


def test_wide_unsigned_keys_compare_as_decimals() -> None:
    table = TableDef("d", "t", (Column("id", "bigint", unsigned=True),), key=(0,))
    big = 2**64 - 1
    base = batch_of("d.t", [("c", 1, 0, 1), ("c", 2, 0, 2)]).batch.select([field.name for field in META_FIELDS])
    keys = pa.array([Decimal(5), Decimal(big)], pa.decimal128(20, 0))
    fields = [pa.field("id", keys.type)]
    batch = pa.RecordBatch.from_arrays([*base.columns, keys], schema=canonical_schema(table, fields))
    rest = passed(ImageBatch(table, batch), unread=Unread("d.t", True, None, big - 1))
    assert rest is not None
    assert rest.batch.column("id").to_pylist() == [Decimal(big)]


def test_a_partial_image_out_of_an_unread_range_brings_its_before_image_along() -> None:
    images: list[Image] = [
        ("b", 15, 0, 1), ("u", 5, 0, 1), ("b", 16, 0, 2), ("u", 6, 0, 2), ("b", 17, 0, 3), ("u", 18, 0, 3),
    ]  # fmt: skip
    partial = partial_of(images, ['["v"]', '["v"]', None, None, '["v"]', '["v"]'])
    rest = passed(partial, unread=Unread("d.t", True, 10, 20))
    assert rest is not None
    assert [(row["_op"], row["id"], row["_absent"]) for row in rest.batch.to_pylist()] == [
        ("b", 15, '["v"]'), ("u", 5, '["v"]'), ("u", 6, None),
    ]  # fmt: skip


PLANNED = Last("uuid:3", 7)


@pytest.mark.parametrize(("first", "last"), [(PLANNED, None), (None, PLANNED), (None, None)])
def test_a_range_that_met_the_planned_transaction_needs_no_other_dump(
    first: Last | None, last: Last | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one with GTIDs, the first one without."""
    place = LogPlace.before("3e11fa47-71ca-11e1-9e33-c80aa9429562", 3, 157)
    end = RangeEnd("uuid", "binlog.000003", 157, place, last=last, first=first)
    compared: list[Last] = []
    monkeypatch.setattr("headgate.spark._read_task.read_range", lambda *_args, **_options: [end])
    monkeypatch.setattr("headgate.spark._read_task.check_history", lambda _read, one, **_: compared.append(one))
    task = Task("uuid", "", 1, 0, ("d.*",), log=LogRange(wanted=""), last=PLANNED)
    assert [*read_task(ConnectionSettings("localhost"), task, "all", ChunkOptions(DEFAULT))] == [end]
    assert compared == ([] if PLANNED in (first, last) else [PLANNED])
