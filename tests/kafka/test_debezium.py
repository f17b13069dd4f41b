"""Images as messages in Debezium's format; the expected texts are its documentation's."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.carrier import CarriedColumn
from headgate.errors import DecodeError
from headgate.kafka.debezium.avro import AvroForm
from headgate.kafka.debezium.envelope import NEW_KEY, OLD_KEY, RECORDS, Envelope, MessageForm, MessageNumbers
from headgate.kafka.debezium.json import JsonForm
from headgate.kafka.debezium.schema import SCHEMA_CHANGE_KEY, TRANSACTION_KEY, TRANSACTION_VALUE
from headgate.kafka.debezium.source import Source
from headgate.kafka.debezium.transactions import TransactionEnd
from headgate.kafka.debezium.values import connect_type, json_lane
from headgate.kernels import Layout
from tests.fix_carrier import UUID, FakeTable
from tests.kafka.debezium_keys import KEYS, KeyType

TABLE = FakeTable(columns=(("id", "int"), ("item", "string")))
SOURCE = Source("shop", "1.2.3", "binlog.")
ENVELOPE = Envelope(JsonForm(SOURCE), truncates=True)


class AnyRegistry:
    """A registry that takes every schema."""

    def schema_id(self, subject: str, schema: str) -> int:
        del subject, schema
        return 1


EACH_LENGTH = [sign * (10**digits - less) for digits in range(19) for less in (0, 1) for sign in (1, -1)]
LONGS = [*EACH_LENGTH, 2**63 - 1, -(2**63)]
VALUES: list[tuple[str, str, pa.Array, list[Any]]] = [
    ("tinyint", "tinyint", pa.array([-1, None], pa.int8()), [-1, None]),
    ("bigint", "bigint", pa.array(LONGS), LONGS),
    ("bigint unsigned", "decimal(20,0)", pa.array([Decimal(2**64 - 1)], pa.decimal128(20)), [2**64 - 1]),
    ("bit(1)", "bigint", pa.array([1, 0, None], pa.int64()), [True, False, None]),
    ("bit(1)", "binary", pa.array([b"\1", b"\0"]), [True, False]),
    ("bit(12)", "bigint", pa.array([0x801, None], pa.int64()), ["AQg=", None]),
    ("bit(12)", "binary", pa.array([b"\x08\x01"]), ["AQg="]),
    ("bit(64)", "decimal(20,0)", pa.array([Decimal(2**63)], pa.decimal128(20)), ["AAAAAAAAAIA="]),
    ("year", "smallint", pa.array([1999], pa.int16()), [1999]),
    ("float", "float", pa.array([0.1], pa.float32()), [0.1]),
    ("decimal(12,3)", "decimal(12,3)", pa.array([Decimal("-0.100"), None], pa.decimal128(12, 3)), ["-0.100", None]),
    ("decimal(65,30)", "string", pa.array(["1.5"]), ["1.5"]),
    ("varchar(10)", "string", pa.array(['a"\\\n\x01€', None]), ['a"\\\n\x01€', None]),
    ("json", "string", pa.array(['{"a": 1}']), ['{"a": 1}']),
    ("enum('a','b')", "string", pa.array(["a"]), ["a"]),
    ("binary(3)", "binary", pa.array([b"\0\1\2", None]), ["AAEC", None]),
    ("date", "date", pa.array([dt.date(2024, 2, 29), dt.date(1969, 12, 31)]), [19782, -1]),
    ("datetime(3)", "timestamp_ntz", pa.array([dt.datetime(1969, 12, 31, 23, 59, 59, 999000)]), [-1]),
    ("datetime(6)", "timestamp_ntz", pa.array([dt.datetime(1970, 1, 1, 0, 0, 1, 5), None]), [1_000_005, None]),
    (
        "timestamp", "timestamp", pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC")),
        ["2023-11-14T22:13:20Z"],
    ),
    (
        "timestamp(4)", "timestamp", pa.array([1_700_000_000_000_500, None], pa.timestamp("us", "UTC")),
        ["2023-11-14T22:13:20.0005Z", None],
    ),
    ("time(3)", "string", pa.array(["-838:59:59.001", "00:00:01.500", None]), [-3020399001000, 1500000, None]),
    ("time", "string", pa.array(["12:00:00"]), [43200000000]),
    ("time", "bigint", pa.array([-5], pa.int64()), [-5]),
    (
        "geometry", "struct<srid:int,wkb:binary>",
        pa.array([{"srid": 4326, "wkb": b"\1"}, None], pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])),
        [{"wkb": "AQ==", "srid": 4326}, None],
    ),
    ("vector", "array<float>", pa.array([[1.5, -2], None], pa.list_(pa.float32())), [[1.5, -2], None]),
]  # fmt: skip


def json_values(column: CarriedColumn, array: pa.Array) -> pa.Array:
    layout = Layout(len(array))
    layout.lane(json_lane(column, array))
    return layout.write([np.arange(len(array))])


@pytest.mark.parametrize(("mysql", "spark", "array", "expected"), VALUES, ids=[f"{v[0]} {v[1]}" for v in VALUES])
def test_values(mysql: str, spark: str, array: pa.Array, expected: list[Any]) -> None:
    texts = json_values(CarriedColumn("c", spark, mysql), array)
    assert [json.loads(text) for text in texts.to_pylist()] == expected
    # A slice has offsets of its own.
    assert json_values(CarriedColumn("c", spark, mysql), pa.concat_arrays([array, array])[len(array) :]).equals(texts)


def messages(images: list[tuple[Any, ...]], table: FakeTable = TABLE, envelope: Envelope = ENVELOPE) -> list[Any]:
    """(part, key, value, header, other key) of each message, with the value's JSON parsed."""
    records = envelope.records(table.carried, table.batch(7, images))
    assert records.schema == RECORDS
    rows = sorted(records.to_pylist(), key=lambda row: [row[name] for name in ("file", "pos", "ordinal", "part")])
    return [
        (
            row["part"],
            row["key"] and json.loads(row["key"]),
            row["value"] and json.loads(row["value"]),
            row["header"],
            row["other_key"],
        )
        for row in rows
    ]


