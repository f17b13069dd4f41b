"""Images as typed rows of one table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headgate.carrier import typed_batch
from headgate.errors import SchemaChangedError, UnsupportedError
from headgate.replication import META_FIELDS
from tests.spark.model import batch_of, partial_of


def schema_of(columns: dict[str, pa.DataType]) -> pa.Schema:
    meta: list[Any] = [
        *META_FIELDS[:2],
        pa.field("_gtid", pa.string()),
        META_FIELDS[3],
        pa.field("_table", pa.string()),
    ]
    return pa.schema([*meta, *(pa.field(name, kind) for name, kind in columns.items())])


def test_typed_rows_refuse_partial_images() -> None:
    image = partial_of([("u", 1, 0, 1)], ['["v"]'])
    with pytest.raises(UnsupportedError, match=r"binlog_row_image = 'FULL'.*option tables") as caught:
        typed_batch(image.batch, "d.t", schema_of({"id": pa.int32(), "v": pa.int32()}), "all")
    assert caught.value.table == "d.t"


def test_typed_rows_have_exactly_the_schema() -> None:
    image = batch_of("d.t", [("b", 1, 0, 1), ("u", 2, 0, 1), ("c", 3, 0, 2)])
    schema = schema_of({"id": pa.int64(), "v": pa.int32(), "gone": pa.string()})
    rows = typed_batch(image.batch, "d.t", schema, "keys")
    assert rows.schema.equals(schema)
    assert rows["_op"].to_pylist() == ["d", "u", "c"]
    assert rows["gone"].null_count == 3
    assert set(rows["_table"].to_pylist()) == {"d.t"}
    assert typed_batch(image.batch, "d.t", schema, "all")["_op"].to_pylist() == ["b", "u", "c"]


def test_column_that_the_query_does_not_know_stops_it() -> None:
    image = batch_of("d.t", [("c", 1, 0, 1)])
    with pytest.raises(SchemaChangedError, match=r"column v,.*restart the query") as caught:
        typed_batch(image.batch, "d.t", schema_of({"id": pa.int32()}), "keys")
    assert caught.value.column == "v"
    with pytest.raises(SchemaChangedError, match="has become int32"):
        typed_batch(image.batch, "d.t", schema_of({"id": pa.int32(), "v": pa.date64()}), "keys")
