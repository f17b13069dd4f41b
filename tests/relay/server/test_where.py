"""Filters of rows and columns: against a slow evaluation of the same predicates, and through the relay."""

from __future__ import annotations

import io
import json
import operator
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.columns import RowFilter, TableCodec
from headgate.relay.databus import Schema, is_intact
from headgate.relay.server.events import (
    Registry,
    RowEncoder,
    SourceFilter,
    choice_of,
    compile_filters,
    gather_smaller,
    select,
)
from tests.relay.databus.test_events import WRITERS, Spec, array
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import Served, served

FIELDS: dict[str, Any] = {
    "n": "long", "f": "double", "g": "float", "s": "string", "raw": "bytes",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
    "day": {"type": "int", "logicalType": "date"}, "at": {"type": "long", "logicalType": "local-timestamp-micros"},
    "place": {
        "type": "record", "name": "p", "fields": [{"name": "srid", "type": "int"}, {"name": "wkb", "type": "bytes"}],
    },
    "v": {"type": "array", "items": "float"},
}  # fmt: skip
VALUE = {
    "type": "record", "name": "T", "meta": "pk=n;",
    "fields": [
        {"name": name, "type": ["null", one], "meta": f"dbFieldName={name.upper()};"} for name, one in FIELDS.items()
    ],
}  # fmt: skip
SCHEMA = Schema("T", 1, json.dumps(VALUE), VALUE)
PARSED = fastavro.parse_schema(VALUE)

SMALL = st.integers(-3, 3)
LONG = "1234567890123456789012345678901.27"
PRICES = st.integers(-300, 300).map(lambda n: Decimal(n) / 100) | st.sampled_from(
    [Decimal(10) ** 35, -(Decimal(10) ** 35), Decimal("-1.28"), Decimal("1.27"), Decimal(LONG)]
)
DAYS = st.integers(-2, 2).map(lambda n: date(1970, 1, 1) + timedelta(n))
TIMES = st.integers(-2, 2).map(lambda n: datetime(2020, 1, 1) + timedelta(microseconds=n))
TEXTS = st.text(alphabet="aé", max_size=2)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": SMALL | st.sampled_from([2**63 - 1, -(2**63)]), "f": SMALL.map(float), "g": SMALL.map(float), "s": TEXTS,
    "raw": TEXTS.map(str.encode), "price": PRICES, "day": DAYS, "at": TIMES,
    "place": st.just({"srid": 1, "wkb": b"xyz"}), "v": st.lists(SMALL.map(float), max_size=2),
}  # fmt: skip
ROWS = st.fixed_dictionaries({name: st.none() | one for name, one in VALUES.items()})
NUMBERS = SMALL.map(str) | st.sampled_from(
    ["0.5", "-1.5", "1e30", "-1e30", str(2**63), "1.27", "-0.001", LONG, f"{LONG}5"]
)
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "n": NUMBERS, "f": NUMBERS, "g": NUMBERS, "s": TEXTS, "raw": TEXTS, "price": NUMBERS, "day": DAYS.map(str),
    "at": TIMES.map(str),
}  # fmt: skip
PATTERNS = st.text(alphabet="aé%_", max_size=4)
OPERATORS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def comparisons() -> st.SearchStrategy[list[Any]]:
    names = st.sampled_from(sorted(LITERALS))
    return names.flatmap(
        lambda name: (
            st.tuples(st.sampled_from(sorted(OPERATORS)), st.just(name.upper()), LITERALS[name]).map(list)
            | st.tuples(st.just("in"), st.just(name), st.lists(LITERALS[name], min_size=1, max_size=3)).map(list)
        )
    )


LEAVES = (
    comparisons()
    | st.sampled_from([*FIELDS]).map(lambda name: ["null", name])
    | PATTERNS.map(lambda pattern: ["like", "s", pattern])
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(lambda one: ["not", one])
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)).map(
            lambda one: [one[0], *one[1]]
        )
    ),
    max_leaves=8,
)


def truth(node: list[Any], row: dict[str, Any]) -> bool | None:
    """As SQL has it; None: unknown."""
    name = node[0]
    if name == "not":
        inner = truth(node[1], row)
        return None if inner is None else not inner
    if name in ("and", "or"):
        all_found = [truth(one, row) for one in node[1:]]
        strong = name == "or"
        return strong if strong in all_found else None if None in all_found else not strong
    value = row[node[1].lower()]
    if name == "null":
        return value is None
    if name == "in":
        return truth(["or", *(["=", node[1], one] for one in node[2])], row)
    if value is None:
        return None
    if name == "like":
        marks = {"%": ".*", "_": "."}
        return re.fullmatch("".join(marks.get(one, one) for one in node[2]), value, re.DOTALL) is not None
    if isinstance(value, float):
        return bool(OPERATORS[name](value, float(node[2])))
    if isinstance(value, (int, Decimal)):
        return bool(OPERATORS[name](value, Decimal(node[2])))
    mine = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else str(value).encode()
    return bool(OPERATORS[name](mine, node[2].encode()))


