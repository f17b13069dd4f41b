"""Messages in Avro, read by another implementation (fastavro), beside those in JSON."""

from __future__ import annotations

import base64
import io
import json
import struct
from decimal import Decimal, localcontext
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import CarriedColumn
from headgate.errors import TargetError
from headgate.kafka.debezium.avro import AvroForm
from headgate.kafka.debezium.connect_avro import avro_name, avro_schema, binary
from headgate.kafka.debezium.envelope import Envelope, MessageNumbers
from headgate.kafka.debezium.json import JsonForm
from headgate.kafka.debezium.schema import (
    HEARTBEAT_KEY,
    HEARTBEAT_VALUE,
    SCHEMA_CHANGE_VALUE,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
)
from headgate.kafka.debezium.source import Source
from headgate.kafka.debezium.transactions import TransactionEnd
from headgate.kafka.debezium.values import avro_lane, connect_type
from headgate.kernels import Layout, decimal_bytes, decimal_text_bytes
from tests.fix_carrier import FakeTable
from tests.kafka.test_debezium import TABLE, VALUES

SOURCE = Source("shop", "1.2.3", "binlog.")


class Schemas:
    """A registry in memory."""

    def __init__(self) -> None:
        self.known: list[tuple[str, str]] = []

    def schema_id(self, subject: str, schema: str) -> int:
        if (subject, schema) not in self.known:
            self.known.append((subject, schema))
        return self.known.index((subject, schema)) + 1

    def read(self, message: bytes) -> Any:
        zero, number = struct.unpack(">bI", message[:5])
        assert zero == 0
        return decoded(self.known[number - 1][1], message[5:])


def decoded(schema: str, data: bytes) -> Any:
    rest = io.BytesIO(data)
    value = fastavro.schemaless_reader(rest, fastavro.parse_schema(json.loads(schema)), None)
    assert not rest.read(), "more bytes than the schema has"
    return value


def plain(value: Any, connect: dict[str, Any]) -> Any:
    """A value as Avro has it, from its JSON."""
    if value is None:
        return None
    if connect["type"] == "struct":
        return {one["field"]: plain(value.get(one["field"]), one) for one in connect["fields"]}
    if connect["type"] == "bytes":
        return Decimal(value) if connect.get("name", "").endswith("Decimal") else base64.b64decode(value)
    return value


@pytest.mark.parametrize(("mysql", "spark", "array", "expected"), VALUES, ids=[f"{v[0]} {v[1]}" for v in VALUES])
@pytest.mark.parametrize("optional", [True, False])
def test_values(mysql: str, spark: str, array: pa.Array, expected: list[Any], optional: bool) -> None:
    column = CarriedColumn("c", spark, mysql)
    connect = {**connect_type(column, avro=True), "optional": optional}
    connect["name"] = connect.get("name", "")
    schema = avro_schema({"type": "struct", "name": "a.R", "fields": [connect | {"field": "c"}]})
    for values in (array, pa.concat_arrays([array, array])[len(array) :]):
        held = values if optional else values.drop_null()
        layout = Layout(len(held), avro=True)
        layout.lane(avro_lane(column, held), before=b"\x02" if optional else b"")
        actual = [decoded(schema, one)["c"] for one in layout.write([np.arange(len(held))]).to_pylist()]
        wanted = [plain(one, connect) for one in expected if optional or one is not None]
        if spark == "float":
            wanted = [np.float32(one) for one in wanted]
        if mysql == "bigint unsigned":
            wanted = [one - 2**64 for one in wanted]  # Debezium's ``long``
        assert actual == wanted


def test_columns_with_one_name_in_avro_are_refused() -> None:
    fields = [{"type": "int32", "field": name} for name in ("a-b", "c", "a_b")]
    with pytest.raises(TargetError, match=r"columns a-b and a_b of d\.t\.Value would both be named a_b in Avro"):
        avro_schema({"type": "struct", "name": "d.t.Value", "fields": fields})


