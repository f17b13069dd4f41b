"""A batch of the stream into all tables, as one commit: plan, write the tables, then the ledger, then the inbox.

The order is the guarantee:

1. the batch is described by one job (which also makes it persistent, so the source is read once);
2. a batch the ledger has is only handed back;
3. what each table needs is decided for *all* tables before anything is written, so a batch that cannot be applied
   (a target that is not ours, columns that do not fit) writes nothing;
4. the tables are written, several at once; each step is repeatable;
5. requests to the planner (read a chunk or a table again) go to the inbox: the planner takes them after this batch
   only, and a replay writes the same files;
6. the ledger row makes the batch count, and holds what the batch has to tell (``control/_events.py``);
7. what rests on that (signals that are done, those that the log brought, finished tables, the position hint) is
   handed back; also of a batch that the ledger has, because the run before may have been killed in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headgate.carrier import Batch, ControlFolder
from headgate.control import BatchFacts, Notification, OpenSnapshots, tell
from headgate.lake import DeltaPath, Lake, Ledger, LedgerRow, TableState, Upkeep, Way, split_table
from headgate.sinks._answers import Answers
from headgate.sinks._carrier import read_batch
from headgate.sinks._case import Arrival, Known, Policy
from headgate.sinks._changelog import ChangelogTable
from headgate.sinks._current import CurrentTable
from headgate.sinks._decide import Decision, decide, hold
from headgate.sinks._history import SchemaHistory
from headgate.sinks._promises import Unseen
from headgate.sinks._report import BatchReport, Progress, log_signals
from headgate.sinks._span import KeySpan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.lake import IndexStatus, Upserts

__all__ = ["BatchWriter"]

log = logging.getLogger("headgate")


class BatchWriter:
    """Writes batches to the sinks of one pipeline; one per run.

    :param modes: ``current``, ``changelog`` or both.
    :param threads: how many tables are written at once.
    :param strict: tables that an ALTER which may change rows stops, instead of reading them again.
    :param retention_hours: how far back ledger rows are to be readable, where headgate removes old files itself.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipeline: str,
        modes: Sequence[str],
        *,
        threads: int = 2,
        strict: Sequence[str] = (),
        retention_hours: float = 6,
    ) -> None:
        self.lake = lake
        self.pipeline = pipeline
        self.modes = tuple(modes)
        self.inbox = ControlFolder(lake.inbox)
        self.ledger = Ledger(spark, lake, pipeline)
        self._answers = Answers(self.inbox)
        self._history = SchemaHistory(spark, lake, pipeline)
        self._threads = threads
        self._strict = frozenset(strict)
        self._checked: set[str] = set()
        self._spans: dict[str, KeySpan] = {}
        self.upkeep: Upkeep | None = None
        if not DeltaPath(spark, lake.schema_history).obstacle():
            codec = spark.conf.get("spark.sql.parquet.compression.codec")
            self.upkeep = Upkeep(lake, retention_hours * 3600, codec, spark)
        self._upserts: Upserts | None = None
        if self.upkeep is not None and "current" in self.modes:
            from headgate.lake import Upserts  # loads numba

            self._upserts = Upserts(folds=self.upkeep.folds)
        self.progress = Progress()
        self.unseen: Callable[[Batch], Mapping[str, Unseen]] | None = None  # tables whose rows change without images
        self.after_tables: Callable[[Batch], None] | None = None  # test hook: between the tables and the ledger

    def check_targets(self, spark: SparkSession, tables: Sequence[str]) -> None:
        """``TargetError`` if the path of any of these tables holds something that is not this pipeline's."""
        for table in tables:
            if table in self._checked:
                continue
            if "current" in self.modes:
                self._current(spark, table).describe()
            if "changelog" in self.modes:
                self._changelog(spark, table).check()
            self._checked.add(table)

    def start_upkeep(self) -> None:
        """Look after the tables beside the batches, until :meth:`close`."""
        if self.upkeep is not None:
            self.upkeep.start()

    def indexes(self) -> IndexStatus | None:
        """The key indexes on this machine; None: none is used."""
        return self._upserts.indexes() if self._upserts is not None else None

    def close(self) -> None:
        """End what goes on beside the batches."""
        if self.upkeep is not None:
            self.upkeep.close()

    def tell_stopped(self) -> None:
        """Warn of the tables that stay as they are: the run that stopped them did, and each later one does."""
        for table, state in sorted(self.ledger.tables().items()):
            if state.state == "stopped":
                log.warning("%s is stopped: %s", table, state.reason)

    def write(self, frame: DataFrame, batch_id: int) -> BatchReport:
        """Apply one batch, once, and tell what it did."""
        started = time.monotonic()
        frame = frame.persist()
        try:
            report = self._write(frame, batch_id)
        finally:
            frame.unpersist()
        return replace(report, seconds=time.monotonic() - started)

    def _write(self, frame: DataFrame, batch_id: int) -> BatchReport:
        batch = read_batch(frame)
        log_signals(batch)
        self.progress.applies(batch)
        before = self.ledger.tables()
        if self.ledger.has(batch.header.epoch):
            self._answers.hand_back(batch, before)
            return BatchReport.of(batch, batch_id, before, (), self._notifications(), replayed=True)
        self.ledger.fence()
        batch.name_dropped_tables(before)
        decisions, ways = self._write_tables(frame, batch, self._decide(frame.sparkSession, batch))
        states = {**before, **{decision.table: decision.state for decision in decisions}}
        self._history.write(batch, decisions)
        self._answers.ask(batch, decisions, before)
        warnings = [text for decision in decisions for text in decision.warnings]
        for text in warnings:
            log.warning("%s", text)
        if self.after_tables is not None:
            self.after_tables(batch)
        if self.upkeep is not None:
            states = self.upkeep.settle(states, {decision.table for decision in decisions})
        row = self._row(batch, batch_id, states)
        self.ledger.append(row)
        committed_us = time.time_ns() // 1000
        self._answers.hand_back(batch, states)
        if self.upkeep is not None:
            self.upkeep.note(row, self.ledger.version)
            self.upkeep.settle_own(self.ledger)
        report = BatchReport.of(batch, batch_id, states, warnings, self._notifications())
        return replace(report, committed_us=committed_us, ways=ways)

    def _row(self, batch: Batch, batch_id: int, states: dict[str, TableState]) -> LedgerRow:
        now = datetime.now(UTC)
        before = self.ledger.last.snapshots if self.ledger.last else OpenSnapshots()
        opened, told = tell(before, self._facts(batch, states, now))
        return LedgerRow(batch_id, batch.header.epoch, batch.header.gtid, now, states, opened, tuple(told))

    def _notifications(self) -> tuple[Notification, ...]:
        return self.ledger.last.notifications if self.ledger.last else ()

    def _facts(self, batch: Batch, states: dict[str, TableState], now: datetime) -> BatchFacts:
        """The batch, as those see it who want to know about snapshots."""
        chunks = {
            table: sum(part.images for part in parts if part.kind == "chunk") for table, parts in batch.parts.items()
        }
        return BatchFacts(
            pipeline=self.pipeline,
            epoch=batch.header.epoch,
            committed_ms=int(now.timestamp() * 1000),
            actions=[action for action in batch.header.actions if isinstance(action, dict)],
            readings=batch.header.readings,
            rows=chunks,
            missed={redo.table for redo in batch.redo},
            held={table: (state.state, state.reason) for table, state in states.items() if state.held},
        )

    def _current(self, spark: SparkSession, table: str) -> CurrentTable:
        span = self._spans.setdefault(table, KeySpan())
        delta = DeltaPath(spark, self.lake.current(table), ours=True)
        return CurrentTable(delta, self.pipeline, table, span, self._upserts)

    def _changelog(self, spark: SparkSession, table: str) -> ChangelogTable:
        return ChangelogTable(DeltaPath(spark, self.lake.changelog(table), ours=True), self.pipeline, table)

    def _decide(self, spark: SparkSession, batch: Batch) -> list[Decision]:
        """What each table needs, for all of them."""
        before, asked = self.ledger.tables(), self._answers.rereads_asked()
        unseen = self.unseen(batch) if self.unseen is not None else {}
        decisions = []
        alone = {table for table in unseen if table in before and not before[table].held} - {*batch.tables()}
        for table in [*batch.tables(), *sorted(alone)]:
            if table not in before and table not in batch.parts and table not in batch.header.tables:
                continue  # a statement on a table we do not have
            self.check_targets(spark, [table])
            reread_asked = asked is not None and asked.matches(*split_table(table))
            known = self._known(spark, batch, table, before.get(table), reread_asked=reread_asked)
            policy = Policy("current" in self.modes, "changelog" in self.modes, table in self._strict)
            decisions.append(decide(Arrival(table, batch, unseen.get(table)), known, policy))
        return decisions

    def _known(
        self, spark: SparkSession, batch: Batch, table: str, row: TableState | None, *, reread_asked: bool
    ) -> Known:
        """What is known of a table; its targets are looked at only if the batch has rows or columns for them."""
        has_rows = table in batch.parts
        has_columns = any(ddl.table == table and ddl.adds for ddl in batch.ddl)
        target = logged = None
        if "current" in self.modes and (has_rows or has_columns):
            target = self._current(spark, table).describe()
        if "changelog" in self.modes and has_rows:
            logged = self._changelog(spark, table).types()
        return Known(row, target, logged, reread_asked)

    def _write_tables(
        self, frame: DataFrame, batch: Batch, decisions: list[Decision]
    ) -> tuple[list[Decision], dict[str, Mapping[Way, str]]]:
        """Carry out the decisions, several tables at once.

        :returns: the decisions, with what came of each in its state; how rows came into current tables.
        """
        kept = [one for one in decisions if not one.passing]
        busy, idle = [one for one in kept if one.writes], [one for one in kept if not one.writes]
        self.progress.writes(len(busy))
        with ThreadPoolExecutor(max_workers=max(1, min(self._threads, len(busy)))) as pool:
            done = [*pool.map(lambda one: self._write_table(frame, batch, one), busy)]
        return idle + [one for one, _ in done], {one.table: ways for one, ways in done if ways}

    def _write_table(self, frame: DataFrame, batch: Batch, decision: Decision) -> tuple[Decision, Mapping[Way, str]]:
        spark, epoch = frame.sparkSession, batch.header.epoch
        ways: Mapping[Way, str] = {}
        if "current" in self.modes and not decision.state.held:
            done = self._current(spark, decision.table).apply(decision.actions, frame, epoch)
            decision, ways = replace(decision, state=replace(decision.state, version=done.version)), done.ways
            if done.lost is not None:
                decision = hold(decision, done.lost, epoch, strict=decision.table in self._strict)
        if "changelog" in self.modes:
            logged = self._changelog(spark, decision.table).apply(decision.log_actions, frame, epoch)
            decision = replace(decision, state=replace(decision.state, changelog_version=logged))
        self.progress.wrote(decision.table)
        return decision, ways