def shown(parsed: list[Any]) -> list[Any]:
    """(key, op, before, after) of each message."""
    return [(key, value and (value["op"], value["before"], value["after"])) for _, key, value, _, _ in parsed]


def test_an_insert_as_a_whole() -> None:
    ((part, key, value, header, other),) = messages([("c", (40, 3), 1, "x")])
    assert (part, key, header, other) == (0, {"id": 1}, None, None)
    stamps = [value.pop(f"ts_{unit}") for unit in ("ms", "us", "ns")]
    assert stamps[0] == stamps[1] // 1000 == stamps[2] // 1_000_000
    us = 1_700_000_000_000_000
    assert value == {
        "before": None,
        "after": {"id": 1, "item": "x"},
        "source": {
            "version": "1.2.3", "connector": "mysql", "name": "shop", "ts_ms": us // 1000, "snapshot": "false",
            "db": "shop", "sequence": None, "ts_us": us, "ts_ns": us * 1000, "table": "orders", "server_id": 0,
            "gtid": f"{UUID}:1", "file": "binlog.000001", "pos": 40, "row": 3, "thread": None, "query": None,
        },
        "transaction": None,
        "op": "c",
    }  # fmt: skip


def test_each_change() -> None:
    a, b = {"id": 1, "item": "a"}, {"id": 1, "item": "b"}
    parsed = messages(
        [("c", 10, 1, "a"), ("b", 20, 1, "a"), ("u", 20, 1, "b"), ("d", 30, 1, "b"), ("t", 40, None, None)]
    )
    key = {"id": 1}
    assert shown(parsed) == [
        (key, ("c", None, a)),
        (key, ("u", a, b)),
        (key, ("d", b, None)),
        (key, None),
        (None, ("t", None, None)),
    ]


