"""The configuration of a relay: its sources, with names and ids, and all settings, whatever file they come from.

A *physical source* is one server's binlog; its id is the physical partition of its events. A *logical source* is a
table, with an id that events carry and a name that its schemas have. A pattern's tables get ids from the pattern's id
on (``_names``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, InstanceOf, ValidationInfo, model_validator

from headgate.catalog import TablePatterns
from headgate.config import Model
from headgate.errors import ConfigError
from headgate.mysql import ConnectionSettings
from headgate.policies import DEFAULT, ColumnRules, MaskKey, Policies, ZeroDates
from headgate.relay.server._buffer import BufferLimits
from headgate.relay.server._groups import GroupLimits
from headgate.relay.server._scn import OF_COLUMNS, ScnKind
from headgate.relay.server._tenants import Tenant
from headgate.relay.server.events import Types

__all__ = [
    "LARGEST_ID",
    "LARGEST_PORT",
    "FilePath",
    "LogicalSource",
    "PhysicalSource",
    "RelayConfig",
    "RelayLimits",
    "RelayTimes",
    "Settings",
    "check_table",
]

LARGEST_ID: Final = 2**15 - 1
"""Source and partition ids are signed 16-bit numbers in events; those below 1 are reserved by Databus."""
LARGEST_PORT: Final = 65535
_WILDCARDS: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class LogicalSource:
    """A table, or the tables of a pattern, with a name and an id."""

    id: int
    name: str
    table: str
    """``db.table``, or a pattern of that form."""
    partition: int = 1
    """The logical partition of its events (``constant:N``)."""

    @property
    def is_pattern(self) -> bool:
        """Whether ``table`` is a pattern."""
        return _WILDCARDS.search(self.table) is not None


@dataclass(frozen=True)
class PhysicalSource:
    """One server's binlog."""

    id: int
    name: str
    settings: ConnectionSettings
    sources: tuple[LogicalSource, ...]
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Its configuration in Databus's form, without the password."""

    @property
    def patterns(self) -> TablePatterns:
        """The followed tables."""
        return TablePatterns([one.table for one in self.sources])


def check_table(name: str) -> str:
    """Return ``db.table``, or a pattern of that form.

    :raises ValueError: it has another form.
    """
    db, dot, table = name.partition(".")
    if not (db and dot and table):
        raise ValueError(f"{name!r} is not db.table")
    return name


def _in_folder(path: Path, info: ValidationInfo) -> Path:
    """Return a path of a TOML file, which begins at the file's folder; other paths as they are."""
    return path if info.context is None else Path(info.context, path.expanduser())


FilePath: TypeAlias = Annotated[Path, AfterValidator(_in_folder)]


class Settings(Model):
    """Settings under the same names in the TOML file and in :class:`RelayConfig`."""

    port: int = Field(default=11115, ge=0, le=LARGEST_PORT)
    """By default that of Databus's example relay."""
    host: str = "127.0.0.1"
    schemas: FilePath | None = None
    """The registry's folder; None: it is in the state folder, or in memory if there is none."""
    state: FilePath | None = None
    """Folder of positions, ids and the buffer's files; None: a restart begins without them."""
    scn: ScnKind = "gtid-generation"
    scn_column: str | None = None
    """``column`` or ``db.table.column``: the column that SCNs are made of, for the kinds that need one."""
    generations: FilePath | None = None
    """The map of generations, if relays share one; else it is in the state folder."""
    groups: FilePath | None = None
    """The folder of consumer groups, if relays share one; else it is in the state folder."""
    event_version: Literal[1, 2] = 1
    before_images: bool = False
    """Whether updates also hold the before image; event version 2 only."""
    types: Types = "exact"
    zero_dates: ZeroDates = DEFAULT.zero_dates
    tls_cert: FilePath | None = None
    """The server's certificate and its chain, PEM; None: no TLS."""
    tls_key: FilePath | None = None
    """Its key, unless it is in the same file."""


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


class RelayConfig(Settings):
    """All settings of a relay.

    :raises ConfigError: no source, a repeated id or name, an invalid setting, or no folder for files.
    """

    physical: tuple[InstanceOf[PhysicalSource], ...]
    memory_bytes: int = 256 << 20
    """Of each physical source's buffer."""
    disk_bytes: int = 0
    """Of each buffer's files; 0: memory only."""
    tenants: tuple[InstanceOf[Tenant], ...] = ()
    """Clients with a token; none: every client that reaches the port has access."""
    log_disk_bytes: int = 0
    """Of the binlog archive, for readers that need the whole binlog; 0: no archive."""
    columns: ColumnRules = ()
    """Rules for columns: what they hide is in no event, row, schema or file of the relay."""
    mask_key: MaskKey | None = None
    """The key of ``hash`` rules."""
    times: InstanceOf[RelayTimes] = RelayTimes()
    limits: InstanceOf[RelayLimits] = RelayLimits()

    def changed(self, **settings: Any) -> RelayConfig:
        """Return the configuration with other values of these settings, checked like this one."""
        return RelayConfig(**{**dict(self), **settings})

    @property
    def policies(self) -> Policies:
        """How values are read; odd keys are spelled, because consumers may not miss an event."""
        return Policies(
            zero_dates=self.zero_dates, ambiguous_keys="spell", columns=self.columns, mask_key=self.mask_key
        )

    @model_validator(mode="after")
    def _check(self) -> RelayConfig:
        if not self.physical:
            raise ConfigError("no physical source is configured")
        _check_unique("physical source id", [one.id for one in self.physical])
        logical = [one for physical in self.physical for one in physical.sources]
        _check_unique("source id", [one.id for one in logical])
        _check_unique("source name", [one.name for one in logical])
        if (self.scn in OF_COLUMNS) != (self.scn_column is not None):
            raise ConfigError(f"{' and '.join(OF_COLUMNS)} need scn_column, and no other kind of SCN uses it")
        _check_unique("tenant", [one.name for one in self.tenants])
        if self.tls_key is not None and self.tls_cert is None:
            raise ConfigError("tls_key is set, but tls_cert is not")
        if self.disk_bytes and self.state is None:
            raise ConfigError("a buffer on disk needs a state folder")
        if self.log_disk_bytes and self.state is None:
            raise ConfigError("a binlog archive needs a state folder")
        if self.log_disk_bytes and self.policies.hides_values:
            raise ConfigError(
                "the binlog archive has every value as it was logged, and [columns] hides some: remove [log]"
                " (--log-disk-bytes), or serve pipelines by another relay, without these rules"
            )
        return self


def _check_unique(what: str, values: Sequence[Any]) -> None:
    for one in values:
        if values.count(one) > 1:
            raise ConfigError(f"{what} {one} is used twice")
