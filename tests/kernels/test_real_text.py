"""FLOAT and DOUBLE as Java writes them."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.kernels import real_text

JAVA = re.compile(r"-?(0\.0|0\.00?[1-9]\d*|0\.[1-9]\d*|[1-9]\d{0,6}\.\d+|[1-9]\.(0|\d*[1-9])E-?[1-9]\d*)")
"""``Double.toString``: at least one digit on each side of the point; an exponent outside of 0.001 to 10 million."""


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(st.data())
def test_texts_are_javas_and_give_the_number_back(kind: type[np.float32 | np.float64], data: st.DataObject) -> None:
    narrow = st.floats(allow_nan=False, allow_infinity=False, width=32)
    numbers = data.draw(st.lists(st.none() | (narrow if kind is np.float32 else FINITE)))
    array = pa.array([None if one is None else kind(one) for one in numbers], pa.from_numpy_dtype(kind))
    for number, text in zip(numbers, real_text(array).to_pylist(), strict=True):
        assert (text is None) == (number is None)
        if number is None:
            continue
        assert JAVA.fullmatch(text), text
        assert str(kind(text)) == str(kind(number))
        scientific = "E" in text
        assert scientific == (number != 0 and not Decimal("0.001") <= abs(Decimal(text)) < 10_000_000)


def test_numbers_of_few_digits_and_slices() -> None:
    array = pa.array([5e-324, 1e-323, 2e-323, 1.0, None, 1e7])
    assert real_text(array).to_pylist() == ["4.9E-324", "9.9E-324", "2.0E-323", "1.0", None, "1.0E7"]
    assert real_text(array[4:]).to_pylist() == [None, "1.0E7"]
    assert real_text(pa.array([1e-45], pa.float32())).to_pylist() == ["1.4E-45"]
    assert real_text(array[:0]).to_pylist() == []
