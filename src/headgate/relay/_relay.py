"""A relay put together: for each physical source a buffer and the feeder that fills it; names and schemas for all.

The state folder: ``partition-<id>.json`` (position and SCN), ``partition-<id>/*.events`` (the buffer's segments),
``sources.json`` (ids of patterns' tables), ``generations.json`` (unless relays share one elsewhere), ``log-<id>/`` (the
log itself, if it is kept), ``lock``. It is one relay's alone, from when that is made until it ends: two would write
over each other's positions and files, so the second one is refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headgate.archive import LogFeeder, LogSpool
from headgate.errors import ConfigError
from headgate.files import owned
from headgate.gtid import GtidSet
from headgate.relay._buffer import EventBuffer
from headgate.relay._counters import EventStats
from headgate.relay._events._schemas import Registry
from headgate.relay._feeder import Feeder, Form
from headgate.relay._given import Given
from headgate.relay._position import State, load_state
from headgate.relay._scn import GenerationMap, make_scn
from headgate.relay._selections import Selections
from headgate.relay._sources import PhysicalSource, RelayConfig, SourceNames
from headgate.relay._usage import Traffic, Usage

__all__ = ["Partition", "Relay", "StartOf"]

log = logging.getLogger("headgate")

_BEFORES_SINCE: Final = 2

StartOf = Callable[[PhysicalSource], GtidSet]
"""What counts as already had of a source that has no state yet."""


@dataclass
class Partition:
    """One physical source at work."""

    source: PhysicalSource
    buffer: EventBuffer
    feeder: Feeder
    outbound: EventStats
    spool: LogSpool | None = None
    """The log itself, if it is kept; then the feeder reads it, too."""
    log_feeder: LogFeeder | None = None

    @property
    def name(self) -> str:
        """``name:id`` of the physical source, as statistics and metrics have it."""
        return f"{self.source.name}:{self.source.id}"

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        log = self.log_feeder.problem if self.log_feeder is not None else None
        return [f"{self.source.name}: {one}" for one in (self.feeder.problem, log) if one]

    @property
    def failed(self) -> bool:
        """Whether something stands still for good."""
        return self.feeder.failed or (self.log_feeder is not None and self.log_feeder.failed)


class Relay:
    """Reads its sources within a ``with`` block.

    :param start: asked, when the object is made, for each source without a state.
    :param anew: ask it for all sources. What lies between an old state and the new beginning is lost, so the buffers
        are empty, SCNs go on behind the old ones, and consumers with older checkpoints are told that they are too far
        behind.
    :raises HeadgateError: a folder cannot be used, another relay has the state folder, or whatever ``start`` raises.
    """

    def __init__(self, config: RelayConfig, start: StartOf, *, anew: bool = False) -> None:
        if config.before_images and config.event_version < _BEFORES_SINCE:
            raise ConfigError("before_images takes events of version 2: event_version = 2 (--event-version 2)")
        self.config = config
        folder = config.state
        with contextlib.ExitStack() as held:
            if folder is not None:
                held.enter_context(owned(folder))
            self._put_together(config, start, anew)
            self._held = held.pop_all()

    def _put_together(self, config: RelayConfig, start: StartOf, anew: bool) -> None:
        folder = config.state
        self.names = SourceNames(config.physical, None if folder is None else folder / "sources.json")
        self.selections = Selections(self.names)
        self.registry = Registry(config.schemas, config.types, befores=config.before_images)
        shared = config.generations or (None if folder is None else folder / "generations.json")
        self.usage = Usage()
        self.traffic = Traffic()
        self.given = Given(config.event_version)
        self.generations = GenerationMap(shared)
        self.partitions: Mapping[int, Partition] = {
            source.id: self._partition(source, start, anew) for source in config.physical
        }

    def _partition(self, source: PhysicalSource, start: StartOf, anew: bool) -> Partition:
        config = self.config
        file = None if config.state is None else config.state / f"partition-{source.id}.json"
        state = load_state(file, config.scn)
        if state is None:
            state = State(start(source), -1)
        elif anew:
            state = State(start(source), state.scn + 1)
        spool = None
        if config.state is not None and config.log_disk_bytes:
            spool = LogSpool(config.state / f"log-{source.id}", config.log_disk_bytes, lambda: state.gtid, anew=anew)
        followed = replace(source, settings=replace(source.settings, log=spool))
        buffer = EventBuffer(
            config.memory_bytes,
            policy=config.policy,
            folder=self._events_folder(source),
            disk_bytes=config.disk_bytes,
            until_scn=state.scn,
        )
        scn = make_scn(config.scn, last=state.scn, generations=self.generations)
        form = Form(config.event_version, config.scn_column, config.before_images, config.policies)
        feeder = Feeder(followed, self.names, self.registry, buffer, scn, state=state, file=file, form=form)
        log_feeder = None if spool is None else LogFeeder(source.name, source.settings, spool, source.patterns)
        outbound = EventStats(f"{source.name}.outbound", buffer=buffer.info)
        return Partition(source, buffer, feeder, outbound, spool, log_feeder)

    def _events_folder(self, source: PhysicalSource) -> Path | None:
        folder = self.config.state
        return folder / f"partition-{source.id}" if folder is not None and self.config.disk_bytes else None

    def __enter__(self) -> Self:
        """:raises HeadgateError: a server cannot be asked, or a table cannot be followed."""
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._held)
            for partition in self.partitions.values():
                partition.feeder.prepare()
                self._tell_missing(partition.source)
            undo.pop_all()
        for partition in self.partitions.values():
            if partition.log_feeder is not None:
                partition.log_feeder.start()
            partition.feeder.start()
        return self

    def _tell_missing(self, physical: PhysicalSource) -> None:
        """A table that is not there may come; but perhaps its name is wrong."""
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
        """End reading, keep the states, and leave the folder to others; also where it never began to read."""
        for partition in self.partitions.values():
            if partition.log_feeder is not None:
                partition.log_feeder.stop()  # the feeder, which reads its log, hears of it, too
            partition.feeder.stop()
        self._held.close()

    def status(self) -> tuple[str, str]:
        """Databus's word for how it is, and why."""
        problems = [problem for one in self.partitions.values() for problem in one.problems]
        if any(one.failed for one in self.partitions.values()):
            return "SUSPENDED_ON_ERROR", "; ".join(problems)
        return ("ERROR_RETRYING", "; ".join(problems)) if problems else ("RUNNING", "")
