"""Immediate upkeep of a lake, without a pipeline: the work of ``headgate maintain``.

It removes what the upkeep of a run removes, by the same rules, so it may run in parallel with one. It folds small files
only while no run holds the lake's lock, which it takes for each commit: a run folds its files itself, and its batches
are planned on versions that only it may move. On S3 there is no such lock, and without Spark no commit: there only runs
fold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from headgate.delta import LOG, FileHistory, Listed, TableLog, data_files_in, files_of, prepare_fold, version_at
from headgate.errors import ConfigError, TargetError
from headgate.files import LockedError, reason_of, try_lock
from headgate.lake import SHARDS, Lake, newest_row
from headgate.upkeep._file_removal import Amount, UpkeepTimes
from headgate.upkeep._retained_versions import RetainedVersions, ledger_moments
from headgate.upkeep._table_upkeep import (
    IDLE_FILES,
    TableUpkeep,
    fold_layout,
    internal_tables,
    load_retained,
    small_files,
)

__all__ = ["Maintained", "Maintenance"]

_HOUR: Final = 3600.0
_WEEK: Final = 168.0
_LEAST_SECONDS: Final = 600.0
_SMALL_FILES: Final = 48
"""Maximum number of small files in a table, of all size classes, as long as they are folded."""
_LARGE_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class Maintained:
    """Result of the upkeep of a table's folder, done or planned."""

    name: str
    before: Amount
    after: Amount
    removed: Amount
    folded: int
    """Number of small files that were folded."""
    failures: int
    """Number of files that could not be removed."""
    week: Amount | None
    """Estimate for in a week, at the rate of the ledger's last hour; None: that hour was too short."""


class Maintenance:
    """One upkeep pass over all tables of a lake.

    :param retention_seconds: how long ledger rows stay readable.
    :param codec: of folded files, by Spark's name.
    :param times: intervals of the upkeep.
    :param dry: only report what would be done.
    :raises ConfigError: the lake has no ledger with a row.
    """

    def __init__(
        self, lake: Lake, retention_seconds: float, codec: str, times: UpkeepTimes | None = None, *, dry: bool
    ) -> None:
        if not files_of(lake.ledger).has_folder(LOG) or not (moments := ledger_moments(lake, _HOUR)):
            raise ConfigError(f"{lake.path} has no ledger with a batch: no pipeline has written there")
        self._lake, self._retention, self._codec, self._dry = lake, retention_seconds, codec.lower(), dry
        self._times = times
        self._hour_begun = max(moments[0] - _HOUR, moments[-1])
        self.seconds = moments[0] - self._hour_begun
        """Length of the ledger's last hour, which may have begun later."""
        self.batches = sum(moment >= self._hour_begun for moment in moments)
        """Number of batches in that hour."""
        self.busy: str | None = None
        """The process that writes the lake, so that nothing was folded; None: none does."""
        self._retained = RetainedVersions()
        self._since = time.time() - retention_seconds
        for _ in load_retained(lake, min(self._since, self._hour_begun), self._retained):
            pass
        self._newest = newest_row(lake)
        self._sources = {lake.current(table, state.place): table for table, state in self._newest.tables.items()}

    def tables(self) -> Iterator[Maintained]:
        """Maintain one table after the other, and yield each result."""
        if self._lake.is_local and not self._dry:
            self._with_lake_lock(lambda: True)
        for folder in [*sorted(self._retained.folders()), *internal_tables(self._lake)]:
            if files_of(folder).has_folder(LOG):
                yield self._maintain(folder)

    def _maintain(self, folder: str) -> Maintained:
        before = _amount(folder)
        folded = self._fold(folder)
        source = self._sources.get(folder)
        table = TableUpkeep(
            folder, self._retained, self._times, None if source is None else (source, "version"), dry=self._dry
        )
        for _ in table.clean(self._since, self._newest):
            pass
        name = folder.removeprefix(f"{self._lake.path}/")
        week = self._in_a_week(folder, table.remover.history)
        after = before + table.remover.removed.times(-1) if self._dry else _amount(folder)
        return Maintained(name, before, after, table.remover.removed, folded, table.remover.failures, week)

    def _fold(self, folder: str) -> int:
        """Fold small files until none are left to fold. Return their number."""
        done, log = 0, TableLog(folder)
        while self._lake.is_local and self.busy is None:
            read = log.refresh()
            layout = fold_layout(read, self._codec)
            files = small_files(self._lake, folder, read, IDLE_FILES)
            if layout is None or not files:
                break
            if self._dry:
                return len(files)
            fold = prepare_fold(folder, files, layout)
            if fold is None:
                break
            is_committed = self._with_lake_lock(partial(fold.commit, log, log.refresh))
            if is_committed is None:
                fold.discard()
            if not is_committed:
                break
            done += len(fold.sources)
        return done

    def _with_lake_lock(self, work: Callable[[], bool]) -> bool | None:
        """Run ``work`` while no run writes to the lake, and return its result; None: a run does."""
        try:
            with try_lock(Path(self._lake.lock), shared=True):
                return work()
        except LockedError as error:
            self.busy = str(error)
            return None
        except OSError as error:
            raise TargetError(f"{self._lake.path} cannot be written: {reason_of(error)}") from None

    def _in_a_week(self, folder: str, history: FileHistory) -> Amount | None:
        """Estimate the files in a week: those of the newest version, plus what the last hour added to them, times a
        week, plus what it left behind or wrote into the log, times the retention.
        """
        if self.seconds < _LEAST_SECONDS:
            return None
        base = self._retained.at(folder, self._hour_begun)
        base = version_at(folder, self._hour_begun) if base is None else base
        live = grown = gone = Amount()
        for listed in data_files_in(folder):
            file, fresh = _size(listed), _size(listed, self._hour_begun)
            since = history.gone_since(listed.name)
            if history.is_live(listed.name):
                live += file
                grown += fresh
            elif since is not None and since > base:
                gone += file
                grown += fresh + file.times(-1)
        gone += _sum(files_of(folder).below(LOG), self._hour_begun)
        hours, kept = self.seconds / _HOUR, min(self._retention / _HOUR, _WEEK)
        rows = live + Amount(max(0, grown.files), max(0, grown.bytes)).times(_WEEK / hours)
        rows = Amount(min(rows.files, _SMALL_FILES + rows.bytes // _LARGE_BYTES), rows.bytes)
        return rows + gone.times(kept / hours)


def _amount(folder: str) -> Amount:
    """Return the amount of a table's files. Shards of a merged table are tables of their own."""
    return _sum(file for file in files_of(folder).below() if not file.name.startswith(f"{SHARDS}/"))


def _sum(files: Iterable[Listed], since: float = 0.0) -> Amount:
    """Return the amount of those files that were written since a moment."""
    return sum((_size(file, since) for file in files), Amount())


def _size(file: Listed, since: float = 0.0) -> Amount:
    """Return a file's amount; nothing if it was written before a moment, or is gone."""
    identity = file.identity()
    return Amount() if identity is None or identity.modified <= since else Amount(1, identity.size)
