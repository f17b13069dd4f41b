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
    """The one place where a table is held or freed.

    :param strict: stop the table where it would be read again.
    :param reason: why it is held, if it is.
    :param reread: why the planner is asked to read it again, if it is.
    """

    table: str
    strict: bool
    state: State
    reason: str | None = None
    reread: str | None = None
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

    def note(self, ddl: DdlRow, done: str) -> None:
        """Write down what came of a statement."""
        self.outcomes.append(Outcome(ddl, done))

    def note_hold(self, ddl: DdlRow) -> None:
        """Write down that a statement has held the table, and why."""
        self.outcomes.append(Outcome(ddl, self.state.value, self.reason))

    def settle(self) -> None:
        """Let a reading that begins settle all that the batch's log has done."""
        self.meet(Event.BEGINS)
        self.outcomes = [
            Outcome(outcome.ddl, "applied", "the table is read in this batch") for outcome in self.outcomes
        ]

    def tell(self, before: str | None, adds: Container[DdlRow] = ()) -> None:
        """Warn of a hold, and put each statement's outcome into the history's words.

        :param before: why the table was stopped before the batch, if it was and was not freed.
        :param adds: the statements that added columns, which came to nothing if the table is held.
        """
        self.outcomes = [self._spelled(outcome, adds) for outcome in self.outcomes]
        if self.state is State.STOPPED and self.reason != before:
            self.warnings.append(f"{self.table} is stopped: {self.reason}")
        if self.reread is not None:
            self.warnings.append(f"{self.table} is read again: {self.reread}")

    def _spelled(self, outcome: Outcome, adds: Container[DdlRow]) -> Outcome:
        done, reason = outcome.done, outcome.reason
        if done == "applied" and self.held and outcome.ddl in adds:
            done, reason = self.state.value, self.reason
        return Outcome(outcome.ddl, "re-read" if done == State.STALE else done, reason)


def remedy(table: str) -> str:
    """How a user has a table read again."""
    return f"read the table again with: headgate run --resnapshot '{table}'"
