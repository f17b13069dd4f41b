"""Wakes requests that wait for windows: one call into the event loop per block, however many requests wait.

No wakeup is lost: a request is listed before its last look into the buffer, and the writer appends windows before it
looks at the list.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from headgate.relay._buffer import EventBuffer

__all__ = ["AppendNotifier"]


class AppendNotifier:
    """Wakes requests after appends to some buffers. Only the notification runs outside the loop's thread."""

    def __init__(self, buffers: Iterable[EventBuffer]) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called = False
        for buffer in buffers:
            buffer.on_append(self._notify)

    def listen(self) -> asyncio.Future[None]:
        """Return a future for the next append, to pass to :meth:`wait` or :meth:`forget`."""
        self._loop = asyncio.get_running_loop()
        appended = self._loop.create_future()
        self._waiting.add(appended)
        return appended

    async def wait(self, appended: asyncio.Future[None], seconds: float) -> None:
        """Wait until the future is done or the time is over."""
        timer = asyncio.get_running_loop().call_later(seconds, _done, appended)
        try:
            await appended
        finally:
            timer.cancel()
            self.forget(appended)

    def forget(self, appended: asyncio.Future[None]) -> None:
        """Stop waiting for a future."""
        self._waiting.discard(appended)

    def _notify(self) -> None:
        """Schedule the wakeup, in the writer's thread."""
        loop = self._loop
        if loop is None or not self._waiting or self._called:
            return
        self._called = True
        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        waiting, self._waiting = self._waiting, set()
        for appended in waiting:
            _done(appended)


def _done(appended: asyncio.Future[None]) -> None:
    if not appended.done():
        appended.set_result(None)
