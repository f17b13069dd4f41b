"""Where a consumer is, in the form and the files of Databus (``Checkpoint.java``,
``FileSystemCheckpointPersistenceProvider.java``), so that a Databus client may go on where ours was, and the other way.
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

from headgate.databus import BootstrapPoint, Place, bootstrap_of, checkpoint_json, place_of
from headgate.errors import ConfigError
from headgate.files import read_json

__all__ = ["CheckpointFile", "CheckpointStore", "Keeper"]

_MANY_SOURCES: Final = 5
_COMMON: Final = "com.linkedin.events."
_LONGEST_NAME: Final = 240
"""These three are Databus's."""


class CheckpointStore(Protocol):
    """Keeps the checkpoint of one consumer, a JSON object in Databus's form. Used by one thread at a time."""

    def load(self) -> Mapping[str, Any] | None:
        """The newest checkpoint; None: there is none.

        :raises HeadgateError: it cannot be read.
        """

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        """Make it the newest: whole, or not at all.

        :raises HeadgateError: it cannot be kept.
        """


class CheckpointFile:
    """The checkpoint of one stream: ``<name>.current``, and ``<name>.oldcurrent``, the one before it.

    A new one is written beside them and put in place by renaming, so at every moment one of the two is whole.

    :param name: of the stream; it becomes part of file names.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._current = folder / f"{name}.current"
        self._old = folder / f"{name}.oldcurrent"
        self._new = folder / f"{name}.newcurrent"

    @classmethod
    def of_sources(cls, folder: Path, sources: Sequence[str]) -> CheckpointFile:
        """Under the name that Databus's client gives a stream of these sources (``calcStreamId``):
        ``cp_<name>-<name>``, shortened if they are many.
        """
        short = len(sources) >= _MANY_SOURCES
        names = [re.sub(r"\W", "_", one.removeprefix(_COMMON) if short else one, flags=re.ASCII) for one in sources]
        return cls(folder, f"cp_{'-'.join(names)}"[:_LONGEST_NAME])

    def load(self) -> Mapping[str, Any] | None:
        """The newest checkpoint; None: there is none.

        :raises ConfigError: what is there is none.
        """
        for file in (self._current, self._old):
            value = read_json(file)
            if value is not None:
                return value
        return None

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        """Make it the newest.

        :raises ConfigError: it cannot be written.
        """
        try:
            self._new.parent.mkdir(parents=True, exist_ok=True)
            with self._new.open("w", encoding="utf-8") as out:
                out.write(json.dumps(checkpoint, separators=(",", ":")) + "\n")
                out.flush()
                os.fsync(out.fileno())
            if self._current.exists():
                self._current.replace(self._old)
            self._new.replace(self._current)
        except OSError as error:
            raise ConfigError(f"{self._current} cannot be written: {error.strerror or error}") from None


class Keeper:
    """Keeps the checkpoints of one client, but not each one at once.

    :param store: where; None: nowhere.
    :param seconds: how often at most.
    """

    def __init__(self, store: CheckpointStore | None, seconds: float) -> None:
        self._store, self._seconds = store, seconds
        self.at: Place | BootstrapPoint = Place(-1)
        """What is to be kept."""
        self._stored: Place | BootstrapPoint = self.at
        self._stored_at = -math.inf  # the monotonic clock may begin when the machine does

    def load(self, *, bootstrap: bool) -> Place | BootstrapPoint:
        """Where to go on.

        :param bootstrap: whether that may be in a bootstrap.
        :raises ConfigError: what is kept is no checkpoint.
        """
        found = None if self._store is None else self._store.load()
        if found is not None:
            try:
                self.at = (bootstrap_of(found) if bootstrap else None) or place_of(found)
            except ValueError as error:
                raise ConfigError(f"what is kept is no checkpoint that can be followed: {error}") from None
        else:
            self.at = Place(-1)
        self._stored = self.at
        return self.at

    def save(self, *, at_once: bool = False) -> None:
        """Keep it, if that was not done and it is time."""
        if self._store is None or self._stored == self.at:
            return
        now = time.monotonic()
        if at_once or now - self._stored_at >= self._seconds:
            at = self.at
            self._store.store(checkpoint_json(at) if isinstance(at, Place) else at.to_json())
            self._stored, self._stored_at = at, now
