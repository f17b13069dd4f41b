"""DDL statements as messages, and their place between the changes of rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import CarriedColumn, DdlRow, Definition
from headgate.kafka.debezium.ddl import SchemaChange, interleaved, schema_changes
from headgate.kafka.debezium.source import Source

TABLE = Definition(
    "shop.t",
    ("id",),
    (
        CarriedColumn("id", "bigint", "int unsigned", nullable=False),
        CarriedColumn("name", "string", "varchar(20)"),
        CarriedColumn("price", "decimal(10,2)", "decimal(10,2)"),
        CarriedColumn("e", "string", "enum('a','b,c)','it''s')"),
        CarriedColumn("s", "string", "set('x','y')"),
        CarriedColumn("ts", "timestamp", "timestamp(3)"),
        CarriedColumn("g", "struct<srid:int,wkb:binary>", "geometry"),
    ),
)


def row(action: str, statement: str, pos: int = 100, ordinal: int = 0, table: str = "shop.t", **more: Any) -> DdlRow:
    return DdlRow(table, statement, action, (9, 7, pos, ordinal), "u:1", 1_700_000_000_123_456, **more)


def changes(*rows: DdlRow) -> list[SchemaChange]:
    return schema_changes(rows, Source("p", "0.1", "binlog."))


def test_an_alter() -> None:
    (one,) = changes(row("alter", "ALTER TABLE t …", schema=TABLE.to_json()))
    assert (one.file, one.pos, one.key) == (7, 100, {"databaseName": "shop"})
    assert one.value["ddl"] == "ALTER TABLE t …"
    source = one.value["source"]
    assert (source["file"], source["pos"], source["ts_ms"]) == ("binlog.000007", 100, 1_700_000_000_123)
    assert (source["db"], source["table"], source["gtid"]) == ("shop", "t", "u:1")
    (change,) = one.value["tableChanges"]
    assert (change["type"], change["id"]) == ("ALTER", '"shop"."t"')
    assert change["table"]["primaryKeyColumnNames"] == ["id"]
    columns = [
        (c["name"], c["jdbcType"], c["typeName"], c["length"], c["scale"], c["position"], c["optional"])
        for c in change["table"]["columns"]
    ]
    assert columns == [  # as the Debezium engine 3.6.1 has them
        ("id", 4, "INT UNSIGNED", None, None, 1, False),
        ("name", 12, "VARCHAR", 20, None, 2, True),
        ("price", 3, "DECIMAL", 10, 2, 3, True),
        ("e", 1, "ENUM", 1, None, 4, True),
        ("s", 1, "SET", 3, None, 5, True),
        ("ts", 2014, "TIMESTAMP", 3, None, 6, True),
        ("g", 1111, "GEOMETRY", None, None, 7, True),
    ]
    members = [c["enumValues"] for c in change["table"]["columns"]]
    assert members == [None] * 3 + [["'a'", "'b,c)'", "'it''s'"], ["'x'", "'y'"], None, None]


def test_statements_of_several_tables() -> None:
    """One message for each statement, but one for each table of a DROP TABLE."""
    messages = changes(
        row("rename", "RENAME TABLE a TO b, c TO d", 1, 0, "shop.a", new_name="shop.b", schema=TABLE.to_json()),
        row("rename", "RENAME TABLE a TO b, c TO d", 1, 1, "shop.c", new_name="shop.d"),
        row("truncate", "TRUNCATE b", 2),
        row("drop", "DROP TABLE b, d", 3, 0, "shop.b"),
        row("drop", "DROP TABLE b, d", 3, 1, "shop.d"),
        row("drop", "drop database other", 4, 0, "other.x"),
        row("drop", "drop database other", 4, 0, "other.y"),
        DdlRow("shop.old", "missing", "drop", (9, 0, 0, 0), None, None),
    )
    assert [
        (one.pos, one.value["ddl"], [(c["type"], c["id"]) for c in one.value["tableChanges"]]) for one in messages
    ] == [
        (1, "RENAME TABLE a TO b, c TO d", [("ALTER", '"shop"."b"')]),
        (3, "DROP TABLE `shop`.`b`", [("DROP", '"shop"."b"')]),
        (3, "DROP TABLE `shop`.`d`", [("DROP", '"shop"."d"')]),
        (4, "drop database other", [("DROP", '"other"."x"'), ("DROP", '"other"."y"')]),
    ]
    assert messages[0].value["source"]["table"] == "b,d"
    json.dumps([one.value for one in messages])


@given(st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=8), max_size=5), st.data())
def test_order(batches: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    """All come, and in the order that sorting gives."""
    rows = sorted(one for batch in batches for one in batch)
    taken = set(rows)
    places = data.draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)).filter(lambda p: p not in taken)))
    sizes, start, records = [len(batch) for batch in batches], 0, []
    for size in sizes:
        part = rows[start : start + size]
        start += size
        columns = {"file": [file for file, _ in part], "pos": [pos for _, pos in part]}
        records.append(pa.RecordBatch.from_pydict(columns, pa.schema({"file": pa.int32(), "pos": pa.int64()})))
    messages = [SchemaChange(*place, {}, {}) for place in sorted(places)]
    order: list[tuple[int, int]] = []
    for one in interleaved(records, messages):
        if isinstance(one, SchemaChange):
            order.append((one.file, one.pos))
        else:
            assert one.num_rows
            order += zip(one["file"].to_pylist(), one["pos"].to_pylist(), strict=True)
    assert order == sorted([*rows, *places])