@given(st.lists(st.decimals(-(10**65) + 1, 10**65 - 1, places=0), max_size=8))
def test_unscaled_numbers(numbers: list[Decimal]) -> None:
    def shortest(number: int) -> bytes:
        bits = (number if number >= 0 else -number - 1).bit_length()
        return number.to_bytes(bits // 8 + 1, signed=True)

    whole = [int(number) for number in numbers]
    expected = [*map(shortest, whole)]
    assert decimal_text_bytes(pa.array(map(str, whole), pa.string()), 0).to_pylist() == expected
    with localcontext(prec=100):
        scaled = [Decimal(one).scaleb(-30) for one in whole]
        texts = [f"{one:.30f}" for one in scaled], [f"{one.normalize():f}" for one in scaled]
    for one in texts:
        assert decimal_text_bytes(pa.array(one, pa.string()), 30).to_pylist() == expected
    small = [one % 10**38 - 10**37 for one in whole]
    encoded = decimal_bytes(pa.array([Decimal(one) for one in small], pa.decimal128(38)))
    assert encoded.to_pylist() == [*map(shortest, small)]


def both(images: list[tuple[Any, ...]], table: FakeTable = TABLE) -> tuple[list[Any], list[Any], Schemas]:
    """Messages in JSON and in Avro, (key, value, other key), and the schemas of the latter."""
    schemas, batch = Schemas(), table.batch(7, images)
    parsed = []
    for form in (JsonForm(SOURCE), AvroForm(SOURCE, schemas, lambda name: f"shop.{name}")):
        records = Envelope(form, truncates=True).records(table.carried, batch).to_pylist()
        read = json.loads if isinstance(form, JsonForm) else schemas.read
        names = ("key", "value", "other_key")
        parsed.append(
            [
                [row[name] and (json.loads if name == "other_key" else read)(row[name]) for name in names]
                for row in records
            ]
        )
    for _, value, _ in [*parsed[0], *parsed[1]]:
        for stamp in ("ts_ms", "ts_us", "ts_ns"):
            assert value is None or value.pop(stamp) > 1_700_000_000_000
    return parsed[0], parsed[1], schemas


def test_messages_are_those_in_json() -> None:
    images = [
        ("c", (40, 3), 1, "x"), ("b", 20, 1, "a"), ("u", 20, 1, None), ("b", 21, 1, "a"), ("u", 21, 2, "ü" * 200),
        ("d", 30, 2, "b"), ("t", 40, None, None), ("r", 5, 1, "a"),
    ]  # fmt: skip
    of_json, of_avro, schemas = both(images)
    assert of_avro == of_json
    assert len(of_json) == 9
    assert [subject for subject, _ in schemas.known] == ["shop.shop.orders-key", "shop.shop.orders-value"]


def test_columns_that_an_image_leaves_out_are_null() -> None:
    _, messages, _ = both([("b", 20, 1, ...), ("u", 20, 1, "b"), ("c", 30, 2, "c")])
    assert [(value["before"], value["after"]) for _, value, _ in messages] == [
        ({"id": 1, "item": None}, {"id": 1, "item": "b"}),
        (None, {"id": 2, "item": "c"}),
    ]


def test_schemas_are_debeziums() -> None:
    """As Confluent's converter makes them of Debezium's: names, namespaces, ``connect.…``, defaults."""
    columns = (("id", "bigint"), ("price", "decimal(12,3)"), ("9 é", "string"))
    _, _, schemas = both([("c", 1, 1, Decimal("1.500"), "x")], FakeTable("shop.my-orders", columns))
    (_, key), (_, value) = schemas.known
    assert json.loads(key) == {
        "type": "record", "name": "Key", "namespace": "shop.shop.my_orders",
        "fields": [{"name": "id", "type": "long"}], "connect.name": "shop.shop.my-orders.Key",
    }  # fmt: skip
    envelope = json.loads(value)
    assert {name: envelope[name] for name in envelope if name != "fields"} == {
        "type": "record", "name": "Envelope", "namespace": "shop.shop.my_orders", "connect.version": 2,
        "connect.name": "shop.shop.my-orders.Envelope",
    }  # fmt: skip
    before, after, source, transaction, op, *stamps = envelope["fields"]
    assert before["default"] is None
    assert before["type"][0] == "null"
    assert before["type"][1]["name"] == "Value"
    assert before["type"][1]["fields"] == [
        {"name": "id", "type": "long"},
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "bytes", "scale": 3, "precision": 12, "connect.version": 1,
                    "connect.parameters": {"scale": "3", "connect.decimal.precision": "12"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal",
                },
            ],
            "default": None,
        },
        {"name": "_9__", "type": ["null", "string"], "default": None},
    ]  # fmt: skip
    assert after == {"name": "after", "type": ["null", "shop.shop.my_orders.Value"], "default": None}
    assert source["type"]["connect.name"] == "io.debezium.connector.mysql.Source"
    snapshot = source["type"]["fields"][4]
    assert (snapshot["default"], snapshot["type"][0]["connect.default"], snapshot["type"][1]) == (
        "false",
        "false",
        "null",
    )
    assert transaction["type"][1]["name"] == "block"
    assert op == {"name": "op", "type": "string"}
    assert stamps == [{"name": f"ts_{unit}", "type": ["null", "long"], "default": None} for unit in ("ms", "us", "ns")]


