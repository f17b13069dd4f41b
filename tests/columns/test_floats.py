from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.columns import codec_for
from headgate.errors import DecodeError
from tests.columns.cells import cells, decode

FINITE = {"allow_nan": False, "allow_infinity": False}


@given(st.lists(st.floats(**FINITE)))  # type: ignore[arg-type]
def test_doubles_keep_their_bits_on_both_roads(numbers: list[float]) -> None:
    codec = codec_for(Column("c", "double"), table="d.t")
    log = codec.from_log(cells(*(struct.pack("<d", number) for number in numbers)))
    text = codec.from_text(cells(*(repr(number).encode() for number in numbers)))
    bits = np.array(numbers, np.float64).tobytes()
    assert np.array(log).astype(np.float64).tobytes() == np.array(text).astype(np.float64).tobytes() == bits


@given(st.lists(st.floats(width=32, **FINITE)))
def test_floats_are_read_from_the_text_of_the_same_double(numbers: list[float]) -> None:
    column = Column("c", "float")
    assert decode(column, "log", *(struct.pack("<f", number) for number in numbers), None) == [*numbers, None]
    assert decode(column, "text", *(repr(number).encode() for number in numbers), None) == [*numbers, None]


def test_a_number_is_selected_as_a_double_and_names_are_quoted() -> None:
    assert codec_for(Column("a`b", "float"), table="d.t").select == "(`a``b` * 1e0)"
    assert codec_for(Column("a`b", "double"), table="d.t").select == "(`a``b` * 1e0)"


def test_text_that_is_no_number() -> None:
    with pytest.raises(DecodeError, match="number") as caught:
        decode(Column("c", "double"), "text", b"1.5", b"1.5x")
    assert caught.value.column == "c"
