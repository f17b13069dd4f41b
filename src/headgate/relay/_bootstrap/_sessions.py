"""What a relay remembers of bootstraps: for each start SCN which parts of which source were read, and as of when.

A consumer's checkpoint names a *session* by its ``bootstrap_start_scn``, and a place in it by ``snapshot_offset``: the
number of a *reading* and how many of its events were given. Readings are numbered from a random number of the session,
so that a place in another one that began at the same SCN (another relay's, or one of a relay without a folder that has
restarted) is not taken for one in this. A reading is one part of a source, read as of one GTID set.
Read again as of the same set it gives the same rows, so a place means the same for ever, for any number of consumers
and after a restart of the relay. Where a part cannot be read as of that set any more, another reading takes its place,
under a number of its own.

A session is a file of JSON lines: the start, then the readings as they are made, each on disk before its first row is
given. A last line that a kill cut off speaks of a reading that nobody has seen.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.gtid import GtidSet

__all__ = ["DONE", "Reading", "Session", "Sessions", "offset_of", "place_in"]

_EVENT_BITS: Final = 24
_BASE_BITS: Final = 38
"""One less than a reading's number has, so that no session comes to the end of the numbers."""
DONE: Final = (1 << _EVENT_BITS) - 1
"""In the place of a number of events: all of them."""


def offset_of(reading: int, events: int) -> int:
    """A ``snapshot_offset``: 63 bits, of which the last 24 count events."""
    return reading << _EVENT_BITS | events


def place_in(offset: int) -> tuple[int, int]:
    """``(reading, events)``; the inverse of :func:`offset_of`."""
    return offset >> _EVENT_BITS, offset & DONE


@dataclass(frozen=True)
class Reading:
    """A part of a source as of one point."""

    part: int
    """Counts the source's parts from 0."""
    detail: Mapping[str, Any]
    """What the part is: its supplier's business."""
    gtid: str
    """The rows are as of this set, which holds what the relay's buffer had up to ``scn``."""
    scn: int
    hint: Sequence[Any] | None = None
    """Server's UUID, log file and position where a reader that has ``gtid`` may begin."""


@dataclass
class Session:
    """A start, and what was read since."""

    scn: int
    gtid: str
    """What the relay had at ``scn``; of a fixed one that and perhaps more."""
    fixed: bool
    """All rows are as of ``gtid``; else each reading is as of a point of its own."""
    token: Mapping[str, Any]
    """What the supplier needs to find the same rows again."""
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    """By source name; a reading's number is ``base`` and its place in the list."""
    base: int = field(default_factory=lambda: secrets.randbits(_BASE_BITS))
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a part is read: consumers that want it, too, wait for it."""
    file: Path | None = None
    begun_at: float | None = None
    """When; None: before the relay began."""
    used_at: float = field(default_factory=time.monotonic)
    """When it was asked for last."""

    def newest(self, source: str, part: int) -> int | None:
        """The number of the newest reading of a part."""
        found = self.readings.get(source, [])
        return next((self.base + i for i in range(len(found) - 1, -1, -1) if found[i].part == part), None)

    def reading(self, source: str, number: int) -> Reading | None:
        """The reading of a number; None: this session has none."""
        found, i = self.readings.get(source, []), number - self.base
        return found[i] if 0 <= i < len(found) else None

    def add(self, source: str, reading: Reading) -> int:
        """Keep a reading; its number.

        :raises ConfigError: it cannot be kept.
        """
        if self.file is not None:
            _append(self.file, {"source": source, **vars(reading)})
        own = self.readings.setdefault(source, [])
        own.append(reading)
        return self.base + len(own) - 1

    @property
    def last_scn(self) -> int:
        """The greatest SCN as of which anything was read."""
        return max((one.scn for own in self.readings.values() for one in own), default=self.scn)


def _append(file: Path, value: Mapping[str, Any]) -> None:
    try:
        with file.open("ab") as out:
            out.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror or error}") from None


class Sessions:
    """Those of one physical source; for any number of threads.

    :param folder: where they are kept; None: in memory, so that a restart of the relay ends them.
    :raises ConfigError: the folder cannot be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[int, Session] = {}
        if folder is not None and folder.is_dir():
            for file in sorted(folder.glob("*.jsonl")):
                session = _load(file)
                if session is not None:
                    self._known[session.scn] = session

    def find(self, scn: int) -> Session | None:
        """The session that began at ``scn``."""
        with self._lock:
            found = self._known.get(scn)
            if found is not None:
                found.used_at = time.monotonic()
            return found

    def newest(self, seconds: float) -> Session | None:
        """The one that began last, not as of one point, if that was within so long."""
        since = time.monotonic() - seconds
        with self._lock:
            begun = [(one.begun_at, one.scn) for one in self._known.values() if one.begun_at and not one.fixed]
            recent = [one for one in begun if one[0] >= since]
            return self._known[max(recent)[1]] if recent else None

    def begin(self, scn: int, gtid: GtidSet, token: Mapping[str, Any], *, fixed: bool) -> Session:
        """The session of this start: the one there is, or a new one.

        :raises ConfigError: it cannot be kept.
        """
        with self._lock:
            found = self._known.get(scn)
            if found is not None and found.fixed == fixed:
                found.used_at = time.monotonic()
                return found
            session = Session(scn, str(gtid), fixed, token, begun_at=time.monotonic())
            if self._folder is not None:
                session.file = self._folder / f"{scn}.jsonl"
                try:
                    self._folder.mkdir(parents=True, exist_ok=True)
                    session.file.unlink(missing_ok=True)
                except OSError as error:
                    raise ConfigError(f"{self._folder} cannot be written: {error.strerror or error}") from None
                head = {"v": 1, "scn": scn, "gtid": session.gtid, "fixed": fixed, "token": token, "base": session.base}
                _append(session.file, head)
            self._known[scn] = session
            return session

    def forget(self, scns: Iterable[int]) -> None:
        """These will not be asked for again."""
        with self._lock:
            for scn in scns:
                session = self._known.pop(scn, None)
                if session is not None and session.file is not None:
                    session.file.unlink(missing_ok=True)

    def idle(self, seconds: float) -> list[int]:
        """The SCNs of the sessions that nobody has asked for in so long, or since the relay began, oldest first."""
        now = time.monotonic()
        with self._lock:
            return sorted(scn for scn, one in self._known.items() if now - one.used_at >= seconds)


def _load(file: Path) -> Session | None:
    """A session and the whole lines of it; None: not even the first one is whole."""
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    whole = lines[:-1]  # what is behind the last line's end was cut off
    if lines[-1]:
        file.write_bytes(b"".join(line + b"\n" for line in whole))
    if not whole:
        return None
    try:
        head, *rest = (json.loads(line) for line in whole)
        session = Session(
            int(head["scn"]),
            str(head["gtid"]),
            bool(head["fixed"]),
            head["token"],
            file=file,
            base=int(head.get("base", 0)),
        )
        for value in rest:
            source = value.pop("source")
            session.readings.setdefault(source, []).append(Reading(**value))
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{file} is not a bootstrap's session") from None
    return session
