"""Decide what a batch means for one table: a pure decision, made before anything is written.

A table's state and the batch's content for it give its next state (``_states``) and a list of actions (``actions``).
``stale`` and ``stopped`` tables are *suspended* (``held``): their images are left out until a re-read that began later
brings the whole table. (If the columns changed, a successor is made for these rows.) No lasting change is lost: all in
the suspended table is read again as of a later position. Tables in every other state take images.

Statements of the log suspend a table as ``_statements`` describes. So do these:

| met in the batch | under ``evolve`` | under ``strict`` |
|---|---|---|
| images that the reader left out: their columns, or their key, are unknown | ``stopped`` | the same |
| a chunk left out, because a row's key is unknown; its snapshot ends no suspension | ``stopped`` | the same |
| a foreign key that changes rows unseen, at a statement or when a snapshot begins | ``stopped`` | the same |
| such a foreign key that is gone again | suspended as ``stale``, read again | ``stopped`` |
| images that do not fit the target, for any reason | suspended as ``stale``, read again | ``stopped`` |
| with ``inconsistent_images``: images of unknown columns, or of unexplained other ones | its value | the same |
| with ``inconsistent_images = "skip"``: the same | left out everywhere; not ``live`` until read again | the same |
| a column with a reserved name, or a type that the changelog cannot hold | ``stopped`` | the same |
| a table without a key whose deleted rows have to be marked or kept, or with a history | ``stopped`` | the same |
| a history: partial images, another ``rows``, or another key, type or rule of a column | ``stopped`` | the same |
| a re-read that would replace a table with kept rows | ``stopped`` | the same |
| images of a table whose earlier rows the lake lacks | suspended as ``stale``, read again | ``stopped`` |

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.carrier import Definition, Part
from headgate.decide._case import Arrival, Case, Policy, TableBefore
from headgate.decide._columns import ColumnPlan, ColumnView
from headgate.decide._definitions import names_in_log, union, widest
from headgate.decide._ledger_state import promised
from headgate.decide._misfits import Misfit, hook_name, reserved
from headgate.decide._plan import CurrentPlan
from headgate.decide._statements import Statements, read_statements
from headgate.decide._states import State, TableEvent
from headgate.decide._table_decision import StatementOutcome, TableCourse, remedy
from headgate.decide.actions import Action, AppendChanges
from headgate.errors import DecodeError
from headgate.lake import Form, LeftOut, TableState

__all__ = ["LACKS_ROWS", "Decision", "decide", "suspend"]

LACKS_ROWS: Final = "the lake lacks its earlier rows: its folder is gone, or target.mode left it out"
"""Why a table is read again."""


@dataclass(frozen=True)
class Decision:
    """Result of the decision for one table in one batch."""

    table: str
    state: TableState  # after the batch, without the versions
    actions: tuple[Action, ...] = ()  # on the current table; none if it is suspended
    log_actions: tuple[AppendChanges, ...] = ()  # on the changelog
    messages: tuple[Part, ...] = ()  # images to send to Kafka
    reread: str | None = None  # why a re-read is requested, if it is
    unrecorded: bool = False  # created and dropped within the batch: not recorded
    warnings: tuple[str, ...] = ()
    outcomes: tuple[StatementOutcome, ...] = ()

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
    reason = before.row.reason if before.is_suspended and before.row else None
    course = TableCourse(arrival.table, policy.strict, before.state, case.snapshot.waits, reason)
    if case.snapshot.ends_suspension:
        course.apply_event(TableEvent.ENDS_SUSPENSION)
    statements = _follow_log(course, case)
    _suspend_for_gaps(course, case)
    restarts = _needs_no_log(course, case, statements.columns)
    case = _leave_out_contradictions(course, case, statements)
    arrival = case.arrival
    parts = arrival.chunks if restarts else arrival.parts
    columns = _fit(course, case, parts, statements)
    if columns.replace:
        statements.columns.begin_table()
    messages = tuple(arrival.parts) if policy.kafka and _takes_changes(course, case) else ()
    log_actions = _log_actions(course, case, restarts=restarts)
    outcomes, warnings = course.settled([*statements.alters, *statements.ignored]), course.warnings(case.reason_before)
    state = _state_after(course, case, statements.columns)
    if state.state == State.INEXACT and before.state is not State.INEXACT:
        warnings.append(f"{arrival.table} is inexact: {state.reason}")
    plan = CurrentPlan(case, statements, columns, parts, State(state.state), lacks_images=state.left_out is not None)
    return Decision(
        table=arrival.table,
        state=state,
        actions=plan.actions() if policy.form is not None and not course.is_suspended else (),
        log_actions=log_actions,
        messages=messages,
        reread=course.reread if not before.reread_requested else None,
        unrecorded=before.row is None
        and arrival.header_entry is None
        and statements.removed
        and not log_actions
        and not messages,
        warnings=tuple(warnings),
        outcomes=outcomes,
    )


def suspend(decision: Decision, reason: str, epoch: int, *, strict: bool) -> Decision:
    """Suspend the table after all: the write found that it lacks rows."""
    course = TableCourse(decision.table, strict, State(decision.state.state))
    course.read_again(reason)
    state = replace(decision.state, state=course.state.value, since_epoch=None, held_epoch=epoch, reason=course.reason)
    state = replace(state, successor=None)
    return replace(decision, state=state, reread=course.reread, warnings=(*decision.warnings, *course.warnings()))


def _check(arrival: Arrival) -> None:
    truncates = any(ddl.action == "truncate" for ddl in arrival.statements)
    if not truncates and any(part.truncates for part in arrival.parts):
        raise DecodeError("a truncate image without its statement in the batch", table=arrival.table)


def _follow_log(course: TableCourse, case: Case) -> Statements:
    """Process the batch's log, unless a snapshot that begins makes up for it."""
    arrival, snapshot = case.arrival, case.snapshot
    unreadable = arrival.batch.stops.get(arrival.table)
    is_made_up_for = snapshot.waits or course.is_suspended or (snapshot.begins and arrival.chunks)
    if unreadable is not None and not is_made_up_for:
        _meet_unreadable(course, case, unreadable)
    if case.policy.form is None:
        for ddl in arrival.statements:
            course.note(ddl, "applied")
        return Statements()
    statements = read_statements(course, case)
    if snapshot.begins and (arrival.chunks or not statements.removed):
        course.begin_snapshot()
        statements.alters = []
    if snapshot.restarts:
        statements.columns.restart(case.policy.schema_changes, arrival.chunks if snapshot.begins else arrival.parts)
    return statements


