"""Keys as Debezium's engine writes them with ``JsonConverter``, for each type that a key column can have.

``tests/integration/peers/test_debezium_messages.py`` makes them by the engine and by a pipeline. Here the values are
the Arrow values of a pipeline, so the converter is tested without a server.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = ["KEYS", "KeyType"]


class KeyType(NamedTuple):
    """A type of a key column ``k``, its Connect schema, and values: SQL, the Arrow value, JSON."""

    mysql: str
    spark: str
    arrow: pa.DataType
    schema: str
    values: tuple[tuple[str, Any, str], ...]

    def schema_of_key(self, name: str) -> str:
        """The engine's schema of the key of a table."""
        return f'{{"type":"struct","fields":[{{{self.schema},"field":"k"}}],"optional":false,"name":"{name}.Key"}}'


def _plain(connect: str) -> str:
    return f'"type":"{connect}","optional":false'


def _named(connect: str, name: str, parameters: str = "") -> str:
    more = f',"parameters":{{{parameters}}}' if parameters else ""
    return f'{_plain(connect)},"name":"io.debezium.{name}","version":1{more}'


def _integers(mysql: str, spark: str, arrow: pa.DataType, connect: str, *values: int) -> KeyType:
    return KeyType(mysql, spark, arrow, _plain(connect), tuple((str(one), one, str(one)) for one in values))


def _reals(mysql: str, spark: str, arrow: pa.DataType, texts: dict[str, str]) -> KeyType:
    return KeyType(mysql, spark, arrow, _plain(spark), tuple((sql, float(sql), text) for sql, text in texts.items()))


def _decimals(mysql: str, spark: str, arrow: pa.DataType, *texts: str) -> KeyType:
    is_text = pa.types.is_string(arrow)
    values = tuple((one, one if is_text else Decimal(one), f'"{one}"') for one in texts)
    return KeyType(mysql, spark, arrow, _plain("string"), values)


def _texts(mysql: str, texts: dict[str, str], schema: str = _plain("string")) -> KeyType:
    values = tuple((_literal(text), text, f'"{one}"') for text, one in texts.items())
    return KeyType(mysql, "string", pa.string(), schema, values)


def _literal(text: str) -> str:
    return f"_utf8mb4 X'{text.encode().hex()}'"


def _bytes(mysql: str, texts: dict[str, str]) -> KeyType:
    values = tuple((f"X'{data}'", bytes.fromhex(data), f'"{one}"') for data, one in texts.items())
    return KeyType(mysql, "binary", pa.binary(), _plain("bytes"), values)


def _moments(mysql: str, name: str, values: dict[str, str]) -> KeyType:
    is_timestamp = mysql.startswith("timestamp")
    arrow = pa.timestamp("us", "UTC" if is_timestamp else None)
    zone = dt.UTC if is_timestamp else None
    rows = tuple((f"'{sql}'", dt.datetime.fromisoformat(sql).replace(tzinfo=zone), one) for sql, one in values.items())
    schema = _named("string" if is_timestamp else "int64", f"time.{name}")
    return KeyType(mysql, "timestamp" if is_timestamp else "timestamp_ntz", arrow, schema, rows)


def _times(mysql: str, *microseconds: tuple[str, int]) -> KeyType:
    values = tuple((f"'{sql}'", sql, str(one)) for sql, one in microseconds)
    return KeyType(mysql, "string", pa.string(), _named("int64", "time.MicroTime"), values)


def _bits(size: int, values: dict[int, str]) -> KeyType:
    rows = tuple((str(one), Decimal(one) if size == 64 else one, f'"{text}"') for one, text in values.items())
    spark, arrow = ("decimal(20,0)", pa.decimal128(20)) if size == 64 else ("bigint", pa.int64())
    return KeyType(f"bit({size})", spark, arrow, _named("bytes", "data.Bits", f'"length":"{size}"'), rows)


