"""The events of a batch that change a table's state (``lake.State``), and the transitions.

A batch brings a table its events in the order of :class:`EventKind`. Exceptions: statements come in log order, and
``LEAVES_OUT``, ``STOPS``, ``EXCLUDES`` and ``CHANGES`` also come after ``BEGINS``, for causes that the snapshot does
not settle. The state after the last event goes to the ledger. Only ``ENDS_SUSPENSION`` and ``BEGINS`` end a suspension.
So rows of a suspended table are left out until all of it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from headgate.lake import SUSPENDED, State

__all__ = ["COMPLETE", "TRANSITIONS", "EventKind", "follow"]


class EventKind(Enum):
    """What happens to a table in a batch."""

    ENDS_SUSPENSION = auto()  # rows of a snapshot that began after the suspension, or the end of an empty one
    STATEMENT = auto()  # a statement that neither suspends the table nor alters its columns
    ALTERS = auto()  # an ALTER whose changes of columns the table follows
    IGNORES = auto()  # an ALTER whose changes of columns the table ignores, all of them
    LEAVES_OUT = auto()  # images that contradict the table are left out, which the configuration accepts
    STOPS = auto()  # a problem that only a user can settle
    REMOVES = auto()  # a statement that drops the table, or gives it another name
    EXCLUDES = auto()  # the configuration leaves it out
    CHANGES = auto()  # rows that the log does not show, or columns that do not fit: read the table again
    BEGINS = auto()  # first rows of a full snapshot: exact at the batch's end, whatever the log did
    FOLLOWS = auto()  # the header: no snapshot of this table
    READS = auto()  # the header: a full snapshot runs or waits
    READS_SOME = auto()  # the header: a partial snapshot, of rows that fulfil a signal's condition
    ENDS = auto()  # last rows of a full snapshot
    ENDS_FILTERED = auto()  # last rows of a full snapshot under the table's own condition
    IS_EXACT = auto()  # the promises (``_ledger_state``), of tables that are not suspended
    IS_EXACT_LATER = auto()  # ... some rows are newer than the batch's end, or missing
    IS_INEXACT = auto()  # ... rows change without images, or images are left out, which the configuration accepts


COMPLETE: Final = frozenset({State.LIVE, State.INEXACT, State.FILTERED})
"""Tables that were read, and have every change of the log since: what is shown to readers in place of an older one."""

_FOLLOWED: Final = (State.SETTLING, State.LIVE, State.INEXACT)
_UNCHANGED: Final[Mapping[State, State]] = {state: state for state in State}
_KEEP: Final[Mapping[State, State]] = {state: state for state in State if state is not State.NEW}
_KEEP_SUSPENDED: Final[Mapping[State, State]] = {state: state for state in SUSPENDED}
_KEEP_INCOMPLETE: Final[Mapping[State, State]] = {state: state for state in (State.SNAPSHOTTING, State.FILTERED)}

TRANSITIONS: Final[Mapping[EventKind, Mapping[State, State]]] = {
    EventKind.ENDS_SUSPENSION: dict.fromkeys(SUSPENDED, State.SNAPSHOTTING),
    EventKind.STATEMENT: _UNCHANGED,
    EventKind.ALTERS: _UNCHANGED,
    EventKind.IGNORES: _UNCHANGED,
    EventKind.LEAVES_OUT: _UNCHANGED,
    EventKind.STOPS: dict.fromkeys(State, State.STOPPED),
    EventKind.REMOVES: dict.fromkeys(State, State.DROPPED),
    EventKind.EXCLUDES: dict.fromkeys(State, State.EXCLUDED),
    EventKind.CHANGES: dict.fromkeys(State, State.STALE),
    EventKind.BEGINS: dict.fromkeys(State, State.SNAPSHOTTING),
    EventKind.FOLLOWS: {**_KEEP, State.NEW: State.LIVE},
    EventKind.READS: {**dict.fromkeys(State, State.SNAPSHOTTING), **_KEEP_SUSPENDED},
    EventKind.READS_SOME: {**_KEEP, State.NEW: State.SNAPSHOTTING},
    EventKind.ENDS: {State.SNAPSHOTTING: State.LIVE, **_KEEP_SUSPENDED},
    EventKind.ENDS_FILTERED: {State.SNAPSHOTTING: State.FILTERED, **_KEEP_SUSPENDED},
    EventKind.IS_EXACT: {**dict.fromkeys(_FOLLOWED, State.LIVE), **_KEEP_INCOMPLETE},
    EventKind.IS_EXACT_LATER: {**dict.fromkeys(_FOLLOWED, State.SETTLING), **_KEEP_INCOMPLETE},
    EventKind.IS_INEXACT: {**dict.fromkeys(_FOLLOWED, State.INEXACT), **_KEEP_INCOMPLETE},
}
"""Event → state before → state after. A missing pair cannot happen."""


def follow(state: State, event: EventKind) -> State:
    """Return the state after an event.

    :raises RuntimeError: this event cannot happen in this state.
    """
    after = TRANSITIONS[event].get(state)
    if after is None:
        raise RuntimeError(f"event {event.name} came to a table in state {state}")
    return after