def _meet_unreadable(course: TableCourse, case: Case, reason: str) -> None:
    """Suspend the table because of images that the reader left out."""
    unknown, choice = case.arrival.batch.unknown.get(course.table), case.policy.inconsistent_images
    if unknown is None or choice is None:
        course.stop(reason)
        return
    inconsistency = f"the log does not name its columns, and they are unknown: {unknown}"
    if choice == "skip":
        course.left_out.append((inconsistency, 0))
    else:
        course.meet_inconsistency(inconsistency, choice)


def _leave_out_contradictions(course: TableCourse, case: Case, statements: Statements) -> Case:
    """Return the case without log images that contradict the table, if the configuration leaves them out.

    Not if chunks contradict it, or if a statement changed it: which images then fit is known later.
    """
    arrival, columns, form = case.arrival, statements.columns, case.policy.form
    is_settled = course.is_suspended or case.snapshot.restarts or bool(statements.alters)
    if case.policy.inconsistent_images != "skip" or form is None or columns.target is None or is_settled:
        return case
    left_out = [(part, text) for part in arrival.parts for text in [_contradiction(part, columns, form)] if text]
    if not left_out or any(part.kind == "chunk" for part, _ in left_out):
        return case
    course.left_out.append((left_out[0][1], sum(part.changes for part, _ in left_out)))
    schemas = {part.schema for part, _ in left_out}
    kept = [part for part in arrival.parts if part.schema not in schemas]
    batch = replace(arrival.batch, parts={**arrival.batch.parts, arrival.table: kept})
    return replace(case, arrival=replace(arrival, batch=batch))


