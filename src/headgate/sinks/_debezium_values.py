"""Column values in the JSON of Debezium's MySQL connector, and their types in Kafka Connect.

Source: documentation of Debezium 3, "MySQL connector", "Data type mappings", with ``decimal.handling.mode=string``,
``time.precision.mode=adaptive_time_microseconds``, ``binary.handling.mode=bytes``; bytes are base64, as Kafka Connect's
``JsonConverter`` writes them.

| MySQL | JSON | Connect type |
|---|---|---|
| TINYINT … BIGINT, YEAR | number | int16 (TINYINT, too) to int64; YEAR ``io.debezium.time.Year`` |
| BIT(1); BIT(n) | boolean; base64 of the little-endian bytes | boolean; ``io.debezium.data.Bits`` |
| FLOAT, DOUBLE | number | float, double |
| DECIMAL | string with all digits of the scale | string |
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
from headgate.kernels import base64_text, escaped, fixed_point, quoted

__all__ = ["connect_type", "json_values"]


class _Encoding(NamedTuple):
    text: Callable[[pa.Array], pa.Array]  # JSON of the values; NULL stays null
    connect: Mapping[str, Any]  # the field's Connect schema


def json_values(column: CarriedColumn, array: pa.Array) -> pa.Array:
    """Return a column's values as JSON, ``null`` for NULL."""
    return _encoding(column).text(array).fill_null("null")


def connect_type(column: CarriedColumn) -> dict[str, Any]:
    """Return the Connect schema of a column's values, as in the JSON of ``JsonConverter``."""
    return dict(_encoding(column).connect)


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
        return _Encoding(_plain, {"type": _INTEGERS[base]["unsigned" in column.mysql]})
    if base == "bit":
        return _Encoding(_boolean, {"type": "boolean"}) if size <= 1 else _bits_of(size)
    if base in _TEMPORAL and column.spark not in _NOT_TEMPORAL.get(base, ("string",)):
        return _TEMPORAL[base](size)
    if base in _NAMED_STRINGS:
        named = {"type": "string", "name": f"io.debezium.data.{_NAMED_STRINGS[base]}", "version": 1}
        members = column.mysql.partition("(")[2].rpartition(")")[0]
        return _Encoding(_string, named | ({"parameters": {"allowed": _allowed(members)}} if members else {}))
    return _BY_SPARK.get(re.split(r"[(<]", column.spark)[0], _Encoding(_plain, {"type": "int64"}))


def _allowed(members: str) -> str:
    """Return the members of ENUM and SET, ``'a','b'``, separated by commas; Debezium escapes commas in them."""
    texts = [
        text.replace("''", "'").replace("\\\\", "\\").replace(",", "\\,")
        for text in re.findall(r"'((?:[^']|'')*)'", members)
    ]
    return ",".join(texts)


def _plain(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _string(array: pa.Array) -> pa.Array:
    return quoted(escaped(array))


def _base64(array: pa.Array) -> pa.Array:
    return quoted(base64_text(array))


def _decimal(array: pa.Array) -> pa.Array:
    return quoted(fixed_point(array))


def _boolean(array: pa.Array) -> pa.Array:
    if pa.types.is_binary(array.type):
        return pc.if_else(pc.equal(array, b"\x01"), "true", "false")
    return pc.if_else(pc.equal(array, pa.scalar(1).cast(array.type)), "true", "false")


def _bits_of(size: int) -> _Encoding:
    schema = {"type": "bytes", "name": "io.debezium.data.Bits", "version": 1, "parameters": {"length": str(size)}}
    return _Encoding(partial(_bits, size=size), schema)


def _bits(array: pa.Array, size: int) -> pa.Array:
    """Return BIT(n) as base64 of its (n + 7) / 8 bytes, the lowest first."""
    if pa.types.is_binary(array.type):
        return quoted(base64_text(pc.binary_reverse(array)))
    width = (size + 7) // 8
    numbers = np.asarray(array.cast(pa.uint64()).fill_null(0)).astype("<u8")
    data = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, :width])
    offsets = np.arange(0, (len(array) + 1) * width, width, dtype=np.int32)[: len(array) + 1]
    plain = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(array.is_valid(), quoted(base64_text(plain)), pa.scalar(None, pa.string()))


