"""Hashes of rows: what is the same, and what differs."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.apply._row_hash import HASH_BYTES, row_hashes
from headgate.delta import VARIANT, to_variant
from headgate.errors import DecodeError

TYPES: dict[str, pa.DataType] = {
    "a": pa.string(),
    "b": pa.string(),
    "n": pa.int32(),
    "yes": pa.bool_(),
    "d": pa.float64(),
    "f": pa.float32(),
    "x": pa.binary(),
    "t": pa.timestamp("us", "UTC"),
    "u": pa.timestamp("us"),
    "day": pa.date32(),
    "m": pa.decimal128(10, 2),
    "g": pa.struct({"srid": pa.int32(), "wkb": pa.binary()}),
    "v": pa.list_(pa.float32()),
    "w": pa.list_(pa.string()),
}


def rows_of(values: list[dict[str, Any]], names: tuple[str, ...] = tuple(TYPES)) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(values, pa.schema([(name, TYPES[name]) for name in names]))


def hashes_of(rows: pa.RecordBatch, names: list[str]) -> list[bytes]:
    return [one.tobytes() for one in row_hashes(rows, names)]


def test_rows_that_differ_have_different_hashes() -> None:
    when = datetime(2024, 3, 31, 0, 30, 0, 5)
    differing: list[Any] = [
        {},
        *[{"a": text} for text in ("", "1", "1:b=1", "a", "é", "e\u0301", " ", "\0")],
        *[{"b": text} for text in ("", "1")],
        *[{"a": "x", "b": "yz"}, {"a": "xy", "b": "z"}, {"a": "1", "n": 1}, {"n": 1}, {"n": -1}, {"n": 11}],
        *[{"yes": True}, {"yes": False}],
        *[{"d": value} for value in (0.0, -0.0, 0.1, 0.1 + 2**-56, 1e300, math.inf, -math.inf, math.nan)],
        *[{"f": value} for value in (0.0, -0.0, 0.5, math.nan)],
        *[{"x": value} for value in (b"", b"\0", b"\0\0", b"1")],
        *[{"t": when.replace(tzinfo=UTC)}, {"t": when.replace(hour=1, tzinfo=UTC)}],
        *[{"u": when}, {"u": when.replace(microsecond=6)}, {"day": date(2024, 3, 31)}],
        *[{"m": Decimal("1.10")}, {"m": Decimal("11.00")}],
        *[{"g": {"srid": srid, "wkb": wkb}} for srid, wkb in ((0, b"a"), (1, b"a"), (0, b""), (None, None))],
        *[{"v": value} for value in ([1.0, 2.0], [1.0], [])],
        *[{"w": value} for value in (["a", "b"], ["ab"], ["a", None], ["a", "-"], ["a"], [])],
    ]
    hashes = hashes_of(rows_of(differing), list(TYPES))
    assert len(set(hashes)) == len(differing)
    assert all(len(one) == HASH_BYTES == 16 for one in hashes)
    again = rows_of([{}, *differing, {}]).slice(1, len(differing))
    assert hashes_of(again, list(TYPES)[::-1]) == hashes, "of a part of a batch, and in any order"
    narrow = rows_of([{"a": "x", "b": "yz"}], ("b", "a"))
    assert hashes_of(narrow, ["b", "a"])[0] == hashes[differing.index({"a": "x", "b": "yz"})]


def test_a_row_is_known_by_its_documents() -> None:
    documents = to_variant(pa.array(["null", None, "{}", "{ }"]), "j")
    hashes = hashes_of(pa.RecordBatch.from_arrays([documents], schema=pa.schema([("j", VARIANT)])), ["j"])
    assert [hashes.index(one) for one in hashes] == [0, 1, 2, 2]


TEXTS = st.one_of(st.none(), st.text("1:ab\0é", max_size=6))


@given(st.lists(st.tuples(TEXTS, TEXTS, st.one_of(st.none(), st.lists(TEXTS, max_size=3))), max_size=20))
def test_no_texts_look_like_other_columns(rows: list[tuple[str | None, str | None, list[str | None] | None]]) -> None:
    """Texts with the digits and separators that precede values in what is hashed."""
    columns = [{"a": a, "b": b, "w": w} for a, b, w in rows]
    hashes = hashes_of(rows_of(columns, ("a", "b", "w")), ["a", "b", "w"])
    contents = [repr(row) for row in rows]
    assert [hashes.index(one) for one in hashes] == [contents.index(one) for one in contents]


def test_other_types_are_refused() -> None:
    rows = pa.RecordBatch.from_pydict({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))})
    with pytest.raises(DecodeError, match="map"):
        row_hashes(rows, ["m"])
