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

import glob
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headgate.carrier import SINK_SIGNALS, Batch, Commits, ControlFolder, Resnapshot, Settle
from headgate.catalog import TablePatterns
from headgate.control import BatchFacts, Notification, OpenSnapshots, inbox_files, tell
from headgate.errors import DecodeError
from headgate.gtid import GtidSet
from headgate.lake import (
    PIPELINE,
    TABLE,
    DeltaPath,
    Lake,
    Ledger,
    LedgerRow,
    Marker,
    TableState,
    Upkeep,
    Way,
    append_rows,
    encode_name,
    spark_schema,
    split_table,
)
from headgate.sinks._carrier import read_batch
from headgate.sinks._changelog import ChangelogTable
from headgate.sinks._current import CurrentTable
from headgate.sinks._expand import SEQ_DDL
from headgate.sinks._policy import Outcome, Target, Work, plan_table, read_again
from headgate.sinks._promises import Unseen
from headgate.sinks._span import KeySpan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.lake import IndexStatus, Upserts

__all__ = ["BatchReport", "BatchWriter", "Progress"]

log = logging.getLogger("headgate")

_HISTORY_DDL = (
    "epoch bigint, db string, table string, action string, statement string, "
    f"_seq {SEQ_DDL}, _gtid string, _ts timestamp, outcome string, reason string"
)


class Progress:
    """Told how far a batch is, for people to see. The methods may be called from any thread and never fail."""

    def applies(self, batch: Batch) -> None:
        """The batch was read and is applied from now on."""

    def writes(self, tables: int) -> None:
        """So many tables are written from now on."""

    def wrote(self, table: str) -> None:
        """One of them is written."""


