"""A table's course through one batch: its state so far, and the warnings for users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.carrier import DdlRow
from headgate.config import InconsistentImages
from headgate.errors import SchemaChangedError
from headgate.sinks._states import SUSPENDED, Event, State, follow

__all__ = ["Outcome", "TableCourse", "remedy"]


@dataclass(frozen=True)
class Outcome:
    """The result of one statement for one table."""

    ddl: DdlRow
    done: str  # applied, re-read, held (already suspended), stopped, ignored (by setting, or not a table of ours)
    reason: str | None = None


@dataclass
class TableCourse:
    """A table's state during a batch; the only place that begins or ends a suspension."""

    table: str
    strict: bool  # stop the table instead of reading it again
    state: State
    reason: str | None = None  # why it is suspended, if it is
    reread: str | None = None  # why a re-read is requested, if it is
    left_out: str | None = None  # why images of the batch are left out, if some are
    left_out_changes: int = 0  # how many, as far as they are counted
    outcomes: list[Outcome] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_suspended(self) -> bool:
        return self.state in SUSPENDED

    def apply_event(self, event: Event) -> None:
        """Change to the state after ``event``."""
        self.state = follow(self.state, event)
        if not self.is_suspended:
            self.reason = self.reread = None

    def stop(self, reason: str) -> None:
        """Suspend the table until a user requests a re-read."""
        self.apply_event(Event.STOPS)
        self.reason, self.reread = reason, None

    def read_again(self, reason: str) -> None:
        """Suspend the table and request a re-read. Under ``strict``: stop it."""
        if self.strict:
            self.stop(f"{reason}; {remedy(self.table)}")
        else:
            self._wait_for_reread(reason)

    def meet_inconsistency(self, reason: str, choice: InconsistentImages) -> None:
        """Suspend the table because of images that contradict its definition, as the configuration says.

        ``skip``: they cannot be left out, because chunks contradict it, or a statement changed it, too.

        :raises SchemaChangedError: that ends the run.
        """
        match choice:
            case "reread":
                self._wait_for_reread(reason)
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

    def leave_out(self, reason: str, changes: int = 0) -> None:
        """Leave images of the batch out, with a warning.

        :param changes: how many, as far as they are counted.
        """
        self.left_out, self.left_out_changes = self.left_out or reason, self.left_out_changes + changes
        self.warnings.append(f"{self.table}: left out {changes or 'some'} changes: {reason}")

    def _wait_for_reread(self, reason: str) -> None:
        self.apply_event(Event.CHANGES)
        self.reason, self.reread = f"{reason}; waits to be read again", reason

    def begin_snapshot(self) -> None:
        """Let a snapshot that begins settle all effects of the batch's log."""
        self.apply_event(Event.BEGINS)
        self.outcomes = [
            outcome if outcome.done == "ignored" else Outcome(outcome.ddl, "applied", "the table is read in this batch")
            for outcome in self.outcomes
        ]

    def note(self, ddl: DdlRow, done: str, reason: str | None = None) -> None:
        """Record the outcome of a statement."""
        self.outcomes.append(Outcome(ddl, done, reason))

    def note_suspension(self, ddl: DdlRow) -> None:
        """Record that a statement suspended the table, and why."""
        self.outcomes.append(self._suspension_outcome(ddl))

    def add_warnings(self, before: str | None, alters: Iterable[DdlRow] = ()) -> None:
        """Warn of a suspension.

        :param before: why the table was stopped before the batch, if that still holds.
        :param alters: the statements that changed only columns; a table that is suspended does not follow them.
        """
        if self.is_suspended:
            places = {ddl.seq for ddl in alters}
            self.outcomes = [
                self._suspension_outcome(outcome.ddl)
                if outcome.done in ("applied", "ignored") and outcome.ddl.seq in places
                else outcome
                for outcome in self.outcomes
            ]
        if self.state is State.STOPPED and self.reason != before:
            self.warnings.append(f"{self.table} is stopped: {self.reason}")
        if self.reread is not None:
            self.warnings.append(f"{self.table} is read again: {self.reread}")

    def _suspension_outcome(self, ddl: DdlRow) -> Outcome:
        return Outcome(ddl, "re-read" if self.state is State.STALE else self.state.value, self.reason)


def remedy(table: str) -> str:
    """Return how a user requests a re-read."""
    return f"read the table again with: headgate run --resnapshot '{table}'"
