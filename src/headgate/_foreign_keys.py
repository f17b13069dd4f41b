"""Foreign keys that come to a table while it is followed, and whose cascades the log does not hold.

A run refuses tables with such keys when it begins (``pipeline.check_source``). Later a table gets one in two ways, and
both show in a batch before its rows count:

- A statement declares it. The statement is in the log, so it is met even if the key is gone again when the batch is
  applied; then a new reading finds what the key has done meanwhile.
- The table comes with it: it is created with it, gets its name from a RENAME, or is read again although it was stopped.
  Its rows come in a reading, so the server is asked when one begins and when a RENAME gives a name.

Between such moments a table has no other keys than at the last one. What is not met is a server that is restarted with
``innodb_native_foreign_keys=ON`` in the middle of a run: the next run refuses it.

``foreign_keys = "accept"`` follows the table all the same: it is ``inexact`` in the ledger, with the reason. With its
first batch a run looks at all such tables, because an earlier headgate called them live. Else the table is stopped, as
by any other change that the log does not tell; the other tables go on. On a replay after a crash the server is asked
again, and the answer may be another one; a table that is held takes nothing of the batch, so either outcome is one of a
first try.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headgate.catalog import TablePatterns, declares_cascade
from headgate.config import PipelineConfig
from headgate.mysql import Connection, ConnectionSettings, cascades, read_facts
from headgate.sinks import Batch, Unseen

__all__ = ["ForeignKeys"]

log = logging.getLogger("headgate")


class ForeignKeys:
    """Looks at batches for tables whose rows foreign keys change unseen."""

    def __init__(self, config: PipelineConfig, settings: ConnectionSettings) -> None:
        self._config = config
        self._settings = settings
        self._followed = TablePatterns(config.source.tables)
        self._accepted = [table for table in config.tables if config.accepts_cascades(table)]
        self._begun = False

    def unseen(self, batch: Batch) -> dict[str, Unseen]:
        """The tables to hold, and why. The server is asked only if the batch gives cause.

        :raises HeadgateError: it cannot be asked.
        """
        declared = dict(self._declared(batch))
        asked = sorted({*declared, *self._arriving(batch), *(() if self._begun else self._accepted)})
        found: dict[str, Unseen] = {}
        if not asked:
            return found
        with Connection.open(self._settings) as connection:
            for table in asked:
                db, _, name = table.partition(".")
                keys = cascades(connection, [(db, name)])
                accepted = table in self._accepted
                if keys:
                    more = 'accepted by foreign_keys = "accept"' if accepted else keys[0].remedy
                    found[table] = Unseen(f"{keys[0].name}: {keys[0].actual}: {more}", accepted=accepted)
                elif table in declared and not read_facts(connection).logs_cascades:
                    reason = f"a foreign key changed rows unseen, or may have: {declared[table]}"
                    found[table] = Unseen(reason, over=True, accepted=accepted)
        self._begun = True
        return found

    def _declared(self, batch: Batch) -> Iterator[tuple[str, str]]:
        """Tables that a statement gives such a key, and the statement."""
        for ddl in batch.ddl:
            if ddl.action in ("create", "alter") and self._follows(ddl.table) and declares_cascade(ddl.statement):
                yield ddl.table, " ".join(ddl.statement.split())[:200]

    def _arriving(self, batch: Batch) -> Iterator[str]:
        """Tables that may bring keys with them."""
        for ddl in batch.ddl:
            if ddl.new_name is not None and self._follows(ddl.new_name):
                yield ddl.new_name
        for table, info in batch.header.tables.items():
            if info.since_epoch == batch.header.epoch and not info.partial:
                yield table

    def _follows(self, table: str) -> bool:
        db, _, name = table.partition(".")
        return self._followed.matches(db, name)
