"""Rows as Avro: fastavro reads what we write as the values that went in, and writes the same bytes."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec
from headgate.errors import DecodeError, UnsupportedError
from headgate.relay.databus import Schema
from headgate.relay.server.events import RowEncoder, generate


def encoded(schema: dict[str, Any], table: TableDef, columns: list[pa.Array]) -> list[bytes]:
    """Each row's bytes; the rows are put in reverse order, so that places matter."""
    encoder = RowEncoder(Schema("s", 1, json.dumps(schema), schema), table, TableCodec(table).fields)
    rows = encoder.encode(columns)
    places = (np.cumsum(rows.sizes[::-1]) - rows.sizes[::-1])[::-1].copy()
    out = np.full(int(rows.sizes.sum()), 0xEE, np.uint8)
    rows.put(places, out)
    return [
        out[place : place + size].tobytes() for place, size in zip(places.tolist(), rows.sizes.tolist(), strict=True)
    ]


def written(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def read(schema: dict[str, Any], data: bytes) -> dict[str, Any]:
    source = io.BytesIO(data)
    row = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
    assert source.read() == b""
    assert isinstance(row, dict)
    return row


COLUMNS = (
    Column("tiny", "tinyint"), Column("small_u", "smallint", unsigned=True), Column("n", "int"),
    Column("big", "bigint"), Column("big_u", "bigint", unsigned=True), Column("y", "year"),
    Column("price", "decimal", precision=20, scale=7), Column("whole", "decimal", precision=38),
    Column("f", "float"), Column("d", "double"), Column("b", "bit", precision=64), Column("b9", "bit", precision=9),
    Column("day", "date"), Column("at", "datetime", scale=6), Column("seen", "timestamp", scale=6),
    Column("t", "time", scale=3), Column("name", "varchar", length=40, charset="utf8mb4"),
    Column("raw", "varbinary", length=9), Column("doc", "json"), Column("place", "geometry"), Column("v", "vector"),
)  # fmt: skip
TABLE = TableDef("d", "t", COLUMNS, (0,))
UTC = dt.UTC
DAYS = st.dates(dt.date(1000, 1, 1), dt.date(9999, 12, 31))
TIMES = st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31))


def integers(bits: int, *, unsigned: bool = False) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1) if unsigned else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale))
    )


FINITE: dict[str, Any] = {"allow_nan": False, "allow_infinity": False}  # MySQL has no other floats
FLOATS = st.floats(width=32, **FINITE)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": integers(8), "small_u": integers(16, unsigned=True), "n": integers(32), "big": integers(64),
    "big_u": integers(64, unsigned=True).map(Decimal), "y": st.integers(0, 2155), "price": decimals(20, 7),
    "whole": decimals(38, 0), "f": FLOATS, "d": st.floats(**FINITE),
    "b": integers(64, unsigned=True).map(Decimal), "b9": st.integers(0, 511), "day": DAYS, "at": TIMES,
    "seen": TIMES.map(lambda at: at.replace(tzinfo=UTC)), "t": st.just("-01:02:03.456"), "name": st.text(max_size=200),
    "raw": st.binary(max_size=9), "doc": st.just('{"a": 1}'), "v": st.lists(FLOATS, max_size=70),
    "place": st.fixed_dictionaries({"srid": integers(32), "wkb": st.binary(max_size=20)}),
}  # fmt: skip
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | one for name, one in VALUES.items()}), min_size=1, max_size=6)


def takes_a_byte_too_many(value: Decimal) -> bool:
    """Whether fastavro writes a decimal with a byte that it does not need: -128, which one byte holds, and the like."""
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    return sign == 1 and unscaled.bit_count() == 1 and unscaled.bit_length() % 8 == 0


@settings(max_examples=30)
@given(ROWS, st.integers(0, 3))
def test_every_type_exactly(rows: list[dict[str, Any]], cut: int) -> None:
    schema = generate("a.b.T", 1, TABLE, "exact")
    names = [field["name"] for field in schema["fields"]]
    assert names == ["tiny", "smallU", "n", "big", "bigU", *names[5:11], "b9", *names[12:]]
    fields = TableCodec(TABLE).fields
    # A part of longer arrays, as slices of a batch are.
    columns = [pa.array([None] * cut + [row[field.name] for row in rows], field.type).slice(cut) for field in fields]
    for row, data in zip(rows, encoded(schema, TABLE, columns), strict=True):
        wanted = {avro: row[column.name] for avro, column in zip(names, COLUMNS, strict=True)}
        assert read(schema, data) == wanted
        if not any(isinstance(value, Decimal) and takes_a_byte_too_many(value) for value in wanted.values()):
            assert written(schema, wanted) == data


def one_column(column: Column, value: Any, avro: Any) -> bytes:
    table = TableDef("d", "t", (column,))
    schema = {"type": "record", "name": "T", "fields": [{"name": "c", "type": avro}]}
    return encoded(schema, table, [pa.array([value], TableCodec(table).fields[0].type)])[0]


