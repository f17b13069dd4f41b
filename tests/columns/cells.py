"""Blocks of given bytes, as a walk would note them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.catalog import Column
from headgate.columns import codec_for
from headgate.errors import HeadgateError
from headgate.kernels import ABSENT, Cells, RowBlock
from headgate.policies import Policies

NOT_THERE = object()
"""A column that is absent from a partial image."""


CANARIES = (b"\xee", b"\x01")
"""Bytes around the cells. A decoder that reads beyond one gives another result for each."""


def block(rows: Sequence[Sequence[object]], canary: bytes = CANARIES[0]) -> RowBlock:
    """Values row by row with other bytes between and behind them: None is NULL, NOT_THERE is ABSENT."""
    columns = len(rows[0]) if rows else 1
    buf = bytearray(canary)
    offset = np.zeros((columns, len(rows) + 3), np.int64)
    length = np.zeros((columns, len(rows) + 3), np.int32)
    valid = np.zeros((columns, len(rows) + 3), np.uint8)
    for (r, row), c in itertools.product(enumerate(rows), range(columns)):
        value = row[c]
        if value is NOT_THERE:
            valid[c, r] = ABSENT
        elif isinstance(value, bytes):
            offset[c, r], length[c, r], valid[c, r] = len(buf), len(value), 1
            buf += value + canary * (r % 3)
    buf += canary * 16
    return RowBlock(np.frombuffer(buf, np.uint8), offset, length, valid, len(rows))


def cells(*values: object) -> Cells:
    """One column."""
    return block([[value] for value in values]).column(0)


def decode(column: Column, road: str, *values: object, **options: Any) -> list[Any]:
    """The values that ``from_log`` or ``from_text`` gives; the array is validated."""
    return list(decode_array(column, road, *values, **options).to_pylist())


def decode_array(column: Column, road: str, *values: object, **options: Any) -> pa.Array:
    """The validated array; the decoder must leave its input as it is."""
    key, canary = options.pop("key", False), options.pop("canary", CANARIES[0])
    codec = codec_for(column, table="d.t", key=key, policies=Policies(**options))
    rows = block([[value] for value in values], canary)
    before = [part.copy() for part in (rows.buf, rows.offset, rows.length, rows.valid)]
    try:
        array: pa.Array = getattr(codec, f"from_{road}")(rows.column(0))
    finally:
        for part, copy in zip((rows.buf, rows.offset, rows.length, rows.valid), before, strict=True):
            assert (part == copy).all(), "the decoder wrote into its input"
    assert array.type == codec.arrow_type
    array.validate(full=True)
    return array


def same_whatever_is_around(column: Column, road: str, *values: object, **options: Any) -> None:
    """The decoder gives the same values, or the same error of ours, whatever bytes lie before and behind each cell."""
    outcomes: list[str] = []
    for canary in CANARIES:
        try:  # as text, in which a NaN equals itself, and which has dates of the year 0
            outcomes.append(decode_array(column, road, *values, canary=canary, **options).to_string(window=100))
        except HeadgateError as error:
            outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]