def _date(_size: int) -> _Encoding:
    def text(array: pa.Array) -> pa.Array:
        return array.cast(pa.int32()).cast(pa.string())

    return _Encoding(text, {"type": "int32", "name": "io.debezium.time.Date", "version": 1})


def _datetime(size: int) -> _Encoding:
    def text(array: pa.Array) -> pa.Array:
        us = array.cast(pa.int64())
        if size > 3:
            return us.cast(pa.string())
        # Exact: the value has no more than three fraction digits.
        return pc.divide(us, 1000).cast(pa.string())

    name = "MicroTimestamp" if size > 3 else "Timestamp"
    return _Encoding(text, {"type": "int64", "name": f"io.debezium.time.{name}", "version": 1})


def _timestamp(size: int) -> _Encoding:
    def text(array: pa.Array) -> pa.Array:
        local = array.cast(pa.timestamp("us")).cast(pa.string())  # 2026-01-02 03:04:05.000006
        clock = pc.utf8_slice_codeunits(local, 11, 20 + size if size else 19)
        return pc.binary_join_element_wise('"', pc.utf8_slice_codeunits(local, 0, 10), "T", clock, 'Z"', "")

    return _Encoding(text, {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1})


def _time(_size: int) -> _Encoding:
    return _Encoding(_times, {"type": "int64", "name": "io.debezium.time.MicroTime", "version": 1})


def _year(_size: int) -> _Encoding:
    return _Encoding(_plain, {"type": "int32", "name": "io.debezium.time.Year", "version": 1})


_CLOCK: Final = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d+))?$"


def _times(array: pa.Array) -> pa.Array:
    """Return TIME as microseconds."""
    if not pa.types.is_string(array.type):
        return _plain(array)
    parts = pc.extract_regex(array, _CLOCK)

    def number(name: str) -> pa.Array:
        text = parts.field(name)
        if name == "fraction":
            text = pc.utf8_rpad(text, 6, "0")
        return pc.fill_null(pc.if_else(array.is_valid(), text, "0"), "0").cast(pa.int64())

    whole = pc.add(pc.multiply(number("hours"), 60), number("minutes"))
    us = pc.add(pc.multiply(pc.add(pc.multiply(whole, 60), number("seconds")), 1_000_000), number("fraction"))
    signed = pc.if_else(pc.equal(parts.field("sign"), "-"), pc.negate(us), us)
    return pc.if_else(array.is_valid(), signed.cast(pa.string()), pa.scalar(None, pa.string()))


def _geometry(array: pa.Array) -> pa.Array:
    wkb, srid = base64_text(array.field("wkb")), array.field("srid").cast(pa.string())
    text = pc.binary_join_element_wise('{"wkb":"', wkb, '","srid":', srid, "}", "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _vector(array: pa.Array) -> pa.Array:
    numbers = pa.ListArray.from_arrays(array.offsets, array.values.cast(pa.string()))
    text = pc.binary_join_element_wise("[", pc.binary_join(numbers, ","), "]", "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


_TEMPORAL: Final[Mapping[str, Callable[[int], _Encoding]]] = {
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "year": _year,
}
_NOT_TEMPORAL: Final = {"time": (), "year": ()}
"""Spark types of a temporal column whose values are not dates or times; by default text (``zero_dates = "text"``)."""
_GEOMETRY_FIELDS: Final = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_BY_SPARK: Final[Mapping[str, _Encoding]] = {
    "string": _Encoding(_string, {"type": "string"}),
    "boolean": _Encoding(_plain, {"type": "boolean"}),
    "int": _Encoding(_plain, {"type": "int32"}),
    "binary": _Encoding(_base64, {"type": "bytes"}),
    "decimal": _Encoding(_decimal, {"type": "string"}),
    "float": _Encoding(_plain, {"type": "float"}),
    "double": _Encoding(_plain, {"type": "double"}),
    "struct": _Encoding(
        _geometry,
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
        {
            "type": "array",
            "items": {"type": "float", "optional": False},
            "name": "io.debezium.data.FloatVector",
            "version": 1,
        },
    ),
}
