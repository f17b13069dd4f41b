"""Waking those who wait for windows: in the event loop's thread, one call into the loop a block however many wait.

Nothing is missed: who waits is listed before it looks into the buffer for the last time, and the writer puts windows in
before it looks at the list.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from headgate.relay._buffer import EventBuffer

__all__ = ["News"]


class News:
    """Tells of windows that come into some buffers. All but the telling happens in one loop's thread."""

    def __init__(self, buffers: Iterable[EventBuffer]) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called = False
        for buffer in buffers:
            buffer.on_append(self._tell)

    def listen(self) -> asyncio.Future[None]:
        """Done as soon as something comes in after this call; to be given to :meth:`wait` in the end."""
        self._loop = asyncio.get_running_loop()
        news = self._loop.create_future()
        self._waiting.add(news)
        return news

    async def wait(self, news: asyncio.Future[None], seconds: float) -> None:
        """Until there are news, or the time is over."""
        timer = asyncio.get_running_loop().call_later(seconds, _done, news)
        try:
            await news
        finally:
            timer.cancel()
            self.forget(news)

    def forget(self, news: asyncio.Future[None]) -> None:
        """Nobody waits any more."""
        self._waiting.discard(news)

    def _tell(self) -> None:
        """In the writer's thread."""
        loop = self._loop
        if loop is None or not self._waiting or self._called:
            return
        self._called = True
        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        waiting, self._waiting = self._waiting, set()
        for news in waiting:
            _done(news)


def _done(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)
