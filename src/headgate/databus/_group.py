"""What a member of a group of consumers and the relay tell each other (``POST /groups/<name>``), of each partition.

This is headgate's own; Databus's groups were kept by ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["LARGEST_GROUP", "Done", "Owned"]

LARGEST_GROUP: Final = 1024
"""Partitions: each is a connection and a thread of its owner, so many more would not make sense."""


@dataclass(frozen=True)
class Done:
    """What an owner says of a partition."""

    generation: int
    checkpoint: Mapping[str, Any] | None = None
    """How far it is; None: no news."""
    release: bool = False
    """It has stopped and gives it up."""

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        checkpoint = {} if self.checkpoint is None else {"checkpoint": dict(self.checkpoint)}
        return {"generation": self.generation, "release": self.release, **checkpoint}


@dataclass(frozen=True)
class Owned:
    """The relay's answer about a partition that the member owns."""

    generation: int
    checkpoint: Mapping[str, Any] | None
    """Where to begin; None: with the oldest there is."""
    back: bool
    """It is to stop, report how far it came, and release it."""
    bootstrap: bool = False
    """Rows come first where there is no checkpoint, or nothing holds what comes after it."""

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Owned:
        """As it is received; a relay of an older version says nothing of bootstraps, a newer one may say more."""
        return cls(value["generation"], value["checkpoint"], value["back"], value.get("bootstrap", False))
