"""Upkeep of a lake's tables in parallel with the batches: removes what no reader needs, folds small files.

The ledger determines which versions have to stay readable (``_retained_versions``); for tables that it does not name
(itself, the history of schemas, notifications), the age of their versions does. ``_file_removal`` removes the rest.
``_table_upkeep`` does it for one folder.

**The newest ledger row stays readable**, also of an idle table. Nothing that its version needs is removed here. If
another program has compacted the table (commits that change no data), the next ledger row *adopts* its version, so that
the other program's VACUUM does not break the newest row.

**Often enough.** What versions leave behind goes as fast as batches make new ones: a table of which many versions are
no longer needed is cleaned before the next round. So the files that nothing needs do not grow with the rate of batches.

**On S3** each look costs requests. A table that no batch has changed is checked again when a version of it is no longer
needed, when it has been idle for long enough to be folded, and each hour, because another program may have compacted
it.

**The writer makes all commits**, between those of its batches: folds that were prepared in parallel. The ledger's
follow its row. The thread of the upkeep only reads tables, removes files, and writes checkpoints of logs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.delta import checkpointed_version, worth_checkpoint
from headgate.errors import HeadgateError
from headgate.lake import Lake, followed_log, versions_of
from headgate.upkeep._background import Background
from headgate.upkeep._file_removal import Amount, RunningClock, UpkeepTimes
from headgate.upkeep._folds import Folds
from headgate.upkeep._retained_versions import RetainedVersions
from headgate.upkeep._table_upkeep import (
    BEHIND_VERSIONS,
    IDLE_FILES,
    TableFiles,
    TableUpkeep,
    fold_layout,
    internal_tables,
    load_retained,
    small_files,
)

if TYPE_CHECKING:
    from headgate.lake import Ledger, LedgerRow, TableState

__all__ = ["Upkeep"]

log = logging.getLogger("headgate")

ROUND_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 5.0
"""Time between two looks for tables to clean before the next round."""
_FILES: Final = 16
"""Number of small files of a class that are folded in a table that is not idle."""
_COMMIT_SECONDS: Final = 0.2
"""Maximum time of a batch for folds of tables that it does not write."""


class Upkeep:
    """Upkeep of a lake while a pipeline writes to it.

    :param retention_seconds: how long ledger rows stay readable.
    :param codec: of folded files, by Spark's name.
    """

    def __init__(
        self, lake: Lake, retention_seconds: float, codec: str | None = None, times: UpkeepTimes | None = None
    ) -> None:
        self.times = times or UpkeepTimes()
        self._lake, self._retention, self._codec = lake, retention_seconds, (codec or "snappy").lower()
        self.background = Background(counts_waiting=not lake.is_local)
        self.folds = Folds(self.background)
        self.retained = RetainedVersions()
        self._clock = RunningClock()
        self._is_loaded = False
        self._next_round = 0.0  # by the monotonic clock
        self._newest: LedgerRow | None = None
        self._ledger_version = -1
        self._tables: dict[str, TableUpkeep] = {}
        self._failed: set[str] = set()
        """Folders whose upkeep has failed since the last round began."""

    @property
    def removed(self) -> Amount:
        """Files removed since the start."""
        return sum((table.remover.removed for table in list(self._tables.values())), Amount())

    def files(self) -> list[tuple[str | None, TableFiles]]:
        """Return the files of each Delta table that was cleaned, with its source table; None: the ledger names none.

        What merged tables show are files of other tables.
        """
        tables = [table for table in list(self._tables.values()) if table.is_counted]
        return [(table.source and table.source[0], table.files()) for table in tables]

    def _table(self, folder: str) -> TableUpkeep:
        table = self._tables.get(folder)
        return table or self._tables.setdefault(
            folder, TableUpkeep(folder, self.retained, self.times, clock=self._clock)
        )

    def start(self) -> None:
        """Start to work in parallel with the batches."""
        self.background.repeat(self._look, LOOK_SECONDS)

    def close(self) -> None:
        """End, and remove what was prepared and not committed."""
        self.background.close()
        self.folds.close()

    def note(self, row: LedgerRow, version: int) -> None:
        """Record a committed batch, which made this version of the ledger."""
        versions: dict[str, int] = {}
        building: dict[str, int] = {}
        before = self._newest.tables if self._newest is not None else {}
        for table, state in row.tables.items():
            if state is before.get(table):
                continue
            if state.successor is not None:
                visible = self._lake.current(table, state.place)
                building[f"{visible}/{state.successor.folder}"] = state.successor.version
            for column, folder, number in versions_of(self._lake, state, state.place):
                versions[folder] = number
                self._table(folder).source = (table, column)
        self._newest, self._ledger_version = replace(row, tables=dict(row.tables)), version
        for merged in row.merged:
            versions |= {folder: number for _, folder, number in versions_of(self._lake, merged, merged.place)}
        self.retained.add(row.committed_at.timestamp(), versions, row.shown(self._lake))
        for path, number in (*versions.items(), *building.items(), (self._lake.ledger, version)):
            self._checkpoint(path, number)

    def _checkpoint(self, folder: str, version: int) -> None:
        """Start to write a checkpoint of the log, if it is due; the table is at this version."""
        table = self._table(folder)
        if table.checkpointed is None:
            table.checkpointed = checkpointed_version(folder)
        history = table.remover.history
        if worth_checkpoint(version - table.checkpointed, history.data_files if history.version >= 0 else None):
            table.checkpointed = version
            self.background.submit(table.checkpoint)

    def commit_pending(self, states: Mapping[str, TableState], written: set[str]) -> dict[str, TableState]:
        """Make the waiting commits, and adopt what other programs have compacted. Return the states after that.

        Folds of keyed tables that the batch has written wait: ``apply._upsert`` commits them before the table's next
        batch.
        """
        changed = dict(states)
        end = time.monotonic() + _COMMIT_SECONDS
        for folder, key, work in self._waiting():
            table, column = self._table(folder).source or ("", "")
            if table not in changed or (key and table in written) or time.monotonic() >= end:
                continue
            made = work()
            if made is not None and getattr(changed[table], column) == made - 1:
                changed[table] = _at(changed[table], column, made)
        for one in list(self._tables.values()):
            table, column = one.source or ("", "")
            adoptable = one.take_adoptable()
            if adoptable is not None and table in changed and getattr(changed[table], column) == adoptable[0]:
                changed[table] = _at(changed[table], column, adoptable[1])
        return changed

    def commit_pending_internal(self, ledger: Ledger) -> None:
        """Make the waiting commits to the ledger and other tables that it does not name."""
        for folder, key, work in self._waiting():
            if folder == self._lake.ledger:
                ledger.fold(work)
            elif self._table(folder).source is None and not key:
                work()

    def _waiting(self) -> list[tuple[str, tuple[str, ...], Callable[[], int | None]]]:
        """Return the waiting commits: folder, key of a fold, and what makes the commit and returns its version."""
        return [(folder, key, partial(self._commit_fold, folder, key)) for folder, key in self.folds.ready()]

    def _commit_fold(self, folder: str, key: tuple[str, ...]) -> int | None:
        table = followed_log(folder).refresh()
        return table.version + 1 if self.folds.finish(folder, table, key) else None

    def _look(self) -> Iterator[None]:
        """Check all tables if it is time, else those with much to remove; pause now and then."""
        if time.monotonic() < self._next_round:
            yield from self.clean_behind()
            return
        try:
            yield from self.round()
        finally:  # a round that failed is not repeated at the next look, either
            self._next_round = time.monotonic() + ROUND_SECONDS

    def clean_behind(self) -> Iterator[None]:
        """Clean the tables of which many versions are no longer needed; pause now and then.

        Only after the ledger's rows were loaded: without them, nobody knows which older versions have to stay readable.
        """
        if not self._is_loaded:
            return
        since = time.time() - self._retention
        for table in list(self._tables.values()):
            if table.folder not in self._failed and table.is_behind(since):
                yield from self._maintain(table, since)
        ledger = self._table(self._lake.ledger)
        is_behind = self._ledger_version - ledger.remover.history.version >= BEHIND_VERSIONS
        if is_behind and ledger.folder not in self._failed:
            yield from self._maintain(ledger, since)

    def round(self) -> Iterator[None]:
        """Check all tables once; pause now and then."""
        since = time.time() - self._retention
        if not self._is_loaded:
            yield from load_retained(self._lake, since, self.retained)
            self._is_loaded = True
        self.retained.forget(since)
        self._failed.clear()
        for folder in [*self.retained.folders(), *internal_tables(self._lake)]:
            table = self._table(folder)
            if self._lake.is_local or not table.may_rest(since):
                yield from self._maintain(table, since)

    def _maintain(self, table: TableUpkeep, since: float) -> Iterator[None]:
        try:
            yield from table.clean(since, self._newest)
            self._checkpoint(table.folder, table.remover.history.version)
            table.offer()
            self._offer_fold(table)
        except (HeadgateError, OSError) as error:
            self._failed.add(table.folder)
            log.warning("upkeep of %s failed, will retry: %s", table.folder, error)
        yield

    def _offer_fold(self, table: TableUpkeep) -> None:
        """Start to fold small files, unless the table's upserts fold them."""
        is_idle, history = table.is_idle(time.time()), table.remover.history
        least = IDLE_FILES if is_idle else _FILES
        if history.data_files < least or table.fold_tried == history.version or (table.is_keyed and not is_idle):
            return
        read = followed_log(table.folder).refresh()
        layout = fold_layout(read, self._codec)
        table.is_keyed = layout is not None and bool(layout.key)
        if table.is_keyed and not is_idle:
            return
        table.fold_tried = history.version
        if layout is not None:
            self.folds.begin_with(table.folder, small_files(self._lake, table.folder, read, least), layout)


def _at(state: TableState, column: str, version: int) -> TableState:
    return replace(state, version=version) if column == "version" else replace(state, changelog_version=version)
