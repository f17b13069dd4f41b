"""Messages between a member of a consumer group and the relay (``POST /groups/<name>``), as JSON.

This is headgate's own; in Databus ZooKeeper kept the groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from pydantic import ConfigDict, Field, TypeAdapter

__all__ = ["LARGEST_GROUP", "MEMBER_REPORT", "OWNED", "MemberReport", "Owned", "PartitionReport"]

LARGEST_GROUP: Final = 1024
"""Most partitions: each is a connection and a thread of its owner, so more would not make sense."""


@dataclass(frozen=True)
class PartitionReport:
    """An owner's report about a partition."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)

    generation: Annotated[int, Field(ge=0, lt=2**63)]
    checkpoint: Mapping[str, bool | int | str | None] | None = None
    """The owner's position; None: unchanged."""
    release: bool = False
    """The owner has stopped and releases the partition."""


@dataclass(frozen=True)
class MemberReport:
    """What a member sends."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    member: Annotated[str, Field(min_length=1, max_length=200)]
    """Its name, which no other member ever has."""
    partitions: Annotated[int, Field(ge=1, le=LARGEST_GROUP, strict=True)]
    """Of the group."""
    sources: Annotated[Sequence[str], Field(max_length=10_000)] = ()
    """Names of logical sources; none: all."""
    lease_ms: Annotated[int, Field(ge=100, le=600_000, strict=True)] = 10_000
    """How long the member owns its partitions without another report."""
    reports: Annotated[Mapping[int, PartitionReport], Field(max_length=LARGEST_GROUP)] = field(default_factory=dict)
    """By partition."""
    leave: bool = False
    """The member leaves the group."""
    bootstrap: bool = False
    """From now on the group delivers the table rows first."""


@dataclass(frozen=True)
class Owned:
    """The relay's answer about a partition that the member owns."""

    generation: int
    checkpoint: Mapping[str, bool | int | str | None] | None
    """Where to begin; None: at the oldest event."""
    release_requested: bool
    """The owner must stop, report its checkpoint, and release the partition."""
    bootstrap: bool
    """Rows come first if there is no checkpoint, or if no relay holds what comes after it."""


MEMBER_REPORT: Final = TypeAdapter(MemberReport)
OWNED: Final = TypeAdapter(Mapping[int, Owned])
"""The answer, by partition."""
