"""Tables of the log from which the account may not SELECT.

information_schema does not show them, so the planner does not know them and queues no snapshot. The log shows them as
soon as they change, with names of columns (``binlog_row_metadata = FULL``) also in a form that can be applied. Their
earlier rows are missing then, so such a table is stopped. Without names of columns the reader leaves its images out,
which stops it, too.

A table that is unknown for another reason is queried once, with its first changes: one that was created after the
planner looked has all its rows in the log.
"""

from __future__ import annotations

from headgate.carrier import Batch
from headgate.catalog import denied_reason, denies_select
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
        unknown = sorted(batch.parts.keys() - self._writer.ledger.tables().keys() - batch.header.tables.keys())
        if not unknown:
            return {}
        with Connection.open(self._settings) as connection:
            denied = [table for table in unknown if denies_select(connection.query, *split_table(table))]
        return {table: Divergence(denied_reason(*split_table(table))) for table in denied}