def test_numbers_in_a_transaction() -> None:
    schemas = Schemas()
    envelope = Envelope(AvroForm(SOURCE, schemas, lambda name: name))
    records = envelope.records(TABLE.carried, TABLE.batch(7, [("d", 20, 1, "a"), ("c", 30, 3, "x" * 100)]))
    places = MessageNumbers(pa.array(["u:1", "u:3", "u:1"]), np.array([1, 2, 3]), np.array([5, 2**40, 7]))
    parsed = [value and schemas.read(value) for value in envelope.numbered(records["value"], places).to_pylist()]
    assert [one and one.pop("transaction") for one in parsed] == [
        {"id": "u:1", "total_order": 1, "data_collection_order": 5},
        {"id": "u:3", "total_order": 2, "data_collection_order": 2**40},
        None,
    ]
    without = [value and schemas.read(value) for value in records["value"].to_pylist()]
    assert [one and one.pop("transaction") for one in without] == [None, None, None]
    assert parsed == without


def test_messages_that_are_not_of_rows() -> None:
    schemas = Schemas()
    form = AvroForm(SOURCE, schemas, lambda name: name)
    source = {
        "version": "1", "connector": "mysql", "name": "shop", "ts_ms": 1, "snapshot": "false", "db": "shop",
        "sequence": None, "ts_us": 1000, "ts_ns": 1000000, "table": None, "server_id": 0, "gtid": "u:1", "file": "b.1",
        "pos": -4, "row": 0, "thread": None, "query": None,
    }  # fmt: skip
    column = {
        "name": "id", "jdbcType": 4, "nativeType": None, "typeName": "INT", "typeExpression": "INT",
        "charsetName": None, "length": 200, "scale": None, "position": 1, "optional": False, "autoIncremented": None,
        "generated": True,
        "comment": None, "defaultValueExpression": None, "enumValues": ["a", "ü"],
    }  # fmt: skip
    table = {"defaultCharsetName": None, "primaryKeyColumnNames": ["id"], "columns": [column, column], "comment": None}
    changed, dropped = ({"type": kind, "id": "a", "table": one} for kind, one in (("ALTER", table), ("DROP", None)))
    change = {"source": source, "ts_ms": 5, "databaseName": "shop", "schemaName": None, "ddl": "DROP …"}
    begin, end = TransactionEnd("u:5", 7, {"s.b": 1, "s.a": 2}).values()
    messages = [
        (HEARTBEAT_KEY, {"serverName": "shop"}), (HEARTBEAT_VALUE, {"ts_ms": 1_700_000_000_000}),
        (TRANSACTION_KEY, {"id": "u:5"}), (TRANSACTION_VALUE, begin), (TRANSACTION_VALUE, end),
        (SCHEMA_CHANGE_VALUE, {**change, "tableChanges": [changed, dropped]}),
        (SCHEMA_CHANGE_VALUE, {**change, "tableChanges": []}),
    ]  # fmt: skip
    for schema, payload in messages:
        assert schemas.read(form.message("t-value", schema, payload)) == payload


@given(st.integers(-(2**63), 2**63 - 1))
def test_long_numbers(number: int) -> None:
    assert decoded('"long"', binary({"type": "int64"}, number)) == number


def test_names() -> None:
    assert [avro_name(name) for name in ("a_1", "1a", "a-b", "")] == ["a_1", "_1a", "a_b", "_"]
