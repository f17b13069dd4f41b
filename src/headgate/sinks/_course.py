"""A table's course through one batch: the state it is in so far, and what people will be told of it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from headgate.carrier import DdlRow
from headgate.sinks._states import HELD, Event, State, follow

__all__ = ["Course", "Outcome", "remedy"]


@dataclass(frozen=True)
class Outcome:
    """What came of one statement for one table."""

    ddl: DdlRow
    done: str  # applied, re-read, held (the table was held already), stopped, ignored (not a table of ours)
    reason: str | None = None


@dataclass
class Course:
    """The one place where a table is held or freed."""

    table: str
    strict: bool  # stop the table where it would be read again
    state: State
    reason: str | None = None  # why it is held, if it is
    reread: str | None = None  # why the planner is asked to read it again, if it is
    outcomes: list[Outcome] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return self.state in HELD

    def meet(self, event: Event) -> None:
        """Go on to the state after ``event``."""
        self.state = follow(self.state, event)
        if not self.held:
            self.reason = self.reread = None

    def stop(self, reason: str) -> None:
        """Hold the table until a user has it read again."""
        self.meet(Event.STOPS)
        self.reason, self.reread = reason, None

    def read_again(self, reason: str) -> None:
        """Hold the table and ask for it to be read again. Under ``strict``: stop it."""
        if self.strict:
            self.stop(f"{reason}; {remedy(self.table)}")
        else:
            self.meet(Event.CHANGES)
            self.reason, self.reread = f"{reason}; waits to be read again", reason

    def settle(self) -> None:
        """Let a reading that begins settle all that the batch's log has done."""
        self.meet(Event.BEGINS)
        self.outcomes = [Outcome(found.ddl, "applied", "the table is read in this batch") for found in self.outcomes]

    def note(self, ddl: DdlRow, done: str) -> None:
        """Write down what came of a statement."""
        self.outcomes.append(Outcome(ddl, done))

    def note_hold(self, ddl: DdlRow) -> None:
        """Write down that a statement has held the table, and why."""
        self.outcomes.append(self._held_by(ddl))

    def tell(self, before: str | None, adds: Container[DdlRow] = ()) -> None:
        """Warn of a hold.

        :param before: why the table was stopped before the batch, if it was and was not freed.
        :param adds: the statements that added columns; these come to nothing if the table is held.
        """
        if self.held:
            self.outcomes = [
                self._held_by(found.ddl) if found.done == "applied" and found.ddl in adds else found
                for found in self.outcomes
            ]
        if self.state is State.STOPPED and self.reason != before:
            self.warnings.append(f"{self.table} is stopped: {self.reason}")
        if self.reread is not None:
            self.warnings.append(f"{self.table} is read again: {self.reread}")

    def _held_by(self, ddl: DdlRow) -> Outcome:
        return Outcome(ddl, "re-read" if self.state is State.STALE else self.state.value, self.reason)


def remedy(table: str) -> str:
    """How a user has a table read again."""
    return f"read the table again with: headgate run --resnapshot '{table}'"
