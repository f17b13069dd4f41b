"""Column values in the JSON and the Avro of Debezium's MySQL connector, and their types in Kafka Connect.

Source: documentation of Debezium 3, "MySQL connector", "Data type mappings", with
``time.precision.mode=adaptive_time_microseconds``, ``binary.handling.mode=bytes``, and ``decimal.handling.mode=string``
for JSON, ``precise`` for Avro. In JSON bytes are base64, as Kafka Connect's ``JsonConverter`` writes them; Avro has the
Connect type's own form (``connect_avro``).

| MySQL | JSON | Connect type |
|---|---|---|
| TINYINT … BIGINT, YEAR | number | int16 (TINYINT, too) to int64; YEAR ``io.debezium.time.Year`` |
| BIT(1); BIT(n) | boolean; base64 of the little-endian bytes | boolean; ``io.debezium.data.Bits`` |
| FLOAT, DOUBLE | number in Java's form: ``1.0``, ``1.0E7`` | float, double |
| DECIMAL | string with all digits of the scale | string; in Avro bytes, ``org.apache.kafka.connect.data.Decimal`` |
| text types, ENUM, SET, JSON | string | string; ``io.debezium.data.Enum``, ``EnumSet``, ``Json`` |
| BINARY, BLOB types | base64 | bytes |
| DATE | days since 1970 | ``io.debezium.time.Date`` |
| DATETIME | milliseconds since 1970; µs if it has more than 3 fraction digits | ``…Timestamp``, ``…MicroTimestamp`` |
| TIMESTAMP | ISO 8601 in UTC with the column's fraction digits | ``io.debezium.time.ZonedTimestamp`` |
| TIME | microseconds | ``io.debezium.time.MicroTime`` |
| geometry types | ``{"wkb": base64, "srid": number}`` | ``io.debezium.data.geometry.Geometry`` |
| VECTOR | array of numbers | ``io.debezium.data.FloatVector`` |

The MySQL type of a definition decides, except for columns whose values a rule of ``[columns]`` changes. Its Spark type
tells the form that the pipeline's policies gave the values
(TIME as text or microseconds, BIT as an integer or bytes, a wide DECIMAL as text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import CarriedColumn
from headgate.errors import UnsupportedError
from headgate.kernels import (
    Kind,
    Lane,
    Layout,
    base64_text,
    decimal_bytes,
    decimal_text_bytes,
    fixed_point,
    float_blocks,
    header_string,
    int64_lane,
    quoted,
    real_text,
    text_lane,
    valid_mask,
)

__all__ = ["avro_lane", "connect_type", "header_lane", "json_lane"]


class _Encoding(NamedTuple):
    json: Callable[[pa.Array], Lane]
    avro: Callable[[pa.Array], Lane]
    connect: Mapping[str, Any]  # the field's Connect schema
    avro_connect: Mapping[str, Any] | None = None  # in Avro; None: the same


def json_lane(column: CarriedColumn, array: pa.Array) -> Lane:
    """Return how a column's values are written as JSON."""
    return _encoding(column).json(array)


def avro_lane(column: CarriedColumn, array: pa.Array) -> Lane:
    """Return how a column's values are written as Avro, without the number of a union's branch."""
    return _encoding(column).avro(array)


def header_lane(column: CarriedColumn, array: pa.Array) -> Lane:
    """Return how a key column's values are written in a header."""
    lane = json_lane(column, array)
    return text_lane(Kind.RAW, header_string(lane.values)) if lane.kind == Kind.STRING else lane


def connect_type(column: CarriedColumn, *, avro: bool = False) -> dict[str, Any]:
    """Return the Connect schema of a column's values, as in the JSON of ``JsonConverter``."""
    encoding = _encoding(column)
    return dict((avro and encoding.avro_connect) or encoding.connect)


_TYPE: Final = re.compile(r"(\w+)(?:\((\d+)\))?")
_INTEGERS: Final = {
    "tinyint": ("int16", "int16"),
    "smallint": ("int16", "int32"),
    "mediumint": ("int32", "int32"),
    "int": ("int32", "int64"),
    "bigint": ("int64", "int64"),
}
"""Connect types of signed and unsigned integers."""
_NAMED_STRINGS: Final = {"json": "Json", "enum": "Enum", "set": "EnumSet"}


