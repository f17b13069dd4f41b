"""Requests that wait for windows, or for a binlog archive, without a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

__all__ = ["AppendNotifier"]

_T = TypeVar("_T")


class Appended(Protocol):
    """What grows in another thread: an event buffer, or a binlog archive."""

    def on_append(self, listener: Callable[[], None], /) -> object:
        """Call ``listener`` in the writer's thread after each append."""


class AppendNotifier:
    """Wakes requests that wait: one call into the event loop per append, however many requests wait.

    No wakeup is lost: a request is listed before its last look into the buffer, and the writer appends windows before
    it looks at the list. Only the notification runs outside the loop's thread.
    """

    def __init__(self, buffers: Iterable[Appended]) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called = False
        for buffer in buffers:
            buffer.on_append(self._notify)

    async def repeat(self, attempt: Callable[[bool], Awaitable[_T | None]], seconds: float) -> _T:
        """Call ``attempt`` again after each append, until it returns something.

        :param attempt: its argument is whether the time is over. Then it must return something, or raise.
        """
        self._loop = loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            appended, is_last = loop.create_future(), loop.time() >= end
            self._waiting.add(appended)
            try:
                result = await attempt(is_last)
                if result is not None:
                    return result
                assert not is_last
                timer = loop.call_later(end - loop.time(), _done, appended)
                try:
                    await appended
                finally:
                    timer.cancel()
            finally:
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
