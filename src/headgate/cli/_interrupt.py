"""Ctrl-C: the first ends what runs, cleanly; the second ends the process at once.

Commands that wait in one place simply get a KeyboardInterrupt. Those that have work to finish (a batch, a line) ask
with :func:`on_interrupt` to be told instead. SIGTERM counts as a first Ctrl-C, so that service managers end us cleanly.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts", "on_interrupt"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_listeners: list[Callable[[], None]] = []


@contextlib.contextmanager
def on_interrupt(tell: Callable[[], None]) -> Iterator[None]:
    """Within the block the first Ctrl-C calls ``tell`` (in the main thread, between two instructions of whatever runs
    there, so it should only set an event or shut a socket down) instead of raising KeyboardInterrupt.
    """
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


class Interrupts:
    """Handles the signals while the block runs; in other threads than the main one it does nothing."""

    def __init__(self) -> None:
        self._count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            _end_now()
        if not _listeners:
            raise KeyboardInterrupt
        for tell in _listeners:
            tell()


def _end_now() -> None:
    """End the process without another word, with the terminal's cursor back where it was hidden."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\x1b[?25h\n")
    os._exit(130)
