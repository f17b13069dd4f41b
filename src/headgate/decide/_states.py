"""The states of a table, and the events of a batch that change them.

A batch brings a table its events in the order of :class:`TableEvent`. Exception: ``STOPS`` and ``CHANGES`` also come
after ``BEGINS``, for causes that the snapshot does not settle. The state after the last event goes to the ledger. Only
``ENDS_SUSPENSION`` and ``BEGINS`` end a suspension. So rows of a suspended table are left out until all of it is read
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Final

__all__ = ["COMPLETE", "SUSPENDED", "TRANSITIONS", "State", "TableEvent", "follow"]


class State(StrEnum):
    """A table's state, by the name in the ledger; ``lake.TableState`` describes what the table then holds."""

    NEW = "new"  # the ledger has no such table; never stored
    SNAPSHOTTING = "snapshotting"
    SETTLING = "settling"
    LIVE = "live"
    INEXACT = "inexact"
    FILTERED = "filtered"
    STALE = "stale"
    STOPPED = "stopped"


class TableEvent(Enum):
    """What a batch brings for a table."""

    ENDS_SUSPENSION = auto()  # rows of a snapshot that began after the suspension, or the end of an empty one
    STOPS = auto()  # a problem that only a user can settle
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


SUSPENDED: Final = frozenset({State.STALE, State.STOPPED})
"""Suspended tables: they take no images."""
COMPLETE: Final = frozenset({State.LIVE, State.INEXACT, State.FILTERED})
"""Tables that were read, and have every change of the log since: what is shown to readers in place of an older one."""

_FOLLOWED: Final = (State.SETTLING, State.LIVE, State.INEXACT)
_KEEP: Final[Mapping[State, State]] = {state: state for state in State if state is not State.NEW}
_KEEP_SUSPENDED: Final[Mapping[State, State]] = {state: state for state in SUSPENDED}
_KEEP_INCOMPLETE: Final[Mapping[State, State]] = {state: state for state in (State.SNAPSHOTTING, State.FILTERED)}

TRANSITIONS: Final[Mapping[TableEvent, Mapping[State, State]]] = {
    TableEvent.ENDS_SUSPENSION: dict.fromkeys(SUSPENDED, State.SNAPSHOTTING),
    TableEvent.STOPS: dict.fromkeys(State, State.STOPPED),
    TableEvent.CHANGES: dict.fromkeys(State, State.STALE),
    TableEvent.BEGINS: dict.fromkeys(State, State.SNAPSHOTTING),
    TableEvent.FOLLOWS: {**_KEEP, State.NEW: State.LIVE},
    TableEvent.READS: {**dict.fromkeys(State, State.SNAPSHOTTING), **_KEEP_SUSPENDED},
    TableEvent.READS_SOME: {**_KEEP, State.NEW: State.SNAPSHOTTING},
    TableEvent.ENDS: {State.SNAPSHOTTING: State.LIVE, **_KEEP_SUSPENDED},
    TableEvent.ENDS_FILTERED: {State.SNAPSHOTTING: State.FILTERED, **_KEEP_SUSPENDED},
    TableEvent.IS_EXACT: {**dict.fromkeys(_FOLLOWED, State.LIVE), **_KEEP_INCOMPLETE},
    TableEvent.IS_EXACT_LATER: {**dict.fromkeys(_FOLLOWED, State.SETTLING), **_KEEP_INCOMPLETE},
    TableEvent.IS_INEXACT: {**dict.fromkeys(_FOLLOWED, State.INEXACT), **_KEEP_INCOMPLETE},
}
"""Event → state before → state after. A missing pair cannot happen."""


def follow(state: State, event: TableEvent) -> State:
    """Return the state after an event.

    :raises RuntimeError: this event cannot happen in this state.
    """
    after = TRANSITIONS[event].get(state)
    if after is None:
        raise RuntimeError(f"event {event.name} came to a table in state {state}")
    return after
