"""A table's state in the ledger, after the last event of a batch.

What it promises is limited to what is true.

``live`` means: exactly the source's rows as of the row's GTID set E. A table whose rows were all read is live, with two
exceptions:

- **Rows were kept or dropped while they were read** (``window`` ``keep``, ``drop``). A chunk's rows are then as of some
  moment between its batch's E and its high watermark H, or missing. They are exact after every change in H was applied
  (``snapshot/_reader.py``). So the part of all H that is not yet in E is recorded (``settles_at``), also while other
  ranges are still to be read. The table is ``settling`` until a batch's E contains it. If a failover loses transactions
  of H, no E ever contains it: the table correctly stays ``settling`` until it is read again. If their numbers are used
  again, the planner notices that and the batch's header has the table as one that was never read.
- **Its rows change without images** (by foreign keys), or images are skipped, and the configuration accepts that: the
  table is ``inexact`` until a full snapshot begins without such a cause.
- **Images that contradict it were left out** (``inconsistent_images = "skip"``): the same. The ledger row of the batch
  that leaves them out says so, hence no row of the ledger promises more than the table has.

A full snapshot that begins replaces every row, so it resets both. A replay of the batch may bring a later H, never an
earlier one on the same server; the ledger's row is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.carrier import Part
from headgate.decide._case import Case
from headgate.decide._course import TableCourse, TableEvent
from headgate.decide._misfits import hook_name
from headgate.decide.states import EventKind
from headgate.lake import IgnoredChanges, LeftOut, State, TableState
from headgate.positions import NOTHING, Position, parse_position

__all__ = ["Limits", "state_after", "suspended_state"]


@dataclass(frozen=True)
class Limits:
    """Why a table that is not suspended may differ from the source, and until when."""

    pending: Position  # still to be applied before all rows that were read are exact
    unlogged: str | None  # why rows change without images, by all causes
    left_out: LeftOut | None  # what was left out, in this batch and before

    @classmethod
    def of(cls, course: TableCourse, case: Case) -> Limits:
        """Return the limits after the batch. If all rows are read again in it, earlier ones do not count."""
        batch, unseen, row = case.arrival.batch, case.arrival.unseen, case.before.row
        earlier = TableState(course.table, State.LIVE) if row is None or case.snapshot.restarts else row
        watermark = batch.watermarks.get(course.table, NOTHING)
        pending = (parse_position(earlier.settles_at or "") | watermark) - parse_position(batch.header.gtid)
        # A cause that is over when a full snapshot begins does not count.
        is_unlogged = unseen is not None and unseen.accepted and not (unseen.over and case.snapshot.begins)
        unlogged = _joined(earlier.unlogged, unseen.reason if unseen is not None and is_unlogged else None)
        left_out, events = earlier.left_out, course.left_out
        if events:
            left_out = left_out or LeftOut(events[0].reason or "", batch.header.start)
            left_out = replace(left_out, changes=left_out.changes + sum(event.changes for event in events))
        return cls(pending, unlogged, left_out)

    def add_to(self, course: TableCourse) -> None:
        """Append the event that they are to the table."""
        causes = _joined(self.unlogged, self.left_out.text if self.left_out is not None else None)
        if causes:
            course.add(TableEvent(EventKind.IS_INEXACT, causes))
        elif self.pending:
            course.add(TableEvent(EventKind.IS_EXACT_LATER, f"exact once these changes are applied: {self.pending}"))
        else:
            course.add(TableEvent(EventKind.IS_EXACT))


def state_after(
    course: TableCourse,
    case: Case,
    limits: Limits,
    images: Sequence[Part],
    ignored: IgnoredChanges,
    *,
    without_log: bool,
) -> TableState:
    """Return the table's state for the ledger.

    :param images: those of the batch that the table does not leave out.
    :param ignored: changes of columns that the table ignores.
    :param without_log: a snapshot begins, and the current table does not get the batch's changes next to its chunks.
    """
    snapshot, row, policy = case.snapshot, case.before.row, case.policy
    state = TableState(
        table=course.table,
        state=course.state.value,
        version=row.version if row is not None and policy.form is not None else None,
        changelog_version=row.changelog_version if row is not None and policy.changelog else None,
        rows_estimate=snapshot.header_entry.rows_estimate,
        chunks_done=snapshot.header_entry.chunks_done,
        chunks_estimate=snapshot.header_entry.chunks_estimate,
        images=sum(part.images for part in images),
        reason=course.reason,
        hook=row.hook if row is not None else None,
        ignored=ignored,
        unmasked=course.unmasked,
    )
    since = None if snapshot.ends or policy.form is None else snapshot.since
    if course.is_suspended:
        return suspended_state(state, course, _suspension_epoch(course, case))
    return replace(
        state,
        since_epoch=since,
        held_epoch=None if since is None else _outdated_epoch(case, without_log=without_log),
        successor=case.before.successor,
        hook=(hook_name(images[-1].definition.hook) or None) if images else state.hook,
        settles_at=str(limits.pending) if limits.pending else None,
        unlogged=limits.unlogged,
        left_out=limits.left_out,
    )


def suspended_state(state: TableState, course: TableCourse, epoch: int | None) -> TableState:
    """Return the state of a suspended table. It gives its successor and its snapshot up.

    :param epoch: of the suspension: only a snapshot that began later ends it.
    """
    current, reason = course.state.value, course.reason
    return replace(state, state=current, reason=reason, held_epoch=epoch, since_epoch=None, successor=None)


def _outdated_epoch(case: Case, *, without_log: bool) -> int | None:
    """Return since when rows of earlier snapshots lack changes, of a table that is being read; None: they lack none."""
    row, snapshot = case.before.row, case.snapshot
    if row is None:
        return None
    if snapshot.begins and not snapshot.ends_suspension:
        was_exact = case.before.state is State.LIVE and case.arrival.unseen is None
        return case.arrival.epoch if without_log or not was_exact else None
    return row.held_epoch


def _suspension_epoch(course: TableCourse, case: Case) -> int | None:
    """Return the epoch of the suspension. A new suspension during a snapshot makes that snapshot useless."""
    row, is_unread = case.before.row, course.table in case.arrival.batch.unread
    if row is None or not row.is_suspended or case.snapshot.ends_suspension or is_unread:
        return case.arrival.epoch
    is_same = row.reason == course.reason and course.reread_reason is None
    return row.held_epoch if is_same else case.arrival.epoch


def _joined(first: str | None, second: str | None) -> str | None:
    """Return two causes as one text, which names each once."""
    if first is None or second is None or second in first:
        return first or second
    return second if first in second else f"{first}; {second}"
