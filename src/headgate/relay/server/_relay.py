"""A relay: a buffer and a feeder for each physical source; names and schemas for all.

The state folder: ``partition-<id>.json`` (position and SCN), ``partition-<id>/*.events`` (the buffer's segments),
``partition-<id>.mark.json`` (what made those), ``sources.json`` (ids of patterns' tables), ``generations.json`` and
``schemas/`` (unless they are elsewhere), ``log-<id>/`` (the binlog archive, if configured), ``lock``. One relay owns it
from its creation until :meth:`Relay.close`: two would overwrite each other's positions and files, so the second one is
refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headgate.columns import rules_mark
from headgate.errors import ConfigError
from headgate.files import lock_folder
from headgate.gtid import GtidSet
from headgate.relay.archive import LogFeeder, LogSpool
from headgate.relay.server._buffer import EventBuffer
from headgate.relay.server._counters import Counters
from headgate.relay.server._feeder import Feeder
from headgate.relay.server._mark import BufferMark, MarkFile
from headgate.relay.server._names import SourceNames
from headgate.relay.server._position import BufferPosition, FeederState, StateFile, load_state
from headgate.relay.server._scn import GenerationMap, Scn, scn_after_reset
from headgate.relay.server._segments import newest_stored_scn
from headgate.relay.server._sources import PhysicalSource, RelayConfig
from headgate.relay.server.events import Registry

__all__ = ["Partition", "Relay", "StartOf"]

log = logging.getLogger("headgate")

_BEFORE_IMAGES_SINCE: Final = 2
_BEGIN_SECONDS: Final = 1.0

StartOf = Callable[[PhysicalSource], GtidSet]
"""Returns what counts as already read, for a source without a state."""


@dataclass
class Partition:
    """One physical source at work."""

    source: PhysicalSource
    buffer: EventBuffer
    feeder: Feeder
    log_feeder: LogFeeder | None = None
    """Copies the log to the binlog archive, if that is configured; then the feeder reads the archive."""

    @property
    def name(self) -> str:
        """``name:id`` of the physical source, as in statistics and metrics."""
        return f"{self.source.name}:{self.source.id}"

    @property
    def spool(self) -> LogSpool | None:
        """The binlog archive, if configured."""
        return None if self.log_feeder is None else self.log_feeder.spool

    @property
    def readers(self) -> Sequence[Feeder | LogFeeder]:
        """The threads that read the source, in the order in which they start and stop."""
        return [self.feeder] if self.log_feeder is None else [self.log_feeder, self.feeder]

    @property
    def problems(self) -> list[str]:
        """Current problems, as text."""
        archive = [] if self.log_feeder is None or self.log_feeder.problem is None else [self.log_feeder.problem]
        return [f"{self.source.name}: {one}" for one in (*self.feeder.problems, *archive)]

    @property
    def failed(self) -> bool:
        """Whether a thread has ended with an error."""
        return any(one.failed for one in self.readers)


class Relay:
    """A relay, which reads its sources within a ``with`` block.

    :param start: called for each source without a state, when its server can be reached.
    :param reset: call it for all sources, in the constructor. Changes between an old state and the new beginning are
        lost, so the buffers are empty, SCNs continue above all that were served (:func:`scn_after_reset`), and
        consumers with older checkpoints get the error that they are too far behind.
    :raises HeadgateError: a folder cannot be used, another relay owns the state folder, or ``start`` raised it.
    """

    def __init__(self, config: RelayConfig, start: StartOf, *, reset: bool = False) -> None:
        if config.before_images and config.event_version < _BEFORE_IMAGES_SINCE:
            raise ConfigError("before_images needs events of version 2: set event_version = 2 (--event-version 2)")
        self.config, self.times = config, config.times
        folder = config.state
        with contextlib.ExitStack() as held:
            if folder is not None:
                held.enter_context(lock_folder(folder))
            self._put_together(config, start, reset)
            self._held = held.pop_all()

    def _put_together(self, config: RelayConfig, start: StartOf, reset: bool) -> None:
        folder = config.state
        self.names = SourceNames(config.physical, None if folder is None else folder / "sources.json")
        schemas = config.schemas or (None if folder is None else folder / "schemas")
        self.registry = Registry(schemas, config.types, before_images=config.before_images)
        self._rules = rules_mark(config.policies)
        shared = config.generations or (None if folder is None else folder / "generations.json")
        self.counters = Counters([one.id for one in config.physical], config.limits.clients)
        self.generations = GenerationMap(shared)
        # All servers are queried before a reset changes anything.
        starts = {source.id: start(source) for source in config.physical} if reset else {}
        self.partitions: Mapping[int, Partition] = {
            source.id: self._partition(source, start, starts.get(source.id)) for source in config.physical
        }

    def _partition(self, source: PhysicalSource, start: StartOf, new_start: GtidSet | None) -> Partition:
        config, reset = self.config, new_start is not None
        file = None if config.state is None else config.state / f"partition-{source.id}.json"
        state, events = load_state(file, config.scn), self._events_folder(source)
        if new_start is not None:
            state = self._state_after_reset(state, events, new_start)
        mark_file = events and events.with_name(f"{events.name}.mark.json")
        mark = MarkFile(mark_file, partial(self._mark, source.id), reset=reset)
        has_files = events is not None and any(events.glob("*"))
        keeps_files = not reset and (not has_files or self._can_serve_files(source, state, mark))
        spool = None
        if config.state is not None and config.log_disk_bytes:
            spool = LogSpool(
                config.state / f"log-{source.id}",
                config.log_disk_bytes,
                reset=reset,
                wait_seconds=config.times.archive_wait,
            )
        followed = replace(source, settings=replace(source.settings, log=spool))
        buffer = EventBuffer(
            config.memory_bytes,
            folder=events,
            disk_bytes=config.disk_bytes,
            until_scn=-1 if state is None else state.scn,
            keeps_files=keeps_files,
            limits=config.limits.buffer,
        )
        scn = Scn(config.scn, self.generations, -1 if state is None else state.scn)
        position = BufferPosition(state)
        feeder = Feeder(
            followed,
            self.names,
            self.registry,
            buffer,
            scn,
            self.counters,
            state_file=StateFile(file, scn.kind, position, source.name, partial(_settle, buffer, mark)),
            start=start,
            config=config,
        )
        log_feeder = None
        if spool is not None:
            log_feeder = LogFeeder(source.name, source.settings, spool, partial(_begin_of, position))
        return Partition(source, buffer, feeder, log_feeder)

    def _mark(self, physical: int) -> BufferMark:
        config = self.config
        sources = {str(one.id): (one.name, one.table, one.partition) for one in self.names.of_physical(physical)}
        return BufferMark(self._rules, config.event_version, sources)

    @staticmethod
    def _can_serve_files(source: PhysicalSource, state: FeederState | None, mark: MarkFile) -> bool:
        if state is None or state.scn < 0:
            return True  # nothing in them counts
        change = mark.change()
        if change is not None:
            log.warning("%s: %s, so the buffer's files are dropped", source.name, change)
        return change is None

    def _state_after_reset(self, state: FeederState | None, events: Path | None, start: GtidSet) -> FeederState:
        if state is None:
            return FeederState(start, -1)
        last = max(state.scn, -1 if events is None else newest_stored_scn(events))
        return FeederState(start, scn_after_reset(self.config.scn, last, self.generations))

    def _events_folder(self, source: PhysicalSource) -> Path | None:
        folder = self.config.state
        return folder / f"partition-{source.id}" if folder is not None and self.config.disk_bytes else None

    def __enter__(self) -> Self:
        """:raises HeadgateError: a server that was reached refuses, or a table cannot be followed."""
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._held)
            for partition in self.partitions.values():
                partition.feeder.prepare()
            undo.pop_all()
        for partition in self.partitions.values():
            for reader in partition.readers:
                reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading, save the states, and release the state folder; also if reading never began."""
        for partition in self.partitions.values():
            for reader in partition.readers:  # the archive's end also ends the feeder's reader of it
                reader.stop()
        self._held.close()

    @property
    def is_following(self) -> bool:
        """Whether all sources are read, without a problem."""
        return not any(one.problems or one.failed for one in self.partitions.values())

    def status(self) -> tuple[str, str]:
        """Return Databus's word for the state, and the problems."""
        problems = [problem for one in self.partitions.values() for problem in one.problems]
        if any(one.failed for one in self.partitions.values()):
            return "SUSPENDED_ON_ERROR", "; ".join(problems)
        return ("ERROR_RETRYING", "; ".join(problems)) if problems else ("RUNNING", "")


def _settle(buffer: EventBuffer, mark: MarkFile) -> None:
    """Write what a state relies on."""
    buffer.sync()
    mark.save()


def _begin_of(position: BufferPosition) -> GtidSet | None:
    """Wait until a position has begun, and return the set up to which the log was read; None: not within a second."""
    return None if position.wait(lambda _: True, _BEGIN_SECONDS) is None else position.prefix().gtid