ESCAPES = {
    'a "quote" \\ back / slash': r"a \"quote\" \\ back / slash",
    "\n\t\r\b\f\x00\x01\x1f\x7f": "\\n\\t\\r\\b\\f\\u0000\\u0001\\u001F\x7f",
    "é € Ω \u2028\u2029\xa0 <&>'": "é € Ω \u2028\u2029\xa0 <&>'",
    "\U0001f600x\U0010ffff": r"\uD83D\uDE00x\uDBFF\uDFFF",
    "": "",
}
REALS = {
    "0.1": "0.1", "1": "1.0", "100": "100.0", "-0e0": "-0.0", "9999999": "9999999.0", "1e7": "1.0E7", "0.001": "0.001",
    "9.999e-4": "9.999E-4", "-1.5e-5": "-1.5E-5", "1e10": "1.0E10",
}  # fmt: skip
FLOATS = REALS | {"3.4028235e38": "3.4028235E38", "1.5e-30": "1.5E-30", "16777216": "1.6777216E7"}
DOUBLES = REALS | {
    "1e22": "1.0E22", "123456789.125": "1.23456789125E8", "1.7976931348623157e308": "1.7976931348623157E308",
    "5e-324": "4.9E-324", "2.2250738585072014e-308": "2.2250738585072014E-308",
}  # fmt: skip

KEYS: tuple[KeyType, ...] = (
    _integers("tinyint", "tinyint", pa.int8(), "int16", -128, 127),
    _integers("tinyint unsigned", "smallint", pa.int16(), "int16", 255),
    _integers("smallint", "smallint", pa.int16(), "int16", -32768),
    _integers("smallint unsigned", "int", pa.int32(), "int32", 65535),
    _integers("mediumint", "int", pa.int32(), "int32", -8388608),
    _integers("int", "int", pa.int32(), "int32", -1),
    _integers("int unsigned", "bigint", pa.int64(), "int64", 2**32 - 1),
    _integers("bigint", "bigint", pa.int64(), "int64", -(2**63)),
    _integers("bigint unsigned", "decimal(20,0)", pa.decimal128(20), "int64", 2**63 - 1),
    KeyType("bit(1)", "bigint", pa.int64(), _plain("boolean"), (("b'1'", 1, "true"), ("b'0'", 0, "false"))),
    _bits(12, {0x801: "AQg="}),
    _bits(64, {1: "AQAAAAAAAAA="}),
    _reals("float", "float", pa.float32(), FLOATS),
    _reals("double", "double", pa.float64(), DOUBLES),
    _decimals("decimal(12,3)", "decimal(12,3)", pa.decimal128(12, 3), "-0.100", "5.000"),
    _decimals("decimal(5,0)", "decimal(5,0)", pa.decimal128(5), "7"),
    _decimals("decimal(10,8)", "decimal(10,8)", pa.decimal128(10, 8), "0.00000010"),
    _decimals("decimal(65,30)", "string", pa.string(), "1.500000000000000000000000000000"),
    _texts("char(40)", ESCAPES),
    _texts("varchar(40)", ESCAPES),
    _texts("varchar(9) character set latin1", {"é": "é"}),
    _texts("varchar(9) character set utf16", {"\U0001f600": r"\uD83D\uDE00"}),
    _texts("enum('a','b\"c')", {"a": "a", 'b"c': r"b\"c"}, _named("string", "data.Enum", r'"allowed":"a,b\"c"')),
    _texts("set('x','y','z')", {"x,z": "x,z", "": ""}, _named("string", "data.EnumSet", '"allowed":"x,y,z"')),
    _bytes("binary(4)", {"01020304": "AQIDBA=="}),
    _bytes("varbinary(9)", {"00ff": "AP8=", "": "", "fbefff": "++//"}),
    KeyType(
        "date", "date", pa.date32(), _named("int32", "time.Date"),
        (("'1969-12-31'", dt.date(1969, 12, 31), "-1"), ("'2024-02-29'", dt.date(2024, 2, 29), "19782")),
    ),
    _moments("datetime", "Timestamp", {"2024-02-29 12:34:56": "1709210096000"}),
    _moments("datetime(3)", "Timestamp", {"1969-12-31 23:59:59.999000": "-1"}),
    _moments("datetime(6)", "MicroTimestamp", {"2024-02-29 12:34:56.000007": "1709210096000007"}),
    _moments("timestamp", "ZonedTimestamp", {"2024-02-29 12:34:56": '"2024-02-29T12:34:56Z"'}),
    _moments("timestamp(3)", "ZonedTimestamp", {"2024-02-29 12:34:56.120000": '"2024-02-29T12:34:56.120Z"'}),
    _moments("timestamp(6)", "ZonedTimestamp", {"2024-02-29 12:34:56": '"2024-02-29T12:34:56.000000Z"'}),
    _times("time", ("-838:59:59", -3020399000000), ("00:00:00", 0)),
    _times("time(6)", ("-00:00:01.500001", -1500001)),
    KeyType("year", "smallint", pa.int16(), _named("int32", "time.Year"), (("1999", 1999, "1999"),)),
)  # fmt: skip
