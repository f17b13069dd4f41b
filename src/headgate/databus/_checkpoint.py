"""A consumer's checkpoint in Databus's form (``Checkpoint.java``): its place in the stream, or in a bootstrap.

In the stream it is ``windowScn`` and ``windowOffset``. While it is bootstrapped::

    {"consumption_mode": "BOOTSTRAP_SNAPSHOT", "bootstrap_since_scn": 0, "bootstrap_start_scn": 1234,
     "bootstrap_snapshot_source_index": 0, "snapshot_source": "com.example.Person", "snapshot_offset": 16777316,
     "bootstrap_catchup_source_index": 0, "catchup_source": "com.example.Person",
     "bootstrap_target_scn": -1, "windowScn": 1234, "windowOffset": -1, "prevScn": -1}

``BOOTSTRAP_SNAPSHOT``: rows of ``snapshot_source`` are read, ``snapshot_offset`` −1: all of them. ``windowScn`` is how
far the consumer's stream is meanwhile; −1 and 0: not at all. ``BOOTSTRAP_CATCHUP``: changes after the start up to the
target, ``windowScn`` and ``windowOffset`` (events that were had of the window) say how far. −1 is "not set".

A checkpoint also goes through the stream, as the value of a control event (source id −3).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from headgate.databus._binary import seal

__all__ = [
    "CATCHUP",
    "CHECKPOINT_SCHEMA",
    "CHECKPOINT_SOURCE",
    "FIRST",
    "SNAPSHOT",
    "BootstrapPoint",
    "Place",
    "bootstrap_of",
    "checkpoint_event",
    "checkpoint_json",
    "place_of",
]

SNAPSHOT: Final = "BOOTSTRAP_SNAPSHOT"
CATCHUP: Final = "BOOTSTRAP_CATCHUP"
CHECKPOINT_SOURCE: Final = -3
_LARGEST: Final = 2**63 - 1
_NUMBERS: Final = {
    "since": "bootstrap_since_scn",
    "start": "bootstrap_start_scn",
    "target": "bootstrap_target_scn",
    "snapshot_index": "bootstrap_snapshot_source_index",
    "catchup_index": "bootstrap_catchup_source_index",
    "offset": "snapshot_offset",
    "window": "windowScn",
    "window_offset": "windowOffset",
}
_TEXTS: Final = {"snapshot_source": "snapshot_source", "catchup_source": "catchup_source"}


@dataclass(frozen=True)
class Place:
    """A reader's position, as a Databus checkpoint has it.

    ``scn`` −1: the oldest there is; −2: from the first window that there ever was, or not at all. ``offset`` −1: the
    window is done; otherwise so many of its events are.
    """

    scn: int
    offset: int = -1

    def after_event(self, scn: int) -> Place:
        """The place behind the next event, which is of window ``scn``."""
        return Place(scn, self.offset + 1 if self.scn == scn and self.offset > 0 else 1)


FIRST: Final = Place(-2)
_ONLINE: Final = ("INIT", "ONLINE_CONSUMPTION")
_SCN_SCHEMA: Final = {"type": "integer", "minimum": -1, "maximum": _LARGEST, "default": -1}
CHECKPOINT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "windowScn": _SCN_SCHEMA,
        "windowOffset": _SCN_SCHEMA,
        "consumption_mode": {"enum": list(_ONLINE)},
        "bootstrap_start_scn": {},
    },
}
"""JSON Schema of what :func:`place_of` takes."""


def checkpoint_json(place: Place) -> dict[str, Any]:
    """A place as a checkpoint of online consumption."""
    found = {
        "windowOffset": place.offset,
        "snapshot_offset": -1,
        "prevScn": -1,
        "windowScn": place.scn,
        "consumption_mode": _ONLINE[-1],
    }
    return found | {"windowScn": 0, "bootstrap_start_scn": 0} if place == FIRST else found


def place_of(checkpoint: Any) -> Place:
    """The place that a checkpoint (a JSON object) means; ``windowScn`` −1, or none, is the oldest there is. After a
    bootstrap from a relay that had no window yet it is 0, with ``bootstrap_start_scn`` 0.

    :raises ValueError: it is none, or one of the bootstrap, which comes from elsewhere.
    """
    if not isinstance(checkpoint, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one kind of error for all that is wrong
    if checkpoint.get("consumption_mode", _ONLINE[-1]) not in _ONLINE:
        raise ValueError("a checkpoint of the bootstrap")
    scn, offset = checkpoint.get("windowScn", -1), checkpoint.get("windowOffset", -1)
    if not all(isinstance(one, int) and not isinstance(one, bool) and -1 <= one <= _LARGEST for one in (scn, offset)):
        raise ValueError("not numbers")
    if scn == 0 and checkpoint.get("bootstrap_start_scn") == 0:
        return FIRST
    return Place(scn, offset)


@dataclass(frozen=True)
class BootstrapPoint:
    """Where a bootstrap is."""

    mode: str = SNAPSHOT
    since: int = 0
    """The consumer's last SCN before it; 0: it is new."""
    start: int = -1
    target: int = -1
    snapshot_index: int = 0
    snapshot_source: str = ""
    """A logical source's name, as the next one."""
    offset: int = 0
    """Of the source's rows."""
    catchup_index: int = 0
    catchup_source: str = ""
    window: int = -1
    window_offset: int = -1
    other: Mapping[str, Any] = field(default_factory=dict)
    """What else the checkpoint holds, to be given back as it came."""

    @property
    def place(self) -> Place:
        """How far the consumer's stream is."""
        return Place(self.window, self.window_offset) if self.window else FIRST

    def at(self, place: Place) -> BootstrapPoint:
        """The same with the stream further on."""
        return replace(self, window=max(place.scn, 0), window_offset=place.offset)

    def has(self, scn: int) -> bool:
        """Whether the consumer has had the stream up to a window, and all of that."""
        return self.window > scn or (self.window == scn and self.window_offset < 0)

    def to_json(self) -> dict[str, Any]:
        """Databus's form."""
        own = {name: getattr(self, ours) for ours, name in (_NUMBERS | _TEXTS).items()}
        return {"prevScn": -1, **self.other, **own, "consumption_mode": self.mode}

    @classmethod
    def from_json(cls, value: Any) -> BootstrapPoint:
        """:raises ValueError: it is no checkpoint of a bootstrap."""
        if not isinstance(value, dict) or value.get("consumption_mode") not in (SNAPSHOT, CATCHUP):
            raise ValueError("not a checkpoint of a bootstrap")
        given: dict[str, Any] = {}
        for ours, name in _NUMBERS.items():
            found = value.get(name, 0 if ours.endswith("index") else -1)
            if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found <= _LARGEST:
                raise ValueError(f"{name} is not a number")
            given[ours] = found
        for ours, name in _TEXTS.items():
            given[ours] = str(value.get(name) or "")
        known = {*_NUMBERS.values(), *_TEXTS.values(), "consumption_mode"}
        other = {name: one for name, one in value.items() if name not in known}
        return cls(mode=value["consumption_mode"], other=other, **given)


def bootstrap_of(checkpoint: Mapping[str, Any]) -> BootstrapPoint | None:
    """The bootstrap that a checkpoint is of; None: it is one of the stream.

    :raises ValueError: it is of a bootstrap, but wrong.
    """
    if checkpoint.get("consumption_mode") not in (SNAPSHOT, CATCHUP):
        return None
    return BootstrapPoint.from_json(checkpoint)


def checkpoint_event(point: BootstrapPoint, version: int, partition: int) -> Any:
    """The control event that brings a checkpoint (uint8[]), of event version 1 or 2."""
    value = json.dumps(point.to_json(), separators=(",", ":")).encode()
    if version == 1:
        head = struct.pack(">B4xIHqhhqh20xq", 0, 61 + len(value), 0, 0, partition, 0, 0, CHECKPOINT_SOURCE, 0)
    else:
        head = struct.pack(
            ">BIII4xIHqihqqIH16x", 2, 0xCAFEDEED, 53, 0, 75 + len(value), 0x84, 0, CHECKPOINT_SOURCE, partition, 0, 0,
            len(value), 0,
        )  # fmt: skip
    out = np.frombuffer(head + value, np.uint8).copy()
    seal(out, 0, len(out))
    return out
