"""The states of a table, and the events of a batch that move it from one to another.

A batch brings a table some events, in the order of :class:`Event` (but ``STOPS`` and ``CHANGES`` also after ``BEGINS``:
what no reading settles). The state after the last one goes to the ledger. Nothing but ``FREES`` and ``BEGINS`` ends a
hold. So rows of a held table are left out until all of it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Final

__all__ = ["HELD", "TRANSITIONS", "Event", "State", "follow"]


class State(StrEnum):
    """A table's state, by the name that the ledger stores; ``lake.TableState`` says what the table then holds."""

    NEW = "new"  # the ledger has no such table; no ledger row holds this
    SNAPSHOTTING = "snapshotting"
    SETTLING = "settling"
    LIVE = "live"
    INEXACT = "inexact"
    FILTERED = "filtered"
    STALE = "stale"
    STOPPED = "stopped"


class Event(Enum):
    """What a batch brings for a table."""

    FREES = auto()  # rows of a reading that began after the hold, or the end of one that found none
    STOPS = auto()  # something that only a user can settle
    CHANGES = auto()  # rows that the log does not show, or columns that do not fit: read the table again
    BEGINS = auto()  # first rows of a reading of all rows: exact at the batch's end, whatever its log has done
    FOLLOWS = auto()  # the header: no reading of this table
    READS = auto()  # the header: a reading of all rows runs or waits
    READS_SOME = auto()  # the header: a partial reading, of rows that fulfil a signal's condition
    ENDS = auto()  # last rows of a reading of all rows
    ENDS_FILTERED = auto()  # last rows of a reading of those that fulfil the table's own condition
    IS_EXACT = auto()  # the promises (``_promises``), of tables that are not held
    IS_EXACT_LATER = auto()  # ... some rows are newer than the batch's end, or missing
    IS_UNLOGGED = auto()  # ... rows change without images, which the configuration accepts


HELD: Final = frozenset({State.STALE, State.STOPPED})
"""Tables that take no images."""

_FOLLOWED: Final = (State.SETTLING, State.LIVE, State.INEXACT)
_KEEP: Final[Mapping[State, State]] = {state: state for state in State if state is not State.NEW}
_KEEP_HELD: Final[Mapping[State, State]] = {state: state for state in HELD}
_KEEP_INCOMPLETE: Final[Mapping[State, State]] = {state: state for state in (State.SNAPSHOTTING, State.FILTERED)}

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
    Event.IS_EXACT_LATER: {**dict.fromkeys(_FOLLOWED, State.SETTLING), **_KEEP_INCOMPLETE},
    Event.IS_UNLOGGED: {**dict.fromkeys(_FOLLOWED, State.INEXACT), **_KEEP_INCOMPLETE},
}
"""Event → state before → state after. A pair that is missing cannot happen."""


def follow(state: State, event: Event) -> State:
    """The state after an event.

    :raises RuntimeError: this event cannot come to a table in this state.
    """
    after = TRANSITIONS[event].get(state)
    if after is None:
        raise RuntimeError(f"event {event.name} came to a table in state {state}")
    return after
