"""Plans batches: from the offset before to the offset after. No Spark in here.

What a plan guarantees
======================

- **Monotone.** The new offset's set contains the old one's, and its epoch is greater. If there is nothing new, the old
  offset itself is given back, so Spark sees that nothing happened.
- **A consistent cut.** E is what the server says it has executed (all of it is visible to a SELECT begun later), or a
  prefix of that in log order. The settings that this rests on (``mysql/_required.py``) come with each state of the
  server, so they are checked at every planning, and before each batch is handed out, on whatever server answers then.
- **The same history.** The server has all that was read (else we wait: it may be catching up), has not purged what is
  still to be read, and a transaction read lately still carries the commit time it had: after RESET BINARY LOGS AND
  GTIDS or a restored image, equal numbers name other transactions.
- **Nothing is remembered outside the offset** but caches: a planner that takes over goes on from the offset alone.

A plan is made in stages, each a value: what is asked for (``_Requests``), the server as it is now (``_Planning``), the
tables to read (``SnapshotPlan``), the end (``BatchEnd``) with the chunks that are read as of it, and the offset.

Epochs are at least the wall clock in milliseconds, so they grow over new checkpoints, too.

Idle, Spark asks some 90 times a second. So a planner that found nothing waits until the next query is due.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headgate.carrier import ControlFile, ControlFolder, Skipped, Trouble, Waiting
from headgate.catalog import TablePatterns
from headgate.control import Polled, TopicPosition
from headgate.errors import BinlogPurgedError, ConfigError, HeadgateError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec, Hint, SnapshotState, SourceOffset
from headgate.places import transactions
from headgate.spark._end import BatchEnd, EndChooser
from headgate.spark._history import HistoryCheck
from headgate.spark._notes import Notes
from headgate.spark._pace import Pace
from headgate.spark._requests import take_requests
from headgate.spark._server import Server, ServerState, check_position, retried
from headgate.spark._snapshots import SnapshotPlan

if TYPE_CHECKING:
    from headgate.spark._options import Options

__all__ = ["Planner"]

_T = TypeVar("_T")


class SignalTopic(Protocol):
    """:class:`headgate.control.KafkaSignals`."""

    def poll(self, at: TopicPosition | None, *, wait: bool = False) -> Polled:
        """Messages from ``at`` on; None: begin at the end."""


log = logging.getLogger("headgate")

_MOVES = 20
"""How often one AvailableNow run moves its end for chunks that gave nothing. A table that is altered, or
written without having a key, at every try must not keep such a run from ending; the next run goes on with it."""
_REST_SECONDS = 1.0
"""A stream that has nothing to do for so long is said to wait: between the batches of a busy one nothing is written."""


@dataclass(frozen=True)
class _UnderWay:
    """The batch that was planned last."""

    epoch: int
    at: float
    """When, by the planner's clock."""
    rows: int
    """Of its chunks, about."""
    live: bool
    """It brings changes."""


@dataclass(frozen=True)
class _Requests:
    """What is asked of the stream since the offset before."""

    signals: Mapping[str, Mapping[str, Any]]
    """By name; those of the control folder stay until their batch is done."""
    polled: Polled
    topic_begins: bool
    """The Kafka topic was not followed before."""
    new: bool
    """Something was not taken into a plan yet."""


@dataclass(frozen=True)
class _Planning:
    """What one planning begins with."""

    start: SourceOffset
    had: GtidSet
    """The start's GTID set."""
    notes: Notes
    """The start's."""
    requests: _Requests
    state: ServerState
    begin: Hint | None
    """Where a reader stood when it had ``had``, if that is known of this server."""
    now_us: int
    epoch: int


