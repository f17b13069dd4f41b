"""Tables of the lake that ``source.tables`` no longer includes.

Nobody reads their changes, so from the first batch without them on they are not what the source has. In the first batch
that was planned without it, a table becomes ``excluded``. If the patterns include it again, the planner requests a
snapshot of it, which resumes it.

The patterns are the batch's own, not those of the run: a batch that another run planned, and that is repeated after
``source.tables`` has changed, has the changes of the tables that it was planned for.
"""

from __future__ import annotations

from headgate.carrier import Batch
from headgate.catalog import TablePatterns
from headgate.decide import Divergence
from headgate.names import split_table
from headgate.sinks import BatchWriter

__all__ = ["UnfollowedTables"]


class UnfollowedTables:
    """Detector, for one run, of tables that were followed before and are not now."""

    def __init__(self, writer: BatchWriter) -> None:
        self._writer = writer
        self._patterns: tuple[str, ...] | None = None
        self._tables = frozenset[str]()

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return these tables."""
        if self._patterns != batch.header.patterns:
            self._patterns = batch.header.patterns
            followed, known = TablePatterns(self._patterns), self._writer.ledger.tables()
            self._tables = frozenset(table for table in known if not followed.matches(*split_table(table)))
        return {table: Divergence("source.tables leaves it out", excluded=True) for table in self._tables}