def _encoding(column: CarriedColumn) -> _Encoding:
    match = _TYPE.match(column.mysql)
    base, size = (match[1], int(match[2] or 0)) if match else ("", 0)
    if column.rule not in ("", "null"):
        return _BY_SPARK[column.spark]
    if base in _INTEGERS:
        return _Encoding(_digits, _varint, {"type": _INTEGERS[base]["unsigned" in column.mysql]})
    if base == "bit":
        return _Encoding(_boolean, _boolean_byte, {"type": "boolean"}) if size <= 1 else _bits_of(size)
    if base in _TEMPORAL and column.spark not in _NOT_TEMPORAL.get(base, ("string",)):
        return _TEMPORAL[base](size)
    if base in _NAMED_STRINGS:
        named = {"type": "string", "name": f"io.debezium.data.{_NAMED_STRINGS[base]}", "version": 1}
        members = column.mysql.partition("(")[2].rpartition(")")[0]
        return _Encoding(_string, _bytes, named | ({"parameters": {"allowed": _allowed(members)}} if members else {}))
    if base == "decimal" and column.spark != "double":
        precise = _precise(column.mysql)
        scale = int(precise["parameters"]["scale"])
        return _Encoding(_decimal, partial(_unscaled, scale=scale), {"type": "string"}, precise)
    if not base and column.spark.startswith(("struct<", "array<")):
        raise UnsupportedError(
            f"column {column.name} of type {column.spark} has no form in messages: let the hook return JSON text",
            column=column.name,
        )
    return _BY_SPARK.get(re.split(r"[(<]", column.spark)[0], _Encoding(_digits, _varint, {"type": "int64"}))


def _allowed(members: str) -> str:
    """Return the members of ENUM and SET, ``'a','b'``, separated by commas; Debezium escapes commas in them."""
    texts = [
        text.replace("''", "'").replace("\\\\", "\\").replace(",", "\\,")
        for text in re.findall(r"'((?:[^']|'')*)'", members)
    ]
    return ",".join(texts)


def _digits(array: pa.Array) -> Lane:
    if pa.types.is_integer(array.type):
        return int64_lane(Kind.DIGITS, array)
    return text_lane(Kind.RAW, array.cast(pa.string()))


def _real(array: pa.Array) -> Lane:
    return text_lane(Kind.RAW, real_text(array))


def _varint(array: pa.Array) -> Lane:
    if pa.types.is_decimal(array.type):  # BIGINT UNSIGNED: its 64 bits, signed, as Debezium's ``long``
        return Lane(Kind.VARINT, _low_words(array), valid_mask(array))
    return int64_lane(Kind.VARINT, array)


def _low_words(array: pa.Array) -> Any:
    """Return the lower halves of decimal128: int64."""
    return np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array)) : 2]


_string, _bytes = partial(text_lane, Kind.STRING), partial(text_lane, Kind.BYTES)


def _base64(array: pa.Array) -> Lane:
    return text_lane(Kind.RAW, quoted(base64_text(array)))


_NARROW_DIGITS: Final = 18
"""Decimals of so many digits fit into an int64."""


def _decimal(array: pa.Array) -> Lane:
    if not pa.types.is_decimal(array.type):
        return _string(array)
    if array.type.precision > _NARROW_DIGITS:
        return text_lane(Kind.RAW, quoted(fixed_point(array)))
    return Lane(Kind.DECIMAL, _low_words(array), valid_mask(array), array.type.scale)


def _unscaled(array: pa.Array, scale: int) -> Lane:
    """Return DECIMAL as Avro's logical type ``decimal`` has it: the unscaled number's bytes."""
    values = decimal_bytes(array) if pa.types.is_decimal(array.type) else decimal_text_bytes(array, scale)
    return Lane(Kind.BYTES, values, valid_mask(array))


def _precise(mysql: str) -> dict[str, Any]:
    """Return the Connect schema of DECIMAL with ``decimal.handling.mode=precise``."""
    precision, _, scale = (mysql.partition("(")[2].partition(")")[0] or "10").partition(",")
    parameters = {"scale": scale.strip() or "0", "connect.decimal.precision": precision.strip()}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": parameters}


def _is_set(array: pa.Array) -> pa.Array:
    if pa.types.is_boolean(array.type):
        return array
    if pa.types.is_binary(array.type):
        return pc.equal(array, b"\x01")
    return pc.equal(array, pa.scalar(1).cast(array.type))


def _boolean(array: pa.Array) -> Lane:
    return text_lane(Kind.RAW, pc.if_else(_is_set(array), "true", "false"))


def _boolean_byte(array: pa.Array) -> Lane:
    return int64_lane(Kind.LITTLE, _is_set(array), 1)


def _real_bytes(array: pa.Array) -> Lane:
    size = array.type.bit_width // 8
    values = np.asarray(array.fill_null(0)).view(np.dtype(f"<i{size}")).astype(np.int64)
    return Lane(Kind.LITTLE, values, valid_mask(array), size)


def _bits_of(size: int) -> _Encoding:
    schema = {"type": "bytes", "name": "io.debezium.data.Bits", "version": 1, "parameters": {"length": str(size)}}
    return _Encoding(lambda array: _base64(_bits(array, size)), lambda array: _bytes(_bits(array, size)), schema)


def _bits(array: pa.Array, size: int) -> pa.Array:
    """Return the (n + 7) / 8 bytes of BIT(n), the lowest first."""
    if pa.types.is_binary(array.type):
        return pc.binary_reverse(array)
    width = (size + 7) // 8
    numbers = np.asarray(array.cast(pa.uint64()).fill_null(0)).astype("<u8")
    data = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, :width])
    offsets = np.arange(0, (len(array) + 1) * width, width, dtype=np.int32)[: len(array) + 1]
    plain = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(array.is_valid(), plain, pa.scalar(None, pa.binary()))


