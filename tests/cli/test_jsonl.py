"""JSON lines: values, pairs, order."""

from __future__ import annotations

import base64
import json
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.cli.jsonl import block_lines, ddl_line, snapshot_lines
from headgate.cli.text import TextLines
from headgate.columns import HEX_MARK, ZERO
from headgate.replication import (
    GTID_TYPE,
    META_FIELDS,
    SNAPSHOT_FILE,
    SNAPSHOT_POS,
    Ddl,
    ImageBatch,
    LogBlock,
    canonical_schema,
    op_array,
    seq_array,
)

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TS = 1_767_323_045_000_006
"""2026-01-02 03:04:05.000006 UTC"""


def table(*columns: Column, name: str = "t", db: str = "d") -> TableDef:
    return TableDef(db, name, columns, (0,) if columns else ())


def images(
    definition: TableDef, ops: str, *columns: pa.Array, places: list[tuple[int, int]] | None = None, file: int = 7
) -> ImageBatch:
    """``places``: (pos, ordinal) of each image; by default an update's two images share one."""
    if places is None:
        places, ordinal = [], -1
        for op in ops:
            ordinal += op != "u"
            places.append((100, ordinal))
    n = len(ops)
    pos, ordinals = np.array(places, np.int64).reshape(n, 2).T.copy()
    snapshot = ops == "r" * n
    meta = [
        op_array(np.frombuffer(ops.encode(), np.uint8)),
        seq_array(1, file, pos, ordinals),
        pa.nulls(n, GTID_TYPE) if snapshot else pa.array([f"{UUID}:5"] * n).dictionary_encode().cast(GTID_TYPE),
        pa.array([TS] * n, pa.int64()).cast(META_FIELDS[3].type),
    ]
    fields = [
        pa.field(column.name, array.type) for column, array in zip(definition.columns, columns, strict=True)
    ] if columns else []  # fmt: skip
    schema = canonical_schema(definition, fields)
    return ImageBatch(definition, pa.RecordBatch.from_arrays([*meta, *columns], schema=schema))


def texts(column: Column, array: pa.Array) -> list[str]:
    """The JSON text of each value of a column, as it stands in the line."""
    lines = block_lines(LogBlock([images(table(column), "c" * len(array), array)], "binlog.000007"))
    head, tail = f'"after":{{{json.dumps(column.name)}:', "}}"
    return [line[line.index(head) + len(head) : -len(tail)] for line in lines]


ID = Column("id", "int", nullable=False)


def test_the_whole_line() -> None:
    batch = images(table(ID), "cbud", pa.array([1, 1, 2, 2], pa.int32()))
    where = f'"db":"d","table":"t","gtid":"{UUID}:5","file":"binlog.000007","pos":100'
    ts = '"ts":"2026-01-02T03:04:05.000006Z"'
    assert block_lines(LogBlock([batch], "binlog.000007")) == [
        f'{{"op":"c",{where},"ordinal":0,{ts},"before":null,"after":{{"id":1}}}}',
        f'{{"op":"u",{where},"ordinal":1,{ts},"before":{{"id":1}},"after":{{"id":2}}}}',
        f'{{"op":"d",{where},"ordinal":2,{ts},"before":{{"id":2}},"after":null}}',
    ]


def test_truncate_has_no_images() -> None:
    (line,) = block_lines(LogBlock([images(table(), "t")], "binlog.000007"))
    change = json.loads(line)
    assert (change["op"], change["before"], change["after"], change["ordinal"]) == ("t", None, None, 0)


def test_snapshot_rows_have_no_place_in_the_log() -> None:
    places = [(SNAPSHOT_POS, 3), (SNAPSHOT_POS, 4)]
    batch = images(table(ID), "rr", pa.array([1, 2], pa.int32()), places=places, file=SNAPSHOT_FILE)
    assert snapshot_lines(batch) == [
        f'{{"op":"r","db":"d","table":"t","gtid":null,"file":null,"pos":null,"ordinal":{i + 2},'
        f'"ts":"2026-01-02T03:04:05.000006Z","before":null,"after":{{"id":{i}}}}}'
        for i in (1, 2)
    ]


def test_a_ddl_line() -> None:
    ddl = Ddl('ALTER TABLE `t` ADD "é" INT', "alter", "d", "t", f"{UUID}:6", TS, "binlog.000007", 7, 200)
    assert ddl_line(ddl) == (
        f'{{"op":"ddl","db":"d","table":"t","gtid":"{UUID}:6","file":"binlog.000007","pos":200,"ordinal":0,'
        '"ts":"2026-01-02T03:04:05.000006Z","statement":"ALTER TABLE `t` ADD \\"é\\" INT"}'
    )


