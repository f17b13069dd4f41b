"""A table's course through one batch: its state so far, and the warnings that follow from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.carrier import DdlRow
from headgate.config import InconsistentImages
from headgate.decide._states import SUSPENDED, State, TableEvent, follow
from headgate.errors import SchemaChangedError

__all__ = ["StatementOutcome", "TableCourse", "remedy"]


@dataclass(frozen=True)
class StatementOutcome:
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
    waits: bool = False  # a full snapshot has yet to begin, so no other one is requested
    reason: str | None = None  # why it is suspended, if it is
    reread: str | None = None  # why the table must be read again, if the batch is the cause
    left_out: list[tuple[str, int]] = field(default_factory=list)  # why images are left out; how many, where counted
    outcomes: list[StatementOutcome] = field(default_factory=list)

    @property
    def is_suspended(self) -> bool:
        return self.state in SUSPENDED

    def apply_event(self, event: TableEvent) -> None:
        """Change to the state after ``event``."""
        self.state = follow(self.state, event)
        if not self.is_suspended:
            self.reason = self.reread = None

    def stop(self, reason: str) -> None:
        """Suspend the table until a user requests a re-read."""
        self.apply_event(TableEvent.STOPS)
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

    def _wait_for_reread(self, reason: str) -> None:
        self.apply_event(TableEvent.CHANGES)
        self.reason = f"{reason}; waits to be read again"
        self.reread = reason if not self.waits else None

    def begin_snapshot(self) -> None:
        """Let a snapshot that begins settle all effects of the batch's log."""
        self.apply_event(TableEvent.BEGINS)
        self.outcomes = [
            outcome
            if outcome.done == "ignored"
            else StatementOutcome(outcome.ddl, "applied", "the table is read in this batch")
            for outcome in self.outcomes
        ]

    def note(self, ddl: DdlRow, done: str, reason: str | None = None) -> None:
        """Record the outcome of a statement."""
        self.outcomes.append(StatementOutcome(ddl, done, reason))

    def note_suspension(self, ddl: DdlRow) -> None:
        """Record that a statement suspended the table, and why."""
        self.outcomes.append(self._suspension_outcome(ddl))

    def settled(self, alters: Iterable[DdlRow]) -> tuple[StatementOutcome, ...]:
        """Return the outcomes of all statements, after the last event.

        :param alters: the statements that changed only columns; a table that is suspended does not follow them.
        """
        undone = {ddl.seq for ddl in alters} if self.is_suspended else set()
        return tuple(
            self._suspension_outcome(outcome.ddl)
            if outcome.done in ("applied", "ignored") and outcome.ddl.seq in undone
            else outcome
            for outcome in self.outcomes
        )

    def warnings(self, before: str | None = None) -> list[str]:
        """Return what users must know of images that are left out, and of a suspension.

        :param before: why the table was stopped before the batch, if that still holds.
        """
        texts = [f"{self.table}: left out {changes or 'some'} changes: {reason}" for reason, changes in self.left_out]
        if self.state is State.STOPPED and self.reason != before:
            texts.append(f"{self.table} is stopped: {self.reason}")
        if self.reread is not None:
            texts.append(f"{self.table} is read again: {self.reread}")
        return texts

    def _suspension_outcome(self, ddl: DdlRow) -> StatementOutcome:
        return StatementOutcome(ddl, "re-read" if self.state is State.STALE else self.state.value, self.reason)


def remedy(table: str) -> str:
    """Return how a user requests a re-read."""
    return f"read the table again with: headgate run --resnapshot '{table}'"
