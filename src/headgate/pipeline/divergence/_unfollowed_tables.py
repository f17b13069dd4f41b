"""Tables of the lake that ``source.tables`` no longer includes.

Nobody reads their changes, so from the first batch without them on they are not what the source has. In the first batch
of a run every such table becomes ``excluded``. If the patterns include a table again, the planner requests a snapshot
of it, which resumes it.
"""

from __future__ import annotations

from headgate.carrier import Batch
from headgate.catalog import TablePatterns
from headgate.config import PipelineConfig
from headgate.decide import Divergence
from headgate.names import split_table
from headgate.sinks import BatchWriter

__all__ = ["UnfollowedTables"]


class UnfollowedTables:
    """Detector, for one run, of tables that were followed before and are not now."""

    def __init__(self, config: PipelineConfig, writer: BatchWriter) -> None:
        self._patterns, self._writer = TablePatterns.following(config.source.tables), writer
        self._tables: frozenset[str] | None = None

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return these tables."""
        del batch
        if self._tables is None:
            known = self._writer.ledger.tables()
            self._tables = frozenset(table for table in known if not self._patterns.matches(*split_table(table)))
        return {table: Divergence("source.tables leaves it out", excluded=True) for table in self._tables}
