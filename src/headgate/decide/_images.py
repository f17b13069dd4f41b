"""Events that a batch's images bring to a table, and the columns that its targets get for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.carrier import Definition, Part
from headgate.decide._case import Case
from headgate.decide._columns import ColumnPlan, ColumnView
from headgate.decide._course import TableCourse, TableEvent, remedy
from headgate.decide._definitions import names_in_log, union, widest
from headgate.decide._misfits import Misfit, reserved
from headgate.decide.actions import AppendChanges
from headgate.decide.states import EventKind
from headgate.lake import ENDED, Form, State

__all__ = [
    "LACKS_CHANGES",
    "LACKS_ROWS",
    "leave_out_contradictions",
    "log_actions",
    "needs_no_log",
    "plan_columns",
    "read_gaps",
    "read_unreadable",
]

LACKS_ROWS: Final = "the lake lacks its earlier rows: its folder is gone, or target.mode left it out"
"""Why a table is read again."""
LACKS_CHANGES: Final = "its changelog lacks changes: target.mode left it out when they came"
"""The same."""


def read_unreadable(course: TableCourse, case: Case) -> None:
    """Suspend the table because of images that the reader left out, unless a snapshot makes up for them."""
    arrival, snapshot, choice = case.arrival, case.snapshot, case.policy.inconsistent_images
    reason, unknown = arrival.batch.stops.get(course.table), arrival.batch.unknown.get(course.table)
    is_made_up_for = snapshot.waits or course.is_suspended or (snapshot.begins and arrival.chunks)
    if reason is None or is_made_up_for:
        return
    if unknown is None or choice is None:
        course.stop(reason)
        return
    inconsistency = f"the log does not name its columns, and they are unknown: {unknown}"
    if choice == "skip":
        course.add(TableEvent(EventKind.LEAVES_OUT, inconsistency))
    else:
        course.contradict(inconsistency, choice)


def read_gaps(course: TableCourse, case: Case) -> None:
    """Suspend the table if the batch does not bring all rows that changed, or its changelog lacks earlier ones."""
    _read_unseen(course, case)
    if case.lacks_changes and not course.is_suspended:
        course.read_again(LACKS_CHANGES)


def _read_unseen(course: TableCourse, case: Case) -> None:
    unread, unseen = case.arrival.batch.unread.get(course.table), case.arrival.unseen
    if unseen is not None and unseen.excluded:
        course.add(TableEvent(EventKind.EXCLUDES, unseen.reason))
    if course.state in ENDED:
        return
    if unread is not None:
        course.stop(unread)
    if unseen is None or unseen.accepted:
        return
    if not unseen.over:
        course.stop(f"{unseen.reason}; then {remedy(course.table)}")
    elif case.policy.form is not None and not case.snapshot.begins and not course.is_suspended:
        course.read_again(unseen.reason)


def needs_no_log(course: TableCourse, case: Case, columns: ColumnView) -> bool:
    """Return whether a snapshot begins and the current table does not need the log images next to its chunks."""
    if not case.snapshot.begins:
        return False
    is_complete = case.before.state in (State.SETTLING, State.LIVE, State.INEXACT)
    if not is_complete or course.outcomes:
        return True
    return not columns.fits(case.arrival.parts, case.policy.form)


def leave_out_contradictions(course: TableCourse, case: Case, columns: ColumnView) -> list[Part]:
    """Return the images without those of the log that contradict the table, if the configuration leaves them out.

    Not if chunks contradict it, or if a statement changed it: which images then fit is known later.
    """
    parts, form = case.arrival.parts, case.policy.form
    is_settled = course.is_suspended or case.snapshot.restarts or bool(columns.alters)
    if case.policy.inconsistent_images != "skip" or form is None or columns.target is None or is_settled:
        return parts
    left_out = [(part, text) for part in parts for text in [_contradiction(part, columns, form)] if text]
    if not left_out or any(part.kind == "chunk" for part, _ in left_out):
        return parts
    course.add(TableEvent(EventKind.LEAVES_OUT, left_out[0][1], changes=sum(part.changes for part, _ in left_out)))
    schemas = {part.schema for part, _ in left_out}
    return [part for part in parts if part.schema not in schemas]


def _contradiction(part: Part, columns: ColumnView, form: Form) -> str | None:
    """Return how images contradict the table; None if they do not, or if a changed setting is why."""
    try:
        columns.plan([part], form)
        return None
    except Misfit as misfit:
        return str(misfit) if misfit.inconsistent else None


def plan_columns(course: TableCourse, case: Case, parts: Sequence[Part], columns: ColumnView) -> ColumnPlan:
    """Return how the current table gets the batch's columns. Images that do not fit suspend the table."""
    definition, policy = widest(parts), case.policy
    unwritable = _unwritable(definition, parts, case) if definition is not None else None
    if unwritable is not None and not course.is_suspended:
        course.stop(unwritable)
    if course.is_suspended or policy.form is None:
        return ColumnPlan()
    try:
        if case.lacks_rows:
            raise Misfit(LACKS_ROWS)
        if columns.conflict is not None:
            raise Misfit(columns.conflict)
        keeps_dropped = policy.schema_changes.dropped_columns == "keep"
        plan = columns.plan(parts, policy.form, restarts=case.snapshot.restarts, keeps_dropped=keeps_dropped)
    except Misfit as misfit:
        _meet_misfit(course, case, misfit, columns)
        return ColumnPlan()
    if plan.replace and policy.keeps_removed:
        reason = "the table must be made again, which would lose the rows that skip keeps"
        course.stop(f"{reason}: move {policy.folder} away, then {remedy(course.table)}")
        return ColumnPlan()
    return plan


