"""A relay: a buffer and a feeder for each physical source; names and schemas for all.

The state folder: ``partition-<id>.json`` (position and SCN), ``partition-<id>/*.events`` (the buffer's segments),
``sources.json`` (ids of patterns' tables), ``generations.json`` and ``schemas/`` (unless they are elsewhere),
``log-<id>/`` (the binlog archive, if configured), ``lock``. One relay owns it from its creation until
:meth:`Relay.close`: two would overwrite each other's positions and files, so the second one is refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headgate.archive import LogFeeder, LogSpool
from headgate.columns import rules_mark
from headgate.errors import ConfigError
from headgate.files import lock_folder
from headgate.gtid import GtidSet
from headgate.relay._buffer import EventBuffer
from headgate.relay._counters import EventStats
from headgate.relay._events._schemas import Registry
from headgate.relay._feeder import Feeder
from headgate.relay._names import SourceNames
from headgate.relay._position import Position, State, load_state
from headgate.relay._scn import GenerationMap, Scn, scn_after_reset
from headgate.relay._segments import stored_segments
from headgate.relay._sources import PhysicalSource, RelayConfig
from headgate.relay._usage import DeliveredEvents, Traffic, Usage

__all__ = ["Partition", "Relay", "StartOf"]

log = logging.getLogger("headgate")

_BEFORE_IMAGES_SINCE: Final = 2
_LARGEST_SCN: Final = 2**63 - 1

StartOf = Callable[[PhysicalSource], GtidSet]
"""Returns what counts as already read, for a source without a state."""


@dataclass
class Partition:
    """One physical source at work."""

    source: PhysicalSource
    buffer: EventBuffer
    feeder: Feeder
    outbound: EventStats
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
        return [f"{self.source.name}: {one.problem}" for one in reversed(self.readers) if one.problem]

    @property
    def failed(self) -> bool:
        """Whether a thread has ended with an error."""
        return any(one.failed for one in self.readers)


class Relay:
    """A relay, which reads its sources within a ``with`` block.

    :param start: called by the constructor for each source without a state.
    :param reset: call it for all sources. Changes between an old state and the new beginning are lost, so the buffers
        are empty, SCNs continue above all that were served (:func:`scn_after_reset`), and consumers with older
        checkpoints get the error that they are too far behind.
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
        shared = config.generations or (None if folder is None else folder / "generations.json")
        self.usage = Usage(config.limits.clients)
        self.traffic = Traffic(config.limits.clients)
        self.delivered = DeliveredEvents()
        self.generations = GenerationMap(shared)
        self.partitions: Mapping[int, Partition] = {
            source.id: self._partition(source, start, reset) for source in config.physical
        }

    def _partition(self, source: PhysicalSource, start: StartOf, reset: bool) -> Partition:
        config = self.config
        file = None if config.state is None else config.state / f"partition-{source.id}.json"
        state, events, rules = load_state(file, config.scn), self._events_folder(source), rules_mark(config.policies)
        if state is None:
            state = State(start(source), -1, rules=rules)
        elif reset:
            stored = [] if events is None else stored_segments(events, _LARGEST_SCN)
            last = max([state.scn, *(one.last_scn for one in stored)])
            state = State(start(source), scn_after_reset(config.scn, last, self.generations), rules=rules)
        same_rules = state.rules == rules
        if not same_rules and state.scn >= 0:
            log.warning("%s: the rules in [columns] changed, so the buffer's files are dropped", source.name)
        spool = None
        if config.state is not None and config.log_disk_bytes:
            spool = LogSpool(
                config.state / f"log-{source.id}",
                config.log_disk_bytes,
                lambda: state.gtid,
                reset=reset,
                wait_seconds=config.times.archive_wait,
            )
        followed = replace(source, settings=replace(source.settings, log=spool))
        buffer = EventBuffer(
            config.memory_bytes,
            policy=config.policy,
            folder=events,
            disk_bytes=config.disk_bytes,
            until_scn=state.scn,
            keeps_files=same_rules and not reset,
            limits=config.limits.buffer,
        )
        scn = Scn(config.scn, self.generations, state.scn)
        position = Position(state, config.times.mark)
        feeder = Feeder(followed, self.names, self.registry, buffer, scn, position=position, file=file, config=config)
        log_feeder = None if spool is None else LogFeeder(source.name, source.settings, spool, source.patterns)
        outbound = EventStats(f"{source.name}.outbound", buffer=buffer.info)
        return Partition(source, buffer, feeder, outbound, log_feeder)

    def _events_folder(self, source: PhysicalSource) -> Path | None:
        folder = self.config.state
        return folder / f"partition-{source.id}" if folder is not None and self.config.disk_bytes else None

    def __enter__(self) -> Self:
        """:raises HeadgateError: a server cannot be queried, or a table cannot be followed."""
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._held)
            for partition in self.partitions.values():
                partition.feeder.prepare()
                self._warn_missing(partition.source)
            undo.pop_all()
        for partition in self.partitions.values():
            for reader in partition.readers:
                reader.start()
        return self

    def _warn_missing(self, physical: PhysicalSource) -> None:
        """Log missing tables: they may come later, but perhaps the name is wrong."""
        for one in physical.sources:
            if not one.is_pattern and not self.registry.versions(one.name):
                log.warning(
                    "%s: there is no table %s (source %s) yet: check the spelling (case counts) and the grants",
                    physical.name,
                    one.table,
                    one.name,
                )

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

    def status(self) -> tuple[str, str]:
        """Return Databus's word for the state, and the problems."""
        problems = [problem for one in self.partitions.values() for problem in one.problems]
        if any(one.failed for one in self.partitions.values()):
            return "SUSPENDED_ON_ERROR", "; ".join(problems)
        return ("ERROR_RETRYING", "; ".join(problems)) if problems else ("RUNNING", "")
