"""A pipeline, and a process that runs it: headgate's planner and writer, in Spark's order of steps.

Spark writes a batch's end to its checkpoint, runs the batch, and writes that it is done. A process that starts again
runs the last batch again, unless it is done. Without a batch that is done it asks for the stream's beginning again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.carrier import Batch, Message
from headgate.errors import HistoryRewrittenError, StorageError
from headgate.lake import Lake, followed_log
from headgate.offsets import SourceOffset
from headgate.policies import Window
from headgate.positions import Position
from headgate.spark import Options, Planner, Task
from tests.simulation.broker import Broker
from tests.simulation.planning import SimulatedServer
from tests.simulation.reading import read_task
from tests.simulation.sinks import Delivery, Spark, Writer
from tests.simulation.source import UUIDS, Counts, Server
from tests.simulation.tables import SHAPES
from tests.simulation.world import World

__all__ = ["Driver", "Fault", "Pipeline", "counts_of"]

SLOTS: Final = 2


class Fault(AssertionError):
    """The oracle's verdict: headgate did what it must never do."""


@dataclass
class Pipeline:
    """What outlasts processes: a lake, brokers, and Spark's checkpoint."""

    lake: Lake
    modes: tuple[str, ...]
    broker: Broker
    delivery: Delivery
    window: Window
    """What becomes of rows that change while they are read, where images are whole."""
    cut: str
    share: str
    limit: int | None
    offsets: list[str] = field(default_factory=list)
    done: int = 0
    """Number of batches that are done."""
    had: dict[tuple[int, int], int] = field(default_factory=dict)
    """Transactions that the stream counts as read: origin and number → commit time. For the oracle."""
    begins: list[str] = field(default_factory=list)
    """Where the stream may have begun. A process that dies before the first batch is done asks for the beginning again;
    then the changelog of each table begins where that was when an attempt wrote it, or where the first batch ends."""
    has_gap: bool = False
    """Whether the stream began again, without its position: the changelogs lack what was committed meanwhile."""
    eras: list[int] = field(default_factory=list)
    """The world's number of rewrites when each batch was planned."""
    plans: list[dict[tuple[int, int], int]] = field(default_factory=list)
    """The transactions of each batch, as the source had them when it was planned."""
    blind: set[str] = field(default_factory=set)
    """Where the stream may have begun without a transaction to compare: the log of all of them was purged."""
    is_mixed: bool = False
    """Whether the history was rewritten during a planning."""
    judged: int = 0
    """The world's number of rewrites at which ``had`` was compared with the source last, and was intact."""
    has_parts: bool = False
    """Whether a table has partial images."""
    has_second: bool = False
    """Whether a second driver has run."""
    has_lost_batch: bool = False
    """Whether Spark's checkpoint was lost with a batch that was not done: the next batch is another one."""
    message_begins: list[str] = field(default_factory=list)
    """The same as ``begins``, for messages: those of lost batches stay."""
    has_message_gap: bool = False
    """Whether messages may lack changes: the stream began again, before a batch was in the ledger or without its
    position."""

    def options(self, epoch: int, written_epoch: int, applied: str | None) -> Options:
        plain = {
            "url": "mysql://u@h",
            "tables": "d.*",
            "control_path": self.lake.inbox,
            "chunk_rows": "5",
            "slots": str(SLOTS),
            "poll_ms": "500",
            "retry_seconds": "2",
            "snapshot_share": self.share,
            "snapshot_cut": self.cut,
            "append": "false" if {"changelog", "kafka"} & {*self.modes} else "true",
            "window": json.dumps({"*": self.window, **self.rules()}),
            "epoch": str(epoch),
            "written_epoch": str(written_epoch),
        }
        return Options.parse({**plain, **({"applied": applied} if applied else {})})

    def rules(self) -> Mapping[str, Window]:
        """Return by table what becomes of rows that change while they are read."""
        return {table: "keep" if shape.logs_parts else self.window for table, shape in SHAPES.items()}

    def is_intact(self, world: World) -> bool:
        """Return whether the source still has every transaction that the stream counts as read."""
        if self.is_mixed:
            return False
        if self.judged != world.rewritten:
            server = world.main
            if not self.had:  # nothing can show it
                return False
            for (origin, number), commit_us in self.had.items():
                index = server.places.get((origin, number))
                if index is None or server.log[index].commit_us != commit_us:
                    return False
            self.judged = world.rewritten
        return True

    def forget_after(self, offset: SourceOffset) -> None:
        """Count transactions after an offset as not read."""
        counts = counts_of(offset.gtid)
        self.had = {key: us for key, us in self.had.items() if key[1] <= counts[key[0]]}

    def note_begin(self, gtid: str) -> None:
        """Note where the stream may have begun."""
        self.begins.append(gtid)
        self.message_begins.append(gtid)

    def lose_checkpoint(self, *, was_entered: bool) -> None:
        """Forget what Spark's checkpoint has.

        :param was_entered: whether the ledger has a row.
        """
        self.has_lost_batch |= self.done < len(self.offsets)
        self.has_message_gap |= self.has_lost_batch and not was_entered
        self.done = 0
        self.offsets, self.eras, self.plans = [], [], []
        self.blind.clear()

    def note_plan(self, world: World, part: Position, before: Server) -> dict[tuple[int, int], int]:
        """Return the transactions of a set that is planned: origin and number → commit time.

        :param before: the primary when the planning began.
        """
        log = world.main.log
        plan = {(log[i].origin, log[i].number): log[i].commit_us for i in world.main.indexes(part)}
        if before is not world.main:
            known = ((before.places.get(key), us) for key, us in plan.items())
            self.is_mixed |= any(index is not None and before.log[index].commit_us != us for index, us in known)
        return plan