def sql(node: list[Any]) -> str:
    """The predicate as a row expression."""
    name, *rest = node
    if name == "not":
        return f"NOT ({sql(rest[0])})"
    if name in ("and", "or"):
        return f" {name} ".join(f"({sql(one)})" for one in rest)
    if name == "null":
        return f"{rest[0]} IS NULL"
    if name == "like":
        return f"{rest[0]} LIKE '{rest[1]}'"
    column, value = rest
    if name == "in":
        return f"{column} IN ({', '.join(literal(column, one) for one in value)})"
    return f"{column} {name} {literal(column, value)}"


def literal(column: str, value: str) -> str:
    if column.lower() == "raw":
        return f"X'{value.encode().hex()}'"
    return f"'{value}'" if column.lower() in ("s", "day", "at") else value


def written(row: dict[str, Any], parsed: Any = PARSED) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, row)
    return out.getvalue()


def chosen(row: bytes, schema: Schema, one: SourceFilter, version: int = 1) -> Iterator[bytes]:
    """The row as a filter delivers it in an event, if it passes."""
    event = array(WRITERS[version](Spec(1, 7, row, digest=schema.digest)))
    filters, starts = compile_filters({40: one}, lambda _: [schema]), np.empty(1, np.int64)
    count, *_ = select(event, 0, len(event), 1 << 20, *choice_of([40], (), filters), 0, starts)
    out = np.empty(len(event), np.uint8)
    size = gather_smaller(event, starts, count, filters, out)
    yield from [out[len(event) - len(row) : size].tobytes()] * count


def passes(row: bytes, schema: Schema, where: str) -> bool:
    return list(chosen(row, schema, SourceFilter(where))) == [row]


@settings(max_examples=400)
@given(ROWS, PREDICATES)
@example(dict.fromkeys(FIELDS) | {"price": Decimal(LONG)}, ["=", "price", LONG])
@example(dict.fromkeys(FIELDS) | {"s": "éaa"}, ["like", "s", "_%a"])
def test_predicates_are_those_of_sql(row: dict[str, Any], predicate: list[Any]) -> None:
    assert passes(written(row), SCHEMA, sql(predicate)) == (truth(predicate, row) is True)


