"""Removal of files from one table's folder that no version needs that has to stay readable.

Data files and deletion vectors are removed as soon as no such version has them; log files an hour after the checkpoint
that replaces them, or after the retention if that is shorter: a reader may have begun at the checkpoint before, and can
expect its data files for no longer, either. Files that no commit names go after a day, because a batch in progress may
have written them. The log names all but the last kind, so files go as fast as they come, without listings.

A machine that sleeps ends no batch, so that day is one of running time (:class:`RunningClock`).

A folder is listed at most once an hour: after a change of the table, once more a day later, and after a failed removal.

Generator methods yield now and then, so that the caller can pause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.delta import FileHistory, LogFiles, files_of
from headgate.errors import HeadgateError
from headgate.lake import MERGED

__all__ = ["Amount", "FileRemover", "RunningClock"]

log = logging.getLogger("headgate")

_YIELD_FILES: Final = 100
_LEAP_SECONDS: Final = 60.0
"""Shortest leap of the wall clock that counts: slower corrections are no suspension."""


@dataclass(frozen=True)
class UpkeepTimes:
    """Intervals of the upkeep, in seconds."""

    listing: float = 3600.0
    """Shortest time between two listings of a table's folder, and longest from a checkpoint to the removal of the log
    before it."""
    orphan: float = 24 * 3600.0
    """Age at which files of no commit are removed, in seconds in which the machine ran."""
    idle: float = 600.0
    """A table without changes for this long is idle."""
    rest: float = 3600.0
    """Time between two requests to a store for a table without known changes."""


class RunningClock:
    """The wall clock without its leaps, such as a suspension of the machine: files that a batch wrote before one are
    not older for it. Not thread-safe.
    """

    def __init__(self) -> None:
        self._wall, self._running = time.time(), time.monotonic()
        asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - self._running if hasattr(time, "CLOCK_BOOTTIME") else 0.0
        self._leaps = [(self._wall, asleep)]
        """When each was noticed, and its seconds. The machine may have slept at any moment since it was started."""

    def ago(self, seconds: float) -> float:
        """Return the moment since which so much time has passed without leaps, in seconds since 1970 UTC."""
        wall, running = time.time(), time.monotonic()
        leap = (wall - self._wall) - (running - self._running)
        if leap > _LEAP_SECONDS:
            self._leaps.append((wall, leap))
        self._wall, self._running = wall, running
        moment = wall - seconds
        for noticed, length in reversed(self._leaps):
            if noticed > moment:
                moment -= length
        return moment


@dataclass(frozen=True)
class Amount:
    """Number of files, and their bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.files + other.files, self.bytes + other.bytes)

    def times(self, factor: float) -> Amount:
        """Return this amount times ``factor``."""
        return Amount(round(self.files * factor), round(self.bytes * factor))


class FileRemover:
    """Remover of unneeded files from one table's folder. Not thread-safe.

    :param dry: only count the files.
    :param clock: of the run that writes the table; by default it begins now.
    """

    def __init__(
        self, folder: str, times: UpkeepTimes | None = None, *, dry: bool = False, clock: RunningClock | None = None
    ) -> None:
        self.folder, self._times, self._clock = folder, times or UpkeepTimes(), clock or RunningClock()
        self.removed = Amount()
        self.failures = 0
        """Removals that failed; they are retried when the files are listed again."""
        self.history = FileHistory(folder, 0)
        self.log = LogFiles(folder)
        self._dry = dry
        self._changed_at = self._checked_at = self._listed_before = 0.0
        self._listed_version = self._log_from = -1
        self._has_failed = False

    def retire(self, logs: Sequence[str]) -> Iterator[None]:
        """Remove files of successors' logs, and list the folder again when the other files are old enough to go."""
        if logs:
            self._changed_at = time.time()
            yield from self._remove(logs)

    def follow(self, oldest: int) -> Iterator[None]:
        """Read the commits since the last call.

        :param oldest: the oldest version that has to stay readable.
        """
        if self.history.version < 0 or not self.history.is_continued():
            self.history, self.log = FileHistory(self.folder, oldest), LogFiles(self.folder)
            self._checked_at, self._listed_before, self._log_from = 0.0, 0.0, -1
        known = self.history.version
        yield from self.history.follow()
        if known != self.history.version:
            self._changed_at = time.time()

    def clean(self, oldest: int, since: float) -> Iterator[None]:
        """Remove what no version from ``oldest`` on needs: what the log names, now and then also what listings find.

        :param since: when the retention began, in seconds since 1970 UTC.
        """
        history = self.history
        names, before = history.unneeded(oldest), self.removed.bytes
        if MERGED not in history.properties:  # else they are other tables' files, which are removed with those
            yield from self._remove(names)
        history.forget(names, self.removed.bytes - before)
        if not history.is_removable:
            return
        now = time.time()
        settled, old = max(since, now - self._times.listing), self._clock.ago(self._times.orphan)
        is_hour, again = now - self._checked_at >= self._times.listing, False
        if is_hour:
            again, self._has_failed, self._checked_at = self._has_failed, False, now
        if is_hour and (again or self._may_have_orphans(old)):
            self._listed_before, self._listed_version = old, history.version
            yield from self._remove_orphans(old)
        if is_hour and (again or oldest != self._log_from):
            self._log_from = oldest
            yield from self._remove(self.log.old_by_listing(oldest, settled, old))
        else:
            yield from self._remove(self.log.old_by_name(oldest, settled))

    def _may_have_orphans(self, before: float) -> bool:
        """Return whether there may be files of no commit that the last listing missed, or found too young."""
        is_old_now = self._listed_before < self._changed_at <= before
        return is_old_now or self._listed_version != self.history.version

    def _remove_orphans(self, before: float) -> Iterator[None]:
        orphans = []
        for file in self.history.orphans(before):
            if file is not None:
                orphans.append(file.name)
            yield
        yield from self._remove(orphans)

    def _remove(self, names: Sequence[str]) -> Iterator[None]:
        """Remove these files, some at the same time, so files of a log have to be removable in any order."""
        for start in range(0, len(names), _YIELD_FILES):
            for done in files_of(self.folder).each(self._remove_one, names[start : start + _YIELD_FILES]):
                if done is None:
                    self.failures, self._has_failed = self.failures + 1, True
                else:
                    self.removed += done
            yield

    def _remove_one(self, name: str) -> Amount | None:
        """Remove a file. Return what it was; None if it could not be removed."""
        files = files_of(self.folder)
        try:
            identity = files.identity(name)
            if identity is not None and not self._dry:
                files.delete(name)
        except (HeadgateError, OSError) as error:
            log.warning("%s/%s cannot be removed: %s", self.folder, name, getattr(error, "strerror", None) or error)
            return None
        return Amount() if identity is None else Amount(1, identity.size)
