"""A consumer's checkpoint in Databus's form (``Checkpoint.java``): its position in the stream, or in a bootstrap.

In the stream it is ``windowScn`` and ``windowOffset``. In a bootstrap::

    {"consumption_mode": "BOOTSTRAP_SNAPSHOT", "bootstrap_since_scn": 0, "bootstrap_start_scn": 1234,
     "bootstrap_snapshot_source_index": 0, "snapshot_source": "com.example.Person", "snapshot_offset": 16777316,
     "bootstrap_catchup_source_index": 0, "catchup_source": "com.example.Person",
     "bootstrap_target_scn": -1, "windowScn": 1234, "windowOffset": -1, "prevScn": -1}

``BOOTSTRAP_SNAPSHOT``: the consumer reads rows of ``snapshot_source``; ``snapshot_offset`` −1: it has all of them.
``windowScn`` is its position in the stream meanwhile; −1 and 0: none. ``BOOTSTRAP_CATCHUP``: it reads changes after the
start up to the target; ``windowScn`` and ``windowOffset`` (events of the window that it has) are its position. −1 is
"not set".

A checkpoint also goes through the stream, as the value of a control event (source id −3).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from headgate.relay.databus._binary import seal

__all__ = [
    "CATCHUP",
    "CHECKPOINT_SOURCE",
    "FIRST",
    "SNAPSHOT",
    "BootstrapPoint",
    "StreamPosition",
    "bootstrap_of",
    "checkpoint_event",
    "checkpoint_json",
    "parse_position",
]

SNAPSHOT: Final = "BOOTSTRAP_SNAPSHOT"
CATCHUP: Final = "BOOTSTRAP_CATCHUP"
CHECKPOINT_SOURCE: Final = -3
_LARGEST: Final = 2**63 - 1
_MARK: Final = "headgate_window"
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
class StreamPosition:
    """A reader's position, as in a Databus checkpoint.

    ``scn`` −1: the oldest event; −2: the first window ever, or an error. ``offset`` −1: the window is done; otherwise
    the number of its events that are done.
    """

    scn: int
    offset: int = -1
    mark: str = field(default="", compare=False)
    """What a client notes about the window ``scn``, for itself; empty: nothing. Databus keeps fields that it does not
    know, also when it moves on."""

    def after_next_event(self, scn: int) -> StreamPosition:
        """Return the position after the next event, which is of window ``scn``."""
        return StreamPosition(scn, self.offset + 1 if self.scn == scn and self.offset > 0 else 1)


FIRST: Final = StreamPosition(-2)
_ONLINE: Final = ("INIT", "ONLINE_CONSUMPTION")


def checkpoint_json(position: StreamPosition) -> dict[str, Any]:
    """Return a position as a checkpoint of online consumption."""
    value = {
        "windowOffset": position.offset,
        "snapshot_offset": -1,
        "prevScn": -1,
        "windowScn": position.scn,
        "consumption_mode": _ONLINE[-1],
        **({_MARK: position.mark} if position.mark else {}),
    }
    return value | {"windowScn": 0, "bootstrap_start_scn": 0} if position == FIRST else value


def parse_position(checkpoint: Any) -> StreamPosition:
    """Return the position of a checkpoint (a JSON object); ``windowScn`` −1, or none, is the oldest event. After a
    bootstrap from a relay that had no window yet it is 0, with ``bootstrap_start_scn`` 0.

    :raises ValueError: it is not a checkpoint, or one of a bootstrap.
    """
    if not isinstance(checkpoint, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - one error type for all faults
    if checkpoint.get("consumption_mode", _ONLINE[-1]) not in _ONLINE:
        raise ValueError("it is a checkpoint of a bootstrap")
    scn, offset = checkpoint.get("windowScn", -1), checkpoint.get("windowOffset", -1)
    if not all(isinstance(one, int) and not isinstance(one, bool) and -1 <= one <= _LARGEST for one in (scn, offset)):
        raise ValueError("windowScn and windowOffset must be integers from -1 to 2**63 - 1")
    if scn == 0 and checkpoint.get("bootstrap_start_scn") == 0:
        return FIRST
    mark = checkpoint.get(_MARK)
    return StreamPosition(scn, offset, mark if isinstance(mark, str) else "")


@dataclass(frozen=True)
class BootstrapPoint:
    """Position in a bootstrap."""

    mode: str = SNAPSHOT
    since: int = 0
    """The consumer's last SCN before it; 0: a new consumer."""
    start: int = -1
    target: int = -1
    snapshot_index: int = 0
    snapshot_source: str = ""
    """Name of a logical source, like ``catchup_source``."""
    offset: int = 0
    """In the source's rows; -1: all are read."""
    catchup_index: int = 0
    catchup_source: str = ""
    window: int = -1
    window_offset: int = -1
    other: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the checkpoint, returned unchanged."""

    @property
    def position(self) -> StreamPosition:
        """Position of the consumer's stream."""
        return StreamPosition(self.window, self.window_offset) if self.window else FIRST

    def at(self, position: StreamPosition) -> BootstrapPoint:
        """Return a copy with the stream at ``position``."""
        return replace(self, window=max(position.scn, 0), window_offset=position.offset)

    def has(self, scn: int) -> bool:
        """Whether the consumer has the stream through a window."""
        return self.window > scn or (self.window == scn and self.window_offset < 0)

    def to_json(self) -> dict[str, Any]:
        """Return Databus's form."""
        known = {name: getattr(self, attribute) for attribute, name in (_NUMBERS | _TEXTS).items()}
        return {"prevScn": -1, **self.other, **known, "consumption_mode": self.mode}

    @classmethod
    def from_json(cls, value: Any) -> BootstrapPoint:
        """:raises ValueError: it is not a checkpoint of a bootstrap."""
        if not isinstance(value, dict) or value.get("consumption_mode") not in (SNAPSHOT, CATCHUP):
            raise ValueError("not a checkpoint of a bootstrap")
        fields: dict[str, Any] = {}
        for attribute, name in _NUMBERS.items():
            number = value.get(name, 0 if attribute.endswith("index") else -1)
            if not isinstance(number, int) or isinstance(number, bool) or not -1 <= number <= _LARGEST:
                raise ValueError(f"{name} is not a number")
            fields[attribute] = number
        for attribute, name in _TEXTS.items():
            fields[attribute] = str(value.get(name) or "")
        known = {*_NUMBERS.values(), *_TEXTS.values(), "consumption_mode"}
        other = {name: one for name, one in value.items() if name not in known}
        return cls(mode=value["consumption_mode"], other=other, **fields)


def bootstrap_of(checkpoint: Mapping[str, Any]) -> BootstrapPoint | None:
    """Return the bootstrap's position in a checkpoint; None: it is one of the stream.

    :raises ValueError: it is of a bootstrap, but invalid.
    """
    if checkpoint.get("consumption_mode") not in (SNAPSHOT, CATCHUP):
        return None
    return BootstrapPoint.from_json(checkpoint)


def checkpoint_event(point: BootstrapPoint, version: int, partition: int) -> Any:
    """Return the control event that holds a checkpoint (uint8[]), of event version 1 or 2."""
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