class Planner:
    """One stream's planner.

    :param server: the planner's view of the server.
    :param control: where sinks and commands leave signals; None: there are none.
    :param topic: a Kafka topic with signals.
    """

    def __init__(
        self,
        options: Options,
        server: Server,
        control: ControlFolder | None,
        *,
        topic: SignalTopic | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._patterns = TablePatterns(options.patterns)
        self._server = server
        self._control = control
        self._topic = topic
        self._clock, self._wall_us, self._sleep = clock, wall_us, sleep
        self._target: GtidSet | None = None
        self._moved = 0
        self._polled: float | None = None
        self._nothing_since: float | None = None
        self._looked = False
        self._failing_since_us: int | None = None
        self._went_well = False
        self._history = HistoryCheck(server, clock)
        self._ends = EndChooser(server, options.slots)
        self._pace = Pace(options.snapshot_share)
        self._planned_rows = 0
        self._under_way: _UnderWay | None = None

    # --- what Spark calls

    def initial(self) -> SourceOffset:
        """The offset of a new stream: S, and the tables to read."""
        return self._retried(self._initial)

    def latest(self, start: SourceOffset, max_rows: int | None = None) -> SourceOffset:
        """The next batch's end; ``start`` itself if there is nothing to do.

        :param max_rows: about how many changes the batch may hold.
        """
        if self._under_way is not None and self._under_way.epoch == start.epoch:
            begun = self._under_way
            self._pace.observe(rows=begun.rows, seconds=self._clock() - begun.at, live=begun.live)
        self._under_way = None
        self._wait()
        found = self._retried(lambda: self._latest(start, max_rows))
        if found is not None:
            self._under_way = _UnderWay(found.epoch, self._clock(), self._planned_rows, found.gtid != start.gtid)
        self._polled = self._clock() if found is None else None
        self._rest(start, self._polled)
        return found or start

    def freeze(self) -> None:
        """From now on take nothing that is committed later (``Trigger.AvailableNow``).

        With two exceptions, for which the end is moved: a chunk that gave nothing, because its table was altered while
        it was read, can only be read as of a later end; rows that were kept or dropped while they were read are exact
        only once the changes up to then are applied.
        """
        self._target = self._retried(lambda: self._server.state(whole=True).executed)

    def server_uuid(self) -> str:
        """The server to read from now, checked as for a planning: a batch that is replayed after a restart may meet
        another server than the one it was planned on. Tasks read from this one or fail.
        """
        return self._retried(self._server.identity)

    def log_uuid(self, start: SourceOffset, end: SourceOffset) -> str | None:
        """The server in whose log a batch's changes are read; None: :meth:`server_uuid`."""
        return self._retried(lambda: self._server.log_uuid(start.gtid_set, end.gtid_set))

    def finished(self, end: SourceOffset) -> None:
        """A batch is done: its signals' files can go."""
        if self._control is not None:
            for name in Notes.from_dict(end.signals).taken:
                self._control.remove_signal(name)

    def _retried(self, work: Callable[[], _T]) -> _T:
        found = retried(
            work, seconds=self._options.retry_seconds, failed=self._failed, clock=self._clock, sleep=self._sleep
        )
        if self._control is not None and (self._failing_since_us is not None or not self._went_well):
            self._control.forget(ControlFile.TROUBLE)  # also what a planner has left that was killed
        self._failing_since_us, self._went_well = None, True
        return found

    def _failed(self, error: HeadgateError) -> None:
        log.info("planning is tried again: %s", error)
        if self._failing_since_us is None:
            self._failing_since_us = self._wall_us()
        if self._control is not None:
            self._control.tell(Trouble(str(error), self._failing_since_us))
        self._server.drop()  # also when the server is behind: the next connection may meet another one

    def _wait(self) -> None:
        """Sleep until the next question may be asked, if the last one found nothing."""
        if self._polled is not None:
            left = self._polled + self._options.poll_seconds - self._clock()
            if left > 0:
                self._sleep(left)

    def _rest(self, start: SourceOffset, now: float | None) -> None:
        """Say once, in the control folder, that there is nothing to do.

        :param now: when that was found, by the planner's clock; None: there is something.
        """
        if now is None or self._nothing_since is None:
            self._nothing_since = now
        if now is None or self._control is None or self._nothing_since is None:
            return
        if now + self._options.poll_seconds - self._nothing_since >= _REST_SECONDS:
            self._nothing_since = math.inf
            paused = Notes.from_dict(start.signals).paused
            self._control.tell(Waiting(start.epoch, self._wall_us(), paused))

    # --- the beginning

    def _initial(self) -> SourceOffset:
        state = self._server.state()
        start = self._options.start or "snapshot"
        finished: frozenset[str] = frozenset()
        if start == "snapshot":
            had, finished = self._resumed(state)
        else:
            had = _named(start, state)
        check_position(had, state)
        plan = SnapshotPlan(
            self._patterns,
            0,
            self._options.chunk_rows,
            self._options.slots,
            self._options.append,
            conditions=self._options.conditions,
        )
        if start == "snapshot":
            names = [table for table in sorted(self._server.tables(self._patterns)) if table not in finished]
            if not names and not finished:
                raise ConfigError(f"no table matches {', '.join(self._options.patterns)}")
            if self._options.snapshot_mode == "no_data":
                plan.wait(names)
            else:
                plan.enqueue(names, self._server.definitions(self._patterns) if self._options.append and names else {})
        if self._options.snapshot_cut == "start":
            plan.readings = {table: plan.wanted(table, blocking=True) for table in plan.queue}
        plan.initial = str(had) if plan.queue else None
        anew = start == "snapshot" and not finished
        topic = None if self._topic is None else self._topic.poll(None, wait=True).position
        notes = replace(plan.notes(server_uuid=state.uuid, topic=topic), fresh=True, anew=anew)
        now = self._wall_us()
        return SourceOffset(
            gtid=str(had),
            epoch=self._epoch(0, now),
            tables=self._options.patterns,
            snapshot=plan.state(),
            signals=notes.to_dict(),
            planned_us=now,
        )

    def _resumed(self, state: ServerState) -> tuple[GtidSet, frozenset[str]]:
        """Where a stream without a checkpoint begins: where the sinks are, if they say so, else now."""
        if self._control is not None:
            hint, finished = self._control.hint(), self._control.finished()
            if hint is not None and finished:
                had = GtidSet.parse(hint.gtid)
                if state.purged <= had:
                    return had, finished
                log.warning("the server has purged log after the sinks' position: all tables are read again")
        return state.executed, frozenset()

    # --- a range of the log, for batch reads

    def between(self, start: str | None, end: str | None) -> tuple[SourceOffset, SourceOffset]:
        """The offsets around the changes after ``start`` (default: none were had) up to ``end`` (default: now)."""
        return self._retried(lambda: self._between(start, end))

    def _between(self, start: str | None, end: str | None) -> tuple[SourceOffset, SourceOffset]:
        state = self._server.state()
        had = _named(start, state)
        check_position(had, state)
        target = GtidSet.parse(end) if end is not None else state.executed
        until = self._ends.choose(had, state, None, target=target)
        now = self._wall_us()
        notes = Notes(server_uuid=state.uuid, cuts=until.cuts)
        first = SourceOffset(gtid=str(had), epoch=self._epoch(0, now), tables=self._options.patterns, planned_us=now)
        return first, replace(first, gtid=str(until.gtid), signals=notes.to_dict())

    def everything(self, as_of: str | None) -> tuple[SourceOffset, list[ChunkSpec]]:
        """All chunks of all tables, for a batch read as of ``as_of`` (default: now)."""
        return self._retried(lambda: self._everything(as_of))

    def _everything(self, as_of: str | None) -> tuple[SourceOffset, list[ChunkSpec]]:
        state = self._server.state()
        end = GtidSet.parse(as_of) if as_of is not None else state.executed
        check_position(end, state)
        now = self._wall_us()
        epoch = self._epoch(0, now)
        plan = SnapshotPlan(self._patterns, epoch, self._options.chunk_rows, self._options.slots, False)
        plan.enqueue(sorted(self._server.tables(self._patterns)), {})
        if not plan.queue:
            raise ConfigError(f"no table matches {', '.join(self._options.patterns)}")
        while plan.pending:
            plan.weight = 0
            plan.plan_chunks(self._server)
        self._show(plan.chunks, epoch)
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
        had, notes = start.gtid_set, Notes.from_dict(start.signals)
        requests = self._requests(notes)
        if not requests.new and not _unfinished(start.snapshot, notes) and self._looked and self._still(had):
            return None
        planning = self._look(start, had, notes, requests)
        plan = self._take_requests(planning)
        end = self._choose_end(planning, plan, max_rows)
        offset = self._offset(planning, plan, end)
        self._looked = True
        return offset

    def _requests(self, notes: Notes) -> _Requests:
        """First stage: what is asked for, in the control folder and in the Kafka topic."""
        polled = Polled(notes.topic)
        if self._topic is not None:
            polled = self._topic.poll(notes.topic, wait=self._target is not None)
        signals = {**self._signals(notes), **polled.signals}
        begins = polled.position is not None and (notes.topic is None or notes.topic.topic != polled.position.topic)
        return _Requests(signals, polled, begins, new=begins or any(name not in notes.taken for name in signals))

    def _look(self, start: SourceOffset, had: GtidSet, notes: Notes, requests: _Requests) -> _Planning:
        """Second stage: the server as it is now, checked."""
        state = self._server.state()
        check_position(had, state)
        begin = self._begin(start, state)
        self._history.check(start, state)
        if self._target is not None and not notes.paused and _asks_again(notes, requests.signals):
            self._target = state.executed
            self._moved += 1
        now = self._wall_us()
        return _Planning(start, had, notes, requests, state, begin, now, self._epoch(start.epoch, now))

    def _take_requests(self, planning: _Planning) -> SnapshotPlan:
        """Third stage: the tables to read, with what is asked for taken in."""
        start, had, state = planning.start, planning.had, planning.state
        plan = SnapshotPlan.begin(
            start.snapshot,
            planning.notes,
            patterns=self._patterns,
            epoch=planning.epoch,
            chunk_rows=self._options.chunk_rows,
            slots=self._options.slots,
            append_allowed=self._options.append,
            position=str(state.executed),
            keeps=lambda table: self._options.policies.of(table).window == "keep",
            holds=self._options.snapshot_cut == "start",
            conditions=self._options.conditions,
        )
        moved = not (state.executed if self._target is None else self._target) <= had
        before = start.tables or self._options.patterns
        take_requests(
            plan,
            self._server,
            finished=self._control.finished() if self._control is not None else None,
            signals=planning.requests.signals,
            discover=self._discovers and (moved or not self._looked or before != self._options.patterns),
            patterns_before=TablePatterns(before),
            wait=self._options.new_tables == "wait",
        )
        plan.settles -= had
        if self._target is not None:
            self._target |= plan.settles
        return plan

    def _choose_end(self, planning: _Planning, plan: SnapshotPlan, max_rows: int | None) -> BatchEnd:
        """Fourth stage: the batch's end, and the chunks that are read as of it."""
        blocked = plan.blocks
        end = self._end(planning, plan, max_rows)
        live = end.gtid != planning.had
        limit = plan.full if blocked else self._pace.allow(plan.full, live=live)
        if plan.pending and not plan.paused and limit and self._reads_windows(end.gtid, blocks=blocked):
            plan.plan_chunks(self._server, limit)
        if blocked and not plan.chunks:
            end = self._end(planning, plan, max_rows)  # the tables that changes waited for may be gone
        return end

    def _end(self, planning: _Planning, plan: SnapshotPlan, max_rows: int | None) -> BatchEnd:
        """Where the batch ends: where it begins, if changes wait for tables or are not wanted."""
        end = BatchEnd(planning.had)
        if not plan.blocks and not self._is_read(plan):
            end = self._ends.choose(
                planning.had, planning.state, planning.begin, target=self._target, max_rows=max_rows
            )
        plan.stand(str(end.gtid))
        return end

    def _offset(self, planning: _Planning, plan: SnapshotPlan, end: BatchEnd) -> SourceOffset | None:
        """Last stage: the offset with its notes; None if the batch would do nothing."""
        start, notes, requests = planning.start, planning.notes, planning.requests
        self._planned_rows = plan.weight
        self._show(plan.chunks, planning.epoch)
        last = self._history.last(start, end.gtid - planning.had, planning.begin)
        tells = plan.actions or requests.topic_begins or (notes.fresh and plan.found)
        if end.gtid == planning.had and not plan.chunks and not tells:
            return None
        polled = requests.polled
        new_notes = plan.notes(
            server_uuid=planning.state.uuid,
            begin=planning.begin,
            cuts=end.cuts,
            behind=transactions(planning.state.executed - end.gtid),
            signal_table=None if self._options.table else self._options.signal_table,
            topic=polled.position or notes.topic,
            skipped=Skipped(polled.skipped, tuple(polled.keys)) if polled.skipped else None,
        )
        return SourceOffset(
            gtid=str(end.gtid),
            epoch=planning.epoch,
            tables=self._options.patterns,
            snapshot=plan.state(),
            signals=new_notes.to_dict(),
            last=last,
            planned_us=planning.now_us,
        )

    def _signals(self, notes: Notes) -> Mapping[str, Mapping[str, Any]]:
        """The control folder's signals; without new requests for chunks if those moved the frozen end often enough."""
        found = self._control.signals() if self._control is not None else {}
        if self._target is None or self._moved < _MOVES:
            return found
        return {name: signal for name, signal in found.items() if name in notes.taken or signal.get("type") != "redo"}

    @property
    def _discovers(self) -> bool:
        return (self._options.start or "snapshot") == "snapshot"

    def _reads_windows(self, end: GtidSet, *, blocks: bool) -> bool:
        """Whether chunks can be read as of ``end``; where not, a later end will do, unless changes wait for them."""
        found = self._server.reads_windows(end)
        if blocks and not found:
            raise BinlogPurgedError(
                "the relay's log goes on with that of another server, and tables are being read as of a place before"
                " that: allow that the server is read (relay_fallback), or begin with a new checkpoint and target",
                needed=str(end),
            )
        return found

    def _is_read(self, plan: SnapshotPlan) -> bool:
        """Whether a stream that is for reading tables only has done so: changes are of no use to it then."""
        return self._options.snapshot_mode == "initial_only" and not plan.pending and not plan.settles

    def _still(self, had: GtidSet) -> bool:
        """Whether the server has nothing new: the one question that an idle stream asks."""
        if self._target is not None:
            return self._target <= had
        return self._server.executed() == had

    def _epoch(self, previous: int, now_us: int) -> int:
        return max(previous + 1, self._options.epoch + 1, now_us // 1000)

    def _begin(self, start: SourceOffset, state: ServerState) -> Hint | None:
        """The last recorded binlog position that has just what ``start`` says, if this server's log has it."""
        found = self._control.hint() if self._control is not None else None
        if found is None or found.server_uuid != state.uuid or found.gtid != start.gtid:
            return None
        return Hint(found.server_uuid, found.file, found.pos)

    def _show(self, chunks: Sequence[ChunkSpec], epoch: int) -> None:
        """Make sure that the chunks' SELECTs see all of the batch's end, which was taken before."""
        if chunks and self._options.watermark == "signal-table":
            self._server.commit_watermark(str(self._options.signal_table), f'{{"epoch": {epoch}}}')


def _named(start: str | None, state: ServerState) -> GtidSet:
    """The position that ``current``, ``earliest`` or a GTID set names."""
    if start == "current":
        return state.executed
    if start in (None, "earliest"):
        return state.purged
    return GtidSet.parse(str(start))


def _asks_again(notes: Notes, signals: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether chunks that gave nothing are to be read again: at the same E they would give nothing again."""
    if notes.redo:
        return True
    return any(signal.get("type") == "redo" for name, signal in signals.items() if name not in notes.taken)


def _unfinished(snapshot: SnapshotState, notes: Notes) -> bool:
    """Whether there are chunks to plan."""
    if notes.paused:
        return False
    return bool(snapshot.queue or notes.redo or any(not progress.finished for progress in snapshot.active.values()))
