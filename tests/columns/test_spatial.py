from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.errors import DecodeError
from tests.columns.cells import decode


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=60))))
def test_geometry(values: list[tuple[int, bytes]]) -> None:
    encoded = [struct.pack("<I", srid) + wkb for srid, wkb in values]
    expected = [{"srid": srid, "wkb": wkb} for srid, wkb in values]
    for road in ("log", "text"):
        assert decode(Column("c", "geometry"), road, None, *encoded, None) == [None, *expected, None]


@pytest.mark.parametrize("value", [b"", b"\0\0\0", b"\xff\xff\xff\xff\x01"])
def test_a_broken_geometry(value: bytes) -> None:
    with pytest.raises(DecodeError, match="geometry"):
        decode(Column("c", "geometry"), "log", value)


@given(st.lists(st.lists(st.floats(width=32, allow_nan=False), max_size=9)))
def test_vector(vectors: list[list[float]]) -> None:
    encoded = [struct.pack(f"<{len(vector)}f", *vector) for vector in vectors]
    assert decode(Column("c", "vector"), "log", None, *encoded, None) == [None, *vectors, None]


def test_a_broken_vector() -> None:
    with pytest.raises(DecodeError, match="vector"):
        decode(Column("c", "vector"), "log", b"\0\0\0")
