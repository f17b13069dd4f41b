"""Rows back from Avro: what the relay wrote, and what it did not write."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.columns import TableCodec
from headgate.errors import DecodeError, UnsupportedError
from headgate.relay.databus import Schema
from headgate.relay.server.events import RowDecoder, RowEncoder, generate
from tests.relay.server.test_avro import ROWS, TABLE, written

SCHEMA = generate("a.b.T", 1, TABLE, "exact")


CANARIES = (0xEE, 0x01)
"""Bytes around the rows. A decoder that reads beyond a row gives another result for each."""


def encoded(rows: list[dict[str, Any]]) -> tuple[list[pa.Array], Any, Any, Any]:
    """The columns, and their rows in Avro, backwards with a gap of 9 bytes around each: bytes, places and sizes."""
    fields = TableCodec(TABLE).fields
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in fields]
    avro_rows = RowEncoder(Schema("s", 1, json.dumps(SCHEMA), SCHEMA), TABLE, fields).encode(columns)
    taken = avro_rows.sizes[::-1] + 9
    places = 9 + (np.cumsum(taken) - taken)[::-1].copy()
    out = np.full(int(taken.sum()) + 9, CANARIES[0], np.uint8)
    avro_rows.put(places, out)
    return columns, out, places, avro_rows.sizes


@settings(max_examples=30)
@given(ROWS)
def test_every_type_comes_back(rows: list[dict[str, Any]]) -> None:
    columns, data, places, sizes = encoded(rows)
    decoder = RowDecoder(SCHEMA)
    decoded = decoder.decode(data, places, sizes)
    for field, given_column, column in zip(decoder.fields, columns, decoded, strict=True):
        column.validate(full=True)
        assert column.type == field.type
        assert [str(one) for one in column.to_pylist()] == [str(one) for one in given_column.to_pylist()], field


@settings(max_examples=60)
@given(ROWS, st.data())
def test_damaged_rows_are_told(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """Any byte changed, any end cut off: an error, or values, of the row's bytes alone."""
    _, out, places, sizes = encoded(rows)
    decoder = RowDecoder(SCHEMA)
    short = sizes.copy()
    row = data.draw(st.integers(0, len(rows) - 1))
    short[row] -= data.draw(st.integers(1, int(sizes[row])))
    with pytest.raises(DecodeError, match="does not fit its schema"):
        decoder.decode(out, places, short)
    out[places[row] + data.draw(st.integers(0, int(sizes[row]) - 1))] ^= data.draw(st.integers(1, 255))
    first, second = (outcome(decoder, surrounded(out, places, sizes, canary), places, sizes) for canary in CANARIES)
    assert first == second
    if isinstance(first, list):
        assert {len(column) for column in first} == {len(rows)}


def surrounded(out: Any, places: Any, sizes: Any, canary: int) -> Any:
    """The rows with this byte around each of them."""
    copy = np.full(len(out), canary, np.uint8)
    for place, size in zip(places, sizes, strict=True):
        copy[place : place + size] = out[place : place + size]
    return copy


def outcome(decoder: RowDecoder, data: Any, places: Any, sizes: Any) -> list[pa.Array] | str:
    """The columns, floats as their bits because NaN is not equal to itself, or the error's message."""
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    try:
        return [column.view(bits.get(column.type, column.type)) for column in decoder.decode(data, places, sizes)]
    except DecodeError as error:
        return str(error)


def test_a_damaged_row_stays_damaged() -> None:
    """Nothing of it is read after the damage, not even what lies before it."""
    kinds = {"a": "bytes", "b": "int", "c": "long"}
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": one} for name, one in kinds.items()]}
    cut_off = np.array([10], np.uint8)  # of a's 5 bytes none is there; as the number of c it would end the row
    with pytest.raises(DecodeError):
        RowDecoder(schema).decode(cut_off, np.array([0]), np.array([1]))


def test_an_int_of_more_than_32_bits_is_damage() -> None:
    wide, narrow = ({"type": "record", "name": "r", "fields": [{"name": "a", "type": one}]} for one in ("long", "int"))
    for number, fits in ((2**31 - 1, True), (-(2**31), True), (2**31, False), (5_000_000_000, False)):
        data = np.frombuffer(written(wide, {"a": number}), np.uint8)
        if fits:
            (column,) = RowDecoder(narrow).decode(data, np.array([0]), np.array([len(data)]))
            assert column.to_pylist() == [number]
        else:
            with pytest.raises(DecodeError, match="does not fit its schema"):
                RowDecoder(narrow).decode(data, np.array([0]), np.array([len(data)]))


def test_types_of_others_schemas() -> None:
    record: dict[str, Any] = {
        "type": "record", "name": "T",
        "fields": [
            {"name": "a", "type": ["string", "null"]}, {"name": "b", "type": "boolean"},
            {"name": "c", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "null"]},
        ],
    }  # fmt: skip
    rows: list[dict[str, Any]] = [{"a": None, "b": True, "c": 5}, {"a": "ü", "b": False, "c": None}]
    values = [written(record, dict(row)) for row in rows]
    data = np.frombuffer(b"".join(values), np.uint8)
    sizes = np.array([len(one) for one in values])
    columns = RowDecoder(record).decode(data, np.cumsum(sizes) - sizes, sizes)
    assert [column.to_pylist() for column in columns[:2]] == [[None, "ü"], [True, False]]
    assert columns[2].cast(pa.int64()).to_pylist() == [5, None]
    for odd in (["int", "string"], {"type": "map", "values": "int"}, {"type": "enum", "symbols": ["A"]}):
        with pytest.raises(UnsupportedError):
            RowDecoder({"fields": [{"name": "a", "type": odd}]})
