"""What a batch means for one table: a pure decision, made before anything is written.

A table's state and what a batch brings for it give its next state (``_states``) and a list of actions (``_actions``).
``stale`` and ``stopped`` tables are *held*: their images are left out until a re-read that began after the hold brings
the whole table again (that re-read's first rows replace the table if its columns changed). So leaving images out loses
nothing that would have stayed: everything in the held table is read again as of a later point. Tables in every other
state take images.

Statements of the log hold a table as ``_statements`` says; so does what follows:

| met in the batch | under ``evolve`` | under ``strict`` |
|---|---|---|
| images that the reader left out: their columns, or their key, are unknown | ``stopped`` | the same |
| a chunk left out, because a row's key is unknown; its reading frees nothing | ``stopped`` | the same |
| a foreign key that changes rows unseen, at a statement or when a reading begins | ``stopped`` | the same |
| the same, which is gone again | held as ``stale``, read again | ``stopped`` |
| images that do not fit the target, for whatever reason | held as ``stale``, read again | ``stopped`` |
| a column with a name of ours, or a type that the changelog cannot hold | ``stopped`` | the same |

**A batch in which a re-read begins** needs nothing of the table's log: its chunks are exact at the batch's end, and
every range is read then or later. So statements are settled by the reading, and log images are left out of ``current``,
but for a table of which all rows were read and whose images fit it: it stays as new as it was. (A range read in an
earlier batch of the same re-read counts on the images since.)

**A partial reading** (a signal with a condition) brings some rows as they are at the batch's end: they are upserted
like images. It begins and ends nothing: no rows are swept, a held table stays held, one that was never read whole is
not ``live`` after it.

The decision depends on the batch, the ledger and the targets' columns alone, and every outcome is one that a replay of
the batch repeats. What came of each statement goes to the schema history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.carrier import Part
from headgate.errors import DecodeError
from headgate.lake import TableState
from headgate.sinks._actions import Action, AppendChanges
from headgate.sinks._case import Arrival, Case, Known, Policy
from headgate.sinks._course import Course, Outcome, remedy
from headgate.sinks._plan import CurrentPlan
from headgate.sinks._promises import definition_after, promised
from headgate.sinks._shape import Misfit, Shape, conflict, fit, fits, reserved, union, widest
from headgate.sinks._statements import Statements, read_statements
from headgate.sinks._states import Event, State

__all__ = ["Decision", "decide", "hold"]


@dataclass(frozen=True)
class Decision:
    """What to do with one table in one batch."""

    table: str
    state: TableState  # after the batch, but for the versions
    actions: tuple[Action, ...] = ()  # on the current table; none if it is held
    log_actions: tuple[AppendChanges, ...] = ()  # on the changelog
    reread: str | None = None  # why the planner is asked to read the table again, if it is
    passing: bool = False  # the table came and went within the batch: nothing is kept of it
    warnings: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether there is something to do to its Delta tables."""
        return bool(self.actions or self.log_actions)


def decide(arrival: Arrival, known: Known, policy: Policy) -> Decision:
    """Decide for one table.

    :raises DecodeError: the batch contradicts itself, or has images that no target can take.
    """
    _check(arrival)
    case = Case(arrival, known, policy)
    course = Course(arrival.table, policy.strict, known.state, known.row.reason if known.held and known.row else None)
    if case.reading.frees:
        course.meet(Event.FREES)
    statements = _follow_log(course, case)
    _meet_gaps(course, case)
    restarts = _needs_no_log(course, case)
    parts = arrival.chunks if restarts else arrival.parts
    shape = _fit(course, case, parts, statements)
    log_actions = _log_actions(course, case, restarts=restarts)
    if case.reading.waits:
        course.reread = None  # its reading is yet to begin
    course.tell(case.reason_before, statements.adds)
    state = _state_after(course, case)
    plan = CurrentPlan(case, statements, shape, parts)
    return Decision(
        table=arrival.table,
        state=state,
        actions=plan.actions() if policy.current and not course.held else (),
        log_actions=log_actions,
        reread=course.reread,
        passing=known.row is None and arrival.about is None and statements.gone and not log_actions,
        warnings=tuple(course.warnings),
        outcomes=tuple(course.outcomes),
    )


def hold(decision: Decision, reason: str, epoch: int, *, strict: bool) -> Decision:
    """Hold the table after all: while it was written, it turned out to lack rows."""
    course = Course(decision.table, strict, State(decision.state.state))
    course.read_again(reason)
    course.tell(None)
    state = replace(decision.state, state=course.state.value, since_epoch=None, held_epoch=epoch, reason=course.reason)
    return replace(decision, state=state, reread=course.reread, warnings=(*decision.warnings, *course.warnings))


def _check(arrival: Arrival) -> None:
    truncates = any(ddl.action == "truncate" for ddl in arrival.statements)
    if not truncates and any(part.truncates for part in arrival.parts):
        raise DecodeError("a truncate image without its statement in the batch", table=arrival.table)


