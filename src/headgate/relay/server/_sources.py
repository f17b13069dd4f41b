"""The configuration of a relay: its sources, with names and ids, and all settings, whatever file they come from.

A *physical source* is one server's binlog; its id is the physical partition of its events. A *logical source* is a
table, with an id that events carry and a name that its schemas have. A pattern's tables get ids from the pattern's id
on (``_names``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol, TypeAlias

from pydantic import AfterValidator, Field, InstanceOf
from pydantic.dataclasses import dataclass as checked_dataclass

from headgate.catalog import TablePatterns
from headgate.config import SECTION, Conflict, RelaySettings, checked, is_table
from headgate.mysql import ConnectionSettings
from headgate.relay.server._buffer import BufferLimits
from headgate.relay.server._groups import GroupLimits
from headgate.relay.server._tenants import Tenant, TenantSettings

__all__ = [
    "LARGEST_ID",
    "Id",
    "LogicalSource",
    "LogicalSources",
    "Partition",
    "PhysicalSource",
    "RelayConfig",
    "RelayLimits",
    "RelayTimes",
    "TablePattern",
    "repeated_names",
]

LARGEST_ID: Final = 2**15 - 1
"""Source and partition ids are signed 16-bit numbers in events; those below 1 are reserved by Databus."""
_WILDCARDS: Final = re.compile(r"[*?\[]")

Id: TypeAlias = Annotated[int, Field(ge=1, le=LARGEST_ID)]


def _check_table(name: str) -> str:
    if not is_table(name):
        raise ValueError(f"{name!r} is not db.table")
    return name


TablePattern: TypeAlias = Annotated[str, AfterValidator(_check_table)]
"""``db.table``, or a pattern of that form."""
Partition: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST_ID)]


@checked_dataclass(frozen=True, config=SECTION)
class LogicalSource:
    """A table, or the tables of a pattern, with a name and an id."""

    id: Id
    name: str
    table: TablePattern
    partition: Partition = 1
    """The logical partition of its events (``constant:N``)."""

    @property
    def is_pattern(self) -> bool:
        """Whether ``table`` is a pattern."""
        return _WILDCARDS.search(self.table) is not None


LogicalSources: TypeAlias = Annotated[tuple[LogicalSource, ...], Field(min_length=1)]


@checked_dataclass(frozen=True, config=SECTION)
class PhysicalSource:
    """One server's binlog."""

    id: Id
    name: str
    settings: InstanceOf[ConnectionSettings]
    sources: LogicalSources
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Its configuration in Databus's form, without the password."""

    @property
    def patterns(self) -> TablePatterns:
        """The followed tables."""
        return TablePatterns([one.table for one in self.sources])


@dataclass(frozen=True)
class RelayTimes:
    """Intervals of a relay, in seconds."""

    bootstrap_together: float = 10.0
    """Consumers that start a bootstrap within this time get the same start SCN and the same parts."""
    bootstrap_idle: float = 3600.0
    """A bootstrap whose start has left the buffer is deleted after this time without a request."""
    bootstrap_position: float = 0.25
    """How long a bootstrap waits for the feeder's position; then its consumer has to retry."""
    archive_wait: float = 20.0
    """How long a request for the binlog archive waits for content that is not there yet."""


@dataclass(frozen=True)
class RelayLimits:
    """Sizes of a relay's buffers and answers, in bytes, and numbers of clients."""

    buffer: BufferLimits = field(default_factory=BufferLimits)
    answer: int = 16 << 20
    """A larger answer is split into several, whatever is requested, except a single event."""
    clients: int = 1000
    """Most clients with counters, the most recent ones: there may be any number of addresses."""
    groups: GroupLimits = field(default_factory=GroupLimits)
    """Of each tenant."""


class RelayConfig(RelaySettings):
    """All settings of a relay.

    :raises ConfigError: no source, or a repeated id or name.
    """

    physical: tuple[InstanceOf[PhysicalSource], ...]
    tenants: tuple[InstanceOf[Tenant], ...] = ()
    """Clients with a token; none: every client that reaches the port has access."""
    times: InstanceOf[RelayTimes] = RelayTimes()
    limits: InstanceOf[RelayLimits] = RelayLimits()

    def changed(self, **settings: Any) -> RelayConfig:
        """Return the configuration with other values of these settings, checked like this one.

        :raises ConfigError: a value, or their combination, is invalid.
        """
        return checked(RelayConfig, {**dict(self), **settings})

    def _conflicts(self) -> Iterator[Conflict]:
        yield from super()._conflicts()
        if not self.physical:
            yield "physical", "no physical source is configured"
        yield from repeated_names(self.physical, self.tenants)


class _Named(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def sources(self) -> LogicalSources: ...


def repeated_names(physical: Sequence[_Named], tenants: Iterable[TenantSettings]) -> Iterator[Conflict]:
    """Yield the ids and names that are used twice."""
    logical = [one for each in physical for one in each.sources]
    unique: tuple[tuple[str, str, list[Any]], ...] = (
        ("physical", "physical source id", [one.id for one in physical]),
        ("physical", "source id", [one.id for one in logical]),
        ("physical", "source name", [one.name for one in logical]),
        ("tenants", "tenant", [one.name for one in tenants]),
    )
    for key, what, values in unique:
        for value in dict.fromkeys(values):
            if values.count(value) > 1:
                yield key, f"{what} {value} is used twice"