class Driver:
    """One process."""

    def __init__(self, world: World, pipeline: Pipeline) -> None:
        self.world, self.pipeline = world, pipeline
        world.now_us += 2_000_000  # a JVM starts
        followed_log.cache_clear()
        self.writer = Writer(pipeline.lake, pipeline.modes, pipeline.delivery)
        self.writer.resume()
        self.writer.check_targets(Spark(), world.tables)  # type: ignore[arg-type]
        last, newest = self.writer.ledger.last, self.writer.newest_epoch(Spark())  # type: ignore[arg-type]
        options = pipeline.options(last.epoch if last else 0, newest, last.applied.to_json() if last else None)
        self._server = SimulatedServer(world)
        self.planner = Planner(
            options, self._server, self.writer.inbox, clock=world.clock, wall_us=world.wall_us, sleep=world.sleep
        )
        self._images = options
        self._start: SourceOffset | None = None
        self._begun: dict[tuple[int, int], int] = {}
        """What counts as read where the stream begins. It goes with the first batch, which may be repeated after the
        stream's beginning was asked for again."""
        self._number = pipeline.done
        self._first_era: int | None = None
        """The world's number of rewrites when this process asked for the stream's beginning, up to its first batch."""

    @property
    def began_before(self) -> bool:
        """Whether the history was rewritten since this process began the stream, of which no batch is done."""
        return self._first_era not in (None, self.world.rewritten)

    def batch(self) -> bool:
        """Run one batch; return False if there was nothing to do."""
        world, pipeline = self.world, self.pipeline
        start = self._begin()
        if self._number < len(pipeline.offsets):
            end = SourceOffset.from_json(pipeline.offsets[self._number])
        else:
            was_intact, era, before = pipeline.is_intact(world), world.rewritten, world.main
            end = self.planner.latest(start, pipeline.limit)
            plan = pipeline.note_plan(world, end.position - start.position, before)
            if not self._number:
                plan = {**self._begun, **plan}
            if end is start:
                return False
            if not was_intact and start.gtid in pipeline.blind:
                raise HistoryRewrittenError("no transaction of the stream's is in a log that could show it")
            if not was_intact:
                raise Fault("a batch was planned although the source's history was rewritten before")
            world.count("batch planned")
            world.pause()
            if self._number != len(pipeline.offsets):
                raise StorageError("another process writes the checkpoint")
            pipeline.offsets.append(end.to_json())
            pipeline.eras.append(era)
            pipeline.plans.append(plan)
            if self.writer.ledger.last is None:
                pipeline.note_begin(end.gtid)
            world.pause()
        self._run(start, end)
        world.pause()
        if pipeline.done not in (self._number, self._number + 1):
            raise StorageError("another process writes the checkpoint")
        self._number = pipeline.done = self._number + 1
        self._start, self._first_era = end, None
        world.count("batch done")
        return True

    def _begin(self) -> SourceOffset:
        pipeline = self.pipeline
        if self._start is None and pipeline.done:
            self._start = SourceOffset.from_json(pipeline.offsets[pipeline.done - 1])
        if self._start is None:
            if not any(self.world.main.counts[-1]):
                self.world.begin_history()
            before, self._first_era = self.world.main, self.world.rewritten
            self._start = self.planner.initial()
            if self._start.signals["begun"]["full_restart"]:
                pipeline.had.clear()
                pipeline.judged, pipeline.is_mixed = self.world.rewritten, False
                self.world.known_rewrites, before = self.world.rewritten, self.world.main
                pipeline.has_gap = self.writer.ledger.last is not None
                pipeline.has_message_gap |= pipeline.has_gap
            row = self.writer.ledger.last
            if not pipeline.done:  # else a second driver has begun and read since
                pipeline.forget_after(self._start)  # what lost batches read is not read
            if row is not None and row.last is None and not pipeline.is_intact(self.world):
                raise HistoryRewrittenError("no transaction of the ledger's is in a log that could show it")
            pipeline.had |= pipeline.note_plan(self.world, self._start.position, before)
            self._begun = dict(pipeline.had)
            source = self._server.reached
            if source is not None and source.length_of(self._start.position) <= source.purged:
                pipeline.blind.add(self._start.gtid)
            if pipeline.offsets:  # the first batch ends before the new beginning
                pipeline.forget_after(SourceOffset.from_json(pipeline.offsets[-1]))
            if self.writer.ledger.last is None:
                pipeline.note_begin(self._start.gtid)
        return self._start

    def _run(self, start: SourceOffset, end: SourceOffset) -> None:
        # A stored batch counts as read: a server that lost some of it is refused before a task has read any.
        self.pipeline.had |= self.pipeline.plans[self._number]
        if self.pipeline.eras[self._number] != self.world.rewritten:
            self.pipeline.judged = -1
        tasks = self.planner.tasks(start, end)
        batch = Batch.of(self.evaluate(tasks))
        self.world.count("batch read")
        self.write(batch, tasks)

    def evaluate(self, tasks: list[Task]) -> list[Message]:
        """Run each task, some twice: of those, one attempt counts."""
        messages, rules = list[Message](), self.pipeline.rules()
        for task in tasks:
            made = read_task(self.world, task, rules)
            if self.world.heat and self.world.choose.one_in(16):
                self.world.count("task computed again")
                again = read_task(self.world, task, rules)
                made = self.world.choose.pick((made, again))
            messages += made
        return messages

    def write(self, batch: Batch, tasks: list[Task]) -> None:
        """Apply a batch, which is not evaluated again."""
        del tasks
        report = self.writer._write(Spark(), batch, self._number)  # type: ignore[arg-type]
        if report.replayed:
            self.world.count("batch repeated")
        self.world.count("table decided", len(batch.tables()))


def counts_of(text: str) -> Counts:
    """Return a GTID set without holes, from its text."""
    counts = [0, 0]
    for piece in text.split(",") if text else ():
        uuid, _, numbers = piece.partition(":")
        if ":" in numbers:
            raise Fault(f"the GTID set {text} has holes")
        first, _, last = numbers.partition("-")
        if first != "1":
            raise Fault(f"the GTID set {text} has holes")
        counts[UUIDS.index(uuid)] = int(last or first)
    return counts[0], counts[1]
