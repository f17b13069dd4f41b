from __future__ import annotations

import hashlib
import hmac

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.columns._hmac import hmac_hex

VALUES = st.lists(st.none() | st.binary(max_size=200) | st.integers(50, 70).map(bytes), max_size=20)


def expected(values: list[bytes | None], key: bytes) -> list[str | None]:
    return [None if value is None else hmac.new(key, value, hashlib.sha256).hexdigest() for value in values]


@given(VALUES, st.binary(max_size=150), st.integers(0, 5))
def test_the_same_as_python(values: list[bytes | None], key: bytes, start: int) -> None:
    array = pa.array([b"before"] * start + values, pa.binary())[start:]
    hashes = hmac_hex(array, key)
    hashes.validate(full=True)
    assert hashes.to_pylist() == expected(values, key)


def test_text_is_hashed_as_utf8() -> None:
    assert hmac_hex(pa.array(["naïve", "", None]), b"k").to_pylist() == expected(["naïve".encode(), b"", None], b"k")