def test_names_are_escaped_too() -> None:
    batch = images(table(Column('a"\n', "int"), name='t"\\', db="ü"), "c", pa.array([1], pa.int32()))
    change = json.loads(block_lines(LogBlock([batch], "f.000001"))[0])
    assert (change["db"], change["table"], change["after"]) == ("ü", 't"\\', {'a"\n': 1})


def test_nothing_gives_nothing() -> None:
    assert block_lines(LogBlock([])) == []


# --- order


def test_order_across_tables_and_definitions() -> None:
    one = images(table(ID, name="a"), "cbu", pa.array([1, 2, 3], pa.int32()), places=[(10, 0), (30, 2), (30, 2)])
    two = images(table(ID, name="b"), "dc", pa.array([4, 5], pa.int32()), places=[(20, 1), (40, 0)])
    lines = [json.loads(line) for line in block_lines(LogBlock([two, one], "binlog.000007"))]
    assert [(line["op"], line["table"], line["pos"], line["ordinal"]) for line in lines] == [
        ("c", "a", 10, 0),
        ("d", "b", 20, 1),
        ("u", "a", 30, 2),
        ("c", "b", 40, 0),
    ]
    assert (lines[2]["before"], lines[2]["after"]) == ({"id": 2}, {"id": 3})


@given(st.lists(st.sampled_from(["c", "d", "bu"]), min_size=1, max_size=30), st.data())
def test_pairs_and_order_in_general(ops: list[str], data: st.DataObject) -> None:
    """Images dealt over three tables come back as one line a change, in log order, updates in pairs."""
    dealt: dict[str, tuple[str, list[int], list[tuple[int, int]]]] = {name: ("", [], []) for name in "xyz"}
    expected = []
    for number, op in enumerate(ops):
        name = data.draw(st.sampled_from("xyz"))
        letters, values, places = dealt[name]
        dealt[name] = (letters + op, values, places)
        for half, _ in enumerate(op):
            values.append(number * 2 + half)
            places.append((1000 + number // 3, number))
        first, last = {"id": number * 2}, {"id": number * 2 + len(op) - 1}
        expected.append((op[-1], name, None if op == "c" else first, None if op == "d" else last))
    block = LogBlock(
        [
            images(table(ID, name=name), letters, pa.array(values, pa.int32()), places=places)
            for name, (letters, values, places) in dealt.items()
            if letters
        ],
        "binlog.000007",
    )
    lines = [json.loads(line) for line in block_lines(block)]
    assert [(line["op"], line["table"], line["before"], line["after"]) for line in lines] == expected


def test_a_sliced_batch() -> None:
    values = pa.array([b"a", b"bb", None, b"d"])
    whole = images(table(ID, Column("v", "varbinary", length=9)), "cbud", pa.array([1, 2, 3, 4], pa.int32()), values)
    part = ImageBatch(whole.table, whole.batch.slice(1))
    assert block_lines(LogBlock([part], "f.000001")) == block_lines(LogBlock([whole], "f.000001"))[1:]


# --- values


def test_integers_stay_integers() -> None:
    assert texts(Column("c", "bigint"), pa.array([2**63 - 1, -(2**63), None])) == [
        "9223372036854775807", "-9223372036854775808", "null",
    ]  # fmt: skip
    unsigned = pa.array([Decimal(2**64 - 1), Decimal(0)], pa.decimal128(20, 0))
    assert texts(Column("c", "bigint", unsigned=True), unsigned) == ["18446744073709551615", "0"]
    assert texts(Column("c", "bit", precision=64), unsigned) == ["18446744073709551615", "0"]
    assert texts(Column("c", "year"), pa.array([0, 2026], pa.int16())) == ["0", "2026"]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_doubles_read_back(values: list[float]) -> None:
    assert [float(json.loads(text)) for text in texts(Column("c", "double"), pa.array(values))] == values


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_are_the_shortest_that_read_back(values: list[float]) -> None:
    documents = texts(Column("c", "float"), pa.array(values, pa.float32()))
    assert [np.float32(json.loads(text)) for text in documents] == [np.float32(value) for value in values]
    assert [_digits(text) for text in documents] == [_digits(str(np.float32(value))) for value in values]


def _digits(text: str) -> int:
    """How many digits count."""
    return len(Decimal(text).normalize().as_tuple().digits)


def test_a_float_has_no_more_digits_than_it_needs() -> None:
    assert texts(Column("c", "float"), pa.array([0.1, 16777216, 3.4e38], pa.float32())) == [
        "0.1",
        "16777216",
        "3.4e+38",
    ]


@given(st.integers(0, 30), st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), min_size=1))
def test_decimals_are_fixed_point_text(scale: int, units: list[int | None]) -> None:
    exact = Context(prec=80)
    values = [None if unit is None else Decimal(unit).scaleb(-scale, exact) for unit in units]
    array = pa.array(values, pa.decimal128(38, scale))
    expected = ["null" if unit is None else f'"{_fixed(unit, scale)}"' for unit in units]
    assert texts(Column("c", "decimal", precision=38, scale=scale), array) == expected
    assert texts(Column("c", "decimal", precision=38, scale=scale), array.slice(1)) == expected[1:]


