"""The states of a table and the events of a batch that move it from one to another.

A batch brings each table some of these events, in this order. The state after the last one goes to the ledger.

| events | from |
|---|---|
| ``FREES`` | the reading: it frees a held table |
| ``STOPS``, ``CHANGES`` | the log: images that nobody can read, statements |
| ``BEGINS`` | the reading: it settles what the log of this batch has done |
| ``STOPS``, ``CHANGES`` | everything else: unread chunks, changes without images, columns that do not fit |
| ``FOLLOWS``, ``READS`` or ``READS_SOME`` | the header |
| ``ENDS`` or ``ENDS_FILTERED`` | the reading: its last rows are here |
| ``IS_EXACT``, ``IS_EARLY`` or ``IS_UNLOGGED`` | the promises (``_promises``); not if the table is held |

Nothing but ``FREES`` and ``BEGINS`` ends a hold. So rows of a held table are left out until all of it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Final

__all__ = ["HELD", "TRANSITIONS", "Event", "State", "follow"]


class State(StrEnum):
    """A table's state, by the name that the ledger stores; ``lake.TableState`` says what the table then holds."""

    NEW = "new"
    """The ledger has no such table. No ledger row holds this."""
    SNAPSHOTTING = "snapshotting"
    SETTLING = "settling"
    LIVE = "live"
    INEXACT = "inexact"
    FILTERED = "filtered"
    STALE = "stale"
    STOPPED = "stopped"


class Event(Enum):
    """What a batch brings for a table."""

    FREES = auto()
    """Rows of a reading that began after the hold, or the end of one that found none."""
    STOPS = auto()
    """Something that only a user can settle."""
    CHANGES = auto()
    """Rows that the log does not show, or columns that do not fit: the table has to be read again."""
    BEGINS = auto()
    """The first rows of a reading of all rows: they are exact at the batch's end, whatever its log has done."""
    FOLLOWS = auto()
    """No reading of this table."""
    READS = auto()
    """A reading of all rows runs or waits."""
    READS_SOME = auto()
    """A partial reading: rows that fulfil a signal's condition."""
    ENDS = auto()
    """The last rows of a reading of all rows."""
    ENDS_FILTERED = auto()
    """The last rows of a reading of those that fulfil the table's own condition."""
    IS_EXACT = auto()
    IS_EARLY = auto()
    """Some rows are newer than the batch's end, or missing."""
    IS_UNLOGGED = auto()
    """Rows change without images, which the configuration accepts."""


HELD: Final = frozenset({State.STALE, State.STOPPED})
"""Tables that take no images."""

_KEEP: Final[Mapping[State, State]] = {state: state for state in State if state is not State.NEW}
_KEEP_HELD: Final[Mapping[State, State]] = {state: state for state in HELD}
_KEEP_INCOMPLETE: Final[Mapping[State, State]] = {state: state for state in (State.SNAPSHOTTING, State.FILTERED)}
_FOLLOWED: Final = (State.SETTLING, State.LIVE, State.INEXACT)

TRANSITIONS: Final[Mapping[Event, Mapping[State, State]]] = {
    Event.FREES: dict.fromkeys(HELD, State.SNAPSHOTTING),
    Event.STOPS: dict.fromkeys(State, State.STOPPED),
    Event.CHANGES: dict.fromkeys(State, State.STALE),
    Event.BEGINS: dict.fromkeys(State, State.SNAPSHOTTING),
    Event.FOLLOWS: {**_KEEP, State.NEW: State.LIVE},
    Event.READS: {**dict.fromkeys(State, State.SNAPSHOTTING), **_KEEP_HELD},
    Event.READS_SOME: {**_KEEP, State.NEW: State.SNAPSHOTTING},
    Event.ENDS: {State.SNAPSHOTTING: State.LIVE, **_KEEP_HELD},
    Event.ENDS_FILTERED: {State.SNAPSHOTTING: State.FILTERED, **_KEEP_HELD},
    Event.IS_EXACT: {**dict.fromkeys(_FOLLOWED, State.LIVE), **_KEEP_INCOMPLETE},
    Event.IS_EARLY: {**dict.fromkeys(_FOLLOWED, State.SETTLING), **_KEEP_INCOMPLETE},
    Event.IS_UNLOGGED: {**dict.fromkeys(_FOLLOWED, State.INEXACT), **_KEEP_INCOMPLETE},
}
"""Event → state before → state after. A pair that is missing cannot happen."""


def follow(state: State, event: Event) -> State:
    """The state after an event.

    :raises RuntimeError: this event cannot come to a table in this state.
    """
    try:
        return TRANSITIONS[event][state]
    except KeyError:
        raise RuntimeError(f"event {event.name} came to a table in state {state}") from None
