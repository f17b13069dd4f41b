"""Messages between a member of a consumer group and the relay (``POST /groups/<name>``), for each partition.

This is headgate's own; in Databus ZooKeeper kept the groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["LARGEST_GROUP", "Owned", "PartitionReport"]

LARGEST_GROUP: Final = 1024
"""Most partitions: each is a connection and a thread of its owner, so more would not make sense."""


@dataclass(frozen=True)
class PartitionReport:
    """An owner's report about a partition."""

    generation: int
    checkpoint: Mapping[str, Any] | None = None
    """The owner's position; None: unchanged."""
    release: bool = False
    """The owner has stopped and releases the partition."""

    def to_json(self) -> dict[str, Any]:
        """Return the form that is sent."""
        checkpoint = {} if self.checkpoint is None else {"checkpoint": dict(self.checkpoint)}
        return {"generation": self.generation, "release": self.release, **checkpoint}


@dataclass(frozen=True)
class Owned:
    """The relay's answer about a partition that the member owns."""

    generation: int
    checkpoint: Mapping[str, Any] | None
    """Where to begin; None: at the oldest event."""
    release_requested: bool
    """The owner must stop, report its checkpoint, and release the partition."""
    bootstrap: bool = False
    """Rows come first if there is no checkpoint, or if no relay holds what comes after it."""

    def to_json(self) -> dict[str, Any]:
        """Return the form that is sent."""
        return {
            "generation": self.generation,
            "checkpoint": self.checkpoint,
            "back": self.release_requested,
            "bootstrap": self.bootstrap,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Owned:
        """Parse the received form; an older relay omits ``bootstrap``, a newer one may add fields."""
        return cls(value["generation"], value["checkpoint"], value["back"], value.get("bootstrap", False))
