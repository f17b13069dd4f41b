"""Carries notifications to their channels: at least once, in order, and never in the stream's way.

A notification is in the ledger row of its batch; nothing is sent before that row is there, so no receiver hears of a
batch that does not count, and a receiver that looks into the lake finds what it was told of. The row is also what
keeps it: each channel has a *cursor*, the epoch of the newest batch whose notifications it has taken. The cursor is
written after they were taken. So whatever happens in between (the process is killed, the receiver is away for days)
they are found again above the cursor, in the ledger, and sent; what was sent and not noted down is sent a second time,
with the same ``event_id``.

A channel has a thread of its own, so that a slow one delays neither the stream nor the others. It tries again for as
long as the run lives, with growing pauses, and never goes on to the next batch before. What waits is kept in memory up
to a limit and beyond that in the ledger alone. Only the end of a run waits, for ``wait_seconds`` at most; what is left
then is the next run's.

A channel that was never there before begins with the batches to come.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from headgate.carrier import ControlFile
from headgate.control._events import Notification

__all__ = ["Channel", "Courier"]

log = logging.getLogger("headgate")

Sent: TypeAlias = "tuple[int, Sequence[Notification]]"
"""A batch's epoch and its notifications."""

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_KEPT = 1000
"""Batches that are kept in memory for a channel, and that are asked of the ledger at once."""


class Channel(Protocol):
    """Where notifications go."""

    name: str

    def send(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """Deliver a batch's notifications, or raise."""

    def close(self) -> None:
        """Let go of what is open; may be called more than once."""


class CursorStore(Protocol):
    """Small JSON files that survive a crash: ``headgate.carrier.ControlFolder``."""

    def read(self, name: str) -> dict[str, Any] | None:
        """The file's value; None: there is none."""

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replace the file, whole or not at all."""


class Courier:
    """Delivers while it is entered.

    :param channels: each has a name of its own.
    :param cursors: where it is noted what each channel has.
    :param load: ``(epoch, limit)``: the notifications of the oldest batches above an epoch, out of the ledger.
    :param newest: epoch of the newest batch there is; 0: none.
    :param wait_seconds: how long leaving may take.
    :param on_trouble: told, in a line, of a channel that does not take what it is sent.
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
        first_pause: float = _FIRST_PAUSE,
        kept: int = _KEPT,
    ) -> None:
        self._store, self._wait_seconds = cursors, wait_seconds
        self._lock, self._left = threading.Lock(), False
        before = cursors.read(ControlFile.NOTIFIED) or {} if channels else {}
        self._cursors = {channel.name: int(before.get(channel.name, newest)) for channel in channels}
        if channels and self._cursors != before:
            cursors.write(ControlFile.NOTIFIED, self._cursors)
        self._carriers = [
            _Carrier(
                channel,
                self._cursors[channel.name],
                load,
                self._taken,
                on_trouble,
                first_pause,
                kept,
                behind=self._cursors[channel.name] < newest,
            )
            for channel in channels
        ]

    def add(self, epoch: int, notifications: Sequence[Notification]) -> None:
        """A batch is committed. Batches come in order; one that came before is known."""
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
            self._left = True

    def _taken(self, channel: str, epoch: int) -> None:
        with self._lock:
            if not self._left:  # else the next run may be at work already, and sends it again
                self._cursors[channel] = epoch
                self._store.write(ControlFile.NOTIFIED, self._cursors)


class _Carrier:
    """One channel and its thread."""

    def __init__(
        self,
        channel: Channel,
        cursor: int,
        load: Callable[[int, int], Sequence[Sent]],
        taken: Callable[[str, int], None],
        on_trouble: Callable[[str], None],
        first_pause: float,
        kept: int,
        *,
        behind: bool,
    ) -> None:
        self._channel, self._cursor, self._load, self._taken = channel, cursor, load, taken
        self._on_trouble, self._first_pause, self._kept = on_trouble, first_pause, kept
        self._changed = threading.Condition()
        self._waiting: dict[int, Sequence[Notification]] = {}
        self._behind = behind  # whether the ledger has more than what is waiting here
        self._ending = self._given_up = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=f"headgate-{channel.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, epoch: int, notifications: Sequence[Notification]) -> None:
        with self._changed:
            if epoch <= self._cursor:
                return
            if len(self._waiting) >= self._kept:
                self._behind = True
            if not self._behind:
                self._waiting[epoch] = notifications
            self._changed.notify_all()

    def end(self) -> None:
        """Deliver what is there, then end."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the end; from ``deadline`` on (``time.monotonic``) nothing new is begun."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._given_up = True
            left = bool(self._waiting) or self._behind
            self._changed.notify_all()
        if left:
            log.warning("%s: what is not delivered is kept for the next run", self._channel.name)
        self._thread.join(0.1)  # a POST that is under way ends by its own time-out

    def _run(self) -> None:
        pause = self._first_pause
        try:
            while True:
                try:
                    found = self._next()
                    if found is None:
                        return
                    epoch, notifications = found
                    self._channel.send(epoch, notifications)
                    self._taken(self._channel.name, epoch)
                except Exception as error:  # noqa: BLE001 - whatever a channel or a file system raises is no end
                    self._tell(error)
                    if self._rest(pause):
                        return
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                self._done(epoch)
                pause = self._first_pause
        finally:
            self._channel.close()

    def _next(self) -> Sent | None:
        """The oldest batch that waits; None: the end."""
        while True:
            with self._changed:
                while not (self._waiting or self._behind or self._ending or self._given_up):
                    self._changed.wait()
                if self._given_up or not (self._waiting or self._behind):
                    return None
                if self._waiting:
                    oldest = min(self._waiting)
                    return oldest, self._waiting[oldest]
            self._catch_up()

    def _catch_up(self) -> None:
        """Ask the ledger. What is added meanwhile waits here, or is found by asking again."""
        with self._changed:
            self._behind = False
            after = self._cursor
        try:
            found = self._load(after, self._kept)
        except BaseException:
            with self._changed:
                self._behind = True
            raise
        with self._changed:
            if len(found) >= self._kept:
                self._behind = True
                self._waiting.clear()
            self._waiting |= dict(found)

    def _done(self, epoch: int) -> None:
        with self._changed:
            self._cursor = epoch
            self._waiting.pop(epoch, None)
            if self._failing:
                log.info("%s takes notifications again", self._channel.name)
            self._failing = False

    def _tell(self, error: Exception) -> None:
        if not self._failing:
            text = f"notifications to {self._channel.name} wait: {' '.join(str(error).split()) or type(error).__name__}"
            log.warning("%s", text)
            self._on_trouble(text)
        self._failing = True

    def _rest(self, seconds: float) -> bool:
        """Wait before the next try; True: there is none. The end of the run is tried for at once, then often."""
        with self._changed:
            ending = self._ending
            if ending:
                seconds = min(seconds, self._first_pause)
            self._changed.wait_for(lambda: self._given_up or self._ending != ending, seconds)
            return self._given_up