@dataclass(frozen=True)
class BatchReport:
    """What a batch did, for people to look at."""

    batch_id: int
    epoch: int
    gtid: str
    tables: dict[str, TableState]
    images: dict[str, int] = field(default_factory=dict)  # log images of this batch
    rows: dict[str, int] = field(default_factory=dict)  # snapshot rows of this batch
    commits: dict[str, list[Commits]] = field(default_factory=dict)  # when the changes were made at the source
    committed_us: int | None = None  # when the ledger had the batch, µs since 1970 UTC; None: before this run
    planned_us: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    replayed: bool = False
    start: str = ""  # the batch holds what is in gtid and not in here
    behind: int = 0  # transactions that the server had executed at planning and that are not in gtid
    notifications: tuple[Notification, ...] = ()  # of a batch that is handed back, too
    changes: dict[str, int] = field(default_factory=dict)  # changes of this batch: an update may have two images
    ways: dict[str, Mapping[Way, str]] = field(default_factory=dict)
    """How the batch came into each current table that it brought rows to; for a MERGE also why."""


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
        retention_hours: int = 6,
    ) -> None:
        self.lake = lake
        self.pipeline = pipeline
        self.modes = tuple(modes)
        self.inbox = ControlFolder(lake.inbox)
        self.ledger = Ledger(spark, lake, pipeline)
        self._history = DeltaPath(spark, lake.schema_history, lake.properties)
        self._has_history = self._history.check_ours(pipeline, "_headgate.schema_history") is not None
        self._threads = threads
        self._strict = frozenset(strict)
        self._checked: set[str] = set()
        self._spans: dict[str, KeySpan] = {}
        self.upkeep: Upkeep | None = None
        if lake.is_local:
            codec = spark.conf.get("spark.sql.parquet.compression.codec")
            self.upkeep = Upkeep(lake, retention_hours * 3600.0, codec)
        self._upserts: Upserts | None = None
        if self.upkeep is not None and "current" in self.modes:
            from headgate.lake import Upserts  # loads numba

            self._upserts = Upserts(folds=self.upkeep.folds)
        self._finished: list[str] | None = None
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
            batch = read_batch(frame)
            _tell(batch)
            self.progress.applies(batch)
            if self.ledger.has(batch.header.epoch):
                last = self.ledger.tables()
                self._hand_back(batch, last)
                return self._report(batch, batch_id, last, (), started, replayed=True)
            self.ledger.fence()
            batch.name_dropped_tables(self.ledger.tables())
            works = self._write_tables(frame, batch, self._plan(frame.sparkSession, batch))
            states = {**self.ledger.tables(), **{work.table: work.state for work in works}}
            self._write_history(batch, works)
            self._ask(batch, works)
            if self.after_tables is not None:
                self.after_tables(batch)
            if self.upkeep is not None:
                states = self.upkeep.settle(states, {work.table for work in works})
            now = datetime.now(UTC)
            opened, told = tell(self._open_snapshots(), self._facts(batch, states, now))
            row = LedgerRow(batch_id, batch.header.epoch, batch.header.gtid, now, states, opened, tuple(told))
            self.ledger.append(row)
            committed_us = time.time_ns() // 1000
            self._hand_back(batch, states)
            if self.upkeep is not None:
                self.upkeep.note(row, self.ledger.version)
                self.upkeep.settle_own(self.ledger)
        finally:
            frame.unpersist()
        warnings = tuple(text for work in works for text in work.warnings)
        report = self._report(batch, batch_id, states, warnings, started)
        report.ways.update({work.table: work.ways for work in works if work.ways})
        return replace(report, committed_us=committed_us)

    def _open_snapshots(self) -> OpenSnapshots:
        return self.ledger.last.snapshots if self.ledger.last else OpenSnapshots()

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
        delta = DeltaPath(spark, self.lake.current(table), self.lake.properties)
        return CurrentTable(delta, self.pipeline, table, span, self._upserts)

    def _changelog(self, spark: SparkSession, table: str) -> ChangelogTable:
        return ChangelogTable(DeltaPath(spark, self.lake.changelog(table), self.lake.properties), self.pipeline, table)

    def _plan(self, spark: SparkSession, batch: Batch) -> list[Work]:
        before = self.ledger.tables()
        asked = self._asked()
        unseen = self.unseen(batch) if self.unseen is not None else {}
        works = []
        alone = {table for table in unseen if table in before and not before[table].held} - {*batch.tables()}
        for table in [*batch.tables(), *sorted(alone)]:
            known = before.get(table)
            if known is None and table not in batch.parts and table not in batch.header.tables:
                continue  # a statement on a table we do not have
            self.check_targets(spark, [table])
            target: Target | None = None
            current = "current" in self.modes
            if current and (table in batch.parts or any(ddl.table == table and ddl.adds for ddl in batch.ddl)):
                target = self._current(spark, table).describe()
            changelog = "changelog" in self.modes
            logged = self._changelog(spark, table).types() if changelog and table in batch.parts else None
            work = plan_table(
                table,
                batch,
                known,
                target,
                logged=logged,
                reread_asked=asked is not None and asked.matches(*split_table(table)),
                current=current,
                changelog=changelog,
                strict=table in self._strict,
                unseen=unseen.get(table),
            )
            truncated = any(ddl.table == table and ddl.action == "truncate" for ddl in batch.ddl)
            if not truncated and any(part.truncates for part in batch.parts.get(table, ())):
                raise DecodeError("a truncate image without its statement in the batch", table=table)
            works.append(work)
        return works

    def _asked(self) -> TablePatterns | None:
        requests = self.inbox.requests().values()
        patterns = [table for request in requests if isinstance(request, Resnapshot) for table in request.tables]
        return TablePatterns(patterns) if patterns else None

    def _write_tables(self, frame: DataFrame, batch: Batch, works: list[Work]) -> list[Work]:
        """Write all tables; what came of each is in its ``Work`` then."""
        busy = [
            work
            for work in works
            if not work.passing
            and (work.parts or work.log_parts or work.apply or work.truncated or work.sweep_before is not None)
        ]
        idle = [work for work in works if work not in busy and not work.passing]
        self.progress.writes(len(busy))
        with ThreadPoolExecutor(max_workers=max(1, min(self._threads, len(busy)))) as pool:
            return idle + list(pool.map(lambda work: self._write_table(frame, batch, work), busy))

    def _write_table(self, frame: DataFrame, batch: Batch, work: Work) -> Work:
        spark, epoch = frame.sparkSession, batch.header.epoch
        if "current" in self.modes and not work.state.held:
            table = self._current(spark, work.table)
            version = table.apply(work, frame, epoch)
            state = replace(work.state, version=version if version >= 0 else None)
            work = replace(work, state=state, ways=table.ways)
            if table.lost is not None:
                work = read_again(work, table.lost, epoch, strict=work.table in self._strict)
        if "changelog" in self.modes:
            logged = self._changelog(spark, work.table).apply(work, frame, epoch)
            work = replace(work, state=replace(work.state, changelog_version=logged))
        self.progress.wrote(work.table)
        return work

    def _write_history(self, batch: Batch, works: list[Work]) -> None:
        """One row for each statement and table: what it was and what came of it."""
        outcomes = [(work.table, outcome) for work in works for outcome in work.outcomes]
        told = {id(outcome.ddl) for _, outcome in outcomes}
        unknown = [ddl for ddl in batch.ddl if id(ddl) not in told]
        outcomes += [(ddl.table, Outcome(ddl, "ignored", "no such table here")) for ddl in unknown]
        if not outcomes:
            return
        if not self._has_history:
            self._history.create(
                spark_schema(_HISTORY_DDL), {PIPELINE: self.pipeline, TABLE: "_headgate.schema_history"}
            )
            self._has_history = True
        rows = []
        for table, outcome in sorted(outcomes, key=lambda found: found[1].ddl.seq):
            ddl = outcome.ddl
            when = None if ddl.ts is None else datetime.fromtimestamp(ddl.ts / 1e6, UTC)
            what = (*split_table(table), ddl.action, ddl.statement)
            seq = dict(zip(("epoch", "file", "pos", "ordinal"), ddl.seq, strict=True))
            rows.append((batch.header.epoch, *what, seq, ddl.gtid, when, outcome.done, outcome.reason))
            log.info("%s: %s: %s", table, outcome.done, " ".join(ddl.statement.split()))
        marker = Marker(f"headgate/{self.pipeline}/_headgate.schema_history", batch.header.epoch)
        append_rows(self._history, rows, _HISTORY_DDL, marker)

    def _ask(self, batch: Batch, works: list[Work]) -> None:
        epoch = batch.header.epoch
        for number, redo in enumerate(batch.redo):
            self.inbox.ask(f"redo-{epoch}-{number}", redo)
        settles = self._settles(works)
        if settles:
            self.inbox.ask(f"settle-{epoch}", Settle(settles))
        for work in works:
            for text in work.warnings:
                log.warning("%s", text)
            if work.reread is not None:
                again = Resnapshot((glob.escape(work.table),), work.reread)
                self.inbox.ask(f"ddl-{epoch}-{encode_name(work.table)}", again)

    def _settles(self, works: list[Work]) -> GtidSet:
        """What must be applied before the tables whose last rows this batch brings are exact."""
        before = self.ledger.tables()
        settles = GtidSet()
        for work in works:
            known = before.get(work.table)
            if work.state.state == "settling" and (known is None or known.state != "settling"):
                settles |= GtidSet.parse(work.state.settles_at or "")
        return settles

    def _hand_back(self, batch: Batch, states: dict[str, TableState]) -> None:
        for action in batch.header.actions:
            name = (action.get("file") or action.get("id")) if isinstance(action, dict) else action
            if name:
                self.inbox.remove_signal(name)
        for name, value in inbox_files(batch.signals):
            self.inbox.write(name, value)
        # Held tables are no news to the planner either: only a signal may have one read again.
        finished = sorted(table for table, state in states.items() if state.is_read or state.held)
        if finished != self._finished:
            self.inbox.tell_finished(finished)
            self._finished = finished
        if len(batch.ends) == 1:
            (end,) = batch.ends
            if GtidSet.parse(end.gtid) == GtidSet.parse(batch.header.gtid):
                self.inbox.tell_hint(end)

    def _report(
        self,
        batch: Batch,
        batch_id: int,
        states: dict[str, TableState],
        warnings: tuple[str, ...],
        started: float,
        *,
        replayed: bool = False,
    ) -> BatchReport:
        report = BatchReport(
            batch_id,
            batch.header.epoch,
            batch.header.gtid,
            states,
            planned_us=batch.header.planned_us,
            seconds=time.monotonic() - started,
            warnings=warnings,
            replayed=replayed,
            start=batch.header.start,
            behind=batch.header.behind,
            notifications=self.ledger.last.notifications if self.ledger.last else (),
        )
        for table, parts in batch.parts.items():
            for part in parts:
                counts = report.rows if part.kind == "chunk" else report.images
                counts[table] = counts.get(table, 0) + part.images
                if part.kind == "rows":
                    report.changes[table] = report.changes.get(table, 0) + part.changes
                    report.commits.setdefault(table, []).extend(part.commits)
        return report


def _tell(batch: Batch) -> None:
    """Log what came of users' signals."""
    skipped = batch.header.skipped
    if skipped is not None:
        keys = ", ".join(skipped.keys)
        log.info("messages of the topic with signals that are for others: %d (%s)", skipped.count, keys)
    for action in (found for found in batch.header.actions if isinstance(found, dict)):
        if action.get("error"):
            log.warning("signal %s (%s): %s", action.get("id"), action.get("type"), action["error"])
        elif action.get("message"):
            log.info("signal %s: %s", action.get("id"), action["message"])
        elif action.get("type") not in SINK_SIGNALS:
            tables = ", ".join(action.get("tables") or ()) or "nothing to do"
            log.info("signal %s: %s: %s", action.get("id"), action.get("type"), tables)