def test_a_changed_key() -> None:
    parsed = messages([("b", 20, 1, "a"), ("u", 20, 2, "a")])
    assert shown(parsed) == [
        ({"id": 1}, ("d", {"id": 1, "item": "a"}, None)),
        ({"id": 1}, None),
        ({"id": 2}, ("c", None, {"id": 2, "item": "a"})),
    ]
    assert [(header, other) for *_, header, other in parsed] == [
        (NEW_KEY, b'{"id":2}'),
        (NEW_KEY, b'{"id":2}'),
        (OLD_KEY, b'{"id":1}'),
    ]


def keys(form: MessageForm, table: FakeTable, columns: dict[str, pa.Array]) -> list[str]:
    """The keys of rows as text."""
    images = pa.RecordBatch.from_arrays([*columns.values()], [*columns])
    return [key.decode() for key in form.keys(table.carried, images).to_pylist()]


@pytest.mark.parametrize("one", KEYS, ids=[one.mysql for one in KEYS])
def test_keys_are_byte_for_byte_those_of_debezium(one: KeyType) -> None:
    """Equal bytes are in equal partitions, so the texts are compared, not what they mean."""
    table = FakeTable(columns=(("k", one.spark),), key=("k",), mysql={"k": one.mysql.partition(" character")[0]})
    columns = {"k": pa.array([value for _, value, _ in one.values], one.arrow)}
    payloads = [f'{{"k":{text}}}' for *_, text in one.values]
    assert keys(JsonForm(SOURCE), table, columns) == payloads
    schema = one.schema_of_key("shop.shop.orders")
    whole = [f'{{"schema":{schema},"payload":{payload}}}' for payload in payloads]
    assert keys(JsonForm(SOURCE, schemas=True), table, columns) == whole


def test_a_key_of_odd_names() -> None:
    """Its columns are in the key's order; schemas are named after Debezium's topic."""
    table = FakeTable('shop.my "orders"', (("x", "int"), ('a"b é\x01', "int"), ("b", "int")), ("b", 'a"b é\x01'))
    columns = {name: pa.array([number], pa.int32()) for number, (name, _) in enumerate(table.columns)}
    payload = '{"b":2,"a\\"b é\\u0001":1}'
    assert keys(JsonForm(SOURCE), table, columns) == [payload]
    fields = [f'{{"type":"int32","optional":false,"field":"{name}"}}' for name in ("b", 'a\\"b é\\u0001')]
    schema = f'{{"type":"struct","fields":[{",".join(fields)}],"optional":false,"name":"shop.shop.my__orders_.Key"}}'
    assert keys(JsonForm(SOURCE, schemas=True), table, columns) == [f'{{"schema":{schema},"payload":{payload}}}']


def test_a_chosen_key_of_columns_that_may_be_null_is_optional() -> None:
    table = FakeTable(columns=(("a", "int"), ("b", "string")), key=("a",), chosen_key=True)
    (key,) = keys(JsonForm(SOURCE, schemas=True), table, {"a": pa.array([1], pa.int32())})
    assert key.startswith('{"schema":{"type":"struct","fields":[{"type":"int32","optional":true,"field":"a"}]')


def test_keys_of_other_messages_have_no_blanks() -> None:
    plain, form = JsonForm(SOURCE), JsonForm(SOURCE, schemas=True)
    key = TransactionEnd("u:1", 5, {}).key()
    assert plain.message("t-key", TRANSACTION_KEY, key) == b'{"id":"u:1"}'
    assert form.message("t-key", TRANSACTION_KEY, key) == (
        b'{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"}],"optional":false,'
        b'"name":"io.debezium.connector.common.TransactionMetadataKey","version":1},"payload":{"id":"u:1"}}'
    )
    change = {"databaseName": 'a "b" \x1f\U0001f600'}
    text = r'{"databaseName":"a \"b\" \u001F\uD83D\uDE00"}'
    assert plain.message("d-key", SCHEMA_CHANGE_KEY, change).decode() == text
    assert form.message("d-key", SCHEMA_CHANGE_KEY, change).decode() == (
        '{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"databaseName"}],"optional":false,'
        f'"name":"io.debezium.connector.mysql.SchemaChangeKey","version":1}},"payload":{text}}}'
    )


