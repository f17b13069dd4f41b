"""Decide what a batch means for one table: a pure decision, made before anything is written.

A table's state and the batch's content for it give its next state (``states``) and a list of actions (``actions``).
``stale``, ``stopped``, ``excluded`` and ``dropped`` tables are *suspended* (``held``): their images are left out until
a re-read that began later brings the whole table. (If the columns changed, a successor is made for these rows.) No
lasting change is lost: all in the suspended table is read again as of a later position. Tables in every other state
take images.

Statements of the log suspend a table as ``_statements`` describes. So do these:

| met in the batch | under ``evolve`` | under ``strict`` |
|---|---|---|
| a column that loses the rule that hides its values (``_unmasked``) | ``stopped`` | the same |
| images that the reader left out: their columns, or their key, are unknown | ``stopped`` | the same |
| a chunk left out, because a row's key is unknown; its snapshot ends no suspension | ``stopped`` | the same |
| a foreign key that changes rows unseen, at a statement or when a snapshot begins | ``stopped`` | the same |
| images of an unknown table from which the account may not SELECT | ``stopped`` | the same |
| images of an unknown table, hidden from the account at planning | suspended as ``stale``, read again | ``stopped`` |
| such a foreign key that is gone again | suspended as ``stale``, read again | ``stopped`` |
| images that do not fit the target, for any reason | suspended as ``stale``, read again | ``stopped`` |
| with ``inconsistent_images``: images of unknown columns, or of unexplained other ones | its value | the same |
| with ``inconsistent_images = "skip"``: the same | left out everywhere; not ``live`` until read again | the same |
| a column with a reserved name, or a type that the changelog cannot hold | ``stopped`` | the same |
| a table without a key whose deleted rows have to be marked or kept, or with a history | ``stopped`` | the same |
| a history: partial images, another ``rows``, or another key, type or rule of a column | ``stopped`` | the same |
| a re-read that would replace a table with kept rows | ``stopped`` | the same |
| rows of a table that lacks earlier ones in the lake | suspended as ``stale``, read again | ``stopped`` |
| a changelog that ``target.mode`` left out and takes back | suspended as ``stale``, read again | ``stopped`` |

**A batch in which a re-read begins** does not need the table's log: its chunks are exact at the batch's end, and every
range is read then or later. So the snapshot settles statements, and log images are left out of ``current``. Exception:
a table whose rows were all read and whose images fit it stays up to date. (A range read in an earlier batch of the same
re-read needs the images since.)

**A partial snapshot** (a signal with a condition) brings some rows as of the batch's end. They are upserted like
images. It begins and ends nothing: no rows are swept, a suspended table stays suspended, and a table that was never
read whole is not ``live`` after it.

The decision depends only on the batch, the ledger, the targets' columns, requested re-reads, the configuration and
``Divergence``. A replay of the batch repeats it, except that ``Divergence`` may differ (``pipeline/divergence``).
The outcome of each statement goes to the schema history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.carrier import Part
from headgate.decide._case import Arrival, Case, Policy, TableBefore
from headgate.decide._columns import ColumnView
from headgate.decide._course import StatementOutcome, TableCourse, TableEvent
from headgate.decide._images import (
    leave_out_contradictions,
    log_actions,
    needs_no_log,
    plan_columns,
    read_gaps,
    read_unreadable,
)
from headgate.decide._ledger_state import Limits, state_after, suspended_state
from headgate.decide._plan import CurrentPlan
from headgate.decide._statements import read_statements, stop_unmasked
from headgate.decide.actions import Action, Describe, LogAction
from headgate.decide.states import EventKind
from headgate.errors import DecodeError
from headgate.lake import State, TableState

__all__ = ["Decision", "decide", "reread_reason", "suspend"]


@dataclass(frozen=True)
class Decision:
    """Result of the decision for one table in one batch."""

    course: TableCourse  # what happens to the table
    state: TableState  # after the batch, without the versions
    actions: tuple[Action, ...] = ()  # on the current table; none if it is suspended
    log_actions: tuple[LogAction, ...] = ()  # on the changelog
    messages: tuple[Part, ...] = ()  # images to send to Kafka
    is_reread_requested: bool = False  # a re-read was requested before, and the batch does not begin it
    unrecorded: bool = False  # created and dropped within the batch: not recorded

    @property
    def table(self) -> str:
        return self.course.table

    @property
    def reread_reason(self) -> str | None:
        """Why a re-read is to be requested; None: it is not."""
        return None if self.is_reread_requested else self.course.reread_reason

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.course.warnings

    @property
    def outcomes(self) -> tuple[StatementOutcome, ...]:
        return self.course.outcomes

    @property
    def writes(self) -> bool:
        """Whether its Delta tables are written."""
        return bool(self.actions or self.log_actions)


def decide(arrival: Arrival, before: TableBefore, policy: Policy) -> Decision:
    """Decide for one table.

    :raises DecodeError: the batch contradicts itself, or has images that no target can take.
    """
    _check(arrival)
    case = Case(arrival, before, policy)
    snapshot = case.snapshot
    course = TableCourse(arrival.table, before.state, case.suspension, policy.strict, snapshot.waits, policy.kafka)
    columns = ColumnView(before.row.ignored if before.row is not None else None, before.target)
    if snapshot.ends_suspension:
        course.add(TableEvent(EventKind.ENDS_SUSPENSION))
    is_removed = _follow_log(course, case, columns)
    read_gaps(course, case)
    is_unmasked = stop_unmasked(course, case)
    without_log = needs_no_log(course, case, columns)
    images = leave_out_contradictions(course, case, columns)
    parts = arrival.chunks if without_log else images
    column_plan = plan_columns(course, case, parts, columns)
    if column_plan.replace:
        columns.begin_table()
    # The changelog and Kafka get the changes of a suspended table, too, unless it was and stays stopped.
    takes_changes = not course.stays_stopped and not is_unmasked
    messages = tuple(images) if policy.kafka and takes_changes else ()
    described = columns.described(arrival.chunks, arrival.statements)
    to_log: tuple[LogAction, ...] = ()
    if policy.changelog and takes_changes:
        notes = (Describe(described),) if described is not None else ()
        to_log = (*log_actions(course, case, images, needs_no_log=without_log), *notes)
    course.add(TableEvent(snapshot.event))
    if snapshot.ends:
        course.add(TableEvent(EventKind.ENDS_FILTERED if snapshot.header_entry.filtered else EventKind.ENDS))
    limits = Limits.of(course, case)
    if not course.is_suspended:
        limits.add_to(course)
    state = state_after(course, case, limits, images, columns.after, without_log=without_log)
    has_actions = policy.form is not None and not course.is_suspended
    plan = CurrentPlan(
        case, column_plan, parts, course.state, lacks_images=limits.left_out is not None, described=described
    )
    is_unknown = before.row is None and arrival.header_entry is None
    return Decision(
        course,
        state,
        actions=plan.actions() if has_actions else (),
        log_actions=to_log,
        messages=messages,
        is_reread_requested=before.reread_requested and snapshot.since != arrival.epoch,
        unrecorded=is_unknown and is_removed and not to_log and not messages,
    )


def suspend(decision: Decision, epoch: int, *, reread_reason: str | None, stop_reason: str | None) -> Decision:
    """Return the decision for a table as its write left it.

    :param reread_reason: the table lacks rows: it is read again, or under ``strict`` stopped.
    :param stop_reason: it has other rows than the source, which no re-read settles: it is stopped.
    """
    if reread_reason is None and stop_reason is None:
        return decision
    course = replace(decision.course)
    if reread_reason is not None:
        course.read_again(reread_reason)
    if stop_reason is not None:
        course.stop(stop_reason)
    return replace(decision, course=course, state=suspended_state(decision.state, course, epoch))


def reread_reason(before: TableState, reason: str, policy: Policy) -> str | None:
    """Return why a re-read is requested of a table whose rows are not what the configuration wants, before a batch
    shows that; None: it is not, because the table is suspended, or stops instead.
    """
    course = TableCourse(before.table, State(before.state), strict=policy.strict)
    if course.is_suspended:
        return None
    course.read_again(reason)
    return course.reread_reason


def _check(arrival: Arrival) -> None:
    if not arrival.truncates and any(part.truncates for part in arrival.parts):
        raise DecodeError("a truncate image without its statement in the batch", table=arrival.table)


def _follow_log(course: TableCourse, case: Case, columns: ColumnView) -> bool:
    """Process the batch's log, unless a snapshot that begins makes up for it; return whether the source's table is
    gone after it.
    """
    arrival, snapshot, policy = case.arrival, case.snapshot, case.policy
    read_unreadable(course, case)
    is_removed = read_statements(course, case, columns)
    if snapshot.begins and (arrival.chunks or not is_removed):
        course.add(TableEvent(EventKind.BEGINS))
        columns.alters = []
    if snapshot.restarts:
        columns.restart(policy.schema_changes, arrival.chunks if snapshot.begins else arrival.parts)
    return is_removed
