"""Blocks of given bytes, as a walk would note them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate._policies import Policies
from headgate.catalog import Column
from headgate.columns import codec_for
from headgate.kernels import ABSENT, Cells, RowBlock

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
    key, canary = options.pop("key", False), options.pop("canary", CANARIES[0])
    codec = codec_for(column, table="d.t", key=key, policies=Policies(**options))
    array: pa.Array = getattr(codec, f"from_{road}")(block([[value] for value in values], canary).column(0))
    assert array.type == codec.arrow_type
    array.validate(full=True)
    return list(array.to_pylist())
