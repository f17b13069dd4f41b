"""The events that happen to a table in a batch, and what follows from them: its state, warnings, re-read request."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from typing import Final

from headgate.carrier import DdlRow
from headgate.config import InconsistentImages
from headgate.decide.states import EventKind, follow
from headgate.errors import SchemaChangedError
from headgate.lake import SUSPENDED, State

__all__ = ["StatementOutcome", "TableCourse", "TableEvent", "remedy"]

_EXPLAINED: Final = {
    (EventKind.IS_EXACT_LATER, State.SETTLING),
    (EventKind.IS_INEXACT, State.INEXACT),
    (EventKind.IS_INEXACT, State.FILTERED),
}
"""The ledger has the reason of these events, where they lead to these states."""
_SUSPENDING: Final = {
    EventKind.STOPS: "stopped",
    EventKind.REMOVES: "dropped",
    EventKind.EXCLUDES: "excluded",
    EventKind.CHANGES: "re-read",
}
"""The events that suspend a table; the outcome of a statement that is one."""


_NO_DELETES: Final = "Kafka gets its rows, and no message for those that are gone"


@dataclass(frozen=True)
class TableEvent:
    """Something that happens to a table in a batch."""

    kind: EventKind
    reason: str | None = None
    statement: DdlRow | None = None  # of the log, if one is the cause
    is_held: bool = False  # the statement finds the table suspended
    changes: int = 0  # LEAVES_OUT: how many; 0: not counted


@dataclass(frozen=True)
class StatementOutcome:
    """The result of one statement for one table."""

    ddl: DdlRow
    done: str  # applied, re-read, held (already suspended), stopped, dropped, ignored (by setting, or no table of ours)
    reason: str | None = None


@dataclass
class TableCourse:
    """A table's events in a batch, in order. All the rest is derived from them; a batch may have many thousands, so the
    state is carried along.
    """

    table: str
    before: State
    reason_before: str | None = None  # why it was suspended, if that still holds
    strict: bool = False  # stop the table instead of reading it again
    waits: bool = False  # a full snapshot has yet to begin, so no other one is requested
    sends_messages: bool = False  # its changes go to Kafka, too
    unmasked: tuple[str, ...] = ()  # columns that have lost their mask, in this batch or before
    events: list[TableEvent] = field(default_factory=list)
    state: State = field(init=False)

    def __post_init__(self) -> None:
        self.events = [*self.events]  # a copy of the course goes its separate way
        self.state = reduce(follow, (event.kind for event in self.events), self.before)

    # --- events

    def add(self, event: TableEvent) -> None:
        """Append an event."""
        self.events.append(event)
        self.state = follow(self.state, event.kind)

    def stop(self, reason: str, statement: DdlRow | None = None) -> None:
        """Suspend the table until a user requests a re-read."""
        self.add(TableEvent(EventKind.STOPS, reason, statement))

    def read_again(self, reason: str, statement: DdlRow | None = None) -> None:
        """Suspend the table and request a re-read. Under ``strict``: stop it."""
        if self.strict:
            self.stop(f"{reason}; {remedy(self.table)}", statement)
        else:
            self.add(TableEvent(EventKind.CHANGES, reason, statement))

    def contradict(self, reason: str, choice: InconsistentImages) -> None:
        """Suspend the table because of images that contradict its definition, as the configuration says.

        ``skip``: they cannot be left out, because chunks contradict it, or a statement changed it, too.

        :raises SchemaChangedError: that ends the run.
        """
        match choice:
            case "reread":
                self.add(TableEvent(EventKind.CHANGES, reason))
            case "stop":
                self.stop(f"{reason}; {remedy(self.table)}")
            case "fail":
                raise SchemaChangedError(
                    f'{reason}, and inconsistent_images is "fail": set "reread", "stop" or "skip" in'
                    f' [tables."{self.table}"], then start again',
                    table=self.table,
                )
            case "skip":
                self.read_again(reason)

    # --- what follows from them

    @property
    def is_suspended(self) -> bool:
        return self.state in SUSPENDED

    @property
    def stays_stopped(self) -> bool:
        """Whether the table was stopped before the batch, and after each of its events."""
        kinds = (event.kind for event in self.events)
        return all(state is State.STOPPED for state in accumulate(kinds, follow, initial=self.before))

    @property
    def suspended_state(self) -> State | None:
        """The table's suspended state, now or before the batch; None: it is not suspended."""
        return next((state for state in (self.state, self.before) if state in SUSPENDED), None)

    @property
    def reason(self) -> str | None:
        """Why the table is in its state, for the ledger."""
        if self.is_suspended:
            cause = self._cause
            return _waiting(cause) if cause is not None else self.reason_before
        last = self.events[-1] if self.events else None
        return last.reason if last is not None and (last.kind, self.state) in _EXPLAINED else None

    @property
    def reread_reason(self) -> str | None:
        """Why the table must be read again, if the batch is the cause and no snapshot of it waits."""
        cause = self._cause
        return cause.reason if cause is not None and cause.kind is EventKind.CHANGES and not self.waits else None

    @property
    def left_out(self) -> list[TableEvent]:
        return [event for event in self.events if event.kind is EventKind.LEAVES_OUT]

    @property
    def outcomes(self) -> tuple[StatementOutcome, ...]:
        """The outcomes of the batch's statements. A table that is suspended later does not follow them."""
        kinds = [event.kind for event in self.events]
        begins = kinds.index(EventKind.BEGINS) if EventKind.BEGINS in kinds else -1
        reason = self.reason
        return tuple(
            self._outcome(event, event.statement, reason, is_read=number < begins)
            for number, event in enumerate(self.events)
            if event.statement is not None
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What users must know of images that are left out, and of a change of the table's state."""
        texts = [f"{self.table}: left out {one.changes or 'some'} changes: {one.reason}" for one in self.left_out]
        if self.state is State.STOPPED and self.reason != self.reason_before:
            texts.append(f"{self.table} is stopped: {self.reason}")
        if self.state is State.DROPPED and self.before is not State.DROPPED:
            texts.append(f"{self.table} is dropped, and its rows stay: {self.reason}")
        if self.reread_reason is not None:
            gone = f"; {_NO_DELETES}" if self.sends_messages else ""
            texts.append(f"{self.table} is read again: {self.reread_reason}{gone}")
        if self.state is State.INEXACT and self.before is not State.INEXACT:
            texts.append(f"{self.table} is inexact: {self.reason}")
        return tuple(texts)

    @property
    def _cause(self) -> TableEvent | None:
        """The event of this batch that suspends the table; None: there is none, or its suspension ended since."""
        for event in reversed(self.events):
            if event.kind in _SUSPENDING:
                return event
            if event.kind in (EventKind.ENDS_SUSPENSION, EventKind.BEGINS):
                return None
        return None

    def _outcome(self, event: TableEvent, ddl: DdlRow, reason: str | None, *, is_read: bool) -> StatementOutcome:
        """:param reason: why the table is in its state.
        :param is_read: a snapshot that begins later in the batch shows what the statement did.
        """
        is_undone = self.is_suspended and not event.is_held
        if is_undone and (event.kind is EventKind.IGNORES or (event.kind is EventKind.ALTERS and not is_read)):
            return StatementOutcome(ddl, "re-read" if self.state is State.STALE else self.state.value, reason)
        if event.kind is EventKind.IGNORES and not event.is_held:
            return StatementOutcome(ddl, "ignored", event.reason)
        if is_read:
            return StatementOutcome(ddl, "applied", "the table is read in this batch")
        if event.is_held:
            return StatementOutcome(ddl, "held", event.reason)
        return StatementOutcome(ddl, _SUSPENDING.get(event.kind, "applied"), _waiting(event))


def _waiting(event: TableEvent) -> str | None:
    """Return an event's reason; of a table that is read again, that it waits for that."""
    return f"{event.reason}; waits to be read again" if event.kind is EventKind.CHANGES else event.reason


def remedy(table: str) -> str:
    """Return how a user requests a re-read."""
    return f"read the table again with: headgate run --resnapshot '{table}'"
