"""Plans batches: from the previous offset to the next. No Spark here.

What a plan guarantees
======================

- **Monotone.** The new offset's set contains the old one's, and its epoch is greater. If there is nothing new, the old
  offset itself is returned, so Spark sees that nothing happened.
- **A consistent cut.** E is what the server reports as executed (all of it is visible to a SELECT begun later), or a
  prefix of that in log order. The settings that this needs (``mysql/_required.py``) come with each state of the server,
  so they are checked at every planning, and before each batch is handed out, on the server that answers then.
- **The same history.** The server has all that was read (else the planner waits, if it may be catching up), has not
  purged what is still to be read, and the newest transaction read has the same commit time
  (``spark/_server_history.py``).
- **No state outside the offset** except caches: a planner that takes over continues from the offset alone.

Stages of a plan, each a value: the requests (``_Requests``), the present server (``_Planning``), the tables to read
(``SnapshotPlan``), the end (``BatchEnd``) with the chunks that are read as of it, and the offset.

Epochs are at least the wall clock in milliseconds, so they grow across new checkpoints, too. A new stream begins at the
epoch of the sinks' newest batch: each batch names the one before it, and the ledger refuses any other than its newest.

When idle, Spark calls some 90 times a second. So a planner that found nothing waits until the next query is due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headgate.carrier import ControlFile, ControlFolder, Trouble
from headgate.catalog import TablePatterns
from headgate.errors import BinlogPurgedError, ConfigError, HeadgateError, UnsupportedError, error_line
from headgate.offsets import ChunkSpec, Hint, ReadState, SnapshotState, SourceOffset
from headgate.positions import NamedStart, Position, parse_position, parse_start
from headgate.retrying import RetryPolicy
from headgate.spark._end import BatchEnd, EndChooser
from headgate.spark._idle import IdleReports
from headgate.spark._lost_windows import LostWindows
from headgate.spark._notes import Begin, Notes, sent_times
from headgate.spark._pace import Pace
from headgate.spark._requests import take_requests
from headgate.spark._server import Server, ServerState, check_position
from headgate.spark._server_history import HistoryCheck
from headgate.spark._snapshots import PlanSettings, SnapshotPlan
from headgate.spark._tasks import Task, plan_tasks, planned_start

if TYPE_CHECKING:
    from headgate.spark._options import Options

__all__ = ["Planner"]

_T = TypeVar("_T")


class Forwarder(Protocol):
    """:class:`headgate.control.SignalForwarder` or :class:`headgate.control.NoForwarder`: fills the control folder."""

    def forward(self, *, wait: bool = False) -> None:
        """Put what has arrived into the folder; with ``wait``, all that was sent."""


log = logging.getLogger("headgate")

_MAX_MOVES = 20
"""How often one AvailableNow run moves its end for chunks without rows. A table that is altered, or written without
having a key, at every try must not keep such a run from ending; the next run continues with it."""


@dataclass(frozen=True)
class _PlannedBatch:
    """The last planned batch."""

    epoch: int
    at: float
    """Time of planning, by the planner's clock."""
    rows: int
    """Rows of its chunks, approximately."""
    live: bool
    """Whether it brings changes."""


@dataclass(frozen=True)
class _Requests:
    """Requests to the stream since the previous offset."""

    signals: Mapping[str, Mapping[str, Any]]
    """By name; they stay until their batch is done."""
    new: bool
    """Whether something was not taken into a plan yet."""


@dataclass(frozen=True)
class _Planning:
    """Input of one planning."""

    start: SourceOffset
    had: Position
    """GTID set of ``start``."""
    notes: Notes
    """Notes of ``start``."""
    requests: _Requests
    state: ServerState
    begin: Hint | None
    """Binlog position of a reader whose set was ``had``, if known for this server."""
    now_us: int
    epoch: int

    @property
    def begins(self) -> Begin | None:
        """Where the stream begins, if this batch is its first one."""
        begun = self.notes.begun
        return begun if begun is not None and begun.epoch == self.start.epoch else None


