"""What the ledger may promise of a table after a batch: never more than is so.

``live`` means: exactly the source's rows as of the row's GTID set E. A table whose rows were all read is that, but for
two cases:

- **Rows were kept or dropped while they were read** (``window`` ``keep``, ``drop``). A chunk's rows are then as of some
  moment between its batch's E and its high watermark H, or missing. They are exact once every change in H has been
  applied (``snapshot/_reader.py``). So what of all H is not in E yet is written down (``settles_at``), also while
  other ranges are still to be read, and the table is ``settling`` until a batch's E contains it. If a failover loses
  transactions of H, no E ever contains it: the table stays ``settling``, rightly, until it is read again.
- **Foreign keys change its rows without images**, and the configuration accepts that: the table is ``inexact`` until a
  reading of all rows finds no such key.

A reading of all rows that begins replaces every row there is, so it forgets both. On a replay the same batch may bring
a later H, never an earlier one on the same server; the ledger's row is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate.carrier import Batch, DdlRow, Definition, Part
from headgate.gtid import GtidSet
from headgate.lake import TableState
from headgate.sinks._states import Event, State, follow

__all__ = ["Unseen", "definition_after", "promised"]


@dataclass(frozen=True)
class Unseen:
    """Rows of a table change, and the log does not hold it."""

    reason: str
    over: bool = False
    """What did it is gone again, so that a new reading finds what it has done."""
    accepted: bool = False
    """The configuration has the table followed all the same, as ``inexact``."""


def promised(
    state: TableState, batch: Batch, before: TableState | None, unseen: Unseen | None, *, begins: bool
) -> TableState:
    """``state`` of a table that is not held, with no more said of it than is so.

    :param before: the table in the last ledger row; None: all rows of then are read again, so what was wrong with them
        no longer counts.
    :param unseen: why its rows change without images, from this batch on or in it.
    :param begins: whether a reading of all rows begins in this batch.
    """
    pending = _still_to_settle(state.table, batch, before)
    unlogged = _unlogged(unseen, before, begins=begins)
    event = Event.IS_UNLOGGED if unlogged is not None else Event.IS_EXACT_LATER if pending else Event.IS_EXACT
    after = follow(State(state.state), event)
    reasons = {State.INEXACT: unlogged, State.SETTLING: f"exact once these changes are applied: {pending}"}
    settles_at = str(pending) if pending else None
    return replace(state, state=after.value, reason=reasons.get(after), settles_at=settles_at, unlogged=unlogged)


def _unlogged(unseen: Unseen | None, before: TableState | None, *, begins: bool) -> str | None:
    """Why rows of a followed table change without images; what is over before all rows are read is in them."""
    if unseen is not None and unseen.accepted and not (unseen.over and begins):
        return unseen.reason
    return before.unlogged if before is not None else None


def _still_to_settle(table: str, batch: Batch, before: TableState | None) -> GtidSet:
    """What is still to be applied, after this batch, before all rows that were read are exact.

    :param before: the table in the last ledger row; None: rows of earlier readings no longer count.
    """
    pending = GtidSet.parse(before.settles_at) if before is not None and before.settles_at else GtidSet()
    return (pending | batch.watermarks.get(table, GtidSet())) - GtidSet.parse(batch.header.gtid)


def definition_after(table: str, batch: Batch, before: TableState | None, parts: Sequence[Part]) -> str | None:
    """The fingerprint of the definition that the table has at the batch's end; None: it cannot be told.

    Rows of a chunk have it: DDL after the end would have spoiled them. Images of the log have the one that the table
    had at their place, which is that of the end unless a statement of the batch changed it after them. An image shows
    that it comes after an ALTER that adds columns by having them all; for other statements there is no telling. A
    TRUNCATE, and a table without rows, are given with what the table looks like when the log is read, perhaps later.
    """
    changes = [ddl for ddl in batch.ddl if table in (ddl.table, ddl.new_name) and ddl.action != "truncate"]
    altered = [ddl for ddl in changes if ddl.adds != ()]  # the others may choose another key, which images then show
    shown = _definitions_shown(parts, altered)
    if shown is None:
        return None
    fingerprints = {definition.fingerprint for definition in shown}
    if len(fingerprints) == 1:
        return fingerprints.pop()
    return before.definition if before is not None and not fingerprints and not altered else None


def _definitions_shown(parts: Sequence[Part], altered: Sequence[DdlRow]) -> list[Definition] | None:
    """The definitions of the images that come after these statements; None: which ones do cannot be told."""
    with_images = [part for part in parts if part.images and not part.truncates]
    chunks = [part.definition for part in with_images if part.kind == "chunk"]
    if chunks or not altered:
        return chunks or [part.definition for part in with_images]
    if any(ddl.adds is None for ddl in altered):
        return None
    added = {column.name for ddl in altered for column in ddl.adds or ()}
    return [part.definition for part in with_images if added <= part.definition.types.keys()]
