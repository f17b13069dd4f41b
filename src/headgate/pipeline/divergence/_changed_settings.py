"""Tables whose ``rows`` or hook changed since their rows were written, or whose rows were not written.

A changed expression or function does not show in the log: a row that fails the new expression has no image any more,
one that passes only the new one has none yet, and a row of which the new function makes another has none either. So
each run compares the tables' properties with the configuration before its first batch. A re-read is requested for a
table with another expression or function, also if nothing changes at the source. The first batch of the run suspends
the table, unless the re-read begins in it. The table is made again when its first rows come (``decide/_columns.py``). A
replay of that batch finds the same.

The rows of a table may be missing because its folder was removed, or because an earlier run had no ``current`` and no
``history`` in ``target.mode``. Such a table is read again, too; the next change of it would suspend it
(``decide/_decide.py``). So is one whose changelog an earlier run left out of ``target.mode`` while it changed: the rows
that are read stand in the changelog after the gap.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.carrier import Batch, Resnapshot
from headgate.catalog import exact_pattern
from headgate.config import PipelineConfig
from headgate.decide import Divergence, hook_name, refiltered, rehooked, reread_reason
from headgate.lake import Target, short_name
from headgate.pipeline._table_policy import table_policy
from headgate.sinks import BatchWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ChangedSettings"]

log = logging.getLogger("headgate")


class ChangedSettings:
    """Detector, for one run, of tables whose rows were written by another ``rows`` or hook than the configuration's.

    :param writer: has checked the tables.
    """

    def __init__(self, config: PipelineConfig, writer: BatchWriter) -> None:
        self._config, self._writer = config, writer
        self._compared = False

    def request_rereads(self, spark: SparkSession) -> None:
        """Request re-reads of these tables, if they are not suspended and ``schema_changes`` allows it."""
        ledger = self._writer.ledger
        states, epoch = ledger.tables(), ledger.last.epoch if ledger.last else 0
        reasons = self._writer.lacking(spark) | self.changed(self._writer.targets)
        for table in sorted(states.keys() & reasons):
            reason = reread_reason(states[table], reasons[table], table_policy(self._config, table))
            if reason is not None:
                log.warning("%s is read again: %s", table, reason)
                request = Resnapshot((exact_pattern(table),), reason)
                self._writer.inbox.send_request(f"rows-{epoch}-{short_name(table)}", request)

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return these tables, at the first call."""
        del batch
        if self._compared:
            return {}
        self._compared = True
        return {table: Divergence(reason, over=True) for table, reason in self.changed(self._writer.targets).items()}

    def changed(self, written: Mapping[str, Target]) -> dict[str, str]:
        """Return the reason by table, of those that were written otherwise.

        :param written: the current tables.
        """
        policies = self._config.policies()
        reasons: dict[str, str] = {}
        for table, target in written.items():
            wanted = policies.of(table)
            hooks = hook_name(target.hook), wanted.hook.spelled if wanted.hook is not None else ""
            if target.rows != wanted.rows:
                reasons[table] = refiltered(target.rows, wanted.rows)
            elif hooks[0] != hooks[1]:
                reasons[table] = rehooked(*hooks)
        return reasons
