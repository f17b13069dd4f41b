from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec, codec_for
from headgate.errors import UnsupportedError
from headgate.policies import Policies
from tests.columns.cells import block

TABLE = TableDef(
    "d",
    "t",
    (
        Column("id", "bigint", nullable=False, unsigned=True),
        Column("a`b", "float"),
        Column("when", "datetime", scale=3),
        Column("note", "varchar", length=40, charset="utf8mb4"),
    ),
    (0,),
)


def test_fields_and_select_list() -> None:
    codec = TableCodec(TABLE)
    assert codec.select_list == "`id`, (`a``b` * 1e0), `when`, `note`"
    assert codec.fields == (
        pa.field("id", pa.decimal128(20, 0)), pa.field("a`b", pa.float32()), pa.field("when", pa.timestamp("us")),
        pa.field("note", pa.string()),
    )  # fmt: skip
    assert all(field.nullable for field in codec.fields)
    assert TableCodec(TABLE, Policies(temporals="text")).fields[2].type == pa.string()


def test_all_columns_or_the_wanted_ones() -> None:
    codec = TableCodec(TABLE)
    rows = block([(b"1", b"1.5", b"2024-01-02 03:04:05.678", b"x"), (b"2", None, None, None)])
    arrays = codec.from_text(rows)
    assert [array.null_count for array in arrays] == [0, 1, 1, 1]
    assert [array.to_pylist() for array in codec.from_text(rows, columns=[3, 1])] == [["x", None], [1.5, None]]


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnsupportedError, match="hologram") as caught:
        codec_for(Column("c", "hologram"), table="d.t")
    assert (caught.value.table, caught.value.column) == ("d.t", "c")


def test_policies_of_a_table_are_found_where_its_codecs_are_made() -> None:
    policies = Policies.make({"zero_dates": "null"}, {"d.t": {"time": "microseconds"}, "d.u": {"zero_dates": "text"}})
    columns = (Column("a", "date"), Column("b", "time"))
    kinds = {
        name: [field.type for field in TableCodec(TableDef("d", name, columns), policies).fields] for name in "tuv"
    }
    assert kinds == {
        "t": [pa.date32(), pa.int64()], "u": [pa.string(), pa.string()], "v": [pa.date32(), pa.string()]
    }  # fmt: skip
