"""Effects of a batch's DDL statements on a table.

The log does not show what a statement does to existing rows. So a table keeps taking images only if the statement alone
defines its effect:

| met in the log | under ``evolve`` | under ``strict`` |
|---|---|---|
| ALTER of indexes, constraints, comments, options; of partitions that keeps all rows | no effect | the same |
| ALTER that only adds columns, NULL or with an exact literal default | columns added and filled | the same |
| ALTER that drops, renames or widens columns of a complete table (``_columns``) | applied to its rows | ``stopped`` |
| RENAME of a column that a rule hides, to a name without a rule | ``stopped``, whatever it does else | the same |
| any other ALTER | suspended as ``stale``, read again | ``stopped`` |
| DROP, or a RENAME that leaves the name unused | ``dropped``; the target stays as it is | the same |
| CREATE after that, or a RENAME of another table to this name | suspended as ``stale``, read again | ``stopped`` |
| changes of a table that is ``dropped``, without its CREATE | suspended as ``stale``, read again | ``stopped`` |
| TRUNCATE | everything before it is deleted | the same |

A table without a row in the ledger, which the planner found neither before nor now, is ``live`` only if the batch has
its CREATE or a TRUNCATE. Else it had rows before, and is suspended as ``stale`` until its DROP or RENAME comes.

CREATE TABLE IF NOT EXISTS counts only after a statement that removed the table. One that was stopped for another reason
may exist, and stays stopped.

A pipeline without ``current`` and ``history`` has no rows that an ALTER changes, so none has an effect there. The other
statements have the same effects: a table that comes back is read again, which the log of the new one may not show.

``[schema_changes]`` may have the table read again or stopped for changes of columns, too, or ignore them
(``_columns``). What else such a statement changes counts as above.

Tools that change a table through a copy (gh-ost, pt-online-schema-change) end with one RENAME statement that moves the
name to the copy. The table is then read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from headgate.carrier import DdlRow, SourceType
from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn, TablePatterns, creates_if_absent
from headgate.config import ChangePolicy
from headgate.decide._case import Case
from headgate.decide._columns import ColumnView
from headgate.decide._course import TableCourse, TableEvent, remedy
from headgate.decide._misfits import shortened
from headgate.decide._unmasked import unmasked_reason
from headgate.decide.states import EventKind
from headgate.lake import Form, State
from headgate.names import split_table

__all__ = ["read_statements", "stop_unmasked"]


@dataclass
class _Existence:
    """Whether the source has the table, while the batch's statements are read."""

    removed: bool  # the last of them removed the table
    may_exist: bool  # no statement did, but the table was stopped before, for another reason


def read_statements(course: TableCourse, case: Case, columns: ColumnView) -> bool:
    """Process the batch's statements on this table, in log order; return whether they leave no table of this name."""
    arrival, before = case.arrival, case.before
    # Only a table that headgate has can be removed.
    is_ours = before.row is not None or arrival.header_entry is not None or bool(arrival.parts)
    is_stopped = before.state is State.STOPPED
    existence = _Existence(removed=is_stopped or before.state is State.DROPPED, may_exist=is_stopped)
    for ddl in arrival.batch.ddl:
        if ddl.table == course.table and ddl.action == "alter":
            _read_alter(course, columns, ddl, case)
        elif ddl.table == course.table:
            _read(course, existence, ddl, arrival.batch.header.patterns, is_ours=is_ours)
        if ddl.new_name == course.table and is_ours:
            existence.removed = False
            course.read_again(f"the name was given to another table: {shortened(ddl.statement)}", ddl)
    if not existence.removed and not course.is_suspended and _has_unread_rows(case):
        course.read_again("it had rows before its first change that is known, and was gone when tables were looked for")
    if course.state is before.state is State.DROPPED and _is_back(case):
        existence.removed = False
        course.read_again("it has changes, and no statement of the log created it again")
    return existence.removed


def _has_unread_rows(case: Case) -> bool:
    """Whether the table may have rows that no batch brings: nobody has read it, or is to read it, it has images, and no
    statement of the batch begins it. It was there before the stream began, and left before the planner looked.
    """
    arrival = case.arrival
    if case.before.row is not None or arrival.header_entry is not None or not arrival.parts:
        return False
    begun = (one.action == "create" and not creates_if_absent("create", one.changes) for one in arrival.statements)
    return not any(begun) and not arrival.truncates


def _is_back(case: Case) -> bool:
    """Whether the source has a dropped table again: it has images, and no statement of the batch removed it."""
    is_removed = any(ddl.action in ("drop", "rename") for ddl in case.arrival.statements)
    return not is_removed and any(part.kind == "rows" for part in case.arrival.parts)


def _read(course: TableCourse, existence: _Existence, ddl: DdlRow, patterns: Sequence[str], *, is_ours: bool) -> None:
    """Process one statement."""
    text = shortened(ddl.statement)
    match ddl.action:
        case "truncate":
            course.add(TableEvent(EventKind.STATEMENT, statement=ddl, is_held=course.suspended_state is not None))
        case "drop" | "rename" if is_ours:
            existence.removed, existence.may_exist = True, False
            course.add(TableEvent(EventKind.REMOVES, _removal(ddl, patterns), ddl))
        case "create" if existence.may_exist and creates_if_absent(ddl.action, ddl.changes):
            course.add(TableEvent(EventKind.STATEMENT, statement=ddl))
        case "create" if existence.removed:
            existence.removed = False
            course.read_again(f"created again: {text}", ddl)
        case _:
            course.add(TableEvent(EventKind.STATEMENT, statement=ddl))