class Planner:
    """Planner of one stream.

    :param server: the planner's view of the server.
    :param control: folder where sinks and commands leave signals; None: no signals from there.
    :param forwarder: puts the signals of a Kafka topic into that folder.
    """

    def __init__(
        self,
        options: Options,
        server: Server,
        control: ControlFolder | None,
        *,
        forwarder: Forwarder | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._patterns = TablePatterns(options.patterns)
        self._server = server
        self._control = control
        self._forwarder = forwarder
        self._clock, self._wall_us, self._sleep = clock, wall_us, sleep
        self._retry = RetryPolicy(0.2, deadline_seconds=options.retry_seconds, sleep=sleep, clock=clock)
        self._target: Position | None = None
        self._moves = 0
        self._polled: float | None = None
        self._idle = IdleReports(control, options.poll_ms / 1000, wall_us)
        self._has_planned = False
        self._failing_since_us: int | None = None
        self._succeeded = False
        self._history = HistoryCheck(server)
        self._lost_windows = LostWindows(server, self._history)
        self._ends = EndChooser(server)
        self._slots = options.slots
        """Tasks of a batch: the session's cores, which executors bring that register late, or leave."""
        self._pace = Pace(options.snapshot_share)
        self._planned_rows = 0
        self._planned_batch: _PlannedBatch | None = None

    # --- what Spark calls

    def initial(self) -> SourceOffset:
        """Return the offset of a new stream: its GTID set, and the tables to read."""
        return self._retried(self._initial)

    def latest(self, start: SourceOffset, max_rows: int | None = None) -> SourceOffset:
        """Return the next batch's end; ``start`` itself if there is nothing to do.

        :param max_rows: about how many changes the batch may hold.
        """
        if self._planned_batch is not None and self._planned_batch.epoch == start.epoch:
            planned = self._planned_batch
            self._pace.observe(rows=planned.rows, seconds=self._clock() - planned.at, live=planned.live)
        self._planned_batch = None
        self._wait()
        offset = self._retried(lambda: self._latest(start, max_rows))
        if offset is not None:
            self._planned_batch = _PlannedBatch(
                offset.epoch, self._clock(), self._planned_rows, offset.gtid != start.gtid
            )
        self._polled = self._clock() if offset is None else None
        self._idle.report(start, self._polled)
        return offset or start

    def freeze(self) -> None:
        """Take nothing that is committed from now on (``Trigger.AvailableNow``).

        The end still moves in two cases: a chunk without a result, because its table was altered during the read, can
        only be read as of a later end; rows that were kept or dropped during the read are exact only once the changes
        up to then are applied.
        """
        self._target = self._retried(lambda: self._server.state(whole=True).executed)

    def tasks(self, start: SourceOffset, end: SourceOffset) -> list[Task]:
        """Return the tasks of a batch (:func:`plan_tasks`).

        The server to read from is checked as for a planning: a batch that is replayed after a restart may meet another
        one than it was planned on, or another history. Tasks read from it or fail.
        """
        start = planned_start(start, end)
        server_uuid = self._retried(lambda: self._history.identity(end))
        return plan_tasks(
            start,
            end,
            server_uuid=server_uuid,
            log_uuid=self._retried(lambda: self._server.log_uuid(start.position, end.position)),
            slots=self._slots,
            chunk_rows=self._options.chunk_rows,
            moved=self._options.policies if self._retried(lambda: self._has_moved(end, server_uuid)) else None,
        )

    def _has_moved(self, end: SourceOffset, server_uuid: str) -> bool:
        """Whether an attempt to run a batch with chunks has met another server than planned; record the first one.

        Only for sinks, which return what chunks give to the planner. A typed stream has no rows for that.
        """
        if self._control is None or self._options.table is not None or not end.snapshot.chunks:
            return False
        if self._control.has_moved(end.epoch, end.planned_us):
            return True
        if Notes.from_dict(end.signals).server_uuid == server_uuid:
            return False
        log.warning("batch %d was planned on another server: its chunks are read in a later batch", end.epoch)
        self._control.record_moved(end.epoch, end.planned_us)
        return True

    def _retried(self, work: Callable[[], _T]) -> _T:
        """Return ``work()``, retried: Spark ends a query when its planner raises."""
        begun = self._clock()
        try:
            result = self._retry.call(work, lambda error: self._failed(error, begun))
        except HeadgateError as error:  # a run counts the time until the last try, too
            if self._failing_since_us is not None:
                self._record_trouble(error, self._failing_since_us, begun)
            raise
        if self._control is not None and (self._failing_since_us is not None or not self._succeeded):
            self._control.forget(ControlFile.TROUBLE)  # also that of a killed planner
        self._failing_since_us, self._succeeded = None, True
        return result

    def _record_trouble(self, error: HeadgateError, since_us: int, begun: float) -> None:
        if self._control is not None:
            self._control.record_state(Trouble(error_line(error), since_us, self._clock() - begun))

    def _failed(self, error: HeadgateError, begun: float) -> None:
        log.info("retrying the planning: %s", error)
        if self._failing_since_us is None:
            self._failing_since_us = self._wall_us()
        self._record_trouble(error, self._failing_since_us, begun)
        self._server.drop()  # also if the server is behind: the next connection may reach another one

    def _wait(self) -> None:
        """Sleep until the next query is due, if the last one found nothing."""
        if self._polled is not None:
            left = self._polled + self._options.poll_ms / 1000 - self._clock()
            if left > 0:
                self._sleep(left)

    def _settings(self, epoch: int, **more: Any) -> PlanSettings:
        options = self._options
        return PlanSettings(
            self._patterns,
            epoch,
            options.chunk_rows,
            self._slots,
            append_allowed=options.append,
            conditions=options.conditions,
            policies=options.policies,
            blocks_changes=options.snapshot_cut == "start",
            **more,
        )

    # --- the beginning

    def _initial(self) -> SourceOffset:
        state = self._server.state()
        resumed = self._resumed(state) if self._options.follows_tables else None
        had, finished = resumed or (self._start_position(self._options.start, state), frozenset())
        check_position(had, state, self._server)
        plan = SnapshotPlan(self._settings(0))
        if self._options.follows_tables:
            names = [table for table in sorted(self._server.tables(self._patterns)) if table not in finished]
            if not names and not finished:
                raise ConfigError(f"no table matches {', '.join(self._options.patterns)}")
            if self._options.snapshot_mode == "no_data":
                for table in names:
                    plan.reads.defer(table)
            else:
                definitions = self._server.definitions(self._patterns) if self._options.append and names else {}
                plan.enqueue(names, definitions, blocking=self._options.snapshot_cut == "start")
            for table in self._stale(resumed=resumed is not None):
                plan.read_from_start(table)
            plan.paused = self._control is not None and self._control.sink_tables().paused
        plan.initial = str(had) if plan.reads.pending() else None
        reads_everything = self._options.follows_tables and resumed is None
        if self._forwarder is not None:
            self._forwarder.forward(wait=True)
        begin = Begin(str(had), self._options.epoch, reads_everything)
        notes = replace(plan.notes(server_uuid=state.uuid), begun=begin)
        now = self._wall_us()
        return SourceOffset(
            gtid=begin.gtid,
            epoch=begin.epoch,
            tables=self._options.patterns,
            snapshot=plan.state(),
            signals=notes.to_dict(),
            planned_us=now,
            **self._history.begin(had, state),
        )

    def _resumed(self, state: ServerState) -> tuple[Position, frozenset[str]] | None:
        """Return the sinks' position and finished tables, for a stream without a checkpoint; None: start afresh.

        Also if no table is finished: changelogs and messages need the changes since that position. Without the hint the
        position is to be forgotten. Nothing else depends on it: a kill, or a late request, may leave an older hint.
        """
        applied = self._options.applied
        if self._control is None or self._control.hint() is None or applied is None:
            return None
        had = parse_position(applied.gtid)
        self._history.resume(applied, state)
        if state.purged <= had:
            return had, self._control.sink_tables().finished
        reads_nothing = self._options.snapshot_mode == "no_data"
        consequence = "it begins again at its start" if reads_nothing else "all tables are read again"
        log.warning("the server has purged log after the sinks' position: %s", consequence)
        return None

    def _stale(self, *, resumed: bool) -> list[str]:
        """Return the tables that wait to be read again, or settle. The requests for that, and the windows, were taken
        into the lost checkpoint.

        :param resumed: whether the stream continues at the sinks' position.
        """
        if self._control is None or not resumed:
            return []
        sinks = self._control.sink_tables()
        return sorted((sinks.stale | sinks.settling) & self._server.tables(self._patterns).keys())

    def _start_position(self, start: str | None, state: ServerState) -> Position:
        """Return what counts as already read at an option ``start``."""
        if start is None or start == "snapshot":
            return state.executed
        match parse_start(start):
            case NamedStart.CURRENT:
                return state.executed
            case NamedStart.EARLIEST:
                return state.purged
            case Position() as position:
                return position  # with a relay, the server itself may no longer hold what follows it
            case _:
                return self._server.start_position(start)

    # --- a range of the log, for batch reads

    def between(self, start: str | None, end: str | None) -> tuple[SourceOffset, SourceOffset]:
        """Return the offsets around the changes after ``start`` (default: the oldest) up to ``end`` (default: now)."""
        return self._retried(lambda: self._between(start, end))

    def _between(self, start: str | None, end: str | None) -> tuple[SourceOffset, SourceOffset]:
        state = self._server.state()
        had = self._start_position(start or "earliest", state)
        check_position(had, state, self._server)
        target = parse_position(end) if end is not None else state.executed
        until = self._ends.choose(had, state, None, self._slots, target=target)
        if target - until.gtid:
            raise UnsupportedError(
                "the relay's log continues with another server's within this range: read it in two ranges, the first"
                " up to where that begins",
                end=str(until.gtid),
            )
        now = self._wall_us()
        notes = Notes(server_uuid=state.uuid, cuts=until.cuts)
        first = SourceOffset(gtid=str(had), epoch=self._epoch(0, now), tables=self._options.patterns, planned_us=now)
        return first, replace(first, gtid=str(until.gtid), signals=notes.to_dict())

    def everything(self, as_of: str | None) -> tuple[SourceOffset, list[ChunkSpec]]:
        """Return all chunks of all tables, for a batch read as of ``as_of`` (default: now)."""
        return self._retried(lambda: self._everything(as_of))

    def _everything(self, as_of: str | None) -> tuple[SourceOffset, list[ChunkSpec]]:
        state = self._server.state()
        end = parse_position(as_of) if as_of is not None else state.executed
        check_position(end, state, self._server)
        now = self._wall_us()
        epoch = self._epoch(0, now)
        plan = SnapshotPlan(PlanSettings(self._patterns, epoch, self._options.chunk_rows, self._slots))
        plan.enqueue(sorted(self._server.tables(self._patterns)), {})
        if not plan.reads.pending():
            raise ConfigError(f"no table matches {', '.join(self._options.patterns)}")
        while plan.reads.pending():
            plan.weight = 0
            plan.plan_chunks(self._server)
        self._commit_watermark(plan.chunks, epoch)
        offset = SourceOffset(
            gtid=str(end),
            epoch=epoch,
            tables=self._options.patterns,
            snapshot=plan.state(),
            signals=Notes(server_uuid=state.uuid).to_dict(),
            planned_us=now,
        )
        return offset, plan.chunks

    # --- the next batch

    def _latest(self, start: SourceOffset, max_rows: int | None) -> SourceOffset | None:
        """Plan one batch in stages, each a value that the next ones only read."""
        had = start.position
        notes, requests = self._read_requests(start)
        is_known = self._has_planned and self._history.is_compared(start)
        if is_known and not requests.new and not _unfinished(start.snapshot, notes) and self._nothing_new(had):
            return None
        planning = self._read_state(start, had, notes, requests)
        plan = self._take_requests(planning)
        end = self._choose_end(planning, plan, max_rows)
        offset = self._offset(planning, plan, end)
        self._has_planned = True
        return offset

    def _read_requests(self, start: SourceOffset) -> tuple[Notes, _Requests]:
        """First stage: read the requests in the control folder. Return also the notes of ``start``, without the names
        of signals that were sent again since.

        Signals that a typed stream has taken are removed: ``start``, which is done, has what they requested. Such a
        stream has no header by which its sink could remove them.
        """
        if self._forwarder is not None:
            self._forwarder.forward(wait=self._target is not None)
        notes, folder = Notes.from_dict(start.signals), self._control.signals() if self._control is not None else {}
        notes = replace(notes, taken=tuple(name for name in notes.taken if not notes.is_another(name, folder)))
        if self._control is not None and self._options.table is not None:
            for name in folder.keys() & set(notes.taken):
                self._control.remove_signal(name)
                del folder[name]
        signals = self._without_retries(folder, notes)
        return notes, _Requests(signals, any(name not in notes.taken for name in signals))

    def _read_state(self, start: SourceOffset, had: Position, notes: Notes, requests: _Requests) -> _Planning:
        """Second stage: read and check the server's present state."""
        state = self._server.state()
        check_position(had, state, self._server, notes.server_uuid)
        if self._options.snapshot_mode != "initial_only" or requests.new or _unfinished(start.snapshot, notes):
            self._idle.retract()  # else there are changes that nobody wants
        begin = self._begin(start, state)
        if self._target is not None and not notes.paused and _needs_retry(start.snapshot, notes, requests.signals):
            self._target = state.executed
            self._moves += 1
        now = self._wall_us()
        return _Planning(start, had, notes, requests, state, begin, now, self._epoch(start.epoch, now))

    def _take_requests(self, planning: _Planning) -> SnapshotPlan:
        """Third stage: determine the tables to read, including the requests."""
        start, had, state = planning.start, planning.had, planning.state
        sinks = self._control.sink_tables() if self._control is not None else None
        self._slots = (sinks.slots if sinks is not None else 0) or self._options.slots
        settings = self._settings(planning.epoch, position=str(state.executed), sinks=sinks)
        plan = SnapshotPlan(settings, start.snapshot, planning.notes, is_first=planning.begins is not None)
        has_changes = not (state.executed if self._target is None else self._target) <= had
        before = start.tables or self._options.patterns
        take_requests(
            plan,
            self._server,
            signals=planning.requests.signals,
            discover=self._options.follows_tables
            and (has_changes or not self._has_planned or before != self._options.patterns),
            patterns_before=TablePatterns(before),
            wait=not self._options.snapshot_new_tables,
        )
        self._lost_windows.read_again(plan, had, planning.begin, state)
        plan.settles_at -= had
        if self._target is not None:
            # Those that this server does not have may never come: after a failover, the transactions may be lost.
            self._target |= plan.settles_at & state.executed
        return plan

    def _choose_end(self, planning: _Planning, plan: SnapshotPlan, max_rows: int | None) -> BatchEnd:
        """Fourth stage: choose the batch's end, and plan the chunks that are read as of it."""
        blocked = plan.changes_wait
        end = self._end(planning, plan, max_rows)
        live = end.gtid != planning.had
        limit = plan.full if blocked else self._pace.allow(plan.full, live=live)
        if plan.reads.pending() and not plan.paused and limit and self._reads_windows(end.gtid, changes_wait=blocked):
            plan.plan_chunks(self._server, limit)
        if blocked and not plan.chunks:
            end = self._end(planning, plan, max_rows)  # the tables that blocked changes may be gone
        return end

    def _end(self, planning: _Planning, plan: SnapshotPlan, max_rows: int | None) -> BatchEnd:
        """Choose the batch's end: its beginning, if changes wait for tables or are not wanted."""
        end = BatchEnd(planning.had)
        if not plan.changes_wait and not self._is_read(planning, plan):
            end = self._ends.choose(
                planning.had, planning.state, planning.begin, self._slots, target=self._target, max_rows=max_rows
            )
        plan.record_end(str(end.gtid))
        return end

    def _offset(self, planning: _Planning, plan: SnapshotPlan, end: BatchEnd) -> SourceOffset | None:
        """Last stage: make the offset with its notes; None if the batch would do nothing."""
        start = planning.start
        self._planned_rows = plan.weight
        self._commit_watermark(plan.chunks, planning.epoch)
        last, hint = self._history.advance(start, end.gtid - planning.had, planning.state, planning.epoch)
        reports = (
            plan.actions
            or (start.tables and start.tables != self._options.patterns)  # the sinks report tables that are left out
            or (planning.begins and any(read.state is ReadState.DEFERRED for read in plan.reads))
            or (planning.begins and plan.paused and plan.reads.pending())  # they wait, perhaps for long
        )
        if end.gtid == planning.had and not plan.chunks and not reports:
            return None
        left = planning.state.executed - end.gtid
        new_notes = plan.notes(
            server_uuid=planning.state.uuid,
            begin=planning.begin,
            cuts=end.cuts,
            behind=left.transactions() if left else 0,
            signal_table=None if self._options.table else self._options.signal_table,
            sent=sent_times(plan.taken, planning.requests.signals),
            begun=planning.begins,
        )
        return SourceOffset(
            gtid=str(end.gtid),
            epoch=planning.epoch,
            tables=self._options.patterns,
            snapshot=plan.state(),
            signals=new_notes.to_dict(),
            last=last,
            hint=hint,
            planned_us=planning.now_us,
        )

    def _without_retries(
        self, signals: Mapping[str, Mapping[str, Any]], notes: Notes
    ) -> Mapping[str, Mapping[str, Any]]:
        """Leave out new chunk retries if those moved the frozen end often enough."""
        if self._target is None or self._moves < _MAX_MOVES:
            return signals
        return {name: signal for name, signal in signals.items() if name in notes.taken or signal.get("type") != "redo"}

    def _reads_windows(self, end: Position, *, changes_wait: bool) -> bool:
        """Whether chunks can be read as of ``end``; if not, a later end will do, unless changes wait for them."""
        readable = self._server.reads_windows(end)
        if changes_wait and not readable:
            raise BinlogPurgedError(
                "the relay's log continues with another server's, and tables are being read as of a position before"
                " that: set relay_fallback to read from the server, or begin with a new checkpoint and target",
                needed=str(end),
            )
        return readable

    def _is_read(self, planning: _Planning, plan: SnapshotPlan) -> bool:
        """Whether a stream that only reads tables has done so; it needs no changes after that, unless the server has
        those that kept rows wait for.
        """
        if self._options.snapshot_mode != "initial_only" or plan.reads.pending():
            return False
        return not plan.settles_at & planning.state.executed

    def _nothing_new(self, had: Position) -> bool:
        """Whether the server has nothing new: the only query of an idle stream."""
        if self._target is not None:
            return self._target <= had
        return self._server.executed() == had

    def _epoch(self, previous: int, now_us: int) -> int:
        """Return the next batch's epoch. It is after all that sinks have, also if the clock went back meanwhile."""
        return max(previous + 1, self._options.epoch + 1, self._options.written_epoch + 1, now_us // 1000)

    def _begin(self, start: SourceOffset, state: ServerState) -> Hint | None:
        """Return the last recorded binlog position that has exactly ``start``'s set, if this server's log has it."""
        recorded = self._control.hint() if self._control is not None else None
        if recorded is None or recorded.server_uuid != state.uuid or recorded.gtid != start.gtid:
            return None
        return recorded.hint

    def _commit_watermark(self, chunks: Sequence[ChunkSpec], epoch: int) -> None:
        """Ensure that the chunks' SELECTs see all of the batch's end, which was read before."""
        if chunks and self._options.watermark == "signal-table":
            self._server.commit_watermark(str(self._options.signal_table), f'{{"epoch": {epoch}}}')


def _needs_retry(snapshot: SnapshotState, notes: Notes, signals: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether chunks without a result have to be retried, which needs a later E: this one would give nothing again."""
    if any(read.retries for read in snapshot.tables):
        return True
    return any(signal.get("type") == "redo" for name, signal in signals.items() if name not in notes.taken)


def _unfinished(snapshot: SnapshotState, notes: Notes) -> bool:
    """Whether there are chunks to plan."""
    return not notes.paused and snapshot.is_pending
