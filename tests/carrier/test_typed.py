"""The stream's rows as typed rows of one table; what is missing from the stream is never passed over."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.carrier import ABSENT, META, typed_images
from headgate.errors import ChunkRetryError, HeadgateError, SchemaChangedError, UnsupportedError
from tests.fix_carrier import FakeBatch, FakeTable

TABLE = FakeTable()
SCHEMA = pa.schema([
    *((name, TABLE.batch(1, [("c", 1, 1, "x")]).schema.field(name).type) for name in META[:2]),
    ("_gtid", pa.string()), ("_ts", pa.timestamp("us", "UTC")), ("_table", pa.string()),
    *((column.name, {"bigint": pa.int64(), "int": pa.int32()}.get(column.spark, pa.string()))
      for column in TABLE.carried.columns),
])  # fmt: skip


def typed(fake: FakeBatch, schema: pa.Schema = SCHEMA) -> pa.Table:
    """All rows of the fake stream that name the table, as Spark's filter leaves them."""
    mine = [row for row in fake.rows() if row["_table"][0].as_py() == TABLE.name]
    return pa.Table.from_batches(list(typed_images(iter(mine), TABLE.name, schema)), schema)


def test_images_of_log_and_chunks() -> None:
    fake = FakeBatch(3).images(TABLE, [("c", 10, 5, "x"), ("b", 20, 9, "x"), ("u", 20, 9, "y")])
    fake.chunk(TABLE, [(100, "z")]).ddl(TABLE.name, "ALTER", "alter", 5)
    images = typed(fake)
    assert images["_op"].to_pylist() == ["c", "b", "u", "r"]
    assert set(images["_table"].to_pylist()) == {TABLE.name}
    assert images[TABLE.carried.columns[0].name].to_pylist() == [5, 9, 9, 100]


@pytest.mark.parametrize(
    ("fake", "error", "text"),
    [
        (FakeBatch(3).redo(TABLE.name), ChunkRetryError, "a chunk of the table is missing: "),
        (
            FakeBatch(3).stop(TABLE.name, "nobody knows"),
            UnsupportedError,
            "rows of the table are missing: nobody knows",
        ),
        (FakeBatch(3).unread(TABLE.name, "odd"), UnsupportedError, "rows of the table are missing: odd"),
    ],
)
def test_what_the_stream_left_out_is_an_error(fake: FakeBatch, error: type[HeadgateError], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        typed(fake.images(TABLE, [("c", 10, 5, "x")]))
    assert caught.value.table == TABLE.name


def test_a_column_that_the_schema_lacks_is_an_error() -> None:
    with pytest.raises(SchemaChangedError, match="which this query's schema lacks"):
        typed(FakeBatch(3).images(TABLE, [("c", 10, 5, "x")]), SCHEMA.remove(len(SCHEMA) - 1))


def test_a_schema_with_absent_takes_whole_images_too() -> None:
    images = typed(FakeBatch(3).images(TABLE, [("c", 10, 5, "x")]), SCHEMA.append(pa.field(ABSENT, pa.string())))
    assert images[ABSENT].to_pylist() == [None]


def test_a_column_with_the_name_of_one_of_ours_is_refused() -> None:
    taken = FakeTable(columns=(("id", "bigint"), ("_table", "string")))
    with pytest.raises(SchemaChangedError, match="column _table has a name that headgate uses itself"):
        typed(FakeBatch(3).images(taken, [("c", 10, 5, "x")]))
