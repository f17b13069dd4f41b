"""Checkpoints in the form and the files of Databus (``Checkpoint.java``,
``FileSystemCheckpointPersistenceProvider.java``), so that a Databus client can continue from ours, and vice versa.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from headgate.errors import ConfigError
from headgate.files import file_errors, name_errors, open_private, read_json, sync
from headgate.relay.databus import BootstrapPoint, StreamPosition, bootstrap_of, checkpoint_json, parse_position

__all__ = ["CheckpointFile", "CheckpointStore", "Keeper"]

_MANY_SOURCES: Final = 5
_COMMON: Final = "com.linkedin.events."
_LONGEST_NAME: Final = 240
"""These three are Databus's."""


class CheckpointStore(Protocol):
    """Storage of one consumer's checkpoint, a JSON object in Databus's form. Used by one thread at a time."""

    def load(self) -> Mapping[str, Any] | None:
        """Return the newest checkpoint, or None if there is none.

        :raises HeadgateError: the checkpoint cannot be read.
        """

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        """Replace the checkpoint atomically.

        :raises HeadgateError: the checkpoint cannot be stored.
        """


class CheckpointFile:
    """Checkpoint of one stream: ``<name>.current``, and ``<name>.oldcurrent``, the one before it.

    A new one is written next to them and renamed, so at every moment one of the two is whole.

    :param name: the stream's name, a part of the file names.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._current = folder / f"{name}.current"
        self._old = folder / f"{name}.oldcurrent"
        self._new = folder / f"{name}.newcurrent"

    @classmethod
    def of_sources(cls, folder: Path, sources: Sequence[str]) -> CheckpointFile:
        """Return the file of a stream of these sources, named as by Databus's client (``calcStreamId``):
        ``cp_<name>-<name>``, with shorter names from five sources on.
        """
        short = len(sources) >= _MANY_SOURCES
        names = [re.sub(r"\W", "_", one.removeprefix(_COMMON) if short else one, flags=re.ASCII) for one in sources]
        return cls(folder, f"cp_{'-'.join(names)}"[:_LONGEST_NAME])

    def load(self) -> Mapping[str, Any] | None:
        """Return the newest checkpoint, or None if there is none.

        :raises ConfigError: the file holds no checkpoint.
        """
        for file in (self._current, self._old):
            value = read_json(file)
            if value is not None:
                return value
        return None

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        """Replace the checkpoint. When this returns, it survives a crash of the machine (``headgate.files.sync``).

        :raises ConfigError: the file cannot be written.
        """
        with file_errors(f"{self._current} cannot be written"):
            with name_errors(self._new), open_private(self._new, "wb") as out:
                out.write(json.dumps(checkpoint, separators=(",", ":")).encode() + b"\n")
                out.flush()
                os.fsync(out.fileno())
            if self._current.exists():
                self._current.replace(self._old)
            self._new.replace(self._current)
            sync(self._current.parent)


class Keeper:
    """The checkpoint of one client, stored at intervals.

    :param store: where; None: nowhere.
    :param seconds: shortest interval between two checkpoints.
    """

    def __init__(self, store: CheckpointStore | None, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self.checkpoint: StreamPosition | BootstrapPoint = StreamPosition(-1)
        """Newest checkpoint."""
        self._stored: StreamPosition | BootstrapPoint = self.checkpoint
        self._stored_at = -math.inf  # the monotonic clock may begin at 0 with the machine

    def load(self, *, bootstrap: bool) -> StreamPosition | BootstrapPoint:
        """Return where to continue.

        :param bootstrap: whether that may be within a bootstrap.
        :raises ConfigError: the stored checkpoint is invalid.
        """
        stored = None if self._store is None else self._store.load()
        if stored is not None:
            try:
                self.checkpoint = (bootstrap_of(stored) if bootstrap else None) or parse_position(stored)
            except ValueError as error:
                raise ConfigError(f"stored checkpoint is invalid: {error}") from None
        else:
            self.checkpoint = StreamPosition(-1)
        self._stored = self.checkpoint
        return self.checkpoint

    def save(self, *, at_once: bool = False) -> None:
        """Store the newest checkpoint, if that was not done, and if the interval has passed or it is the start of a
        bootstrap.
        """
        if self._store is None or self._stored == self.checkpoint:
            return
        now = time.monotonic()
        if at_once or self._is_start() or now - self._stored_at >= self._seconds:
            checkpoint = self.checkpoint
            self._store.store(
                checkpoint_json(checkpoint) if isinstance(checkpoint, StreamPosition) else checkpoint.to_json()
            )
            self._stored, self._stored_at = checkpoint, now

    def _is_start(self) -> bool:
        """Whether the newest checkpoint is of another bootstrap than the stored one."""
        new, stored = self.checkpoint, self._stored
        if isinstance(new, StreamPosition):
            return False
        return isinstance(stored, StreamPosition) or stored.start != new.start
