"""States of a consumer, of a group's member and of its partitions: pure tables of what follows from what.

A client acts according to its state. What came of it is an :class:`Outcome`, and :func:`decide` says what follows: the
next state, whether another relay comes next, and whether to pause before. A pair that is not in a table is a fault.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = [
    "ClientState",
    "GroupAnswer",
    "MemberEvent",
    "MemberState",
    "Outcome",
    "PartitionState",
    "Pause",
    "Transition",
    "decide",
    "decide_member",
    "decide_partition",
]


class ClientState(enum.Enum):
    """Next action of a client."""

    STARTING = enum.auto()
    """Load the checkpoint and call ``on_start_consumption``."""
    LOOKING_UP = enum.auto()
    """Look up the relay's sources."""
    CONFIRMING = enum.auto()
    """Check that the relay has the newest consumed window."""
    STREAMING = enum.auto()
    """Request events and deliver them."""
    BOOTSTRAPPING = enum.auto()
    """Request rows and events, and deliver them."""


class Outcome(enum.Enum):
    """Outcome of an action of a client."""

    LOADED = enum.auto()
    """The checkpoint is loaded, and the consumers agree."""
    KNOWN = enum.auto()
    """The relay has the sources, and the stream follows."""
    KNOWN_FOR_ROWS = enum.auto()
    """The relay has the sources, and rows come first."""
    SAME_HISTORY = enum.auto()
    """The newest consumed window is the same here."""
    ANSWERED = enum.auto()
    """The relay answered, perhaps with events."""
    WAITED = enum.auto()
    """Delivery is suspended, or the relay has not reached what is needed."""
    COMPLETE = enum.auto()
    """All rows, and the changes that belong to them, are delivered."""
    ROLLED_BACK = enum.auto()
    """A callback returned ``ERROR``, and the client is back at the checkpoint."""
    INTERRUPTED = enum.auto()
    """Posted callbacks did not begin, and the client is back at the checkpoint."""
    SILENT = enum.auto()
    """The relay sends nothing, and does not report that it is running."""
    GONE_HERE = enum.auto()
    """The relay no longer has the next event; another one may have it."""
    GONE = enum.auto()
    """No relay has the next event, and rows can be read instead."""
    LOST = enum.auto()
    """A connection that has carried answers has ended."""
    FAILED = enum.auto()
    """A transient error."""


class Pause(enum.Enum):
    """What the pause before the next action grows with."""

    NONE = enum.auto()
    FAILURES = enum.auto()
    """Consecutive failures."""
    SETBACKS = enum.auto()
    """Rollbacks, and bootstraps that begin again."""


class Transition(NamedTuple):
    """What follows from an outcome."""

    state: ClientState
    pause: Pause = Pause.NONE
    next_relay: bool = False
    """Whether to continue at the next relay."""


def _client_table() -> Mapping[tuple[ClientState, Outcome], Transition]:
    start, look_up, confirm, stream, bootstrap = ClientState
    table = {
        (start, Outcome.LOADED): Transition(look_up),
        (look_up, Outcome.KNOWN): Transition(confirm),
        (look_up, Outcome.KNOWN_FOR_ROWS): Transition(bootstrap),
        (confirm, Outcome.SAME_HISTORY): Transition(stream),
        (stream, Outcome.ANSWERED): Transition(stream),
        (stream, Outcome.GONE): Transition(bootstrap),
        (bootstrap, Outcome.ANSWERED): Transition(bootstrap),
        (bootstrap, Outcome.COMPLETE): Transition(stream),
        (bootstrap, Outcome.GONE): Transition(bootstrap, Pause.SETBACKS),
        (start, Outcome.FAILED): Transition(start, Pause.FAILURES),  # the store's failure, not the relay's
        (look_up, Outcome.FAILED): Transition(look_up, Pause.FAILURES, next_relay=True),
    }
    for state in ClientState:
        table[state, Outcome.ROLLED_BACK] = Transition(state, Pause.SETBACKS)
        table[state, Outcome.INTERRUPTED] = Transition(state)
    for state in (confirm, stream, bootstrap):
        table[state, Outcome.WAITED] = Transition(state)
        table[state, Outcome.LOST] = Transition(look_up)
        table[state, Outcome.FAILED] = Transition(look_up, Pause.FAILURES, next_relay=True)
    for state in (confirm, stream):
        table[state, Outcome.SILENT] = Transition(look_up, next_relay=True)
    for state in (stream, bootstrap):
        table[state, Outcome.GONE_HERE] = Transition(look_up, next_relay=True)
    return table