@pytest.mark.parametrize(
    "form", [JsonForm(SOURCE), JsonForm(SOURCE, schemas=True), AvroForm(SOURCE, AnyRegistry(), str)]
)
def test_headers_are_those_of_the_default_converter(form: MessageForm) -> None:
    """``SimpleHeaderConverter`` writes no schema, and escapes quotes and backslashes alone."""
    table = FakeTable(columns=(("k", "string"), ("r", "double")), key=("k", "r"))
    images = [("b", 10, "x", 0.0), ("u", 10, "x", 1.0), ("b", 20, 'q" \\ \n\x01\U0001f600', 1.0), ("u", 20, "x", 1e9)]
    rows = Envelope(form).records(table.carried, table.batch(7, images)).to_pylist()
    by_change = sorted(rows, key=lambda row: (row["pos"], row["part"]))
    odd = '{"k":"q\\" \\\\ \n\x01\U0001f600","r":1.0}'
    assert [(row["header"], row["other_key"].decode()) for row in by_change] == [
        (NEW_KEY, '{"k":"x","r":1.0}'),
        (NEW_KEY, '{"k":"x","r":1.0}'),
        (OLD_KEY, '{"k":"x","r":0.0}'),
        (NEW_KEY, '{"k":"x","r":1.0E9}'),
        (NEW_KEY, '{"k":"x","r":1.0E9}'),
        (OLD_KEY, odd),
    ]


@pytest.mark.parametrize("schemas", [False, True])
def test_numbers_in_a_transaction(schemas: bool) -> None:
    envelope = Envelope(JsonForm(SOURCE, schemas))
    images = TABLE.batch(7, [("b", 20, 1, "a"), ("u", 20, 2, "a"), ("c", 30, 3, "x" * 100)])
    values = envelope.records(TABLE.carried, images)["value"]
    places = MessageNumbers(pa.array(["u:1", "u:1", 'u:"2', "u:3"]), np.array([1, 2, 3, 4]), np.array([5, 6, 7, 2**40]))
    numbered = envelope.numbered(values, places)
    parsed = [value and json.loads(value) for value in numbered.to_pylist()]
    assert [one is None for one in parsed] == [False, False, False, True]
    payloads = [one["payload"] if schemas else one for one in parsed if one]
    assert [one["transaction"] for one in payloads] == [
        {"id": "u:1", "total_order": 1, "data_collection_order": 5},
        {"id": "u:1", "total_order": 2, "data_collection_order": 6},
        {"id": 'u:"2', "total_order": 3, "data_collection_order": 7},
    ]
    plain = [one and json.loads(one) for one in values.to_pylist()]
    for one in (*plain, *parsed):
        if one:
            (one["payload"] if schemas else one)["transaction"] = None
    assert parsed == plain


def test_a_snapshot_row() -> None:
    ((_, key, value, *_),) = messages([("r", 5, 1, "a")])
    source = value["source"]
    assert (key, value["op"], value["before"], value["after"]) == ({"id": 1}, "r", None, {"id": 1, "item": "a"})
    assert [source[name] for name in ("snapshot", "gtid", "file", "pos", "row")] == ["incremental", None, "", 0, 0]


def test_without_a_key_tombstones_and_truncates() -> None:
    keyless = FakeTable(columns=TABLE.columns, key=())
    parsed = messages([("b", 20, 1, "a"), ("u", 20, 2, "a"), ("d", 30, 2, "a")], keyless)
    assert [(key, value and value["op"]) for _, key, value, *_ in parsed] == [(None, "u"), (None, "d")]
    plain = Envelope(JsonForm(SOURCE), tombstones=False)
    parsed = messages([("d", 10, 1, "a"), ("t", 40, None, None)], envelope=plain)
    assert [value and value["op"] for _, _, value, *_ in parsed] == ["d"]