def _contradiction(part: Part, columns: ColumnView, form: Form) -> str | None:
    """Return how images contradict the table; None if they do not, or if a changed setting is why."""
    try:
        columns.plan([part], (), form)
        return None
    except Misfit as misfit:
        return str(misfit) if misfit.inconsistent else None


def _suspend_for_gaps(course: TableCourse, case: Case) -> None:
    """Suspend the table if the batch does not bring all rows that changed."""
    unread, unseen = case.arrival.batch.unread.get(course.table), case.arrival.unseen
    if unread is not None:
        course.stop(unread)
    if unseen is None or unseen.accepted:
        return
    if not unseen.over:
        course.stop(f"{unseen.reason}; then {remedy(course.table)}")
    elif case.policy.form is not None and not case.snapshot.begins and not course.is_suspended:
        course.read_again(unseen.reason)


def _needs_no_log(course: TableCourse, case: Case, columns: ColumnView) -> bool:
    """Return whether a snapshot begins and the current table does not need the log images next to its chunks."""
    if not case.snapshot.begins:
        return False
    is_complete = case.before.state in (State.SETTLING, State.LIVE, State.INEXACT)
    if not is_complete or course.outcomes:
        return True
    return not columns.fits(case.arrival.parts, case.policy.form)


def _unwritable(definition: Definition, parts: Sequence[Part], policy: Policy) -> str | None:
    """Return why no table of this form can hold the images; else None."""
    if policy.form is Form.MARKED and not definition.key:
        setting = f'set deletes = "remove" in [tables."{definition.table}"]'
        return f'deletes = "mark" needs a key, and the table has none: {setting}, then {remedy(definition.table)}'
    if policy.form is Form.HISTORY:
        then = f"then {remedy(definition.table)}"
        if not definition.key:
            return f"a history needs a key, and the table has none: leave it out, or add a key, {then}"
        if any(part.partial for part in parts):
            return f"a history needs whole rows, and images leave columns out: set binlog_row_image = FULL, {then}"
    if policy.keeps_removed and policy.form is not None and not definition.key:
        return f"skip keeps removed rows, which needs a key, and the table has none: {remedy(definition.table)}"
    return reserved(definition, policy.form)


def _fit(course: TableCourse, case: Case, parts: Sequence[Part], statements: Statements) -> ColumnPlan:
    """Return how the current table gets the batch's columns. Images that do not fit suspend the table."""
    definition, columns = widest(parts), statements.columns
    unwritable = _unwritable(definition, parts, case.policy) if definition is not None else None
    if unwritable is not None and not course.is_suspended:
        course.stop(unwritable)
    if course.is_suspended or case.policy.form is None:
        return ColumnPlan()
    try:
        if parts and case.snapshot.event is not TableEvent.READS and case.before.lacks_rows(case.policy):
            raise Misfit(LACKS_ROWS)
        if columns.conflict is not None:
            raise Misfit(columns.conflict)
        plan = columns.plan(
            parts,
            statements.alters,
            case.policy.form,
            restarts=case.snapshot.restarts,
            keeps_dropped=case.policy.schema_changes.dropped_columns == "keep",
        )
        if not (plan.replace and case.policy.keeps_removed):
            return plan
        reason = "the table must be made again, which would lose the rows that skip keeps: move its folder away"
        course.stop(f"{reason}, then {remedy(course.table)}")
        return ColumnPlan()
    except Misfit as misfit:
        choice = case.policy.inconsistent_images
        if misfit.lasting:
            course.stop(f"{misfit}, which its history cannot hold: move that folder away, then {remedy(course.table)}")
        elif misfit.inconsistent and choice is not None and not statements.alters:
            course.meet_inconsistency(str(misfit), choice)
        else:
            course.read_again(str(misfit))
        return ColumnPlan()


