"""Kernels on bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.kernels import is_utf8


def as_python_reads(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary(max_size=8) | st.text(max_size=4).map(str.encode), st.integers(0, 3), st.integers(0, 3))
def test_what_is_utf8(data: bytes, before: int, behind: int) -> None:
    """Within its bounds, whatever is around."""
    buf = np.frombuffer(b"\xe2" * before + data + b"\x80" * behind + b"\0", np.uint8)
    assert is_utf8(buf, before, before + len(data)) == as_python_reads(data)


@pytest.mark.parametrize(
    "data",
    [b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80"],
)
def test_the_bounds_of_utf8(data: bytes) -> None:
    assert not is_utf8(np.frombuffer(data, np.uint8), 0, len(data))
