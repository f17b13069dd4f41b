"""What a batch means for one table: a pure decision, made before anything is written.

A table's state and what a batch brings for it give its next state (``_states``) and a list of actions (``_actions``).
``stale`` and ``stopped`` tables are *held*: their images are left out until a re-read that began after the hold brings
the whole table again (that re-read's first rows replace the table if its columns changed). So leaving images out loses
nothing that would have stayed: everything in the held table is read again as of a later point. Tables in every other
state take images.

Statements of the log hold a table as ``_statements`` says; so does what follows:

| met in the batch | under ``evolve`` | under ``strict`` |
|---|---|---|
| images that the reader left out: nobody knows their columns, or what their key is | ``stopped`` | the same |
| a chunk left out, because nobody knows what a row's key is; its reading frees nothing | ``stopped`` | the same |
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
from headgate.sinks._arrival import Arrival, Known, Policy, Reading
from headgate.sinks._course import Course, Outcome, remedy
from headgate.sinks._plan import CurrentPlan
from headgate.sinks._promises import definition_after, promised
from headgate.sinks._shape import Misfit, Shape, conflict, fit, fits, reserved, union, widest
from headgate.sinks._statements import Statements, read_statements
from headgate.sinks._states import Event, State

__all__ = ["Decision", "decide", "hold"]


@dataclass(frozen=True)
class Decision:
    """What to do with one table in one batch.

    :param state: after the batch, but for the versions.
    :param actions: on the current table, in this order; none for a held one.
    :param log_actions: on the changelog.
    :param reread: ask the planner to read the table again, because of this.
    :param passing: the table came and went within the batch: nothing is kept of it.
    """

    table: str
    state: TableState
    actions: tuple[Action, ...] = ()
    log_actions: tuple[AppendChanges, ...] = ()
    reread: str | None = None
    passing: bool = False
    warnings: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


def decide(arrival: Arrival, known: Known, policy: Policy) -> Decision:
    """Decide for one table.

    :raises DecodeError: the batch contradicts itself, or has images that no target can take.
    """
    _check(arrival)
    reading = Reading.of(arrival, known)
    course = _enter(arrival, known, reading, policy)
    statements = _follow_log(course, arrival, known, reading, policy)
    _meet_gaps(course, arrival, reading, policy)
    is_read_anew = _is_read_anew(course, arrival, known, reading)
    parts = arrival.chunks if is_read_anew else arrival.parts
    shape = _fit(course, parts, known, reading, statements) if policy.current else _check_names(course, parts)
    log_actions = _log_actions(course, arrival, known, is_read_anew=is_read_anew) if policy.changelog else ()
    if reading.waits:
        course.reread = None  # its reading is yet to begin
    passing = known.row is None and arrival.about is None and statements.gone and not log_actions
    course.tell(known.row.reason if known.row is not None and not reading.frees else None, statements.adds)
    state = _state_after(course, arrival, known, reading, policy)
    actions: tuple[Action, ...] = ()
    if policy.current and not course.held:
        actions = CurrentPlan(arrival, known, reading, statements, shape, parts).actions()
    return Decision(
        arrival.table, state, actions, log_actions, course.reread, passing,
        tuple(course.warnings), tuple(course.outcomes),
    )  # fmt: skip


def hold(decision: Decision, reason: str, epoch: int, *, strict: bool) -> Decision:
    """The decision, but for a table that turned out, while it was written, not to hold all it should: read it again."""
    course = Course(decision.table, strict, State(decision.state.state))
    course.read_again(reason)
    course.tell(None)
    state = replace(decision.state, state=course.state.value, since_epoch=None, held_epoch=epoch, reason=course.reason)
    return replace(decision, state=state, reread=course.reread, warnings=(*decision.warnings, *course.warnings))


# --- the table's course through the batch


def _check(arrival: Arrival) -> None:
    truncates = any(ddl.action == "truncate" for ddl in arrival.statements)
    if not truncates and any(part.truncates for part in arrival.parts):
        raise DecodeError("a truncate image without its statement in the batch", table=arrival.table)


def _enter(arrival: Arrival, known: Known, reading: Reading, policy: Policy) -> Course:
    row = known.row
    course = Course(arrival.table, policy.strict, known.state, row.reason if row is not None and row.held else None)
    if reading.frees:
        course.meet(Event.FREES)
    return course


def _follow_log(course: Course, arrival: Arrival, known: Known, reading: Reading, policy: Policy) -> Statements:
    """What the batch's log does to the table, unless the reading that begins makes up for it."""
    unreadable = arrival.batch.stops.get(arrival.table)
    is_behind_us = reading.waits or course.held or (reading.begins and arrival.chunks)
    if unreadable is not None and not is_behind_us:
        course.stop(unreadable)
    if not policy.current:
        for ddl in arrival.statements:
            course.note(ddl, "applied")
        return Statements()
    statements = read_statements(course, arrival, known)
    if reading.begins and (arrival.chunks or not statements.gone):
        course.settle()
        statements.adds = []
    return statements