_CLIENT: Final = _client_table()


def decide(state: ClientState, outcome: Outcome) -> Transition:
    """Return what follows when a client's action in ``state`` had this outcome."""
    return _CLIENT[state, outcome]


class PartitionState(enum.Enum):
    """State of a partition of a group's member."""

    OWNED = enum.auto()
    RECLAIMED = enum.auto()
    """The client finishes its window, then the partition is released."""
    LOST = enum.auto()
    """Another member has it, or this one under a new generation: nothing is reported for it."""


class GroupAnswer(enum.Enum):
    """Answer of the group about a partition."""

    KEEP = enum.auto()
    RELEASE = enum.auto()
    NOT_YOURS = enum.auto()


_PARTITION: Final[Mapping[tuple[PartitionState, GroupAnswer], PartitionState]] = {
    (PartitionState.OWNED, GroupAnswer.KEEP): PartitionState.OWNED,
    (PartitionState.OWNED, GroupAnswer.RELEASE): PartitionState.RECLAIMED,
    (PartitionState.RECLAIMED, GroupAnswer.KEEP): PartitionState.RECLAIMED,  # its client ends already
    (PartitionState.RECLAIMED, GroupAnswer.RELEASE): PartitionState.RECLAIMED,
    **{(PartitionState.LOST, answer): PartitionState.LOST for answer in GroupAnswer},
    **{(state, GroupAnswer.NOT_YOURS): PartitionState.LOST for state in PartitionState},
}


def decide_partition(state: PartitionState, answer: GroupAnswer) -> PartitionState:
    """Return the state of a partition after the group's answer."""
    return _PARTITION[state, answer]


class MemberState(enum.Enum):
    """State of a group's member."""

    JOINED = enum.auto()
    CUT_OFF = enum.auto()
    """No relay answers: the lease runs out."""
    LEAVING = enum.auto()
    """Open windows are finished, then the partitions are released."""
    LEFT = enum.auto()


class MemberEvent(enum.Enum):
    """What happens to a member."""

    SYNCED = enum.auto()
    UNANSWERED = enum.auto()
    STOPPED = enum.auto()
    """:meth:`GroupMember.stop` was called, or there was an error."""
    RELEASED = enum.auto()
    """All partitions are released, or the time for that is over."""


_MEMBER: Final[Mapping[tuple[MemberState, MemberEvent], MemberState]] = {
    (MemberState.JOINED, MemberEvent.SYNCED): MemberState.JOINED,
    (MemberState.JOINED, MemberEvent.UNANSWERED): MemberState.CUT_OFF,
    (MemberState.JOINED, MemberEvent.STOPPED): MemberState.LEAVING,
    (MemberState.CUT_OFF, MemberEvent.SYNCED): MemberState.JOINED,
    (MemberState.CUT_OFF, MemberEvent.UNANSWERED): MemberState.CUT_OFF,
    (MemberState.CUT_OFF, MemberEvent.STOPPED): MemberState.LEAVING,
    (MemberState.LEAVING, MemberEvent.SYNCED): MemberState.LEAVING,
    (MemberState.LEAVING, MemberEvent.UNANSWERED): MemberState.LEAVING,
    (MemberState.LEAVING, MemberEvent.RELEASED): MemberState.LEFT,
}


def decide_member(state: MemberState, event: MemberEvent) -> MemberState:
    """Return the state of a member after an event."""
    return _MEMBER[state, event]
