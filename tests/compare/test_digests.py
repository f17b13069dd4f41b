"""Digests of rows: SipHash as its authors have it, and the same digest exactly where rows are equal."""

from __future__ import annotations

import decimal
import struct
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.compare._digests import Digests, RowDigests, UnknownTypeError, draw_key, form_of
from headgate.compare._siphash import absorb, absorb_texts, begin, finish

REFERENCE = {
    0: "a3817f04ba25a8e66df67214c7550293",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    24: "2db479ae78bd50d8882a8a178a6132ad",
    32: "7c3956ca5eeafc3e363e9d556546eb68",
}
"""Bytes 0, 1, 2, … of a message → its digest under the key 00 01 … 0f: the table ``vectors_sip128`` of the authors'
reference code, where it has whole words."""
KEY = struct.unpack("<QQ", bytes(range(16)))


@pytest.mark.parametrize("size", REFERENCE)
@pytest.mark.parametrize("at_once", [True, False])
def test_the_authors_vectors(size: int, at_once: bool) -> None:
    message = np.arange(size, dtype=np.uint8)
    state = begin((KEY[0], KEY[1]), 3)
    if at_once:
        absorb_texts(*state, message, np.zeros(3, np.int64), np.full(3, size))
    else:
        for word in message.view(np.uint64):
            absorb(*state, np.full(3, word))
    low, high = finish(state, np.full(3, size // 8))
    for i in range(3):
        assert (low[i].tobytes() + high[i].tobytes()).hex() == REFERENCE[size]


@given(texts=st.lists(st.binary(max_size=40), max_size=9), slack=st.integers(0, 9))
def test_texts_are_filled_up_with_zeros(texts: list[bytes], slack: int) -> None:
    """Wherever they lie in the data: what is behind them is not read."""
    data = np.frombuffer(b"".join(texts) + b"\xff" * slack, np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    state = begin((1, 2), len(texts))
    absorb_texts(*state, data, np.cumsum(lengths) - lengths, lengths)
    halves = finish(state, (lengths + 7) >> 3)
    for i, text in enumerate(texts):
        state = begin((1, 2), 1)
        words = np.frombuffer(text + bytes(-len(text) % 8), np.uint64)
        for word in words:
            absorb(*state, np.array([word]))
        low, high = finish(state, np.array([len(words)]))
        assert (low[0], high[0]) == (halves[0][i], halves[1][i])


GEOMETRY = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [None, False, True],
    pa.int8(): [None, 0, 1, -1, 127],
    pa.int64(): [None, 0, 1, -1, 2**63 - 1],
    pa.float32(): [None, 0.0, 1.5, float("inf")],
    pa.float64(): [None, 0.0, 0.1, -0.1, 5e-324, float("nan")],
    pa.decimal128(38, 2): [None, *map(decimal.Decimal, ("0", "0.01", "-0.01", "1" * 36 + ".23"))],
    pa.string(): [None, "", "\0", "a", "a\0", "aaaaaaaa", "aaaaaaaaa", "é"],
    pa.binary(): [None, b"", b"\0", b"\0\0", b"\0" * 8],
    pa.date32(): [None, date(1970, 1, 1), date(1, 1, 1)],
    pa.timestamp("us"): [None, datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    pa.timestamp("us", "UTC"): [None, datetime(1970, 1, 1), datetime(2038, 1, 19)],
    pa.list_(pa.float32()): [None, [], [0.0], [0.0, 0.0], [None], [float("nan")], [1.0, None], [1.0, 2.0]],
    pa.list_(pa.string()): [None, [], [None], [""], ["", ""], ["a", "b"], ["ab"], ["b", "a"]],
    pa.list_(pa.list_(pa.int8())): [None, [], [None], [[]], [[], []], [[1], []], [[], [1]], [[1, None]]],
    pa.list_(GEOMETRY): [None, [], [None], [{"srid": None, "wkb": None}], [{"srid": 0, "wkb": b""}]],
    GEOMETRY: [None, {"srid": None, "wkb": None}, {"srid": 0, "wkb": b""}, {"srid": 1, "wkb": None}],
}
"""Of each type values that all differ from each other."""


def pairs(digests: Digests) -> list[tuple[int, int]]:
    return list(zip(digests[0].tolist(), digests[1].tolist(), strict=True))


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("start", [0, 3])
def test_each_value_has_its_own_digest(kind: pa.DataType, start: int) -> None:
    """In whole arrays and in slices of larger ones, with and without others that are NULL beside them."""
    digests = RowDigests([kind], draw_key())
    values = VALUES[kind]
    array = pa.array([*values[:1] * start, *values, *values[-1:]], kind).slice(start, len(values))
    digest_pairs = pairs(digests([array], len(values)))
    assert len({*digest_pairs}) == len(values)
    for value, digest in zip(values, digest_pairs, strict=True):
        assert pairs(digests([pa.array([value], kind)], 1)) == [digest]
    assert pairs(digests([None], 1)) == digest_pairs[:1]
    assert pairs(digests([array.slice(0, 0)], 0)) == []


def test_equal_numbers_of_other_widths_and_zeros() -> None:
    digests = RowDigests([pa.int64(), pa.float64(), pa.list_(pa.float32())], draw_key())
    nan = np.array([0x7FF8000000000001, 0xFFF8000000000002], np.uint64).view(np.float64)

    def digest(number: pa.DataType, real: pa.DataType, value: Any) -> tuple[int, int]:
        row = [pa.array([7], number), pa.array([value], real), pa.array([[value]], pa.list_(pa.float32()))]
        return pairs(digests(row, 1))[0]

    assert digest(pa.int8(), pa.float32(), 0.0) == digest(pa.int64(), pa.float64(), -0.0)
    assert digest(pa.int8(), pa.float64(), nan[0]) == digest(pa.int8(), pa.float64(), nan[1])
    assert digest(pa.int8(), pa.float64(), 0.5) != digest(pa.int8(), pa.float64(), 0.25)


def test_values_do_not_run_into_each_other() -> None:
    """Neither between columns nor between a text and what is beside it."""
    texts = RowDigests([pa.string()] * 3, draw_key())
    rows = [("ab", "c", ""), ("a", "bc", ""), ("abc", "", ""), ("", "abc", ""), ("ab", "", "c"), (None, "ab", "c"),
            ("ab", None, "c"), ("ab", "c", None), ("", "", "")]  # fmt: skip
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(3)]
    assert len({*pairs(texts(columns, len(rows)))}) == len(rows)


def test_more_columns_than_a_word_has_bits() -> None:
    digests = RowDigests([pa.int8()] * 130, draw_key())
    rows = [[None if i == hole else 0 for i in range(130)] for hole in range(131)]
    columns = [pa.array([row[i] for row in rows], pa.int8()) for i in range(130)]
    assert len({*pairs(digests(columns, len(rows)))}) == len(rows)


def test_many_rows_are_as_few() -> None:
    """Rows are taken in blocks."""
    numbers, texts = pa.array(range(9000)), pa.array([f"row {n}" for n in range(9000)])
    digests = RowDigests([pa.int64(), pa.string()], draw_key())
    digest_pairs = pairs(digests([numbers, texts], 9000))
    assert len({*digest_pairs}) == 9000
    for at in (0, 4095, 4096, 8999):
        assert pairs(digests([numbers.slice(at, 1), texts.slice(at, 1)], 1)) == [digest_pairs[at]]


def test_another_key_gives_other_digests() -> None:
    row = [pa.array([1])]
    assert len({pairs(RowDigests([pa.int64()], draw_key())(row, 1))[0] for _ in range(5)}) == 5


def test_what_is_under_a_null_does_not_count() -> None:
    text = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 3, 6], np.int32)), pa.py_buffer(b"abcabc"))
    hidden = pa.StringArray.from_buffers(2, *text.buffers()[1:], pa.py_buffer(b"\x01"))
    number = pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, np.nan]).tobytes())]
    )
    digests = RowDigests([pa.string(), pa.float64()], draw_key())
    assert pairs(digests([hidden, number], 2))[1] == pairs(digests([None, None], 1))[0]
    assert pairs(digests([hidden, number], 2))[0] == pairs(digests([pa.array(["abc"]), pa.array([1.0])], 1))[0]


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint8(), pa.timestamp("ns"), pa.decimal256(50, 2), pa.list_(pa.uint8()), pa.time64("us"),
        pa.map_(pa.int8(), pa.int8()), pa.struct([("a", pa.uint8())]), pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_unknown_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UnknownTypeError):
        RowDigests([kind], draw_key())


def test_types_with_the_same_values_have_one_form() -> None:
    assert form_of(pa.int8()) == form_of(pa.int64())
    assert form_of(pa.list_(pa.field("element", pa.float32()))) == form_of(pa.list_(pa.float32()))
    others = [*VALUES, pa.decimal128(38, 3), pa.struct([("srid", pa.int32()), ("other", pa.binary())])]
    forms = [form_of(kind) for kind in others if kind not in (pa.int8(), pa.float32())]
    assert len({*forms}) == len(forms)
