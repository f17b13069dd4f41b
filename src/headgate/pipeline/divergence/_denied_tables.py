"""Tables of the log from which the account may not SELECT, or could not when a batch was planned.

information_schema does not show them, so the planner does not know them and queues no snapshot. The log shows them as
soon as they change, with names of columns (``binlog_row_metadata = FULL``) also in a form that can be applied. Their
earlier rows are missing then, so such a table is stopped. Without names of columns the reader leaves its images out,
which stops it, too.

The planner looks at the tables after it has chosen E. So a table that it did not know, and that exists now, was hidden
from it, unless a statement of the batch created it: then all its rows are in the log. If SELECT was granted meanwhile,
the table is read. A table that is gone again lacks nothing.
"""

from __future__ import annotations

from headgate.carrier import Batch
from headgate.catalog import SelectAccess, creates_if_absent, denied_reason, table_access
from headgate.decide import Divergence
from headgate.mysql import Connection, ConnectionSettings
from headgate.names import split_table
from headgate.sinks import BatchWriter

__all__ = ["DeniedTables"]


class DeniedTables:
    """Detector, batch by batch, of these tables.

    :param writer: has the ledger.
    """

    def __init__(self, writer: BatchWriter, settings: ConnectionSettings) -> None:
        self._writer, self._settings = writer, settings

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return these tables. Query the server only about tables that neither the ledger nor the header has.

        :raises HeadgateError: the query failed.
        """
        known = self._writer.ledger.tables().keys() | batch.header.tables.keys() | _created(batch)
        unknown = sorted(batch.parts.keys() - known)
        if not unknown:
            return {}
        with Connection.open(self._settings) as connection:
            answers = {table: table_access(connection.query, *split_table(table)) for table in unknown}
        denied = {
            table: Divergence(denied_reason(*split_table(table)))
            for table in unknown
            if answers[table] is SelectAccess.DENIED
        }
        hidden = Divergence("the account could not see it when its first changes were planned", over=True)
        return {**denied, **{table: hidden for table in unknown if answers[table] is SelectAccess.ALLOWED}}


def _created(batch: Batch) -> set[str]:
    """Return the tables that statements of a batch created, which had no rows before."""
    return {ddl.table for ddl in batch.ddl if ddl.action == "create" and not creates_if_absent(ddl.action, ddl.changes)}