def _takes_changes(course: TableCourse, case: Case) -> bool:
    """Return whether the changelog and Kafka get the batch's changes: unless the table was and stays stopped."""
    return not (course.state is State.STOPPED and case.before.state is State.STOPPED)


def _log_actions(course: TableCourse, case: Case, *, restarts: bool) -> tuple[AppendChanges, ...]:
    """Return the actions on the changelog, also for a ``stale`` table. Columns that it cannot hold stop the table.

    :param restarts: if older images do not fit the rows of a snapshot that begins, append only those rows.
    """
    before, parts, chunks = case.before, case.arrival.parts, case.arrival.chunks
    if not case.policy.changelog or not _takes_changes(course, case):
        return ()
    problem = ""
    for images in (parts, chunks) if restarts and chunks else (parts,):
        try:
            definition = union(images, before.logged)
        except Misfit as misfit:
            problem = f"{misfit}, which its changelog cannot hold: move that folder away, then {remedy(course.table)}"
            continue
        wrong = reserved(definition) if definition is not None else None
        if definition is None or wrong is not None:
            problem = wrong or ""
            break
        return (AppendChanges(definition, images, names=names_in_log(images, before.logged)),)
    if problem:
        course.stop(problem)
    return ()


def _state_after(course: TableCourse, case: Case, columns: ColumnView) -> TableState:
    """Return the table's state for the ledger, after the last events of its course."""
    arrival, snapshot, row = case.arrival, case.snapshot, case.before.row
    course.apply_event(snapshot.event)
    if snapshot.ends:
        course.apply_event(TableEvent.ENDS_FILTERED if snapshot.header_entry.filtered else TableEvent.ENDS)
    state = TableState(
        table=arrival.table,
        state=course.state.value,
        version=row.version if row is not None and case.policy.form is not None else None,
        changelog_version=row.changelog_version if row is not None and case.policy.changelog else None,
        since_epoch=None if course.is_suspended or snapshot.ends else snapshot.since,
        held_epoch=_suspension_epoch(course, case) if course.is_suspended else None,
        rows_estimate=snapshot.header_entry.rows_estimate,
        chunks_done=snapshot.header_entry.chunks_done,
        chunks_estimate=snapshot.header_entry.chunks_estimate,
        images=sum(part.images for part in arrival.parts),
        reason=course.reason,
        successor=None if course.is_suspended else case.before.successor,
        hook=_hook_after(course, case),
        ignored=columns.after,
    )
    return state if course.is_suspended else _promise(course, case, state)


def _hook_after(course: TableCourse, case: Case) -> str | None:
    """Return which hook made the columns of the newest images that the table took."""
    row, parts = case.before.row, case.arrival.parts
    if parts and not course.is_suspended:
        return hook_name(parts[-1].definition.hook) or None
    return row.hook if row is not None else None


def _promise(course: TableCourse, case: Case, state: TableState) -> TableState:
    """Return the state of a table that is not suspended, limited to what the ledger may promise."""
    arrival, snapshot, row = case.arrival, case.snapshot, case.before.row
    # If all rows are read again, earlier problems do not count.
    earlier = None if snapshot.restarts else row
    left_out = None
    if course.left_out:
        reason, changes = course.left_out[0][0], sum(changes for _, changes in course.left_out)
        left_out = LeftOut(reason, arrival.batch.header.start, changes)
    return promised(state, arrival.batch, earlier, arrival.unseen, left_out, begins=snapshot.begins)


def _suspension_epoch(course: TableCourse, case: Case) -> int | None:
    """Return the epoch of the suspension: only a snapshot that began later ends it.

    A new suspension during a snapshot makes that snapshot useless.
    """
    row, is_unread = case.before.row, course.table in case.arrival.batch.unread
    if row is None or not row.is_suspended or case.snapshot.ends_suspension or is_unread:
        return case.arrival.epoch
    is_same = row.reason == course.reason and course.reread is None
    return row.held_epoch if is_same else case.arrival.epoch
