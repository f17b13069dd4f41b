"""Images on their way to Spark: what is left out, joined and cast."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate._policies import DEFAULT, Policies
from headgate.catalog import Column, TableDef
from headgate.errors import SchemaChangedError, UnsupportedError
from headgate.mysql import ConnectionSettings
from headgate.replication import ABSENT_FIELD, META_FIELDS, ImageBatch, LogBlock, canonical_schema
from headgate.spark import _rows
from headgate.spark._progress import TaskProgress
from headgate.spark._tasks import LogRange, Task, Unread
from tests.spark.model import batch_of, definition

Image = tuple[str, int, int, int]


def left(images: list[Image], unread: Unread | None) -> list[tuple[str, int]]:
    rest = _rows.without_unread(batch_of("d.t", images), unread)
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


def test_the_two_images_of_an_update_are_one_change_in_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    images: list[Image] = [("c", 1, 0, 1), ("b", 1, 0, 2), ("u", 1, 0, 2), ("d", 1, 0, 3)]
    block = LogBlock([batch_of("d.t", images)])
    monkeypatch.setattr(_rows, "read_range", lambda *_args, **_options: iter([block]))
    task = Task("uuid", "", 1, 0, ("d.*",), log=LogRange(wanted=""))
    told: list[tuple[str, int]] = []

    class Told(TaskProgress):
        def changes(self, table: str, count: int) -> None:
            told.append((table, count))

    read = list(_rows.read_task(ConnectionSettings("localhost"), task, images="all", policies=DEFAULT, progress=Told()))
    assert [item.batch.num_rows for item in read if isinstance(item, ImageBatch)] == [4]
    assert told == [("d.t", 3)]


def test_truncation_is_never_left_out_of_a_table_that_was_begun() -> None:
    empty = TableDef("d", "t", (), ())
    image = batch_of("d.t", [("t", 0, 0, 1)])
    bare = image.batch.select([field.name for field in META_FIELDS])
    truncation = ImageBatch(empty, bare.replace_schema_metadata(canonical_schema(empty, ()).metadata))
    assert _rows.without_unread(truncation, Unread("d.t", True, 1, 2)) is truncation
    row = json.loads(_rows._truncate_row(truncation)["_data"][0].as_py())
    assert row["action"] == "truncate"
    assert row["seq"] == [1, 1, 1, 1]
    assert row["ts"] == 1


def test_wide_unsigned_keys_compare_as_decimals() -> None:
    table = TableDef("d", "t", (Column("id", "bigint", unsigned=True),), key=(0,))
    big = 2**64 - 1
    base = batch_of("d.t", [("c", 1, 0, 1), ("c", 2, 0, 2)]).batch.select([field.name for field in META_FIELDS])
    keys = pa.array([Decimal(5), Decimal(big)], pa.decimal128(20, 0))
    fields = [pa.field("id", keys.type)]
    batch = pa.RecordBatch.from_arrays([*base.columns, keys], schema=canonical_schema(table, fields))
    rest = _rows.without_unread(ImageBatch(table, batch), Unread("d.t", True, None, big - 1))
    assert rest is not None
    assert rest.batch.column("id").to_pylist() == [Decimal(big)]


def test_gathered_images_keep_their_order_and_their_transactions() -> None:
    gathered = _rows._Gatherer("rows", DEFAULT)
    parts = [[("c", n * 10 + i, i, n * 10 + i + 1) for i in range(3)] for n in range(4)]
    assert [list(gathered.add(batch_of("d.t", part))) for part in parts] == [[]] * 4
    list(gathered.add(batch_of("d.u", [("c", 1, 1, 1)])))
    one, other = gathered.rest()
    assert one.schema.equals(_rows.CARRIER)
    assert (one["_table"][0].as_py(), one["_kind"][0].as_py(), one["_count"][0].as_py()) == ("d.t", "rows", 12)
    images = pa.ipc.open_stream(one["_data"][0].as_buffer()).read_all()
    assert images["id"].to_pylist() == [image[1] for part in parts for image in part]
    assert [text[37:] for text in images["_gtid"].to_pylist()] == [str(image[3]) for part in parts for image in part]
    schema = json.loads(one["_schema"][0].as_py())
    assert schema["table"] == "d.t"
    assert schema["key"] == ["id"]
    assert schema["columns"] == [
        {"name": name, "spark": "int", "mysql": "int", "nullable": True} for name in ("id", "v")
    ]
    assert other["_table"][0].as_py() == "d.u"


def partial(images: list[Image], absent: list[str | None]) -> ImageBatch:
    """A batch in which some images leave columns out."""
    whole = batch_of("d.t", images)
    column = pa.array(absent, pa.string()).dictionary_encode().cast(ABSENT_FIELD.type)
    return ImageBatch(whole.table, whole.batch.add_column(len(META_FIELDS), ABSENT_FIELD, column))


def test_whole_and_partial_images_are_gathered_apart() -> None:
    gathered = _rows._Gatherer("rows", DEFAULT)
    for number in range(4):
        parts = batch_of("d.t", [("c", number, 0, number + 1)])
        list(gathered.add(parts if number % 2 else partial([("u", number, 0, number + 1)], ['["v"]'])))
    rows = [pa.ipc.open_stream(row["_data"][0].as_buffer()).read_all() for row in gathered.rest()]
    assert [row["id"].to_pylist() for row in rows] == [[0, 2], [1, 3]]
    assert rows[0]["_absent"].to_pylist() == ['["v"]'] * 2
    assert "_absent" not in rows[1].schema.names


def test_a_partial_image_out_of_an_unread_range_brings_its_before_image_along() -> None:
    images: list[Image] = [
        ("b", 15, 0, 1),
        ("u", 5, 0, 1),
        ("b", 16, 0, 2),
        ("u", 6, 0, 2),
        ("b", 17, 0, 3),
        ("u", 18, 0, 3),
    ]
    rest = _rows.without_unread(
        partial(images, ['["v"]', '["v"]', None, None, '["v"]', '["v"]']), Unread("d.t", True, 10, 20)
    )
    assert rest is not None
    assert [(row["_op"], row["id"], row["_absent"]) for row in rest.batch.to_pylist()] == [
        ("b", 15, '["v"]'), ("u", 5, '["v"]'), ("u", 6, None),
    ]  # fmt: skip


def test_typed_rows_refuse_partial_images() -> None:
    image = partial([("u", 1, 0, 1)], ['["v"]'])
    with pytest.raises(UnsupportedError, match=r"binlog_row_image = 'FULL'.*option tables") as caught:
        _rows.typed_batch(image, schema_of({"id": pa.int32(), "v": pa.int32()}), "all")
    assert caught.value.table == "d.t"


def test_much_is_handed_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows, "_GATHER_ROWS", 4)
    gathered = _rows._Gatherer("rows", DEFAULT)
    given_out = [
        row["_count"][0].as_py() for n in range(5) for row in gathered.add(batch_of("d.t", [("c", n, 0, n + 1)]))
    ]
    assert given_out == [4]
    assert [row["_count"][0].as_py() for row in gathered.rest()] == [1]


def schema_of(columns: dict[str, pa.DataType]) -> pa.Schema:
    meta: list[Any] = [
        *META_FIELDS[:2],
        pa.field("_gtid", pa.string()),
        META_FIELDS[3],
        pa.field("_table", pa.string()),
    ]
    return pa.schema([*meta, *(pa.field(name, kind) for name, kind in columns.items())])


def test_typed_rows_have_exactly_the_schema() -> None:
    image = batch_of("d.t", [("b", 1, 0, 1), ("u", 2, 0, 1), ("c", 3, 0, 2)])
    schema = schema_of({"id": pa.int64(), "v": pa.int32(), "gone": pa.string()})
    rows = _rows.typed_batch(image, schema, "keys")
    assert rows.schema.equals(schema)
    assert rows["_op"].to_pylist() == ["d", "u", "c"]
    assert rows["gone"].null_count == 3
    assert set(rows["_table"].to_pylist()) == {"d.t"}
    assert _rows.typed_batch(image, schema, "all")["_op"].to_pylist() == ["b", "u", "c"]


def test_column_that_the_query_does_not_know_stops_it() -> None:
    image = batch_of("d.t", [("c", 1, 0, 1)])
    with pytest.raises(SchemaChangedError, match=r"column v,.*start the query again") as caught:
        _rows.typed_batch(image, schema_of({"id": pa.int32()}), "keys")
    assert caught.value.column == "v"
    with pytest.raises(SchemaChangedError, match="has become int32"):
        _rows.typed_batch(image, schema_of({"id": pa.int32(), "v": pa.date64()}), "keys")


def test_table_with_a_column_named_like_ours_is_refused() -> None:
    table = TableDef("d", "t", (Column("id", "int"), Column("_SEQ", "int")), key=(0,))
    with pytest.raises(SchemaChangedError, match="_SEQ"):
        _rows.typed_fields(table, DEFAULT, meta=True)
    assert [field.name for field in _rows.typed_fields(definition("d.t"), DEFAULT, meta=False)] == ["id", "v"]


def test_json_becomes_a_variant_where_the_policy_says_so() -> None:
    table = TableDef("d", "t", (Column("id", "int"), Column("j", "json")), (0,))
    schema = canonical_schema(table, [pa.field("id", pa.int32()), pa.field("j", pa.string())])
    policies = Policies.make({}, {"d.t": {"json": "variant"}})
    for chosen, expected in ((policies, "variant"), (DEFAULT, "string"), (policies, "variant")):
        columns = json.loads(_rows.schema_json(table, schema, chosen))["columns"]
        assert [column["spark"] for column in columns] == ["int", expected]
