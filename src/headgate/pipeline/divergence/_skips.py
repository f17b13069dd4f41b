"""Current tables that differ from their source because ``skip`` leaves operations out.

The source leaves them out (``spark/_read_task.py``), so no batch shows what was skipped. Therefore the first batch of a
run makes every such table ``inexact``; later ones those that they bring. A table stays ``inexact`` until it was read
again without ``skip``.
"""

from __future__ import annotations

from collections.abc import Collection

from headgate.carrier import Batch
from headgate.config import PipelineConfig
from headgate.decide import Divergence
from headgate.sinks import BatchWriter

__all__ = ["Skips"]


class Skips:
    """Detector, for one run, of tables with skipped operations."""

    def __init__(self, config: PipelineConfig, writer: BatchWriter) -> None:
        self._config, self._writer = config, writer
        self._begun = False

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return these tables: all at the first call, then those of the batch."""
        if "current" not in self._config.target.mode:
            return {}
        tables: Collection[str] = batch.tables()
        if not self._begun:
            tables = {*tables, *self._writer.ledger.tables()}
            self._begun = True
        skipped = {table: self._config.skips(table) for table in tables}
        return {
            table: Divergence(f"skip leaves operations out: {', '.join(operations)}", accepted=True)
            for table, operations in skipped.items()
            if operations
        }