def _follow_log(course: Course, case: Case) -> Statements:
    """What the batch's log does to the table, unless the reading that begins makes up for it."""
    arrival, reading = case.arrival, case.reading
    unreadable = arrival.batch.stops.get(arrival.table)
    is_made_up_for = reading.waits or course.held or (reading.begins and arrival.chunks)
    if unreadable is not None and not is_made_up_for:
        course.stop(unreadable)
    if not case.policy.current:
        for ddl in arrival.statements:
            course.note(ddl, "applied")
        return Statements()
    statements = read_statements(course, case)
    if reading.begins and (arrival.chunks or not statements.gone):
        course.settle()
        statements.adds = []
    return statements


def _meet_gaps(course: Course, case: Case) -> None:
    """Hold the table if the batch does not bring all rows that changed."""
    unread, unseen = case.arrival.batch.unread.get(course.table), case.arrival.unseen
    if unread is not None:
        course.stop(unread)
    if unseen is None or unseen.accepted:
        return
    if not unseen.over:
        course.stop(f"{unseen.reason}; then {remedy(course.table)}")
    elif case.policy.current and not case.reading.begins and not course.held:
        course.read_again(unseen.reason)


def _needs_no_log(course: Course, case: Case) -> bool:
    """Whether a reading begins, and log images beside its chunks are of no use to the current table."""
    is_complete = case.known.state in (State.SETTLING, State.LIVE, State.INEXACT)
    goes_on = is_complete and not course.outcomes and fits(case.arrival.parts, case.known.target)
    return case.reading.begins and not goes_on


def _fit(course: Course, case: Case, parts: Sequence[Part], statements: Statements) -> Shape:
    """How the current table comes to have the batch's columns. Images that do not fit hold the table."""
    definition = widest(parts)
    taken = reserved(definition) if definition is not None else None
    if taken is not None and not course.held:
        course.stop(taken)
    if course.held or not case.policy.current:
        return Shape()
    try:
        return fit(parts, case.known.target, statements.adds, restarts=case.reading.restarts)
    except Misfit as misfit:
        course.read_again(str(misfit))
        if case.known.reread_asked:
            course.reread = None
        return Shape()


def _log_actions(course: Course, case: Case, *, restarts: bool) -> tuple[AppendChanges, ...]:
    """What goes to the changelog, also of a ``stale`` table. Columns that it cannot hold stop the table.

    :param restarts: rows of a reading that begins may go alone, if older images do not fit them.
    """
    known, parts, chunks = case.known, case.arrival.parts, case.arrival.chunks
    if not case.policy.changelog or (course.state is State.STOPPED and known.state is State.STOPPED):
        return ()
    misfit = conflict(parts, known.logged)
    if misfit is not None and restarts and chunks:
        parts, misfit = chunks, conflict(chunks, known.logged)
    definition = union(parts)
    if definition is None:
        return ()
    wrong = reserved(definition)
    if wrong is None and misfit is not None:
        wrong = f"{misfit}, which its changelog cannot hold: move that folder away, then {remedy(course.table)}"
    if wrong is not None:
        course.stop(wrong)
        return ()
    return (AppendChanges(definition, parts),)


def _state_after(course: Course, case: Case) -> TableState:
    """The ledger's word on the table, and with it the last events of its course."""
    arrival, reading, row = case.arrival, case.reading, case.known.row
    course.meet(reading.event)
    if reading.ends:
        course.meet(Event.ENDS_FILTERED if reading.about.filtered else Event.ENDS)
    state = TableState(
        table=arrival.table,
        state=course.state.value,
        version=row.version if row is not None else None,
        changelog_version=row.changelog_version if row is not None else None,
        since_epoch=None if course.held or reading.ends else reading.since,
        held_epoch=_held_epoch(course, case) if course.held else None,
        rows_estimate=reading.about.rows_estimate,
        chunks_done=reading.about.chunks_done,
        chunks_estimate=reading.about.chunks_estimate,
        images=sum(part.images for part in arrival.parts),
        reason=course.reason,
    )
    return state if course.held else _promise(course, case, state)


def _promise(course: Course, case: Case, state: TableState) -> TableState:
    """What the ledger may promise of a table that is not held."""
    arrival, reading, row = case.arrival, case.reading, case.known.row
    # What was wrong with rows that are all read again no longer counts.
    counts = None if reading.restarts else row
    state = promised(state, arrival.batch, counts, arrival.unseen, begins=reading.begins)
    if state.state == State.INEXACT and case.known.state is not State.INEXACT:
        course.warnings.append(f"{arrival.table} is inexact: {state.reason}")
    if case.policy.current:
        state = replace(state, definition=definition_after(arrival.table, arrival.batch, row, arrival.parts))
    return state


def _held_epoch(course: Course, case: Case) -> int | None:
    """The epoch of the hold: only a reading that began later frees the table.

    What holds a table again while it is read makes that reading useless.
    """
    row, is_unread = case.known.row, course.table in case.arrival.batch.unread
    if row is None or not row.held or case.reading.frees or is_unread:
        return case.arrival.epoch
    is_same = row.reason == course.reason and course.reread is None
    return row.held_epoch if is_same else case.arrival.epoch
