"""Write one batch of the stream to all tables, as one commit: plan, tables, ledger, then inbox.

The order is the guarantee:

1. One job evaluates the stream's frame and fetches its rows: statements and reports whole, images as they are stored,
   in the row or in a file. The frame is not evaluated again: Spark may compute a partition twice (an executor is lost,
   a task is slow), and a chunk that is read again may return other rows. All steps use what that job returned.
2. A batch that the ledger has is only handed back (step 7).
3. What each table needs is decided for *all* tables before anything is written. So a batch that cannot be applied (a
   target that is not ours, contradictory images, rows that have no topic or form in Kafka) writes nothing.
4. The tables are written, several at once, then the messages are sent to Kafka (``kafka._target``), then the schema
   history. Each step is repeatable; messages may come twice, unless they are sent in transactions.
   Before what no marker guards, messages and requests, the ledger is looked at again: another driver may have taken
   this one's place while it wrote the tables.
5. Requests to the planner (read a chunk or a table again), and signals from the log, go to the inbox. The planner takes
   them only after this batch, and a replay writes the same files.
6. The ledger row commits the batch, with its notifications (``control/_events.py``).
7. What depends on the commit (processed signals, finished tables, the position hint) is handed back. This is repeated
   for a batch that the ledger has, because the previous run may have been killed in between. Without a checkpoint
   Spark repeats nothing, so a run first reports the finished tables of the ledger (:meth:`BatchWriter.resume`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from headgate.apply import ChangelogTable, CurrentTable, SchemaHistory, Upserts
from headgate.carrier import Batch, ControlFolder, decode
from headgate.config import KafkaTargetConfig, TargetConfig
from headgate.control import BatchFacts, Notification, OpenSnapshots, batch_notifications
from headgate.decide import (
    LACKS_CHANGES,
    LACKS_ROWS,
    Arrival,
    Decision,
    Divergence,
    Policy,
    TableBefore,
    decide,
    suspend,
)
from headgate.errors import TargetError
from headgate.kafka import KafkaTarget
from headgate.lake import (
    ENDED,
    SUSPENDED,
    DeltaPath,
    Form,
    Lake,
    Ledger,
    LedgerRow,
    Marker,
    MergedState,
    MergedTables,
    Place,
    State,
    TableState,
    Target,
    UnenteredBatches,
    WriteMethod,
    batch_marker,
    newest_batch,
    session_properties,
)
from headgate.names import split_table
from headgate.sinks._forgotten import forget_tables
from headgate.sinks._planner_messages import PlannerMessages
from headgate.sinks._report import BatchReport, Progress, log_signals
from headgate.status import FilesStatus
from headgate.upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.status import IndexStatus, KafkaStatus

__all__ = ["BatchWriter"]

log = logging.getLogger("headgate")


_RETENTION_HOURS: Final[float] = TargetConfig.model_fields["retention_hours"].default


class BatchWriter:
    """Writer of batches to the sinks of one pipeline; one per run.

    :param modes: ``current`` or ``history``, ``changelog``, ``kafka``: one or more.
    :param policy: the configuration of ``db.table``; by default what the modes say, and nothing else.
    :param threads: how many tables are written at once.
    :param retention_hours: how long ledger rows stay readable, where headgate removes old files.
    :param kafka: brokers and topics of the mode ``kafka``.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipeline: str,
        modes: Sequence[str],
        *,
        policy: Callable[[str], Policy] | None = None,
        threads: int = 2,
        retention_hours: float = _RETENTION_HOURS,
        kafka: KafkaTargetConfig | None = None,
    ) -> None:
        self.lake = lake
        self.pipeline = pipeline
        every = Policy.of(modes)
        configured = policy or (lambda _table: every)
        self._policy = cache(lambda table: _with_folders(configured(table), lake, table))
        self.inbox = ControlFolder(lake.inbox)
        self.ledger = Ledger(spark, lake, pipeline)
        self._planner_messages = PlannerMessages(self.inbox)
        self._history = SchemaHistory(spark, lake, pipeline)
        self._threads = threads
        self._checked: set[str] = set()
        self.targets: dict[str, Target] = {}
        """The current tables as they were when they were checked."""
        self._other_layout: set[str] = set()
        """Checked tables that the run's first batch gives the configured layout, whatever it brings for them."""
        self._complete_logs: set[str] = set()
        """Tables whose changelogs, which their rows do not name, were found to lack nothing."""
        self._has_written = False  # whether a batch of this run was written
        self._first_epoch: int | None = None  # of the run's first batch
        self._entered: int | None = None
        """Epoch of the ledger's newest row before the run's first batch (``Ledger.entered_epoch``)."""
        codec = spark.conf.get("spark.sql.parquet.compression.codec")
        self.upkeep = Upkeep(lake, retention_hours * 3600, codec)
        self._has_current = every.form is not None
        self._kafka = KafkaTarget(kafka, pipeline) if kafka is not None else None
        self._merged = MergedTables(lake, pipeline)
        self.progress = Progress()
        self.unseen: Callable[[Batch], Mapping[str, Divergence]] | None = None
        """Returns the tables whose rows change without images."""
        self.after_tables: Callable[[Batch], None] | None = None  # test hook: between the tables and the ledger

    @cached_property
    def _upserts(self) -> Upserts:
        """Writer of current tables; used by the thread of :meth:`write` before others."""
        return Upserts(folds=self.upkeep.folds)

    def check_targets(self, spark: SparkSession, tables: Sequence[str]) -> None:
        """Raise ``TargetError`` if the path of one of these tables, or of a table that is merged from some, holds
        something that is not this pipeline's, or that headgate cannot write; or if the session gives new tables
        properties that headgate does not support.
        """
        if not self._checked:
            session_properties(spark)
            self._merged.check(self._shown())
        for table in tables:
            if table in self._checked:
                continue
            policy = self._policy(table)
            self._check_place(spark, table, policy.place)
            current = self._current(spark, table) if policy.form is not None else None
            target = current.describe() if current is not None else None
            if current is not None and target is not None:
                self.targets[table] = target
                self._other_layout |= {table} if current.has_other_layout else set()
            changelog = self._changelog(spark, table) if policy.changelog else None
            if changelog is not None and changelog.check() and changelog.has_other_layout:
                self._other_layout.add(table)
            self._checked.add(table)

    def lacking(self, spark: SparkSession) -> dict[str, str]:
        """Return why checked tables have to be read again: the lake lacks rows that the ledger counts as read, or
        changes.
        """
        states, reasons = self.ledger.tables(), {}
        for table in sorted(self._checked):
            row = states.get(table)
            is_outdated = self._is_log_outdated(spark, table, row)
            before = TableBefore(row, self.targets.get(table), is_log_outdated=is_outdated)
            if before.lacks_rows(self._policy(table)):
                reasons[table] = LACKS_ROWS
            elif before.lacks_changes:
                reasons[table] = LACKS_CHANGES
        return reasons

    def _is_log_outdated(self, spark: SparkSession, table: str, row: TableState | None) -> bool:
        """Return whether a changelog has changes of the ledger's batches, and the newest row does not name it.

        A store is asked once: a batch that appends to it has the row name it.
        """
        last = self.ledger.last
        if row is None:  # forgotten
            self._complete_logs.discard(table)
        if last is None or row is None or row.changelog_version is not None or not self._policy(table).changelog:
            return False
        if table not in self._complete_logs and not self._changelog(spark, table).has_changes_until(last.epoch):
            self._complete_logs.add(table)
        return table not in self._complete_logs

    def newest_epoch(self, spark: SparkSession) -> int:
        """Return the epoch of the newest batch that wrote a checked table, or another one of the ledger, in the ledger
        or not; 0: none.

        Before a first one it is the last epoch before the ledger began: also if the clock went back, a batch is later.
        """
        folders, states = [self.lake.schema_history], self.ledger.tables()
        for table in [*self._checked, *self._unchecked(states)]:
            state, place = states.get(table), self._place(table, states.get(table))
            of_table = [*self.lake.delta_tables(table, place).values()]
            if state is not None and state.successor is not None:
                of_table.append(f"{self.lake.current(table, place)}/{state.successor.folder}")
            folders += of_table if table in self._checked else filter(partial(_is_there, spark), of_table)
        for merged in self._shown():
            folders += self.lake.delta_tables(merged.table, merged.place).values()
        written = max(newest_batch(self.pipeline, DeltaPath(spark, folder).transactions()) for folder in folders)
        return max(written, self.ledger.entered_epoch() or 0)

    def _unchecked(self, states: Mapping[str, TableState]) -> list[str]:
        """Return the ledger's tables that the source no longer has, or the configuration leaves out, since its newest
        row.
        """
        return sorted(
            table for table, state in states.items() if table not in self._checked and state.state not in ENDED
        )

    def _place(self, table: str, state: TableState | None) -> Place | None:
        """Return where a table is: of one that is not checked, as the ledger says."""
        return self._policy(table).place if table in self._checked or state is None else state.place

    def _check_place(self, spark: SparkSession, table: str, place: Place | None) -> None:
        """Raise ``TargetError`` if the table was written to another place and has not been moved."""
        known = self.ledger.table(table)
        if known is None or known.place == place:
            return
        before, after = (self.lake.delta_tables(table, one) for one in (known.place, place))
        for column, folder in after.items():
            if getattr(known, column) is not None and not DeltaPath(spark, folder).exists():
                raise TargetError(
                    f"its route has changed, and {folder} does not exist: move {before[column]} there, or set the route"
                    " back",
                    table=table,
                )

    def resume(self) -> None:
        """Report to the planner which tables the ledger has as complete, before the stream begins."""
        self._planner_messages.resume(self.ledger.tables(), self._open())

    def start(self) -> None:
        """Start the work in the background, until :meth:`close`: maintaining the tables, heartbeats to Kafka."""
        self.upkeep.start()
        if self._kafka is not None:
            self._kafka.start()

    def indexes(self) -> IndexStatus | None:
        """Return the state of the key indexes on this machine; None: none is used."""
        return self._upserts.indexes() if self._has_current else None

    def kafka(self) -> KafkaStatus | None:
        """Return what Kafka has of this run; None: the pipeline sends nothing to it."""
        return self._kafka.status if self._kafka is not None else None

    def files(self) -> dict[str | None, FilesStatus]:
        """Return the files of each source table in the lake; None: of headgate's own tables."""
        files: dict[str | None, FilesStatus] = {}
        for table, counts in self.upkeep.files():
            files[table] = files.get(table, FilesStatus()) + FilesStatus(**counts._asdict())
        return files

    def stop(self) -> None:
        """Let a batch that waits for Kafka fail: the run ends, and the next one applies it again."""
        if self._kafka is not None:
            self._kafka.stop()

    def close(self) -> None:
        """Stop the background work, and the connection to Kafka."""
        if self._kafka is not None:
            self._kafka.close()
        self.upkeep.close()

    def warn_of_stopped(self) -> None:
        """Warn of each stopped table, at the start of every run."""
        for table, state in sorted(self.ledger.tables().items()):
            if state.state == State.STOPPED:
                log.warning("%s is stopped: %s", table, state.reason)

    def write(self, frame: DataFrame, batch_id: int) -> BatchReport:
        """Apply one batch, once, and report what it did."""
        started = time.monotonic()
        report = self._write(frame.sparkSession, Batch.of(decode(frame.toArrow())), batch_id)
        return replace(report, seconds=time.monotonic() - started)

    def _write(self, spark: SparkSession, batch: Batch, batch_id: int) -> BatchReport:
        log_signals(batch)
        self.progress.applies(batch)
        before = self.ledger.tables()
        if self.ledger.has(batch.header.epoch, batch.header.start_epoch):
            self._planner_messages.hand_back(batch, before, self._open(), spark.sparkContext.defaultParallelism)
            report = BatchReport.of(batch, batch_id, before, (), self._notifications(), replayed=True)
            return replace(report, merged=self._shown(), answers=self._open().answers)
        self.ledger.fence(batch.header.epoch)
        before = self._without_unentered(spark, batch, before)
        batch.name_dropped_tables(before)
        decided = self._decide(spark, batch, before)
        messages = {one.table: one.messages for one in decided if one.messages}
        if self._kafka is not None:
            self._kafka.check(messages)
        self.ledger.begin(batch.header.epoch)
        decisions, write_methods = self._write_tables(spark, batch, decided)
        self.progress.commits()
        fence = partial(self.ledger.fence, batch.header.epoch)
        fence()  # a batch that was written meanwhile would be sent, and requested, again
        if self._kafka is not None:
            self._kafka.send(batch, messages, fence)
        states = self._states_after(before, decisions)
        self._history.write(batch, decisions)
        self._planner_messages.request(batch, decisions, before)
        states, actions = forget_tables(batch.header.actions, states)
        shown = self._shown()
        merged = self._merged.show(states, shown, batch.header.epoch)
        delayed = {(one.table, one.reason) for one in merged if one.reason} - {(one.table, one.reason) for one in shown}
        warnings = [text for decision in decisions for text in decision.warnings]
        warnings += [f"{table} in the lake {reason}" for table, reason in sorted(delayed)]
        for text in warnings:
            log.warning("%s", text)
        if self.after_tables is not None:
            self.after_tables(batch)
        states = self.upkeep.commit_pending(states, {one.table for one in decisions if self._is_written(one)})
        row = replace(self._row(batch, batch_id, states, actions), merged=merged)
        self.ledger.append(row)
        self._has_written = True
        self._other_layout.clear()
        committed_us = time.time_ns() // 1000
        self._planner_messages.hand_back(batch, states, row.snapshots, spark.sparkContext.defaultParallelism)
        self.upkeep.note(row, self.ledger.version)
        self.upkeep.commit_pending_internal(self.ledger)
        report = BatchReport.of(batch, batch_id, states, warnings, self._notifications())
        return replace(
            report, committed_us=committed_us, write_methods=write_methods, merged=merged, answers=row.snapshots.answers
        )

    def _states_after(self, before: Mapping[str, TableState], decisions: Sequence[Decision]) -> dict[str, TableState]:
        """Return the states after a batch, with the tables' places: by the configuration, if they were found there."""
        places = {table: self._policy(table).place for table in self._checked}
        left_out = {table: replace(state, images=0) if state.images else state for table, state in before.items()}
        return {
            table: replace(state, place=places[table]) if places.get(table, state.place) != state.place else state
            for table, state in {**left_out, **{one.table: one.state for one in decisions}}.items()
        }

    def _row(
        self, batch: Batch, batch_id: int, states: dict[str, TableState], actions: Sequence[Mapping[str, Any]]
    ) -> LedgerRow:
        now = datetime.now(UTC)
        before = self._open()
        opened, notifications = batch_notifications(before, self._facts(batch, states, actions, now))
        applied = batch.header.applied
        return LedgerRow(
            batch_id,
            batch.header.epoch,
            applied.gtid,
            now,
            states,
            opened,
            tuple(notifications),
            server_uuid=applied.server_uuid,
            last=applied.last,
        )

    def _open(self) -> OpenSnapshots:
        return self.ledger.last.snapshots if self.ledger.last else OpenSnapshots()

    def _notifications(self) -> tuple[Notification, ...]:
        return self.ledger.last.notifications if self.ledger.last else ()

    def _shown(self) -> tuple[MergedState, ...]:
        return self.ledger.last.merged if self.ledger.last else ()

    def _facts(
        self, batch: Batch, states: dict[str, TableState], actions: Sequence[Mapping[str, Any]], now: datetime
    ) -> BatchFacts:
        """Return the batch's facts for notifications about snapshots."""
        chunks = {
            table: sum(part.images for part in parts if part.kind == "chunk") for table, parts in batch.parts.items()
        }
        return BatchFacts(
            pipeline=self.pipeline,
            epoch=batch.header.epoch,
            committed_ms=int(now.timestamp() * 1000),
            actions=actions,
            readings=batch.header.readings,
            rows=chunks,
            missed={redo.table for redo in batch.redo},
            suspended={table: (state.state, state.reason) for table, state in states.items() if state.is_suspended},
        )

    def _without_unentered(
        self, spark: SparkSession, batch: Batch, before: dict[str, TableState]
    ) -> dict[str, TableState]:
        """Undo batches that the ledger lacks (``lake/_unentered.py``), before the run's first one is written; later in
        tables that come to the run.

        :param before: the tables in the last ledger row.
        :returns: these, as they are now.
        """
        is_first = not self._has_written
        if is_first:
            self._entered, self._first_epoch = self.ledger.entered_epoch(), batch.header.epoch
        if self._entered is None:
            return before
        unentered = UnenteredBatches(self.pipeline, self._entered, batch.header.epoch, self._first_epoch)
        tables = {table for table in batch.parts if table not in self._checked}
        self.check_targets(spark, sorted(tables))
        tables |= {*self._checked, *self._unchecked(before)} if is_first else set()
        after = dict(before)
        undone: list[str] = []
        for table in sorted(tables):
            known = before.get(table) or TableState(table, State.SNAPSHOTTING)
            state = self._undo(spark, unentered, known)
            if state != known:
                undone.append(table)
            if table in before:
                after[table] = state
        if is_first:
            self._history.undo(unentered)
        undone = [table for table in undone if table in self._checked]
        self._checked.difference_update(undone)  # their columns and layout are other ones now
        self.check_targets(spark, undone)
        return after

    def _undo(self, spark: SparkSession, unentered: UnenteredBatches, state: TableState) -> TableState:
        """Undo batches that the ledger lacks in one table, and return its state as it is now. If the run does not check
        the table, only warn of an error.
        """
        table, is_checked = state.table, state.table in self._checked
        try:
            return unentered.undo(state, *self._written_tables(spark, table, state), is_followed=is_checked)
        except TargetError as error:
            if is_checked:
                raise
            log.warning("%s: batches that are not in the ledger cannot be undone: %s", table, error)
            return state

    def _written_tables(
        self, spark: SparkSession, table: str, state: TableState
    ) -> tuple[DeltaPath | None, DeltaPath | None]:
        """Return current table and changelog, if batches have written them: by the configuration, or the ledger."""
        policy, place = self._policy(table), self._place(table, state)
        is_checked = table in self._checked

        def written(folder: str, has_version: bool) -> DeltaPath | None:
            return DeltaPath(spark, folder) if has_version and (is_checked or _is_there(spark, folder)) else None

        return (
            written(self.lake.current(table, place), policy.form is not None or state.version is not None),
            written(self.lake.changelog(table, place), policy.changelog or state.changelog_version is not None),
        )

    def _current(self, spark: SparkSession, table: str, epoch: int | None = None) -> CurrentTable:
        """Return a current table; with ``epoch`` for the batch that writes it."""
        state = self.ledger.table(table)
        policy, successor = self._policy(table), state.successor if state is not None else None
        visible = DeltaPath(spark, self.lake.current(table, policy.place), self._marker(epoch))
        form = policy.form or Form.PLAIN
        return CurrentTable(visible, self.pipeline, table, self._upserts, form, successor, policy.layout)

    def _changelog(self, spark: SparkSession, table: str, epoch: int | None = None) -> ChangelogTable:
        policy = self._policy(table)
        path, layout = self.lake.changelog(table, policy.place), replace(policy.layout, cluster_by=())
        return ChangelogTable(DeltaPath(spark, path, self._marker(epoch)), self.pipeline, table, layout)

    def _marker(self, epoch: int | None) -> Marker | None:
        return None if epoch is None else batch_marker(self.pipeline, epoch)

    def _decide(self, spark: SparkSession, batch: Batch, before: Mapping[str, TableState]) -> list[Decision]:
        """Decide for all tables of the batch.

        :param before: the tables in the last ledger row, as they are now.
        """
        pending_rereads = self._planner_messages.pending_rereads(batch)
        unseen = self.unseen(batch) if self.unseen is not None else {}
        decisions = []
        only_unseen = {
            table
            for table, cause in unseen.items()
            if table in before and before[table].state not in (ENDED if cause.excluded else SUSPENDED)
        } - {*batch.tables()}
        others = {
            table
            for table, state in before.items()
            if state.successor is not None or state.settles_at is not None or self._arranges(state)
        }
        for table in [*batch.tables(), *sorted(only_unseen | others - {*batch.tables()})]:
            if table not in before and table not in batch.parts and table not in batch.header.tables:
                continue  # a statement on an unknown table
            self.check_targets(spark, [table])
            reread_requested = pending_rereads is not None and pending_rereads.matches(*split_table(table))
            table_before = self._table_before(spark, batch, table, before.get(table), reread_requested=reread_requested)
            decisions.append(decide(Arrival(table, batch, unseen.get(table)), table_before, self._policy(table)))
        return decisions

    def _arranges(self, state: TableState) -> bool:
        """Return whether the batch gives a table another layout, although it may bring nothing for it."""
        return state.table in self._other_layout and not state.is_suspended

    def _is_written(self, decision: Decision) -> bool:
        """Return whether the batch writes Delta tables of this one."""
        return decision.writes or self._arranges(decision.state)

    def _table_before(
        self, spark: SparkSession, batch: Batch, table: str, row: TableState | None, *, reread_requested: bool
    ) -> TableBefore:
        """Return what is known of a table; read its targets only if the batch has rows or columns for them."""
        has_rows, policy = table in batch.parts, self._policy(table)
        has_columns = any(ddl.table == table and ddl.changes for ddl in batch.ddl)
        target = logged = None
        if policy.form is not None and (has_rows or has_columns):
            target = self._current(spark, table).describe()
        if policy.changelog and has_rows:
            logged = self._changelog(spark, table).types()
        return TableBefore(row, target, logged, reread_requested, self._is_log_outdated(spark, table, row))

    def _write_tables(
        self, spark: SparkSession, batch: Batch, decisions: list[Decision]
    ) -> tuple[list[Decision], dict[str, frozenset[WriteMethod]]]:
        """Carry out the decisions, several tables at once.

        :returns: the decisions, with each result in its state; how rows were written to current tables.
        """
        kept = [one for one in decisions if not one.unrecorded]
        busy = [one for one in kept if self._is_written(one)]
        idle = [one for one in kept if not self._is_written(one)]
        self.progress.writes(len(busy))
        with ThreadPoolExecutor(max_workers=max(1, min(self._threads, len(busy)))) as pool:
            written = [*pool.map(lambda one: self._write_table(spark, batch, one), busy)]
        return idle + [one for one, _ in written], {
            one.table: write_methods for one, write_methods in written if write_methods
        }

    def _write_table(
        self, spark: SparkSession, batch: Batch, decision: Decision
    ) -> tuple[Decision, frozenset[WriteMethod]]:
        epoch, policy = batch.header.epoch, self._policy(decision.table)
        write_methods: frozenset[WriteMethod] = frozenset()
        if policy.form is not None and not decision.state.is_suspended:
            applied = self._current(spark, decision.table, epoch).apply(
                decision.actions, epoch, batch.header.planned_us
            )
            state = replace(decision.state, version=applied.version, successor=applied.successor)
            decision, write_methods = replace(decision, state=state), applied.write_methods
            decision = suspend(decision, epoch, reread_reason=applied.reread_reason, stop_reason=applied.stop_reason)
        if policy.changelog:
            logged = self._changelog(spark, decision.table, epoch).apply(decision.log_actions, epoch)
            decision = replace(decision, state=replace(decision.state, changelog_version=logged))
        self.progress.wrote(decision.table)
        return decision, write_methods


def _is_there(spark: SparkSession, folder: str) -> bool:
    """Look at a table that the run does not check; return whether it can be read."""
    try:
        return DeltaPath(spark, folder).exists()
    except TargetError as error:  # a run that does not write it must not fail because of it
        log.warning("%s: batches that are not in the ledger cannot be undone: %s", folder, error)
        return False


def _with_folders(policy: Policy, lake: Lake, table: str) -> Policy:
    """Return a table's policy with the folders that messages name."""
    return replace(
        policy, folder=lake.current(table, policy.place), changelog_folder=lake.changelog(table, policy.place)
    )
