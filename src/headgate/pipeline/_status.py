"""Write ``status.json`` while a pipeline runs: after each batch, and every few seconds.

Guarantees: as long as the process lives, the file in the inbox is whole and never older than some seconds. A run that
ends records it (``stopped``, or ``failed`` with the error's line). A killed run leaves its last status; readers detect
that by its process and the time (:mod:`headgate.lake`). The writer never queries MySQL or Spark and never ends a run:
if the file cannot be written, it warns once, and keeps the status in the user's cache (``headgate.status.note``).

Its thread lives only inside the ``with`` block, so the file stays fresh while the main thread starts Spark or waits
before a retry. The last batches and warnings of the previous run are taken over from the file.

The run reports what it does (``activity``). Two facts come from the planner, in another process: ``waiting.json``: it
has found nothing to do, and when it looks again; ``trouble.json``: it cannot do its work. If neither is about the
newest batch, the next one is being planned. If the planner is late with its next look, the server may not answer: the
status is not ``idle`` any more, and has an error.

Lag. ``as_of_us`` is the moment as of which the lake is complete: the planning of the newest batch (its newest change,
if its size was limited and there is more), or now, while the planner waits. The lag is the time since then, so the lake
is never further behind. Transactions are the known missing ones: those that the server had executed at the newest
planning and the lake does not have. There may be more, unless the planner waits. A moment later than now is unknown: a
clock that was ahead made it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headgate.carrier import Batch, Commits, ControlFile, ControlFolder, Trouble, Waiting
from headgate.control import SignalState
from headgate.errors import ConnectionLostError, Definite, HeadgateError, error_line
from headgate.pipeline._figures import (
    CurrentBatch,
    FigureHistory,
    Freshness,
    Rates,
    as_of_after,
    count_transactions,
    past_moment,
    snapshot_status,
)
from headgate.sinks import BatchReport, Progress
from headgate.status import (
    Activity,
    BatchStatus,
    FilesStatus,
    IndexStatus,
    KafkaStatus,
    LagStatus,
    Phase,
    RequestsStatus,
    SignalStatus,
    Status,
    TableStatus,
    WarningStatus,
    forget_noted,
    gtid_text,
    note,
    pid_namespace,
    place_text,
    read_status,
)

if TYPE_CHECKING:
    from headgate.spark import BatchPlan

__all__ = ["StatusWriter", "record_failure"]

_M = TypeVar("_M", Status, TableStatus)

log = logging.getLogger("headgate")

_TICK_SECONDS = 1.0
_BEAT_SECONDS = 5.0
_BUSY_BEAT_SECONDS = 2.0
_RECENT = 50
_WARNINGS = 20
_LONGEST_TEXT = 2000


class StatusWriter(Progress):
    """Writer of the status of one run; all methods may be called from any thread.

    :param beat_seconds: how often the file is written when nothing happens; more often during a phase of work.
    :param tick_seconds: how often changes are looked for.
    :param on_status: called with the status at each look and each write, in the same thread.
    :param plan: returns what a batch reads; None: not known yet.
    """

    def __init__(
        self,
        inbox: ControlFolder,
        pipeline: str,
        *,
        beat_seconds: float = _BEAT_SECONDS,
        tick_seconds: float = _TICK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        on_status: Callable[[Status], None] | None = None,
        plan: Callable[[int], BatchPlan | None] = lambda _: None,
    ) -> None:
        self._on_status = on_status
        self._inbox, self._pipeline, self._plan = inbox, pipeline, plan
        self._beat_seconds, self._tick_seconds = beat_seconds, tick_seconds
        self._clock, self._wall_us = clock, wall_us
        self._lock = threading.Lock()
        self._order = threading.RLock()  # statuses are passed on in the order in which they were made
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headgate-status", daemon=True)
        self._phase: Phase = "starting"
        self._phase_us = wall_us()
        self._plannable_us = wall_us()  # since when the next batch could be planned
        self._waits_for: str | None = None
        self._under_way: CurrentBatch | None = None
        self._epoch = 0  # of the newest batch of this query
        self._behind: int | None = None
        self._error: str | None = None  # the error after which the run retries
        self._trouble: Trouble | None = None  # the planner's error, and since when
        self._late: Waiting | None = None  # what the planner reported last, if its next look at the server is overdue
        self._rates = Rates(clock())
        self._freshness = Freshness()
        self.indexes: Callable[[], IndexStatus | None] = lambda: None
        """Returns the state of the key indexes."""
        self.kafka: Callable[[], KafkaStatus | None] = lambda: None
        """Returns what Kafka has of this run."""
        self.files: Callable[[], Mapping[str | None, FilesStatus]] = dict
        """Returns the files of each table in the lake; None: of headgate's own."""
        self._written = clock()
        self._warned = False
        self._may_be_noted = True
        self._status = _first(None, pipeline, wall_us())
        self._history = FigureHistory(self._status.history)

    def __enter__(self) -> Self:
        self._take_over()
        self._inbox.forget(ControlFile.TROUBLE)
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._end(error if isinstance(error, Exception) else None)

    def _end(self, error: BaseException | None, *, writes: bool = True) -> None:
        with self._lock:
            if error is not None:
                self._warn("error", str(error) or type(error).__name__)
            state: dict[str, object] = {"state": "stopped", "error": None, "transient": None}
            if error is not None:
                transient = not isinstance(error, Definite)
                state = {"state": "failed", "error": error_line(error), "transient": transient}
            self._status = self._status.model_copy(update=state)
        if writes:
            self._write()
        else:
            self._note(self._now())

    # --- reports of the run

    def enters(self, phase: Phase) -> None:
        """Enter a phase; a current batch ends."""
        with self._lock:
            self._under_way = None
            self._enter(phase)
        self._notify()

    def stops(self, waits_for: str) -> None:
        """Note that the run ends, and what has to end before."""
        log.debug("stopping: waiting for %s", waits_for)
        with self._lock:
            self._waits_for = waits_for
        self.enters("stopping")

    def starts(self) -> None:
        """Note that a query is about to start: the first one, or another after a failure."""
        self._inbox.forget(ControlFile.WAITING)
        with self._lock:
            self._epoch, self._under_way = 0, None
            self._enter_planning()
        self._notify()

    def rests(self) -> None:
        """Note that the run waits for more changes before the next batch is planned; nothing if it is ending."""
        with self._lock:
            if self._phase == "planning":
                self._enter("resting")
        self._notify()

    def plans(self) -> None:
        """Note that it does so no longer."""
        with self._lock:
            if self._phase == "resting":
                self._enter_planning()
        self._notify()

    def reads(self, batch_id: int) -> None:
        """Note that a batch was planned and is being read."""
        with self._lock:
            is_first = self._status.batches == 0
            self._enter("reading")
            self._under_way = CurrentBatch(batch_id, self._clock(), self._plan, is_first=is_first)
        self._notify()

    def counts_tasks(self, done: int, number: int) -> None:
        """Note how many of the tasks that read a batch are done."""
        with self._lock:
            if self._under_way is not None:
                self._under_way.counts_tasks(done, number, self._clock())

    def counts_requests(self, requests: RequestsStatus) -> None:
        """Note the run's requests to the lake's store."""
        with self._lock:
            self._status = self._status.model_copy(update={"requests": requests})

    @property
    def is_reading(self) -> bool:
        """Whether a batch is being read."""
        return self._phase == "reading"

    def applies(self, batch: Batch) -> None:
        """Note that the batch was read and is now applied."""
        with self._lock:
            if self._under_way is not None:
                self._under_way.applies(batch)
                self._under_way.took("planning", self._phase_us - max(batch.header.planned_us, self._plannable_us))
                self._enter("applying")
        self._notify()

    def writes(self, tables: int) -> None:
        """Note that writing of this many tables begins."""
        with self._lock:
            if self._under_way is not None:
                self._under_way.writes(tables)

    def wrote(self, table: str) -> None:
        """Note that one of them is written."""
        del table
        with self._lock:
            if self._under_way is not None:
                self._under_way.wrote()

    def commits(self) -> None:
        """Note that all tables are written: messages, histories and the ledger's row remain."""
        with self._lock:
            if self._under_way is not None:
                self._under_way.commits()
                self._enter("committing")
        self._notify()

    def ends(self, report: BatchReport) -> None:
        """Note that a batch is in the ledger."""
        with self._lock:
            self._end_phase()
            self._take(report)
            self._under_way, self._error = None, None
            self._enter_planning()
        self._write()

    def tries_again(self, error: BaseException) -> None:
        """Note that the run failed and retries after a pause."""
        with self._lock:
            self._under_way = None
            self._enter("retrying")
            self._error = error_line(error)
            self._warn("error", str(error) or type(error).__name__)
        self._write()

    def warns(self, text: str) -> None:
        """Add a warning about a problem that does not end the run."""
        with self._lock:
            self._warn("warning", text)

    def _enter(self, phase: Phase) -> None:
        if phase != self._phase:
            self._end_phase()
            self._phase, self._phase_us = phase, self._wall_us()

    def _enter_planning(self) -> None:
        self._enter("planning")
        self._plannable_us = self._phase_us

    def _end_phase(self) -> None:
        """Note how long the phase took, if it is one of a batch."""
        if self._under_way is not None:
            self._under_way.took(self._phase, self._wall_us() - self._phase_us)

    def _take_over(self) -> None:
        """Take over the history that the previous run left."""
        try:
            before = read_status(self._inbox)
        except (HeadgateError, OSError):
            before = None  # damaged, or of another version: it is replaced
        if before is not None and before.pipeline == self._pipeline:
            self._status = _first(before, self._pipeline, self._wall_us())
            self._history = FigureHistory(before.history)

    def _take(self, report: BatchReport) -> None:
        committed, before = report.committed_us or self._wall_us(), self._status
        rows = sum(report.rows.values())
        self._epoch = report.epoch
        new = count_transactions(report.start, report.gtid)
        self._behind = report.behind if new is not None and report.behind else None
        self._history.add(committed, self._lag_at(committed), before.changes_per_second)  # the lag drops now
        if not report.replayed:
            self._rates.add(self._clock(), report.seconds, report.changes, rows)
            self._freshness.add(self._clock(), committed, _applied(report))
            if not report.behind:
                self._freshness.follow(committed)
        for text in report.warnings:
            self._warn("warning", text)
        batch = BatchStatus(
            batch_id=report.batch_id,
            epoch=report.epoch,
            gtid=report.gtid,
            committed_us=committed,
            transactions=new,
            rows=rows,
            changes=sum(report.changes.values()),
            tables=len({*report.changes, *report.rows}),
            seconds=round(report.seconds, 3),
            phases=self._under_way.phases if self._under_way is not None else {},
            replayed=report.replayed,
        )
        short = batch.model_copy(update={"gtid": gtid_text(report.gtid)})
        known = any(row.epoch == report.epoch for row in before.recent)
        self._status = self._status.model_copy(
            update={
                "batch": before.batch.model_copy(update={"replayed": True}) if known and before.batch else batch,
                "batches": before.batches + (not report.replayed),
                "as_of_us": as_of_after(report, past_moment(before.as_of_us, self._wall_us())),
                "tables": _tables(report, before.tables),
                "recent": before.recent if known else (short, *before.recent)[:_RECENT],
                "writes": _writes(report, before.writes),
                "paused": report.paused,
                "signals": tuple(map(SignalStatus.of, report.answers)),
            }
        )

    def _warn(self, level: str, text: str) -> None:
        line = " ".join(text.split())[:_LONGEST_TEXT]
        warning = WarningStatus.model_validate({"at_us": self._wall_us(), "level": level, "text": line})
        self._status = self._status.model_copy(update={"warnings": (warning, *self._status.warnings)[:_WARNINGS]})

    # --- the current status

    def _now(self) -> Status:
        """Return the status, with its time-dependent fields updated."""
        now_us = self._wall_us()
        if self._status.state not in ("running", "idle"):
            return self._status.at_rest().model_copy(update={"updated_us": now_us})
        rates = self._rates.at(self._clock(), self._under_way)
        files = self.files()
        tables = {
            name: _with(table, changes_per_second=rates.tables.get(name, 0.0), files=files.get(name, table.files))
            for name, table in self._status.tables.items()
        }
        lag = self._lag_at(now_us)
        waits = self._phase == "waiting"
        self._history.add(now_us, lag, rates.changes)
        update: dict[str, Any] = {
            "updated_us": now_us,
            "state": "idle" if waits else "running",
            "error": self._error or (self._trouble and self._trouble.error) or self._silence(),
            "activity": self._activity(tables),
            "as_of_us": now_us if waits else past_moment(self._status.as_of_us, now_us),
            "freshness": self._freshness.at(self._clock()),
            "history": self._history.status(),
            "files": sum(files.values(), FilesStatus()) if files else self._status.files,
            "index": self.indexes(),
            "kafka": self.kafka(),
            "lag": LagStatus(seconds=lag, transactions=self._transactions_behind()),
            "changes_per_second": rates.changes,
            "rows_per_second": rates.rows,
            "tables": tables,
            "snapshot": snapshot_status(tables, self._rates.steady_rows),
        }
        return self._status.model_copy(update=update)

    def _lag_at(self, now_us: int) -> float | None:
        """Return the seconds since ``as_of_us``; None: not known."""
        if self._phase == "waiting":
            return 0.0
        as_of = past_moment(self._status.as_of_us, now_us)
        return None if as_of is None else round((now_us - as_of) / 1e6, 3)

    def _silence(self) -> str | None:
        """Return that the server may not answer the planner, if that is the newest that is known of it."""
        if self._late is None or self._phase != "planning":
            return None
        seen = datetime.fromtimestamp(self._late.seen_us // 1_000_000, UTC)
        return error_line(ConnectionLostError(f"no answer from MySQL since {seen:%Y-%m-%d %H:%M:%SZ}"))

    def _activity(self, tables: dict[str, TableStatus]) -> Activity:
        if self._under_way is not None:
            return self._under_way.activity(self._phase_us, tables)
        return Activity(
            phase=self._phase,
            since_us=self._phase_us,
            paused=self._status.paused and self._phase == "waiting",
            waits_for=self._waits_for if self._phase == "stopping" else None,
        )

    def _transactions_behind(self) -> int | None:
        if self._under_way is not None:
            return self._under_way.behind()
        return 0 if self._phase == "waiting" else self._behind

    def _write(self) -> None:
        self._notify(write=True)

    def _notify(self, *, write: bool = False) -> None:
        """Pass the status to ``on_status``: at each look and, so that short phases show, when a phase begins."""
        with self._order:
            with self._lock:
                self._status = status = self._now()
                if write:
                    self._write_file(status)
            if self._on_status is not None:
                self._on_status(status)

    def _write_file(self, status: Status) -> None:
        self._written = self._clock()
        try:
            self._inbox.write(ControlFile.STATUS, status.to_dict())
            if self._may_be_noted:
                forget_noted(self._inbox)
            self._may_be_noted = False
        except Exception as error:  # noqa: BLE001 - each file system has its own errors, and none may end a run
            if not self._warned:
                log.warning("the status cannot be written to %s: %s", self._inbox.path, error_line(error))
            self._warned = self._may_be_noted = True
            self._note(status)

    def _note(self, status: Status) -> None:
        with contextlib.suppress(OSError):  # no disk has room
            note(self._inbox, status.to_dict())

    def _watch(self) -> None:
        while not self._ending.wait(self._tick_seconds):
            self._tick()

    def _tick(self) -> None:
        """Look for changes; write the file when it is time."""
        waits = self._phase == "waiting"
        beat = self._beat_seconds if waits or not self._inbox.is_local else min(_BUSY_BEAT_SECONDS, self._beat_seconds)
        due = self._clock() - self._written >= beat
        if due or self._inbox.is_local:
            self._read_reports()
        self._notify(write=due)

    def _read_reports(self) -> None:
        """Read the planner's reports and the plan of the batch being read."""
        under_way = self._under_way
        if under_way is not None:
            under_way.update_plan()
        with self._lock:  # includes the reads: a query that starts in between would make them stale
            trouble, waiting = self._inbox.trouble(), self._inbox.waiting()
            self._take_trouble(trouble)
            if waiting is not None and waiting.epoch < self._epoch:
                waiting = None
            is_late = waiting is not None and waiting.until_us is not None and waiting.until_us < self._wall_us()
            self._late = waiting if is_late else None
            if self._phase in ("planning", "waiting") and self._under_way is None:
                waits = waiting is not None and not is_late and self._trouble is None
                self._enter("waiting" if waits else "planning")
            if self._phase == "waiting" and waiting is not None:
                self._error = None
                self._status = _with(self._status, paused=waiting.paused)
                self._freshness.follow(waiting.seen_us)

    def _take_trouble(self, trouble: Trouble | None) -> None:
        before, self._trouble = self._trouble, trouble
        if trouble is not None:
            if before is None or before.since_us != trouble.since_us:
                self._warn("error", trouble.error)
                log.warning("%s; trying again", trouble.error)
        elif before is not None:
            seconds = (self._wall_us() - before.since_us) / 1e6
            log.info("resumed, %.0f s after this began: %s", seconds, before.error)


def record_failure(inbox: ControlFolder, pipeline: str, error: BaseException) -> None:
    """Record a failure from before the run locked the lake, unless another run is alive, or the lake is another
    pipeline's. If no run has written to the lake yet, nothing is written there: the status is kept in the user's cache.
    """
    try:
        before, has_begun = read_status(inbox), inbox.read(ControlFile.STATUS) is not None
    except (HeadgateError, OSError):
        before, has_begun = None, False
    if before is not None and (before.is_alive() or before.is_of_another(pipeline)):
        return
    writer = StatusWriter(inbox, pipeline)
    writer._take_over()
    writer._end(error, writes=has_begun)


def _first(before: Status | None, pipeline: str, now_us: int) -> Status:
    """Return the status of a run that begins, after one that left ``before``."""
    tables = before.tables if before else {}
    reset_counts = {"changes": 0, "rows": 0, "changes_per_second": 0.0}
    return Status(
        pipeline=pipeline,
        pid=os.getpid(),
        host=platform.node(),
        pid_namespace=pid_namespace(),
        started_us=now_us,
        updated_us=now_us,
        state="running",
        as_of_us=past_moment(before.as_of_us, now_us) if before else None,
        batch=before.batch if before else None,
        tables={name: table.model_copy(update=reset_counts) for name, table in tables.items()},
        files=before.files if before else None,
        paused=before is not None and before.paused,
        signals=tuple(one for one in before.signals if one.state is not SignalState.SENT) if before else (),
        recent=before.recent if before else (),
        warnings=before.warnings if before else (),
    )


def _tables(report: BatchReport, before: dict[str, TableStatus]) -> dict[str, TableStatus]:
    statuses, delays = {}, {(one.path, one.table): one.reason for one in report.merged}
    for name, state in sorted(report.tables.items()):
        known = before.get(name, TableStatus(state=""))
        changes, rows = (0, 0) if report.replayed else (report.changes.get(name, 0), report.rows.get(name, 0))
        snapshot: dict[str, Any] = {}
        if state.state == "snapshotting":
            is_same_snapshot = (known.state, known.since_epoch) == (state.state, state.since_epoch)
            if state.since_epoch is None and state.chunks_done is not None:
                # Without a current table the ledger does not name the snapshot. One that begins again has fewer chunks.
                is_same_snapshot = is_same_snapshot and (known.chunks_done or 0) <= state.chunks_done
            snapshot = {
                "since_epoch": state.since_epoch,
                "rows_read": rows + (known.rows_read if is_same_snapshot else 0),
                "rows_estimate": state.rows_estimate,
                "chunks_done": state.chunks_done,
                "chunks_estimate": state.chunks_estimate,
                "beside": state.successor is not None,
            }
        place = state.place
        statuses[name] = TableStatus(
            state=state.state,
            version=state.version,
            reason=state.reason,
            place=place_text(place, delays.get((place.path, place.table))) if place else None,
            changes=known.changes + changes,
            rows=known.rows + rows,
            hook=state.hook,
            ignored=tuple(state.ignored.texts()),
            files=known.files,
            **snapshot,
        )
    return statuses


def _applied(report: BatchReport) -> list[Commits]:
    """Return the commit times of the changes that tables took in this batch."""
    taking = {name for name, table in report.tables.items() if not table.is_suspended}
    return [commits for name, table_commits in report.commits.items() if name in taking for commits in table_commits]


def _writes(report: BatchReport, before: dict[str, int]) -> dict[str, int]:
    """Return how often tables were written in each way."""
    counts = Counter(before)
    counts.update(method.value for write_methods in report.write_methods.values() for method in write_methods)
    return dict(sorted(counts.items()))


def _with(model: _M, **values: Any) -> _M:
    if all(getattr(model, name) == value for name, value in values.items()):
        return model
    return model.model_copy(update=values)
