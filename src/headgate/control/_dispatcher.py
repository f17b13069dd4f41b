"""Delivery of notifications to their channels: at least once, in order, without delaying the stream.

A notification is stored in the ledger row of its batch and sent only after that row is committed. So no receiver learns
of an uncommitted batch, and a receiver that looks into the lake finds what the notification describes. Each channel has
a *cursor*: the epoch of the newest batch whose notifications it has accepted. The cursor is written after that. If the
process is killed or the receiver is away for days, the ledger still has the batches above the cursor, and they are
sent. Notifications that were sent before the cursor was written are sent a second time, with the same ``event_id``.

Each channel has a thread, so that a slow one delays neither the stream nor the others. It retries a batch as long as
the run lives, with growing pauses, before it sends the next one. Waiting batches are kept in memory up to a limit, and
beyond it only in the ledger. Only the end of a run waits, for ``wait_seconds`` at most. The next run sends the rest.

A new channel begins with future batches.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

from headgate.carrier import ControlFile
from headgate.control._events import Notification
from headgate.retrying import Failures, RetryPolicy

__all__ = ["Channel", "NotificationDispatcher"]

log = logging.getLogger("headgate")

Sent: TypeAlias = "tuple[int, Sequence[Notification]]"
"""A batch's epoch and its notifications."""

_RETRY: Final = RetryPolicy(1.0, longest_seconds=60.0, jitter=0.0)
_MEMORY_BATCHES = 1000
"""Batches that are kept in memory for a channel, and that one query of the ledger loads at most."""


class Channel(Protocol):
    """Receiver of notifications."""

    name: str

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Deliver a batch's notifications, or raise."""

    def close(self) -> None:
        """Release resources. May be called more than once."""


