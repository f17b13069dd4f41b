"""Limit what the ledger promises of a table after a batch to what is true.

``live`` means: exactly the source's rows as of the row's GTID set E. A table whose rows were all read is live, with two
exceptions:

- **Rows were kept or dropped while they were read** (``window`` ``keep``, ``drop``). A chunk's rows are then as of some
  moment between its batch's E and its high watermark H, or missing. They are exact after every change in H was applied
  (``snapshot/_reader.py``). So the part of all H that is not yet in E is recorded (``settles_at``), also while other
  ranges are still to be read. The table is ``settling`` until a batch's E contains it. If a failover loses transactions
  of H, no E ever contains it: the table correctly stays ``settling`` until it is read again.
- **Its rows change without images** (by foreign keys), or images are skipped, and the configuration accepts that: the
  table is ``inexact`` until a full snapshot begins without such a cause.
- **Images that contradict it were left out** (``inconsistent_images = "skip"``): the same. The ledger row of the batch
  that leaves them out says so, hence no row of the ledger promises more than the table has.

A full snapshot that begins replaces every row, so it resets both. A replay of the batch may bring a later H, never an
earlier one on the same server; the ledger's row is written once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate.carrier import Batch
from headgate.decide._states import State, TableEvent, follow
from headgate.lake import LeftOut, TableState
from headgate.positions import NOTHING, Position, parse_position

__all__ = ["Divergence", "promised"]


@dataclass(frozen=True)
class Divergence:
    """Rows of a table change without images in the log."""

    reason: str
    over: bool = False
    """The cause is gone, so a new snapshot reads its effects."""
    accepted: bool = False
    """The configuration follows the table anyway, as ``inexact``."""


def promised(
    state: TableState,
    batch: Batch,
    before: TableState | None,
    unseen: Divergence | None,
    left_out: LeftOut | None = None,
    *,
    begins: bool,
) -> TableState:
    """Return ``state`` of a table that is not suspended, limited to what is true.

    :param before: the table in the last ledger row; None: its rows are all read again, so earlier problems do not
        count.
    :param unseen: why its rows change without images, from this batch on or in it.
    :param left_out: what was left out in this batch.
    :param begins: whether a full snapshot begins in this batch.
    """
    pending = _still_to_settle(state.table, batch, before)
    unlogged = _unlogged(unseen, before, begins=begins)
    left_out = _left_out(left_out, before)
    causes = _joined(unlogged, left_out.text if left_out is not None else None)
    event = TableEvent.IS_INEXACT if causes else TableEvent.IS_EXACT_LATER if pending else TableEvent.IS_EXACT
    after = follow(State(state.state), event)
    settling = f"exact once these changes are applied: {pending}"
    reasons = {State.INEXACT: causes, State.FILTERED: causes, State.SETTLING: settling}
    settles_at = str(pending) if pending else None
    limited = replace(state, settles_at=settles_at, unlogged=unlogged, left_out=left_out)
    return replace(limited, state=after.value, reason=reasons.get(after))


def _unlogged(unseen: Divergence | None, before: TableState | None, *, begins: bool) -> str | None:
    """Return why rows change without images, by all causes; one that is over when a full snapshot begins does not
    count.
    """
    earlier = before.unlogged if before is not None else None
    if unseen is not None and unseen.accepted and not (unseen.over and begins):
        return _joined(earlier, unseen.reason)
    return earlier


def _joined(first: str | None, second: str | None) -> str | None:
    """Return two causes as one text, which names each once."""
    if first is None or second is None or second in first:
        return first or second
    return second if first in second else f"{first}; {second}"


def _left_out(now: LeftOut | None, before: TableState | None) -> LeftOut | None:
    """Return what was left out, in this batch and before."""
    earlier = before.left_out if before is not None else None
    if earlier is None or now is None:
        return earlier or now
    return replace(earlier, changes=earlier.changes + now.changes)


def _still_to_settle(table: str, batch: Batch, before: TableState | None) -> Position:
    """Return what must still be applied, after this batch, before all rows that were read are exact.

    :param before: the table in the last ledger row; None: rows of earlier snapshots do not count.
    """
    pending = parse_position(before.settles_at) if before is not None and before.settles_at else NOTHING
    return (pending | batch.watermarks.get(table, NOTHING)) - parse_position(batch.header.gtid)
