"""A relay put together: for each physical source a buffer and the feeder that fills it; names and schemas for all.

The state folder: ``partition-<id>.json`` (position and SCN), ``partition-<id>/*.events`` (the buffer's segments),
``sources.json`` (ids of patterns' tables), ``generations.json`` (unless relays share one elsewhere).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from headgate._policies import Policies
from headgate.gtid import GtidSet
from headgate.relay._buffer import EventBuffer
from headgate.relay._feeder import Feeder, State, load_state
from headgate.relay._schemas import Registry
from headgate.relay._scn import GenerationMap, make_scn
from headgate.relay._sources import PhysicalSource, RelayConfig, SourceNames
from headgate.relay._stats import EventStats

__all__ = ["Partition", "Relay", "StartOf"]

StartOf = Callable[[PhysicalSource], GtidSet]
"""What counts as already had of a source that has no state yet."""


@dataclass
class Partition:
    """One physical source at work."""

    source: PhysicalSource
    buffer: EventBuffer
    feeder: Feeder
    outbound: EventStats


class Relay:
    """Reads its sources within a ``with`` block.

    :param start: asked, when the object is made, for each source without a state.
    :param anew: ask it for all sources. What lies between an old state and the new beginning is lost, so the buffers
        are empty, SCNs go on behind the old ones, and consumers with older checkpoints are told that they are too far
        behind.
    :raises HeadgateError: a folder cannot be used, or whatever ``start`` raises.
    """

    def __init__(self, config: RelayConfig, start: StartOf, *, anew: bool = False) -> None:
        self.config = config
        folder = config.state
        self.names = SourceNames(config.physical, None if folder is None else folder / "sources.json")
        self.registry = Registry(config.schemas, config.types)
        shared = config.generations or (None if folder is None else folder / "generations.json")
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
        buffer = EventBuffer(
            config.memory_bytes, policy=config.policy, folder=self._events_folder(source),
            disk_bytes=config.disk_bytes, until_scn=state.scn,
        )  # fmt: skip
        scn = make_scn(config.scn, last=state.scn, generations=self.generations)
        feeder = Feeder(
            source, self.names, self.registry, buffer, scn, state=state, file=file, version=config.event_version,
            scn_column=config.scn_column, policies=Policies(zero_dates=config.zero_dates),
        )  # fmt: skip
        return Partition(source, buffer, feeder, EventStats(f"{source.name}.outbound"))

    def _events_folder(self, source: PhysicalSource) -> Path | None:
        folder = self.config.state
        return folder / f"partition-{source.id}" if folder is not None and self.config.disk_bytes else None

    def __enter__(self) -> Relay:
        """:raises HeadgateError: a server cannot be asked, or a table cannot be followed."""
        for partition in self.partitions.values():
            partition.feeder.prepare()
        for partition in self.partitions.values():
            partition.feeder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for partition in self.partitions.values():
            partition.feeder.stop()

    def status(self) -> tuple[str, str]:
        """Databus's word for how it is, and why."""
        problems = [
            f"{one.source.name}: {one.feeder.problem}" for one in self.partitions.values() if one.feeder.problem
        ]
        if any(one.feeder.failed for one in self.partitions.values()):
            return "SUSPENDED_ON_ERROR", "; ".join(problems)
        return ("ERROR_RETRYING", "; ".join(problems)) if problems else ("RUNNING", "")
