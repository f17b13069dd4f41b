"""Filters against a slow model of what Databus's Java says."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.relay.server.events import choice_of, select
from tests.relay.databus.test_events import Spec, array, v1, v2

SMALLEST = -(2**63)


def hash_code(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def parse_long(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or not set(digits) <= set("0123456789") or not SMALLEST <= int(text) < 2**63:
        return None
    return int(text)


def contains(start: int, end: int, number: int) -> bool:
    if number < 0 or start == end:
        return False
    return start <= number < end if start < end else number >= start or number < end


def chosen(key: int | bytes, rules: Any) -> int:
    data = array(b"".join(write(Spec(1, key, b"x")) for write in (v1, v2)))
    counts = set()
    for at in (0, len(v1(Spec(1, key, b"x")))):
        end = len(data) if at else len(v1(Spec(1, key, b"x")))
        count, *_ = select(data, at, end, 1 << 20, *choice_of([40], rules), 0, np.empty(5, np.int64))
        counts.add(int(count))
    (count,) = counts
    return count


KEYS = st.integers(SMALLEST, 2**63 - 1) | st.integers(-20, 20)
TEXTS = st.text(max_size=8) | st.from_regex(r"[+-]?[0-9]{1,21}", fullmatch=True) | st.just("x\ty")
BOUNDS = st.integers(-3, 12)


@given(KEYS, st.integers(1, 9) | st.just(2**62), BOUNDS, BOUNDS)
@example(SMALLEST, 4, 0, 1)
@example(SMALLEST, 3, 0, 3)
def test_numbers(key: int, buckets: int, start: int, end: int) -> None:
    assert chosen(key, [(40, 1, 1, start, end)]) == contains(start, end, key)
    rest = abs(key) % buckets
    bucket = -rest if key == SMALLEST else rest
    assert chosen(key, [(40, 2, buckets, start, end)]) == contains(start, end, bucket)
    assert chosen(key, [(41, 2, buckets, start, end)]) == 1


@given(TEXTS, st.integers(1, 9), BOUNDS, BOUNDS)
@example("9223372036854775807", 5, 0, 3)
@example("9223372036854775808", 5, 0, 3)
@example("-9223372036854775808", 5, 0, 3)
@example("-9223372036854775809", 5, 0, 3)
@example("\U0001f600é", 5, 0, 3)
def test_texts(text: str, buckets: int, start: int, end: int) -> None:
    key, number = text.encode(), parse_long(text)
    value = hash_code(text) if number is None else number
    rest = abs(value) % buckets
    assert chosen(key, [(40, 2, buckets, start, end)]) == contains(start, end, -rest if value == SMALLEST else rest)
    wanted = -1 if number is None and start != end else int(contains(start, end, value))
    assert chosen(key, [(40, 1, 1, start, end)]) == wanted


@given(st.binary(max_size=12))
def test_bytes_that_are_no_text_are_some_number(key: bytes) -> None:
    assert chosen(key, [(40, 2, 1, 0, 1)]) == 1