class CursorStore(Protocol):
    """Small JSON files that survive a crash: ``headgate.carrier.ControlFolder``."""

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the file's value, or None if the file does not exist."""

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replace the file atomically."""


class NotificationDispatcher:
    """Sender of notifications to channels while its ``with`` block runs.

    :param channels: each with a unique name.
    :param cursors: stores the channels' cursors.
    :param load: ``(epoch, limit)``: the notifications of the oldest batches above an epoch, from the ledger.
    :param newest: epoch of the newest batch; 0 if there is none.
    :param wait_seconds: longest wait for undelivered notifications at exit.
    :param on_trouble: called with one line of text when a channel begins to fail.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        cursors: CursorStore,
        load: Callable[[int, int], Sequence[Sent]],
        *,
        newest: int,
        wait_seconds: float,
        on_trouble: Callable[[str], None] = lambda _text: None,
        retry: RetryPolicy = _RETRY,
        memory_batches: int = _MEMORY_BATCHES,
    ) -> None:
        self._store, self._wait_seconds = cursors, wait_seconds
        self._lock, self._has_exited = threading.Lock(), False
        before = cursors.read(ControlFile.NOTIFIED) or {} if channels else {}
        # A cursor above the newest batch is of another ledger, which this one has replaced.
        self._cursors = {channel.name: min(int(before.get(channel.name, newest)), newest) for channel in channels}
        if channels and self._cursors != before:
            cursors.write(ControlFile.NOTIFIED, self._cursors)
        self._carriers = [
            NotificationCarrier(
                channel,
                self._cursors[channel.name],
                load,
                self._advance_cursor,
                on_trouble,
                retry,
                memory_batches,
                behind=self._cursors[channel.name] < newest,
            )
            for channel in channels
        ]

    def add(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Queue the notifications of a committed batch. Batches come in order; a repeated one is ignored."""
        if notifications:
            for carrier in self._carriers:
                carrier.add(epoch, notifications)

    def __enter__(self) -> Self:
        for carrier in self._carriers:
            carrier.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadline = time.monotonic() + self._wait_seconds
        for carrier in self._carriers:
            carrier.end()
        for carrier in self._carriers:
            carrier.join(deadline)
        with self._lock:
            self._has_exited = True

    def _advance_cursor(self, channel: str, epoch: int) -> None:
        with self._lock:
            if not self._has_exited:  # after exit the next run may be active, and sends it again
                self._cursors[channel] = epoch
                self._store.write(ControlFile.NOTIFIED, self._cursors)


class NotificationCarrier:
    """One channel's thread and queue."""

    def __init__(
        self,
        channel: Channel,
        cursor: int,
        load: Callable[[int, int], Sequence[Sent]],
        advance_cursor: Callable[[str, int], None],
        on_trouble: Callable[[str], None],
        retry: RetryPolicy,
        memory_batches: int,
        *,
        behind: bool,
    ) -> None:
        self._channel, self._cursor, self._load, self._advance_cursor = channel, cursor, load, advance_cursor
        self._on_trouble, self._failures, self._memory_batches = on_trouble, Failures(retry), memory_batches
        self._changed = threading.Condition()
        self._waiting: dict[int, Sequence[Notification]] = {}
        self._behind = behind  # whether the ledger has batches that are not in _waiting
        self._ending = self._abandoned = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=f"headgate-{channel.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, epoch: int, notifications: Sequence[Notification]) -> None:
        with self._changed:
            if epoch <= self._cursor:
                return
            if len(self._waiting) >= self._memory_batches:
                self._behind = True
            if not self._behind:
                self._waiting[epoch] = notifications
            self._changed.notify_all()

    def end(self) -> None:
        """Deliver all waiting batches, then end the thread."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the thread to end. From ``deadline`` (``time.monotonic``) on, start no new delivery."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._abandoned = True
            is_undelivered = bool(self._waiting) or self._behind
            self._changed.notify_all()
        if is_undelivered:
            log.warning("%s: undelivered notifications are kept for the next run", self._channel.name)
        self._thread.join(0.1)  # a running POST ends at its time-out

    def _run(self) -> None:
        try:
            while True:
                try:
                    batch = self._next()
                    if batch is None:
                        return
                    epoch, notifications = batch
                    self._channel.send(epoch, notifications)
                    self._advance_cursor(self._channel.name, epoch)
                except Exception as error:  # noqa: BLE001 - no error of a channel or file system ends the thread
                    self._warn(error)
                    if self._pause(self._failures.pause()):
                        return
                    continue
                self._done(epoch)
                self._failures.clear()
        finally:
            self._channel.close()

    def _next(self) -> Sent | None:
        """Return the oldest waiting batch, or None at the end."""
        while True:
            with self._changed:
                while not (self._waiting or self._behind or self._ending or self._abandoned):
                    self._changed.wait()
                if self._abandoned or not (self._waiting or self._behind):
                    return None
                if self._waiting:
                    oldest = min(self._waiting)
                    return oldest, self._waiting[oldest]
            self._catch_up()

    def _catch_up(self) -> None:
        """Load batches from the ledger. Batches added meanwhile are queued here, or the next load finds them."""
        with self._changed:
            self._behind = False
            after = self._cursor
        try:
            batches = self._load(after, self._memory_batches)
        except BaseException:
            with self._changed:
                self._behind = True
                self._waiting.clear()  # they would overtake what the ledger has; the next load finds them, too
            raise
        with self._changed:
            if len(batches) >= self._memory_batches:
                self._behind = True
                self._waiting.clear()
            self._waiting |= dict(batches)

    def _done(self, epoch: int) -> None:
        with self._changed:
            self._cursor = epoch
            self._waiting.pop(epoch, None)
            if self._failing:
                log.info("%s accepts notifications again", self._channel.name)
            self._failing = False

    def _warn(self, error: Exception) -> None:
        if not self._failing:
            text = (
                f"notifications to {self._channel.name} are delayed:"
                f" {' '.join(str(error).split()) or type(error).__name__}"
            )
            log.warning("%s", text)
            self._on_trouble(text)
        self._failing = True

    def _pause(self, seconds: float) -> bool:
        """Wait before the next try; return whether to give up. At the end of the run, retry at once, then often."""
        with self._changed:
            ending = self._ending
            if ending:
                seconds = min(seconds, self._failures.policy.first_seconds)
            self._changed.wait_for(lambda: self._abandoned or self._ending != ending, seconds)
            return self._abandoned