def _meet_misfit(course: TableCourse, case: Case, misfit: Misfit, columns: ColumnView) -> None:
    choice = case.policy.inconsistent_images
    if misfit.lasting:
        then = f"move {case.policy.folder} away, then {remedy(course.table)}"
        course.stop(f"{misfit}, which its history cannot hold: {then}")
    elif misfit.inconsistent and choice is not None and not columns.alters:
        course.contradict(str(misfit), choice)
    else:
        course.read_again(str(misfit))


def _unwritable(definition: Definition, parts: Sequence[Part], case: Case) -> str | None:
    """Return why no table of this form can hold the images; else None."""
    policy, then = case.policy, remedy(case.arrival.table)
    if policy.form is Form.MARKED and not definition.key:
        setting = f'set deletes = "remove" in [tables."{definition.table}"]'
        return f'deletes = "mark" needs a key, and the table has none: {setting}, then {then}'
    if policy.form is Form.HISTORY:
        if not definition.key:
            return f"a history needs a key, and the table has none: leave it out, or add a key, then {then}"
        if any(part.partial for part in parts):
            return f"a history needs whole rows, and images leave columns out: set binlog_row_image = FULL, then {then}"
    if policy.keeps_removed and policy.form is not None and not definition.key:
        return f"skip keeps removed rows, which needs a key, and the table has none: {then}"
    return reserved(definition, policy.form)


def log_actions(
    course: TableCourse, case: Case, parts: Sequence[Part], *, needs_no_log: bool
) -> tuple[AppendChanges, ...]:
    """Return the actions on the changelog, also for a ``stale`` table. Columns that it cannot hold stop the table.

    :param needs_no_log: if older images do not fit the rows of a snapshot that begins, append only those rows.
    """
    logged, chunks, problem = case.before.logged, case.arrival.chunks, ""
    for images in (parts, chunks) if needs_no_log and chunks else (parts,):
        try:
            definition = union(images, logged)
        except Misfit as misfit:
            then = f"move {case.policy.changelog_folder} away, then {remedy(course.table)}"
            problem = f"{misfit}, which its changelog cannot hold: {then}"
            continue
        wrong = reserved(definition) if definition is not None else None
        if definition is None or wrong is not None:
            problem = wrong or ""
            break
        return (AppendChanges(definition, images, names=names_in_log(images, logged)),)
    if problem:
        course.stop(problem)
    return ()