@pytest.mark.parametrize(
    ("column", "value", "avro", "wanted"),
    [
        (Column("c", "date"), dt.date(1980, 1, 1), "long", 315_532_800_000),
        (Column("c", "date"), dt.date(1969, 12, 31), "long", -86_400_000),
        (Column("c", "datetime", scale=6), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), "long", -1),
        (Column("c", "timestamp"), dt.datetime(2026, 1, 1, tzinfo=UTC), "long", 1_767_225_600_000),
        (Column("c", "decimal", precision=10, scale=2), Decimal("-12.50"), "double", -12.5),
        (Column("c", "decimal", precision=10, scale=7), Decimal("0.0000001"), "string", "0.0000001"),
        (Column("c", "bigint", unsigned=True), Decimal(2**64 - 1), "long", -1),
        (Column("c", "int"), 7, "double", 7.0),
        (Column("c", "bigint"), -(2**63), "string", str(-(2**63))),
        (Column("c", "date"), dt.date(2026, 2, 1), "string", "2026-02-01"),
        (Column("c", "varchar", length=40, charset="utf8mb4"), "é", "bytes", "é".encode()),
    ],
)
def test_what_a_registered_schema_asks_for(column: Column, value: Any, avro: Any, wanted: Any) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "c", "type": avro}]}
    data = one_column(column, value, avro)
    assert read(schema, data) == {"c": wanted}
    for union in (["null", avro], [avro, "null"]):
        branch = bytes([2 * union.index(avro)])
        assert one_column(column, value, union) == branch + data
        assert one_column(column, None, union) == bytes([2 * union.index("null")])


def test_unsigned_numbers_that_turn_negative_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """What Databus makes of them, and nobody would know."""
    table = TableDef("d", "t", (Column("a", "bigint", unsigned=True), Column("b", "bigint", unsigned=True)))
    schema = Schema("T", 1, "", generate("T", 1, table, "databus"))
    fields = TableCodec(table).fields
    encoder = RowEncoder(schema, table, fields)

    def encode(a: list[int | None], b: list[int | None]) -> list[str]:
        caplog.clear()
        encoder.encode([pa.array(one, fields[0].type) for one in (a, b)])
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    assert encode([2**63 - 1, 0, None], [None, 1, 2**63 - 1]) == []
    (warning,) = encode([1, 2**64 - 5, 2**63], [0, 0, 0])
    assert warning.startswith("d.t.a holds 18446744073709551611, more than Avro's long does: consumers get -5, ")
    assert encode([2**64 - 1], [2**63 - 1]) == []
    (warning,) = encode([2**64 - 1], [2**63])
    assert warning.startswith("d.t.b holds 9223372036854775808, ")
    assert "consumers get -9223372036854775808, " in warning


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**37])
def test_a_number_of_more_than_64_bits_is_no_long(value: int) -> None:
    column = Column("c", "decimal", precision=38)
    with pytest.raises(DecodeError, match=r"more than 64 bits.*column=c"):
        one_column(column, Decimal(value), "long")
    for fits in (2**63 - 1, -(2**63)):
        assert read({"type": "record", "name": "T", "fields": [{"name": "c", "type": "long"}]},
                    one_column(column, Decimal(fits), "long")) == {"c": fits}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "fits", "beyond"),
    [
        (Column("c", "int", unsigned=True), 2**31 - 1, 2**31),
        (Column("c", "bigint"), -(2**31), 5_000_000_000),
        (Column("c", "bigint", unsigned=True), Decimal(7), Decimal(2**32)),
        (Column("c", "date"), dt.date(1970, 1, 2), dt.date(1980, 1, 1)),
    ],
)
def test_a_number_of_more_than_32_bits_is_no_int(column: Column, fits: Any, beyond: Any) -> None:
    """A registered schema may say int for a column that is, or becomes, a wider one."""
    for union in ("int", ["null", "int"]):
        schema = {"type": "record", "name": "T", "fields": [{"name": "c", "type": union}]}
        wanted = 86_400_000 if column.type == "date" else int(fits)
        assert read(schema, one_column(column, fits, union)) == {"c": wanted}
        assert one_column(column, None, ["null", "int"]) == b"\0"
        with pytest.raises(DecodeError, match=r"cannot hold.*more than 32 bits.*column=c"):
            one_column(column, beyond, union)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"NULL, which the schema does not allow.*table=d\.t, column=c"):
        one_column(Column("c", "int"), None, "long")
    for column, avro in (
        (Column("c", "varchar", length=4, charset="utf8mb4"), "long"),
        (Column("c", "varbinary", length=4), "string"),
        (Column("c", "int"), ["int", "string"]),
        (Column("c", "int"), "boolean"),
    ):
        with pytest.raises(UnsupportedError, match=r"cannot be written as Avro's.*column=c"):
            one_column(column, None, avro)
    narrow = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
    with pytest.raises(DecodeError, match="cannot hold"):
        one_column(Column("c", "bigint"), 1_000_000, narrow)
