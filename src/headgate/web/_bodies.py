"""Bodies of requests, read by a web server."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Final

__all__ = ["read_body"]

_MOST_DISCARDED: Final = 64 << 20


async def read_body(parts: AsyncIterable[bytes], most: int) -> bytes | None:
    """Return a request's body, and hold no more than ``most`` bytes of it; None: it is larger.

    A connection that is closed with unread data is reset, perhaps before the client has read the answer. So the rest of
    a larger body is read, up to 64 MiB in all.

    :param parts: its parts, as they arrive.
    """
    body, size = bytearray(), 0
    async for part in parts:
        size += len(part)
        if size <= most:
            body += part
        elif size > _MOST_DISCARDED:
            break
    return bytes(body) if size <= most else None
