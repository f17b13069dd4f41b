"""Undo batches that wrote tables but never got into the ledger.

A batch commits to its tables, then to the ledger. If the driver is killed in between, Spark's checkpoint repeats the
batch under the same epoch, and each action documents why that is safe. If the checkpoint is lost, too, the stream
continues from the ledger's newest row, with a batch of another epoch and perhaps another end. The markers of the lost
batch stop none of its appends. And a table may have changes beyond its end, or of transactions that a failover lost. So
each table that a lost batch wrote first gets the content of its version in the ledger, in one commit.

**Which tables.** Each commit of a batch has a marker with its epoch (``batch_marker``). A batch after the ledger's
newest that is not the one to write is lost. The first batch of a run looks at the tables that the run follows or that
the batch brings, and at those of the ledger that had not ended: the source may have dropped one since, or the
configuration may leave it out, and then no later batch would write it. If such a table cannot be restored, the run
warns and goes on. A table that comes to the run later is looked at then; what the first batch restored stays.

**Repeatable.** The commit that restores a table has the marker of the batch to write. So after another kill a replay of
that batch restores nothing; if its checkpoint is lost, too, it is a lost batch itself. And a driver that still writes
the lost batch is refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.delta import CommitPlan, missing_files, restoration, snapshot_at
from headgate.errors import TargetError
from headgate.lake._delta import DeltaPath
from headgate.lake._marker import batch_marker, newest_batch
from headgate.lake._replace import keep_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.lake._ledger_row import TableState

__all__ = ["UnenteredBatches"]

log = logging.getLogger("headgate")

_READS_AGAIN: Final = "move the folder away, and the next run reads the table again"
_BEGINS_AGAIN: Final = "move the folder away, and the next change begins a new changelog"
_STAYS: Final = "it stays as that batch left it"


@dataclass(frozen=True)
class UnenteredBatches:
    """Batches of a pipeline that the ledger lacks.

    :param newest: epoch of the ledger's newest row, or before the first one (``Ledger.entered_epoch``).
    :param epoch: of the batch to write.
    :param first: epoch of the run's first batch, which is this one or in the ledger by now; None: this one.
    """

    pipeline: str
    newest: int
    epoch: int
    first: int | None = None

    def undo(
        self, state: TableState, current: DeltaPath | None, changelog: DeltaPath | None, *, is_followed: bool = True
    ) -> TableState:
        """Restore the Delta tables of a source table, and return its state with their new versions.

        :param state: in the ledger's newest row.
        :param current: the current table, if the pipeline writes one.
        :param changelog: likewise.
        :param is_followed: whether the run follows the source table.
        :raises TargetError: a version that the ledger names cannot be restored.
        """
        reads_again, begins_again = (_READS_AGAIN, _BEGINS_AGAIN) if is_followed else (_STAYS, _STAYS)
        if changelog is not None:
            version = self.restored(changelog, state.changelog_version, remedy=begins_again)
            state = replace(state, changelog_version=version)
        if current is not None:
            state = replace(state, version=self.restored(current, state.version, remedy=reads_again))
            if state.successor is not None:
                built = current.inside(state.successor.folder)
                version = self.restored(built, state.successor.version, remedy=reads_again)
                state = replace(state, successor=replace(state.successor, version=version or state.successor.version))
        return state

    def restored(
        self, delta: DeltaPath, version: int | None, column: str = "_seq", remedy: str = _READS_AGAIN
    ) -> int | None:
        """Undo the batches in one Delta table. Return the version that has the ledger's content; None: it has none.

        :param version: in the ledger; None: no batch of the ledger has written the table, so their rows are deleted.
        :param column: has the epoch of a row's batch, or is a struct with it.
        :param remedy: what to do if files of the version are gone.
        :raises TargetError: the version cannot be restored, headgate cannot write the table, or a later batch has.
        """
        lost = self._lost(delta.transactions())
        if lost is None:
            return version
        delta = replace(delta, marker=batch_marker(self.pipeline, self.epoch))
        log.warning("%s: batch %d is not in the ledger, and its checkpoint is lost: undone", delta.path, lost)
        if version is None:
            keep_until(delta, self.newest, column, unless=lambda table: self._lost(table.transactions) is None)
            return None
        return self._restore(delta, version, remedy)

    def _lost(self, transactions: Mapping[str, int]) -> int | None:
        """Return the epoch of the lost batch that wrote a version of a table last; None: none did."""
        newest = newest_batch(self.pipeline, transactions)
        return None if newest <= self.newest or newest in (self.epoch, self.first) else newest

    def _restore(self, delta: DeltaPath, version: int, remedy: str) -> int:
        """Restore a version of a table, and return the one that has its content. Another driver may have restored the
        table, and written the batch, since the last look.
        """

        def plan() -> CommitPlan | None:
            table = delta.writable(files=True)
            if self._lost(table.transactions) is None:
                return None
            actions = restoration(table, snapshot_at(delta.path, version))
            missing = missing_files(delta.path, actions)
            if missing:
                raise TargetError(
                    f"{delta.path}: version {version} cannot be restored: {missing[0]} is gone, another program has"
                    f" removed it; {remedy}"
                )
            return CommitPlan(table, actions, "RESTORE", {"version": str(version)}) if actions else None

        done = delta.commit(plan)
        return version if done is None else done.version
