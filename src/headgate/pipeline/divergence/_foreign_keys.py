"""Foreign keys that a table gets while it is followed, and whose cascades are not in the log.

A run refuses tables with such keys when it begins (``pipeline.check_source``). Later a table can get one in three ways.
Each shows in a batch before the batch's rows count:

- A statement declares it. The statement is in the log, so it is found even if the key is gone when the batch is
  applied. Then a new snapshot reads what the key changed meanwhile.
- The table brings it: the table is created with it, gets its name from a RENAME, or is read again although it was
  stopped. Its rows come in a snapshot, so the server is queried when one begins and when a RENAME gives a name.
- Another server takes over, after a failover, and does not log what the previous one did. It is queried about all
  tables when a batch names it for the first time, and with the first batch of a query.

Between such moments a table gets no other keys. One case is not detected: a server restarted with
``innodb_native_foreign_keys=ON`` during a run, without a failover. The next run refuses it.

``foreign_keys = "accept"`` follows the table anyway: it is ``inexact`` in the ledger, with the reason. Otherwise the
table is stopped, as after any change that the log does not show; other tables continue. On a replay after a crash the
server is queried again and may answer differently. A suspended table takes nothing of the batch, so a first try could
have had either outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from headgate.carrier import Batch
from headgate.catalog import TablePatterns, creates_if_absent, declares_cascade
from headgate.config import PipelineConfig
from headgate.decide import Divergence
from headgate.mysql import Connection, ConnectionSettings, Prerequisite, read_facts, silent_keys

__all__ = ["ForeignKeys"]

log = logging.getLogger("headgate")


class ForeignKeys:
    """Detector, batch by batch, of tables whose rows foreign keys change unseen."""

    def __init__(self, config: PipelineConfig, settings: ConnectionSettings) -> None:
        self._config = config
        self._settings = settings
        self._followed = TablePatterns.following(config.source.tables)
        self._server: str | None = None
        """The server last queried about all tables."""

    def unseen(self, batch: Batch) -> dict[str, Divergence]:
        """Return the affected tables, and why. Query the server only if the batch gives cause.

        :raises HeadgateError: the query failed.
        """
        declared = dict(self._declared(batch))
        moved = batch.header.server_uuid != self._server
        candidates = {*declared, *self._arriving(batch)}
        if not candidates and not moved:
            return {}
        with Connection.open(self._settings) as connection:
            facts = read_facts(connection)
            silent = {} if facts.logs_cascades else silent_keys(connection)
        self._server = facts.server_uuid
        if facts.logs_cascades:
            return {}
        keys = {f"{db}.{name}": rows for (db, name), rows in silent.items()}
        if moved:
            candidates.update(filter(self._follows, keys))
        unseen = {table: self._judge(table, keys.get(table, ()), declared.get(table)) for table in sorted(candidates)}
        return {table: cause for table, cause in unseen.items() if cause is not None}

    def _judge(self, table: str, keys: Sequence[Prerequisite], statement: str | None) -> Divergence | None:
        """Return why a table is not exact any more; None if it still is.

        :param statement: one of the batch that gives it such a key, if any.
        """
        accepted = self._config.accepts_cascades(table)
        if keys:
            more = 'accepted by foreign_keys = "accept"' if accepted else keys[0].remedy
            return Divergence(f"{keys[0].name}: {keys[0].actual}: {more}", accepted=accepted)
        if statement is not None:
            reason = f"a foreign key may have changed rows unseen: {statement}"
            return Divergence(reason, over=True, accepted=accepted)
        return None

    def _declared(self, batch: Batch) -> Iterator[tuple[str, str]]:
        """Yield the tables that a statement gives such a key, and the statement. CREATE TABLE IF NOT EXISTS gives one
        only to a table that is new, and so is read later.
        """
        for ddl in batch.ddl:
            declares = ddl.action in ("create", "alter") and not creates_if_absent(ddl.action, ddl.changes)
            if declares and self._follows(ddl.table) and declares_cascade(ddl.statement):
                yield ddl.table, " ".join(ddl.statement.split())[:200]

    def _arriving(self, batch: Batch) -> Iterator[str]:
        """Yield the tables that may bring keys with them."""
        for ddl in batch.ddl:
            if ddl.new_name is not None and self._follows(ddl.new_name):
                yield ddl.new_name
        for table, info in batch.header.tables.items():
            if info.since_epoch == batch.header.epoch and not info.partial:
                yield table

    def _follows(self, table: str) -> bool:
        db, _, name = table.partition(".")
        return self._followed.matches(db, name)
