"""A request's body, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from headgate.web import read_body

taken: list[int] = []

MOST_DISCARDED = 64 << 20
"""Bytes of a body that is too long that are read and discarded, so that the client reads the response."""


async def parts(*sizes: int) -> AsyncIterator[bytes]:
    taken.clear()
    for size in sizes:
        taken.append(size)
        yield bytes(size)


def test_a_body_is_whole_or_none() -> None:
    assert asyncio.run(read_body(parts(), 10)) == b""
    assert asyncio.run(read_body(parts(4, 6), 10)) == bytes(10)
    assert asyncio.run(read_body(parts(4, 7), 10)) is None


def test_the_rest_of_a_large_body_is_read_up_to_a_limit() -> None:
    assert asyncio.run(read_body(parts(11, 5, 5), 10)) is None
    assert taken == [11, 5, 5]
    assert asyncio.run(read_body(parts(11, MOST_DISCARDED, 5), 10)) is None
    assert taken == [11, MOST_DISCARDED]
