"""Stored sessions of bootstraps: for each start SCN which parts of which source were read, and as of which GTID set.

A consumer's checkpoint names a *session* by its ``bootstrap_start_scn``, and an offset in it by ``snapshot_offset``:
the number of a *reading* and how many of its events were sent. A reading is one part of a source, read as of one GTID
set. Read again as of the same set it has the same rows. So an offset keeps its meaning, for any number of consumers and
after a restart of the relay. If a part cannot be read as of that set any more, a reading with a new number replaces it.

Readings are numbered from a random base per session. So an offset in another session with the same start SCN (of
another relay, or of one without a folder before its restart) is not mistaken for one of this session.

A session is a file of JSON lines: the start, then the readings in order, each on disk before its first row is sent. A
last line that a kill cut off describes a reading that no consumer has seen.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.files import file_errors, open_private, write_all, write_bytes
from headgate.parsing import parse_json

__all__ = ["DONE", "PartRead", "Session", "Sessions", "offset_of", "split_offset"]

_EVENT_BITS: Final = 24
_BASE_BITS: Final = 38
"""One bit less than a reading's number has, so that no session runs out of numbers."""
DONE: Final = (1 << _EVENT_BITS) - 1
"""Instead of a number of events: all of them."""


def offset_of(number: int, events: int) -> int:
    """Return a ``snapshot_offset``: 63 bits, of which the last 24 count events."""
    return number << _EVENT_BITS | events


def split_offset(offset: int) -> tuple[int, int]:
    """Return ``(reading, events)``; the inverse of :func:`offset_of`."""
    return offset >> _EVENT_BITS, offset & DONE


@dataclass(frozen=True)
class PartRead:
    """A part of a source as of one point."""

    part: int
    """Index of the part in its source, from 0."""
    detail: Mapping[str, Any]
    """Description of the part, defined by its supplier."""
    gtid: str
    """The rows are as of this set, which contains what the relay's buffer had up to ``scn``."""
    scn: int
    hint: Sequence[Any] | None = None
    """Server UUID, log file and position for a reader that has ``gtid``."""


@dataclass
class Session:
    """The start of a bootstrap, and its readings."""

    scn: int
    part_reads: dict[str, list[PartRead]] = field(default_factory=dict)
    """Readings by source name; a reading's number is ``base`` plus its index."""
    base: int = field(default_factory=lambda: secrets.randbits(_BASE_BITS))
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a part is read: other consumers of the session wait for it."""
    file: Path | None = None
    begun_at: float | None = None
    """Monotonic time of the start; None: before the relay started."""
    used_at: float = field(default_factory=time.monotonic)
    """Monotonic time of the last use."""

    def newest(self, source: str, part: int) -> tuple[int, PartRead] | None:
        """Return the newest reading of a part and its number, if any."""
        reads = self.part_reads.get(source, [])
        return next(((self.base + i, reads[i]) for i in range(len(reads) - 1, -1, -1) if reads[i].part == part), None)

    def part_read(self, source: str, number: int) -> PartRead | None:
        """Return the reading with a number, if this session has it."""
        reads, i = self.part_reads.get(source, []), number - self.base
        return reads[i] if 0 <= i < len(reads) else None

    def add(self, source: str, part_read: PartRead) -> int:
        """Store a reading and return its number.

        :raises ConfigError: the file cannot be written; StorageError likewise.
        """
        if self.file is not None:
            if not self.file.exists():  # a cleaner of old files has removed it
                self.store(self.file)
            _append(self.file, {"source": source, **vars(part_read)})
        reads = self.part_reads.setdefault(source, [])
        reads.append(part_read)
        return self.base + len(reads) - 1

    def store(self, file: Path) -> None:
        """Write the session to a file, which later readings are appended to.

        :raises ConfigError: the file cannot be written; StorageError likewise.
        """
        head = {"v": 1, "scn": self.scn, "base": self.base}
        reads = [{"source": source, **vars(one)} for source, all_of in self.part_reads.items() for one in all_of]
        with file_errors(f"{file} cannot be written"):
            write_bytes(file, b"".join(map(_line, [head, *reads])))
        self.file = file

    @property
    def last_scn(self) -> int:
        """The greatest SCN of the readings; without readings the start."""
        return max((one.scn for reads in self.part_reads.values() for one in reads), default=self.scn)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _append(file: Path, value: Mapping[str, Any]) -> None:
    """Append a line, or nothing: another one would follow a part of it, or readings would have other numbers."""
    with file_errors(f"{file} cannot be written"), open_private(file, "ab", 0) as out:
        size = out.tell()
        try:
            write_all(out, memoryview(_line(value)))
            os.fsync(out.fileno())
        except OSError:
            out.truncate(size)
            raise


class Sessions:
    """The sessions of one physical source; safe for any number of threads.

    :param folder: stores them; None: in memory, so that a restart of the relay ends them.
    :raises ConfigError: a file cannot be read.
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
        """Return the session that began at ``scn``, if any."""
        with self._lock:
            session = self._known.get(scn)
            if session is not None:
                session.used_at = time.monotonic()
            return session

    def newest(self, seconds: float) -> Session | None:
        """Return the last session that began within ``seconds``, if any."""
        since = time.monotonic() - seconds
        with self._lock:
            begun = [(one.begun_at, one.scn) for one in self._known.values() if one.begun_at]
            recent = [one for one in begun if one[0] >= since]
            return self._known[max(recent)[1]] if recent else None

    def begin(self, scn: int) -> Session:
        """Return the session of this start; create it if it does not exist.

        :raises ConfigError: its file cannot be written.
        """
        with self._lock:
            known = self._known.get(scn)
            if known is not None:
                known.used_at = time.monotonic()
                return known
            session = Session(scn, begun_at=time.monotonic())
            if self._folder is not None:
                session.store(self._folder / f"{scn}.jsonl")
            self._known[scn] = session
            return session

    def forget(self, scn: int) -> None:
        """Delete a session, if it exists."""
        with self._lock:
            session = self._known.pop(scn, None)
            if session is not None and session.file is not None:
                session.file.unlink(missing_ok=True)

    def forget_idle(self, seconds: float, needed: Callable[[int], bool]) -> None:
        """Delete the sessions that were not used for ``seconds``, unless their SCN is ``needed``."""
        now = time.monotonic()
        with self._lock:
            idle = [scn for scn, one in self._known.items() if now - one.used_at >= seconds]
        for scn in idle:
            if not needed(scn):
                self.forget(scn)


def _load(file: Path) -> Session | None:
    """Load a session; cut off a partial last line. None: no line is whole."""
    with file_errors(f"{file} cannot be read"):
        lines = file.read_bytes().split(b"\n")
    whole = lines[:-1]  # a kill cut off what follows the last line end
    if lines[-1]:
        write_bytes(file, b"".join(line + b"\n" for line in whole))
    if not whole:
        return None
    try:
        head, *rest = (parse_json(line) for line in whole)
        session = Session(int(head["scn"]), file=file, base=int(head["base"]))
        for value in rest:
            source = value.pop("source")
            session.part_reads.setdefault(source, []).append(PartRead(**value))
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{file} is not a bootstrap's session") from None
    return session
