"""Keys in ranges: natively against Python's order, and what is left to MySQL."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.errors import SnapshotRefusedError
from headgate.offsets import ChunkSpec
from headgate.snapshot import in_range
from headgate.snapshot.ranges import json_values


class Server:
    """Keeps the questions; answers with the rows given."""

    def __init__(self, answer: list[tuple[Any, ...]] | None = None) -> None:
        self.queries: list[str] = []
        self.answer = answer or []

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.queries.append(sql)
        return self.answer


def decided(column: Column, values: pa.Array, lo: str | None, hi: str | None) -> list[Any]:
    """The values inside, decided without a question."""
    server = Server()
    table = TableDef("d", "t", (column,), key=(0,))
    chunk = ChunkSpec("d.t", 0, None if lo is None else (lo,), None if hi is None else (hi,))
    mask = in_range(server.query, table, chunk)(pa.table({column.name: values}))
    assert not server.queries
    return list(values.filter(pa.array(mask)).to_pylist())


@pytest.mark.parametrize(("kind", "text"), [("enum", "😀"), ("set", "a,😀")])
def test_a_member_that_information_schema_cannot_show_has_no_number(kind: str, text: str) -> None:
    column = Column("k", kind, members=("a", "?"))
    with pytest.raises(SnapshotRefusedError, match="😀") as caught:
        decided(column, pa.array(["a", text]), "1", "2")
    assert caught.value.column == "k"


@pytest.mark.parametrize(
    ("column", "values", "lo", "hi", "inside"),
    [
        (Column("k", "int"), pa.array([-1, 0, 1, 2], pa.int32()), "-1", "1", [0, 1]),
        (Column("k", "int"), pa.array([-1, 0, 1, 2], pa.int32()), None, None, [-1, 0, 1, 2]),
        (Column("k", "bigint", unsigned=True), pa.array([Decimal(2**64 - 1), Decimal(1)], pa.decimal128(20, 0)),
         "1", str(2**64 - 1), [Decimal(2**64 - 1)]),
        (Column("k", "decimal", precision=9, scale=2),
         pa.array([Decimal("1.10"), Decimal("1.11")], pa.decimal128(9, 2)), "1.10", None, [Decimal("1.11")]),
        (Column("k", "year"), pa.array([0, 1999], pa.int16()), None, "0", [0]),
        (Column("k", "bit", precision=3), pa.array([1, 5], pa.int64()), "1", "5", [5]),
        (Column("k", "float"), pa.array([0.1, 0.2], pa.float32()), "0.10000000149011612e0", None, [pytest.approx(0.2)]),
        (Column("k", "double"), pa.array([0.1, 0.2]), None, "0.1e0", [0.1]),
        (Column("k", "enum", members=("z", "m", "a")), pa.array(["a", "m", "z", ""]), "1", "2", ["m"]),
        (Column("k", "enum", members=("z", "m", "a")), pa.array(["a", "m", "z", ""]), None, "1", ["z", ""]),
        (Column("k", "set", members=("z", "m", "a")), pa.array(["", "z", "m", "z,m", "a"]), "1", "3", ["m", "z,m"]),
        (Column("k", "date"), pa.array([date(2024, 1, 1), date(2024, 1, 2)]), "'2024-01-01'", "'2024-01-02'",
         [date(2024, 1, 2)]),
        (Column("k", "datetime", scale=3), pa.array([datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1000)]),
         "'2024-01-01 00:00:00.000'", None, [datetime(2024, 1, 1, 0, 0, 0, 1000)]),
        (Column("k", "timestamp"), pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), None,
         "'2024-01-01 00:00:00'", [datetime(2024, 1, 1, tzinfo=UTC)]),
        (Column("k", "datetime"), pa.array(["0000-00-00 00:00:00", "2024-01-01 00:00:00"]),
         "'0000-00-00 00:00:00'", None, ["2024-01-01 00:00:00"]),
        (Column("k", "varbinary"), pa.array([b"", b"a", b"a\0", b"\xff"]), "X'61'", "X'FF'", [b"a\0", b"\xff"]),
    ],
)  # fmt: skip
def test_natively(column: Column, values: pa.Array, lo: str | None, hi: str | None, inside: list[Any]) -> None:
    assert decided(column, values, lo, hi) == inside


pairs = st.tuples(st.integers(-3, 3), st.binary(max_size=2))


@given(st.lists(pairs), st.none() | pairs, st.none() | pairs)
def test_composite_keys_compare_like_tuples(
    values: list[tuple[int, bytes]], lo: tuple[int, bytes] | None, hi: tuple[int, bytes] | None
) -> None:
    def literals(bound: tuple[int, bytes] | None) -> tuple[str, ...] | None:
        return None if bound is None else (str(bound[0]), f"X'{bound[1].hex()}'")

    table = TableDef("d", "t", (Column("b", "varbinary"), Column("a", "int")), key=(1, 0))
    keys = pa.table(
        {"a": pa.array([a for a, _ in values], pa.int32()), "b": pa.array([b for _, b in values], pa.binary())}
    )
    mask = in_range(Server().query, table, ChunkSpec("d.t", 0, literals(lo), literals(hi)))(keys)
    assert mask.tolist() == [(lo is None or key > lo) and (hi is None or key <= hi) for key in values]


def documents(server: Server) -> list[Any]:
    return [json.loads(bytes.fromhex(sql.split("X'", 1)[1].split("'", 1)[0])) for sql in server.queries]


def test_text_is_left_to_mysql() -> None:
    server = Server([(2,)])
    column = Column("k", "varchar", charset="latin1", collation="latin1_german1_ci")
    table = TableDef("d", "t", (column, Column("n", "int")), key=(0, 1))
    keys = pa.table({"k": ["ä'\n", "z"], "n": pa.array([1, 2], pa.int32())})
    mask = in_range(server.query, table, ChunkSpec("d.t", 0, ("_latin1 X'61'", "5"), None))(keys)
    assert mask.tolist() == [False, True]
    assert documents(server) == [[["ä'\n", 1], ["z", 2]]]
    assert "CHARACTER SET latin1 COLLATE latin1_german1_ci" in server.queries[0]
    assert server.queries[0].endswith("WHERE ((k0 > _latin1 X'61') OR (k0 = _latin1 X'61' AND k1 > 5))")


@pytest.mark.parametrize(("kind", "arrow"), [("float", pa.float32()), ("double", pa.float64())])
def test_floats_are_no_numbers_in_json(kind: str, arrow: pa.DataType) -> None:
    """The JSON parser of MySQL 8.0 rounds 1.0000000200408773e+20, so the key is not found; CAST of a text does not."""
    column = Column("k", kind)
    values = pa.array([1e20, 5e-324, -0.1, None]).cast(arrow)
    texts = json_values(column, pa.chunked_array([values]))
    assert [None if text is None else float(text) for text in texts] == values.to_pylist()
    assert all(text is None or isinstance(text, str) for text in texts)
    server = Server([])
    table = TableDef("d", "t", (column, Column("s", "varchar", charset="utf8mb4")), key=(0, 1))
    keys = pa.table({"k": values.slice(0, 1), "s": ["a"]})
    in_range(server.query, table, ChunkSpec("d.t", 0, ("1e0", "_utf8mb4 X'61'"), None))(keys)
    assert documents(server) == [[[texts[0], "a"]]]


def test_many_keys_are_asked_about_in_several_questions() -> None:
    server = Server([(1,)])
    table = TableDef("d", "t", (Column("k", "varchar", charset="utf8mb4"),), key=(0,))
    keys = pa.table({"k": [f"{i:05}" for i in range(4500)]})
    mask = in_range(server.query, table, ChunkSpec("d.t", 0, None, ("_utf8mb4 X'61'",)))(keys)
    assert [len(document) for document in documents(server)] == [2000, 2000, 500]
    assert [i for i, inside in enumerate(mask) if inside] == [0, 2000, 4000]


def test_queries_are_limited_in_bytes() -> None:
    """A character of UTF-8 has up to four, and max_allowed_packet may be 4 MiB: eight digits of hex for each."""
    server = Server([(1,)])
    table = TableDef("d", "t", (Column("k", "varchar", charset="utf8mb4"),), key=(0,))
    keys = pa.table({"k": ["\N{SLICE OF PIZZA}" * 700 + str(i) for i in range(1000)]})
    in_range(server.query, table, ChunkSpec("d.t", 0, None, ("_utf8mb4 X'61'",)))(keys)
    assert sum(len(document) for document in documents(server)) == 1000
    assert max(len(sql) for sql in server.queries) < 4 << 20


@pytest.mark.parametrize(
    ("column", "values", "lo", "sent"),
    [
        (Column("k", "time", scale=2), pa.array(["-01:00:00.00"]), "'00:00:00.00'", "-01:00:00.00"),
        (Column("k", "date"), pa.array([date(2024, 1, 1)]), "'0000-00-00'", "2024-01-01"),
        (Column("k", "datetime"), pa.array([datetime(2024, 1, 1)]), "'0000-00-00 00:00:00'", "2024-01-01 00:00:00"),
        (Column("k", "decimal", precision=50), pa.array(["1" * 50]), "5", "1" * 50),
        (Column("k", "date"), pa.array([-719528], pa.int32()).view(pa.date32()), "'0000-00-00'", "0000-01-01"),
        (
            Column("k", "timestamp", scale=6),
            pa.array([5], pa.int64()).view(pa.timestamp("us", "UTC")),
            "'0000-00-00 00:00:00.000000'",
            "1970-01-01 00:00:00.000005",
        ),
    ],
)
def test_what_arrow_cannot_order_is_left_to_mysql(column: Column, values: pa.Array, lo: str, sent: str) -> None:
    server = Server([(1,)])
    table = TableDef("d", "t", (column,), key=(0,))
    assert in_range(server.query, table, ChunkSpec("d.t", 0, (lo,), None))(pa.table({"k": values})).tolist() == [True]
    assert documents(server) == [[[sent]]]


def test_a_decimal_as_double_is_refused_for_ranges() -> None:
    column = Column("k", "decimal", precision=20, scale=2)
    with pytest.raises(SnapshotRefusedError, match='decimals = "decimal"'):
        json_values(column, pa.chunked_array([pa.array([0.1])]))
    assert json_values(column, pa.chunked_array([pa.array(["0.10", None])])) == ["0.10", None]