def _number(convert: Callable[[pa.Array], pa.Array], kind: str, name: str) -> _Encoding:
    """Return the encoding of values that are numbers with a name."""

    def lane(form: Kind, array: pa.Array) -> Lane:
        return int64_lane(form, convert(array))

    schema = {"type": kind, "name": f"io.debezium.time.{name}", "version": 1}
    return _Encoding(partial(lane, Kind.DIGITS), partial(lane, Kind.VARINT), schema)


def _datetime(size: int) -> _Encoding:
    if size > 3:
        return _number(lambda array: array.cast(pa.int64()), "int64", "MicroTimestamp")
    # Exact: the value has no more than three fraction digits.
    return _number(lambda array: pc.divide(array.cast(pa.int64()), 1000), "int64", "Timestamp")


def _timestamp(size: int) -> _Encoding:
    def json(array: pa.Array) -> Lane:
        return int64_lane(Kind.CLOCK, array.cast(pa.timestamp("us", "UTC")), size)

    def avro(array: pa.Array) -> Lane:
        layout = Layout(len(array))
        layout.lane(json(array))
        text = layout.write([np.arange(len(array))])
        return Lane(Kind.BYTES, pc.binary_slice(text, 1, -1), valid_mask(array))

    return _Encoding(json, avro, {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1})


_CLOCK: Final = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d+))?$"


def _times(array: pa.Array) -> pa.Array:
    """Return TIME as microseconds."""
    if not pa.types.is_string(array.type):
        return array
    parts = pc.extract_regex(array, _CLOCK)

    def number(name: str) -> pa.Array:
        text = parts.field(name)
        if name == "fraction":
            text = pc.utf8_rpad(text, 6, "0")
        return pc.fill_null(pc.if_else(array.is_valid(), text, "0"), "0").cast(pa.int64())

    whole = pc.add(pc.multiply(number("hours"), 60), number("minutes"))
    us = pc.add(pc.multiply(pc.add(pc.multiply(whole, 60), number("seconds")), 1_000_000), number("fraction"))
    signed = pc.if_else(pc.equal(parts.field("sign"), "-"), pc.negate(us), us)
    return pc.if_else(array.is_valid(), signed, pa.scalar(None, pa.int64()))


def _geometry(array: pa.Array) -> Lane:
    wkb, srid = base64_text(array.field("wkb")), array.field("srid").cast(pa.string())
    text = pc.binary_join_element_wise('{"wkb":"', wkb, '","srid":', srid, "}", "")
    return text_lane(Kind.RAW, pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string())))


def _geometry_record(array: pa.Array) -> Lane:
    layout = Layout(len(array), avro=True)
    layout.lane(text_lane(Kind.BYTES, array.field("wkb")))
    layout.lane(int64_lane(Kind.VARINT, array.field("srid")), before=b"\x02")
    records = layout.write([np.arange(len(array))])
    return Lane(Kind.RAW, records, valid_mask(array))


def _vector(array: pa.Array) -> Lane:
    numbers = pa.ListArray.from_arrays(array.offsets, real_text(array.values))
    text = pc.binary_join_element_wise("[", pc.binary_join(numbers, ","), "]", "")
    return text_lane(Kind.RAW, pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string())))


def _vector_block(array: pa.Array) -> Lane:
    return Lane(Kind.RAW, float_blocks(array), valid_mask(array))


_TEMPORAL: Final[Mapping[str, Callable[[int], _Encoding]]] = {
    "date": lambda _: _number(lambda array: array.cast(pa.int32()), "int32", "Date"),
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": lambda _: _number(_times, "int64", "MicroTime"),
    "year": lambda _: _number(lambda array: array, "int32", "Year"),
}
_NOT_TEMPORAL: Final = {"time": (), "year": ()}
"""Spark types of a temporal column whose values are not dates or times; by default text (``zero_dates = "text"``)."""
_GEOMETRY_FIELDS: Final = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_BY_SPARK: Final[Mapping[str, _Encoding]] = {
    "string": _Encoding(_string, _bytes, {"type": "string"}),
    "boolean": _Encoding(_boolean, _boolean_byte, {"type": "boolean"}),
    "int": _Encoding(_digits, _varint, {"type": "int32"}),
    "binary": _Encoding(_base64, _bytes, {"type": "bytes"}),
    "decimal": _Encoding(_decimal, _bytes, {"type": "string"}),
    "float": _Encoding(_real, _real_bytes, {"type": "float"}),
    "double": _Encoding(_real, _real_bytes, {"type": "double"}),
    "struct": _Encoding(
        _geometry,
        _geometry_record,
        {
            "type": "struct",
            "fields": _GEOMETRY_FIELDS,
            "name": "io.debezium.data.geometry.Geometry",
            "version": 1,
            "doc": "Geometry",
        },
    ),
    "array": _Encoding(
        _vector,
        _vector_block,
        {
            "type": "array",
            "items": {"type": "float", "optional": False},
            "name": "io.debezium.data.FloatVector",
            "version": 1,
        },
    ),
}
