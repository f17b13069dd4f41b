"""The memory of messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.kernels import Layout

LEAST_SPARE = 4 << 20
"""Bytes of the smallest memory that is used again."""
ROWS = LEAST_SPARE >> 10


def written(text: bytes) -> pa.Array:
    layout = Layout(ROWS)
    layout.constant(text * (2048 // len(text)))
    return layout.write([np.arange(ROWS)])


def test_memory_is_used_again_only_when_no_array_refers_to_it() -> None:
    kept = {text: written(text)[ROWS - 2 :] for text in (b"a", b"b", b"c", b"d")}
    addresses = set()
    for text in (b"x", b"y", b"z") * 3:
        values = written(text)
        addresses.add(values.buffers()[2].address)
        assert values[ROWS - 1].as_py() == text * 2048
        del values
    assert len(addresses) == 1
    assert {text: set(values.to_pylist()) for text, values in kept.items()} == {text: {text * 2048} for text in kept}
