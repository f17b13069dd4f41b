"""Reading the buffer: a cursor in the windows of one segment, and the batch that it fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from headgate.relay.databus import EOP_SIZE, fit, seal, skip
from headgate.relay.server._recent import Recent
from headgate.relay.server.events import Choice, digest_of, first_window_of, gather, gather_smaller, select

__all__ = ["EventBatch", "KeyIsNoNumberError", "SegmentCursor", "Stops"]

_CHOSEN_AT_ONCE: Final = 65_536

Stops: TypeAlias = Recent[tuple[int, int, bytes], int]
"""A window's SCN, how many of its events a reader had, and the digest of the reader's choice → the offset where it
stopped inside the window, to continue there: counting events from the window's beginning takes longer the more of it
readers have, and large windows take many reads."""


class KeyIsNoNumberError(Exception):
    """A RANGE filter met a key that is not a number."""


@dataclass
class EventBatch:
    """Events of one read, as they are in the buffer."""

    parts: list[Any]
    """uint8 arrays; valid as long as they are referenced."""
    size: int = 0
    events: int = 0
    """Data events."""
    control: int = 0
    """Control events."""
    pending: int = 0
    """Bytes of the next event, if the batch is empty because that event does not fit; else 0."""
    cut: bool = False
    """Whether the batch ends before a window with an event by a schema that its reader does not know."""

    def joined(self) -> Any:
        """Return the events one after the other, uint8[]."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate([np.zeros(0, np.uint8), *self.parts])

    def append(self, part: Any, events: int, control: int) -> None:
        """Append whole events (uint8[]), so many data events and control events."""
        self.parts.append(part)
        self.size += len(part)
        self.events += int(events)
        self.control += int(control)


@dataclass(frozen=True)
class SegmentCursor:
    """Reads whole windows of one segment: the events of ``data[begin:end]`` after those that the reader had."""

    data: Any
    """Events, uint8[]."""
    begin: int
    end: int
    had: int = 0
    """How many events from ``begin`` on the reader had: chosen ones, if it has a choice."""
    inside: int = -1
    """SCN of the window that the reader is inside, then the only one; otherwise -1."""
    stops: Stops | None = None
    """Of the buffer, if the reader is inside a window."""

    def cut_before(self, schemas: Sequence[bytes]) -> SegmentCursor:
        """Return a cursor that ends before the first window that has an event by one of these schemas (their ids). A
        window that the reader has begun stays.
        """
        if not schemas or self.had:
            return self
        ids = np.frombuffer(b"".join(schemas), np.uint8).reshape(len(schemas), -1)
        return replace(self, end=int(first_window_of(self.data, self.begin, self.end, ids)))

    def take(self, batch: EventBatch, size: int, choice: Choice | None = None) -> bool:
        """Add to ``batch`` what fits in ``size`` bytes altogether; return False if there is more.

        :param choice: only these events, and control events; None: all.
        :raises KeyIsNoNumberError: a RANGE filter met a key that is not a number.
        """
        before, digest = batch.events + batch.control, b""
        begin, skipped = self.begin, self.had
        if self.stops is not None:
            digest = b"" if choice is None else digest_of(choice)
            known = self.stops.find((self.inside, self.had, digest))
            begin, skipped = (begin, skipped) if known is None else (known, 0)
        if choice is None:
            stop, next_size = self._take_all(batch, size, begin, skipped)
        else:
            stop, next_size = self._take_chosen(batch, size, choice, begin, skipped)
        if next_size and not batch.size:
            batch.pending = next_size
        if next_size and self.stops is not None:
            self.stops.keep((self.inside, self.had + batch.events + batch.control - before, digest), stop)
        return not next_size

    def _take_all(self, batch: EventBatch, size: int, begin: int, skipped: int) -> tuple[int, int]:
        """Return where the next event begins, and its size if it does not fit, else 0."""
        begin = int(skip(self.data, begin, self.end, skipped))
        stop, events, control, next_size = fit(self.data, begin, self.end, size - batch.size)
        if stop > begin:
            batch.append(self.data[begin:stop], events, control)
        return int(stop), int(next_size)

    def _take_chosen(self, batch: EventBatch, size: int, choice: Choice, begin: int, skipped: int) -> tuple[int, int]:
        data, at, filters = self.data, begin, choice.row_filters
        starts = np.empty(min(_CHOSEN_AT_ONCE, (self.end - at) // EOP_SIZE[2] + 1), np.int64)
        while at < self.end:
            chosen, used, events, stop, next_size = select(
                data, at, self.end, size - batch.size, *choice, skipped, starts
            )
            if chosen < 0:
                raise KeyIsNoNumberError("RANGE needs integer keys; use MOD or HASH")
            if chosen:
                part = np.empty(int(used), np.uint8)
                if filters.smaller:
                    part = part[: int(gather_smaller(data, starts, chosen, filters, part))]
                    seal(part, 0, len(part))
                else:
                    gather(data, starts, chosen, part)
                batch.append(part, events, chosen - events)
            at, skipped = int(stop), 0
            if next_size:
                return at, int(next_size)
        return at, 0