def _removal(ddl: DdlRow, patterns: Sequence[str]) -> str:
    """Return why a table is gone, and where its rows are."""
    text = shortened(ddl.statement)
    if ddl.new_name is None:
        return text
    if not TablePatterns(patterns).matches(*split_table(ddl.new_name)):
        return f"it is {ddl.new_name} now, which source.tables leaves out: {text}"
    shown = f", and no rule hides there what a rule hid in {', '.join(ddl.unmasks)}" if ddl.unmasks else ""
    return f"it is {ddl.new_name} now, followed as another table{shown}: {text}"


def stop_unmasked(course: TableCourse, case: Case) -> bool:
    """Stop a table whose columns have lost the rule that hid their values, and return whether its images are left out
    everywhere: those of the log, and those of a snapshot that begins.

    If a later statement removes that table, it is no longer its name's. A table that another cause stops, too, keeps
    the reason that names these columns.
    """
    others = [
        ddl.seq
        for ddl in case.arrival.batch.ddl
        if ddl.new_name == course.table or (ddl.table == course.table and ddl.action in ("drop", "rename"))
    ]
    unmasking = [ddl for ddl in case.arrival.statements if ddl.unmasks and ddl.action == "alter"]
    lasting = [ddl for ddl in unmasking if not others or ddl.seq > others[-1]]
    is_same = not others and course.state in (State.STOPPED, State.EXCLUDED)
    names = dict.fromkeys([*(case.unmasked if is_same else ()), *(name for ddl in lasting for name in ddl.unmasks)])
    course.unmasked = (*names,)
    reason = unmasked_reason(course.unmasked, remedy(course.table))
    for ddl in unmasking:
        if ddl in lasting:
            course.stop(reason, ddl)
        else:
            course.add(TableEvent(EventKind.STATEMENT, statement=ddl, is_held=True))
    if names and (course.state is State.STOPPED or case.snapshot.unmasks) and course.reason != reason:
        course.stop(reason)
    return bool(unmasking or names)


def _alters_in_place(course: TableCourse, case: Case) -> bool:
    """Return whether the table may take more than added columns without a re-read: if its columns' names are certain
    in all images of the batch, and no snapshot reads it.

    If the reader left images out, because the log did not name their columns, the ALTER is why, or came after it.
    """
    is_complete = case.before.state in (State.LIVE, State.INEXACT) and case.snapshot.event is EventKind.FOLLOWS
    is_named = course.table not in case.arrival.batch.stops
    is_supported = case.policy.form is not Form.HISTORY  # whose ended versions have the columns of their time
    return is_complete and is_named and is_supported and not course.is_suspended and not course.strict


def _read_alter(course: TableCourse, columns: ColumnView, ddl: DdlRow, case: Case) -> None:
    """Process an ALTER."""
    if ddl.unmasks:  # see stop_unmasked
        return
    if case.policy.form is None:
        course.add(TableEvent(EventKind.STATEMENT, statement=ddl))
        return
    followed, ignored = _without_ignored(columns, ddl, case)
    is_held = course.suspended_state is not None
    if ignored and not followed.changes:
        course.add(TableEvent(EventKind.IGNORES, ignored, ddl, is_held=is_held))
        return
    text, key, policy = shortened(ddl.statement), *_policy_of(followed, case)
    is_known = followed.adds is not None or (followed.changes is not None and _alters_in_place(course, case))
    if is_known and policy == "evolve":
        columns.alters.append(followed)
        course.add(TableEvent(EventKind.ALTERS, ignored, ddl, is_held=is_held))
        return
    if course.suspended_state is State.STOPPED and (course.strict or policy == "stop" or case.unmasked):
        course.add(TableEvent(EventKind.STATEMENT, statement=ddl, is_held=True))
        return
    reason = f"ALTER may have changed rows: {text}" if policy == "evolve" else f'{key} = "{policy}": {text}'
    if policy == "stop":
        course.stop(f"{reason}; {remedy(course.table)}", ddl)
    else:
        course.read_again(reason, ddl)


def _without_ignored(columns: ColumnView, ddl: DdlRow, case: Case) -> tuple[DdlRow, str | None]:
    """Return an ALTER without the changes that the table ignores, and why it ignores some, if it does.

    A table that begins in this batch has the columns of its source.
    """
    if ddl.changes is None:
        return ddl, None
    settings = case.policy.schema_changes
    followed, reasons = columns.follow(ddl, settings if case.before.row is not None else settings.following_all())
    return followed, "; ".join(reasons) or None


def _policy_of(ddl: DdlRow, case: Case) -> tuple[str, ChangePolicy]:
    """Return the strictest of the configured policies for the kinds of changes in an ALTER, and its key.

    :param ddl: has only changes that are not ignored.
    """
    target, settings = case.before.target, case.policy.schema_changes.following_all()
    types = target.source_types if target is not None else {}
    kinds = {kind for change in ddl.changes or () for kind in _kinds(change, types)}
    policies: list[tuple[str, ChangePolicy]] = [(kind, getattr(settings, kind)) for kind in kinds]
    order: tuple[ChangePolicy, ...] = get_args(ChangePolicy)
    return max(sorted(policies), key=lambda one: order.index(one[1]), default=("", "evolve"))


def _kinds(change: ColumnChange, types: Mapping[str, SourceType]) -> Iterator[str]:
    """Yield the kinds of a change, as keys of ``[schema_changes]``.

    :param types: the source's types before it, as far as they are known.
    """
    match change:
        case AddedColumn():
            yield "add_column"
        case DroppedColumn():
            yield "drop_column"
        case RedefinedColumn(name=name, new_name=new_name, mysql=mysql):
            if name != new_name:
                yield "rename_column"
            if mysql is not None and (name not in types or types[name][0] != mysql):
                yield "widen_column"
