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

from headgate._places import transactions
from headgate.carrier import ControlFile, ControlFolder, Skipped, Trouble, Waiting
from headgate.catalog import TablePatterns
from headgate.control import Polled, TopicPosition
from headgate.errors import (
    BinlogPurgedError,
    ConfigError,
    HeadgateError,
    HistoryRewrittenError,
    ServerBehindError,
)
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec, Hint, Last, SnapshotState, SourceOffset
from headgate.spark._notes import Cut, Notes
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

_LAST_SECONDS = 10.0
"""How old ``last`` may get while the stream moves: asking for it costs a dump of one transaction."""
_LAST_SECONDS_BLIND = 60.0
"""The same without a hint, when the server has to look for the transaction in a whole file."""
_MOVES = 20
"""How often one AvailableNow run moves its end for chunks that gave nothing. A table that is altered, or
written without having a key, at every try must not keep such a run from ending; the next run goes on with it."""
_REST_SECONDS = 1.0
"""A stream that has nothing to do for so long is said to wait: between the batches of a busy one nothing is written."""
_BYTES_A_ROW = 10
"""No change takes fewer bytes in the log (a row event's least row, with its share of headers)."""


@dataclass
class _Log:
    """What is known about the binlog file that a set lies in: a cache."""

    uuid: str = ""
    file: str = ""


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
        self._checked = -1
        self._last_taken: float | None = None
        self._looked = False
        self._failing_since_us: int | None = None
        self._went_well = False
        self._log = _Log()
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
        """Tell people, once, that there is nothing to do.

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
            self._patterns, 0, self._options.chunk_rows, self._options.slots, self._options.append,
            conditions=self._options.conditions,
        )  # fmt: skip
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

    # --- a stretch of the log, for batch reads

    def between(self, start: str | None, end: str | None) -> tuple[SourceOffset, SourceOffset]:
        """The offsets around the changes after ``start`` (default: none were had) up to ``end`` (default: now)."""
        return self._retried(lambda: self._between(start, end))

    def _between(self, start: str | None, end: str | None) -> tuple[SourceOffset, SourceOffset]:
        state = self._server.state()
        had = _named(start, state)
        check_position(had, state)
        self._target = GtidSet.parse(end) if end is not None else state.executed
        until, cuts = self._end(had, state, None, None)
        now = self._wall_us()
        notes = Notes(server_uuid=state.uuid, cuts=cuts)
        first = SourceOffset(gtid=str(had), epoch=self._epoch(0, now), tables=self._options.patterns, planned_us=now)
        return first, replace(first, gtid=str(until), signals=notes.to_dict())

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
            gtid=str(end), epoch=epoch, tables=self._options.patterns, snapshot=plan.state(),
            signals=Notes(server_uuid=state.uuid).to_dict(), planned_us=now,
        )  # fmt: skip
        return offset, plan.chunks

    # --- the next batch

    def _latest(self, start: SourceOffset, max_rows: int | None) -> SourceOffset | None:
        had, notes = start.gtid_set, Notes.from_dict(start.signals)
        asked = self._asked(notes)
        signals = {**self._signals(notes), **asked.signals}
        begins = asked.position is not None and (notes.topic is None or notes.topic.topic != asked.position.topic)
        asked_for = begins or any(name not in notes.taken for name in signals)
        if not asked_for and not _unfinished(start.snapshot, notes) and self._looked and self._still(had):
            return None
        state = self._server.state()
        check_position(had, state)
        begin = self._begin(start, state)
        self._check_history(start, state)
        if self._target is not None and not notes.paused and _asks_again(notes, signals):
            self._target = state.executed
            self._moved += 1
        now = self._wall_us()
        epoch = self._epoch(start.epoch, now)
        plan = SnapshotPlan.begin(
            start.snapshot, notes, patterns=self._patterns, epoch=epoch, chunk_rows=self._options.chunk_rows,
            slots=self._options.slots, append_allowed=self._options.append, position=str(state.executed),
            keeps=lambda table: self._options.policies.of(table).window == "keep",
            holds=self._options.snapshot_cut == "start", conditions=self._options.conditions,
        )  # fmt: skip
        moved = not (state.executed if self._target is None else self._target) <= had
        before = start.tables or self._options.patterns
        take_requests(
            plan, self._server, finished=self._control.finished() if self._control is not None else None,
            signals=signals,
            discover=self._discovers and (moved or not self._looked or before != self._options.patterns),
            patterns_before=TablePatterns(before), wait=self._options.new_tables == "wait",
        )  # fmt: skip
        plan.settles -= had
        if self._target is not None:
            self._target |= plan.settles
        waits = plan.blocks
        end, cuts = (had, ()) if waits or self._is_read(plan) else self._end(had, state, begin, max_rows)
        plan.stand(str(end))
        limit = plan.full if waits else self._pace.allow(plan.full, live=end != had)
        if plan.pending and not plan.paused and limit and self._reads_windows(end, blocks=waits):
            plan.plan_chunks(self._server, limit)
        if waits and not plan.chunks and not plan.blocks and not self._is_read(plan):
            end, cuts = self._end(had, state, begin, max_rows)  # the tables that changes waited for are gone
            plan.stand(str(end))
        self._planned_rows = plan.weight
        self._show(plan.chunks, epoch)
        last = self._last(start, end - had, begin)
        self._looked = True
        told = plan.actions or begins or (notes.fresh and plan.found)
        if end == had and not plan.chunks and not told:
            return None
        behind = transactions(state.executed - end)
        now_notes = plan.notes(
            server_uuid=state.uuid, begin=begin, cuts=cuts, behind=behind,
            signal_table=None if self._options.table else self._options.signal_table,
            topic=asked.position or notes.topic,
            skipped=Skipped(asked.skipped, tuple(asked.keys)) if asked.skipped else None,
        )  # fmt: skip
        return SourceOffset(
            gtid=str(end),
            epoch=epoch,
            tables=self._options.patterns,
            snapshot=plan.state(),
            signals=now_notes.to_dict(),
            last=last,
            planned_us=now,
        )

    def _asked(self, notes: Notes) -> Polled:
        """What the Kafka topic holds beyond the position of the offset before."""
        if self._topic is None:
            return Polled(notes.topic)
        return self._topic.poll(notes.topic, wait=self._target is not None)

    def _signals(self, notes: Notes) -> Mapping[str, Mapping[str, Any]]:
        """What there is; without new requests for chunks if the frozen end was moved for such often enough."""
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
        """Where a reader stood when it had what ``start`` says, if anybody wrote it down for this server."""
        found = self._control.hint() if self._control is not None else None
        if found is None or found.server_uuid != state.uuid or found.gtid != start.gtid:
            return None
        return Hint(found.server_uuid, found.file, found.pos)

    def _show(self, chunks: Sequence[ChunkSpec], epoch: int) -> None:
        """Make sure that the chunks' SELECTs see all of the batch's end, which was taken before."""
        if chunks and self._options.watermark == "signal-table":
            self._server.commit_watermark(str(self._options.signal_table), f'{{"epoch": {epoch}}}')

    # --- the same history

    def _check_history(self, start: SourceOffset, state: ServerState) -> None:
        """After every new connection: is the transaction read last still the one it was?"""
        if self._checked == self._server.connects:
            return
        last = start.last
        if last is not None and not GtidSet.parse(last.gtid) & state.purged:
            found = self._server.commit_time(GtidSet.parse(last.gtid), None)
            if found is not None and found != last.ts_us:
                raise HistoryRewrittenError(
                    "the server's history was rewritten (RESET BINARY LOGS AND GTIDS, or a restored image): a"
                    " transaction that was read has another commit time; start again with a new checkpoint and target",
                    gtid=last.gtid,
                )
        self._checked = self._server.connects

    def _last(self, start: SourceOffset, new: GtidSet, begin: Hint | None) -> Last | None:
        """A recent transaction to recognise the history by: the first of the new ones, which a reader finds at once."""
        now = self._clock()
        patience = _LAST_SECONDS if begin is not None else _LAST_SECONDS_BLIND
        if not new or (start.last and self._last_taken is not None and now - self._last_taken < patience):
            return start.last
        uuid, tag, number, _ = next(new.intervals())
        one = GtidSet({(uuid, tag): [(number, number)]})
        found = self._server.commit_time(one, begin)
        self._last_taken = now
        return Last(str(one), found) if found is not None else start.last

    # --- how far, and in how many parts

    def _end(
        self, had: GtidSet, state: ServerState, begin: Hint | None, max_rows: int | None
    ) -> tuple[GtidSet, tuple[Cut, ...]]:
        """E, and where the log between is divided."""
        end = state.executed
        if self._target is not None:
            end = had | self._target
            if not end <= state.executed:
                raise ServerBehindError(
                    "the server lacks transactions that the stream was to end with", missing=str(end - state.executed)
                )
        end = self._server.reach(had, end)
        if end == had:
            return end, ()
        current = self._server.log_file()
        files = self._backlog(had, state.uuid, current, begin)
        if max_rows is not None and self._may_exceed(files, begin, max_rows):
            end = self._limited(had, end, max_rows, begin)
        cuts = self._cuts(files, had, end) if len(files) > 1 and self._options.slots > 1 else ()
        if end == state.executed:
            self._log = _Log(state.uuid, current)
        return end, cuts

    def _backlog(self, had: GtidSet, uuid: str, current: str, begin: Hint | None) -> list[tuple[str, int]]:
        """The files that hold what comes after ``had``, with sizes (-1: not asked, it is the current file alone)."""
        if begin is not None and begin.file == current:
            return [(current, -1)]
        if self._log == _Log(uuid, current):
            return [(current, -1)]
        files = self._server.log_files()
        names = [name for name, _ in files]
        if begin is not None and begin.file in names:
            return files[names.index(begin.file) :]
        # The newest file before which there is nothing new; sets at file starts only grow, so halving finds it.
        low, high = 0, len(files) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._server.previous_gtids(names[middle]) <= had:
                low = middle
            else:
                high = middle - 1
        return files[low:]

    def _limited(self, had: GtidSet, end: GtidSet, max_rows: int, begin: Hint | None) -> GtidSet:
        """The next transactions in log order; more than asked for if the first one alone is larger."""
        while True:
            found = self._server.cut(had, end, max_rows, begin) & end
            if found != had:
                return found
            max_rows *= 4

    def _may_exceed(self, files: list[tuple[str, int]], begin: Hint | None, max_rows: int) -> bool:
        """Whether the backlog has room for more than ``max_rows`` changes."""
        if any(size < 0 for _, size in files):
            sizes = dict(self._server.log_files())
            files = [(name, sizes.get(name, 0)) for name, _ in files]
        size = sum(size for _, size in files)
        if begin is not None and files and begin.file == files[0][0]:
            size -= begin.pos
        return size > max_rows * _BYTES_A_ROW

    def _cuts(self, files: list[tuple[str, int]], had: GtidSet, end: GtidSet) -> tuple[Cut, ...]:
        """At most ``slots - 1`` file starts that divide the backlog into parts of about equal size."""
        total, wanted = sum(size for _, size in files), self._options.slots
        cuts: list[Cut] = []
        before, previous = 0, had
        for index, (name, size) in enumerate(files):
            if index and len(cuts) < wanted - 1 and before >= total * (len(cuts) + 1) / wanted:
                found = self._server.previous_gtids(name) & end
                if previous < previous | found and not end <= found:
                    cuts.append(Cut(name, str(found)))
                    previous = previous | found
            before += size
        return tuple(cuts)


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
