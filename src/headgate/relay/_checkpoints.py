"""Where a consumer is, in the form and the files of Databus (``Checkpoint.java``,
``FileSystemCheckpointPersistenceProvider.java``), so that a Databus client may go on where ours was, and the other way.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from headgate.errors import ConfigError
from headgate.relay._buffer import Place
from headgate.relay._files import read_json
from headgate.relay._requests import place_of

__all__ = ["CheckpointFile", "checkpoint_json"]


def checkpoint_json(place: Place) -> dict[str, Any]:
    """A place as a checkpoint of online consumption."""
    return {
        "windowOffset": place.offset, "snapshot_offset": -1, "prevScn": -1, "windowScn": place.scn,
        "consumption_mode": "ONLINE_CONSUMPTION",
    }  # fmt: skip


class CheckpointFile:
    """The checkpoint of one stream: ``<name>.current``, and ``<name>.oldcurrent``, the one before it.

    A new one is written beside them and put in place by renaming, so at every moment one of the two is whole.

    :param name: of the stream; it becomes part of file names.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._current = folder / f"{name}.current"
        self._old = folder / f"{name}.oldcurrent"
        self._new = folder / f"{name}.newcurrent"

    def load(self) -> Place | None:
        """The newest checkpoint; None: there is none.

        :raises ConfigError: what is there is not one.
        """
        for file in (self._current, self._old):
            value = read_json(file)
            if value is not None:
                try:
                    return place_of(value)
                except ValueError as error:
                    raise ConfigError(f"{file} holds no checkpoint that can be followed: {error}") from None
        return None

    def store(self, place: Place) -> None:
        """Make it the newest.

        :raises ConfigError: it cannot be written.
        """
        try:
            self._new.parent.mkdir(parents=True, exist_ok=True)
            with self._new.open("w", encoding="utf-8") as out:
                json.dump(checkpoint_json(place), out, separators=(",", ":"))
                out.flush()
                os.fsync(out.fileno())
            if self._current.exists():
                self._current.replace(self._old)
            self._new.replace(self._current)
        except OSError as error:
            raise ConfigError(f"{self._current} cannot be written: {error.strerror or error}") from None