@pytest.mark.parametrize("version", WRITERS)
@given(row=ROWS, columns=st.sets(st.sampled_from([*FIELDS])))
def test_columns_that_are_not_wanted_are_null(version: int, row: dict[str, Any], columns: set[str]) -> None:
    wanted = SourceFilter(None, tuple(name.upper() for name in columns))
    (data,) = chosen(written(row), SCHEMA, wanted, version)
    read: Any = fastavro.schemaless_reader(io.BytesIO(data), PARSED, None)
    assert read == {name: value if name in columns or name == "n" else None for name, value in row.items()}
    assert compile_filters({1: wanted}, lambda _: [SCHEMA]).smaller == (columns | {"n"} != set(FIELDS))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("other = 1", "no column other"),
        ("s = 1", "compare S with a text"),
        ("raw = 'x'", "compare RAW with X'…'"),
        ("s = X'00'", "compare S with a text"),
        ("n = 'x'", "not a number"),
        ("day = '2020-13-01'", "not a date"),
        ("at < 'x'", "not a time"),
        ("v = 1", "cannot be compared"),
        ("n LIKE '1'", "LIKE needs a column of text, which N is not"),
        ("n = f", "compare a column with a number or a text"),
        ("1 = 1", "compare a column with a number or a text"),
        (" OR ".join(["n = 1"] * 150), "too long"),
        (f"{'NOT ' * 60}n IS NULL", "50 deep"),
        ("n = NULL", "never true"),
        ("n LIKE 1", "LIKE needs a text"),
        *[(one, "expected") for one in ("", "n", "n =", "n = 1 AND", "n IN ()", "1")],
    ],
)
def test_what_is_no_predicate_of_the_columns(where: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        compile_filters({1: SourceFilter(where)}, lambda _: [SCHEMA])


LANGUAGE = TableDef(
    "shop",
    "t",
    (
        Column("id", "bigint", nullable=False),
        Column("first_name", "varchar", length=400, charset="utf8mb4"),
        Column("price", "decimal", precision=20, scale=2),
        Column("born", "date"),
        Column("seen", "datetime", scale=6),
    ),
    (0,),
)


@pytest.mark.parametrize(
    "where",
    [
        "id BETWEEN 2 AND 3", "NOT id IN (1, 4)", "3 > id", "first_name LIKE '_n%a'", "first_name NOT LIKE '%\\\\_%'",
        "price >= 99.95 OR born IS NULL", "born > '1970-01-02'", "seen <= '1970-01-01 00:00:02.5'",
        "first_name <> 'Anna' AND NOT (price < 0.5)",
    ],
)  # fmt: skip
def test_the_same_rows_as_in_a_pipeline(where: str) -> None:
    """A pipeline evaluates the expression on Arrow, the relay on bytes: one language."""
    columns: dict[str, list[Any]] = {
        "id": [1, 2, 3, 4],
        "first_name": ["Anna", "Inna", None, "a_b"],
        "price": [Decimal("99.95"), Decimal("-1.00"), None, Decimal("0.50")],
        "born": [date(1970, 1, 2), None, date(2000, 1, 1), date(1969, 12, 31)],
        "seen": [datetime(1970, 1, 1, 0, 0, 2), datetime(1970, 1, 1, 0, 0, 3), None, datetime(1960, 1, 1)],
    }
    codec = TableCodec(LANGUAGE)
    arrays = [pa.array(columns[field.name], field.type) for field in codec.fields]
    bound = RowFilter(LANGUAGE, where)
    expected = bound.passes({index: arrays[index] for index in bound.indexes}).to_pylist()
    schema = Registry(None, "exact").schema_of("com.example.T", LANGUAGE)
    rows = RowEncoder(schema, LANGUAGE, codec.fields).encode(arrays)
    starts = np.cumsum(rows.sizes) - rows.sizes
    data = np.zeros(int(rows.sizes.sum()), np.uint8)
    rows.put(starts, data)
    assert [passes(one.tobytes(), schema, where) for one in np.split(data, starts[1:])] == expected
    assert len(set(expected)) == 2, "the rows tell nothing"


ALIKE: dict[str, Any] = {
    "type": "record", "name": "A", "meta": "pk=id;",
    "fields": [
        {"name": name, "type": ["null", "long"], "meta": f"dbFieldName={column};"}
        for name, column in (("id", "id"), ("userId", "user_id"), ("userid", "userid"), ("a_b", "A__b"))
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("user_id", "user_id"), ("USER_ID", "user_id"), ("userid", "userid"), ("UserID", "userid"), ("a_B", "A__b"),
        ("userId", "userid"), ("a__B", "A__b"),
    ],
)  # fmt: skip
def test_columns_whose_names_are_alike(name: str, column: str) -> None:
    """The name in MySQL decides; an Avro name may be another column's."""
    schema, parsed = Schema("A", 1, json.dumps(ALIKE), ALIKE), fastavro.parse_schema(ALIKE)
    columns = {"id": "id", "userId": "user_id", "userid": "userid", "a_b": "A__b"}
    compiled = compile_filters({1: SourceFilter(f"{name} = 5", (name,))}, lambda _: [schema])
    assert compiled.kept.tolist() == [one in ("id", column) for one in columns.values()]
    for five, of_five in columns.items():
        row = written({one: 5 if one == five else 7 for one in columns}, parsed)
        assert passes(row, schema, f"{name} = 5") == (of_five == column)


# --- through the relay


@pytest.fixture(params=[1, 2])
def relay(request: pytest.FixtureRequest) -> Iterator[Served]:
    with served(event_version=request.param, before_images=request.param == 2) as server:
        yield server


def stream(relay: Served, one: dict[str, Any], *, size: int = 1_000_000, maxev: int = 2) -> Iterator[dict[str, Any]]:
    """All events, asked for piece by piece by checkpoints."""
    place = {"windowScn": -1, "windowOffset": -1}
    while True:
        answer = relay.get(
            "stream", sources="40", size=str(size), output="json", maxev=str(maxev), filters={"40": one},
            checkPoint=place,
        )  # fmt: skip
        assert answer.status == 200, answer.headers
        if not answer.body:
            return
        for line in answer.body.decode().splitlines():
            event = json.loads(line)
            ended = event["srcId"] < 0
            done = max(place["windowOffset"], 0) if place["windowScn"] == event["sequence"] else 0
            place = {"windowScn": event["sequence"], "windowOffset": -1 if ended else done + 1}
            yield event


def keys(events: Iterator[dict[str, Any]]) -> list[Any]:
    return [event["key"] if event["srcId"] >= 0 else "EOP" for event in events]


def test_rows_and_keys_together_and_in_pieces(relay: Served) -> None:
    relay.put(block(people(range(10))), block(people(range(10, 20), gtids=[f"{UUID}:2"] * 10, pos=[300] * 10)))
    where = "first_name IN ('first3', 'first12') OR id >= 17"
    for size in (1_000_000, 300):
        expected = [3, "EOP", 12, 17, 18, 19, "EOP"]
        assert keys(stream(relay, {"partitionType": "NONE", "where": where}, size=size)) == expected
    odd = key_filter("MOD", (1, 2), buckets=2) | {"where": where}
    assert keys(stream(relay, odd)) == [3, "EOP", 17, 19, "EOP"]


def test_fewer_columns(relay: Served) -> None:
    relay.put(block(people(range(3))))
    schema = json.loads(relay.get("register", sources="40").json[0]["schema"])
    filters = {"40": {"partitionType": "NONE", "columns": ["last_name"]}}
    answer = relay.get("stream", sources="40", size="1000000", output="binary", filters=filters)
    assert is_intact(np.frombuffer(answer.body, np.uint8))
    read = []
    at = 0
    for _ in range(3):
        size = int.from_bytes(answer.body[at + 5 : at + 9], "big")
        row: Any = fastavro.schemaless_reader(io.BytesIO(answer.body[at + 61 : at + size]), schema, None)
        read.append((row["id"], row["firstName"], row["lastName"], row["deleted"]))
        at += size
    assert read == [(i, None, f"last{i}", None) for i in range(3)]


def test_a_row_that_leaves_is_told_where_the_event_knows_it() -> None:
    where = "first_name = 'wanted'"
    names = {"first_name": ["wanted", "left", "other", "wanted"]}
    with served(event_version=2, before_images=True) as relay:
        relay.put(block(people([1, 1, 2, 2], ops="bubu", ordinals=[0, 0, 1, 1], columns=names)))
        one = {"partitionType": "NONE", "where": where, "columns": ["first_name"]}
        assert keys(stream(relay, one)) == [1, 2, "EOP"]
        body = relay.get("stream", sources="40", size="1000", output="binary", maxev="2", filters={"40": one}).body
        assert is_intact(np.frombuffer(body, np.uint8))
        assert b"last" not in body
        assert body.count(b"wanted") == 2
    with served() as relay:
        relay.put(block(people([1, 2], ops="uu", columns={"first_name": ["left", "wanted"]})))
        assert keys(stream(relay, {"partitionType": "NONE", "where": where})) == [2, "EOP"]


def key_filter(kind: str, *spans: tuple[int, int], buckets: int | None = None) -> dict[str, Any]:
    """One in Databus's form; a range of keys if there are no buckets."""
    span_name = "keyRange" if buckets is None else "bktRange"
    more = {} if buckets is None else {"numBuckets": buckets}
    return {"partitionType": kind, "filters": [{span_name: {"start": one, "end": end}, **more} for one, end in spans]}


def test_filters_of_a_source_are_joined_by_or(relay: Served) -> None:
    relay.put(block(people(range(10))))
    for wanted, expected in (
        (key_filter("MOD", (0, 2), (8, 10), buckets=10), [0, 1, 8, 9]),
        (key_filter("RANGE", (5, 7), (8, 9)), [5, 6, 8]),
        ({"partitionType": "RANGE"}, []),
        ({"partitionType": "NONE"}, list(range(10))),
    ):
        assert keys(stream(relay, wanted)) == [*expected, "EOP"]


def test_hash_is_stable_and_even(relay: Served) -> None:
    relay.put(block(people(range(1000))))
    buckets = []
    for bucket in range(4):
        one = key_filter("HASH", (bucket, bucket + 1), buckets=4)
        buckets.append([key for key in keys(stream(relay, one)) if key != "EOP"])
    assert sorted(key for part in buckets for key in part) == list(range(1000))
    assert all(200 < len(part) < 300 for part in buckets)
    assert all(key in buckets[bucket_of(key.to_bytes(8, "big"), 4)] for part in buckets for key in part)


def bucket_of(key: bytes, buckets: int) -> int:
    value = 0xCBF29CE484222325
    for byte in key:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return ((value ^ value >> 32) & 0xFFFFFFFF) % buckets


def test_a_schema_of_another_source_is_not_asked(relay: Served) -> None:
    relay.put(block(people(range(5))))
    data = np.frombuffer(bytearray(relay.get("stream", sources="40", size="10000", output="binary").body), np.uint8)
    schemas = relay.relay.registry.versions(relay.relay.names.all()[0].name)
    counts = Counter[int]()
    for source in (40, 41):
        rows = compile_filters({source: SourceFilter("id = 3")}, lambda _: schemas)
        counts[source] = int(
            select(data, 0, len(data), 1 << 20, *choice_of([40], (), rows), 0, np.empty(9, np.int64))[2]
        )
    assert counts == {40: 1, 41: 5}
