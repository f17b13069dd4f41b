"""Undo batches that wrote tables but never got into the ledger.

A batch commits to its tables, then to the ledger. If the driver is killed in between, Spark's checkpoint repeats the
batch under the same epoch, and each action documents why that is safe. If the checkpoint is lost, too, the stream
continues from the ledger's newest row, with a batch of another epoch and perhaps another end. The markers of the lost
batch stop none of its appends. And a table may have changes beyond its end, or of transactions that a failover lost. So
each table that a lost batch wrote first gets the content of its version in the ledger, in one commit.

**Which tables.** Each commit of a batch has a marker with its epoch (``batch_marker``). A batch after the ledger's
newest that is not the one to write is lost.

**Repeatable.** A restored table keeps the lost batch's marker. So after another kill it is restored again, unless the
next batch has written it: then it has the marker of that one, whose replay restores nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headgate.delta import CommitPlan, restoration, snapshot_at
from headgate.lake._delta import DeltaPath
from headgate.lake._marker import newest_batch
from headgate.lake._replace import keep_until

if TYPE_CHECKING:
    from headgate.lake._ledger import TableState

__all__ = ["UnenteredBatches"]

log = logging.getLogger("headgate")


@dataclass(frozen=True)
class UnenteredBatches:
    """Batches of a pipeline that the ledger lacks.

    :param newest: epoch of the ledger's newest row.
    :param epoch: of the batch to write.
    """

    pipeline: str
    newest: int
    epoch: int

    def undo(self, state: TableState, current: DeltaPath | None, changelog: DeltaPath | None) -> TableState:
        """Restore the Delta tables of a source table, and return its state with their new versions.

        :param state: in the ledger's newest row.
        :param current: the current table, if the pipeline writes one.
        :param changelog: likewise.
        :raises TargetError: a version that the ledger names cannot be restored.
        """
        if changelog is not None:
            state = replace(state, changelog_version=self.restored(changelog, state.changelog_version))
        if current is not None:
            state = replace(state, version=self.restored(current, state.version))
            if state.successor is not None:
                built = current.inside(state.successor.folder)
                version = self.restored(built, state.successor.version)
                state = replace(state, successor=replace(state.successor, version=version or state.successor.version))
        return state

    def restored(self, delta: DeltaPath, version: int | None, column: str = "_seq") -> int | None:
        """Undo the batches in one Delta table. Return the version that has the ledger's content; None: it has none.

        :param version: in the ledger; None: no batch of the ledger has written the table, so their rows are deleted.
        :param column: has the epoch of a row's batch, or is a struct with it.
        :raises TargetError: the version cannot be restored, or headgate cannot write the table.
        """
        lost = newest_batch(self.pipeline, delta.transactions())
        if lost <= self.newest or lost == self.epoch:
            return version
        log.warning("%s: batch %d is not in the ledger, and its checkpoint is lost: undone", delta.path, lost)
        if version is None:
            keep_until(delta, self.newest, column)
            return None
        return _restore(delta, version)


def _restore(delta: DeltaPath, version: int) -> int:
    """Restore a version of a table, and return the newest one."""

    def plan() -> CommitPlan | None:
        table = delta.writable(files=True)
        actions = restoration(table, snapshot_at(delta.path, version))
        return CommitPlan(table, actions, "RESTORE", {"version": str(version)}) if actions else None

    delta.commit(plan)
    return delta.known().version
