"""Ctrl-C: the first ends the command cleanly, the second ends the process at once. And a closed pipe.

Commands that only wait get a KeyboardInterrupt. Commands that have work to finish (a batch, a line) register a function
with :func:`on_interrupt` instead. SIGTERM counts as Ctrl-C, so that service managers end a command cleanly.

A command that is interrupted has not done what was requested, so its exit code is 130, as after the second Ctrl-C: half
of a comparison does not show that the lake is equal. So it is if the reader of its output goes away; the exit code is
then 141. Both are the success only of what lasts :func:`until_interrupt`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["INTERRUPTED", "UNREAD", "Interrupts", "discard_output", "on_interrupt", "until_interrupt"]

INTERRUPTED: Final = 130
"""Exit code, as shells have it: 128 and the number of SIGINT."""
UNREAD: Final = 141
"""Exit code if nobody reads the output any more: 128 and the number of SIGPIPE."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_listeners: list[Callable[[], None]] = []


@contextlib.contextmanager
def on_interrupt(callback: Callable[[], None]) -> Iterator[None]:
    """Call ``callback`` on the first Ctrl-C within the block, instead of raising KeyboardInterrupt. It runs in the main
    thread, between any two instructions, so it should only set an event or shut down a socket.
    """
    _listeners.append(callback)
    try:
        yield
    finally:
        _listeners.remove(callback)


@contextlib.contextmanager
def until_interrupt() -> Iterator[None]:
    """Run a block that has no other end than Ctrl-C, or that nobody reads its output any more: it ends with success."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Discard stdout's buffer after its reader has gone, so that it is no error when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Interrupts:
    """Handler of the signals while the block runs; it does nothing outside the main thread."""

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
        for callback in _listeners:
            callback()


def _end_now() -> None:
    """End the process without output, except that a hidden cursor of the terminal is shown again."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\x1b[?25h\n")
    os._exit(INTERRUPTED)
