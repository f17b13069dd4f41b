"""The schema history: a Delta table with one row per statement and table: the statement and its outcome."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headgate.carrier import SEQ_DDL, Batch
from headgate.decide import Decision, StatementOutcome
from headgate.lake import PIPELINE, TABLE, DeltaPath, Lake, Marker, UnenteredBatches, append_rows, spark_schema
from headgate.names import split_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SchemaHistory"]

log = logging.getLogger("headgate")

_DDL = (
    "epoch bigint, db string, table string, action string, statement string, "
    f"_seq {SEQ_DDL}, _gtid string, _ts timestamp, outcome string, reason string"
)
_TABLE_PROPERTY = "_headgate.schema_history"
_SEQ = ("epoch", "file", "pos", "ordinal")


class SchemaHistory:
    """The schema history of one pipeline.

    :raises TargetError: its path holds something else.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: str) -> None:
        self._delta = DeltaPath(spark, lake.schema_history)
        self._pipeline = pipeline
        self._exists = self._delta.check_ours(pipeline, _TABLE_PROPERTY) is not None

    def undo(self, unentered: UnenteredBatches) -> None:
        """Delete the statements of batches that the ledger lacks."""
        if self._exists:
            unentered.restored(self._delta, None, "epoch")

    def write(self, batch: Batch, decisions: Sequence[Decision]) -> None:
        """Append the rows of a batch, once; statements on tables that are not ours are ``ignored``."""
        outcomes = [(decision.table, outcome) for decision in decisions for outcome in decision.outcomes]
        noted = {id(outcome.ddl) for _, outcome in outcomes}
        unknown = [ddl for ddl in batch.ddl if id(ddl) not in noted]
        outcomes += [(ddl.table, StatementOutcome(ddl, "ignored", "no such table here")) for ddl in unknown]
        if not outcomes:
            return
        if not self._exists:
            self._delta.create(spark_schema(_DDL), {PIPELINE: self._pipeline, TABLE: _TABLE_PROPERTY})
            self._exists = True
        epoch = batch.header.epoch
        rows = []
        for table, outcome in sorted(outcomes, key=lambda one: one[1].ddl.seq):
            rows.append(_row(epoch, table, outcome))
            log.info("%s: %s: %s", table, outcome.done, " ".join(outcome.ddl.statement.split()))
        append_rows(self._delta, rows, _DDL, Marker(f"headgate/{self._pipeline}/{_TABLE_PROPERTY}", epoch))


def _row(epoch: int, table: str, outcome: StatementOutcome) -> tuple[Any, ...]:
    ddl = outcome.ddl
    when = None if ddl.ts is None else datetime.fromtimestamp(ddl.ts / 1e6, UTC)
    seq = dict(zip(_SEQ, ddl.seq, strict=True))
    what = (*split_table(table), ddl.action, ddl.statement)
    return (epoch, *what, seq, ddl.gtid, when, outcome.done, outcome.reason)