def _meet_gaps(course: Course, arrival: Arrival, reading: Reading, policy: Policy) -> None:
    """Rows that the batch should have brought, and does not."""
    unread, unseen = arrival.batch.unread.get(arrival.table), arrival.unseen
    if unread is not None:
        course.stop(unread)
    if unseen is None or unseen.accepted:
        return
    if not unseen.over:
        course.stop(f"{unseen.reason}; then {remedy(course.table)}")
    elif policy.current and not reading.begins and not course.held:
        course.read_again(unseen.reason)


def _is_read_anew(course: Course, arrival: Arrival, known: Known, reading: Reading) -> bool:
    """Whether a reading begins, and log images beside its chunks are of no use to the current table."""
    is_complete = known.state in (State.SETTLING, State.LIVE, State.INEXACT)
    return reading.begins and not (is_complete and not course.outcomes and fits(arrival.parts, known.target))


def _check_names(course: Course, parts: Sequence[Part]) -> Shape:
    definition = widest(parts)
    taken = reserved(definition) if definition is not None else None
    if taken is not None and not course.held:
        course.stop(taken)
    return Shape()


def _fit(course: Course, parts: Sequence[Part], known: Known, reading: Reading, statements: Statements) -> Shape:
    """How the current table comes to have the batch's columns; images that do not fit it hold it."""
    _check_names(course, parts)
    if course.held:
        return Shape()
    try:
        return fit(parts, known.target, statements.adds, anew=reading.begins or reading.frees)
    except Misfit as misfit:
        course.read_again(str(misfit))
        if known.reread_asked:
            course.reread = None
        return Shape()


def _log_actions(course: Course, arrival: Arrival, known: Known, *, is_read_anew: bool) -> tuple[AppendChanges, ...]:
    """What goes to the changelog, also of a ``stale`` table. Columns that it cannot hold stop the table.

    Rows of a reading that begins go alone if older images do not fit them.
    """
    if course.state is State.STOPPED and known.state is State.STOPPED:
        return ()
    parts = arrival.parts
    misfit = conflict(parts, known.logged)
    if misfit is not None and is_read_anew and arrival.chunks:
        parts = arrival.chunks
        misfit = conflict(parts, known.logged)
    definition = union(parts)
    if definition is None:
        return ()
    taken = reserved(definition)
    if taken is not None:
        course.stop(taken)
        return ()
    if misfit is not None:
        course.stop(f"{misfit}, which its changelog cannot hold: move that folder away, then {remedy(course.table)}")
        return ()
    return (AppendChanges(definition, parts),)


def _state_after(course: Course, arrival: Arrival, known: Known, reading: Reading, policy: Policy) -> TableState:
    """The ledger's word on the table, and with it the last events of its course."""
    row = known.row
    course.meet(reading.event)
    if reading.ends:
        course.meet(Event.ENDS_FILTERED if reading.about.filtered else Event.ENDS)
    state = TableState(
        table=arrival.table,
        state=course.state.value,
        version=row.version if row is not None else None,
        changelog_version=row.changelog_version if row is not None else None,
        since_epoch=None if course.held or reading.ends else reading.since,
        held_epoch=_held_epoch(course, arrival, row, reading) if course.held else None,
        rows_estimate=reading.about.rows_estimate,
        chunks_done=reading.about.chunks_done,
        chunks_estimate=reading.about.chunks_estimate,
        images=sum(part.images for part in arrival.parts),
        reason=course.reason,
    )
    if course.held:
        return state
    counts = (
        None if reading.begins or reading.frees else row
    )  # what was wrong with rows that are all read again does not
    state = promised(state, arrival.batch, counts, arrival.unseen, begins=reading.begins)
    if state.state == State.INEXACT and known.state is not State.INEXACT:
        course.warnings.append(f"{arrival.table} is inexact: {state.reason}")
    if policy.current:
        state = replace(state, definition=definition_after(arrival.table, arrival.batch, row, arrival.parts))
    return state


def _held_epoch(course: Course, arrival: Arrival, row: TableState | None, reading: Reading) -> int | None:
    """The epoch of the hold: a reading that began later frees the table.

    What holds a table again while it is read makes that reading useless.
    """
    is_same = row is not None and row.held and row.reason == course.reason and course.reread is None
    if row is not None and is_same and arrival.table not in arrival.batch.unread and not reading.frees:
        return row.held_epoch
    return arrival.epoch