def test_columns_that_an_image_leaves_out() -> None:
    parsed = messages([("b", 20, 1, ...), ("u", 20, 1, "b"), ("c", 30, 2, "c")])
    assert shown(parsed)[0] == ({"id": 1}, ("u", {"id": 1}, {"id": 1, "item": "b"}))
    assert shown(parsed)[1] == ({"id": 2}, ("c", None, {"id": 2, "item": "c"}))


def test_no_images_and_half_an_update() -> None:
    assert messages([]) == []
    with pytest.raises(DecodeError, match="no after-image"):
        messages([("b", 20, 1, "a")])


def fits(value: Any, schema: dict[str, Any]) -> None:
    """Check a value as ``JsonConverter`` would read it."""
    if value is None:
        assert schema["optional"], schema
        return
    kind = schema["type"]
    if kind == "struct":
        names = {one["field"] for one in schema["fields"]}
        assert set(value) <= names
        for one in schema["fields"]:
            fits(value.get(one["field"]), one)
    elif kind == "array":
        for one in value:
            fits(one, schema["items"])
    elif kind == "bytes":
        base64.b64decode(value, validate=True)
    else:
        numbers: dict[str, Any] = {"float": (int, float), "double": (int, float), "string": str, "boolean": bool}
        assert isinstance(value, numbers.get(kind, int)), (value, schema)


def test_messages_with_their_schemas_fit_them() -> None:
    envelope = Envelope(JsonForm(SOURCE, schemas=True), truncates=True)
    images = [("c", 10, 1, "a"), ("b", 20, 1, "a"), ("u", 20, 2, "b"), ("d", 30, 2, "b"), ("t", 40, None, None)]
    parsed = messages(images, envelope=envelope)
    assert len(parsed) == 7
    for _, key, value, *_ in parsed:
        for one in filter(None, (key, value)):
            fits(one["payload"], one["schema"])
    schema = parsed[0][2]["schema"]
    assert schema["name"] == "shop.shop.orders.Envelope"
    assert schema["fields"][1]["fields"] == [
        {"type": "int32", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "item"},
    ]  # fmt: skip
    assert parsed[0][1]["schema"]["name"] == "shop.shop.orders.Key"


@pytest.mark.parametrize(("mysql", "spark", "array", "expected"), VALUES, ids=[f"{v[0]} {v[1]}" for v in VALUES])
def test_values_fit_their_schema(mysql: str, spark: str, array: pa.Array, expected: list[Any]) -> None:
    schema = connect_type(CarriedColumn("c", spark, mysql)) | {"optional": True}
    for value in expected:
        fits(value, schema)


def test_named_schemas() -> None:
    def of(mysql: str, spark: str = "string") -> Any:
        schema = connect_type(CarriedColumn("c", spark, mysql))
        return schema["type"], schema.get("name"), schema.get("parameters")

    assert of("datetime(3)", "timestamp_ntz") == ("int64", "io.debezium.time.Timestamp", None)
    assert of("datetime(4)", "timestamp_ntz") == ("int64", "io.debezium.time.MicroTimestamp", None)
    assert of("enum('a,b','it''s')") == ("string", "io.debezium.data.Enum", {"allowed": "a\\,b,it's"})
    assert of("bit(9)", "bigint") == ("bytes", "io.debezium.data.Bits", {"length": "9"})
    assert of("int unsigned", "bigint") == ("int64", None, None)
    assert of("json") == ("string", "io.debezium.data.Json", None)


def test_transaction_messages_fit_their_schemas() -> None:
    for value in TransactionEnd("u:5", 7, {"s.a": 2}).values():
        fits(value, json.loads(TRANSACTION_VALUE))
    fits({"id": "u:5"}, json.loads(TRANSACTION_KEY))