def _fixed(unit: int, scale: int) -> str:
    digits = str(abs(unit)).rjust(scale + 1, "0")
    return ("-" if unit < 0 else "") + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_texts_read_back(values: list[str | None]) -> None:
    documents = texts(Column("c", "text", charset="utf8mb4"), pa.array(values, pa.string()))
    assert [json.loads(text) for text in documents] == values


def test_every_control_character_is_escaped() -> None:
    controls = "".join(map(chr, range(32))) + '"\\/\x7fé'
    (text,) = texts(Column("c", "text", charset="utf8mb4"), pa.array([controls]))
    assert json.loads(text) == controls
    assert not any(character < " " for character in text)


@given(st.lists(st.none() | st.binary(max_size=70), min_size=1))
def test_bytes_are_base64(values: list[bytes | None]) -> None:
    encoded = [json.loads(text) for text in texts(Column("c", "blob"), pa.array(values, pa.binary()))]
    assert encoded == [None if value is None else base64.b64encode(value).decode() for value in values]


def test_geometry_and_vectors() -> None:
    kind = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])
    points = pa.array([{"srid": 4326, "wkb": b"\x01\x02"}, None], kind)
    assert texts(Column("c", "geometry"), points) == ['{"srid":4326,"wkb":"AQI="}', "null"]
    vectors = pa.array([[1.5, 0.1], [], None, [2.0]], pa.list_(pa.float32()))
    assert [json.loads(text) for text in texts(Column("c", "vector"), vectors)] == [[1.5, 0.1], [], None, [2.0]]
    assert [json.loads(text) for text in texts(Column("c", "vector"), vectors.slice(3))] == [[2.0]]


# --- text for people


def text_of(*lines: dict[str, Any], keys: tuple[str, ...] = ("id",)) -> list[str]:
    printer = TextLines(colours=False)
    common = {"db": "d", "table": "t", "gtid": "g:1", "ts": "2026-01-02T03:04:05.000006Z"}
    return [out for line in lines for out in printer.of(json.dumps({**common, **line}), {"d.t": keys})]


def test_text() -> None:
    assert text_of(
        {"op": "c", "before": None, "after": {"id": 1, "v": "x" * 100}},
        {"op": "u", "before": {"id": 1, "v": None, "w": 1}, "after": {"id": 1, "v": "é", "w": 1}},
        {"op": "d", "before": {"id": 1}, "after": None, "gtid": "g:2"},
        {"op": "t", "before": None, "after": None, "gtid": "g:3"},
        {"op": "ddl", "statement": "DROP\n  TABLE t", "gtid": "g:4"},
    ) == [
        "2026-01-02 03:04:05.000006  g:1",
        f'  + d.t  id=1 v="{"x" * 58}…',
        '  ~ d.t  id=1 v=null→"é"',
        "2026-01-02 03:04:05.000006  g:2",
        "  - d.t  id=1",
        "2026-01-02 03:04:05.000006  g:3",
        "  x d.t  truncated",
        "2026-01-02 03:04:05.000006  g:4",
        "  # d.t  DROP TABLE t",
    ]


# --- keys that are spelled by their bytes


def test_a_key_that_its_text_does_not_tell_is_an_object_and_nothing_else_is() -> None:
    odd = [f"{HEX_MARK}ujis:a1c0", "\\", '{"charset":"ujis","hex":"a1c0"}', None]
    key = Column("k", "varchar", charset="ujis", length=9)
    assert texts(key, pa.array(odd)) == [
        '{"charset":"ujis","hex":"a1c0"}', '"\\\\"', '"{\\"charset\\":\\"ujis\\",\\"hex\\":\\"a1c0\\"}"', "null",
    ]  # fmt: skip
    plain = Column("k", "varchar", charset="utf8mb4", length=9)
    assert json.loads(texts(plain, pa.array(odd[:1]))[0]) == odd[0], "a set without such values"
    values = Column("v", "varchar", charset="ujis", length=9)
    batch = images(table(ID, values), "c", pa.array([1], pa.int32()), pa.array(odd[:1]))
    assert json.loads(block_lines(LogBlock([batch], "f.000001"))[0])["after"]["v"] == odd[0], "no key"


def test_the_value_0_of_a_key_is_a_number() -> None:
    column = Column("k", "enum", charset="utf8mb4", members=("", "a"))
    assert texts(column, pa.array(["", ZERO, "a"])) == ['""', "0", '"a"']
